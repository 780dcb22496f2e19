"""The benchmark of stages: it verifies what it times."""

from __future__ import annotations

import pytest

from tidegate.benchmarks import stages
from tidegate.benchmarks.harness import Experiment, measure
from tidegate.workloads.chains import load_stages, stages_events

pytestmark = pytest.mark.usefixtures("plainly")  # `make smoke` runs it in machine code


def declared(steps: int = 3) -> Experiment:
    return stages.experiment(steps, events=200, cost_us=0.1, pace=20.0, workers=2, seed=1)


def test_all_ways_come_to_what_plain_python_comes_to() -> None:
    report = measure(declared())
    assert [found.variant for found in report.comparisons] == [stages.ALONE, stages.SIDE_BY_SIDE, stages.ADAPTIVE]


def test_a_run_that_comes_to_something_else_is_refused() -> None:
    variant = declared().variants[0]
    engine, module = variant.prepare()
    variant.run((engine, module))
    engine.run(stages_events(1, 1))
    with pytest.raises(AssertionError, match="a line of 3 steps"):
        variant.verify((engine, module), None)


def test_every_step_is_a_stage() -> None:
    from tidegate.commands.explain import stages_of

    assert stages_of(load_stages(4).graph) == [[f"work_{n}"] for n in range(1, 5)]
