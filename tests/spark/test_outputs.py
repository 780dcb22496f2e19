"""Output streams on Spark: what nobody consumes is kept with the state, and read as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import versions
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.foundation.storage import open_storage
from tidegate.spark import read_state, transact

from .ledgers import Inbox, drain

SCHEMA = "event long, transaction string, place struct<city: string, street: long>, amount long"


@tg.table(key=("city", "street"))
class Place:
    city: str
    street: int
    total: int = 0


sales = tg.stream("sales", place=Place, amount=int)
checked = tg.stream("checked", amount=int)
alerts = tg.stream("alerts", place=Place, share=float, word=str, high=bool)
totals = tg.stream("totals", total=int)


@tg.transaction(on=sales, emits=[checked, alerts])
def sell(place: Place, amount: int) -> int:
    tg.require(amount != 13, "bad luck")
    place.total += amount
    tg.emit(checked, amount=amount)
    tg.emit(alerts, place=place, share=amount / 4, word="first", high=amount > 9)
    if amount > 9:
        tg.emit(alerts, place=place, share=-0.0, word="sécond", high=True)
    return place.total


@tg.transaction(on=checked, emits=[totals])
def check(amount: int) -> None:
    tg.require(amount != 7, "seven")
    tg.emit(totals, total=amount)


@tg.transaction
def total_of(place: Place) -> int:
    return place.total


GRAPH = tg.dataflow([sell, check], atomic_batch=2, name="sales")


def sale(event: int, amount: int) -> dict[str, Any]:
    return {"event": event, "transaction": "sales", "place": {"city": "Bonn", "street": 3}, "amount": amount}


def alert(share: float, word: str, high: bool, batch: int) -> Row:
    return Row(place=Row(city="Bonn", street=3), share=share, word=word, high=high, batch=batch)


BATCHES = [
    [sale(1, 1), sale(2, 12), sale(3, 2)],  # 3 waits
    [sale(4, 13), sale(5, 4)],  # 3 and 4 abort; 5 waits
    [{**sale(6, 0), "transaction": "total_of"}],  # nothing is emitted
    [sale(7, 7)],  # with 5; what `check` emits for them is dropped with it
    [sale(8, 20), sale(9, 3)],
]
ALERTS = [
    [alert(0.25, "first", False, 1), alert(3.0, "first", True, 1), alert(-0.0, "sécond", True, 1)],
    [],
    [],
    [alert(1.0, "first", False, 3), alert(1.75, "first", False, 3)],
    [alert(5.0, "first", True, 4), alert(-0.0, "sécond", True, 4), alert(0.75, "first", False, 4)],
]
TOTALS = [[(1, 1), (12, 1)], [], [], [], [(20, 4), (3, 4)]]


def flat(parts: list[list[Any]]) -> list[Any]:
    return [item for part in parts for item in part]


@pytest.fixture(scope="module")
def state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five micro-batches; the query is started anew after two and after four of them."""
    folder = tmp_path_factory.mktemp("outputs")
    inbox = Inbox(folder / "in")
    for cut in (BATCHES[:2], BATCHES[2:4], BATCHES[4:]):
        for batch in cut:
            inbox.add(batch)
        events = inbox.stream(spark, SCHEMA)
        drain(transact(events, [GRAPH, total_of], state=folder / "state", order_by="event"), folder)
    return folder / "state"


def test_tuples_come_in_the_order_of_emission_with_the_number_of_their_round(spark: SparkSession, state: Path) -> None:
    found = read_state(spark, state, alerts)
    assert found.schema.simpleString() == (
        "struct<place:struct<city:string,street:bigint>,share:double,word:string,high:boolean,batch:bigint>"
    )
    assert str(found.collect()) == str(flat(ALERTS)), "as text: -0.0 is not 0.0"
    assert [tuple(row) for row in read_state(spark, state, totals).collect()] == flat(TOTALS)


def test_tuples_can_be_read_as_of_any_kept_version(spark: SparkSession, state: Path) -> None:
    for version in range(1, 6):
        assert read_state(spark, state, alerts, version=version).collect() == flat(ALERTS[:version])


