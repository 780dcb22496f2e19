"""`transact` on streams: what users see of batches, order, late events, restarts and owners."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from tidegate.durability import ownership
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.storage import open_storage
from tidegate.spark import read_state, transact

from .ledgers import PROGRAM, Account, Books, Inbox, balances, collected, deposit, drain, ledger, move, put, written


def versions(state: Path) -> list[tuple[int, int, int]]:
    """(version, batch, events) of every version at a path."""
    infos = VersionStore(open_storage(str(state))).infos()
    return [(info.version, info.batch, info.events) for info in infos]


def test_a_stream_gives_the_state_and_the_outcomes_of_running_events_one_by_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [
        [put(1, 1, 100), put(2, 2, 50), move(3, 1, 2, 30), move(4, 2, 1, 500)],
        [move(5, 2, 3, 80), move(6, 3, 3, 10), move(7, 9, 1, 1), put(8, 9, 5)],
        [move(9, 9, 1, 5)],
    ]
    inbox, books = Inbox(tmp_path / "in"), Books()
    for batch in batches:
        inbox.add(batch)
        books.run(batch)
    query = drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)

    assert written(spark, tmp_path) == books.outcomes
    assert balances(spark, tmp_path / "state") == books.balances
    assert versions(tmp_path / "state") == [(1, 0, 4), (2, 1, 4), (3, 2, 1)]
    infos = VersionStore(open_storage(str(tmp_path / "state"))).infos()
    assert {info.query for info in infos} == {str(query.id)}


def test_the_output_has_the_events_columns_and_the_outcome_in_declared_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add_text(
        '{"event": 1, "dst": 1, "amount": 5, "note": "a", "tags": ["x", null], "at": "2026-01-02T03:04:05Z",'
        ' "price": 1.25, "extra": {"k": 1}, "more": {"a": 1}}\n'
    )
    schema = (
        "event long, dst int, amount short, note string, tags array<string>, at timestamp, "
        "price decimal(10,2), extra struct<k: long>, more map<string, int>"
    )
    events = inbox.stream(spark, schema).withColumn("constant", F.lit(7))
    outcomes = transact(events, [deposit_only], state=tmp_path / "state")
    assert outcomes.schema.simpleString() == (
        "struct<event:bigint,dst:int,amount:smallint,note:string,tags:array<string>,at:timestamp,"
        "price:decimal(10,2),extra:struct<k:bigint>,more:map<string,int>,constant:int,"
        "committed:boolean,reason:string,result:bigint>"
    )
    assert [field.nullable for field in outcomes.schema.fields[-4:]] == [False, False, True, True]
    drain(outcomes, tmp_path)
    row = spark.read.parquet(str(tmp_path / "query.out")).collect()[0].asDict(recursive=True)
    assert (row["committed"], row["reason"], row["result"]) == (True, None, 5)
    assert (row["tags"], row["extra"], row["more"]) == (["x", None], {"k": 1}, {"a": 1})
    assert (str(row["price"]), row["constant"]) == ("1.25", 7)
    assert row["at"].timestamp() == 1767323045


@tg.transaction
def deposit_only(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


def test_events_run_in_the_order_of_order_by_whatever_order_they_arrive_in(spark: SparkSession, tmp_path: Path) -> None:
    batch = [move(1, 1, 2, 70, ts=30), put(2, 1, 100, ts=10), move(3, 1, 3, 50, ts=20)]
    inbox = Inbox(tmp_path / "in")
    inbox.add(batch)
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    expected = Books().run(batch)
    assert expected.outcomes[1] == (False, "insufficient funds", None)
    assert written(spark, tmp_path) == expected.outcomes
    assert balances(spark, tmp_path / "state") == expected.balances


def test_ties_and_streams_without_order_by_run_in_the_sources_order(spark: SparkSession, tmp_path: Path) -> None:
    for name, order_by in (("none", None), ("ties", "ts")):
        batch = [put(event, 1, 1, ts=5) for event in range(0, 1000, 2)]
        batch += [move(event, 1, 2, 1, ts=5) for event in range(1, 1500, 2)]
        inbox = Inbox(tmp_path / name)
        inbox.add(batch)
        outcomes = ledger(inbox.stream(spark), tmp_path / f"{name}.state", order_by=order_by)
        drain(outcomes, tmp_path, name)
        expected = Books().run(batch, ordered=False)
        assert written(spark, tmp_path, name) == expected.outcomes
        assert balances(spark, tmp_path / f"{name}.state") == expected.balances


@pytest.mark.parametrize("late", ["run", "refuse"])
def test_an_event_older_than_a_finished_batch_is_run_or_refused(spark: SparkSession, tmp_path: Path, late: str) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 100, ts=10), put(2, 2, 100, ts=20)])
    inbox.add([put(3, 1, 1, ts=15), put(4, 2, 1, ts=25), put(5, 3, 1, ts=20)])
    drain(ledger(inbox.stream(spark), tmp_path / "state", late=late), tmp_path)
    outcomes = written(spark, tmp_path)
    if late == "run":
        assert outcomes[3] == (True, None, 101)
        assert balances(spark, tmp_path / "state") == {1: 101, 2: 101, 3: 1}
    else:
        assert outcomes[3] == (False, "late event", None)
        assert balances(spark, tmp_path / "state") == {1: 100, 2: 101, 3: 1}
    assert outcomes[4] == (True, None, 101)
    assert outcomes[5] == (True, None, 1), "as old as the newest one is not late"


def test_a_batch_without_rows_is_a_version_that_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 5)])
    inbox.add([put(2, 1, -1)])
    inbox.add([put(3, 1, 7)])
    drain(ledger(inbox.stream(spark).where("amount > 0"), tmp_path / "state"), tmp_path)
    assert versions(tmp_path / "state") == [(1, 0, 1), (2, 1, 0), (3, 2, 1)]
    assert balances(spark, tmp_path / "state") == {1: 12}


def test_a_restarted_query_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    inbox, books = Inbox(tmp_path / "in"), Books()
    for number in range(3):
        batch = [put(2 * number, 1, 10), move(2 * number + 1, 1, 2, 25)]
        inbox.add(batch)
        books.run(batch)
        query = drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert written(spark, tmp_path) == books.outcomes
    assert balances(spark, tmp_path / "state") == books.balances
    assert versions(tmp_path / "state") == [(1, 0, 2), (2, 1, 2), (3, 2, 2)]
    assert len({info.query for info in VersionStore(open_storage(str(tmp_path / "state"))).infos()}) == 1
    assert str(query.id)


def test_a_batch_whose_commit_spark_forgot_is_found_and_not_applied_again(spark: SparkSession, tmp_path: Path) -> None:
    """As after a crash between our commit and Spark's: the batch runs again and gives the same outcomes."""
    inbox, books = Inbox(tmp_path / "in"), Books()
    for batch in ([put(1, 1, 10), put(2, 2, 5)], [move(3, 1, 2, 7), move(4, 1, 2, 7)]):
        inbox.add(batch)
        books.run(batch)
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    commits = tmp_path / "query.checkpoint" / "commits"
    for forgotten in (commits / "1", commits / ".1.crc"):
        forgotten.unlink()
    again = (
        ledger(inbox.stream(spark), tmp_path / "state")
        .writeStream.foreachBatch(lambda frame, batch: frame.write.mode("append").parquet(str(tmp_path / "again.out")))
        .option("checkpointLocation", str(tmp_path / "query.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    again.awaitTermination()
    assert written(spark, tmp_path, "again") == {event: books.outcomes[event] for event in (3, 4)}
    assert versions(tmp_path / "state") == [(1, 0, 2), (2, 1, 2)]
    assert balances(spark, tmp_path / "state") == books.balances


def test_a_new_query_goes_on_from_the_newest_state(spark: SparkSession, tmp_path: Path) -> None:
    books = Books()
    for name in ("first", "second"):
        inbox, batch = Inbox(tmp_path / name), [put(1, 1, 10), move(2, 1, 2, 15)]
        inbox.add(batch)
        books.run(batch)
        drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path, name)
        assert written(spark, tmp_path, name) == books.outcomes
    assert versions(tmp_path / "state") == [(1, 0, 2), (2, 0, 2)]
    assert balances(spark, tmp_path / "state") == books.balances == {1: 5, 2: 15}


def test_initial_rows_fill_a_table_once(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for number in range(2):
        rows = spark.createDataFrame([Row(id=1, balance=1000 + number), Row(id=2, balance=0)])
        inbox.add([move(number, 1, 2, 400)])
        outcomes = ledger(inbox.stream(spark), tmp_path / "state", initial={Account: rows})
        if number == 0:
            assert balances(spark, tmp_path / "state") == {1: 1000, 2: 0}, "filled before the first batch"
        drain(outcomes, tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 200, 2: 800}


@pytest.mark.parametrize("log", ["changes", "commands"])
def test_rows_expire_by_event_time_whatever_a_version_keeps(spark: SparkSession, tmp_path: Path, log: Any) -> None:
    @tg.table(key="id", ttl=10, by="seen")
    class Session:
        id: int
        seen: int = 0
        hits: int = 0

    @tg.transaction
    def visit(session: Session, ts: int) -> int:
        session.seen = ts
        session.hits += 1
        return session.hits

    rows = [[(1, 5), (2, 14), (1, 15)], [(1, 26), (2, 27)], [(3, 30), (2, 12)]]
    with pytest.raises(tg.InputError, match="rows of Session expire by 'seen'"):
        transact(spark.createDataFrame(rows[0], "session long, ts long"), [visit], state=tmp_path / "no")
    results = []
    for batch in rows:  # each by a query of its own: the clock is that of the state
        events = spark.createDataFrame(batch, "session long, ts long")
        outcomes = transact(events, [visit], state=tmp_path / "state", order_by="ts", log=log)
        results += [row.result for row in outcomes.orderBy("ts").collect()]
    assert results == [1, 1, 2, 1, 1, 2, 1]
    left = [tuple(row) for row in read_state(spark, tmp_path / "state", Session).orderBy("id").collect()]
    assert left == [(1, 26, 1), (3, 30, 1)], "a late visit let a session look old"
    first = read_state(spark, tmp_path / "state", Session, version=1).orderBy("id").collect()
    assert [row.id for row in first] == [1, 2]


def test_a_second_query_on_one_state_is_refused_by_a_message_that_names_the_owner(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    first = (
        ledger(inbox.stream(spark), tmp_path / "state")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "first"))
        .start()
    )
    first.processAllAvailable()
    with pytest.raises(StreamingQueryException) as refused:
        drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path, "second")
    message = str(refused.value)
    assert "StateOwned" in message and str(first.id) in message
    assert "tidegate-tests" in message and "tidegate state release" in message
    assert balances(spark, tmp_path / "state") == {1: 10}

    first.stop()
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path, "second")
    assert balances(spark, tmp_path / "state") == {1: 20}


