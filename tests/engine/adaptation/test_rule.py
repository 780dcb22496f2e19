"""The published rule at both sides of each of its thresholds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.engine.adaptation.rule import GREP_AND_SUM, LEDGER, GraphProperties, Thresholds, decide
from tidegate.operations.decision import Decision

# Few dependencies, no circles, cheap functions, no aborts.
CALM = GraphProperties(
    transactions=10_240, temporal=0, parametric=0, logical=0, skew=0.0, cyclic=False, cost_us=1.0, abort_ratio=0.0
)


def decided(thresholds: Thresholds = LEDGER, **found: Any) -> Decision:
    return decide(replace(CALM, **found), thresholds)


def test_a_calm_batch_goes_by_signals_one_operation_at_a_time_with_eager_aborts() -> None:
    assert decided() == Decision("ns", "operation", "eager")


@pytest.mark.parametrize(("thresholds", "most"), [(LEDGER, 8192), (GREP_AND_SUM, 3000)], ids=["ledger", "grep and sum"])
def test_layers_need_many_dependencies_of_any_kind(thresholds: Thresholds, most: int) -> None:
    for kind in ("temporal", "parametric", "logical"):
        assert decided(thresholds, **{kind: most}).exploration == "ns"
        assert decided(thresholds, **{kind: most + 1}).exploration == "bfs"
    assert decided(thresholds, temporal=most // 2, parametric=most // 4, logical=most // 4 + 1).exploration == "bfs"


@pytest.mark.parametrize(("thresholds", "skew"), [(LEDGER, 0.3), (GREP_AND_SUM, 0.2)], ids=["ledger", "grep and sum"])
def test_layers_need_rows_that_are_written_evenly(thresholds: Thresholds, skew: float) -> None:
    assert decided(thresholds, logical=10_240, skew=skew - 1e-9).exploration == "bfs"
    assert decided(thresholds, logical=10_240, skew=skew).exploration == "ns"


@pytest.mark.parametrize(("thresholds", "few"), [(LEDGER, 2048), (GREP_AND_SUM, 500)], ids=["ledger", "grep and sum"])
def test_groups_need_temporal_dependencies(thresholds: Thresholds, few: int) -> None:
    assert decided(thresholds, temporal=few).unit == "group"
    assert decided(thresholds, temporal=few - 1).unit == "operation"


@pytest.mark.parametrize(("thresholds", "many"), [(LEDGER, 3072), (GREP_AND_SUM, 6500)], ids=["ledger", "grep and sum"])
def test_groups_bear_few_parametric_dependencies(thresholds: Thresholds, many: int) -> None:
    assert decided(thresholds, temporal=9000, parametric=many).unit == "group"
    assert decided(thresholds, temporal=9000, parametric=many + 1).unit == "operation"


def test_groups_bear_no_circles() -> None:
    assert decided(temporal=9000).unit == "group"
    assert decided(temporal=9000, cyclic=True).unit == "operation"


@pytest.mark.parametrize(("thresholds", "many"), [(LEDGER, 0.7), (GREP_AND_SUM, 0.2)], ids=["ledger", "grep and sum"])
def test_lazy_needs_many_aborts_of_cheap_functions(thresholds: Thresholds, many: float) -> None:
    assert decided(thresholds, abort_ratio=many).abort == "lazy"
    assert decided(thresholds, abort_ratio=many - 1e-9).abort == "eager"
    assert decided(thresholds, abort_ratio=1.0, cost_us=39.9).abort == "lazy"
    assert decided(thresholds, abort_ratio=1.0, cost_us=40.0).abort == "eager"


def test_shares_are_of_the_transactions_of_the_batch() -> None:
    assert decided(transactions=100, temporal=80).exploration == "ns"
    assert decided(transactions=100, temporal=81).exploration == "bfs"
    assert decided(transactions=100, temporal=20).unit == "group"
    assert decided(transactions=0) == Decision("ns", "operation", "eager")  # nothing to decide on is no error


def test_the_dimensions_are_decided_each_by_itself() -> None:
    """One property of each: eight batches, eight decisions."""
    found = {
        decided(logical=10_240 * structured, temporal=2048 * group, abort_ratio=1.0 * lazy, skew=0.0, parametric=0)
        for structured in (0, 1)
        for group in (0, 1)
        for lazy in (0, 1)
    }
    assert len(found) == 8
