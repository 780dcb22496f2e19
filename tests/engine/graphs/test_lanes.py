"""What a lane records of the steps that it ran, and that all lanes work on the same arrays."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine import stages
from tidegate.engine.graphs.lanes import Lane
from tidegate.engine.state.history import History
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
        lane = Lane(engine._core.plan, engine._core.flows.streams, None)
        lane.control[RECORD] = 1
        lane.log_steps([(0, 0, 3), (1, 0, 3)], 1, 0)
        lane.log_steps([(0, 7, 1), (1, 7, 0)], 2, 0)
        first, second, third = lane.steps
        assert first[-1] == second[-1] <= third[-1]
        assert [step[:5] for step in lane.steps] == [(0, 1, 0, 0, 3), (1, 1, 0, 0, 3), (0, 2, 0, 7, 1)]


@tg.table(key="id")
class Gauge:
    id: int
    value: int = 0


readings = tg.stream("readings", gauge=int, ts=int)


@tg.transaction(on=readings, time="ts")
def read(gauge: Gauge, ts: int) -> int:
    gauge.value += ts
    return len(tg.history(gauge, last=1_000))


meter = tg.dataflow([read])


def test_all_lanes_work_on_the_arrays_that_follow_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that start together each ask for arrays as long as the table is by now: if each made its own, what one
    lane notes would be lost with the next batch.
    """
    follow, inside, most = History._follow, [], [0]

    def slow_follow(history: History) -> None:
        inside.append(history)
        time.sleep(0.005)  # long enough for the other lane to come in, if it can
        most[0] = max(most[0], len(inside))
        follow(history)
        inside.pop()

    monkeypatch.setattr(stages, "SIDE_BY_SIDE_EVENTS", 1)
    monkeypatch.setattr(History, "_follow", slow_follow)
    with (
        uncompiled(),
        tg.Engine([graph, meter], strategy="lock", workers=2) as engine,
        tg.Engine([graph, meter], strategy="serial") as serial,
    ):
        for number in range(4):
            gauges = np.arange(40 << number)  # twice as many as before: their table grows
            names = np.where(gauges % 2 == 0, "readings", "pulses")
            batch = pa.table(
                {"transaction": names, "cell": gauges, "gauge": gauges, "ts": np.full_like(gauges, number)}
            )
            assert engine.run(batch) == serial.run(batch)
            assert engine.last_batch is not None and engine.last_batch.strategy == "stages"
    assert most[0] == 1
