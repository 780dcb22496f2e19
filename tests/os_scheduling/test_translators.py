from __future__ import annotations

import pytest

from tidegate.os_scheduling.procfs import Thread
from tidegate.os_scheduling.translators import NEXT_BEST, Abilities, Mechanism, Scheduled, choose, translate

A, B, C = (Thread(1, tid, 1) for tid in (10, 20, 30))
ALL = Abilities({}, cores=2)
SCHEDULE = {"a": Scheduled(1, (A,), "slow"), "b": Scheduled(4, (B, C), "fast")}


def values(mechanism: Mechanism, **options: object) -> dict[object, object]:
    found = translate(SCHEDULE, mechanism, "ratio", options.get("span"), options.get("abilities", ALL))  # type: ignore[arg-type]
    return {key: setting.value for key, setting in found.items()}


def test_all_threads_of_an_operator_get_its_nice_value() -> None:
    assert values("nice") == {("nice", A): -14, ("nice", B): -20, ("nice", C): -20}


def test_nice_values_stay_above_what_may_be_set() -> None:
    assert values("nice", abilities=Abilities({}, nice_floor=0)) == {("nice", A): 6, ("nice", B): 0, ("nice", C): 0}


def test_groups_share_by_priority_and_threads_are_their_members() -> None:
    members = {("member", A): "slow", ("member", B): "fast", ("member", C): "fast"}
    assert values("shares", span=(2, 4096)) == {("shares", "slow"): 1024, ("shares", "fast"): 4096, **members}
    assert values("quota") == {("quota", "slow"): 0.5, ("quota", "fast"): 2, **members}


def test_realtime_priorities_are_whole_numbers_in_their_range() -> None:
    assert values("realtime") == {("realtime", A): 5, ("realtime", B): 20, ("realtime", C): 20}


@pytest.mark.parametrize("wanted", NEXT_BEST)
def test_the_next_best_mechanism_is_used_and_the_reason_told(wanted: Mechanism) -> None:
    assert choose(wanted, ALL) == (wanted, [])
    order = NEXT_BEST[wanted]
    for count in range(1, len(order)):
        chosen, notes = choose(wanted, Abilities(dict.fromkeys(order[:count], "no rights")))
        assert chosen == order[count]
        assert notes[0] == f"{wanted} cannot be used: no rights; {order[count]} is used instead"
    assert choose(wanted, Abilities(dict.fromkeys(order, "no rights"))) == (
        None,
        ["nice cannot be used: no rights; nothing is set"],
    )
