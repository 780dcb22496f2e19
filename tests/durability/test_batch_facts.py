"""What a batch did is read from the header of its version, and stays small."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.durability.batch_facts import OTHERS, REASONS_MAX, TEXT_MAX, batches_of, describe, facts_of
from tidegate.durability.versions import VersionStore
from tidegate.engine.report import BatchReport
from tidegate.foundation.storage import open_storage
from tidegate.testing import CRASH, EventSource, run_source


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def pay(src: Account, amount: int) -> None:
    tg.require(amount >= 0, "negative amount")
    tg.require(src.balance + 10 >= amount, "insufficient funds")
    src.balance -= amount


@pytest.fixture
def state(tmp_path: Path, plainly: None) -> str:
    first = pa.table({"src": [1, 1, 2, 2], "amount": [5, -1, 7, 100]})
    second = pa.table({"src": [1], "amount": [1]})
    run_source([pay], EventSource([first, CRASH, second]), state=tmp_path)
    return str(tmp_path)


def test_each_version_says_what_its_batch_did(state: str) -> None:
    first, second = batches_of(state)
    assert (first["version"], first["batch"], first["events"], first["committed"]) == (1, 0, 4, 2)
    assert first["aborted"] == {"negative amount": 1, "insufficient funds": 1}
    assert (first["strategy"], first["workers"], first["interpreted"]) == ("serial", 1, 0)
    assert first["seconds"]["execute"] > 0 and first["why"] and first["committed_at"] < second["committed_at"]
    assert (second["events"], second["committed"], second["aborted"]) == (1, 1, {})


def test_a_batch_in_one_line(state: str) -> None:
    line = describe(VersionStore(open_storage(state)).info(1))
    assert "version 1, batch 0 of test-source: 4 events, 2 committed, aborted: " in line
    assert "negative amount 1" in line and "; serial, 0." in line and "execute 0." in line


def test_of_many_reasons_the_most_frequent_are_kept() -> None:
    counts = {f"reason {n:03} {'x' * 500}": n for n in range(1, 101)}
    report = BatchReport(5050, 0, counts, "serial", 0, {}, interior_aborts={"rank": {"tie": 3}})
    facts = facts_of(report)
    assert len(facts["aborted"]) == REASONS_MAX + 1 and sum(facts["aborted"].values()) == 5050
    assert facts["aborted"][OTHERS] == sum(range(1, 91)) and max(map(len, facts["aborted"])) == TEXT_MAX
    assert facts["aborted_inside"] == {"rank: tie": 3}


def test_versions_without_a_batch_have_no_facts(tmp_path: Path, plainly: None) -> None:
    with tg.Engine([pay], directory=tmp_path) as engine:
        engine.load(Account, [{"id": 1, "balance": 5}])
    for row in batches_of(str(tmp_path)):
        assert row["strategy"] is None and row["aborted"] is None
    assert describe(VersionStore(open_storage(str(tmp_path))).info(1)).startswith("version 1, batch ")
