"""States whose versions keep events: what an engine does with them, and what becomes of readers without the program."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import files, ownership
from tidegate.durability.adoption import adopt_query
from tidegate.durability.compaction import compact
from tidegate.durability.copying import back_up, restore
from tidegate.durability.listing import file_name
from tidegate.durability.recovery import recover
from tidegate.durability.reshaping import Reshaping
from tidegate.durability.rollback import roll_back
from tidegate.durability.scrubbing import Scrubber
from tidegate.durability.served import Applicant, call_applicant, once_applicant, stream_applicant
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.verification import check_state
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log, rows_by_running
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import CHANGE_BYTES_MIN, VersionStore
from tidegate.foundation.errors import InputError, RecoveryImpossible, StorageFailed
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.plan import Program

from .bank import Account, deposit, withdraw


def doubled() -> Program:
    """The same transactions, but a deposit counts twice."""

    @tg.transaction
    def deposit(dst: Account, amount: int) -> int:
        dst.balance += 2 * amount
        return dst.balance

    return build_program([deposit, withdraw])


def with_limit() -> Program:
    """The same with a new field."""

    @tg.table(key="id")
    class Account:
        id: int
        balance: int = 0
        limit: int = 7

    @tg.transaction
    def deposit(dst: Account, amount: int) -> int:
        dst.balance += amount
        return dst.limit

    return build_program(deposit)


PROGRAM = build_program([deposit, withdraw])
OTHER = doubled()
PUT = [(1, "deposit", 1, 5), (2, "deposit", 1, 5)]


def batch(*rows: tuple[Any, ...]) -> pa.Table:
    names = ("ts", "transaction", "dst", "amount", "note")
    return pa.Table.from_pylist([dict(zip(names, (*row, *("",) * (5 - len(row))), strict=True)) for row in rows])


class State:
    """A state directory and what is asked of it; each engine knows nothing but the files."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    @property
    def storage(self) -> Storage:
        return open_storage(self.path)

    @property
    def store(self) -> VersionStore:
        return VersionStore(self.storage)

    def engine(self, log: Log = "commands", program: Program = PROGRAM, **options: Any) -> VersionedEngine:
        return VersionedEngine(program, self.path, log=log, **options)

    def ask(self, engine: VersionedEngine, number: int, *rows: tuple[Any, ...], **options: Any) -> list[Any]:
        """What an engine answers to a batch of the query."""
        return self.apply(engine, stream_applicant("q", number), *rows, **options)

    def apply(self, engine: VersionedEngine, applicant: Applicant, *rows: tuple[Any, ...], **options: Any) -> list[Any]:
        owner = Owner("q", "test", ownership.process_token()) if applicant.form != "once" else None
        if owner is not None:
            ownership.stay_alive(self.storage, owner.token)
        settings: dict[str, Any] = {"order_by": "ts" if rows else None, "late": "run", **options}
        outcomes = engine.process(applicant, batch(*rows) if rows else batch(*PUT).slice(0, 0), owner=owner, **settings)
        return [row["result"] if row["committed"] else row["reason"] for row in outcomes.to_pylist()]

    def run(self, number: int, *rows: tuple[Any, ...], log: Log = "commands", **options: Any) -> list[Any]:
        return self.ask(self.engine(log), number, *rows, **options)

    def release(self) -> None:
        ownership.release(self.storage, "q")

    def balances(self, version: int | None = None) -> dict[int, int]:
        rows = rows_by_running(self.store, PROGRAM, PROGRAM.plan.tables[0], version)
        return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))

    def kinds(self) -> list[str]:
        return ["events" if info.program else "rows" for info in self.store.infos()]

    @property
    def snapshots(self) -> list[int]:
        return [int(name[:12]) for name in self.storage.list() if name.endswith(".snapshot")]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


@pytest.fixture
def kept(state: State) -> State:
    """One version that keeps rows and two that keep events: account 1 holds 10, 20, 30."""
    for number in range(3):
        state.run(number, (2 * number + 1, "deposit", 1, 5), (2 * number + 2, "deposit", 1, 5), log=LOGS[number])
    state.release()
    return state


LOGS: list[Log] = ["changes", "commands", "commands"]
ACCOUNT = PROGRAM.plan.tables[0]


# --- what is kept -------------------------------------------------------------------------------------------


def test_a_version_keeps_the_events_that_ran_in_their_order_and_only_what_the_program_needs(state: State) -> None:
    state.run(0, (3, "deposit", 1, 3, "c"), (1, "deposit", 1, 1, "a"), (2, "withdraw", 2, 2, "b"))
    found = state.store.read_contents(1)
    assert found.events is not None and found.changes == {} and found.order is None
    assert found.events.to_pylist() == [
        {"transaction": "deposit", "dst": 1, "amount": 1},
        {"transaction": "withdraw", "dst": 2, "amount": 2},
        {"transaction": "deposit", "dst": 1, "amount": 3},
    ]


