"""A state knows who it is and whom it has served: what users do around a stream is applied once, or refused.

Each test is an ordinary situation: a folder is deleted, a path is relative, a file is lost, a state is used twice, a
micro-batch is repeated. The amounts are small on purpose: a deposit that is lost or doubled shows in the balance.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.foundation.storage import open_storage
from tidegate.spark import transact

from .ledgers import Account, Event, Inbox, balances, deposit, drain, ledger, put, written


def inbox_of(folder: Path, *batches: list[Event]) -> Inbox:
    inbox = Inbox(folder / "in")
    for batch in batches:
        inbox.add(batch)
    return inbox


def refusal(run: Callable[[], Any]) -> str:
    """What a query says that must fail."""
    with pytest.raises(StreamingQueryException) as refused:
        run()
    return str(refused.value)


# --- the state and the checkpoint ------------------------------------------------------------------------


def test_a_state_that_was_deleted_while_the_checkpoint_was_kept_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, *([put(number, 1, 10)] for number in range(3)))
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    os.rename(tmp_path / "state", tmp_path / "away")
    inbox.add([put(3, 1, 10)])
    message = refusal(lambda: drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path))
    assert "StateDiverged" in message and "asks for its batch 3" in message and "tidegate state adopt" in message
    os.rename(tmp_path / "state", tmp_path / "empty")
    os.rename(tmp_path / "away", tmp_path / "state")  # the way out: put it back
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 40}


def test_a_state_that_is_unmounted_under_a_running_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 10)])
    outcomes = ledger(inbox.stream(spark), tmp_path / "state")
    query = outcomes.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    os.rename(tmp_path / "state", tmp_path / "away")
    inbox.add([put(2, 1, 10)])
    message = refusal(lambda: query.processAllAvailable() or query.awaitTermination(60))
    assert "StateDiverged" in message and "deleted or is not mounted" in message


def test_a_relative_path_in_another_folder_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 10)])
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    drain(ledger(inbox.stream(spark), Path("state")), tmp_path)
    inbox.add([put(2, 1, 10)])
    monkeypatch.chdir(tmp_path / "there")
    message = refusal(lambda: drain(ledger(inbox.stream(spark), Path("state")), tmp_path))
    assert f"{tmp_path}/there/state" in message and "a relative path depends on the folder" in message
    monkeypatch.chdir(tmp_path / "here")
    drain(ledger(inbox.stream(spark), Path("state")), tmp_path)
    assert balances(spark, tmp_path / "here" / "state") == {1: 20}


@pytest.mark.parametrize("head", ["there", "lost, too"])
def test_a_lost_newest_version_is_refused(spark: SparkSession, tmp_path: Path, head: str) -> None:
    inbox = inbox_of(tmp_path, *([put(number, 1, 10)] for number in range(3)))
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    os.rename(tmp_path / "state" / "000000000003.change", tmp_path / "kept")
    if head != "there":
        os.unlink(tmp_path / "state" / "head")
    inbox.add([put(3, 1, 10)])
    message = refusal(lambda: drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path))
    assert "StateDiverged" in message and "tidegate state adopt" in message
    os.rename(tmp_path / "kept", tmp_path / "state" / "000000000003.change")
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 40}


def test_an_older_copy_of_the_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "older")
    for number in (2, 3):
        inbox.add([put(number, 1, 10)])
        drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    shutil.rmtree(tmp_path / "state")
    os.rename(tmp_path / "older", tmp_path / "state")
    inbox.add([put(4, 1, 10)])
    message = refusal(lambda: drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path))
    assert "StateDiverged" in message and "batches 1 to 2 are missing" in message and "older copy" in message


def test_state_and_checkpoint_deleted_start_anew_in_the_same_session(spark: SparkSession, tmp_path: Path) -> None:
    """A warm worker still has the deleted rows in memory; they must not come back."""
    inbox = inbox_of(tmp_path, [put(1, 1, 1)])
    for opening in (1000, 5):
        initial = {Account: pa.table({"id": [1], "balance": [opening]})}
        drain(ledger(inbox.stream(spark), tmp_path / "state", initial=initial), tmp_path)
        assert balances(spark, tmp_path / "state") == {1: opening + 1}
        for name in ("state", "query.checkpoint", "query.out"):
            shutil.rmtree(tmp_path / name)
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 1}


def test_no_gap_is_seen_where_a_stream_has_batches_without_data(spark: SparkSession, tmp_path: Path) -> None:
    """A watermark makes Spark run batches that have no events at all; the state must know these, too."""
    inbox = inbox_of(tmp_path)
    for number in range(3):
        inbox.add([put(2 * number, 1, 10, ts=1000 * number)])
        outcomes = ledger(inbox.stream(spark), tmp_path / "state").withColumn("at", F.timestamp_seconds("ts"))
        counted = outcomes.withWatermark("at", "1 second").groupBy(F.window("at", "5 seconds")).count()
        drain(counted, tmp_path)
    infos = VersionStore(open_storage(str(tmp_path / "state"))).infos()
    assert [info.batch for info in infos] == list(range(len(infos))) and len(infos) > 3
    assert balances(spark, tmp_path / "state") == {1: 30}


# --- one state, two places ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["equal", "different"])
def test_a_union_of_two_on_one_state_is_refused_when_it_is_planned(
    spark: SparkSession, tmp_path: Path, content: str
) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 5)])
    other = inbox.stream(spark) if content == "equal" else inbox.stream(spark).withColumn("amount", F.lit(7))
    first, second = ledger(inbox.stream(spark), tmp_path / "state"), ledger(other, tmp_path / "state")
    with pytest.raises(AnalysisException, match=r"a plan can use a state once"):
        first.union(second)
    assert not VersionStore(open_storage(str(tmp_path / "state"))).refresh()


def test_a_union_of_two_on_the_very_same_events_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = inbox_of(tmp_path, [put(1, 1, 5)]).stream(spark)
    with pytest.raises(AnalysisException, match=r"a plan can use a state once"):
        ledger(events, tmp_path / "state").union(ledger(events, tmp_path / "state"))


def test_a_chain_of_two_on_one_state_is_refused_when_it_is_planned(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 11)])
    first = ledger(inbox.stream(spark), tmp_path / "state").drop("committed", "reason", "result")
    with pytest.raises(InputError, match="a state is used once in a plan"):
        ledger(first, tmp_path / "state")


def test_one_transact_may_be_used_twice_in_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = ledger(inbox_of(tmp_path, [put(1, 1, 5)]).stream(spark), tmp_path / "state")
    query = outcomes.where("committed").union(outcomes.where("not committed"))
    drain(query, tmp_path)
    assert balances(spark, tmp_path / "state") == {1: 5} and written(spark, tmp_path) == {1: (True, None, 5)}


def test_two_states_in_one_plan_are_two(spark: SparkSession, tmp_path: Path) -> None:
    events = inbox_of(tmp_path, [put(1, 1, 5)]).stream(spark)
    drain(ledger(events, tmp_path / "one").union(ledger(events, tmp_path / "two")), tmp_path)
    assert balances(spark, tmp_path / "one") == balances(spark, tmp_path / "two") == {1: 5}


@pytest.mark.parametrize("shape", ["union", "chain"])
def test_batch_data_frames_on_one_state_are_two_applications(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    events = spark.createDataFrame(
        [(1, 1, "deposit", None, 1, 5)], "event long, ts long, transaction string, src long, dst long, amount long"
    )
    first = ledger(events, tmp_path / "state")
    if shape == "union":
        found = first.union(ledger(events, tmp_path / "state")).collect()
    else:
        found = ledger(first.drop("committed", "reason", "result"), tmp_path / "state").collect()
    assert balances(spark, tmp_path / "state") == {1: 10} and all(row.committed for row in found)


# --- foreachBatch ------------------------------------------------------------------------------------------


class Repeated:
    """A stream whose function fails once after its work is done, so that Spark repeats the micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path, apply: Callable[[DataFrame, int], Any]) -> None:
        self.spark, self.folder, self.apply = spark, folder, apply
        self.calls = 0

    def run(self, *, crash: bool) -> None:
        def function(frame: DataFrame, batch: int) -> None:
            try:
                self.apply(frame, batch)
            except pytest.fail.Exception as failure:  # no Exception: Spark would wait for an answer for good
                raise AssertionError(str(failure)) from failure
            self.calls += 1
            if crash:
                raise RuntimeError("crash before Spark's commit")

        stream = Inbox(self.folder / "in").stream(self.spark)
        writer = stream.writeStream.foreachBatch(function).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / "checkpoint")).start().awaitTermination()

    def crash_and_run(self) -> None:
        with pytest.raises(StreamingQueryException, match="crash before"):
            self.run(crash=True)
        self.run(crash=False)
        assert self.calls == 2


