"""Whole runs of random small pipelines, step by step: the sequential output, no deadlock, and an end when asked for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidegate.ordering import merge, pipeline, runtime
from tidegate.ordering.kernels import putting, working

from ...interleaving.interleaver import Stuck
from ...interleaving.schedules import Seeded, check, every_schedule, failing_seed
from ..plays import Stage, mutant, replace_everywhere, stepping
from ..programs import Item, Program, items, kept, numbered, plain_stateful, summed

CHOICES: dict[str, tuple[Any, ...]] = {
    "heuristic": ("queue-size", "last-in-pipeline", "estimated-time", "current-throughput"),
    "reorder": ("non-blocking", "lock"),
    "partitioning": ("hybrid", "shared", "partitioned"),
    "mode": ("workers", "workers", "thread-per-operator"),
}


def play(seed: int, stops: bool = False, finds_races: bool = False) -> None:
    """A random pipeline with random options, on two or three workers and a thread that empties the sink."""
    draw = random.Random(f"options {seed}")
    program, records = Program(seed, length=2), items(draw.randrange(6), seed)
    options = {name: draw.choice(values) for name, values in CHOICES.items()}
    workers, capacity = draw.choice([2, 3]), draw.choice([1, 2, 4])
    stage = Stage(program.pipeline, program.step, records, workers, capacity, states_at_first=1, **options)
    stage.play(Seeded(seed), finds_races, stops)


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 10_000), marks=pytest.mark.soak)], ids=len)
def test_random_pipelines_under_seeded_schedules(seeds: range) -> None:
    with stepping():
        check(play, seeds)


@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 2000), marks=pytest.mark.soak)], ids=len)
def test_random_pipelines_without_a_race(seeds: range) -> None:
    with stepping(accesses=True):
        check(lambda seed: play(seed, finds_races=True), seeds)


def play_every_schedule(partitioning: str) -> None:
    made = pipeline(Item).stateful(summed, key="user", partitions=[1])
    step = plain_stateful(summed, "user")
    stage = Stage(made, step, numbered([0, 1, 0]), 2, 2, sink=4, partitioning=partitioning).only(1)
    for schedule in every_schedule(1):
        stage.play(schedule)


@pytest.mark.parametrize("partitioning", CHOICES["partitioning"])
def test_every_schedule_of_a_whole_run(partitioning: str) -> None:
    with stepping():
        play_every_schedule(partitioning)


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 5000), marks=pytest.mark.soak)], ids=len)
def test_a_run_ends_at_any_moment_with_the_beginning_of_its_output(seeds: range) -> None:
    with stepping():
        check(lambda seed: play(seed, stops=True), seeds)


# --- that it would be found -----------------------------------------------------------------------------------------


def grows(seed: int) -> None:
    """Every second record has a new key, for which room must be made; somebody ends the run, and nobody its sink."""
    made = pipeline(Item).stateful(summed, key="user")
    users = [0, 1, 2, 3, 4]
    stage = Stage(made, plain_stateful(summed, "user"), numbered(users), 2, 1, states_at_first=1)
    stage.play(Seeded(seed), stops=True, empties=False)


def test_a_run_that_ends_while_room_is_made_ends() -> None:
    with stepping():
        check(grows, range(50))


def test_room_that_is_asked_for_against_the_end_is_found() -> None:
    with stepping(), pytest.MonkeyPatch.context() as patch:
        text = "compare_exchange(memory, STOP, 0, 1)"
        replace_everywhere(patch, putting, "takes", mutant(putting, "takes", text, "store(memory, STOP, 1)"))
        failing_seed(grows, range(2000))


def holes(seed: int) -> None:
    """A filter leaves holes for a keyed operator whose buckets have shorter queues than its ring."""
    left, right = pipeline(Item).branch(
        lambda p: p.filter(kept).stateful(summed, key="user", partitions=1), lambda p: p
    )
    way = plain_stateful(summed, "user")
    records = [Item(number, 0, "", 0.0, False, None) for number in (1, 4, 0, 7, 10)]
    options = {"sink": 16, "queue": 1, "partitioning": CHOICES["partitioning"][seed % 3]}

    def step(item: Item) -> list[Item]:
        return [*(way(item) if kept(item) else []), item]

    Stage(merge(left, right), step, records, 2, 4, **options).play(Seeded(seed))


def test_holes_wait_for_room_in_a_queue() -> None:
    with stepping():
        check(holes, range(30))


def test_holes_that_do_not_wait_are_found() -> None:
    with stepping(), pytest.MonkeyPatch.context() as patch:
        text = "    if memory[at + KEY] < 0:"
        broken = mutant(putting, "takes", text, "    if memory[at + KEY] < 0 or ends & HOLE:")
        replace_everywhere(patch, putting, "takes", broken)
        failing_seed(holes, range(100))


def test_a_worker_that_asks_for_ever_without_a_rest_is_found() -> None:
    """It was so: where all that waited was of buckets of others, a worker was assigned again and again."""
    with stepping(), pytest.MonkeyPatch.context() as patch:
        text = "            done = _leave(memory, mine)\n"
        patch.setattr(runtime, "work", mutant(working, "work", text, text + "            continue\n"))
        with pytest.raises(Stuck, match="livelock"):
            play_every_schedule("partitioned")
