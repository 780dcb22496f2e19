from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tidegate.os_scheduling import policies
from tidegate.os_scheduling.configuration import Condition, Configuration, Rule
from tidegate.os_scheduling.journal import Journal
from tidegate.os_scheduling.mechanisms import Mechanisms
from tidegate.os_scheduling.observations import Observation, Observed
from tidegate.os_scheduling.procfs import Thread
from tidegate.os_scheduling.scheduler import Memory, Scheduler, step
from tidegate.os_scheduling.translators import Abilities

from .engines import Published, idle, needs_nice, seen

ALL = Abilities({}, cores=2)


def rule(policy: policies.Policy = policies.queue_size, **changes: Any) -> Rule:
    usual: dict[str, Any] = {
        "name": "rule",
        "policy": policy,
        "period": 1.0,
        "operators": ("*",),
        "logical": False,
        "mechanism": "nice",
        "normalization": "linear",
        "span": None,
        "group": "query",
        "when": None,
    }
    return Rule(**(usual | changes))


def looked(at: float, *operators: Observed, **node: float) -> Observation:
    return Observation(at, {"x": operators} if operators else {}, node)


A, B = seen("x/a", queue_size=1, query="one"), seen("x/b", queue_size=9, query="two")
BOTH = looked(0.0, A, B)


def values(rules: tuple[Rule, ...], observation: Observation, abilities: Abilities = ALL) -> dict[object, object]:
    _, decision = step(rules, Memory(), observation, abilities)
    return {key: setting.value for key, setting in decision.settings.items()}


def test_the_operator_with_the_longest_queue_is_the_least_nice() -> None:
    assert values((rule(),), BOTH) == {("nice", A.threads[0]): 19, ("nice", B.threads[0]): -20}


def test_groups_and_nice_values_combine() -> None:
    shares = rule(policies.constant({"x/a": 2, "*": 1}), mechanism="shares", normalization="ratio", span=(2, 1000))
    found = values((rule(), shares), BOTH)
    assert found[("nice", A.threads[0])] == 19 and found[("member", A.threads[0])] == "one"
    assert found[("shares", "one")] == 1000 and found[("shares", "two")] == 500


def test_without_groups_nice_stands_in_and_gives_way_to_what_was_asked_for() -> None:
    lacking = Abilities({"shares": "no controller"})
    shares = rule(policies.constant({"x/a": 2, "*": 1}), mechanism="shares", operators=("x/a", "x/b"))
    assert values((shares,), BOTH, lacking) == {("nice", A.threads[0]): -20, ("nice", B.threads[0]): 19}
    both = values((rule(operators=("x/b",), span=(3, 5)), shares), BOTH, lacking)
    assert both == {("nice", A.threads[0]): -20, ("nice", B.threads[0]): 3}
    _, decision = step((shares,), Memory(), BOTH, lacking)
    assert decision.notes == ("rule: shares cannot be used: no controller; nice is used instead",)


def test_each_rule_has_its_period_and_its_settings_stand_meanwhile() -> None:
    often, seldom = rule(operators=("x/a",), span=(1, 2)), rule(operators=("x/b",), period=10.0, span=(1, 2))
    memory, first = step((often, seldom), Memory(), BOTH, ALL)
    assert memory.due == {0: 1.0, 1: 10.0}
    later = looked(1.0, seen("x/a", queue_size=50), seen("x/b", queue_size=50))
    memory, second = step((often, seldom), memory, later, ALL)
    assert memory.due == {0: 2.0, 1: 10.0} and second.settings.keys() == first.settings.keys()
    assert second.priorities == {"x/a": 50, "x/b": 9}


def test_settings_of_operators_that_ended_and_of_dead_engines_are_not_wanted_any_more() -> None:
    shares = rule(mechanism="shares", period=100.0)
    memory, decision = step((shares,), Memory(), BOTH, ALL)
    assert ("shares", "two") in decision.settings
    memory, decision = step((shares,), memory, looked(1.0, A), ALL)
    assert decision.settings.keys() == {("member", A.threads[0]), ("shares", "one")}
    _, decision = step((shares,), memory, looked(2.0), ALL)
    assert decision.settings == {}