def test_two_calls_with_equal_content_in_a_foreach_batch_are_applied_once_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox_of(tmp_path, [put(1, 1, 5)])
    results = []

    def apply(frame: DataFrame, batch: int) -> None:
        results.append([ledger(frame, tmp_path / "state").collect()[0].result for _ in range(2)])

    Repeated(spark, tmp_path, apply).crash_and_run()
    assert results == [[5, 10], [5, 10]]
    assert balances(spark, tmp_path / "state") == {1: 10}


def test_a_repeated_foreach_batch_with_columns_that_come_out_otherwise_is_applied_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox_of(tmp_path, [put(number, 1, 1) for number in range(3)])
    seen: list[list[Any]] = []

    def apply(frame: DataFrame, batch: int) -> None:
        random = frame.withColumn("amount", (F.rand() * 1_000_000).cast("long") + 1)
        seen.append(sorted(map(tuple, ledger(random, tmp_path / "state", order_by=None).collect())))

    Repeated(spark, tmp_path, apply).crash_and_run()
    assert seen[0] == seen[1], "the outcomes of the first time are given again, with the amounts that were applied"
    assert balances(spark, tmp_path / "state") == {1: max(row[-1] for row in seen[0])}


def test_an_action_in_a_thread_of_the_users_own_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox_of(tmp_path, [put(1, 1, 5)])
    told: list[str] = []

    def apply(frame: DataFrame, batch: int) -> None:
        def work() -> None:
            try:
                ledger(frame, tmp_path / "state").collect()
            except Exception as error:
                told.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    Repeated(spark, tmp_path, apply).crash_and_run()
    assert len(told) == 2 and all("in the thread in which Spark calls your function" in text for text in told)
    assert not VersionStore(open_storage(str(tmp_path / "state"))).refresh()


