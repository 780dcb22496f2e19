"""Claims of records, step by step: each record once, those of a bucket one after the other, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.ordering import pipeline
from tidegate.ordering.kernels import claiming

from ...interleaving.broken import add_in_two_steps, compare_exchange_in_two_steps, exchange_in_two_steps
from ...interleaving.schedules import Seeded, check, every_schedule, failing_seed
from ..plays import Stage, mutant, replace_everywhere, stepping
from ..programs import Item, numbered, plain_stateful, summed

SCHEMES = ("hybrid", "shared", "partitioned")


def stage(scheme: str, users: list[int], capacity: int, buckets: int, workers: int = 2) -> Stage:
    partitions: Any = [1] if buckets == 2 else 1  # user 0 in the first bucket, others in the second
    made = pipeline(Item).stateful(summed, key="user", partitions=partitions)
    options = {"partitioning": scheme, "sink": 8}
    return Stage(made, plain_stateful(summed, "user"), numbered(users), workers, capacity, **options).only(1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("users", "capacity", "buckets", "preemptions"),
    [
        ([0, 1], 2, 2, 1),
        ([0, 0, 1], 2, 2, 1),
        ([0, 1, 0, 1], 4, 2, 1),
        ([0, 1, 0], 1, 1, 1),
        pytest.param([0, 0, 1], 2, 2, 2, marks=pytest.mark.soak),
        pytest.param([0, 1, 0, 0], 4, 2, 2, marks=pytest.mark.soak),
        pytest.param([0, 1, 1], 1, 2, 2, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_every_schedule_of_a_few_claims(
    scheme: str, users: list[int], capacity: int, buckets: int, preemptions: int
) -> None:
    count = 0
    with stepping():
        played = stage(scheme, users, capacity, buckets)
        for schedule in every_schedule(preemptions):
            played.play(schedule, looks_again=False)
            count += 1
    assert count > 40


def test_every_schedule_of_the_hybrid_queue_with_two_preemptions() -> None:
    with stepping():
        played = stage("hybrid", [0, 1], 2, 2)
        assert sum(played.play(schedule, looks_again=False) is None for schedule in every_schedule(2)) > 1000


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 2000), marks=pytest.mark.soak)], ids=len)
def test_seeded_schedules_of_three_workers_without_a_race(scheme: str, seeds: range) -> None:
    with stepping(accesses=True):
        played = [stage(scheme, users, 2, buckets, 3) for users, buckets in (([0, 1, 0, 1, 0], 2), ([1, 0, 0, 1], 1))]
        check(lambda seed: played[seed % 2].play(Seeded(seed), finds_races=True), seeds)


# --- that it would be found -----------------------------------------------------------------------------------------

READ = "        bucket = load(memory, memory[at + BUCKETS] + (head & memory[at + MASK]))\n"
TAKE = "        if not compare_exchange(memory, at + HEAD, head, head + 1):\n            continue\n"


@pytest.mark.parametrize(
    ("scheme", "name", "broken"),
    [
        ("hybrid", "_hybrid", lambda: mutant(claiming, "_hybrid", READ + TAKE, TAKE + READ)),
        ("hybrid", "_hybrid", lambda: mutant(claiming, "_hybrid", ", 1) == 0:", ", 1) <= 1:")),
        ("hybrid", "claim_again", lambda: mutant(claiming, "claim_again", "-1) > 1:", "-1) > 2:")),
        ("hybrid", "fetch_add", lambda: add_in_two_steps),
        ("hybrid", "compare_exchange", lambda: compare_exchange_in_two_steps),
        ("shared", "exchange", lambda: exchange_in_two_steps),
        ("partitioned", "exchange", lambda: exchange_in_two_steps),
        (
            "partitioned",
            "_partitioned",
            lambda: mutant(
                claiming,
                "_partitioned",
                "        if load(memory, counter + TAKEN) < load(memory, counter + PUT):\n",
                "        if True:\n",
            ),
        ),
    ],
)
def test_what_is_broken_on_purpose_is_found(scheme: str, name: str, broken: Any) -> None:
    with stepping(), pytest.MonkeyPatch.context() as patch:
        replace_everywhere(patch, claiming, name, broken())
        scenes = (([0, 0, 1], 2), ([0, 1, 0, 0], 4))
        played = [stage(scheme, users, capacity, 2, 3 if scheme == "shared" else 2) for users, capacity in scenes]
        failing_seed(lambda seed: played[seed % 2].play(Seeded(seed), looks_again=False), range(1000))
