"""Names that a user may choose freely never meet the names that the compiler makes.

Generated code has names for columns, rows, lists, temporaries, reasons and functions. A table, field,
parameter, variable, helper or transaction of the same name must change nothing.
"""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.foundation.jit import uncompiled

from ..truth.oracle import Oracle


def run_both(name: str, source: str, events: list[dict[str, Any]]) -> None:
    """The program through the engine and through the oracle: outcomes and tables must agree."""
    oracle = Oracle(source)
    wanted = [(outcome.committed, outcome.reason, outcome.result) for outcome in oracle.run(events)]
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, filename, "exec"), module.__dict__)
    with uncompiled():  # the generated text is the same, and names mean the same in it
        engine = tg.Engine([module.__dict__[transaction] for transaction in oracle.transactions])
        got = engine.run(pa.Table.from_pylist(events))
    columns = [got[column].to_pylist() for column in ("committed", "reason", "result")]
    assert list(zip(*columns, strict=True)) == wanted
    for table in oracle.tables:
        assert engine.scan(module.__dict__[table]).to_pylist() == oracle.scan(table)


def test_a_table_and_a_field_do_not_run_into_each_other() -> None:
    """Table `A` with field `b_c`, and table `A_b` with field `c`."""
    source = """
import tidegate as tg

@tg.table(key="id")
class A:
    id: int
    b_c: int = 1
    b_exists: bool = False

@tg.table(key="id")
class A_b:
    id: int
    c: int = 2
    exists_: bool = True

@tg.table(key="b_id")
class A_b_c:
    b_id: int
    n: int = 3

@tg.transaction
def move(a: A, a_b: A_b, a_b_c: A_b_c, n: int) -> int:
    a.b_c += n
    a_b.c -= n
    a_b_c.n *= n
    a.b_exists = a_b.exists_
    return a.b_c * 10000 + a_b.c * 100 + a_b_c.n
"""
    run_both("names_of_tables", source, [{"a": 1, "a_b": n, "a_b_c": 1, "n": n + 2} for n in range(4)])


TRANSACTIONS = [
    "run", "add", "subtract", "inline", "infinity", "literals", "order", "kinds", "status", "rows", "values",
    "tables", "results", "scratch", "valid", "i", "j", "k", "s", "start", "stop", "floor", "compare", "print",
    "t", "t_reasons", "t_literals", "t__body", "t__helper", "t__helper_0_Cell_cell", "x_t", "body", "c_Cell_n",
    "table__Cell__n", "transaction__t", "body_of_transaction__t", "Cell__n", "n1_t", "ESCAPE", "arrays", "exists__Cell",
]  # fmt: skip


def test_transactions_of_any_name_live_in_one_program() -> None:
    source = """
import tidegate as tg

@tg.table(key="id")
class Cell:
    id: int
    n: int = 1
    text: str = ""

def helper(cell, text):
    cell.text = text
    tg.require(cell.n < 90, "large")
    return 1
"""
    for number, name in enumerate(TRANSACTIONS):
        source += f'''
@tg.transaction
def {name}(cell: Cell, cells: list[Cell]) -> int:
    cell.n += helper(cell, "{name}") + {number % 3}
    for other in cells:
        other.n += 1
    tg.require(cell.text == "{name}", "text of {name}")
    tg.require(cell.n % 7 != {number % 7}, "seven of {name}")
    return cell.n
'''
    events = [{"transaction": name, "cell": n % 3, "cells": [1, 2]} for n, name in enumerate(TRANSACTIONS * 3)]
    run_both("names_of_transactions", source, events)


@pytest.mark.parametrize(
    "name",
    [
        "i", "j", "k", "s", "q", "status", "order", "kinds", "valid", "result_0", "literals", "rows", "values", "t1",
        "v_x", "tg", "math", "range", "run", "scratch_0", "u1", "row__cell", "list__cells__data", "cells__data",
        "ESCAPE", "exists__Cell", "table__Cell__n", "var__x", "n4_cell", "_cell", "cell_", "arrays",
        "größe", "self", "event", "escape",
    ],
)  # fmt: skip
def test_parameters_and_variables_may_have_any_name(name: str) -> None:
    source = f"""
from tidegate import require, table, transaction

@table(key="id")
class Cell:
    id: int
    n: int = 1

@transaction
def change(cell: Cell, cells: list[Cell], {name}: int) -> int:
    t2 = {name} + 1
    v_t2 = t2 * 2
    for u0 in cells:
        u0.n += v_t2
    {name} -= 1
    require(cell.n < 40, "large")
    cell.n += {name}
    return t2 * {name}
"""
    events = [{"cell": n % 2, "cells": [0, 1][: n % 3], name: n} for n in range(9)]
    run_both("names_of_parameters", source, events)


def test_a_name_hides_a_built_in() -> None:
    source = """
import tidegate as tg

@tg.table(key="id")
class Cell:
    id: int
    max: int = 1
    sum: int = 2

def abs(value):
    return value + 1000

@tg.transaction
def change(cell: Cell, len: int) -> int:
    min = len * 2
    cell.max += min
    cell.sum = abs(cell.max)
    return max(cell.max, len)
"""
    run_both("names_of_built_ins", source, [{"cell": 1, "len": n} for n in range(-2, 3)])
