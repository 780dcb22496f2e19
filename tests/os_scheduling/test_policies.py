from __future__ import annotations

from collections.abc import Iterable

from tidegate.os_scheduling import policies
from tidegate.os_scheduling.metrics import Metrics
from tidegate.os_scheduling.observations import Observed
from tidegate.os_scheduling.policies import View

from .engines import seen


def view(*operators: Observed, turn: int = 0, logical: bool = False, others: Iterable[Observed] = ()) -> View:
    engines = {"x": Metrics((*operators, *others))}
    return View(operators, engines, {}, turn, logical=logical)


FUSED = seen("parse+filter", logical=("parse", "filter"), queue_size=7, cost=4, head_age=1)
REPLICAS = tuple(seen(f"join{n}", logical=("join",), queue_size=n, cost=n, head_age=n) for n in (1, 3))


def test_policies_are_their_metrics() -> None:
    looked = view(seen("a", queue_size=3, head_age=0.5, highest_rate=9))
    assert policies.BY_METRIC["queue-size"](looked) == {"a": 3}
    assert policies.BY_METRIC["fcfs"](looked) == {"a": 0.5}
    assert policies.BY_METRIC["highest-rate"](looked) == {"a": 9}


def test_only_the_operators_of_the_view_are_scheduled() -> None:
    assert policies.queue_size(view(seen("a", queue_size=1), others=[seen("b", queue_size=2)])) == {"a": 1}


def test_random_orders_depend_on_seed_turn_and_name_alone() -> None:
    first, again = view(seen("a"), seen("b")), view(seen("b"), seen("a"))
    order = policies.random_order(7)
    assert order(first) == order(again) != policies.random_order(8)(first)
    assert order(first) != order(view(seen("a"), seen("b"), turn=1))


def test_constant_priorities_go_by_the_first_pattern_that_fits() -> None:
    policy = policies.constant({"x/toll*": 3, "x/*": 1})
    assert policy(view(seen("x/toll1"), seen("x/parse"), seen("y/other"))) == {"x/toll1": 3, "x/parse": 1}


def test_a_fused_operator_gets_the_highest_priority_and_each_replica_that_of_its_operator() -> None:
    looked = view(FUSED, *REPLICAS, logical=True)
    assert looked.operators == ["parse", "filter", "join"]
    assert looked.physical({"parse": 1, "filter": 5, "join": 3}) == {"parse+filter": 5, "join1": 3, "join3": 3}
    assert looked.physical({"filter": 5}) == {"parse+filter": 5}


def test_metrics_of_replicas_are_added_averaged_or_the_largest() -> None:
    looked = view(FUSED, *REPLICAS, logical=True)
    assert looked.metric("queue_size") == {"parse": 7, "filter": 7, "join": 4}
    assert looked.metric("cost") == {"parse": 4, "filter": 4, "join": 2}
    assert looked.metric("head_age") == {"parse": 1, "filter": 1, "join": 3}


def test_an_engine_without_the_metric_is_left_alone_and_told() -> None:
    engines = {"x": Metrics((seen("x/a", queue_size=1),)), "y": Metrics((seen("y/b"),))}
    looked = View([*engines["x"].operators.values(), *engines["y"].operators.values()], engines, {})
    assert policies.queue_size(looked) == {"x/a": 1}
    (note,) = looked.notes
    other = View(engines["x"].operators.values(), engines, {})
    assert policies.queue_size(other) == {"x/a": 1} and not other.notes
    assert note.startswith("y: has no metric `queue_size`") and "publish `queue_size`" in note
