"""Histories written by hand: what the model allows passes, and each planted violation is found and named."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidegate import Step
from tidegate.testing import check_history


@dataclass(frozen=True)
class Member:
    __name__: str


@dataclass(frozen=True)
class Graph:
    name: str
    transactions: tuple[Member, ...]
    groups: tuple[tuple[str, ...], ...]
    edges: frozenset[tuple[str, str]]


def graph(*groups: str, edges: str = "", name: str = "show") -> Graph:
    """`graph("ab", "c", edges="ab bc")`: single letters are transactions."""
    members = tuple(Member(letter) for letters in groups for letter in letters)
    pairs = frozenset((pair[0], pair[1]) for pair in edges.split())
    return Graph(name, members, tuple(tuple(letters) for letters in groups), pairs)


def history(given: Graph, text: str) -> list[Step]:
    """`a1` is transaction a in round 1, `b1-` is b aborted, `p` a plain transaction, `x2@other` another dataflow's."""
    steps = []
    for number, word in enumerate(text.split()):
        letter, rest = word[0], word[1:]
        if "@" in rest:
            steps.append(Step(number, rest.split("@")[1], letter, int(rest.split("@")[0]), 0, True, 1))
        elif not rest:
            steps.append(Step(number, "", letter, 0, -1, True, 1))
        else:
            group = next((n for n, letters in enumerate(given.groups) if letter in letters), 0)
            committed = not rest.endswith("-")
            steps.append(Step(number, given.name, letter, int(rest.rstrip("-")), group, committed, 1))
    return steps


CHAIN = graph("a", "b", "c", edges="ab bc")
NESTED = graph("ab", "c", edges="ab bc")
DIAMOND = graph("a", "b", "c", "d", edges="ab ac bd cd")
TWO_BORDERS = graph("a", "b", "c", edges="ac bc")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (CHAIN, ""),
        (CHAIN, "p p"),
        (CHAIN, "a1 b1 c1 a2 b2 c2"),
        (CHAIN, "a1 a2 b1 b2 c1 c2"),  # a round begins before the one before it has ended
        (CHAIN, "a1 a2 a3 b1 c1 b2 b3 c2 c3"),
        (CHAIN, "p a1 p b1 x1@other c1 p"),  # a group of one has no inside
        (CHAIN, "a1 a2 b2 a3- a4 b4 c4"),  # rounds 1 and 3 emitted nothing
        (CHAIN, "a1 b1- a2 b2 c2"),
        (CHAIN, "a1 b1 a2 c1 b2 c2"),
        (NESTED, "a1 b1 c1 a2 b2 c2"),
        (NESTED, "a1 b1 p a2 b2 c1 c2"),  # between the groups of different rounds
        (NESTED, "a1- b1- a2 b2 a3- a4 b4"),
        (NESTED, "x1@other a1 b1 x2@other"),
        (DIAMOND, "a1 c1 b1 d1 a2 b2 c2 d2"),  # b and c in either order
        (DIAMOND, "a1 b1 d1"),
        (TWO_BORDERS, "a1 c1 b2 c2 b3 a4 c4"),  # one border stream or the other begins a round
    ],
)
def test_what_the_model_allows_passes(given: Graph, text: str) -> None:
    assert check_history(given, history(given, text)) == []


@pytest.mark.parametrize(
    ("given", "text", "sentence"),
    [
        (CHAIN, "a1 c1 b1", "graph order: 'c' in round 1 (step 1) ran before 'b' in round 1 (step 2), which precedes"),
        (CHAIN, "c1 a1", "graph order: 'c' in round 1 (step 0) ran before 'a' in round 1 (step 1), which precedes"),
        (DIAMOND, "a1 b1 d1 c1", "graph order: 'd' in round 1 (step 2) ran before 'c' in round 1 (step 3), which"),
        (NESTED, "b1 a1", "graph order: 'b' in round 1"),
        (CHAIN, "a2 a1", "stream order: 'a' in round 1 (step 1) ran after 'a' in round 2 (step 0), a later batch"),
        (CHAIN, "a1 a2 b2 b1", "stream order: 'b' in round 1 (step 3) ran after 'b' in round 2 (step 2)"),
        (
            CHAIN,
            "a1 b1 b1",
            "exactly once: 'b' in round 1 (step 2) took a batch that 'b' in round 1 (step 1) had taken",
        ),
        (CHAIN, "a1- a1 b1", "exactly once: 'a' in round 1 (step 1) took a batch"),
        (CHAIN, "a1 a3", "exactly once: batch 2 was never taken in by 'a', though a later one was run"),
        (CHAIN, "a2", "exactly once: batch 1 was never taken in by 'a'"),
        (CHAIN, "a1 b2", "exactly once: batch 2 was never taken in by 'a'"),
        (TWO_BORDERS, "a1 b3", "exactly once: batch 2 was never taken in by 'a' or 'b'"),
        (CHAIN, "a0 a1", "exactly once: batch 0 was run, but the first one is 1"),
        (NESTED, "a1 p b1", "nested isolation: plain 'p' (step 1) ran between 'a', 'b' of round 1"),
        (NESTED, "a1 b1 a2 c1 b2", "nested isolation: 'c' in round 1 (step 3) ran between 'a', 'b' of round 2"),
        (
            NESTED,
            "a1 x1@other b1",
            "nested isolation: 'x' of dataflow 'other' (step 1) ran between 'a', 'b' of round 1",
        ),
        (
            NESTED,
            "a1 b1-",
            "all or nothing: in round 1 'a' in round 1 (step 0) committed and 'b' in round 1 (step 1) aborted",
        ),
        (NESTED, "a1- b1 a2 b2", "all or nothing: in round 1 'b' in round 1 (step 1) committed and 'a'"),
        (CHAIN, "a1 z1", "record: 'z' in round 1 (step 1) is not a transaction of the dataflow 'show'"),
    ],
)
def test_a_violation_is_named_alone(given: Graph, text: str, sentence: str) -> None:
    (found,) = check_history(given, history(given, text))
    assert found.startswith(sentence)


def test_two_rounds_of_a_nested_group_may_not_mix() -> None:
    found = check_history(NESTED, history(NESTED, "a1 a2 b1 b2"))
    assert [sentence.split(":")[0] for sentence in found] == ["nested isolation"] * 2


def test_wrong_groups_no_tuples_and_a_broken_sequence_are_found() -> None:
    first, second, third = history(CHAIN, "a1 b1 c1")
    (found,) = check_history(CHAIN, [first, second._replace(group=2), third])
    assert found == "record: 'b' in round 1 (step 1) ran in group 2, but belongs to group 1"
    (found,) = check_history(CHAIN, [first, second._replace(tuples=0), third])
    assert found.startswith("record: 'b' in round 1 (step 1) ran on 0 tuples")
    (found,) = check_history(CHAIN, [first, second._replace(sequence=0), third])
    assert found == "record: step 0 stands behind step 0; the sequence must increase"


def test_every_violation_has_its_sentence() -> None:
    found = check_history(NESTED, history(NESTED, "b1- p a1 a1 c3"))
    assert [sentence.split(":")[0] for sentence in found] == [
        "graph order",
        "exactly once",
        "exactly once",
        "exactly once",
        "nested isolation",
        "all or nothing",
    ]


def test_a_history_may_go_on_from_a_later_round() -> None:
    steps = history(CHAIN, "a5 b5 a6")
    assert check_history(CHAIN, steps, first_batch=5) == []
    assert len(check_history(CHAIN, steps)) == 4
