"""Values of every type through Spark: columns in and out with Spark's own types, `initial`, and `read_state`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.api.annotations import value_type
from tidegate.spark import read_state, transact

from ..value_types import TYPES, events, write_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = [
    of for of in TYPES if of.name in ("instant_", "datetime_", "timedelta_", "decimal_", "bytes_", "enum_", "date_")
]


def test_every_type_comes_and_goes_as_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    for of in SHOWN:
        module = write_module(of, tmp_path)
        last = module.ALL[-1]
        a, b = of.values[-2:]
        row = {"k": a, "number": 1, "a": a, "b": b, "c": None, "n": 1, "many": [None, b], "transaction": last.__name__}
        table = events(of, [row, {**row, "number": 2, "c": b}]).drop(["transaction"])
        given = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
        outcomes = transact(given, last, state=tmp_path / f"state_{of.name}")
        types = {field.name: field.dataType.simpleString() for field in outcomes.schema["result"].dataType.fields}  # type: ignore[attr-defined]
        assert types == {"v": of.spark, "o": of.spark}, of.name
        found = {row["row"]["number"]: row for row in outcomes.toArrow().to_pylist()}
        declared = value_type(of.hint)
        assert declared is not None and all(row["committed"] for row in found.values()), (of.name, found)
        assert [declared.take(found[n]["result"]["v"]) for n in (1, 2)] == [a, a]
        assert found[1]["result"]["o"] is None and declared.take(found[2]["result"]["o"]) == b
        stored = read_state(spark, tmp_path / f"state_{of.name}", module.Thing)
        assert stored.schema["v"].dataType.simpleString() == of.spark and stored.schema["o"].nullable
        assert sorted(row["number"] for row in stored.collect()) == [1, 2]