def test_the_owner_is_released_when_its_query_ends(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    wait_until(lambda: ownership.current(open_storage(str(tmp_path / "state"))) is None)


def test_two_tasks_that_run_one_batch_at_once_agree(spark: SparkSession, tmp_path: Path) -> None:
    """The outcomes are used twice in one plan, so each batch is run by two tasks side by side."""
    inbox, books = Inbox(tmp_path / "in"), Books()
    for number in range(4):
        batch = [put(20 * number + i, i % 3, 5, ts=0) for i in range(10)]
        batch += [move(20 * number + 10 + i, i % 3, 7, 4 + i, ts=0) for i in range(10)]
        inbox.add(batch)
        books.run(batch)
    outcomes = ledger(inbox.stream(spark), tmp_path / "state")
    drain(outcomes.union(outcomes), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "query.out"))
    assert rows.count() == 160
    assert collected(rows.distinct()) == books.outcomes
    assert balances(spark, tmp_path / "state") == books.balances
    assert [batch for _, batch, _ in versions(tmp_path / "state")] == [0, 1, 2, 3]


def test_an_engine_of_this_process_keeps_its_state(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    with tg.Engine(PROGRAM, directory=str(tmp_path / "state")) as engine:
        engine.execute(deposit, dst=1, amount=5)
        with pytest.raises(StreamingQueryException, match=r"StateOwned.*tg\.Engine"):
            drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 15}


