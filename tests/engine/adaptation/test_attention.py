"""How often the adaptive strategy looks: rarely where nothing changes, at once where it may matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.adaptation import attention, probing
from tidegate.engine.adaptation.attention import (
    HABIT_BATCHES,
    NEARLY,
    SPELL_BATCHES,
    SPELL_BATCHES_MAX,
    UNPROBED_BATCHES,
    UNRELATED_BATCHES,
    UNRELATED_BATCHES_MAX,
    Habit,
    KnownCost,
    SerialSpell,
    Unrelated,
)
from tidegate.engine.adaptation.model import CANDIDATES, FAMILIES, SERIAL, Candidate, Choice, Workload, predict
from tidegate.engine.execution import families, runner
from tidegate.workloads.cost import Stone, polish


def never(cost_ns: float) -> bool:
    return False


class TestSerialSpell:
    def batches(self, spell: SerialSpell, cost_ns: float = 100.0) -> int:
        """How many batches of this cost run before the next probe."""
        count = 0
        while spell.goes_on(never) and count < 1000:
            spell.ran(cost_ns)
            count += 1
        return count

    def test_every_further_spell_lasts_longer_up_to_a_limit(self) -> None:
        spell, lengths = SerialSpell(), []
        for _ in range(6):
            spell.begin(100.0)
            lengths.append(self.batches(spell))
        assert lengths[:2] == [SPELL_BATCHES, 2 * SPELL_BATCHES]
        assert lengths[-2:] == [SPELL_BATCHES_MAX, SPELL_BATCHES_MAX]

    def test_after_a_parallel_batch_spells_are_short_again(self) -> None:
        spell = SerialSpell()
        for _ in range(3):
            spell.begin(100.0)
        spell.end()
        assert self.batches(spell) == 0
        spell.begin(100.0)
        assert self.batches(spell) == SPELL_BATCHES

    def test_costlier_functions_end_a_spell(self) -> None:
        spell = SerialSpell()
        spell.begin(100.0)
        spell.ran(200.0)
        assert not spell.goes_on(never)

    def test_cheaper_functions_do_not_end_a_spell(self) -> None:
        spell = SerialSpell()
        spell.begin(100.0)
        spell.ran(50.0)
        assert spell.goes_on(never)

    def test_a_spell_of_clearly_cheap_functions_never_ends(self) -> None:
        spell = SerialSpell()
        spell.begin(100.0)
        self.batches(spell)
        for _ in range(1000):
            assert spell.goes_on(lambda cost_ns: cost_ns < 130.0)
            spell.ran(100.0)
        self.batches(spell)
        assert not spell.goes_on(lambda cost_ns: cost_ns < 110.0)  # with a quarter more it would not be cheap


class TestHabit:
    ALONE = tuple(candidate for candidate in CANDIDATES if candidate not in (SERIAL, FAMILIES) and not candidate.shared)

    def choice(self, candidate: Candidate) -> Choice:
        found = Workload(5_000, 1_000.0, 1.0, 0.0, 0.0, 2)
        return Choice(candidate, {str(other): predict(other, found) for other in CANDIDATES}, found)

    def lasts(self, habit: Habit, cost_ns: float = 1_000.0) -> int:
        count = 0
        while habit.take(5_000) is not None:
            habit.ran(cost_ns)
            count += 1
        return count

    @pytest.mark.parametrize("candidate", ALONE, ids=str)
    def test_a_strategy_chosen_twice_is_repeated_for_a_few_batches(self, candidate: Candidate) -> None:
        habit = Habit()
        assert self.lasts(habit) == 0
        habit.judge(self.choice(candidate), 0.1, 1.0)
        assert self.lasts(habit) == 0
        for _ in range(2):
            habit.judge(self.choice(candidate), 0.1, 1.0)
            assert self.lasts(habit) == HABIT_BATCHES

    @pytest.mark.parametrize("candidate", [c for c in CANDIDATES if c is SERIAL or c is FAMILIES or c.shared], ids=str)
    def test_serial_and_strategies_that_need_families_are_not_repeated(self, candidate: Candidate) -> None:
        habit = Habit()
        for _ in range(3):
            habit.judge(self.choice(candidate), 0.1, 1.0)
            assert self.lasts(habit) == 0

    def test_nothing_is_repeated_where_looking_is_cheap_or_the_choice_changed(self) -> None:
        habit = Habit()
        for _ in range(3):
            habit.judge(self.choice(self.ALONE[0]), 0.01, 1.0)
            assert self.lasts(habit) == 0
        habit.judge(self.choice(self.ALONE[1]), 0.1, 1.0)
        assert self.lasts(habit) == 0

    @pytest.mark.parametrize("cost_ns", [500.0, 2_000.0])
    def test_functions_of_another_cost_end_a_habit(self, cost_ns: float) -> None:
        habit = Habit()
        for _ in range(2):
            habit.judge(self.choice(self.ALONE[0]), 0.1, 1.0)
        assert self.lasts(habit, cost_ns) == 1

    def test_the_choice_is_for_the_batch_at_hand(self) -> None:
        habit = Habit()
        for _ in range(2):
            habit.judge(self.choice(self.ALONE[0]), 0.1, 1.0)
        taken = habit.take(77)
        assert taken is not None and taken.candidate is self.ALONE[0] and taken.workload.transactions == 77
        habit.end()
        assert habit.take(77) is None


class TestKnownCost:
    def test_a_known_cost_is_used_for_some_batches_and_then_measured_again(self) -> None:
        known = KnownCost()
        assert known.take(never) is None
        known.learn(5_000.0)
        assert [known.take(never) for _ in range(UNPROBED_BATCHES)] == [5_000.0] * UNPROBED_BATCHES
        assert known.take(never) is None

    def test_a_known_cost_is_measured_again_where_a_much_lower_one_would_be_cheap(self) -> None:
        known = KnownCost()
        known.take(never)
        known.learn(5_000.0)
        assert known.take(lambda cost_ns: cost_ns < 2_000.0) is None

    def test_a_batch_without_a_measurement_makes_the_cost_unknown(self) -> None:
        known = KnownCost()
        known.take(never)
        known.learn(5_000.0)
        known.learn(0.0)
        assert known.take(never) is None


class TestUnrelated:
    def choice(self, candidate: Candidate, largest: float, hot: float) -> Choice:
        found = Workload(10_000, 20_000.0, 2.0, 0.0, hot, 2, largest=largest)
        return Choice(candidate, {str(other): predict(other, found) for other in CANDIDATES}, found)

    def other(self) -> Candidate:
        return next(candidate for candidate in CANDIDATES if candidate.strategy == "mvlk")

    def test_no_search_while_the_hottest_row_stays_as_hot(self) -> None:
        unrelated = Unrelated()
        assert unrelated.worth_a_search(lambda: 0.2)
        unrelated.judge(self.choice(self.other(), largest=1.0, hot=0.2))
        assert [unrelated.worth_a_search(lambda: 0.2) for _ in range(UNRELATED_BATCHES)] == [False] * UNRELATED_BATCHES
        assert unrelated.worth_a_search(lambda: 0.2)

    def test_each_search_in_vain_makes_the_pause_longer_up_to_a_limit(self) -> None:
        unrelated, lengths = Unrelated(), []
        for candidate in (self.other(), self.other(), self.other(), self.other(), FAMILIES, self.other()):
            unrelated.judge(self.choice(candidate, largest=1.0 if candidate is not FAMILIES else 0.01, hot=0.2))
            lengths.append(sum(1 for _ in iter(lambda: unrelated.worth_a_search(lambda: 0.2), True)))
        assert lengths == [UNRELATED_BATCHES, 16, UNRELATED_BATCHES_MAX, UNRELATED_BATCHES_MAX, 0, UNRELATED_BATCHES]

    def test_no_search_where_no_row_is_hot(self) -> None:
        unrelated = Unrelated()
        unrelated.judge(self.choice(self.other(), largest=1.0, hot=0.0))
        assert not unrelated.worth_a_search(lambda: 0.0)

    def test_a_search_at_once_when_the_hottest_row_has_cooled(self) -> None:
        unrelated = Unrelated()
        unrelated.judge(self.choice(self.other(), largest=1.0, hot=0.2))
        assert not unrelated.worth_a_search(lambda: 0.15)
        assert unrelated.worth_a_search(lambda: 0.05)

    @pytest.mark.parametrize(("candidate", "again"), [(FAMILIES, True), (SERIAL, False)], ids=str)
    def test_a_search_after_families_were_chosen_and_none_after_serial(self, candidate: Candidate, again: bool) -> None:
        unrelated = Unrelated()
        unrelated.judge(self.choice(candidate, largest=0.01, hot=0.2))
        assert unrelated.worth_a_search(lambda: 0.2) is again

    @pytest.mark.parametrize(("factor", "again"), [(NEARLY * 0.99, True), (NEARLY * 1.01, False)])
    def test_a_search_if_families_were_nearly_chosen(self, factor: float, again: bool) -> None:
        unrelated, choice = Unrelated(), self.choice(self.other(), largest=1.0, hot=0.2)
        choice.predicted.update({name: 1e9 for name in choice.predicted if name.startswith(str(FAMILIES))})
        choice.predicted[str(FAMILIES)] = factor * choice.predicted[str(self.other())]
        unrelated.judge(choice)
        assert unrelated.worth_a_search(lambda: 0.2) is again

    def test_a_search_if_only_habit_kept_another_strategy(self) -> None:
        unrelated = Unrelated()
        unrelated.judge(self.choice(self.other(), largest=0.01, hot=0.2))
        assert unrelated.worth_a_search(lambda: 0.2)


class TestOnTheEngine:
    """The numbers of probes and searches, counted inside the engine."""

    @pytest.fixture
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        counts = {"probe": 0, "find": 0}
        probe, find = probing.Prober.probe, families.find

        def counted_probe(*arguments: object) -> object:
            counts["probe"] += 1
            return probe(*arguments)  # type: ignore[arg-type]

        def counted_find(*arguments: object) -> object:
            counts["find"] += 1
            return find(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(probing.Prober, "probe", counted_probe)
        monkeypatch.setattr(families, "find", counted_find)
        monkeypatch.setattr(probing, "PROBE_CALLS", 0)  # however slow the machine, a probe leaves most of the batch
        monkeypatch.setattr(runner, "SURE", 0.0)  # no cost counts as clearly cheap
        monkeypatch.setattr(runner, "processors", lambda: 2)
        return counts

    def run(self, monkeypatch: pytest.MonkeyPatch, candidate: Candidate, rounds: list[int]) -> list[str]:
        def choose(self: object, found: Workload, allow_split: bool, batches: int) -> Choice:
            found = replace(found, largest=0.01)
            return Choice(candidate, {str(other): predict(other, found) for other in CANDIDATES}, found)

        monkeypatch.setattr("tidegate.engine.adaptation.model.Model.choose", choose)
        seen = []
        with tg.Engine([polish], strategy="adaptive", workers=2) as engine:
            for each in rounds:
                engine.run(pa.table({"stone": np.arange(300), "rounds": np.full(300, each)}))
                assert engine.last_batch is not None
                seen.append(engine.last_batch.why)
            assert engine.scan(Stone).num_rows == 300
        return seen

    def test_costly_functions_are_probed_rarely(self, looks: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.run(monkeypatch, FAMILIES, [2_000] * 10)
        assert looks == {"probe": 2, "find": 10}  # the first batch also loads code, and its cost tells nothing

    def test_a_strategy_chosen_twice_is_repeated_without_a_probe(
        self, looks: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attention, "DOUBT", 1e9)
        monkeypatch.setattr(attention, "LOOK_SHARE", 0.0)
        monkeypatch.setattr(attention, "UNPROBED_BATCHES", 0)
        seen = self.run(monkeypatch, TestHabit.ALONE[0], [100] * (2 + HABIT_BATCHES + 1 + HABIT_BATCHES))
        assert looks["probe"] == 3
        by_habit = [why.startswith("as the batch before: ") for why in seen]
        assert by_habit == [False, False, *[True] * HABIT_BATCHES, False, *[True] * HABIT_BATCHES]

    def test_after_a_serial_batch_nothing_is_probed(
        self, looks: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attention, "DOUBT", 1e9)  # whatever the machine does meanwhile, functions cost the same
        seen = self.run(monkeypatch, SERIAL, [1_000] * (SPELL_BATCHES + 2))
        assert looks == {"probe": 2, "find": 1}  # around the spell; families were not worth a second search
        assert ["serial, as the batch before" in why for why in seen].count(True) == SPELL_BATCHES

    def test_after_a_serial_batch_functions_of_another_cost_are_probed(
        self, looks: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.run(monkeypatch, SERIAL, [100, 20_000, 20_000])
        assert looks["probe"] >= 2
