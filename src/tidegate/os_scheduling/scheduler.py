"""The scheduler: looks at the engines, decides, and lets the settings be made, again and again.

    Observation ── step ──> Decision: all settings that should hold ──> Mechanisms: changes what differs
         ^                                                                   │
         └────────────────────────── the next period ────────────────────────┘

`step` is a function of what was seen, of what rules decided before, and of what can be set here: no clock, no files. A
rule decides again when its period is over; until then its settings stand, for threads that are still there. Settings
that no rule wants any more are taken back: of operators that ended, of engines that do not answer, of rules whose
condition does not hold, and of rules that failed.

Nothing that an engine, a thread or a policy does stops the loop: it is told, once, and the next round tries again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegate.foundation.errors import TidegateError
from tidegate.os_scheduling.configuration import Configuration, Rule
from tidegate.os_scheduling.mechanisms import Mechanisms
from tidegate.os_scheduling.metrics import Metrics
from tidegate.os_scheduling.observations import Observation, observe
from tidegate.os_scheduling.policies import View
from tidegate.os_scheduling.procfs import Thread
from tidegate.os_scheduling.translators import Abilities, Scheduled, Settings, choose, translate

_EARLY = 1e-3
"""A rule that would be due this many seconds later is due now: sleeping is not exact."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule decided: its settings, whether they only stand in for others, and the priorities behind them."""

    settings: Settings = field(default_factory=dict)
    stands_in: bool = False
    priorities: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What one step leaves for the next."""

    turn: int = 0
    seen: Observation | None = None
    due: Mapping[int, float] = field(default_factory=dict)
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What should hold now, and what is worth telling.

    Args:
        settings: All settings.
        priorities: The latest priority of each operator.
        metrics: The metrics of each engine.
        notes: Problems.
    """

    settings: Settings
    priorities: Mapping[str, float]
    metrics: Mapping[str, Metrics]
    notes: tuple[str, ...]


def step(rules: tuple[Rule, ...], memory: Memory, seen: Observation, abilities: Abilities) -> tuple[Memory, Decision]:
    """Decide anew what is due."""
    before = memory.seen
    elapsed = 0.0 if before is None else seen.at - before.at
    engines = {
        name: Metrics(operators, () if before is None else before.engines.get(name, ()), elapsed)
        for name, operators in seen.engines.items()
    }
    outcomes, due = dict(memory.outcomes), dict(memory.due)
    for index, rule in enumerate(rules):
        if seen.at >= due.get(index, -math.inf) - _EARLY:
            outcomes[index] = _decide(rule, seen, engines, memory.turn, abilities)
            due[index] = seen.at + rule.period
    alive = {thread for operator in seen.operators for thread in operator.threads}
    settings: Settings = {}
    # What stands in for something else comes first, so that what was asked for replaces it.
    for outcome in sorted(outcomes.values(), key=lambda outcome: not outcome.stands_in):
        settings.update(_still_there(outcome.settings, alive))
    notes = (*seen.notes, *(note for outcome in outcomes.values() for note in outcome.notes))
    priorities = {name: value for outcome in outcomes.values() for name, value in outcome.priorities.items()}
    decision = Decision(settings, priorities, engines, (*notes, *_autogroup_note(settings, seen)))
    return Memory(memory.turn + 1, seen, due, outcomes), decision