def test_late_events_are_not_kept_and_stay_refused(state: State) -> None:
    state.run(0, (5, "deposit", 1, 1))
    rows = [(4, "deposit", 1, 10), (6, "deposit", 1, 1), (None, "deposit", 1, 100)]
    wanted = ["late event", 2, "null in order column 'ts'"]
    for _ in range(2):
        assert state.run(1, *rows, late="refuse") == wanted
    found = state.store.read_contents(2).events
    assert found is not None and found.num_rows == 1
    assert state.balances() == {1: 2}


def test_empty_batches_are_versions_as_well(state: State) -> None:
    assert state.run(0) == [] and state.run(1, *PUT) == [5, 10] and state.run(2) == [] and state.run(2) == []
    assert state.kinds() == ["events"] * 3 and state.balances() == {1: 10}


def test_a_file_with_rows_is_written_as_ever_and_one_with_events_asks_for_a_newer_tidegate(kept: State) -> None:
    headers = [files.read_header(kept.storage, file_name(version, "change")) for version in (1, 2)]
    assert "program" not in headers[0].fields and "ran" not in headers[0].fields
    numbers = [
        int.from_bytes(bytes(kept.storage.read(file_name(version, "change"), 8, 4)), "little") for version in (1, 2)
    ]
    assert numbers == [files.FORMAT, files.EVENTS_FORMAT]


def test_rows_to_begin_with_are_kept_as_rows(state: State) -> None:
    assert state.engine().initialise({"Account": pa.table({"id": [1, 2], "balance": [10, 20]})})
    assert state.run(0, (1, "withdraw", 1, 10)) == [10]
    assert state.kinds() == ["rows", "events"] and state.balances() == {2: 20}


def test_plain_python_is_refused(state: State) -> None:
    @tg.transaction(compiled=False)
    def guess(dst: Account) -> None:
        dst.balance = hash(object())

    with pytest.raises(InputError, match=r"guess, declared compiled=False.*log=\"changes\""):
        state.engine(program=build_program([deposit, guess]))


# --- batches that are asked for again -----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["changes", "commands"])
@pytest.mark.parametrize("second", ["changes", "commands"])
def test_a_batch_asked_for_again_gives_the_same_outcomes_whatever_was_kept(
    state: State, first: Log, second: Log
) -> None:
    rows = [(1, "deposit", 1, 5), (2, "withdraw", 1, 7), (3, "deposit", 1, 5), (4, "withdraw", 1, 10)]
    for log in (first, second, second):
        assert state.run(0, *rows, log=log) == [5, "insufficient funds", 10, 10]
    assert state.run(1, *PUT, log=second) == [5, 10] and state.balances() == {1: 10}


def test_of_equal_events_the_first_by_order_is_the_first_again(state: State) -> None:
    assert state.run(0, *PUT) == [5, 10]
    assert state.run(0, *reversed(PUT)) == [10, 5]


def test_ties_run_again_in_the_order_of_the_first_time(state: State) -> None:
    tied = [(1, "deposit", 1, 5, "a"), (1, "withdraw", 1, 5, "b"), (1, "deposit", 1, 5, "c")]
    assert state.run(0, *tied) == [5, 5, 5]
    tied = [(1, "withdraw", 1, 5, "b"), (1, "deposit", 1, 5, "c"), (1, "deposit", 1, 5, "a")]
    assert state.run(0, *tied) == [5, 5, 5] and state.balances() == {1: 5}
    assert state.run(0, tied[0], tied[2], tied[1]) == [5, 5, 5]


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "deposit", 1, 5), (2, "deposit", 1, 6)],
        [(1, "deposit", 1, 5)],
        [(1, "deposit", 1, 5), (2, "deposit", 2, 5)],
        [(1, "deposit", 1, 5), (2, "withdraw", 1, 5)],
    ],
)
def test_other_events_are_refused_and_harm_nothing(state: State, rows: list[tuple[Any, ...]]) -> None:
    engine = state.engine()
    state.ask(engine, 0, *PUT)
    with pytest.raises(RecoveryImpossible, match=r"does not come out the same.*tidegate state adopt"):
        state.ask(engine, 0, *rows)
    assert state.ask(engine, 1, (3, "deposit", 1, 1)) == [11] and state.balances() == {1: 11}


def test_a_batch_of_another_program_is_not_run_again(kept: State) -> None:
    with pytest.raises(RecoveryImpossible, match="another program than this one ran it"):
        kept.ask(kept.engine(program=OTHER), 2, (5, "deposit", 1, 5), (6, "deposit", 1, 5))


