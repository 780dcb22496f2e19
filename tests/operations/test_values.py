"""Value types: between Python, words, Arrow and JSON, and what does not fit."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.api.annotations import value_type
from tidegate.operations.decimals import Digits
from tidegate.operations.kinds import FLOAT_NONE_BITS, Kind, TooLarge, ValueType
from tidegate.operations.layout import Column, TableLayout
from tidegate.operations.texts import Uuid
from tidegate.operations.times import Date, DateTime, Duration
from tidegate.operations.values import Choice, Optional, from_json, holds_all_of, none_mask, none_word

from ..value_types import TYPES, Color, Row


def type_of(row: Row) -> ValueType:
    found = value_type(row.hint)
    assert found is not None
    return found


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_values_survive_arrow_words_and_plain_forms(row: Row) -> None:
    for found in (type_of(row), Optional(type_of(row))):
        assert found.arrow == row.arrow
        column = pa.array([found.give(value) for value in row.values], found.arrow)
        for given, values in ((column, row.values), (pa.concat_arrays([column, column]).slice(1), row.values[1:])):
            words, unfit = found.unpack(given)
            assert unfit is None
            texts = words.cast(pa.string()) if found.kind is Kind.STR else words
            back = found.pack(texts)
            back.validate(full=True)
            taken = [found.take(value) for value in back.to_pylist()]
            assert all(same(value, other) for value, other in zip(values, taken, strict=False))
        assert all(same(found.decode(found.encode(found.fit(value))), value) for value in row.values)
        nulls = found.pack(texts, np.arange(len(texts)) > 0)
        assert nulls.null_count == 1 and nulls.type == row.arrow


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_types_compare_by_value_and_are_written_into_files(row: Row) -> None:
    for found in (type_of(row), Optional(type_of(row))):
        assert from_json(found.to_json()) == found == pickle.loads(pickle.dumps(found))
        assert hash(from_json(found.to_json())) == hash(found)
        layout = TableLayout("T", (Column("id", Kind.INT, 0), Column("v", found, found.zero)), ("id",))
        assert TableLayout.from_json(layout.to_json()) == layout
        assert layout.arrow_schema.field("v").nullable == found.optional


def test_plain_layouts_are_written_as_ever() -> None:
    layout = TableLayout("T", (Column("id", Kind.INT, 0), Column("x", Kind.FLOAT, 1.0)), ("id",))
    assert layout.to_json() == {"name": "T", "columns": [["id", "int", 0], ["x", "float", 1.0]], "key": ["id"]}


def marks(found: ValueType, column: pa.Array) -> list[bool]:
    unfit = found.unpack(column)[1]
    return [False] * len(column) if unfit is None else unfit.tolist()


def test_values_that_do_not_fit_are_marked_one_by_one() -> None:
    assert marks(Digits(4, 2), pa.array([Decimal("99.99"), Decimal("100"), None])) == [False, True, False]
    assert marks(Digits(4, 2), pa.array([99, -100, 2**62])) == [False, True, True]
    assert marks(Digits(4, 2), pa.array([Decimal(10) ** 30, Decimal(1)], pa.decimal128(38, 0))) == [True, False]
    assert marks(Uuid(), pa.array([str(UUID(int=5)).upper(), "5", None, ""])) == [False, True, False, True]
    assert marks(Choice(("a", "b")), pa.array(["a", "c", None])) == [False, True, False]
    assert marks(DateTime(False), pa.array([1000, 1001], pa.timestamp("ns"))) == [False, True]
    assert marks(DateTime(True), pa.array([0, 2**60], pa.timestamp("s", "Europe/Berlin"))) == [False, True]
    assert marks(Duration(), pa.array([5, 2**62], pa.duration("s"))) == [False, True]
    assert marks(Date(), pa.array([0, 2**30], pa.int32()).view(pa.date32())) == [False, True]
    assert marks(Optional(Kind.INT), pa.array([0, -(2**63), None])) == [False, True, False]


def test_other_forms_of_the_same_values_are_taken() -> None:
    sixteen = pa.array([UUID(int=7).bytes, None], pa.binary(16))
    assert Uuid().unpack(sixteen)[0][0].as_py() == str(UUID(int=7))
    assert Uuid().unpack(pa.array([UUID(int=7).bytes], pa.uuid()))[0].to_pylist() == [str(UUID(int=7))]
    assert Date().unpack(pa.array([date(2026, 1, 1)], pa.date64()))[0].tolist() == [20454]
    assert Digits(5, 2).unpack(pa.array([Decimal("1.5")], pa.decimal128(3, 1)))[0].tolist() == [150]
    assert DateTime(True).fit(datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))).hour == 22
    assert Digits(5, 2).fit(3) == Decimal("3.00")


@pytest.mark.parametrize(
    ("found", "value", "error"),
    [
        (Date(), datetime(2026, 1, 1), TypeError),
        (DateTime(False), datetime(2026, 1, 1, tzinfo=UTC), TypeError),
        (DateTime(True), datetime(2026, 1, 1), TypeError),
        (Duration(), timedelta.max, TooLarge),
        (Digits(4, 2), Decimal("100"), TooLarge),
        (Digits(4, 2), Decimal("0.001"), ValueError),
        (Digits(4, 2), Decimal("NaN"), TypeError),
        (Digits(4, 2), 1.5, TypeError),
        (Digits(4, 2), True, TypeError),
        (Optional(Kind.INT), -(2**63), TooLarge),
        (Choice((1, 2)), 3, ValueError),
        (Choice((1, 2)), True, TypeError),
        (Kind.INT, None, TypeError),
    ],
)
def test_python_values_that_are_none_of_a_type(found: ValueType, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        found.fit(value)


def test_an_enumeration_takes_members_and_reads_values() -> None:
    found = value_type(Color)
    assert found is not None and found.fit(Color.RED) is Color.RED and found.take("g") is Color.GREEN
    with pytest.raises(TypeError):
        found.fit("r")
    with pytest.raises(ValueError):
        found.take("blue")
    assert from_json(found.to_json()).take("r") == "r"


def test_none_has_a_word_of_its_own() -> None:
    words = np.array([none_word(Kind.FLOAT), np.nan, 0.0])
    assert none_mask(words).tolist() == [True, False, False] and words.view(np.int64)[0] == FLOAT_NONE_BITS
    assert none_mask(np.array([none_word(Kind.INT), 0])).tolist() == [True, False]


def test_a_type_may_become_wider() -> None:
    assert holds_all_of(Optional(Kind.INT), Kind.INT) and not holds_all_of(Kind.INT, Optional(Kind.INT))
    assert holds_all_of(Digits(10, 2), Digits(9, 2)) and not holds_all_of(Digits(10, 3), Digits(9, 2))
    assert holds_all_of(Choice(("a", "b")), Choice(("b",))) and not holds_all_of(Choice(("b",)), Choice(("a", "b")))
    assert not holds_all_of(Kind.STR, Choice(("a",)))


def test_digits_are_checked() -> None:
    for precision, scale in ((19, 2), (0, 0), (5, 6), (5, -1), ("5", 1)):
        with pytest.raises(tg.DefinitionError, match=r"required a whole number|decimal\(18"):
            tg.digits(precision, scale)  # type: ignore[arg-type]
