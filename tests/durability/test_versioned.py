"""Batches as versions: each applied once, whoever asks for it again, from whatever is in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import files, ownership
from tidegate.durability.ownership import process_token, stay_alive
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import CHANGE_BYTES_MIN, VersionStore
from tidegate.foundation.storage import open_storage
from tidegate.operations.plan import Program

from .bank import deposit, withdraw


@tg.table(key="name")
class Counter:
    name: str
    count: int = 0


@tg.transaction
def count(counter: Counter) -> int:
    counter.count += 1
    return counter.count


PROGRAM = build_program([deposit, withdraw])


def batch(*rows: tuple[Any, ...]) -> pa.Table:
    names = ("ts", "transaction", "dst", "amount")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


class State:
    """A state directory and the queries that come and go on it."""

    def __init__(self, path: Path, program: Program = PROGRAM, keep_versions: int = 100) -> None:
        self.path, self.program, self.keep_versions = str(path), program, keep_versions
        self.engine = self.fresh()

    def fresh(self) -> VersionedEngine:
        return VersionedEngine(self.program, self.path, keep_versions=self.keep_versions)

    def run(self, query: str, number: int, events: pa.Table, **options: Any) -> list[Any]:
        owner = Owner(query, "test", process_token())
        stay_alive(open_storage(self.path), owner.token)
        settings: dict[str, Any] = {"order_by": "ts", "late": "run", **options}
        outcomes = self.engine.process(stream_applicant(query, number), events, owner=owner, **settings)
        return [(row["committed"], row["reason"], row["result"]) for row in outcomes.to_pylist()]

    def release(self, query: str) -> None:
        ownership.release(open_storage(self.path), query)

    def balances(self) -> dict[int, int]:
        rows = self.fresh().core.rows("Account")
        return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))

    def versions(self) -> list[tuple[int, str, int]]:
        return [(i.version, i.query, i.batch) for i in VersionStore(open_storage(self.path)).infos()]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


FIRST = batch((1, "deposit", 1, 100), (2, "deposit", 2, 7), (3, "withdraw", 2, 7), (4, "withdraw", 3, 1))
SECOND = batch((5, "withdraw", 1, 30), (6, "deposit", 2, 5))
FIRST_OUTCOMES = [(True, None, 100), (True, None, 7), (True, None, 7), (False, "insufficient funds", None)]


@pytest.mark.parametrize("warm", [True, False])
def test_a_batch_asked_for_again_gives_the_same_outcomes_and_changes_nothing(state: State, warm: bool) -> None:
    assert state.run("q", 0, FIRST) == FIRST_OUTCOMES
    for _ in range(2):
        state.engine = state.engine if warm else state.fresh()
        assert state.run("q", 0, FIRST) == FIRST_OUTCOMES
    assert state.balances() == {1: 100}
    assert state.versions() == [(1, "q", 0)]
    assert state.run("q", 1, SECOND) == [(True, None, 30), (True, None, 5)]
    assert state.run("q", 0, FIRST) == FIRST_OUTCOMES
    assert state.balances() == {1: 70, 2: 5}


def test_an_engine_that_fell_behind_catches_up(state: State) -> None:
    behind = state.fresh()
    state.run("q", 0, FIRST)
    behind.core.rows("Account")
    state.run("q", 1, SECOND)
    state.engine = behind
    assert state.run("q", 2, batch((7, "withdraw", 1, 70))) == [(True, None, 70)]
    assert state.balances() == {2: 5}


def test_a_new_query_goes_on_from_the_newest_version(state: State) -> None:
    state.run("q", 0, FIRST)
    state.run("q", 1, SECOND)
    state.release("q")
    assert state.run("other", 0, batch((1, "withdraw", 1, 70))) == [(True, None, 70)]
    assert state.versions() == [(1, "q", 0), (2, "q", 1), (3, "other", 0)]


def test_a_checkpoint_older_than_what_is_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 1)
    state = State(tmp_path, keep_versions=2)
    for number in range(45):
        state.run("q", number, batch((number, "deposit", 1, 1)))
    with pytest.raises(tg.RecoveryImpossible, match=r"(?s)batch 2,.*batch 44.*new checkpoint"):
        state.run("q", 2, SECOND)
    assert state.balances() == {1: 45}


def test_a_batch_replayed_with_other_events_is_refused_and_harms_nothing(state: State) -> None:
    state.run("q", 0, FIRST)
    with pytest.raises(tg.RecoveryImpossible, match="does not come out the same"):
        state.run(
            "q", 0, batch((1, "deposit", 1, 99), (2, "deposit", 2, 7), (3, "withdraw", 2, 7), (4, "deposit", 3, 1))
        )
    assert state.balances() == {1: 100}
    assert state.run("q", 1, SECOND) == [(True, None, 30), (True, None, 5)]


def test_a_second_owner_is_refused_until_the_first_lets_go(state: State) -> None:
    state.run("q", 0, FIRST)
    with pytest.raises(tg.StateOwned, match="q"):
        state.run("other", 0, SECOND)
    state.release("q")
    assert state.run("other", 0, SECOND)[0] == (True, None, 30)


def test_late_events_run_or_are_refused(state: State) -> None:
    state.run("q", 0, FIRST)
    late = batch((3, "deposit", 1, 1), (4, "deposit", 1, 1), (5, "deposit", 1, 1))
    assert state.run("q", 1, late, late="refuse") == [(False, "late event", None), (True, None, 101), (True, None, 102)]
    state.engine = state.fresh()
    assert state.run("q", 1, late, late="refuse")[0] == (False, "late event", None)
    assert state.run("q", 2, batch((1, "deposit", 1, 1))) == [(True, None, 103)]


def test_a_long_history_is_snapshotted_collected_and_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 7 * CHANGE_BYTES_MIN)
    state = State(tmp_path, keep_versions=5)
    for number in range(100):
        assert state.run("q", number, batch((number, "deposit", number % 9, 1)))[0][0]
    assert state.balances() == {key: len(range(key, 100, 9)) for key in range(9)}
    kept = [version for version, _, _ in state.versions()]
    assert kept[-1] == 100 and kept == list(range(kept[0], 101)) and 80 <= kept[0] <= 96


def test_tables_that_the_program_does_not_use_are_kept(tmp_path: Path) -> None:
    both = State(tmp_path, build_program([deposit, count]))
    events = batch((1, "deposit", 1, 5)).append_column("counter", pa.array(["x"]))
    both.run("q", 0, events)
    both.run(
        "q", 1, pa.Table.from_pylist([{"ts": 2, "transaction": "count", "counter": "x", "dst": None, "amount": None}])
    )
    ledger = State(tmp_path)
    ledger.run("q", 2, batch((3, "deposit", 1, 5)))
    again = State(tmp_path, build_program([count]))
    assert again.fresh().core.rows("Counter").to_pylist() == [{"name": "x", "count": 1}]
    assert again.fresh().core.rows("Account").to_pylist() == [{"id": 1, "balance": 10}]


def test_an_initial_load_happens_once(state: State) -> None:
    rows = {"Account": pa.table({"id": [5, 6], "balance": [50, 60]})}
    assert state.engine.initialise(rows)
    assert not state.fresh().initialise(rows)
    assert state.run("q", 0, batch((1, "withdraw", 5, 50))) == [(True, None, 50)]
    assert not state.fresh().initialise(rows)
    assert state.balances() == {6: 60}


def test_opening_a_snapshot_makes_room_for_its_rows_once(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SECTION_BYTES", 1 << 10)
    ids = list(range(5000))
    state.engine.initialise({"Account": pa.table({"id": ids, "balance": ids})})
    table = state.fresh().core.tables["Account"]
    assert table.count == len(table.exists) == 5000
    assert state.balances() == dict(zip(ids, ids, strict=True))


def test_the_loser_of_a_race_for_a_version_repeats_the_winner(state: State) -> None:
    """Two attempts of one batch, as speculation runs them: the slower one finds the version made."""
    slow = state.fresh()
    commit = slow._store.commit

    def lose(*arguments: Any) -> Any:
        state.run("q", 0, FIRST)
        return commit(*arguments)

    slow._store.commit = lose  # type: ignore[method-assign]
    state_of_slow = State(Path(state.path))
    state_of_slow.engine = slow
    assert state_of_slow.run("q", 0, FIRST) == FIRST_OUTCOMES
    assert state.versions() == [(1, "q", 0)]