def test_a_batch_on_top_of_another_programs_events_is_not_run_again(kept: State) -> None:
    """Its own rows are kept, but not those that it ran on."""
    kept.run(3, (9, "deposit", 1, 5), log="changes")
    with pytest.raises(RecoveryImpossible, match=r"only another program can rebuild.*adopt \S+ --query q --batch 4"):
        kept.ask(kept.engine(program=OTHER), 3, (9, "deposit", 1, 5))
    assert kept.ask(kept.engine(program=OTHER), 4, (10, "deposit", 1, 5)) == [45]


def test_calls_and_batch_dataframes_work_alike(state: State) -> None:
    for _ in range(2):
        assert state.apply(state.engine(), call_applicant("q", 0, 0), *PUT) == [5, 10]
    state.release()
    for _ in range(2):
        assert state.apply(state.engine(), once_applicant("f"), *PUT) == [15, 20]
    assert state.kinds() == ["events", "events"] and state.balances() == {1: 20}


# --- another program ----------------------------------------------------------------------------------------


def test_another_program_is_refused_with_the_versions_and_the_ways_out(kept: State) -> None:
    for log in LOGS:
        with pytest.raises(RecoveryImpossible) as refused:
            kept.ask(kept.engine(log, OTHER), 3, (9, "deposit", 1, 1))
    message = str(refused.value)
    assert "versions 2-3 hold the events of a batch" in message and "another program than this one ran them" in message
    assert "Versions that can be read without it: 1." in message
    assert 'log="changes"' in message and f"tidegate state rollback {kept.path} --to 1" in message
    assert kept.balances() == {1: 30}


def test_an_engine_that_fell_behind_another_program_is_refused(state: State) -> None:
    state.run(0, *PUT, log="changes")
    behind = state.engine("changes", OTHER)
    behind.core.rows("Account")
    state.run(1, (3, "deposit", 1, 5))
    with pytest.raises(RecoveryImpossible, match="version 2 holds the events"):
        state.ask(behind, 2, (5, "deposit", 1, 5))


def test_one_version_with_rows_lets_any_program_go_on(kept: State) -> None:
    assert kept.run(3, (9, "deposit", 1, 5), log="changes") == [35]
    assert kept.snapshots == [4]
    assert kept.ask(kept.engine("commands", with_limit()), 4, (10, "deposit", 1, 5)) == [7]
    assert kept.kinds() == ["rows", "events", "events", "rows", "events"]
    with pytest.raises(RecoveryImpossible, match="version 5 holds the events"):
        rows_at(kept.store, with_limit().plan.tables[0])
    rows = rows_by_running(kept.store, with_limit(), with_limit().plan.tables[0], None).to_pylist()
    assert rows == [{"id": 1, "balance": 40, "limit": 7}]
    assert [kept.balances(version) for version in (2, 3, 4)] == [{1: 20}, {1: 30}, {1: 35}]


