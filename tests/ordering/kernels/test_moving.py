"""The reorder buffer, step by step: results leave in the order of the input, and none stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.ordering import merge, pipeline
from tidegate.ordering.kernels import moving

from ...interleaving.broken import exchange_in_two_steps
from ...interleaving.schedules import Seeded, check, every_schedule, failing_seed
from ..plays import Stage, mutant, replace_everywhere, stepping
from ..programs import Item, copies, kept, numbered, plain, raised

REORDERS = ("non-blocking", "lock")


def stage(users: list[int], capacity: int, many: bool, workers: int = 2, **options: Any) -> Stage:
    """One operator: with one output for a record, or with as many as its user's number."""
    function, verb = (copies, "flat_map") if many else (raised, "map")
    made = getattr(pipeline(Item), verb)(function)
    return Stage(made, plain(verb, function), numbered(users), workers, capacity, sink=16, **options).only(1)


def merged(**options: Any) -> Stage:
    """A fork whose first branch has no results for some records."""
    base = pipeline(Item)
    made = merge(*base.branch(lambda p: p.filter(kept), lambda p: p.flat_map(copies)))
    ways = plain("filter", kept), plain("flat_map", copies)
    records = [Item(number, user, "", 0.0, False, None) for number, user in ((1, 2), (2, 0))]
    return Stage(made, lambda item: [out for way in ways for out in way(item)], records, 2, **options)


@pytest.mark.parametrize("reorder", REORDERS)
@pytest.mark.parametrize(
    ("users", "capacity", "many", "preemptions"),
    [
        ([0, 0], 1, False, 2),
        ([0, 0, 0], 4, False, 1),
        ([2, 0, 1], 2, True, 1),
        pytest.param([0, 0, 0], 2, False, 2, marks=pytest.mark.soak),
        pytest.param([0, 0, 0], 4, False, 2, marks=pytest.mark.soak),
        pytest.param([2, 0, 1, 2], 2, True, 2, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_every_schedule_of_a_few_results(
    reorder: str, users: list[int], capacity: int, many: bool, preemptions: int
) -> None:
    count = 0
    with stepping():
        played = stage(users, capacity, many, reorder=reorder)
        for schedule in every_schedule(preemptions):
            played.play(schedule, looks_again=False)
            count += 1
    assert count > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("preemptions", [1, 2])
def test_every_schedule_of_a_small_merge(preemptions: int) -> None:
    with stepping():
        played = merged(capacity=2, sink=8)
        assert sum(played.play(schedule) is None for schedule in every_schedule(preemptions)) > 50


@pytest.mark.parametrize("reorder", REORDERS)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 2000), marks=pytest.mark.soak)], ids=len)
def test_seeded_schedules_of_three_workers_without_a_race(reorder: str, seeds: range) -> None:
    with stepping(accesses=True):
        played = [stage([2, 0, 1, 3], 2, True, 3, reorder=reorder), stage([0] * 5, 1, False, 3, reorder=reorder)]
        check(lambda seed: played[seed % 2].play(Seeded(seed), finds_races=True), seeds)


@pytest.mark.parametrize("reorder", REORDERS)
def test_seeded_schedules_of_a_small_merge(reorder: str) -> None:
    with stepping():
        played = merged(capacity=2, sink=8, reorder=reorder)
        check(lambda seed: played.play(Seeded(seed)), range(100))


# --- that it would be found -----------------------------------------------------------------------------------------

CLEAR = "        store(memory, statuses + place, 0)\n"
ADVANCE = "        store(memory, at + NEXT, number + 1)\n"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        # No second look after the flag was cleared.
        ("move", lambda: mutant(moving, "move", "        steps += moved\n", "        return steps + moved\n")),
        # The place is given away before its status is cleared.
        ("_move_results", lambda: mutant(moving, "_move_results", CLEAR + ADVANCE, ADVANCE + CLEAR)),
        # The flag is looked for before the record is done.
        (
            "finish",
            lambda: mutant(
                moving,
                "finish",
                "        exchange(memory, status, count + 1)\n        move(memory, node)\n",
                "        move(memory, node)\n        exchange(memory, status, count + 1)\n",
            ),
        ),
        ("exchange", lambda: exchange_in_two_steps),
    ],
)
def test_what_is_broken_on_purpose_is_found(name: str, broken: Any) -> None:
    with stepping(), pytest.MonkeyPatch.context() as patch:
        replace_everywhere(patch, moving, name, broken())
        played = [stage([0, 0], 1, False), stage([0] * 4, 4, False)]
        failing_seed(lambda seed: played[seed % 2].play(Seeded(seed), looks_again=False), range(1000))


def test_a_merge_that_forgets_holes_stands_still() -> None:
    with stepping(), pytest.MonkeyPatch.context() as patch:
        broken = mutant(moving, "_move_results", "if count == 0 and ends != 0 and", "if count == 0 and ends < 0 and")
        patch.setattr(moving, "_move_results", broken)
        failing_seed(lambda seed: merged(capacity=2, sink=8).play(Seeded(seed)), range(20))
