"""Families on interleaved workers, alone and beside a graph: the outcome is the serial one under any schedule."""

from __future__ import annotations

import pytest

from tidegate.engine.adaptation.model import CANDIDATES, Candidate, Choice, Workload
from tidegate.engine.execution import families, runner
from tidegate.engine.execution.executions import Execution, Job
from tidegate.engine.kernels import components, execution
from tidegate.operations.decision import Families

from ...interleaving.batches import play, small_pieces
from ...interleaving.broken import add_in_two_steps, compare_exchange_in_two_steps
from ...interleaving.schedules import check, failing_seed

BESIDE = [candidate for candidate in CANDIDATES if candidate.shared]


def test_any_schedule_gives_the_serial_outcome() -> None:
    with small_pieces():
        check(lambda seed: play(seed, Families()), range(150))
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, Families(), finds_races=True), range(500, 530))


@pytest.mark.soak
def test_thousands_of_schedules() -> None:
    with small_pieces():
        check(lambda seed: play(seed, Families()), range(1000, 7000))
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, Families(), finds_races=True), range(1000, 2500))


def test_a_link_that_overwrites_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_pieces():
        monkeypatch.setattr(components, "compare_exchange", compare_exchange_in_two_steps)
        failing_seed(lambda seed: play(seed, Families()), range(3000))


# --- two strategies at once -------------------------------------------------------------------------------------


def run_apart(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch: the largest family as the candidate says, the others beside it."""

    def run(self: runner.Runner, job: Job) -> Execution:
        self._job, self._nothing_ran = job, job.untouched
        batch, order = job.batch, job.order
        if self.strategy == "serial":
            return self._run_serially(batch, order, 0, "as asked")
        found = families.find(self._builder, self.workers, batch, order, 0)
        choice = Choice(candidate, {}, Workload(len(order), 1.0, 1.0, 0.0, 0.0, self.workers.count))
        return self._run_apart(batch, found, choice)

    monkeypatch.setattr(runner.Runner, "_run_interval", run)


@pytest.mark.parametrize("candidate", BESIDE, ids=str)
def test_families_beside_a_graph_give_the_serial_outcome(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    run_apart(candidate, monkeypatch)
    with small_pieces():
        check(lambda seed: play(seed, Families()), range(100))
    with small_pieces(accesses=True):
        check(lambda seed: play(seed, Families(), finds_races=True), range(500, 510))


@pytest.mark.soak
@pytest.mark.parametrize("candidate", BESIDE, ids=str)
def test_thousands_of_schedules_of_both(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    run_apart(candidate, monkeypatch)
    with small_pieces():
        check(lambda seed: play(seed, Families()), range(1000, 5000))


def test_a_signal_that_is_lost_beside_families_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run_apart(BESIDE[0], monkeypatch)
    with small_pieces():
        monkeypatch.setattr(execution, "fetch_add", add_in_two_steps)
        failing_seed(lambda seed: play(seed, Families()), range(1000))