def test_the_tuples_are_fixed_when_read_state_is_called(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for batch in (BATCHES[0], BATCHES[4]):
        before = read_state(spark, tmp_path / "state", totals) if batch is BATCHES[4] else None
        inbox.add(batch)
        drain(transact(inbox.stream(spark, SCHEMA), GRAPH, state=tmp_path / "state"), tmp_path)
    assert before is not None and [tuple(row) for row in before.collect()] == TOTALS[0]
    assert read_state(spark, tmp_path / "state", totals).count() == 4


def test_a_stream_that_is_no_output_is_refused_naming_those_that_are(spark: SparkSession, state: Path) -> None:
    for stream in (checked, sales, tg.stream("never", amount=int)):
        with pytest.raises(InputError, match=rf"no tuples of the stream '{stream.name}'.*those are alerts, totals"):
            read_state(spark, state, stream)


def test_a_stream_declared_otherwise_is_refused_with_both_forms(spark: SparkSession, state: Path) -> None:
    with pytest.raises(DefinitionError, match=r"'totals' .* it was total int64, is total double; declare it as it was"):
        read_state(spark, state, tg.stream("totals", total=float))


def test_a_batch_whose_commit_spark_forgot_keeps_its_tuples_once(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add(BATCHES[0])
    for _ in range(2):
        drain(transact(inbox.stream(spark, SCHEMA), GRAPH, state=tmp_path / "state"), tmp_path)
        for forgotten in (tmp_path / "query.checkpoint" / "commits").iterdir():
            forgotten.unlink()
    assert len(VersionStore(open_storage(str(tmp_path / "state"))).infos()) == 1
    assert read_state(spark, tmp_path / "state", alerts).collect() == ALERTS[0]


# --- the state alone -----------------------------------------------------------------------------------------


def apply(engine: VersionedEngine, batch: int, rows: list[dict[str, Any]]) -> None:
    owner = Owner("test", "test", process_token())
    options: dict[str, Any] = {"order_by": None, "late": "run", "owner": owner}
    engine.process(stream_applicant("test", batch), pa.Table.from_pylist(rows), **options)


def test_tuples_go_with_the_versions_that_are_no_longer_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SNAPSHOT_AFTER_BYTES", 3 * versions.CHANGE_BYTES_MIN)
    engine = VersionedEngine(build_program(GRAPH), str(tmp_path), keep_versions=4)
    for batch in range(40):
        apply(engine, batch, [sale(1, batch + 100), sale(2, batch + 200)])
    found = [tuple(row) for row in read_state(spark, tmp_path, totals).collect()]
    wanted = [(batch + more, batch + 1) for batch in range(40) for more in (100, 200)]
    assert 8 <= len(found) < 24 and found == wanted[-len(found) :]
    assert len(list(tmp_path.glob("*.change"))) < 12
    held = [stream.count[0] for stream in engine.core.flows.streams]  # type: ignore[union-attr]
    assert held == [0] * len(held), "no tuple stays in memory"


lonely = tg.stream("lonely", amount=int)


@tg.transaction(on=lonely)
def swallow(amount: int) -> int:
    return amount


def test_a_program_without_outputs_keeps_no_record_and_reads_say_so(spark: SparkSession, tmp_path: Path) -> None:
    for name, program in (("flow", tg.dataflow([swallow])), ("plain", [total_of])):
        engine = VersionedEngine(build_program(program), str(tmp_path / name))  # type: ignore[arg-type]
        apply(engine, 0, [{"amount": 3, "place": {"city": "Bonn", "street": 3}}])
        store = VersionStore(open_storage(str(tmp_path / name)))
        newest = store.newest()
        assert newest is not None and newest.records == {}
        header = store._read_header(1, "change")
        assert "records" not in header.fields and all(section.kind != "record" for section in header.sections)
        with pytest.raises(InputError, match="those are none"):
            read_state(spark, tmp_path / name, alerts)
