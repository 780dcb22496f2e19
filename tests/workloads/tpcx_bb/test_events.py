from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.workloads.tpcx_bb import events
from tidegate.workloads.tpcx_bb.baskets import ITEMS_MAX

MAKERS = [events.clicks, events.sales]


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_seed_gives_the_same_events_and_another_seed_others(make: Any) -> None:
    assert make(500).equals(make(500)) and not make(500).equals(make(500, seed=2))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("count", [0, 1, 2, 999])
def test_there_are_as_many_events_as_asked_for_and_time_never_goes_back(make: Any, count: int) -> None:
    table = make(count)
    assert table.num_rows == count and set(table.schema.types) == {pa.int64()}
    time = table["time"].to_numpy()
    assert (np.diff(time) >= 0).all() and (time >= 0).all()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("rate", [0.1, 2.0])
def test_the_rate_decides_over_how_much_time_the_events_go(make: Any, rate: float) -> None:
    last = make(20_000, rate=rate)["time"].to_numpy().max()
    assert 0.9 * 20_000 / rate < last < 1.2 * 20_000 / rate + events.HOUR


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"items": 0}, "items is from 1"),
        ({"items": ITEMS_MAX + 1}, "so that a basket can hold them"),
        ({"rate": 0.0}, "rate is more than 0"),
        ({"rate": float("nan")}, "rate is more than 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(make: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(10, **wrong)
    with pytest.raises(ValueError, match="count is 0 or more"):
        make(-1)


def test_popular_items_have_small_numbers() -> None:
    for table in (events.clicks(20_000, items=50), events.sales(20_000, items=50)):
        found = Counter(item for item in table["item"].to_pylist() if item)
        assert found.keys() == set(range(1, 51)) and found[1] > 2 * found[5] > 4 * found[50]


def test_visits_browse_fill_carts_and_some_of_them_buy() -> None:
    found = Counter(events.clicks(20_000)["action"].to_pylist())
    assert found[events.VIEW] > 10 * found[events.CART] > 15 * found[events.BUY] > 1_000
    users = set(events.clicks(20_000, users=30)["user"].to_pylist())
    assert users == set(range(31)), "user 0 did not log in"


@pytest.mark.parametrize("rate", [0.01, 10.0, 10_000.0])
def test_a_till_works_on_one_ticket_at_a_time(rate: float) -> None:
    table = events.sales(5_000, stores=2, tills=3, rate=rate)
    tickets: dict[int, list[int]] = {}
    for till, ticket in zip(table["till"].to_pylist(), table["ticket"].to_pylist(), strict=True):
        tickets.setdefault(till, []).append(ticket)
    assert len(tickets) == 6
    for till in tickets:
        seen = tickets[till]
        changes = sum(one != other for one, other in itertools.pairwise(seen))
        assert changes == len(set(seen)) - 1, "the lines of a ticket stand together"
    sizes = Counter(table["ticket"].to_pylist()).values()
    assert 1 <= min(sizes) <= max(sizes) <= events.ITEMS_OF_TICKET and max(sizes) > 6


def test_an_item_has_one_category_and_some_lines_are_returns() -> None:
    table = events.sales(5_000)
    pairs = set(zip(table["item"].to_pylist(), table["category"].to_pylist(), strict=True))
    assert len(pairs) == len({item for item, _ in pairs})
    assert {category for _, category in pairs} == set(range(1, events.CATEGORIES + 1))
    returned = sum(quantity < 0 for quantity in table["quantity"].to_pylist())
    assert 0 < returned < 200 and 0 not in table["quantity"].to_pylist()
    assert min(table["cents"].to_pylist()) > 0
