"""The README's programs run as they are printed, and print what stands below them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..readme import BLOCKS, NEEDED, QUICKSTART, README, program

TRANSCRIPT = re.search(r"^```\n(\+.*?)^```$", README, re.MULTILINE | re.DOTALL)
CHECKED = {
    "engine = tg.Engine([transfer, deposit])": """
assert outcomes["committed"].to_pylist() == [True]
assert engine.read(Account, 1) == {"id": 1, "balance": 70}
assert engine.scan(Account).to_pylist() == [{"id": 1, "balance": 70}, {"id": 2, "balance": 35}]
""",
    "engine = tg.Engine([transfer, deposit], directory=": """
assert engine.execute(deposit, idempotency_key="order-7", dst=2, amount=5).committed
engine.close()
engine = tg.Engine([transfer, deposit], directory="state/shop")
assert engine.read(Account, 2) == {"id": 2, "balance": 5}
""",
    "from typing import Annotated": """
assert outcomes["committed"].to_pylist() == [True, True]
assert engine.read(Contestant, 7)["votes"] == 2
""",
}
# The quickstart has a test of its own; requests need a source and a second process, which test_awaiting.py has.
NOT_HERE = ("from pathlib import Path", "outcomes = transact(events.unionByName(requests)")


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
    assert TRANSCRIPT is not None
    ledger = tmp_path / "ledger.py"
    assert run(ledger, QUICKSTART).strip() == TRANSCRIPT[1].strip()
    first = [(1, True, None), (2, True, None), (3, False, "insufficient funds")]
    assert outcomes(tmp_path) == first

    event = {"ts": 4, "transaction": "transfer", "src": 2, "dst": 3, "amount": 10}
    (tmp_path / "in" / "2.json").write_text(json.dumps(event))
    assert balances(run(ledger, QUICKSTART)) == {1: 70, 2: 20, 3: 10}, "what was there before counts once"
    assert outcomes(tmp_path) == [*first, (4, True, None)]


@pytest.mark.parametrize("start", [start for start in NEEDED if start not in NOT_HERE])
def test_other_programs_of_the_documentation_run(tmp_path: Path, start: str) -> None:
    run(tmp_path / "program.py", program(start) + CHECKED.get(start, ""))


def test_every_program_of_the_documentation_is_known_to_the_tests() -> None:
    assert [block for block in BLOCKS if not block.startswith(tuple(NEEDED))] == []
