"""Values of every type in bodies: compiled, uncompiled and interpreted code do what the plain functions do.

One program per type, one transaction for each expression of the type table, random events over its values.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.foundation.jit import uncompiled
from tidegate.testing import assert_same_as_plain

from ..value_types import TYPES, Row, events, write_module


def some_events(of: Row, names: list[str], count: int, random: Random) -> pa.Table:
    """Random events, of each transaction as many as of the others; keys are neither NaN nor -0.0."""
    keys = [value for value in of.values if value == value and repr(value) != "-0.0"][:2]
    optional = (*of.values, None)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        a, b = random.choices(of.values, k=2)
        row = {"k": random.choice(keys), "number": random.randint(1, 2), "a": a, "b": b, "c": random.choice(optional)}
        many = random.choices(optional, k=random.randint(0, 3))
        rows.append({**row, "n": random.randint(-3, 3), "many": many, "transaction": names[number % len(names)]})
    random.shuffle(rows)
    return events(of, rows)


@pytest.mark.parametrize("of", TYPES, ids=lambda of: of.name)
def test_every_expression_is_what_python_computes(of: Row, tmp_path: Path) -> None:
    module, random = write_module(of, tmp_path), Random(of.name)
    names = [transaction.__name__ for transaction in module.ALL]
    batches = [some_events(of, names, 20 * len(names), random) for _ in range(2)]
    with uncompiled():
        assert_same_as_plain(module.ALL, batches, strategies=["serial"], workers=1)


@pytest.mark.parametrize("mode", [nullcontext, uncompiled], ids=["compiled", "uncompiled"])
def test_strategies_give_the_same(mode: Any, tmp_path: Path) -> None:
    of = next(of for of in TYPES if of.name == "decimal_")
    module = write_module(of, tmp_path)
    program = module.ALL[3::8]
    names = [transaction.__name__ for transaction in program]
    with mode():
        batch = some_events(of, names, 200, Random(7))
        strategies = ["serial", "chains", tg.Decision("ns", "operation", "eager")]
        assert_same_as_plain(program, [batch], strategies=strategies)


def test_machine_code_handles_none_in_floats(tmp_path: Path) -> None:
    of = next(of for of in TYPES if of.name == "float_")
    program = write_module(of, tmp_path).ALL[10:]
    names = [transaction.__name__ for transaction in program]
    assert_same_as_plain(program, [some_events(of, names, 200, Random(3))], strategies=["serial"])
