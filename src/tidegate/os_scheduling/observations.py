"""One look at all engines: operators with the threads that are really there, and what the node itself knows.

Everything that is read from outside in a round is read here, so that what follows is a function of it. Names become
unique over all drivers: `DRIVER/OPERATOR`.

An engine that does not answer, or answers nonsense, is a note and no operators. Engines are asked at the same time,
so a stalled one holds up the round by its timeout at most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

from tidegate.os_scheduling import procfs
from tidegate.os_scheduling.drivers import Driver
from tidegate.os_scheduling.procfs import Thread


@dataclass(frozen=True, slots=True)
class Observed:
    """An operator whose threads were found on this node."""

    name: str
    query: str
    threads: tuple[Thread, ...]
    downstream: tuple[str, ...]
    logical: tuple[str, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen in one round.

    Args:
        at: When, by a monotonic clock, in seconds.
        engines: The operators of each driver.
        node: Metrics of the node.
        autogroups: The session, to the kernel's scheduler, of each process; empty where it does not look at them.
        notes: What could not be seen, and why.
    """

    at: float
    engines: Mapping[str, tuple[Observed, ...]]
    node: Mapping[str, float]
    autogroups: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    @property
    def operators(self) -> list[Observed]:
        """The operators of all engines."""
        return [operator for operators in self.engines.values() for operator in operators]


def observe(drivers: Mapping[str, Driver]) -> Observation:
    """Ask all drivers at once, and the node."""
    engines: dict[str, tuple[Observed, ...]] = {}
    notes: list[str] = []
    with ThreadPoolExecutor(max_workers=max(1, len(drivers)), thread_name_prefix="tidegate-driver") as pool:
        answers = {name: pool.submit(_ask, name, driver) for name, driver in drivers.items()}
        for name, answer in answers.items():
            try:
                engines[name] = answer.result()
            except Exception as error:  # a driver is anybody's code, and an engine may be in any state
                notes.append(f"{name}: cannot be seen: {type(error).__name__}: {error}")
    pressure = procfs.cpu_pressure()
    node = {} if pressure is None else {"cpu_pressure": pressure}
    pids = {thread.pid for operators in engines.values() for each in operators for thread in each.threads}
    return Observation(time.monotonic(), engines, node, procfs.autogroups(pids), tuple(notes))


def _ask(driver_name: str, driver: Driver) -> tuple[Observed, ...]:
    found: dict[str, Observed] = {}
    for operator in driver.operators():
        name = f"{driver_name}/{operator.name}"
        if name in found:
            raise ValueError(f"two operators are called {operator.name!r}; names must be unique in a driver")
        threads = tuple(filter(None, (procfs.find_thread(operator.pid, tid) for tid in operator.threads)))
        if threads:  # one whose threads have all ended is not scheduled
            found[name] = Observed(
                name=name,
                query=operator.query or driver_name,
                threads=threads,
                downstream=tuple(f"{driver_name}/{each}" for each in operator.downstream),
                logical=tuple(f"{driver_name}/{each}" for each in operator.logical or (operator.name,)),
                metrics={"cpu_seconds": sum(map(procfs.cpu_seconds, threads)), **operator.metrics},
            )
    return tuple(found.values())
