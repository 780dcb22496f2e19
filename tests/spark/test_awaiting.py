"""`await_outcome`: outcomes of requests, found by id, whatever the sink, through restarts and by many threads."""

from __future__ import annotations

import json
import pickle
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import outcome_log, versions
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.errors import InputError, OutcomeOverdue, TidegateError
from tidegate.spark import await_outcome, transact

from .ledgers import PROGRAM, SCHEMA, Account, Event, Inbox, balances, drain, ledger, move, put

WITH_ID = f"{SCHEMA}, request string"


def asked(event: Event, request: str | None) -> Event:
    """An event that is somebody's request."""
    return {**event, "request": request}


@pytest.fixture(autouse=True)
def nothing_followed() -> Iterator[None]:
    """A process that has not looked at any state yet."""
    outcome_log._logs.clear()
    yield
    outcome_log._logs.clear()


def overdue(state: Path, request: int | str, timeout: float = 0.0) -> str:
    with pytest.raises(OutcomeOverdue) as late:
        await_outcome(state, request, timeout=timeout)
    return str(late.value)


# --- on Spark ------------------------------------------------------------------------------------------------


def test_requests_in_a_batch_are_found_by_id_and_ordinary_events_are_not(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        asked(put(1, 1, 100), "a"),
        asked(move(2, 1, 2, 30), "b"),
        asked(move(3, 1, 2, 500), "c"),
        asked(put(4, 1, 1), None),
        asked({"event": 5, "ts": 5, "transaction": "gift"}, "d"),
    ]
    events = spark.createDataFrame(rows, WITH_ID)
    outcomes = transact(events, PROGRAM, state=tmp_path / "state", order_by="ts", requests="request")
    assert outcomes.count() == 5 and outcomes.count() == 5
    assert await_outcome(tmp_path / "state", "a") == tg.Outcome(True, None, 100)
    assert await_outcome(tmp_path / "state", "b") == tg.Outcome(True, None, 70)
    assert await_outcome(tmp_path / "state", "c") == tg.Outcome(False, "insufficient funds", None)
    assert await_outcome(tmp_path / "state", "d") == tg.Outcome(False, "unknown transaction 'gift'", None)
    assert "request 'None' has no outcome" in overdue(tmp_path / "state", "None")


def test_the_newest_outcome_of_an_id_wins_and_in_a_batch_the_last_in_order(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10, ts=9), put(1, 1, 20, ts=3), put(7, 2, 5, ts=4), put(1, 1, 30, ts=4)])
    drain(ledger(inbox.stream(spark), tmp_path / "state", requests="event"), tmp_path)
    assert await_outcome(tmp_path / "state", 1) == tg.Outcome(True, None, 60)
    inbox.add([put(1, 1, 1, ts=1), put(7, 2, 1, ts=2), put(7, 2, 1, ts=0)])
    drain(ledger(inbox.stream(spark), tmp_path / "state", requests="event"), tmp_path)
    assert await_outcome(tmp_path / "state", 1) == tg.Outcome(True, None, 61)
    assert await_outcome(tmp_path / "state", 7) == tg.Outcome(True, None, 7)


def test_many_threads_await_while_the_stream_runs_and_is_restarted(spark: SparkSession, tmp_path: Path) -> None:
    """Each thread sends a deposit and waits for it before the next: results show that nothing is lost or done twice."""
    inbox, state, lock = Inbox(tmp_path / "in"), tmp_path / "state", threading.Lock()

    def start() -> Any:
        outcomes = ledger(inbox.stream(spark, WITH_ID), state, requests="request")
        stream = outcomes.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return stream.trigger(processingTime="0 seconds").start()

    def client(account: int) -> list[tg.Outcome]:
        found = []
        for number in range(4):
            with lock:
                inbox.add([asked(put(number, account, 10), f"{account}/{number}"), asked(put(9, 99, 1), None)])
            found.append(await_outcome(state, f"{account}/{number}", timeout=120.0))
        return found

    with ThreadPoolExecutor(6) as threads:
        waiting = [threads.submit(client, account) for account in range(6)]
        query = start()
        while not waiting[0].done() and len(list((tmp_path / "in").glob("*.json"))) < 12:
            time.sleep(0.02)
        query.stop()
        query = start()
        answers = [future.result() for future in waiting]
    query.stop()
    assert answers == [[tg.Outcome(True, None, 10 * n) for n in (1, 2, 3, 4)]] * 6
    assert balances(spark, state) == {**dict.fromkeys(range(6), 40), 99: 24}


def test_events_of_a_dataflow_are_found_once_their_atomic_batch_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(*events: tuple[str, int, int | None]) -> None:
        rows = spark.createDataFrame(list(events), "transaction string, account long, id long")
        assert transact(rows, [visits, balance_of], state=tmp_path, requests="id").count() >= 0

    run(("arrivals", 1, 10), ("arrivals", 1, 11), ("arrivals", 2, 12), ("balance_of", 1, 13))
    assert [await_outcome(tmp_path, number).result for number in (10, 11, 13)] == [1, 2, 2]
    assert "atomic batch is complete" in overdue(tmp_path, 12)
    run(("balance_of", 2, 14), ("arrivals", 2, 12))
    assert await_outcome(tmp_path, 12) == tg.Outcome(True, None, 2), "the later of the two events with this id"
    assert await_outcome(tmp_path, 14) == tg.Outcome(True, None, 0)


