"""The README's quickstart in an interpreter of its own, as a user starts it: with its own Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from ..pages import blocks

QUICKSTART, TRANSCRIPT = (block.code for block in blocks("README.md")[:2])


def run(file: Path, script: str) -> str:
    """What a script prints when a fresh interpreter runs it in the folder that it lies in."""
    file.write_text(script)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quickstart_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """That a stream goes on where it was is the tutorial's, which `tests/documentation` runs."""
    assert run(tmp_path / "ledger.py", QUICKSTART).strip() == TRANSCRIPT.strip()
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["ts"], row["committed"], row["reason"]) for row in rows) == [
        (1, True, None),
        (2, True, None),
        (3, False, "insufficient funds"),
    ]
