"""TPCx-BB 1 against its definition: tickets are sets of items, and their pairs are counted hour by hour."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.events import Sale, sales
from tidegate.workloads.tpcx_bb.query_1 import FREQUENT, query
from tidegate.workloads.tpcx_bb.top_lists import Ranked


def reference(table: pa.Table) -> list[Ranked]:
    """Every hour that has frequent pairs, but for the last of them."""
    tickets: dict[int, dict[int, int]] = {}  # ticket: item: time of its first line
    for row in table.to_pylist():
        if row["quantity"] > 0:
            items = tickets.setdefault(row["ticket"], {})
            if len(items) < 12:
                items.setdefault(row["item"], row["time"])
    sold: dict[int, Counter[tuple[int, int]]] = {}
    for items in tickets.values():
        for one, other in itertools.combinations(sorted(items), 2):
            hour = max(items[one], items[other]) // 3600
            sold.setdefault(hour, Counter())[one, other] += 1
    lists = {}
    for hour, counts in sold.items():
        frequent = [(-count, *pair) for pair, count in counts.items() if count >= 3]
        if frequent:
            lists[hour] = sorted(frequent)[:100]
    return [
        Ranked(hour, rank, one, other, -negative)
        for hour in sorted(lists)[:-1]
        for rank, (negative, one, other) in enumerate(lists[hour], start=1)
    ]


def plain() -> PlainPipeline:
    found: PlainPipeline = query(PlainPipeline(Sale))
    return found


def test_the_pipeline_gives_what_the_definition_says() -> None:
    table = sales(6_000, stores=2, tills=4, items=60, rate=0.5)
    assert differs(query(pipeline(Sale)).run(table, workers=3), reference(table)) == ""


@pytest.mark.parametrize(("count", "rate", "items"), [(0, 1.0, 5), (200, 0.01, 5), (6_000, 0.5, 60), (6_000, 0.2, 9)])
def test_the_plain_functions_give_what_the_definition_says(count: int, rate: float, items: int) -> None:
    table = sales(count, stores=2, tills=4, items=items, rate=rate)
    wanted = reference(table)
    assert plain().run(table) == wanted
    assert FREQUENT == 3 and (len({ranked.hour for ranked in wanted}) > 2 or count <= 200)


def test_long_lists_end_after_a_hundred() -> None:
    table = sales(6_000, items=30, rate=1.0, theta=0.0)
    wanted = reference(table)
    assert max(ranked.rank for ranked in wanted) == 100
    assert plain().run(table) == wanted


def sale(time: int, ticket: int, item: int, quantity: int = 1, till: int = 1) -> dict[str, int]:
    return {
        **{"time": time, "store": 1, "till": till, "ticket": ticket, "item": item},
        **{"category": 1, "quantity": quantity, "cents": 100},
    }


def answer(*rows: dict[str, int]) -> list[Ranked]:
    table = pa.Table.from_pylist(list(rows))
    found: list[Ranked] = plain().run(table)
    assert found == reference(table)
    return found


def sold(time: int, first_ticket: int, times: int, *items: int) -> list[dict[str, int]]:
    """The same items on several tickets."""
    return [sale(time, first_ticket + number, item) for number in range(times) for item in items]


def test_a_pair_is_frequent_from_three_tickets_on_and_is_listed_when_the_hour_is_over() -> None:
    assert answer(*sold(0, 1, 2, 5, 7), *sold(3600, 10, 3, 1, 2)) == []
    assert answer(*sold(0, 1, 3, 7, 5), *sold(3599, 20, 1, 1, 2)) == []
    assert answer(*sold(0, 1, 3, 7, 5), *sold(3600, 20, 3, 1, 2)) == [Ranked(0, 1, 5, 7, 3)]


def test_counts_begin_again_every_hour() -> None:
    assert answer(*sold(0, 1, 2, 5, 7), *sold(3600, 10, 2, 5, 7), *sold(7200, 20, 3, 5, 7)) == []


def test_an_item_twice_on_a_ticket_and_returns_count_for_nothing() -> None:
    assert answer(*sold(0, 1, 2, 5, 7, 5, 7), *sold(3600, 10, 3, 1, 2)) == []
    returned = [sale(0, ticket, item, quantity=-1) for ticket in range(1, 4) for item in (5, 7)]
    assert answer(*returned, *sold(3600, 10, 3, 1, 2)) == []


def test_of_a_ticket_with_more_than_twelve_items_the_first_twelve_count() -> None:
    found = answer(*sold(0, 1, 3, *range(1, 15)), *sold(3600, 10, 3, 1, 2))
    assert len(found) == 66 and max(ranked.second for ranked in found) == 12


def test_tickets_of_two_tills_do_not_mix() -> None:
    rows = [sale(0, 10 * till + number, item, till=till) for number in range(3) for item in (5, 7) for till in (1, 2)]
    assert answer(*rows, *sold(3600, 50, 3, 1, 2)) == [Ranked(0, 1, 5, 7, 6)]
