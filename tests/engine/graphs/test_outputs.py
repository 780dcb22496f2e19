"""Tuples of output streams wait until they are taken, through a checkpoint too."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore
from tidegate.foundation.errors import InputError
from tidegate.foundation.jit import uncompiled


@tg.table(key=("shelf", "name"))
class Item:
    shelf: int
    name: str
    sold: int = 0


sales = tg.stream("sales", item=Item, price=float)
slips = tg.stream("slips", item=Item, price=float, cheap=bool)


@tg.transaction(on=sales, emits=[slips])
def sell(item: Item, price: float) -> None:
    item.sold += 1
    tg.emit(slips, item=item, price=price, cheap=price < 5.0)


@tg.transaction
def clear(item: Item) -> None:
    item.sold = 0


shop = tg.dataflow([sell])
TEA, INK = {"shelf": 1, "name": "tea"}, {"shelf": 2, "name": "ink"}
EVENTS = pa.table(
    {
        "transaction": ["sales", "sales", "sales"],
        "item": pa.array([TEA, INK, TEA], pa.struct([("shelf", pa.int64()), ("name", pa.string())])),
        "price": [4.0, float("inf"), -0.0],
    }
)
SLIPS = [
    {"item": TEA, "price": 4.0, "cheap": True, "batch": 1},
    {"item": INK, "price": float("inf"), "cheap": False, "batch": 2},
    {"item": TEA, "price": -0.0, "cheap": True, "batch": 3},
]


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with uncompiled():
        yield


def shop_core() -> EngineCore:
    return EngineCore(build_program([shop, clear]))


def test_outputs_wait_through_a_checkpoint_and_are_taken_some_at_a_time() -> None:
    core = shop_core()
    core.run(EVENTS)
    waiting = core.outputs_waiting()
    assert waiting["slips"].to_pylist() == SLIPS
    other = shop_core()
    other.restore_outputs(waiting)
    assert other.take("slips", 2).equals(waiting["slips"].slice(0, 2))
    assert other.outputs_waiting()["slips"].equals(waiting["slips"].slice(2))
    other.run(EVENTS.slice(0, 1))
    assert other.take("slips").to_pylist() == [SLIPS[2], SLIPS[0]]
    assert other.take("slips", 5).num_rows == 0
    assert core.run(EVENTS.slice(0, 0), collect=True).outputs["slips"].equals(waiting["slips"])
    assert core.outputs_waiting()["slips"].num_rows == 0


def test_many_outputs_come_back_and_replace_what_waits() -> None:
    core, other = shop_core(), shop_core()
    for _ in range(50):
        core.run(EVENTS)
    other.run(EVENTS)
    other.restore_outputs(core.outputs_waiting())
    assert other.outputs_waiting()["slips"].equals(core.outputs_waiting()["slips"])
    other.restore_outputs({})
    assert other.outputs_waiting()["slips"].num_rows == 0


def test_outputs_of_another_program_are_refused_and_nothing_changes() -> None:
    core = shop_core()
    core.run(EVENTS)
    waiting = core.outputs_waiting()
    with pytest.raises(InputError, match=r"'sales' is no output of the program; outputs are: slips"):
        core.restore_outputs({"sales": waiting["slips"]})
    with pytest.raises(InputError, match=r"price double, cheap bool, batch int64; got: .*, price double, batch int64;"):
        core.restore_outputs({"slips": waiting["slips"].drop(["cheap"])})
    assert core.outputs_waiting()["slips"].equals(waiting["slips"])
    with pytest.raises(InputError, match="'sales' is no output"):
        core.take("sales", 1)
    with pytest.raises(InputError, match="no output of the program; outputs are: none"):
        EngineCore(build_program([clear])).restore_outputs(waiting)