def _decide(rule: Rule, seen: Observation, engines: Mapping[str, Metrics], turn: int, abilities: Abilities) -> Outcome:
    """One rule's outcome; if it cannot decide, it wants nothing."""
    operators = {each.name: each for each in seen.operators if rule.is_for(each)}
    view = View(operators.values(), engines, seen.node, turn, logical=rule.logical)
    try:
        if not _holds(rule, view):
            return Outcome(notes=_told(rule, view.notes))
        priorities = {name: float(value) for name, value in rule.policy(view).items()}
    except Exception as error:  # a policy is anybody's code
        return Outcome(notes=_told(rule, [*view.notes, f"failed: {type(error).__name__}: {error}"]))
    wrong = [f"{name}: {value}" for name, value in priorities.items() if not math.isfinite(value)]
    if wrong:
        return Outcome(notes=_told(rule, [f"required finite priorities, got {', '.join(wrong)}"]))
    physical = view.physical(priorities)
    groups = {name: rule.group_of(operators[name]) for name in physical}
    schedule = {
        name: Scheduled(priority, operators[name].threads, group)
        for name, priority in physical.items()
        for group in [groups[name]]
        if group is not None
    }
    mechanism, notes = choose(rule.mechanism, abilities)
    stands_in = mechanism != rule.mechanism
    settings: Settings = {}
    if mechanism is not None and schedule:
        span = None if stands_in else rule.span
        if mechanism == "nice" and stands_in:
            schedule = _by_group(schedule)
        settings = translate(schedule, mechanism, rule.normalization, span, abilities)
    return Outcome(settings, stands_in, physical, _told(rule, [*view.notes, *notes]))


def _by_group(schedule: Mapping[str, Scheduled]) -> dict[str, Scheduled]:
    """All operators of a group with the group's priority: for a mechanism that has no groups."""
    highest: dict[str, float] = {}
    for each in schedule.values():
        highest[each.group] = max(highest.get(each.group, each.priority), each.priority)
    return {name: Scheduled(highest[each.group], each.threads, each.group) for name, each in schedule.items()}


def _holds(rule: Rule, view: View) -> bool:
    """Whether the rule's condition holds; one that cannot be judged does not."""
    if rule.when is None:
        return True
    if rule.when.metric in view.node:
        return rule.when.above < view.node[rule.when.metric] < rule.when.below
    values = view.metric(rule.when.metric).values()
    return bool(values) and rule.when.above < max(values) < rule.when.below


def _told(rule: Rule, notes: list[str]) -> tuple[str, ...]:
    return tuple(f"{rule.name}: {note}" for note in notes)


def _still_there(settings: Settings, alive: set[Thread]) -> Settings:
    """Without the threads that ended, and the groups that have none left."""
    kept = {key: each for key, each in settings.items() if not isinstance(each.target, Thread) or each.target in alive}
    groups = {each.value for each in kept.values() if each.kind == "member"}
    return {key: each for key, each in kept.items() if isinstance(each.target, Thread) or each.target in groups}


def _autogroup_note(settings: Settings, seen: Observation) -> list[str]:
    """Nice values of different sessions are not compared with each other; groups do not care."""
    grouped = {each.target for each in settings.values() if each.kind == "member"}
    processes = {
        each.target.pid
        for each in settings.values()
        if each.kind == "nice" and isinstance(each.target, Thread) and each.target not in grouped
    }
    if len({group for pid, group in seen.autogroups.items() if pid in processes}) < 2:
        return []
    return [
        "sched_autogroup is on, and engines of several sessions are scheduled by nice: the kernel compares nice values "
        "within a session only. Put each engine into a group (mechanism: shares, group: query) to share between them"
    ]


class Scheduler:
    """The loop around `step`.

    Args:
        configuration: What to look at, and the rules.
        mechanisms: What makes the settings.
        tell: Takes each note, the first time that it comes up since it was last gone.
    """

    def __init__(self, configuration: Configuration, mechanisms: Mechanisms, tell: Callable[[str], None]) -> None:
        self._configuration = configuration
        self._mechanisms = mechanisms
        self._tell = tell
        self._memory = Memory()
        self._told: set[str] = set()

    def round(self) -> float:
        """Look, decide and set, once; gives the time at which the next rule is due."""
        seen = observe(self._configuration.drivers)
        self._memory, decision = step(self._configuration.rules, self._memory, seen, self._mechanisms.abilities)
        notes = [*decision.notes]
        try:
            notes += self._mechanisms.apply(decision.settings)
        except TidegateError as error:  # the journal cannot be written: nothing more is changed
            notes.append(str(error))
        for note in dict.fromkeys(notes):
            if note not in self._told:
                self._tell(note)
        self._told = set(notes)
        return min(self._memory.due.values())
