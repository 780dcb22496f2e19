"""The model: what it chooses for batches that leave no doubt, that it does not flap, and what it learns."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from tidegate.engine.adaptation.model import (
    CANDIDATES,
    FAMILIES,
    FORGETTING,
    HYSTERESIS,
    LOG_ENTRIES,
    MARGIN,
    REMEMBERED,
    SERIAL,
    TOLERANCE,
    Candidate,
    Model,
    Workload,
    predict,
)

COSTLY = Workload(transactions=10_000, cost_ns=20_000.0, operations=2.0, near=0.0, hot=0.0, workers=4)


def named(name: str, split: bool = False) -> Candidate:
    return next(c for c in CANDIDATES if str(c.strategy) == name and c.split == split)


def chosen(workload: Workload, allow_split: bool = True) -> Candidate:
    return Model().choose(workload, allow_split).candidate


class TestPredictions:
    def test_serial_takes_what_the_functions_take(self) -> None:
        assert predict(SERIAL, COSTLY) == pytest.approx(10_000 * 20e-6)

    @pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
    def test_more_work_never_takes_less(self, candidate: Candidate) -> None:
        base = predict(candidate, COSTLY)
        assert base > 0
        for more in (
            replace(COSTLY, transactions=20_000),
            replace(COSTLY, cost_ns=30_000.0),
            replace(COSTLY, near=0.5),
            replace(COSTLY, hot=0.9),
        ):
            assert predict(candidate, more) >= base

    @pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
    def test_more_workers_never_take_longer_where_nothing_conflicts(self, candidate: Candidate) -> None:
        times = [predict(candidate, replace(COSTLY, workers=workers)) for workers in (1, 2, 4, 8, 64)]
        assert times == sorted(times, reverse=True)

    def test_nobody_is_faster_than_the_chain_of_the_hottest_row(self) -> None:
        everyone = replace(COSTLY, hot=1.0, workers=64)
        for candidate in CANDIDATES:
            operations = everyone.operations if candidate.split else 1.0
            assert predict(candidate, everyone) >= predict(SERIAL, everyone) / operations


class TestChoices:
    @pytest.mark.parametrize("workers", [1, 2, 4, 16])
    def test_cheap_functions_run_serially(self, workers: int) -> None:
        assert chosen(replace(COSTLY, cost_ns=60.0, workers=workers)) is SERIAL

    @pytest.mark.parametrize("workers", [2, 4, 16])
    def test_costly_functions_run_on_all_workers(self, workers: int) -> None:
        assert chosen(replace(COSTLY, workers=workers)) is not SERIAL

    def test_few_costly_functions_are_not_worth_the_start(self) -> None:
        assert chosen(replace(COSTLY, transactions=10)) is SERIAL

    def test_one_worker_runs_serially(self) -> None:
        assert chosen(replace(COSTLY, workers=1)) is SERIAL

    def test_where_transactions_conflict_nobody_waits_in_line(self) -> None:
        found = chosen(replace(COSTLY, near=0.5, hot=0.05))
        assert found is not SERIAL and found.overheads.waiting == 0.0

    def test_where_transactions_do_not_conflict_the_smallest_overhead_wins(self) -> None:
        found = chosen(COSTLY, allow_split=False)
        others = [c for c in CANDIDATES if c not in (SERIAL, FAMILIES) and not c.split]
        assert found is min(others, key=lambda c: c.overheads.transaction)

    def test_families_run_apart_if_none_keeps_the_others_waiting(self) -> None:
        assert chosen(replace(COSTLY, largest=0.25)) is FAMILIES
        assert chosen(replace(COSTLY, near=0.5, largest=0.25)) is FAMILIES  # conflicts within a family are no matter
        assert chosen(replace(COSTLY, largest=0.9)) is not FAMILIES

    def test_one_hot_row_leaves_serial_or_a_split(self) -> None:
        hot = replace(COSTLY, near=1.0, hot=1.0)
        assert chosen(hot, allow_split=False) is SERIAL
        assert chosen(replace(hot, operations=4.0)).split

    def test_transactions_that_cannot_be_split_are_not(self) -> None:
        choice = Model().choose(replace(COSTLY, hot=0.6, operations=4.0), allow_split=False)
        assert not choice.candidate.split and not any("split" in name for name in choice.predicted)

    def test_the_reason_has_the_numbers(self) -> None:
        why = Model().choose(replace(COSTLY, near=0.125, hot=0.25), True).why
        for part in (
            "10,000 transactions of 20.00 us",
            "2.0 operations",
            "0.125",
            "0.250",
            "4 workers",
            "serial 200.00 ms",
        ):
            assert part in why


class TestHysteresis:
    def break_even(self) -> Workload:
        """A cost at which the best parallel strategy is as fast as serial."""
        low, high = 1.0, 1e6
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            found = replace(COSTLY, cost_ns=middle)
            fastest = min(predict(c, found) for c in CANDIDATES if c is not SERIAL)
            low, high = (middle, high) if predict(SERIAL, found) < fastest else (low, middle)
        return replace(COSTLY, cost_ns=high)

    def test_a_small_gain_is_no_reason_to_change(self) -> None:
        model, even = Model(), self.break_even()
        assert model.choose(replace(even, cost_ns=even.cost_ns * 0.5), True).candidate is SERIAL
        for factor in (0.99, 1.01, 0.99, 1.01):
            assert model.choose(replace(even, cost_ns=even.cost_ns * factor), True).candidate is SERIAL
        first = model.choose(replace(even, cost_ns=even.cost_ns * 3), True).candidate
        assert first is not SERIAL
        for factor in (1.01, 0.99, 1.01, 0.99):
            assert model.choose(replace(even, cost_ns=even.cost_ns * factor), True).candidate is not SERIAL

    def test_a_gain_beyond_the_hysteresis_is_a_reason_to_change(self) -> None:
        model, even = Model(), self.break_even()
        model.choose(replace(even, cost_ns=even.cost_ns * 0.5), True)
        beyond = 1 + 2 * MARGIN + 6 * HYSTERESIS
        assert model.choose(replace(even, cost_ns=even.cost_ns * beyond), True).candidate is not SERIAL

    def test_splitting_promises_only_what_aborts_spare(self) -> None:
        failing = replace(COSTLY, operations=4.0, aborts=0.5)
        split = next(candidate for candidate in CANDIDATES if candidate.split and not candidate.shared)
        all_run = predict(split, replace(failing, spared=0.0))
        assert all_run == predict(split, replace(failing, aborts=0.0))
        assert predict(split, replace(failing, spared=1.0)) < predict(split, failing) < all_run

    def test_a_strategy_that_is_not_allowed_any_more_is_left(self) -> None:
        model = Model()
        assert model.choose(replace(COSTLY, hot=0.6, operations=4.0), True).candidate.split
        assert not model.choose(replace(COSTLY, hot=0.6, operations=4.0), False).candidate.split


class TestLearning:
    def test_a_batch_that_took_longer_than_predicted_makes_its_strategy_look_slower(self) -> None:
        model = Model()
        choice = model.choose(COSTLY, False)
        name, plain = str(choice.candidate), predict(choice.candidate, COSTLY)
        model.learn(choice, plain * 9, COSTLY.cost_ns)  # the first batch also loads machine code: it does not count
        assert model.correction(choice.candidate) == 1.0
        model.learn(choice, plain * 2, COSTLY.cost_ns)
        assert 1.0 < model.correction(choice.candidate) < 2.0 - TOLERANCE
        for _ in range(REMEMBERED):
            model.learn(choice, plain * 2, COSTLY.cost_ns)
        assert model.correction(choice.candidate) == pytest.approx(2.0 - TOLERANCE)
        assert model.choose(COSTLY, False).predicted[name] == pytest.approx(plain * (2 - TOLERANCE), rel=FORGETTING)

    @pytest.mark.parametrize("factor", [1 - TOLERANCE / 2, 1 + TOLERANCE / 2])
    def test_what_is_within_the_noise_corrects_nothing(self, factor: float) -> None:
        model = Model()
        choice = model.choose(COSTLY, False)
        for _ in range(2 * REMEMBERED):
            model.learn(choice, predict(choice.candidate, COSTLY) * factor, COSTLY.cost_ns)
        assert model.correction(choice.candidate) == 1.0

    def test_one_slow_batch_among_others_changes_nothing(self) -> None:
        model = Model()
        choice = model.choose(COSTLY, False)
        plain = predict(choice.candidate, COSTLY)
        for factor in (1.0, 1.0, 1.0, 4.0, 1.0):
            model.learn(choice, plain * factor, COSTLY.cost_ns)
            assert model.correction(choice.candidate) == pytest.approx(1.0)

    def test_what_a_strategy_took_is_forgotten_while_others_run(self) -> None:
        model = Model()
        choice = model.choose(COSTLY, False)
        for _ in range(REMEMBERED + 1):
            model.learn(choice, predict(choice.candidate, COSTLY) * 2, COSTLY.cost_ns)
        later = deepcopy(model)
        corrections = []
        for _ in range(100):
            corrections.append(model.correction(choice.candidate))
            model.choose(COSTLY, False)
        assert corrections[0] == pytest.approx(2.0 - TOLERANCE) and corrections == sorted(corrections, reverse=True)
        assert corrections[-1] < 1.2
        later.choose(COSTLY, False, batches=100)  # as many without a choice between them
        assert later.correction(choice.candidate) == pytest.approx(model.correction(choice.candidate))

    def test_a_wrong_guess_of_the_cost_is_no_strategys_fault(self) -> None:
        """The functions took twice what the probe said, and the batch just as long as that makes it."""
        model = Model()
        choice = model.choose(COSTLY, False)
        really = replace(COSTLY, cost_ns=COSTLY.cost_ns * 2)
        for _ in range(10):
            model.learn(choice, predict(choice.candidate, really), really.cost_ns)
        assert model.correction(choice.candidate) == pytest.approx(1.0)

    @pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e3, 1e9])
    def test_corrections_are_bounded(self, seconds: float) -> None:
        model = Model()
        choice = model.choose(COSTLY, True)
        for _ in range(200):
            model.learn(choice, seconds, COSTLY.cost_ns)
        assert 0.2 <= model.correction(choice.candidate) <= 4.0

    def test_what_disappoints_is_left(self) -> None:
        """The strategy takes four times what was predicted, every time: another is chosen soon."""
        model = Model()
        first = model.choose(COSTLY, False)
        for _ in range(20):
            choice = model.choose(COSTLY, False)
            if choice.candidate is not first.candidate:
                return
            model.learn(choice, predict(choice.candidate, COSTLY) * 4, COSTLY.cost_ns)
        pytest.fail("twenty disappointing batches changed nothing")

    def test_serial_is_the_measure_and_is_not_corrected(self) -> None:
        model = Model()
        choice = model.choose(replace(COSTLY, workers=1), False)
        assert choice.candidate is SERIAL
        model.learn(choice, 1e9, COSTLY.cost_ns)
        assert model.ratios == {}

    def test_an_empty_batch_teaches_nothing(self) -> None:
        model = Model()
        choice = model.choose(replace(COSTLY, transactions=0), False)
        model.learn(choice, 5.0, COSTLY.cost_ns)
        assert model.ratios == {}


def test_the_log_is_bounded() -> None:
    model = Model()
    for _ in range(LOG_ENTRIES + 10):
        model.choose(COSTLY, True)
    assert len(model.log) == LOG_ENTRIES and model.log[-1].startswith(model.last)
