"""Arrays are found as the plan lists them, and what an owner lacks is told when a program is loaded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.arrays import ArrayBinder, check
from tidegate.engine.core import EngineCore
from tidegate.engine.state.strings import StringPool
from tidegate.engine.state.table import TableState
from tidegate.foundation.jit import uncompiled


@tg.table(key="id")
class Cell:
    id: int
    weight: float = 1.5


@tg.transaction
def weigh(cell: Cell, more: float) -> float:
    cell.weight += more
    return cell.weight


PLAN = build_program([weigh]).plan


def test_names_are_listed_once() -> None:
    names = [spec.name for spec in PLAN.arrays]
    assert len(names) == len(set(names))
    assert {"table__Cell__weight", "exists__Cell", "keys__Cell", "values_0", "valid", "results_0"} <= set(names)


def test_an_owner_that_lacks_an_array_is_found_when_the_program_is_loaded() -> None:
    table = TableState(PLAN.tables[0], StringPool())
    ArrayBinder(PLAN.arrays, {("table", "Cell"): table})
    del table.columns["weight"]
    with pytest.raises(
        AssertionError, match=r"'table__Cell__weight' .*columns\['weight'\] of table 'Cell'; got nothing"
    ):
        ArrayBinder(PLAN.arrays, {("table", "Cell"): table})


@pytest.mark.parametrize(("array", "got"), [(np.zeros(16, np.int64), "int64, width 0"), (np.zeros((16, 2)), "width 2")])
def test_an_array_of_another_kind_is_found_as_well(array: npt.NDArray[np.generic], got: str) -> None:
    table = TableState(PLAN.tables[0], StringPool())
    table.columns["weight"] = array
    with pytest.raises(AssertionError, match=got):
        ArrayBinder(PLAN.arrays, {("table", "Cell"): table})


def test_an_owner_that_is_not_there_is_found_as_well() -> None:
    with pytest.raises(AssertionError, match=r"'exists__Cell' .*exists of table 'Cell'; got nothing"):
        ArrayBinder(PLAN.arrays, {})


def test_a_role_that_an_owner_does_not_know_is_nothing() -> None:
    spec = replace(next(spec for spec in PLAN.arrays if spec.role == "exists"), role="exist")
    with pytest.raises(AssertionError, match="exist of table 'Cell'; got nothing"):
        check(spec, TableState(PLAN.tables[0], StringPool()))


def test_arrays_that_were_replaced_are_found_again() -> None:
    with uncompiled():
        core = EngineCore(build_program([weigh]))
        for keys in (10, 100, 10_000):  # the table grows with each batch
            events = pa.table({"cell": np.arange(keys), "more": np.full(keys, 0.5)})
            core.run(events)
        assert core.rows("Cell")["weight"].to_pylist() == [3.0] * 10 + [2.5] * 90 + [2.0] * 9_900
