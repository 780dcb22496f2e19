"""Compiled arithmetic is Python's arithmetic, exactly: the same bits, the same exceptions.

Every expression below becomes a transaction that returns it. Hypothesis draws values, biased towards
the places where machines and Python part ways: both ends of 64 bits, 2**53, halves, zeros of both
signs, infinities, NaN. What Python's own evaluation gives is what the engine must give: the value, or
an abort with the exception's name, or `overflow` where an integer does not fit 64 bits.
"""

from __future__ import annotations

import itertools
import linecache
import math
import struct
import sys
import types
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.foundation.jit import uncompiled

EXPRESSIONS: dict[str, list[str]] = {
    "int": [
        "a + b", "a - b", "a * b", "a // b", "a % b", "-a", "+a", "~a", "abs(a)", "a & b", "a | b", "a ^ b",
        "a << (b & 127)", "a << (b % 5 - 1)", "a >> (b & 127)", "a >> b", "0 << (b & 1023)",
        "a ** 0", "a ** 1", "a ** 2", "a ** 3", "(b % 5 - 2) ** 63", "(b % 3 - 1) ** 200",
        "int(x)", "round(x)", "math.floor(x)", "math.ceil(x)", "int(a)", "round(a)", "math.floor(a)",
        "min(a, b)", "max(a, b, 7)", "int(a > b)", "a + (x > y)", "True + a", "p + q", "p * a", "-p", "~a + p",
        "(a + b) - b", "a * b // b", "(a * a + b * b) % 1000003", "-(-a)", "abs(a) - abs(b)", "(a << 3) >> 3",
        "a if x < y else b", "a // b * b + a % b", "9223372036854775807 + (a & 1)", "-9223372036854775808 - (a & 1)",
        "(18446744073709551616 + a) % 1000", "sum(values)", "sum(v * v for v in values)", "sum(values) // len(values)",
        "int(p)", "int(p) // int(q)", "p // q", "p % q", "p & q | (a > b)", "p << 3",
    ],
    "float": [
        "x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "-x", "+x", "abs(x)", "math.fabs(x)",
        "x ** 2", "x ** 3", "x ** 1", "x ** 0", "x ** -1", "x ** -2", "a ** -1", "math.sqrt(x)", "math.sqrt(a)",
        "a / b", "a + x", "x - a", "a * x", "x / a", "a / x", "a // x", "x // a", "a % x", "x % a", "p + x", "p / q",
        "min(x, y)", "max(x, y)", "max(y, x)", "min(x, y, 0.5)", "float(a)", "float(p)", "float(x)", "a",
        "x * y + x", "x * x - y * y", "(x + y) - x", "x / 3.0 * 3.0", "x if a < b else y", "a * b / 2",
        "sum(floats)", "sum(v * 0.1 for v in floats)", "abs(x) ** 0.5", "x - x", "x * 0.0", "x // 0.1", "x % -0.7",
        "0.1 + 0.2 + x", "1e16 + x - 1e16", "-(x * y)", "x // 1", "x % 1", "float(int(a)) + 0.5", "a * 1.5 // 1.0",
    ],
    "bool": [
        "a < x", "a <= x", "a == x", "a != x", "a > x", "a >= x", "x < a", "x <= a", "x == a", "x >= a", "x > a",
        "a < b", "a == b", "x < y", "x == y", "x != y", "a < x < b", "x <= a != y", "a + b > a", "a * b == x",
        "bool(a)", "bool(x)", "not a", "not x", "math.isnan(x)", "math.isinf(x)", "math.isnan(a)", "p == q", "p != q",
        "p and q or not p", "p < q", "a in (0, 1, 2)", "a not in (0, 9223372036854775807)", "x in (0.0, 1.5)",
        "x in (0, 1, 9007199254740993)", "a in (0.0, 9007199254740992.0)", "a == 9007199254740993.0", "p & q", "p ^ q",
        "all(v > 0 for v in values)", "any(v != v for v in floats)", "a / b == a", "x // y == y", "p == 1", "q > a",
        "a == 9223372036854775808", "a < 1e19", "x < 9223372036854775807", "x == 9223372036854775807",
    ],
}  # fmt: skip
SIGNATURE = "cell: Cell, a: int, b: int, x: float, y: float, p: bool, q: bool, values: list[int], floats: list[float]"
SCHEMA = pa.schema(
    {
        "transaction": pa.string(), "cell": pa.int64(), "a": pa.int64(), "b": pa.int64(), "x": pa.float64(),
        "y": pa.float64(), "p": pa.bool_(), "q": pa.bool_(), "values": pa.list_(pa.int64()),
        "floats": pa.list_(pa.float64()),
    }
)  # fmt: skip

