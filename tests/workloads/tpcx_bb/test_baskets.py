from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.workloads.tpcx_bb import baskets
from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX, PLACES

items = st.integers(1, ITEMS_MAX)


@given(st.lists(items | st.just(ITEMS_MAX), min_size=1, max_size=PLACES), items)
def test_a_basket_gives_back_what_was_put_into_it(put: list[int], other: int) -> None:
    words = [0, 0, 0, 0]
    for place, item in enumerate(put):
        words = [baskets.word_with(word, 3 * number, item, place) for number, word in enumerate(words)]
    a, b, c, d = words
    assert [baskets.item_at(a, b, c, d, place) for place in range(len(put))] == put
    assert baskets.holds(a, b, c, d, len(put), other) is (other in put)
    assert baskets.holds(a, b, c, d, len(put) - 1, put[-1]) is (put[-1] in put[:-1])
    assert max(words) < 2**63


@given(items, items)
def test_a_pair_is_one_number_for_both_orders(one: int, other: int) -> None:
    pair = baskets.pair_of(one, other)
    assert pair == baskets.pair_of(other, one) < 2**40
    assert (baskets.smaller_of(pair), baskets.larger_of(pair)) == (min(one, other), max(one, other))
