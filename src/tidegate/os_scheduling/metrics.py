"""Metrics that an engine does not publish, computed from those that it does.

Each metric says what it needs; together they are a graph, and a policy asks for its root only:

    highest_rate ── cost ─────────┬── busy_seconds   or   cpu_seconds (of the node)
          │                       └── processed
          └──────── selectivity ──┬── emitted
                                  └── processed

A metric that the engine publishes is taken as it is, and the search ends there. Otherwise its definitions are tried
in order, and the first whose needs can all be met computes it. Values are kept for the round, per engine.

Counters (`processed`, `emitted`, `busy_seconds`, `cpu_seconds`) grow for ever: what is computed from them is over the
time since the previous round, and over all time in the first one. Where an engine lacks a value for one operator,
that operator is left out of the metric and of what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidegate.os_scheduling.observations import Observed

PRIMITIVES: Mapping[str, str] = {
    "queue_size": "records that wait at the operator's input",
    "processed": "records that it has taken, since it began",
    "emitted": "records that it has put out, since it began",
    "busy_seconds": "seconds that it has worked on records, since it began",
    "cpu_seconds": "processor seconds of its threads, since they began; read from /proc for every engine",
    "head_age": "seconds since the record at the head of its queue entered the system",
}
"""What a driver may publish. It may publish any metric below directly, too."""

Values = Mapping[str, float]


class MetricMissing(LookupError):
    """An engine publishes neither a metric nor what it is computed from."""


class Metrics:
    """All metrics of one engine in one round.

    Args:
        operators: What was seen of the engine now.
        before: What was seen of it in the round before; empty in the first.
        elapsed: The seconds between the two.
    """

    def __init__(self, operators: tuple[Observed, ...], before: tuple[Observed, ...] = (), elapsed: float = 0) -> None:
        self.operators = {operator.name: operator for operator in operators}
        self.elapsed = elapsed
        self._before = {operator.name: operator for operator in before}
        self._kept: dict[str, Values] = {}

    def value(self, metric: str) -> Values:
        """A metric by operator. Raises MetricMissing with what the engine would have to publish."""
        if metric not in self._kept:
            self._kept[metric] = self._find(metric)
        return self._kept[metric]

    def _find(self, metric: str) -> Values:
        offered = {
            name: each.metrics[metric] for name, each in self.operators.items() if each.metrics.get(metric) is not None
        }
        if offered or not self.operators:
            return offered
        missing = []
        for definition in DEFINITIONS.get(metric, ()):
            try:
                return definition.compute(self, *map(self.value, definition.needs))
            except MetricMissing as error:
                missing.append(str(error))
        raise MetricMissing(" or ".join(missing) or f"`{metric}`")

    def growth(self, counter: str, now: Values) -> Values:
        """How much a counter grew since the previous round; its value where the operator is new or began again."""
        grown = {}
        for name, value in now.items():
            before = self._before.get(name)
            past = 0.0 if before is None else before.metrics.get(counter, 0.0)
            same = before is not None and before.threads == self.operators[name].threads
            grown[name] = value - past if same and past <= value else value
        return grown


@dataclass(frozen=True, slots=True)
class Definition:
    """One way to compute a metric: from which others, and how."""

    needs: tuple[str, ...]
    compute: Callable[..., Values]


def _quotient(above: str, below: str, empty: float | None = None) -> Definition:
    """One counter's growth over another's; where the second did not grow, that over all time, or `empty`."""

    def compute(metrics: Metrics, upper: Values, lower: Values) -> Values:
        upper_grown, lower_grown = metrics.growth(above, upper), metrics.growth(below, lower)
        values = {}
        for name in upper.keys() & lower.keys():
            if lower_grown[name] > 0:
                values[name] = upper_grown[name] / lower_grown[name]
            elif lower[name] > 0:
                values[name] = upper[name] / lower[name]
            elif empty is not None:
                values[name] = empty
        return values

    return Definition((above, below), compute)


def _per_second(counter: str) -> Definition:
    def compute(metrics: Metrics, now: Values) -> Values:
        if metrics.elapsed <= 0:  # nothing to compare with
            return dict.fromkeys(now, 0.0)
        return {name: grown / metrics.elapsed for name, grown in metrics.growth(counter, now).items()}

    return Definition((counter,), compute)


def _highest_rate(metrics: Metrics, cost: Values, selectivity: Values) -> Values:
    """Outputs of the query per second of work, along the best path from each operator to a sink.

    A path o, p, q has the selectivity S = s_o s_p s_q and, for each record that enters it, the cost
    C = c_o + s_o (c_p + s_p c_q); its rate is S / C. There may be very many paths, but one that has both a lower S and
    a higher C than another stays behind whatever comes in front of it: only the others are kept.
    """
    paths: dict[str, list[tuple[float, float]]] = {}

    def of(name: str, above: frozenset[str]) -> list[tuple[float, float]]:
        if name not in paths:
            behind = [
                path
                for each in metrics.operators[name].downstream
                if each in cost and each in selectivity and each not in above  # an edge back is not followed
                for path in of(each, above | {name})
            ]
            own = [(selectivity[name] * s, cost[name] + selectivity[name] * c) for s, c in behind or [(1.0, 0.0)]]
            paths[name] = _undominated(own)
        return paths[name]

    names = [name for name in metrics.operators if name in cost and name in selectivity]
    return {name: max(s / max(c, 1e-9) for s, c in of(name, frozenset({name}))) for name in names}


def _undominated(paths: list[tuple[float, float]]) -> list[tuple[float, float]]:
    kept: list[tuple[float, float]] = []
    for path in sorted(set(paths), key=lambda path: (-path[0], path[1])):
        if not kept or path[1] < kept[-1][1]:
            kept.append(path)
    return kept


DEFINITIONS: Mapping[str, tuple[Definition, ...]] = {
    "rate": (_per_second("processed"),),
    "cpu_usage": (_per_second("cpu_seconds"),),
    "selectivity": (_quotient("emitted", "processed", empty=1.0),),
    "cost": (_quotient("busy_seconds", "processed"), _quotient("cpu_seconds", "processed")),
    "highest_rate": (Definition(("cost", "selectivity"), _highest_rate),),
}
