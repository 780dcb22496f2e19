from __future__ import annotations

import os

from tidegate.os_scheduling.drivers import Operator
from tidegate.os_scheduling.observations import observe

from .engines import Published, idle


def test_operators_are_named_after_their_driver_and_keep_the_threads_that_are_there() -> None:
    with idle(2) as threads:
        ended = threads[1].tid
        threads.end(1)
        both = Operator("a", os.getpid(), (threads[0].tid, ended), downstream=("b",), metrics={"queue_size": 3})
        gone = Operator("b", os.getpid(), (ended,))
        seen = observe({"x": Published([both, gone])})
        (operator,) = seen.operators
        assert (operator.name, operator.query, operator.threads) == ("x/a", "x", (threads[0],))
        assert operator.downstream == ("x/b",) and operator.logical == ("x/a",)
        assert operator.metrics["queue_size"] == 3 and operator.metrics["cpu_seconds"] >= 0


def test_an_engine_that_fails_is_a_note_and_does_not_hide_the_others() -> None:
    with idle(1) as threads:
        seen = observe({"dead": Published(ConnectionRefusedError("no")), "alive": Published(threads.operators(1))})
        assert list(seen.engines) == ["alive"]
        assert seen.notes == ("dead: cannot be seen: ConnectionRefusedError: no",)


def test_two_operators_of_one_name_are_refused() -> None:
    with idle(1) as threads:
        seen = observe({"x": Published(threads.operators(1) * 2)})
        assert not seen.operators and "unique" in seen.notes[0]
