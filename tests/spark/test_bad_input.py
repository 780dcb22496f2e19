"""What is wrong with the input, the state or the disk is said: before anything runs, or as an outcome."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import DefinitionError, InputError, StorageCorrupted, StorageFailed
from tidegate.foundation.storage import open_storage
from tidegate.spark import transact

from .ledgers import PROGRAM, Account, Inbox, balances, deposit, drain, ledger, put, transfer, written


@tg.table(key=("segment", "lane"))
class Road:
    segment: int
    lane: str
    cars: int = 0


@tg.transaction
def enters(at: Road, roads: list[Road], weights: list[float], flag: bool) -> None:
    at.cars += 1


def refusal(spark: SparkSession, schema: str, program: Any, **options: Any) -> str:
    events = spark.createDataFrame([], schema)
    with pytest.raises(InputError) as refused:
        transact(events, program, state="unused", **options)
    assert not Path("unused").exists()
    return str(refused.value)


def test_a_missing_column_is_named_with_its_type_and_its_use(spark: SparkSession) -> None:
    message = refusal(spark, "transaction string, src long, dst long", PROGRAM)
    assert "column 'amount' is missing: required long (value in transfer, deposit)" in message
    assert "the columns are transaction, src, dst" in message


def test_only_columns_that_a_transaction_needs_are_required(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    assert transact(events, [deposit], state=tmp_path / "s").columns[-3:] == ["committed", "reason", "result"]
    message = refusal(spark, "dst long, amount long", [transfer])
    assert "'src'" in message and "'transaction'" not in message


def test_several_transactions_need_the_column_that_names_one(spark: SparkSession) -> None:
    message = refusal(spark, "src long, dst long, amount long", PROGRAM)
    assert "column 'transaction' is missing: required string (which of transfer, deposit to run)" in message
    assert "column 'transaction' is int" in refusal(spark, "transaction int, src long, dst long, amount long", PROGRAM)


def test_a_wrong_type_is_named_with_what_is_required_and_how_to_cast(spark: SparkSession) -> None:
    message = refusal(spark, "transaction string, src string, dst long, amount double", PROGRAM)
    assert "column 'src' is string: required long (key of Account in transfer)" in message
    assert "column 'amount' is double: required long" in message
    assert """events.withColumn("src", events["src"].cast("long"))""" in message


def test_the_advised_cast_of_a_fraction_loses_no_cents(spark: SparkSession) -> None:
    message = refusal(spark, "transaction string, src long, dst long, amount decimal(18,2)", PROGRAM)
    assert """events.withColumn("amount", (events["amount"] * 100).cast("long")): whole units of 1/100""" in message
    assert "or declare it Annotated[Decimal, tg.digits(18, 2)], and cast nothing" in message
    message = refusal(spark, "transaction string, src decimal(9,0), dst long, amount double", PROGRAM)
    assert """events["src"].cast("long")""" in message  # nothing is behind the point
    assert """F.round(events["amount"] * 100).cast("long"))""" in message
    message = refusal(spark, "ts decimal(18,3), dst long, amount long", [deposit], order_by="ts")
    assert """(events["ts"] * 1000).cast("long")""" in message


def test_a_timestamp_where_a_number_is_required_is_named_like_any_other_type(spark: SparkSession) -> None:
    message = refusal(spark, "transaction string, src long, dst long, amount timestamp", PROGRAM)
    assert "column 'amount' is timestamp: required long" in message


def test_composite_keys_and_lists_are_checked_inside(spark: SparkSession) -> None:
    message = refusal(
        spark,
        "at struct<segment: long>, roads array<long>, weights array<string>, flag int",
        [enters],
    )
    assert "'at' is struct<segment:bigint>: required struct<segment: long, lane: string>" in message
    assert "'roads' is array<bigint>: required array<struct<segment: long, lane: string>>" in message
    assert "'weights' is array<string>: required array<double>" in message
    assert "'flag' is int: required boolean" in message


def test_a_column_that_differs_in_case_is_pointed_out(spark: SparkSession) -> None:
    assert "rename 'DST'" in refusal(spark, "DST long, amount long", [deposit])


@pytest.mark.parametrize("name", ["committed", "reason", "Result"])
def test_an_outcome_column_in_the_input_is_refused(spark: SparkSession, name: str) -> None:
    message = refusal(spark, f"dst long, amount long, {name} string", [deposit])
    assert f"column {name!r} is there already" in message and "rename" in message


def test_a_column_that_is_there_twice_is_refused(spark: SparkSession) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    with pytest.raises(InputError, match="column 'amount' is there 2 times"):
        transact(events.select("dst", "amount", "amount"), [deposit], state="unused")


def test_an_unknown_or_unordered_order_by_is_refused(spark: SparkSession) -> None:
    schema = "dst long, amount long, at array<int>, price decimal(10,2)"
    assert "column 'ts' is missing" in refusal(spark, schema, [deposit], order_by="ts")
    for name in ("at", "price"):
        message = refusal(spark, schema, [deposit], order_by=name)
        assert f"column {name!r} is" in message and "order_by" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"late": "drop"}, r'late must be "run" or "refuse", got \'drop\''),
        ({"late": "refuse"}, 'late="refuse" needs order_by'),
        ({"state": "~/ledger"}, r"does not expand ~.*give '/"),
        ({"state": "dbfs:/ledger"}, r"two slashes.*give '/dbfs/ledger'"),
        ({"order_by": 7}, "order_by must be the name of a column, got 7"),
        ({"state": ""}, "state: required a path"),
        ({"state": "memory://x"}, r"memory of one process.*tg\.Engine"),
        ({"initial": {Path: None}}, "'Path', which is no table of the program; its tables are Account"),
    ],
)
def test_arguments_that_cannot_be_are_refused(spark: SparkSession, options: dict[str, Any], message: str) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    with pytest.raises(InputError, match=message):
        transact(events, [deposit], **{"state": "unused", **options})
    assert not Path("unused").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_versions": 0}, "keep_versions: required a whole number of at least 1, got 0"),
        ({"keep_versions": True}, "keep_versions: required a whole number of at least 1, got True"),
        ({"keep_versions": 2.0}, r"keep_versions: required a whole number of at least 1, got 2\.0"),
        ({"workers": 0}, "workers: required a whole number of at least 1, got 0"),
        ({"strategy": "fastest"}, "strategy: got 'fastest', required one of adaptive, serial"),
        ({"strategy": "unsafe-nolock"}, "'unsafe-nolock' gives wrong rows by design.*tg.Engine in memory"),
    ],
)
def test_what_an_engine_would_refuse_is_refused_in_the_same_words(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    with pytest.raises(DefinitionError, match=message) as refused:
        transact(events, [deposit], state=tmp_path / "state", **options)
    with pytest.raises(DefinitionError) as of_engine:
        tg.Engine([deposit], directory=tmp_path / "state", **options)
    assert str(refused.value) == str(of_engine.value)
    assert not (tmp_path / "state").exists()


def test_initial_rows_that_do_not_fit_the_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    rows = spark.createDataFrame([("a", 1)], "id string, balance long")
    with pytest.raises(InputError, match="id"):
        transact(events, [deposit], state=tmp_path / "state", initial={Account: rows})
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="must be a batch DataFrame, got a stream"):
        transact(events, [deposit], state=tmp_path / "state", initial={Account: stream})


def test_something_that_is_no_transaction_is_refused(spark: SparkSession) -> None:
    events = spark.createDataFrame([], "dst long, amount long")
    with pytest.raises(DefinitionError, match=r"@tg\.transaction"):
        transact(events, [len], state="unused")  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="at least one transaction"):
        transact(events, [], state="unused")


def test_bad_events_are_outcomes_and_the_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add(
        [
            put(1, 1, 10),
            {"event": 2, "ts": 2, "transaction": "withdraw", "dst": 1, "amount": 1},
            {"event": 3, "ts": 3, "dst": 1, "amount": 1},
            {"event": 4, "ts": 4, "transaction": "deposit", "amount": 1},
            {"event": 5, "ts": 5, "transaction": "deposit", "dst": 1},
            {"event": 6, "transaction": "deposit", "dst": 1, "amount": 1},
            put(7, 1, 5),
        ]
    )
    inbox.add([put(8, 1, 5)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert written(spark, tmp_path) == {
        1: (True, None, 10),
        2: (False, "unknown transaction 'withdraw'", None),
        3: (False, "null transaction", None),
        4: (False, "null key in column 'dst'", None),
        5: (False, "null in column 'amount'", None),
        6: (False, "null in order column 'ts'", None),
        7: (True, None, 15),
        8: (True, None, 20),
    }
    assert balances(spark, tmp_path / "state") == {1: 20}


def test_malformed_rows_become_refused_events(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add_text(
        '{"event": 1, "ts": 1, "transaction": "deposit", "dst": 1, "amount": 10}\n'
        '{"event": 2, "ts": 2, "transaction": "depos\n'
        "not json at all\n"
        '{"event": 3, "ts": 3, "transaction": "deposit", "dst": 1, "amount": "many"}\n'
        '{"event": 4, "ts": 4, "transaction": "deposit", "dst": 1, "amount": 5}\n'
    )
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "query.out")).collect()
    assert len(rows) == 5
    assert sorted((row.event or 0, row.committed) for row in rows) == [
        (0, False), (0, False), (1, True), (3, False), (4, True),
    ]  # fmt: skip
    assert all(row.reason for row in rows if not row.committed)
    assert balances(spark, tmp_path / "state") == {1: 15}


@pytest.mark.parametrize("damage", ["flip", "truncate", "foreign"])
def test_a_damaged_state_file_stops_the_query_by_name(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    (file,) = (tmp_path / "state").glob("*.change")
    data = bytearray(file.read_bytes())
    data[-3] ^= 0xFF
    file.write_bytes({"flip": bytes(data), "truncate": bytes(data[:-9]), "foreign": b"hello"}[damage])
    # Another table of the program: no worker has this state warm for it, so it is read from disk.
    inbox.add([put(2, 1, 10)])
    with pytest.raises((StorageCorrupted, StreamingQueryException)) as stopped:
        drain(transact(inbox.stream(spark), [deposit], state=tmp_path / "state", order_by="ts"), tmp_path)
    message = f"{stopped.type.__name__}: {stopped.value}"
    assert "StorageCorrupted: " in message and file.name in message
    assert VersionStore(open_storage(str(tmp_path / "state"))).refresh() == [1], "nothing was committed"


def test_a_path_that_cannot_be_written_is_named_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    events = spark.createDataFrame([(1, 5)], "dst long, amount long")
    with pytest.raises((StorageFailed, PythonException), match=r"Not a directory"):
        transact(events, [deposit], state=tmp_path / "file" / "state").count()


def test_a_query_that_failed_goes_on_after_the_cause_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    (tmp_path / "place").write_text("in the way")
    with pytest.raises((StorageFailed, StreamingQueryException), match="Not a directory"):
        drain(ledger(inbox.stream(spark), tmp_path / "place" / "state"), tmp_path)
    (tmp_path / "place").unlink()
    drain(ledger(inbox.stream(spark), tmp_path / "place" / "state"), tmp_path)
    assert balances(spark, tmp_path / "place" / "state") == {1: 10}
    assert written(spark, tmp_path) == {1: (True, None, 10)}


def test_a_full_disk_fails_the_batch_by_name_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, small_disk: Path
) -> None:
    """A state of 128 KiB fills up in the second batch; with room again, the same query goes on where it was."""
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), small_disk / "state"), tmp_path)
    (small_disk / "other").write_bytes(b"x" * 80_000)
    inbox.add([put(10 + key, key, 1) for key in range(10_000)])
    with pytest.raises(StreamingQueryException, match="No space left on device"):
        drain(ledger(inbox.stream(spark), small_disk / "state"), tmp_path)
    assert balances(spark, small_disk / "state") == {1: 10}
    assert written(spark, tmp_path) == {1: (True, None, 10)}
    (small_disk / "other").unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    drain(ledger(inbox.stream(spark), small_disk / "state"), tmp_path)
    assert balances(spark, small_disk / "state") == {key: 11 if key == 1 else 1 for key in range(10_000)}
    assert len(written(spark, tmp_path)) == 10_001