arrivals = tg.stream("arrivals", account=int)


@tg.transaction(on=arrivals)
def arrive(account: Account) -> int:
    account.balance += 1
    return account.balance


@tg.transaction
def balance_of(account: Account) -> int:
    return account.balance


visits = tg.dataflow([arrive], atomic_batch=2, name="visits")


@pytest.mark.parametrize("column", ["price", "tags", "absent", "Event"])
def test_a_column_that_cannot_carry_ids_is_refused_at_the_call(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    events = spark.createDataFrame([], f"{SCHEMA}, price double, tags array<string>")
    with pytest.raises(InputError) as refused:
        transact(events, PROGRAM, state=tmp_path / "state", requests=column)
    message = str(refused.value)
    assert f"column {column!r}" in message and "required long or string (requests)" in message
    assert {"price": "double", "tags": "array<string>", "absent": "missing", "Event": "rename 'event'"}[
        column
    ] in message
    assert not (tmp_path / "state").exists()


def test_arguments_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([], SCHEMA)
    with pytest.raises(InputError, match="requests must be the name of a column, got 3"):
        transact(events, PROGRAM, state=tmp_path, requests=3)  # type: ignore[arg-type]
    for wrong in (None, 1.5, True, 1 << 63):
        with pytest.raises(InputError, match="request_id must"):
            await_outcome(tmp_path, wrong)  # type: ignore[arg-type]
    for seconds in (-1, float("nan"), "5"):
        with pytest.raises(InputError, match="timeout must be a number of seconds"):
            await_outcome(tmp_path, 1, timeout=seconds)  # type: ignore[arg-type]


# --- the state alone -----------------------------------------------------------------------------------------


class Applied:
    """A state to which batches are applied, as a task of Spark does it."""

    def __init__(self, path: Path, program: Any, keep_versions: int = 100) -> None:
        self.engine = VersionedEngine(build_program(program), str(path), keep_versions=keep_versions)
        self.batch = 0

    def run(self, events: pa.Table, requests: str | None = "request") -> pa.Table:
        owner = Owner("test", "test", process_token())
        options: dict[str, Any] = {"order_by": None, "late": "run", "owner": owner}
        found = self.engine.process(stream_applicant("test", self.batch), events, **options, requests=requests)
        self.batch += 1
        return found


def deposits(*requests: int | str | None) -> pa.Table:
    count = len(requests)
    columns = {"dst": [1] * count, "amount": [1] * count, "request": list(requests)}
    return pa.table(columns)


@dataclass
class Seat:
    row: int
    price: float
    name: str
    free: bool


@tg.transaction
def number(dst: Account) -> int:
    return -(2**63)


@tg.transaction
def fraction(dst: Account) -> float:
    return -0.1


@tg.transaction
def text(dst: Account) -> str:
    return "héllo"


@tg.transaction
def truth(dst: Account) -> bool:
    return dst.balance == 0


@tg.transaction
def seat(dst: Account) -> Seat:
    return Seat(3, 2.5, "aisle", False)


@tg.transaction
def nothing(dst: Account) -> None:
    dst.balance += 0


RESULTS = [number, fraction, text, truth, seat, nothing]


@pytest.mark.parametrize("together", [True, False], ids=["one program", "alone"])
def test_outcomes_are_what_execute_gives(tmp_path: Path, together: bool) -> None:
    for transaction in RESULTS:
        program = RESULTS if together else [transaction]
        path = tmp_path / transaction.__name__
        name = pa.array([transaction.__name__])
        Applied(path, program).run(pa.table({"transaction": name, "dst": [1], "request": [7]}))
        with tg.Engine(program) as engine:
            wanted = engine.execute(transaction, dst=1)
        found = await_outcome(path, 7, timeout=0)
        assert found == wanted and type(found.result) is type(wanted.result), transaction


def test_what_is_collected_with_its_version_is_gone_and_the_newest_versions_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 3 * versions.CHANGE_BYTES_MIN)
    state = Applied(tmp_path, deposit_one, keep_versions=4)
    for batch in range(40):
        state.run(deposits(f"r{batch}", None))
        assert await_outcome(tmp_path, f"r{batch}", timeout=0) == tg.Outcome(True, None, 2 * batch + 1)
        if batch in (5, 10):
            outcome_log._logs.clear()
    for batch in range(36, 40):
        assert await_outcome(tmp_path, f"r{batch}", timeout=0).result == 2 * batch + 1
    assert "keep_versions" in overdue(tmp_path, "r20")
    assert len(list(tmp_path.glob("*.change"))) < 12
    (log,) = outcome_log._logs.values()
    assert len(log._records) < 12, "memory follows what is kept"
    assert {layout.name for layout in state.engine._store.newest().layouts} == {"Account"}  # type: ignore[union-attr]
    state.engine._forget()  # a cold worker reads the state only
    assert state.engine.core.rows("Account").to_pylist() == [{"id": 1, "balance": 80}]


