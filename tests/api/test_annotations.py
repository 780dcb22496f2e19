"""Which annotations stand for values, and what those are told that nearly do."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import pytest

import tidegate as tg
from tidegate.api.annotations import Unsuitable, value_type
from tidegate.operations.kinds import Kind
from tidegate.operations.times import DateTime
from tidegate.operations.values import Optional

from ..value_types import TYPES, Color


class Shade(enum.Enum):
    DARK = 1
    LIGHT = "light"


class Bits(enum.Flag):
    ONE = 1


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_a_type_and_the_same_with_none(row: Any) -> None:
    found = value_type(row.hint)
    assert found is not None and value_type(row.hint | None if row.name != "x" else row.hint) == Optional(found)


@pytest.mark.parametrize("zone", [UTC, UTC, ZoneInfo("UTC")])
def test_instants_are_in_utc(zone: Any) -> None:
    assert value_type(Annotated[datetime, zone]) == DateTime(instant=True)
    assert value_type(Annotated[int, "how many"]) is Kind.INT


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Decimal, "tg.digits"),
        (Annotated[Decimal, "money"], "tg.digits"),
        (Annotated[datetime, ZoneInfo("Europe/Berlin")], "Annotated[datetime, UTC]"),
        (Shade, "all str, or all int"),
        (Bits, "declare int"),
        (Literal[1, "a"], "all str, or all int"),
        (Literal[True], "all str, or all int"),
    ],
)
def test_what_is_missing_is_said(hint: Any, words: str) -> None:
    with pytest.raises(Unsuitable) as found:
        value_type(hint)
    assert words in found.value.advice


@pytest.mark.parametrize("hint", [list, object, int | str, dict[str, int], None])
def test_other_annotations_are_no_values(hint: Any) -> None:
    assert value_type(hint) is None


def test_a_key_is_never_none() -> None:
    with pytest.raises(tg.DefinitionError, match="a key is never None"):

        @tg.table(key="id")
        class Wrong:
            id: int | None


def test_a_field_says_how_to_write_its_type() -> None:
    with pytest.raises(tg.DefinitionError, match=r"Annotated\[Decimal, tg.digits\(18, 2\)\]"):

        @tg.table(key="id")
        class Wrong:
            id: int
            price: Decimal


@tg.table(key="id")
class Account:
    id: int
    color: Color
    limit: int | None
    price: Annotated[Decimal, tg.digits(5, 2)] = Decimal("1.5")


def test_rows_hold_their_types() -> None:
    row = Account(1)
    assert (row.color, row.limit, str(row.price)) == (Color.RED, None, "1.50")
    row.price = Decimal(3)
    assert str(row.price) == "3.00"
    with pytest.raises(ValueError, match="write round"):
        row.price = Decimal("0.001")
    with pytest.raises(tg.Abort, match="overflow"):
        row.price = Decimal(1000)
    with pytest.raises(TypeError, match="holds Color, got 'r'"):
        row.color = "r"  # type: ignore[assignment]


def refusal(body: str, **more: Any) -> str:
    """What a body that cannot be compiled is told."""
    import linecache

    text = f"def wrong(row: Account, price: Money, at: Instant, local: Local, color: Color):\n    {body}\n"
    name = f"<body {body}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"Account": Account, "Color": Color, "Decimal": Decimal, "tg": tg, "Local": datetime}
    space |= {"Money": Annotated[Decimal, tg.digits(5, 2)], "Instant": Annotated[datetime, UTC]} | more
    exec(compile(text, name, "exec"), space)
    with pytest.raises(tg.DefinitionError) as found:
        tg.transaction(space["wrong"])
    return str(found.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("row.price = price * price", "write round(..., 2)"),
        ("return price / 3", "round it on the spot"),
        ("return price + 1.5", "Python does not mix them"),
        ("return at < local", "with a zone, or both without"),
        ("return color < Color.RED", "compare with =="),
        ("row.color = 'r'", "assign a member"),
        ("return row.color.label", ".label of Color cannot be compiled"),
        ("return at.isoformat()", "cannot be compiled"),
        ("return row is None", "tg.exists(row)"),
        ("row.limit = price", "holds int, got decimal"),
    ],
)
def test_bodies_are_told_what_to_write(body: str, words: str) -> None:
    assert words in refusal(body)
