"""Disjoint sets that several workers join at once: under every schedule the sets are those of joining one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tidegate.engine.kernels import components
from tidegate.operations.decision import Families

from ...interleaving import batches, kernels
from ...interleaving.broken import compare_exchange_in_two_steps
from ...interleaving.interleaver import Interleaver
from ...interleaving.kernels import plain_kernels, shared
from ...interleaving.schedules import Schedule, Seeded, check, every_schedule, failing_seed

Pairs = list[tuple[int, int]]


@pytest.fixture(params=[False, True], ids=["atomics", "accesses"])
def accesses(request: pytest.FixtureRequest) -> Iterator[bool]:
    with plain_kernels(request.param):
        yield request.param


def sets_of(parent: Any) -> set[frozenset[int]]:
    """The sets that parents stand for; a circle fails."""
    members: dict[int, set[int]] = {}
    for row in range(len(parent)):
        root, steps = row, 0
        while parent[root] >= 0:
            root, steps = int(parent[root]), steps + 1
            assert steps < len(parent), f"a circle: {parent}"
        members.setdefault(root, set()).add(row)
    return {frozenset(rows) for rows in members.values()}


def joined_one_by_one(rows: int, pairs: Pairs) -> set[frozenset[int]]:
    sets = {row: frozenset([row]) for row in range(rows)}
    for one, other in pairs:
        union = sets[one] | sets[other]
        sets |= dict.fromkeys(union, union)
    return set(sets.values())


def join(rows: int, shares: list[Pairs], schedule: Schedule, finds_races: bool = False) -> None:
    """Each worker joins the pairs of its share; at the end the sets must be right."""
    parent = np.full(rows, -1, np.int32)
    seen = shared(parent) if finds_races else parent

    def work(pairs: Pairs) -> None:
        for one, other in pairs:
            near_root = components._join(seen, one, other)
            assert near_root <= min(one, other)

    Interleaver(schedule, finds_races, steps_max=5000).run([lambda share=share: work(share) for share in shares])  # type: ignore[misc]
    assert sets_of(parent) == joined_one_by_one(rows, list(itertools.chain(*shares))), f"{shares}: {parent}"


def play(seed: int, finds_races: bool = False) -> None:
    rng = np.random.default_rng([1, seed])
    rows, workers = int(rng.integers(2, 8)), int(rng.integers(2, 5))
    shares = [[tuple(rng.integers(0, rows, 2).tolist()) for _ in range(rng.integers(1, 5))] for _ in range(workers)]
    join(rows, shares, Seeded(seed), finds_races)  # type: ignore[arg-type]


def test_any_schedule_joins_what_one_worker_would(accesses: bool) -> None:
    check(lambda seed: play(seed, accesses), range(600))


@pytest.mark.soak
def test_ten_thousand_schedules(accesses: bool) -> None:
    check(lambda seed: play(seed, accesses), range(1000, 11_000))


@pytest.mark.parametrize(
    "shares",
    [[[(0, 1)], [(1, 2)]], [[(0, 2)], [(1, 2)]], [[(0, 3), (1, 3)], [(2, 3)]], [[(1, 2)], [(0, 2)], [(2, 3)]]],
    ids=str,
)
def test_every_schedule_of_a_few_joins(shares: list[Pairs]) -> None:
    """All orders with up to three preemptions, not some."""
    with plain_kernels():
        assert sum(join(4, shares, schedule) is None for schedule in every_schedule(3)) > 30


# --- that it would be found -------------------------------------------------------------------------------------


def join_without_trying_again(parent: Any, one: int, other: int) -> int:
    one, other = sorted((components._root(parent, one), components._root(parent, other)))
    if one != other:
        kernels.compare_exchange(parent, other, -1, one)
    return one


def join_in_any_order(parent: Any, one: int, other: int) -> int:
    while True:
        one, other = components._root(parent, one), components._root(parent, other)
        if one == other or kernels.compare_exchange(parent, other, -1, one):
            return min(one, other)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("compare_exchange", compare_exchange_in_two_steps),
        ("_join", join_without_trying_again),
        ("_join", join_in_any_order),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_broken_on_purpose_is_found(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_kernels():
        monkeypatch.setattr(components, name, broken)
        seed, error = failing_seed(play, range(2000))
        with pytest.raises(type(error)):
            play(seed)


def test_a_plain_mark_of_a_written_row_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was one: two workers may mark the same row."""

    def mark_plainly(array: Any, index: int, value: int) -> None:
        array[index] = value

    with batches.small_pieces(accesses=True):
        monkeypatch.setattr(components, "store", mark_plainly)
        _, error = failing_seed(lambda seed: batches.play(seed, Families(), finds_races=True), range(20))
    assert "race: write by worker" in str(error)
