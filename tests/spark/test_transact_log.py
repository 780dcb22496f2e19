"""`transact(..., log="commands")` on Spark: the same outcomes and rows, and what becomes of who lacks the program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.foundation.storage import open_storage
from tidegate.spark import await_outcome, known_programs, read_state, transact

from ..test_cli import tidegate
from .ledgers import PROGRAM, SCHEMA, Account, Books, Event, Inbox, balances, drain, ledger, move, put, written
from .test_identity import Repeated


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    """Not the ledger's: every deposit counts twice."""
    dst.balance += 2 * amount
    return dst.balance


OTHER = [PROGRAM[0], deposit]

payments = tg.stream("payments", dst=Account, amount=int)
booked = tg.stream("booked", balance=int)


@tg.transaction(on=payments, emits=[booked])
def book(dst: Account, amount: int) -> int:
    dst.balance += amount
    tg.emit(booked, balance=dst.balance)
    return dst.balance


GRAPH = tg.dataflow([book])

BATCHES: list[list[Event]] = [
    [put(1, 1, 100), put(2, 2, 50), move(3, 1, 2, 30)],
    [move(4, 2, 3, 500), move(5, 2, 3, 80), put(6, 1, 1)],
    [move(7, 3, 1, 80), put(8, 4, 4)],
    [put(9, 4, 4), move(10, 4, 1, 8)],
]


def stored(path: Path) -> list[str]:
    """What each version keeps."""
    infos = VersionStore(open_storage(str(path))).infos()
    return ["events" if info.program else "rows" for info in infos]


def filled(spark: SparkSession, folder: Path, **options: Any) -> Inbox:
    """The first three batches, each by a query that starts for it."""
    inbox = Inbox(folder / "in")
    for batch in BATCHES[:3]:
        inbox.add(batch)
        drain(ledger(inbox.stream(spark), folder / "state", **{"log": "commands", **options}), folder)
    return inbox


def test_a_stream_that_starts_again_and_again_is_what_it_would_be_without(spark: SparkSession, tmp_path: Path) -> None:
    books, inbox = Books(), Inbox(tmp_path / "in")
    for batch, log in zip(BATCHES, ["commands", "commands", "changes", "commands"], strict=True):
        inbox.add(batch)
        books.run(batch)
        drain(ledger(inbox.stream(spark), tmp_path / "state", log=log), tmp_path)
        assert balances(spark, tmp_path / "state") == books.balances
    assert written(spark, tmp_path) == books.outcomes
    assert stored(tmp_path / "state") == ["events", "events", "rows", "events"]


def test_every_version_can_be_read_by_its_program(spark: SparkSession, tmp_path: Path) -> None:
    filled(spark, tmp_path)
    books = Books()
    for version, batch in enumerate(BATCHES[:3], 1):
        assert balances(spark, tmp_path / "state", version) == books.run(batch).balances


def test_who_does_not_know_the_program_is_told_how_to_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(spark, tmp_path)
    path, wanted = tmp_path / "state", Books().run(BATCHES[0]).run(BATCHES[1]).run(BATCHES[2]).balances
    monkeypatch.setattr(known_programs, "_programs", type(known_programs._programs)())  # another process
    with pytest.raises(RecoveryImpossible, match=r"versions 1-3 hold .* read_state\(\.\.\., transactions=\[\.\.\.\]\)"):
        read_state(spark, path, Account)
    with pytest.raises(RecoveryImpossible, match="another program than this one ran them"):
        read_state(spark, path, Account, transactions=OTHER)
    rows = read_state(spark, path, Account, transactions=PROGRAM).collect()
    assert {row.id: row.balance for row in rows} == wanted
    assert tidegate("state", "ls", str(path)).stdout.count("events") >= 3