def test_an_owner_whose_processes_are_gone_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "state"))
    owner = Owner("q", "dead", "0123456789abcdef")
    VersionStore(storage).commit(VersionInfo(1, "change", "q", 0, 0, 0.0, 0, 0, None, (), {}, 0, owner=owner), {})
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 10}


def test_a_new_field_reads_as_its_default_and_a_removed_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)

    inbox.add([put(2, 1, 90)])
    richer = declare_richer_accounts()
    drain(transact(inbox.stream(spark), [richer], state=tmp_path / "state"), tmp_path)
    rows = read_state(spark, str(tmp_path / "state"), richer.classes["Account"]).collect()
    assert rows == [Row(id=1, balance=100, limit=50)]

    inbox.add([put(3, 1, 1)])
    with pytest.raises(DefinitionError) as refused:
        transact(inbox.stream(spark), [declare_poorer_accounts()], state=tmp_path / "state")
    assert "Account.balance: was int, is removed" in str(refused.value)
    assert "choose a new state path" in str(refused.value)


def declare_richer_accounts() -> Any:
    @tg.table(key="id")
    class Account:
        id: int
        balance: int = 0
        limit: int = 50

    @tg.transaction
    def deposit(dst: Account, amount: int) -> int:
        tg.require(dst.limit == 50, "the new field has its default")
        dst.balance += amount
        return dst.balance

    return deposit


