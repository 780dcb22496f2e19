"""From a schedule to the settings of the operating system that express it. They are only named here, not made.

There are two forms of schedules, and they combine: groups share the processors between them, and nice orders the
threads in each group.

    single priority    a number for each operator                       nice, realtime
    grouping           operators in groups, a number for each group     shares, quota

    mechanism   setting                                             where it is not available
    nice        -20 to 19 per thread                                nothing is set
    shares      cpu.shares (cgroup v1) or cpu.weight (v2)           nice, the same for all threads of a group
    quota       cpu.cfs_quota_us (v1) or cpu.max (v2), in cores     shares, then nice
    realtime    round robin, priority 1 to 99                       nice

What stands in for another mechanism gives way to a setting that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidegate.os_scheduling.normalization import Normalization, Span, to_nice, to_weight
from tidegate.os_scheduling.procfs import Thread

Mechanism = Literal["nice", "shares", "quota", "realtime"]

NEXT_BEST: Mapping[Mechanism, tuple[Mechanism, ...]] = {
    "nice": ("nice",),
    "shares": ("shares", "nice"),
    "quota": ("quota", "shares", "nice"),
    "realtime": ("realtime", "nice"),
}
GROUPING: tuple[Mechanism, ...] = ("shares", "quota")

SHARES_DEFAULT = 1024
"""What the kernel gives to a group, and to a thread of nice 0."""

SPANS: Mapping[Mechanism, Span] = {
    "nice": (-20, 19),
    "shares": (16, 16384),  # 1 to 1024; both ends fit cpu.weight as well
    "quota": (0.05, 0),  # up to all cores
    "realtime": (1, 20),  # the kernel's own threads have 50 and more
}
LIMITS: Mapping[Mechanism, Span] = {
    "nice": (-20, 19),
    "shares": (2, 262144),
    "quota": (0.01, 100_000),
    "realtime": (1, 99),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing to be set, on a thread or on a group.

    Args:
        kind: `nice` and `realtime` (of a thread), `member` (a thread's group), `shares` and `quota` (of a group).
        target: The thread, or the name of the group.
        value: The number; for `member` the name of the group.
    """

    kind: Literal["nice", "realtime", "member", "shares", "quota"]
    target: Thread | str
    value: float | str

    @property
    def key(self) -> Key:
        """What is set: one thing has one value."""
        return self.kind, self.target


Key = tuple[str, Thread | str]
Settings = dict[Key, Setting]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What can be set on this node.

    Args:
        lacking: A reason for each mechanism that cannot be used.
        nice_floor: The lowest nice value that can be set.
        cores: How many there are.
    """

    lacking: Mapping[str, str]
    nice_floor: int = -20
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An operator with its priority, its threads, and the group that it is in."""

    priority: float
    threads: tuple[Thread, ...]
    group: str


def choose(wanted: Mechanism, abilities: Abilities) -> tuple[Mechanism | None, list[str]]:
    """The mechanism to use, and why it is not the wanted one."""
    notes: list[str] = []
    for mechanism in NEXT_BEST[wanted]:
        if mechanism not in abilities.lacking:
            return mechanism, [f"{note}; {mechanism} is used instead" for note in notes]
        notes.append(f"{mechanism} cannot be used: {abilities.lacking[mechanism]}")
    return None, [f"{note}; nothing is set" for note in notes[-1:]]


def translate(
    schedule: Mapping[str, Scheduled],
    mechanism: Mechanism,
    how: Normalization,
    span: Span | None,
    abilities: Abilities,
) -> Settings:
    """The settings that express a schedule (by operator) with a mechanism.

    In a grouping schedule a group has the highest priority of its operators.
    """
    low, high = span or SPANS[mechanism]
    if mechanism in ("shares", "quota"):
        groups: dict[str, float] = {}
        for each in schedule.values():
            groups[each.group] = max(groups.get(each.group, each.priority), each.priority)
        if mechanism == "quota":
            weights = to_weight(groups, how, (low, high or abilities.cores), neutral=high or abilities.cores)
        else:
            weights = to_weight(groups, how, (low, high), neutral=SHARES_DEFAULT)
        found = [Setting(mechanism, group, _rounded(mechanism, weight)) for group, weight in weights.items()]
        found += [Setting("member", thread, each.group) for each in schedule.values() for thread in each.threads]
    elif mechanism == "realtime":
        ranks = to_weight({name: each.priority for name, each in schedule.items()}, how, (low, high), neutral=low)
        found = [
            Setting("realtime", thread, round(ranks[name]))
            for name, each in schedule.items()
            for thread in each.threads
        ]
    else:
        values = to_nice(
            {name: each.priority for name, each in schedule.items()}, how, (max(low, abilities.nice_floor), high)
        )
        found = [Setting("nice", thread, values[name]) for name, each in schedule.items() for thread in each.threads]
    return {setting.key: setting for setting in found}


def _rounded(mechanism: Mechanism, weight: float) -> float:
    return round(weight, 2) if mechanism == "quota" else round(weight)
