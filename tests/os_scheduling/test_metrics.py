from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.os_scheduling.metrics import MetricMissing, Metrics

from .engines import seen


def test_what_an_engine_publishes_is_taken_as_it_is() -> None:
    assert Metrics((seen("a", cost=5.0, busy_seconds=1.0, processed=1.0),)).value("cost") == {"a": 5.0}


def test_rates_costs_and_selectivities_are_of_the_last_period() -> None:
    before = (seen("a", processed=100, emitted=100, busy_seconds=1.0, cpu_seconds=4.0),)
    now = (seen("a", processed=150, emitted=110, busy_seconds=2.0, cpu_seconds=5.0),)
    metrics = Metrics(now, before, elapsed=2.0)
    assert metrics.value("rate") == {"a": 25.0}
    assert metrics.value("cost") == {"a": 0.02}
    assert metrics.value("selectivity") == {"a": 0.2}
    assert metrics.value("cpu_usage") == {"a": 0.5}


def test_an_operator_that_did_nothing_in_the_last_period_keeps_its_cost_of_all_time() -> None:
    same = (seen("a", processed=100, emitted=50, busy_seconds=1.0),)
    metrics = Metrics(same, same, elapsed=1.0)
    assert metrics.value("cost") == {"a": 0.01} and metrics.value("selectivity") == {"a": 0.5}
    assert metrics.value("rate") == {"a": 0.0}


def test_processor_time_stands_in_for_the_time_that_an_engine_does_not_publish() -> None:
    assert Metrics((seen("a", processed=10, cpu_seconds=1.0),)).value("cost") == {"a": 0.1}


def test_a_counter_that_began_again_is_not_negative() -> None:
    assert Metrics((seen("a", processed=5),), (seen("a", processed=100),), 1.0).value("rate") == {"a": 5.0}


def test_what_is_missing_is_named_down_to_what_the_engine_would_have_to_publish() -> None:
    with pytest.raises(MetricMissing, match="`busy_seconds` or `processed`"):
        Metrics((seen("a", cpu_seconds=1.0),)).value("highest_rate")
    with pytest.raises(MetricMissing, match="`colour`"):
        Metrics((seen("a"),)).value("colour")


def test_an_engine_without_operators_has_every_metric() -> None:
    assert Metrics(()).value("highest_rate") == {}


def test_operators_without_a_value_are_left_out() -> None:
    assert Metrics((seen("a", queue_size=1), seen("b"))).value("queue_size") == {"a": 1}


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.1, 5), st.sets(st.integers(0, 7))), min_size=1, max_size=8))
def test_the_highest_rate_is_that_of_the_best_of_all_paths(drawn: list[tuple[float, float, set[int]]]) -> None:
    names = [f"o{index}" for index in range(len(drawn))]
    operators = tuple(
        seen(names[index], tuple(names[each] for each in below if index < each < len(drawn)), cost=c, selectivity=s)
        for index, (c, s, below) in enumerate(drawn)
    )
    by_name = {operator.name: operator for operator in operators}

    def paths(name: str) -> list[list[str]]:
        behind = [path for each in by_name[name].downstream for path in paths(each)]
        return [[name, *path] for path in behind] or [[name]]

    def rate(path: list[str]) -> float:
        costs = [by_name[each].metrics["cost"] for each in path]
        entering = list(
            itertools.accumulate((by_name[each].metrics["selectivity"] for each in path), lambda x, y: x * y)
        )
        return entering[-1] / sum(c * share for c, share in zip(costs, [1.0, *entering], strict=False))

    found = Metrics(operators).value("highest_rate")
    assert found == {name: pytest.approx(max(map(rate, paths(name)))) for name in names}


def test_an_edge_back_does_not_hang() -> None:
    loop = (seen("a", ("b",), cost=1.0, selectivity=1.0), seen("b", ("a",), cost=1.0, selectivity=1.0))
    assert Metrics(loop).value("highest_rate").keys() == {"a", "b"}