def declare_poorer_accounts() -> Any:
    @tg.table(key="id")
    class Account:
        id: int
        money: int = 0

    @tg.transaction
    def deposit(dst: Account, amount: int) -> int:
        dst.money += amount
        return dst.money

    return deposit


@tg.table(key=("segment", "vehicle"))
class Passage:
    segment: int
    vehicle: str
    count: int = 0
    speed: float = 0.0


class Mean(NamedTuple):
    count: int
    speed: float


@tg.transaction
def passes(at: Passage, speed: float) -> Mean:
    at.count += 1
    at.speed += (speed - at.speed) / at.count
    return Mean(at.count, at.speed)


@tg.transaction
def top_up(accounts: list[Account], amount: int) -> int:
    total = 0
    for account in accounts:
        account.balance += amount
        total += account.balance
    return total


def test_composite_keys_lists_and_struct_results_pass_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add_text(
        '{"event": 1, "transaction": "passes", "at": {"segment": 3, "vehicle": "a"}, "speed": 50.0}\n'
        '{"event": 2, "transaction": "passes", "at": {"segment": 3, "vehicle": "a"}, "speed": 70.0}\n'
        '{"event": 3, "transaction": "top_up", "accounts": [1, 2, 1], "amount": 5}\n'
        '{"event": 4, "transaction": "top_up", "accounts": [], "amount": 5}\n'
    )
    schema = (
        "event long, transaction string, at struct<vehicle: string, segment: int>, speed double, "
        "accounts array<long>, amount long"
    )
    drain(transact(inbox.stream(spark, schema), [passes, top_up], state=tmp_path / "state"), tmp_path)
    found = written(spark, tmp_path)
    assert found[2] == (True, None, Row(passes=Row(count=2, speed=60.0), top_up=None))
    assert found[3] == (True, None, Row(passes=None, top_up=5 + 5 + 10))
    assert found[4] == (True, None, Row(passes=None, top_up=0))
    assert read_state(spark, str(tmp_path / "state"), Passage).collect() == [
        Row(segment=3, vehicle="a", count=2, speed=60.0)
    ]
    assert balances(spark, tmp_path / "state") == {1: 10, 2: 5}


def test_a_session_with_other_settings_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Tiny Arrow batches and large string types, as a user's own session may have them."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    batch = [put(event, event % 5, 3) for event in range(60)] + [move(60 + i, i % 5, 7, 9) for i in range(40)]
    inbox = Inbox(tmp_path / "in")
    inbox.add(batch)
    drain(ledger(inbox.stream(session).repartition(3), tmp_path / "state"), tmp_path)
    expected = Books().run(batch)
    assert written(spark, tmp_path) == expected.outcomes
    assert balances(spark, tmp_path / "state") == expected.balances


def test_event_time_windows_over_outcomes_keep_the_watermark_of_the_events(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for number in range(3):
        inbox.add([put(2 * number, 1, 5, ts=600 * number), put(2 * number + 1, 2, 5, ts=600 * number + 30)])
    events = inbox.stream(spark).withColumn("at", F.timestamp_seconds("ts")).withWatermark("at", "1 minute")
    outcomes = ledger(events, tmp_path / "state", order_by="at")
    windows = outcomes.groupBy(F.window("at", "5 minutes")).agg(F.sum("amount").alias("amount"))
    drain(windows, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "query.out")).select("window.start", "amount").collect()
    assert sorted((row.start.timestamp(), row.amount) for row in rows) == [(0.0, 10), (600.0, 10)]