def test_rules_switch_by_their_conditions() -> None:
    calm = rule(policies.constant({"*": 1}), span=(5, 9), when=Condition("cpu_pressure", -1, 20))
    busy = rule(when=Condition("cpu_pressure", 20, 101))
    assert set(values((calm, busy), looked(0.0, A, B, cpu_pressure=3.0)).values()) == {5}
    assert set(values((calm, busy), looked(0.0, A, B, cpu_pressure=80.0)).values()) == {-20, 19}
    long = rule(when=Condition("queue_size", 5, 1e9))
    assert values((long,), BOTH) and not values((long,), looked(0.0, A))
    assert not values((busy,), BOTH), "a condition that cannot be judged does not hold"


def failing(_: policies.View) -> Mapping[str, float]:
    raise RuntimeError("oops")


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        (failing, "rule: failed: RuntimeError: oops"),
        (lambda view: {"x/a": float("nan")}, "rule: required finite priorities, got x/a: nan"),
        (lambda view: {"x/a": "high"}, "rule: failed: ValueError"),
        (lambda view: None, "rule: failed: AttributeError"),
        (policies.highest_rate, "rule: x: has no metric `highest_rate`"),
    ],
)
def test_a_policy_that_fails_is_told_and_the_other_rules_go_on(policy: Any, note: str) -> None:
    _, decision = step((rule(policy), rule(operators=("x/b",))), Memory(), BOTH, ALL)
    assert decision.settings.keys() == {("nice", B.threads[0])}
    assert decision.notes[0].startswith(note)


def test_a_policy_may_name_operators_that_are_not_there() -> None:
    assert values((rule(lambda view: {"x/gone": 1.0, "x/a": 2.0}),), BOTH) == {("nice", A.threads[0]): 0}


def test_sessions_that_nice_does_not_compare_are_told_unless_they_are_in_groups() -> None:
    other = Observed("x/c", "q", (Thread(2, 5, 1),), (), ("x/c",), {"queue_size": 2})
    both = Observation(0.0, {"x": (A, other)}, {}, {1: "/autogroup-1", 2: "/autogroup-2"})
    assert "sched_autogroup" in step((rule(),), Memory(), both, ALL)[1].notes[0]
    grouped = step((rule(), rule(mechanism="shares")), Memory(), both, ALL)[1]
    alike = Observation(0.0, {"x": (A, other)}, {}, {1: "/autogroup-1", 2: "/autogroup-1"})
    assert grouped.notes == () == step((rule(),), Memory(), alike, ALL)[1].notes


@needs_nice
def test_the_loop_survives_engines_and_threads_that_vanish(tmp_path: Path) -> None:
    journal, told = Journal(tmp_path / "private"), list[str]()
    with idle(3) as threads:
        driver, other = Published(threads.operators(1, 9)), Published([])
        mechanisms = Mechanisms(journal)
        scheduler = Scheduler(Configuration({"x": driver, "y": other}, (rule(),)), mechanisms, told.append)
        scheduler.round()
        assert threads.nice() == [19, -20, 0] and not told
        driver.now = ConnectionRefusedError("dead")
        for _ in range(3):
            scheduler.round()
        assert threads.nice() == [0, 0, 0], "an engine that does not answer has its own priorities back"
        assert told == ["x: cannot be seen: ConnectionRefusedError: dead"], "told once"
        driver.now = threads.operators(9, 1)
        scheduler._memory = Memory()  # the rule is due again
        scheduler.round()
        assert threads.nice() == [-20, 19, 0]
        threads.end(1)
        scheduler._memory = Memory()
        scheduler.round()
        assert os.getpriority(os.PRIO_PROCESS, threads.tids[0]) == 0, "alone, it needs no priority"
        assert mechanisms.close() == [] and not journal.records
    journal.close()
