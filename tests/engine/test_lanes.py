"""What a lane notes of what it ran."""

from __future__ import annotations

import tidegate as tg
from tidegate.engine.lanes import Lane
from tidegate.foundation.jit import uncompiled
from tidegate.operations.flow import RECORD


@tg.table(key="id")
class Cell:
    id: int
    value: int = 0


pulses = tg.stream("pulses", cell=int)


@tg.transaction(on=pulses)
def pulse(cell: Cell) -> None:
    cell.value += 1


@tg.transaction(on=pulses)
def echo(cell: Cell) -> None:
    cell.value *= 2


graph = tg.dataflow([pulse, echo], nested=[(pulse, echo)])


def test_what_plain_python_committed_as_one_has_one_time() -> None:
    """Else what another stage committed in between would seem to have run inside the group."""
    with uncompiled(), tg.Engine([graph]) as engine:
        assert engine._core.flows is not None
        lane = Lane(engine._core.flows.flows, 2, None)
        lane.control[RECORD] = 1
        lane.log_steps({0: 3, 1: 3}, 1, 0, committed=True)
        lane.log_steps({0: 1, 1: 0}, 2, 0, committed=False)
        first, second, third = lane.steps
        assert first[-1] == second[-1] <= third[-1]
        assert [step[:5] for step in lane.steps] == [(0, 1, 0, 1, 3), (1, 1, 0, 1, 3), (0, 2, 0, 0, 1)]
