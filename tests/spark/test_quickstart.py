"""The README's quickstart in an interpreter of its own, as a user starts it: with its own Spark, and once more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ..pages import blocks

QUICKSTART, TRANSCRIPT = (block.code for block in blocks("README.md")[:2])


def run(file: Path, script: str) -> str:
    """What a script prints when a fresh interpreter runs it in the folder that it lies in."""
    file.write_text(script)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def balances(printed: str) -> dict[int, int]:
    return {int(key): int(balance) for key, balance in re.findall(r"\| *(\d+)\| *(\d+)\|", printed)}


def outcomes(folder: Path) -> list[tuple[int, bool, str | None]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "out").to_pylist()
    return sorted((row["ts"], row["committed"], row["reason"]) for row in rows)


def test_the_quickstart_runs_in_an_empty_folder_and_again_when_there_is_more(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.py"
    assert run(ledger, QUICKSTART).strip() == TRANSCRIPT.strip()
    first = [(1, True, None), (2, True, None), (3, False, "insufficient funds")]
    assert outcomes(tmp_path) == first

    event = {"ts": 4, "transaction": "transfer", "src": 2, "dst": 3, "amount": 10}
    (tmp_path / "in" / "2.json").write_text(json.dumps(event))
    assert balances(run(ledger, QUICKSTART)) == {1: 70, 2: 20, 3: 10}, "what was there before counts once"
    assert outcomes(tmp_path) == [*first, (4, True, None)]
