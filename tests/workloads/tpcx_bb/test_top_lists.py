from __future__ import annotations

import inspect
import textwrap
import typing
from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.workloads.tpcx_bb import top_lists
from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX, pair_of
from tidegate.workloads.tpcx_bb.top_lists import Counted, Ranked, top_list

pairs = st.builds(pair_of, st.integers(1, 4) | st.just(ITEMS_MAX), st.integers(1, 4) | st.just(ITEMS_MAX))


@pytest.mark.parametrize("begins_again", [True, False])
@given(size=st.integers(1, 6), stream=st.lists(st.tuples(st.integers(0, 1), pairs), max_size=60))
def test_the_list_of_an_hour_is_that_of_all_its_counts(
    begins_again: bool, size: int, stream: list[tuple[int, int]]
) -> None:
    operator = top_list(size, begins_again=begins_again)
    state = next(iter(typing.get_type_hints(operator).values()))()
    counts: Counter[int] = Counter()
    hour, found, wanted = 0, [], []
    for hours_later, pair in stream:
        if hours_later:
            best = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:size]
            for rank, (listed, count) in enumerate(best, start=1):
                wanted.append(Ranked(hour, rank, listed >> 20, listed % 2**20, count))
            hour += 1
            if begins_again:
                counts.clear()
        counts[pair] += 1
        found += operator(state, Counted(hour, pair, counts[pair]))
    assert found == wanted


def test_what_the_docstring_shows_is_what_is_written() -> None:
    shown = textwrap.indent(top_lists.source_for(2, begins_again=True), "    ")
    assert shown in (top_lists.__doc__ or "")


def test_a_state_has_a_plain_field_for_each_entry_and_the_operator_has_a_source() -> None:
    operator = top_list(30, begins_again=False)
    hints = typing.get_type_hints(operator)
    assert hints["counted"] is Counted and hints["return"] == list[Ranked]
    assert [each.name for each in fields(hints["state"])] == ["hour", *(f"entry_{place}" for place in range(30))]
    assert inspect.getsource(operator) == top_lists.source_for(30, begins_again=False)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 1 or more; got 0"):
        top_list(0, begins_again=True)