def test_an_action_in_a_thread_that_inherits_the_micro_batch_is_applied_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    inbox_of(tmp_path, [put(1, 1, 5)])

    def apply(frame: DataFrame, batch: int) -> None:
        outcomes = ledger(frame, tmp_path / "state")
        thread = InheritableThread(target=outcomes.collect, session=frame.sparkSession)
        thread.start()
        thread.join()

    Repeated(spark, tmp_path, apply).crash_and_run()
    assert balances(spark, tmp_path / "state") == {1: 5}


def test_calls_from_two_threads_in_a_foreach_batch_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox_of(tmp_path, [put(1, 1, 5)])
    told: list[str] = []

    def apply(frame: DataFrame, batch: int) -> None:
        ledger(frame, tmp_path / "state")

        def work() -> None:
            try:
                ledger(frame, tmp_path / "state")
            except InputError as error:
                told.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    Repeated(spark, tmp_path, apply).run(crash=False)
    assert len(told) == 1 and "from two threads" in told[0]


def test_a_data_frame_of_another_session_in_a_foreach_batch_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inbox_of(tmp_path, [put(1, 1, 5)])
    static = spark.read.schema("event long, ts long, transaction string, src long, dst long, amount long").json(
        str(tmp_path / "in")
    )

    def apply(frame: DataFrame, batch: int) -> None:
        with pytest.raises(Exception, match="the DataFrame that Spark hands to your function"):
            ledger(static, tmp_path / "state").collect()

    Repeated(spark, tmp_path, apply).run(crash=False)
    assert not VersionStore(open_storage(str(tmp_path / "state"))).refresh()


def test_a_foreach_batch_may_leave_batches_out_and_call_more_often_in_some(spark: SparkSession, tmp_path: Path) -> None:
    inbox_of(tmp_path, *([put(number, 1, 10)] for number in range(5)))

    def apply(frame: DataFrame, batch: int) -> None:
        for _ in range((1, 0, 2, 0, 3)[batch]):
            ledger(frame, tmp_path / "state").collect()

    Repeated(spark, tmp_path, apply).run(crash=False)
    assert balances(spark, tmp_path / "state") == {1: 60}


