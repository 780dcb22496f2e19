from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidegate.durability import served as module
from tidegate.durability.served import Applicant, Line, Served, call_applicant, once_applicant, stream_applicant
from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import StateDiverged


def version(number: int, query: str, batch: int, **adopted: int) -> VersionInfo:
    return VersionInfo(number, "change", query, batch, number - 1, 0.0, 1, 1, None, (), {}, 0, adopted=adopted)


def served(*made: tuple[str, int]) -> Served:
    """Versions 1, 2, ..., each made by an applicant's batch."""
    found = Served()
    for number, (name, batch) in enumerate(made, start=1):
        found.add(version(number, name, batch))
    return found


def test_a_batch_is_new_once_and_from_then_on_it_was_applied() -> None:
    known = served(("a", 0), ("a", 1), ("b", 0))
    assert known.judge("s", stream_applicant("a", 2)) == "new"
    assert known.judge("s", stream_applicant("a", 1)) == "again"
    assert known.judge("s", stream_applicant("a", 0)) == "earlier"
    assert known.judge("s", stream_applicant("c", 0)) == "new"
    assert known.line("a") == Line(1, 2) and known.line("c") is None


@pytest.mark.parametrize("query", ["lost", "late"])
def test_a_query_that_is_past_its_first_batch_and_not_known_is_refused_with_the_way_out(query: str) -> None:
    with pytest.raises(StateDiverged) as refused:
        served(("a", 0)).judge("some/path", stream_applicant(query, 3))
    message = str(refused.value)
    assert "batches 0 to 2 must have come before" in message and "new checkpoint" in message
    assert f"tidegate state adopt some/path --query {query} --batch 3" in message


@pytest.mark.parametrize(("asked", "missing"), [(2, "batch 1 is missing"), (5, "batches 1 to 4 are missing")])
def test_a_gap_is_refused(asked: int, missing: str) -> None:
    with pytest.raises(StateDiverged, match=missing):
        served(("a", 0)).judge("s", stream_applicant("a", asked))


def test_calls_of_a_foreach_batch_are_told_apart_and_may_leave_batches_out() -> None:
    known = served(("q/0", 0), ("q/1", 0))
    for call in (0, 1):
        assert known.judge("s", call_applicant("q", 0, call)) == "again"
        assert known.judge("s", call_applicant("q", 7, call)) == "new"
    assert known.judge("s", call_applicant("q", 7, 2)) == "new", "a call that is made in some batches only"
    with pytest.raises(StateDiverged, match="left the first batches out"):
        known.judge("s", call_applicant("other", 7, 0))


def test_a_query_and_the_calls_in_its_foreach_batch_are_not_mixed_up() -> None:
    known = served(("q", 0))
    assert known.judge("s", call_applicant("q", 0, 0)) == "new"


def test_what_was_adopted_counts_as_applied_without_outcomes() -> None:
    known = served(("a", 0))
    known.add(version(2, "", 0, a=6, b=2))
    assert known.judge("s", stream_applicant("a", 7)) == "new"
    assert known.judge("s", stream_applicant("b", 3)) == "new"
    for batch in (0, 4, 6):
        assert known.judge("s", stream_applicant("a", batch)) == "given up"


def test_old_batch_data_frames_are_forgotten_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONCE_MAX", 3)
    known = served(*[(f"batch-{number}", 0) for number in range(5)], ("stream", 0))
    assert known.horizon == 2 and known.line("stream") == Line(0, 6)
    assert known.judge("s", once_applicant("4")) == "again"
    assert known.judge("s", once_applicant("new", "state", 5)) == "new"
    for forgotten in ("0", "never seen"):
        with pytest.raises(StateDiverged, match=re.escape("may have been applied")):
            known.judge("s", once_applicant(forgotten, "state", 1))


def test_the_last_batch_of_a_query_needs_the_version_below_its_first_call() -> None:
    known = served(("q/0", 0), ("q/1", 0), ("other", 0), ("q/0", 1), ("q/1", 1))
    assert known.pinned("q") == 4
    assert known.pinned("other") == 3
    assert known.pinned("nobody") == 0


applicants = some.one_of(
    some.builds(stream_applicant, some.sampled_from("ab"), some.integers(0, 6)),
    some.builds(call_applicant, some.sampled_from("cd"), some.integers(0, 6), some.integers(0, 1)),
    some.builds(once_applicant, some.sampled_from("xyz"), some.just("state"), some.integers(0, 20)),
)


@given(some.lists(applicants, max_size=40), some.booleans())
def test_nothing_is_ever_applied_twice_whatever_is_asked_and_stored(asked: list[Applicant], reload: bool) -> None:
    known, applied = Served(), set[tuple[str, int]]()
    for applicant in asked:
        if reload:
            known = Served.from_table(known.to_table())
        try:
            verdict = known.judge("s", applicant)
        except StateDiverged:
            assert (applicant.name, applicant.batch) not in applied
            continue
        if verdict == "new":
            assert (applicant.name, applicant.batch) not in applied
            applied.add((applicant.name, applicant.batch))
            known.add(version(len(applied), applicant.name, applicant.batch))
        elif verdict == "again":
            assert (applicant.name, applicant.batch) in applied
    assert Served.from_table(known.to_table()).lines() == known.lines()