def test_another_program_is_refused_at_the_call_and_goes_on_after_a_batch_with_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox = filled(spark, tmp_path)
    inbox.add(BATCHES[3])
    for log in ("changes", "commands"):
        with pytest.raises(RecoveryImpossible, match=r"versions 1-3 hold .*run one batch .*log=\"changes\""):
            transact(inbox.stream(spark), OTHER, state=tmp_path / "state", order_by="ts", log=log)
    books = Books()
    for batch in BATCHES:
        books.run(batch)
    drain(ledger(inbox.stream(spark), tmp_path / "state", log="changes"), tmp_path)
    inbox.add([put(11, 1, 5)])
    outcomes = transact(inbox.stream(spark), OTHER, state=tmp_path / "state", order_by="ts", log="commands")
    drain(outcomes, tmp_path)
    assert balances(spark, tmp_path / "state") == {**books.balances, 1: books.balances[1] + 10}
    assert stored(tmp_path / "state") == ["events"] * 3 + ["rows", "events"]


def test_another_program_goes_on_after_the_rollback_that_the_refusal_names(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for batch, log in zip(BATCHES[:2], ["changes", "commands"], strict=True):
        inbox.add(batch)
        drain(ledger(inbox.stream(spark), tmp_path / "state", log=log), tmp_path)
    with pytest.raises(RecoveryImpossible) as refused:
        transact(inbox.stream(spark), OTHER, state=tmp_path / "state", order_by="ts")
    tidegate("state", "release", str(tmp_path / "state"), "--force")  # as if its session had ended
    command = re.search(r"tidegate (state rollback \S+ --to \d+)", str(refused.value))
    assert command is not None
    result = tidegate(*command[1].split())
    assert result.exit_code == 0, result.output
    assert "version 3 has the rows of version 1" in result.stdout
    inbox.add([put(11, 1, 5)])
    drain(transact(inbox.stream(spark), OTHER, state=tmp_path / "state", order_by="ts"), tmp_path)
    before = Books().run(BATCHES[0]).balances
    assert balances(spark, tmp_path / "state") == {**before, 1: before[1] + 10}


def test_a_repeated_foreach_batch_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    Inbox(tmp_path / "in").add([put(1, 1, 5)])
    results = []

    def apply(frame: DataFrame, batch: int) -> None:
        results.append([ledger(frame, tmp_path / "state", log="commands").collect()[0].result for _ in range(2)])

    Repeated(spark, tmp_path, apply).crash_and_run()
    assert results == [[5, 10], [5, 10]]
    assert balances(spark, tmp_path / "state") == {1: 10} and stored(tmp_path / "state") == ["events"] * 2


def test_actions_on_a_batch_data_frame_are_one_application(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([(n, n, "deposit", None, 1, 5) for n in range(3)], SCHEMA)
    outcomes = ledger(events, tmp_path / "state", log="commands")
    assert [sorted(row.result for row in outcomes.collect()) for _ in range(2)] == [[5, 10, 15]] * 2
    assert balances(spark, tmp_path / "state") == {1: 15}


def test_outputs_and_outcomes_of_requests_need_no_program(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 5), put(2, 1, 7)])
    stream = inbox.stream(spark).drop("transaction")
    outcomes = transact(stream, GRAPH, state=tmp_path / "state", order_by="ts", requests="event", log="commands")
    drain(outcomes, tmp_path)
    monkeypatch.setattr(known_programs, "_programs", type(known_programs._programs)())  # another process
    assert [row.balance for row in read_state(spark, tmp_path / "state", booked).collect()] == [5, 12]
    assert await_outcome(str(tmp_path / "state"), 2, timeout=10) == tg.Outcome(True, None, 12)
    with pytest.raises(RecoveryImpossible, match="version 1 holds the events"):
        read_state(spark, tmp_path / "state", Account)
    rows = read_state(spark, tmp_path / "state", Account, transactions=GRAPH).collect()
    assert [tuple(row) for row in rows] == [(1, 12)]


def test_what_cannot_be_is_refused_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    @tg.transaction(compiled=False)
    def guess(dst: Account, amount: int) -> None:
        dst.balance = hash(object())

    events = spark.createDataFrame([], SCHEMA)
    with pytest.raises(InputError, match=r"transact: log=\"commands\" requires .* got guess, declared compiled=False"):
        transact(events, guess, state=tmp_path / "state", log="commands")
    with pytest.raises(InputError, match=r'log must be "changes" or "commands", got \'rows\''):
        ledger(events, tmp_path / "state", log="rows")