def test_a_version_with_rows_owes_a_snapshot_until_there_is_one(kept: State, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = kept.engine("changes")
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise StorageFailed("the disk is full")

        patch.setattr(engine._store, "snapshot", fail)
        assert kept.ask(engine, 3, (9, "deposit", 1, 5)) == [35]
    assert kept.snapshots == []
    with pytest.raises(RecoveryImpossible):
        rows_at(kept.store, ACCOUNT)
    assert kept.run(4, (10, "deposit", 1, 5), log="changes") == [40]
    assert kept.snapshots == [5] and rows_at(kept.store, ACCOUNT).to_pylist() == [{"id": 1, "balance": 40}]


# --- snapshots ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [1 << 20, 0])
def test_snapshots_come_from_memory_and_old_versions_go(
    state: State, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 7 * CHANGE_BYTES_MIN)
    monkeypatch.setattr("tidegate.durability.housekeeping.SMALL_BYTES", small)
    engine = state.engine(keep_versions=5)
    for number in range(60):
        assert state.ask(engine, number, (number, "deposit", number % 9, 1))
    wanted = {key: len(range(key, 60, 9)) for key in range(9)}
    assert state.balances() == wanted and len(state.store.refresh()) < 30 and state.snapshots
    assert engine._housekeeping.compactor._thread is None
    snapshot = state.store.snapshot_below(60)
    assert sum(row["balance"] for row in rows_at(state.store, ACCOUNT, snapshot).to_pylist()) == snapshot


def test_events_weigh_as_much_as_the_rows_that_they_change(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes of events may take long to run: what lies behind a snapshot must stay quick to open."""

    @tg.transaction
    def credit(dst: Account, amount: int) -> None:
        for place in range(50):
            account = tg.lookup(Account, dst.id * 50 + place)
            account.balance += amount

    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 4 * CHANGE_BYTES_MIN)
    rows = [(number, "credit", number, 1) for number in range(200)]
    state.ask(state.engine(program=build_program(credit)), 0, *rows)
    info = state.store.info(1)
    assert info.weight == 200 * 50 * 2 * 8 and info.size < CHANGE_BYTES_MIN
    assert state.snapshots == [1]


def test_files_are_not_put_together_over_events(kept: State) -> None:
    with pytest.raises(RecoveryImpossible, match="versions 2-3 hold the events"):
        compact(kept.store, 3)
    assert kept.snapshots == []
    assert compact(kept.store, 1).version == 1


# --- readers without the program ------------------------------------------------------------------------------


def test_rows_are_read_where_they_are_kept_and_refused_elsewhere(kept: State) -> None:
    store = kept.store
    assert store.readable() == [1] and rows_at(store, ACCOUNT, 1).to_pylist() == [{"id": 1, "balance": 10}]
    for read in (lambda: rows_at(store, ACCOUNT), lambda: store.load(3)):
        with pytest.raises(RecoveryImpossible, match=r"no program is at hand.*read_state\(\.\.\., transactions="):
            read()


def test_an_engine_in_a_process_is_refused(kept: State) -> None:
    with pytest.raises(RecoveryImpossible, match="versions 2-3 hold the events"):
        tg.Engine([deposit, withdraw], directory=kept.path)


def test_verifying_checks_the_files_and_says_what_takes_a_program(kept: State) -> None:
    kept.run(3, (9, "deposit", 1, 5), log="changes")
    report = check_state(kept.storage, deep=True)
    assert report.sound and report.rebuildable == ((1, 4),)
    remarks = "\n".join(report.remarks)
    assert "versions 2-3: events in place of rows" in remarks and "read without it: 1, 4" in remarks
    assert "not rebuilt, for that takes a program: snapshot 4" in remarks


def test_a_flipped_bit_in_events_is_found(kept: State) -> None:
    file = Path(kept.path) / file_name(2, "change")
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert Scrubber(kept.storage).step(1 << 30)
    report = check_state(kept.storage)
    assert [check.name for check in report.files if check.problem] == [file.name]
    assert "the events of the batch" in str(next(check.problem for check in report.files if check.problem))


def test_going_back_needs_no_program_and_what_was_applied_stays_applied(kept: State) -> None:
    result = roll_back(kept.storage, 1)
    assert result.whole and result.rows == {"Account": 1} and result.version is not None
    assert rows_at(kept.store, ACCOUNT).to_pylist() == [{"id": 1, "balance": 10}]
    assert check_state(kept.storage, deep=True).sound
    assert kept.ask(kept.engine(program=OTHER), 3, (9, "deposit", 1, 5)) == [20]
    kept.release()
    with pytest.raises(RecoveryImpossible, match="version 3 cannot be rebuilt here"):
        roll_back(kept.storage, 3)


def test_a_warm_engine_notices_that_the_state_went_back(kept: State) -> None:
    engine = kept.engine()
    kept.ask(engine, 3, (9, "deposit", 1, 5))
    kept.release()
    roll_back(kept.storage, 1)
    assert kept.ask(engine, 4, (10, "deposit", 1, 5)) == [15]
    assert kept.ask(engine, 4, (10, "deposit", 1, 5)) == [15]


def test_recovering_refuses_what_takes_a_program_and_never_takes_an_older_version_instead(
    kept: State, tmp_path: Path
) -> None:
    target = open_storage(str(tmp_path / "new"))
    for version in (None, 3, 2):
        with pytest.raises(RecoveryImpossible, match="Versions that can be read without it: 1"):
            recover(kept.storage, target, version)
    assert recover(kept.storage, target, 1).version.version == 1
    assert rows_at(VersionStore(target), ACCOUNT).to_pylist() == [{"id": 1, "balance": 10}]


def test_copies_hold_events_as_well(kept: State, tmp_path: Path) -> None:
    backup, copy = (State(tmp_path / name) for name in ("backup", "copy"))
    back_up(kept.storage, backup.storage)
    kept.run(3, (9, "deposit", 1, 5))
    back_up(kept.storage, backup.storage)
    restore(backup.storage, copy.storage)
    shutil.rmtree(kept.path)
    assert copy.balances() == {1: 35} and copy.run(3, (9, "deposit", 1, 5)) == [35]


def test_a_query_can_be_adopted_and_a_table_not_renamed(kept: State) -> None:
    assert adopt_query(kept.storage, "other", 7).version is not None
    assert kept.kinds() == ["rows", "events", "events", "rows"] and kept.balances() == {1: 30}
    with pytest.raises(RecoveryImpossible, match="versions 2-3 hold the events"):
        Reshaping(kept.storage).rename_table("Account", "Konto")
    assert kept.run(3, (9, "deposit", 1, 5)) == [35]
