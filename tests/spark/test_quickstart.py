"""The README's programs run as they are printed, and print what stands below them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
QUICKSTART = BLOCKS[0]
DECLARATIONS, _, REST = QUICKSTART.partition('Path("in")')
TRANSCRIPT = re.search(r"^```\n(\+.*?)^```$", README, re.MULTILINE | re.DOTALL)

# What the text around a block says is there: nothing that the block itself is about.
NEEDED = {
    "engine = tg.Engine([transfer, deposit])": f"import pyarrow as pa\n{DECLARATIONS}",
    "engine = tg.Engine([transfer, deposit], directory=": DECLARATIONS,
    "from tidegate.testing import": f"""\
import pyarrow as pa
{DECLARATIONS}
batch_1 = pa.table({{"transaction": ["transfer"], "src": [1], "dst": [2], "amount": [30]}})
batch_2 = pa.table({{"transaction": ["transfer"], "src": [2], "dst": [1], "amount": [40]}})
rows = pa.table({{"id": [1], "balance": [100]}})
""",
    "votes = tg.stream": """\
import pyarrow as pa
import tidegate as tg

@tg.table(key="phone")
class Voter:
    phone: int
    contestant: int = 0

@tg.table(key="id")
class Contestant:
    id: int
    votes: int = 0
    trend: int = 0
""",
    "from tidegate.workloads.streaming_ledger": "",
}
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
    "votes = tg.stream": """
assert outcomes["committed"].to_pylist() == [True, True]
assert engine.read(Contestant, 7)["votes"] == 2
""",
}
# It needs a source of requests and a second process; tests/spark/test_awaiting.py has both.
ONLY_WITH_MORE = ("outcomes = transact(events.unionByName(requests)",)


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
    assert TRANSCRIPT is not None and REST
    ledger = tmp_path / "ledger.py"
    assert run(ledger, QUICKSTART).strip() == TRANSCRIPT[1].strip()
    first = [(1, True, None), (2, True, None), (3, False, "insufficient funds")]
    assert outcomes(tmp_path) == first

    event = {"ts": 4, "transaction": "transfer", "src": 2, "dst": 3, "amount": 10}
    (tmp_path / "in" / "2.json").write_text(json.dumps(event))
    assert balances(run(ledger, QUICKSTART)) == {1: 70, 2: 20, 3: 10}, "what was there before counts once"
    assert outcomes(tmp_path) == [*first, (4, True, None)]


@pytest.mark.parametrize("start", NEEDED)
def test_other_programs_of_the_readme_run(tmp_path: Path, start: str) -> None:
    (block,) = [block for block in BLOCKS if block.startswith(start)]
    run(tmp_path / "program.py", NEEDED[start] + block + CHECKED.get(start, ""))


def test_every_program_of_the_readme_is_run_or_is_known_to_need_more() -> None:
    known = (QUICKSTART, *NEEDED, *ONLY_WITH_MORE)
    assert [block for block in BLOCKS if not block.startswith(known)] == []
