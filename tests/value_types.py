"""The types that values may have, one row each: values, what they are outside, and what bodies do with them.

All tests of value types are driven by this table. `expressions` are over `a` and `b` (values), `c` (a value or None),
`n` (an int) and `row` (with `v`, a value, and `o`, a value or None); each is returned by a transaction of its own.
"""

from __future__ import annotations

import enum
import importlib.util
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa

import tidegate as tg


class Color(enum.Enum):
    RED = "r"
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 5


class Tag(enum.StrEnum):
    A = "a"
    B = "b"


@dataclass(frozen=True)
class Row:
    """One type of the table."""

    name: str
    text: str
    hint: Any
    values: tuple[Any, ...]
    arrow: pa.DataType
    spark: str
    expressions: tuple[str, ...] = ()


ORDERED = ("a < b", "a <= row.v", "max(a, b, row.v)", "min(a, row.v) if c is None else min(c, b)", "b > a or c >= a")

TYPES = (
    Row("int_", "int", int, (0, 1, -7, 2**62, -(2**63) + 1), pa.int64(), "bigint", ("a + (c or 1)", "c + a")),
    Row("float_", "float", float, (0.0, -0.0, 1.5, float("nan"), float("inf")), pa.float64(), "double", ("c * 2.0",)),
    Row("bool_", "bool", bool, (True, False), pa.bool_(), "boolean", ("c or b", "not c")),
    Row(
        "str_",
        "str",
        str,
        ("", "a", "zé"),
        pa.string(),
        "string",
        ("c or b", "a < b", "len(c)", "c.startswith(a)", "a in c"),
    ),
    Row(
        "date_",
        "date",
        date,
        (date.min, date.max, date(1970, 1, 1), date(2024, 2, 29), date(2025, 3, 1)),
        pa.date32(),
        "date",
        (
            *ORDERED,
            "a - b",
            "a + timedelta(days=n)",
            "a - timedelta(days=n, hours=5)",
            "a.year * 10000 + a.month * 100 + a.day",
            "c.weekday() + a.isoweekday()",
            "a.toordinal()",
            "(a - date(2024, 1, 1)).days",
            "a == date(1970, 1, 1)",
        ),
    ),
    Row(
        "datetime_",
        "datetime",
        datetime,
        (datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 12)),
        pa.timestamp("us"),
        "timestamp_ntz",
        (
            *ORDERED,
            "a - b",
            "a + timedelta(hours=n)",
            "a - timedelta(microseconds=n) > c",
            "a.year + a.month + a.day + a.hour + a.minute + a.second + a.microsecond",
            "a.date()",
            "a.date() - timedelta(days=1)",
            "a.weekday()",
        ),
    ),
    Row(
        "instant_",
        "Annotated[datetime, UTC]",
        Annotated[datetime, UTC],
        (
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(2024, 2, 29, 12, 1, 2, 3, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
        ),
        pa.timestamp("us", "UTC"),
        "timestamp",
        (*ORDERED, "a - b", "a + (a - b)", "a >= datetime(2020, 1, 1, tzinfo=UTC)", "a.timestamp()", "a.hour"),
    ),
    Row(
        "timedelta_",
        "timedelta",
        timedelta,
        (timedelta(0), timedelta(-1, 3, 7), timedelta(days=106751991), timedelta(microseconds=1), timedelta(hours=5)),
        pa.duration("us"),
        "interval day to second",
        (
            *ORDERED,
            "a + b",
            "a - b - a",
            "-a",
            "abs(a)",
            "a * n",
            "n * b",
            "a // n",
            "a / n",
            "a // b",
            "a % b",
            "a / b",
            "a.days",
            "a.seconds + a.microseconds",
            "a.total_seconds()",
            "timedelta(n, 5, hours=n)",
            "c or a",
            "not a",
        ),
    ),
    Row(
        "decimal_",
        "Annotated[Decimal, tg.digits(12, 2)]",
        Annotated[Decimal, tg.digits(12, 2)],
        (Decimal("0.00"), Decimal("0.05"), Decimal("-2.50"), Decimal("9999999999.99"), Decimal("3.33")),
        pa.decimal128(12, 2),
        "decimal(12,2)",
        (
            *ORDERED,
            "a + b - 1",
            "a * b",
            "a * b * a * b * a",
            "-a",
            "abs(a)",
            "a > n",
            "a == 0",
            "round(a, 1)",
            "round(a * RATE, 2)",
            "round(a)",
            "int(a)",
            "math.floor(a)",
            "math.ceil(a)",
            "float(a)",
            "round(a / b, 2)",
            "(a / b).quantize(Decimal('0.001'))",
            "(a / 3).quantize(CENT, rounding=ROUND_HALF_UP)",
            "(n / a).quantize(CENT, rounding=ROUND_DOWN)",
            "a.quantize(Decimal('1'), rounding=ROUND_CEILING)",
            "(a * RATE).quantize(CENT, ROUND_FLOOR)",
            "a + c",
            "Decimal(n) + a",
            "sum(x for x in many if x is not None)",
            "c or a",
        ),
    ),
    Row(
        "bytes_",
        "bytes",
        bytes,
        (b"", b"\xff", b"\x00\x80a"),
        pa.binary(),
        "binary",
        ("a == b'\\xff'", "not a", "a < b", "c >= a", "len(a)"),
    ),
    Row(
        "uuid_",
        "UUID",
        UUID,
        (UUID(int=0), UUID(int=2**128 - 1), UUID(int=77)),
        pa.string(),
        "string",
        ("a < b", "a >= row.v"),
    ),
    Row(
        "enum_",
        "Color",
        Color,
        (Color.RED, Color.GREEN),
        pa.string(),
        "string",
        ("a is Color.RED", "a is not b", "c is a", "a.value", "a.name", "a in (Color.RED, b)", "Color.GREEN"),
    ),
    Row(
        "intenum_",
        "Level",
        Level,
        (Level.LOW, Level.HIGH),
        pa.int64(),
        "bigint",
        ("a + n", "a < b", "a is Level.LOW", "a.name"),
    ),
    Row("strenum_", "Tag", Tag, (Tag.A, Tag.B), pa.string(), "string", ("a == 'a'", "c is Tag.B", "a.value")),
    Row("literal_", 'Literal["x", "y"]', Literal["x", "y"], ("x", "y"), pa.string(), "string", ("a == 'x'",)),
    Row("number_", "Literal[3, 4]", Literal[3, 4], (3, 4), pa.int64(), "bigint", ("a + n", "a < b")),
)