@tg.transaction
def deposit_one(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


def test_without_requests_nothing_is_kept(tmp_path: Path) -> None:
    sizes = []
    for name, requests in (("with", "request"), ("none", None)):
        state = Applied(tmp_path / name, deposit_one)
        state.run(deposits(*range(1000)), requests)
        newest = state.engine._store.newest()
        assert newest is not None
        sizes.append(newest.size)
        assert (newest.records != {}) == (requests is not None)
    assert sizes[0] > sizes[1] + 8000
    assert "none of its versions keeps outcomes" in overdue(tmp_path / "none", 5)
    assert "transact(..., requests=...)" in overdue(tmp_path / "none", 5)


def test_a_batch_that_is_run_again_has_its_outcomes_once(tmp_path: Path) -> None:
    first = Applied(tmp_path, deposit_one)
    first.run(deposits(1, 2))
    again = Applied(tmp_path, deposit_one)
    again.run(deposits(1, 2))
    assert again.engine.version == 1
    assert await_outcome(tmp_path, 2, timeout=0) == tg.Outcome(True, None, 2)


def test_waiting_costs_what_is_new_not_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = Applied(tmp_path, deposit_one)
    count = 20_000
    state.run(pa.table({"dst": list(range(count)), "amount": [1] * count, "request": pa.nulls(count, pa.int64())}))
    for batch in range(20):
        state.run(deposits(batch))
    assert await_outcome(tmp_path, 0, timeout=0).committed
    (log,) = outcome_log._logs.values()
    read: list[int] = []
    plain = log.storage.read

    def counted(*arguments: Any) -> pa.Buffer:
        found = plain(*arguments)
        read.append(found.size)
        return found

    monkeypatch.setattr(log.storage, "read", counted)
    state.run(deposits(1000))
    assert await_outcome(tmp_path, 1000, timeout=0).committed
    assert sum(read) < 20_000, "headers and one small record; the first version alone is larger"
    del read[:]
    assert "request 1001" in overdue(tmp_path, 1001, timeout=0.5)
    assert len(read) <= 4, "while nothing happens, nothing is read"


def test_a_state_that_was_deleted_and_begun_anew_is_read_afresh(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state = Applied(path, deposit_one)
    for batch in range(3):
        state.run(deposits(f"old {batch}"))
    assert await_outcome(path, "old 1").result == 2
    shutil.rmtree(path)
    assert "there is no state" in overdue(path, "old 1")
    Applied(path, deposit_one).run(deposits("new"))
    assert await_outcome(path, "new", timeout=0).result == 1
    assert "request 'old 1'" in overdue(path, "old 1")


def test_a_state_that_begins_while_somebody_waits_is_found(tmp_path: Path) -> None:
    def later() -> None:
        time.sleep(0.3)
        state = Applied(tmp_path / "state", deposit_one)
        state.engine.initialise({"Account": pa.table({"id": [1], "balance": [50]})})
        time.sleep(0.3)
        state.run(deposits("first"))

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(later)
        assert await_outcome(tmp_path / "state", "first", timeout=60.0).result == 51
        done.result()


def test_the_error_says_which_request_where_how_long_and_what_to_check(tmp_path: Path) -> None:
    began = time.monotonic()
    message = overdue(tmp_path / "nowhere", "x7", timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 5.0
    assert "request 'x7'" in message and str(tmp_path / "nowhere") in message and "after 0.3 s" in message
    assert "query was started and is running" in message
    assert not (tmp_path / "nowhere").exists()
    error = OutcomeOverdue(message)
    assert isinstance(error, TimeoutError) and isinstance(error, TidegateError)
    assert str(pickle.loads(pickle.dumps(error))) == message


def test_an_id_of_the_other_type_is_refused_at_once(tmp_path: Path) -> None:
    Applied(tmp_path, deposit_one).run(deposits(7))
    with pytest.raises(InputError, match=r"are whole numbers, got '7'"):
        await_outcome(tmp_path, "7")
    assert await_outcome(tmp_path, 7).committed


def test_the_outcomes_of_a_line_of_json_are_found_in_an_integer_column(spark: SparkSession, tmp_path: Path) -> None:
    """Smaller integers are taken as well."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps({"dst": 1, "amount": 5, "id": 3}) + "\n")
    events = spark.read.schema("dst long, amount long, id short").json(str(tmp_path / "in"))
    assert transact(events, [deposit_one], state=tmp_path / "state", requests="id").count() == 1
    assert await_outcome(str(tmp_path / "state"), 3) == tg.Outcome(True, None, 5)
