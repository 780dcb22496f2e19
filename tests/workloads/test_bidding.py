from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.workloads.bidding import TSTREAM, Bidding, Item, alter, bid, top
from tidegate.workloads.workload import Run

SMALL = replace(TSTREAM, keys=100, batch_events=4_000, abort_ratio=0.1)


@pytest.mark.parametrize(
    ("price", "quantity", "reason"), [(9, 1, "price too low"), (10, 6, "not enough left"), (9, 6, "price too low")]
)
def test_a_bid_needs_the_price_and_the_quantity(price: int, quantity: int, reason: str) -> None:
    with pytest.raises(tg.Abort, match=reason):
        bid(Item(1, price=10, quantity=5), price, quantity, 0)


def test_a_bid_that_is_right_takes_stock() -> None:
    assert bid(Item(1, price=10, quantity=5), 10, 5, 0) == 0


def test_sellers_change_several_items_at_once() -> None:
    items = [Item(1, 10, 5), Item(2, 20, 6)]
    assert alter(items, [11, 21], 0) == top(items, [1, 2], 0) == 2
    assert [(item.price, item.quantity) for item in items] == [(11, 6), (21, 8)]
    with pytest.raises(tg.Abort, match="no such price"):
        alter(items, [1, 0], 0)
    with pytest.raises(tg.Abort, match="no such quantity"):
        top(items, [1, -9], 0)


def test_bids_alters_and_tops_come_six_to_one_to_one() -> None:
    counts = Counter(Bidding(SMALL).batch(0)["transaction"].to_pylist())
    assert counts["bid"] / 4_000 == pytest.approx(6 / 8, abs=0.03)
    assert counts["alter"] / 4_000 == pytest.approx(1 / 8, abs=0.02)
    assert counts["top"] / 4_000 == pytest.approx(1 / 8, abs=0.02)


def test_lists_have_twenty_different_items() -> None:
    for row in Bidding(SMALL).batch(0).to_pylist():
        given = {"bid": "item", "alter": "prices", "top": "quantities"}
        assert all((row[column] is not None) == (column == given[row["transaction"]]) for column in given.values())
        if row["transaction"] != "bid":
            assert len(set(row["items"])) == len(row[given[row["transaction"]]]) == 20


def test_every_way_to_abort_occurs() -> None:
    workload = Bidding(SMALL)
    reasons = set(workload.run([workload.batch(0)]).outcomes[0]["reason"].drop_null().to_pylist())
    assert reasons == {"price too low", "not enough left", "no such price", "no such quantity"}


def test_stock_that_is_lost_or_below_zero_breaks_the_promise() -> None:
    workload = Bidding(SMALL)
    events, opening = workload.batch(0), workload.opening()
    run = workload.run([events])
    assert workload.broken_promises(opening, events, run) == []
    rows = run.rows[Item]
    quantities = rows["quantity"].to_pylist()
    fewer = rows.set_column(2, "quantity", pc.subtract(rows["quantity"], 1))
    assert workload.broken_promises(opening, events, Run(run.outcomes, {Item: fewer})) == ["stock not conserved: -100"]
    moved = [-1, quantities[1] + quantities[0] + 1, *quantities[2:]]
    below = rows.set_column(2, "quantity", pa.array(moved))
    found = workload.broken_promises(opening, events, Run(run.outcomes, {Item: below}))
    assert found == ["an item was sold that was not there"]
