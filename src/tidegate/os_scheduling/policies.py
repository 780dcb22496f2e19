"""Policies: which operator should run first, as plain numbers. Nothing here knows threads or the operating system.

A policy is a function of a `View`, and returns a priority for each operator that it wants to schedule; higher is more
urgent, and only the proportions count. A user's policy is such a function, too:

    def newest_branch_first(view):
        return {name: 10.0 if "fast" in name else 1.0 for name in view.operators}

A policy may look at logical operators, those of the user's query, instead of the physical ones that the engine made
of them by fusing and replicating. Its priorities are then carried over by two rules:

    logical     parse: 1    filter: 5    join: 3
    physical    parse+filter: 5          join (1/2): 3    join (2/2): 3

A fused operator gets the highest priority of what it runs, and each replica that of its operator. The other way,
metrics of replicas are added (sizes, rates), averaged (costs), or the largest is taken (ages).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from tidegate.os_scheduling.metrics import MetricMissing, Metrics, Values
from tidegate.os_scheduling.observations import Observed

_OVER_REPLICAS: Mapping[str, Callable[[list[float]], float]] = {
    "queue_size": sum,
    "processed": sum,
    "emitted": sum,
    "busy_seconds": sum,
    "cpu_seconds": sum,
    "rate": sum,
    "cpu_usage": sum,
    "head_age": max,
}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class View:
    """What a policy may look at: the operators that it schedules, and their metrics.

    Args:
        operators: The physical operators.
        engines: The metrics of each engine.
        node: Metrics of the node.
        turn: How many rounds there were before.
        logical: Whether to show logical operators.
    """

    def __init__(
        self,
        operators: Iterable[Observed],
        engines: Mapping[str, Metrics],
        node: Values,
        turn: int = 0,
        *,
        logical: bool = False,
    ) -> None:
        self.node = node
        self.turn = turn
        self.notes: list[str] = []
        self._physical = {operator.name: operator for operator in operators}
        self._engines = engines
        self._logical = logical

    @property
    def operators(self) -> list[str]:
        """The names of the operators, as `DRIVER/OPERATOR`."""
        if not self._logical:
            return list(self._physical)
        return list(dict.fromkeys(name for each in self._physical.values() for name in each.logical))

    def metric(self, name: str) -> Values:
        """A metric by operator. Operators of engines that do not have it are left out, and a note says so."""
        values: dict[str, float] = {}
        for engine, metrics in self._engines.items():
            if metrics.operators.keys().isdisjoint(self._physical):
                continue
            try:
                values.update(metrics.value(name))
            except MetricMissing as missing:
                self.notes.append(
                    f"{engine}: has no metric `{name}`, so this policy leaves its operators alone; it would have to "
                    f"publish {missing}"
                )
        if not self._logical:
            return {operator: values[operator] for operator in self._physical if operator in values}
        gathered: dict[str, list[float]] = {}
        for operator in self._physical.values():
            for logical in operator.logical if operator.name in values else ():
                gathered.setdefault(logical, []).append(values[operator.name])
        together = _OVER_REPLICAS.get(name, _mean)
        return {logical: together(several) for logical, several in gathered.items()}

    def physical(self, priorities: Mapping[str, float]) -> dict[str, float]:
        """The priorities of a policy by physical operator."""
        if not self._logical:
            return {name: priorities[name] for name in self._physical if name in priorities}
        found = {}
        for name, operator in self._physical.items():
            given = [priorities[logical] for logical in operator.logical if logical in priorities]
            if given:
                found[name] = max(given)
        return found


Policy = Callable[[View], Mapping[str, float]]


def queue_size(view: View) -> Values:
    """The operator with the most waiting records first: keeps queues short, and throughput up."""
    return view.metric("queue_size")


def highest_rate(view: View) -> Values:
    """The operator on the most productive and least expensive path first: lowers the mean latency."""
    return view.metric("highest_rate")


def first_come_first_served(view: View) -> Values:
    """The operator whose next record has been in the system for the longest time first: lowers the highest latency."""
    return view.metric("head_age")


def random_order(seed: int) -> Policy:
    """Any order, a new one each time: what every policy has to beat. The same seed gives the same orders."""
    return lambda view: {name: random.Random(f"{seed}/{view.turn}/{name}").random() for name in view.operators}


def constant(priorities: Mapping[str, float]) -> Policy:
    """Fixed priorities by patterns of names, such as `traffic/toll*`; the first that fits counts."""

    def policy(view: View) -> Values:
        fitting = {
            name: next((value for pattern, value in priorities.items() if fnmatchcase(name, pattern)), None)
            for name in view.operators
        }
        return {name: value for name, value in fitting.items() if value is not None}

    return policy


BY_METRIC: Mapping[str, Policy] = {
    "queue-size": queue_size,
    "highest-rate": highest_rate,
    "fcfs": first_come_first_served,
}
"""Policies without settings, by the names that configurations use."""