EDGE_INTEGERS = [0, 1, -1, 2, 7, -7, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 3037000500, 64]
EDGE_FLOATS = [
    0.0, -0.0, 0.5, -2.5, 1.0, 3.7, -7.0, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, math.inf, math.nan,
]  # fmt: skip
integers = st.one_of(
    st.integers(-12, 12),
    st.sampled_from(
        [2**63 - 1, -(2**63), 2**62, -(2**62), 2**53, 2**53 + 1, -(2**53) - 1, 2**31, 3037000500, 2**63 - 2]
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**54), 2**54),
)
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 0.1, math.inf, -math.inf, math.nan]),
    st.sampled_from([2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**62, 1e308, -1e308, 5e-324, 2.0**52 + 0.5, 1e16]),
    st.floats(),
    st.floats(-1000, 1000),
    st.integers(-(2**63), 2**63 - 1).map(float),
)
rows = st.tuples(
    integers, integers, floats, floats, st.booleans(), st.booleans(),
    st.lists(integers, max_size=4), st.lists(floats, max_size=4),
)  # fmt: skip


def source_of(kind: str) -> str:
    lines = [
        "import math",
        "import tidegate as tg",
        "",
        '@tg.table(key="id")',
        "class Cell:",
        "    id: int",
        "    n: int",
    ]
    for number, expression in enumerate(EXPRESSIONS[kind]):
        lines += ["", "@tg.transaction", f"def t{number}({SIGNATURE}) -> {kind}:", f"    return {expression}"]
    return "\n".join(lines) + "\n"


def build(kind: str) -> Any:
    """An engine with one transaction per expression."""
    name = f"arithmetic_of_{kind}"
    source = source_of(kind)
    linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(keepends=True), f"<{name}>")
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return tg.Engine([module.__dict__[f"t{number}"] for number in range(len(EXPRESSIONS[kind]))], strategy="serial")


@pytest.fixture(scope="module", params=["compiled", "uncompiled"])
def engines(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    if request.param == "compiled":
        yield {kind: build(kind) for kind in EXPRESSIONS}
    else:
        with uncompiled():
            yield {kind: build(kind) for kind in EXPRESSIONS}


def python_says(kind: str, expression: str, names: dict[str, Any]) -> tuple[bool, str | None, Any]:
    """What the expression gives in plain Python, as an outcome."""
    try:
        value = eval(expression, {"math": math}, names)
        if kind == "float":
            value = float(value)
    except Exception as error:
        return False, type(error).__name__, None
    if kind == "int":
        value = int(value)
        return (True, None, value) if -(2**63) <= value < 2**63 else (False, "overflow", None)
    return True, None, value


def exact(outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    value = outcome[2]
    if isinstance(value, float):
        value = "nan" if value != value else struct.pack(">d", value)
    return (*outcome[:2], type(value).__name__, value)


def assert_exact(engine: Any, kind: str, drawn: list[tuple[Any, ...]]) -> None:
    """Every expression of a kind, on every row of values, gives what Python gives."""
    events = [
        {"transaction": f"t{number}", "cell": 1, **dict(zip(SCHEMA.names[2:], values, strict=True))}
        for number in range(len(EXPRESSIONS[kind]))
        for values in drawn
    ]
    outcomes = engine.run(pa.Table.from_pylist(events, SCHEMA))
    got = list(zip(*(outcomes[name].to_pylist() for name in ("committed", "reason", "result")), strict=True))
    for event, have in zip(events, got, strict=True):
        expression = EXPRESSIONS[kind][int(event["transaction"][1:])]
        want = python_says(kind, expression, event)
        assert exact(have) == exact(want), f"{expression} with {event}: Python gives {want}, the engine {have}"


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_expressions_give_what_python_gives_on_all_pairs_of_edges(engines: dict[str, Any], kind: str) -> None:
    pairs = zip(itertools.product(EDGE_INTEGERS, repeat=2), itertools.product(EDGE_FLOATS, repeat=2), strict=True)
    flags = itertools.cycle(itertools.product([False, True], repeat=2))
    drawn = [(*whole, *real, *flag, list(whole), list(real)) for (whole, real), flag in zip(pairs, flags, strict=False)]
    assert_exact(engines[kind], kind, drawn)


@pytest.mark.parametrize("kind", EXPRESSIONS)
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(rows, min_size=1, max_size=12))
def test_expressions_give_what_python_gives(engines: dict[str, Any], kind: str, drawn: list[tuple[Any, ...]]) -> None:
    assert_exact(engines[kind], kind, drawn)


def test_a_range_that_spans_the_integers_counts_from_its_start(engines: dict[str, Any]) -> None:
    """The number of rounds does not fit 64 bits; only the first few are run."""

    @tg.table(key="id")
    class Counter:
        id: int
        total: int = 0

    @tg.transaction
    def count(counter: Counter, start: int, stop: int, step: int) -> int:
        rounds = 0
        for number in range(start, stop, step):
            rounds += 1
            counter.total = number
            if rounds == 3:
                break
        return rounds

    low, high = -(2**63), 2**63 - 1
    cases = [
        (low, high, 1),
        (high, low, -1),
        (low, high, high),
        (low, high, low),
        (high - 1, high, 5),
        (0, high, high),
        (5, 5, 1),
    ]
    engine = tg.Engine([count])
    starts, stops, steps = (list(column) for column in zip(*cases, strict=True))
    events = {"counter": list(range(len(cases))), "start": starts, "stop": stops, "step": steps}
    got = engine.run(pa.table(events))["result"].to_pylist()
    assert got == [min(3, sum(1 for _ in zip(range(3), range(*case), strict=False))) for case in cases]
