"""What a run returns: all that its caller may want to know, without asking the engine back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore
from tidegate.engine.graphs.steps import unpack_steps
from tidegate.foundation.jit import uncompiled


@tg.table(key="id")
class Till:
    id: int
    total: int = 0


sales = tg.stream("sales", till=Till, price=int)
slips = tg.stream("slips", price=int)


@tg.transaction(on=sales, emits=[slips])
def sell(till: Till, price: int) -> int:
    till.total += price
    tg.emit(slips, price=price)
    return till.total


SHOP = [tg.dataflow([sell], atomic_batch=2)]


def events(*prices: int) -> pa.Table:
    return pa.table({"transaction": ["sales"] * len(prices), "till": [1] * len(prices), "price": prices})


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with uncompiled():
        yield


def test_ranks_are_the_places_of_decided_events_in_the_order_of_the_run() -> None:
    core = EngineCore(build_program(SHOP))
    first = core.run(events(1, 2, 3, 4, 5), order=np.array([4, 3, 2, 1, 0]))
    assert first.outcomes["price"].to_pylist() == [2, 3, 4, 5]
    assert first.undecided.tolist() == [0]
    assert first.ranks.tolist() == [3, 2, 1, 0]
    second = core.run(events(6), order=np.array([0]))
    assert second.outcomes["price"].to_pylist() == [1, 6] and second.ranks.tolist() == [0, 1]
    assert first.ranks.tolist() == [3, 2, 1, 0], "a later run must not change the result of an earlier one"


def test_changes_and_outputs_accumulate_until_a_run_or_a_checkpoint_collects_them() -> None:
    core = EngineCore(build_program(SHOP), track_changes=True)
    kept = core.run(events(1, 2))
    assert kept.changes == {} and kept.outputs == {}
    assert core.outputs_waiting()["slips"]["price"].to_pylist() == [1, 2]
    taken = core.run(events(4, 8), collect=True)
    assert taken.changes["Till"].to_pylist() == [{"id": 1, "total": 15, "exists": True}]
    assert taken.outputs["slips"]["price"].to_pylist() == [1, 2, 4, 8]
    assert core.take_changes() == {} and core.outputs_waiting()["slips"].num_rows == 0


def test_only_a_traced_run_has_steps() -> None:
    core = EngineCore(build_program(SHOP))
    assert core.run(events(1, 2)).steps == b""
    assert [step.events for step in unpack_steps(core.run(events(3, 4), trace=True).steps)] == [(0, 1)]


def test_the_report_of_a_result_is_that_of_its_own_run() -> None:
    core = EngineCore(build_program(SHOP))
    first, second = core.run(events(1, 2)), core.run(events(3, 4, 5, 6))
    assert (first.report.events, second.report.events) == (2, 4)
    assert core.last_batch is second.report


def test_written_bytes_count_each_row_once_where_changes_are_not_tracked() -> None:
    core = EngineCore(build_program(SHOP), track_changes=True)
    core.tracking = False
    one, same = core.run(events(1, 2)).written_bytes, core.run(events(3, 4, 5, 6)).written_bytes
    assert 0 < one == same
    assert core.take_changes() == {}
