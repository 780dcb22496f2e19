"""Questions about strings, against Python: every answer is the same, by code points, also while the pool grows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.engine.kernels.texts import compare_texts, text_ends, text_in, text_length, text_starts
from tidegate.engine.state.strings import StringPool

LETTERS = "aab\0é\u0301ß\ud7ff\ue000\uffff\U00010000😀\U0010ffff"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=6) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_every_answer_is_that_of_python(one: str, other: str) -> None:
    pool = StringPool()
    texts, first, second = pool.places, pool.number(one), pool.number(other)
    assert text_length(texts, first) == len(one)
    assert compare_texts(texts, first, second) == (one > other) - (one < other)
    assert text_in(texts, first, second) == (one in other)
    assert text_starts(texts, first, second) == one.startswith(other)
    assert text_ends(texts, first, second) == one.endswith(other)


def test_a_part_is_found_wherever_it_stands() -> None:
    pool = StringPool()
    whole = "naïve 😀 text, naïve"
    number = pool.number(whole)
    for begin in range(len(whole) + 1):
        for end in range(begin, len(whole) + 1):
            assert text_in(pool.places, pool.number(whole[begin:end]), number)


def test_where_strings_are_is_known_while_the_pool_grows() -> None:
    pool = StringPool(capacity=4)
    places, written = pool.places, [f"text {n} 😀" * (n % 7) for n in range(500)]
    numbers = [pool.number(text) for text in written]
    assert places is pool.places, "compiled code holds this array"
    assert [text_length(places, number) for number in numbers] == [len(text) for text in written]


def test_arrays_that_the_pool_left_can_still_be_read_until_nobody_does() -> None:
    pool = StringPool(capacity=4)
    number, before = pool.number("käse"), pool.places.copy()
    for n in range(200):
        pool.number(f"{n}" * 50)
    assert not np.array_equal(before, pool.places)
    assert text_length(before, number) == 4
    pool.let_go()
    assert text_length(pool.places, number) == 4