def test_a_state_that_was_deleted_is_refused_in_a_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, [put(1, 1, 10)])
    query = Repeated(spark, tmp_path, lambda frame, batch: ledger(frame, tmp_path / "state").collect())
    query.run(crash=False)
    shutil.rmtree(tmp_path / "state")
    inbox.add([put(2, 1, 10)])
    assert "has applied no batch of that query" in refusal(lambda: query.run(crash=False))


# --- what is no longer kept ----------------------------------------------------------------------------------


def batch_frame(spark: SparkSession, amount: int) -> DataFrame:
    return spark.range(1).selectExpr("id AS event", "id AS ts", "1L AS dst", f"{amount}L AS amount")


def deposited(frame: DataFrame, state: Path, **options: Any) -> DataFrame:
    return transact(frame, deposit, state=state, **options)


def test_a_second_action_after_its_version_was_collected_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = deposited(batch_frame(spark, 1000), tmp_path / "state", keep_versions=1)
    first.collect()
    store = VersionStore(open_storage(str(tmp_path / "state")), keep_versions=1)
    for _ in range(3):
        deposited(batch_frame(spark, 1), tmp_path / "state", keep_versions=1).collect()
    newest = store.tip()
    assert newest is not None
    rows = pa.table({"id": [1], "balance": [1003]}, schema=newest.layouts[0].arrow_schema)
    store.snapshot(newest, {"Account": rows})
    deposited(batch_frame(spark, 1), tmp_path / "state", keep_versions=1).collect()
    assert store.collect(), "version 1 is gone"
    with pytest.raises(Exception, match=r"(?s)applied, as version 1\..*cannot be given again.*persist\(\)"):
        first.collect()
    assert balances(spark, tmp_path / "state") == {1: 1004}


def test_keeping_one_version_never_locks_a_query_out(spark: SparkSession, tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path, *([put(number, 1, 10)] for number in range(3)))
    failed = []

    def apply(frame: DataFrame, batch: int) -> None:
        assert frame.collect()[0].result == 10 * (batch + 1)
        if batch not in failed:
            failed.append(batch)
            raise RuntimeError("crash before Spark's commit")

    for _ in range(8):
        outcomes = ledger(inbox.stream(spark), tmp_path / "state", keep_versions=1)
        writer = outcomes.writeStream.foreachBatch(apply).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            assert "crash before" in str(error)
            store = VersionStore(open_storage(str(tmp_path / "state")), keep_versions=1)
            newest = store.tip()
            assert newest is not None
            rows = pa.table({"id": [1], "balance": [10 * newest.version]}, schema=newest.layouts[0].arrow_schema)
            store.snapshot(newest, {"Account": rows})
            store.collect()
    assert failed == [0, 1, 2] and balances(spark, tmp_path / "state") == {1: 30}


# --- tables ----------------------------------------------------------------------------------------------------


def test_a_renamed_table_is_refused_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    deposited(batch_frame(spark, 5), tmp_path / "state").collect()

    @tg.table(key="id")
    class Konto:
        id: int
        balance: int = 0

    @tg.transaction
    def pay(dst: Konto, amount: int) -> int:
        dst.balance += amount
        return dst.balance

    with pytest.raises(DefinitionError) as refused:
        transact(batch_frame(spark, 5), pay, state=tmp_path / "state")
    assert f"tidegate state rename-table {tmp_path}/state Account Konto" in str(refused.value)
    with pytest.raises(DefinitionError, match="--new-table Konto=Account"):
        tg.Engine(pay, directory=str(tmp_path / "state"))


def test_a_plan_that_was_made_on_another_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    deposited(batch_frame(spark, 5), tmp_path / "state").collect()
    planned = deposited(batch_frame(spark, 7), tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(Exception, match=r"(?s)StateDiverged.*and now there is none"):
        planned.collect()
    deposited(batch_frame(spark, 1), tmp_path / "state").collect()
    with pytest.raises(Exception, match=r"(?s)StateDiverged.*and now there is state"):
        planned.select("*").collect()  # Spark gives the error of a plan that has failed again
    assert balances(spark, tmp_path / "state") == {1: 1}