COMMON = (
    "a == b",
    "a != row.v",
    "c is None",
    "c is not None and c == a",
    "row.o == c",
    "row.o != a",
    "c == None",
    "a in (b, row.v)",
    "c in (None, a)",
    "1 if c else 2",
    "row.v",
    "row.o",
    "c",
    "a if n > 0 else None",
    "chosen(a, c, n)",
)

STATEMENTS = (
    ("row.v = a", "row.o = c"),
    ("row.o = None",),
    ("row.o = a if n > 0 else c",),
    ("row.v = c",),
    ("found = None", "if a == b:", "    found = a", "row.o = found"),
    ("for x in many:", "    if x is not None:", "        row.v = x", "    else:", "        row.o = x"),
    ("tg.delete(row)", "if n > 0:", "    row.o = b"),
    ("tg.require(c is not None, 'none')", "row.v = c", "row.o = c", "tg.require(n > 0, 'late')"),
)

HEADER = """
import math
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import tidegate as tg
from tests.value_types import Color, Level, Tag

RATE, CENT = Decimal("0.195"), Decimal("0.01")


def chosen(a, c, n):
    if n > 1:
        return None
    return c if n < 0 else a
"""


def write_module(of: Row, folder: Path) -> ModuleType:
    """A program with one transaction for each expression and each group of statements over a type."""
    lines = [
        HEADER,
        "@tg.table(key=('k', 'number'))",
        "class Thing:",
        f"    k: {of.text}",
        "    number: int",
        f"    v: {of.text}",
        f"    o: {of.text} | None",
        "",
        "class Both(NamedTuple):",
        f"    v: {of.text}",
        f"    o: {of.text} | None",
    ]
    header = f"(row: Thing, a: {of.text}, b: {of.text}, c: {of.text} | None, n: int, many: list[{of.text} | None]):"
    bodies = [*((f"return {found}",) for found in (*COMMON, *of.expressions)), *STATEMENTS]
    bodies.append(("row.v = a", "return Both(row.v, c)"))
    for number, body in enumerate(bodies):
        lines += ["", "", "@tg.transaction", f"def t{number}{header}", *(f"    {line}" for line in body)]
    path = folder / f"{of.name}.py"
    path.write_text("\n".join(lines) + f"\n\n\nALL = [{', '.join(f't{number}' for number in range(len(bodies)))}]\n")
    spec = importlib.util.spec_from_file_location(f"value_type_{of.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def given(value: Any) -> Any:
    """A value as Arrow takes it."""
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value


def events(of: Row, rows: list[dict[str, Any]]) -> pa.Table:
    """Events of the program of a type: `k`, `number`, `a`, `b`, `c`, `n` and `many` each, and `transaction`."""
    key = pa.struct([("k", of.arrow), ("number", pa.int64())])
    schema = pa.schema(
        [
            ("transaction", pa.string()),
            ("row", key),
            *((name, of.arrow) for name in "abc"),
            ("n", pa.int64()),
            ("many", pa.list_(of.arrow)),
        ]
    )
    found = [
        {
            **row,
            "row": {"k": given(row["k"]), "number": row["number"]},
            **{name: given(row[name]) for name in "abc"},
            "many": [given(value) for value in row["many"]],
        }
        for row in rows
    ]
    return pa.Table.from_pylist(found, schema=schema)