def test_state_lives_on_any_file_system_that_fsspec_reaches(spark: SparkSession, tmp_path: Path) -> None:
    """fsspec's own local file system stands for the remote ones: the same code reads and writes it."""
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    inbox.add([put(2, 1, 10)])
    state = f"local://{tmp_path}/state"
    drain(transact(inbox.stream(spark), PROGRAM, state=state, order_by="ts"), tmp_path)
    assert read_state(spark, state, Account).collect() == [Row(id=1, balance=20)]
    assert written(spark, tmp_path) == {1: (True, None, 10), 2: (True, None, 20)}


def test_inside_foreach_batch_each_micro_batch_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    """Two calls in one micro-batch, several actions each, and the micro-batch itself run twice."""
    inbox, state = Inbox(tmp_path / "in"), tmp_path / "state"
    inbox.add([put(1, 1, 10), move(2, 1, 2, 4)])
    failures: list[int] = []

    def apply(frame: object, batch: int) -> None:
        deposits = ledger(frame.where("transaction = 'deposit'"), state)  # type: ignore[attr-defined]
        transfers = ledger(frame.where("transaction = 'transfer'"), state)  # type: ignore[attr-defined]
        assert deposits.count() == 1 and transfers.count() == 1
        assert transfers.collect()[0].result == 6
        if not failures:
            failures.append(batch)
            raise RuntimeError("crash before Spark's commit")

    def run() -> None:
        stream = inbox.stream(spark).writeStream.foreachBatch(apply).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="crash before"):
        run()
    run()
    assert failures == [0]
    assert balances(spark, state) == {1: 6, 2: 4}


def test_the_program_may_live_in_a_module_that_workers_cannot_import(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "house_rules.py").write_text(
        "import threading\nLOCK = threading.Lock()\nFEE = 2\n\ndef fee(amount: int) -> int:\n    return FEE\n"
    )
    (tmp_path / "house_program.py").write_text(
        "import tidegate as tg\nfrom house_rules import fee\nimport house_rules\n\n"
        '@tg.table(key="id")\nclass Account:\n    id: int\n    balance: int = 0\n\n'
        "@tg.transaction\ndef deposit(dst: Account, amount: int) -> int:\n"
        "    dst.balance += amount - fee(amount)\n    return dst.balance\n\n"
        "@tg.transaction(compiled=False)\ndef transfer(dst: Account, amount: int) -> int:\n"
        "    dst.balance -= amount + house_rules.fee(amount)\n    return dst.balance\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import house_program  # type: ignore[import-not-found]

    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10), move(2, 0, 1, 3)])
    program = [house_program.deposit, house_program.transfer]
    drain(transact(inbox.stream(spark), program, state=tmp_path / "state", order_by="ts"), tmp_path)
    assert written(spark, tmp_path) == {1: (True, None, 8), 2: (True, None, 3)}


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_a_mistake_in_plain_python_stops_the_query_and_a_corrected_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    def program(field: str) -> tg.Transaction:
        @tg.transaction(compiled=False)
        def book(dst: Account, amount: int) -> int:
            setattr(dst, field if amount == 13 else "balance", dst.balance + amount)
            return dst.balance

        return book

    inbox, schema = Inbox(tmp_path / "in"), "event long, dst long, amount long"
    inbox.add_text('{"event": 1, "dst": 1, "amount": 5}\n')
    drain(
        transact(inbox.stream(spark, schema), program("balanc"), state=tmp_path / "state", on_error="raise"), tmp_path
    )
    inbox.add_text('{"event": 2, "dst": 1, "amount": 6}\n{"event": 3, "dst": 1, "amount": 13}\n')
    failing = transact(inbox.stream(spark, schema), program("balanc"), state=tmp_path / "state", on_error="raise")
    with pytest.raises(StreamingQueryException, match=r"(?s)transaction 'book' raised AttributeError.*amount=13"):
        drain(failing, tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 5}  # nothing of the micro-batch
    mended = transact(inbox.stream(spark, schema), program("balance"), state=tmp_path / "state", on_error="raise")
    drain(mended, tmp_path)
    assert written(spark, tmp_path) == {1: (True, None, 5), 2: (True, None, 11), 3: (True, None, 24)}
    assert balances(spark, tmp_path / "state") == {1: 24}
