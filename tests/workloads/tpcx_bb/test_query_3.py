"""TPCx-BB 3 against its definition: for each purchase all earlier clicks of the user are looked at."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.events import BUY, CART, VIEW, Click, clicks
from tidegate.workloads.tpcx_bb.query_3 import ViewsOfDay, query


def reference(table: pa.Table) -> list[ViewsOfDay]:
    """For each bought item, its list whenever a view counts for it on a later day than the one before."""
    rows = [row for row in table.to_pylist() if row["user"] > 0 and row["item"] > 0]
    counted: list[tuple[int, int, int]] = []  # day, bought, viewed
    for number, row in enumerate(rows):
        if row["action"] != BUY:
            continue
        views = [each for each in rows[:number] if each["user"] == row["user"] and each["action"] == VIEW]
        for each in reversed(views[-5:]):
            if each["item"] != row["item"] and row["time"] - each["time"] <= 10 * 86_400:
                counted.append((row["time"] // 86_400, row["item"], each["item"]))
    found = []
    for number, (day, bought, _) in enumerate(counted):
        before = [entry for entry in counted[:number] if entry[1] == bought]
        if before and before[-1][0] < day:
            views_of = Counter(viewed for _, _, viewed in before)
            best = sorted(views_of.items(), key=lambda entry: (-entry[1], entry[0]))[:30]
            for rank, (viewed, count) in enumerate(best, start=1):
                found.append(ViewsOfDay(before[-1][0], bought, rank, viewed, count))
    return found


def plain() -> PlainPipeline:
    found: PlainPipeline = query(PlainPipeline(Click))
    return found


@pytest.mark.filterwarnings("ignore:operator 'count_views' runs as plain Python")
def test_the_pipeline_gives_what_the_definition_says() -> None:
    table = clicks(4_000, users=20, items=40, rate=0.01)
    assert differs(query(pipeline(Click)).run(table, workers=3), reference(table)) == ""


@pytest.mark.parametrize(
    ("count", "rate", "items"), [(0, 1.0, 5), (300, 0.001, 5), (4_000, 0.01, 40), (4_000, 0.003, 60)]
)
def test_the_plain_functions_give_what_the_definition_says(count: int, rate: float, items: int) -> None:
    table = clicks(count, users=20, items=items, rate=rate)
    wanted = reference(table)
    assert plain().run(table) == wanted
    assert len(wanted) > 100 or count <= 300


def click(time: int, item: int, action: int = VIEW, user: int = 1) -> dict[str, int]:
    return {"time": time, "user": user, "item": item, "action": action}


DAY = 86_400
NEXT_DAY = [click(11 * DAY, 50), click(11 * DAY, 9, BUY)]
"""A purchase of item 9 that shows what came before."""


def viewed(*rows: dict[str, int]) -> list[tuple[int, int]]:
    """The items that count for item 9, with how often, in their order."""
    table = pa.Table.from_pylist([*rows, *NEXT_DAY])
    found = plain().run(table)
    assert found == reference(table)
    assert [each.rank for each in found] == list(range(1, len(found) + 1))
    assert all(each.bought == 9 for each in found)
    return [(each.viewed, each.count) for each in found]


def test_the_last_five_views_count_each_as_often_as_it_was_viewed() -> None:
    views = [click(time, item) for time, item in enumerate([1, 2, 3, 2, 4, 3])]
    assert viewed(*views, click(10, 9, BUY)) == [(2, 2), (3, 2), (4, 1)]


def test_views_older_than_ten_days_of_others_and_of_the_item_itself_do_not_count() -> None:
    assert viewed(click(0, 1), click(1, 2), click(10 * DAY, 9, BUY)) == [(1, 1), (2, 1)]
    assert viewed(click(0, 1), click(1, 2), click(10 * DAY + 1, 9, BUY)) == [(2, 1)]
    assert viewed(click(0, 1, user=2), click(1, 9), click(2, 3), click(3, 9, BUY)) == [(3, 1)]


def test_what_is_put_into_a_cart_is_no_view_and_nobody_is_no_user() -> None:
    assert viewed(click(0, 1, CART), click(1, 2), click(2, 9, BUY)) == [(2, 1)]
    assert viewed(click(0, 1, user=0), click(1, 9, BUY, user=0)) == []


def test_a_purchase_does_not_forget_what_was_viewed_before() -> None:
    assert viewed(click(0, 1), click(1, 9, BUY), click(2, 9, BUY)) == [(1, 2)]


def test_lists_end_after_thirty() -> None:
    views = [click(time, 10 + time) for time in range(40)]
    purchases = [click(time, 9, BUY) for time in range(4, 40, 5)]
    rows = sorted([*views, *purchases], key=lambda row: row["time"])
    assert viewed(*rows) == [(10 + time, 1) for time in range(30)]


def test_the_list_is_emitted_once_a_day() -> None:
    later = [click(DAY, 9, BUY), click(DAY + 1, 9, BUY)]
    table = pa.Table.from_pylist([click(0, 1), click(1, 9, BUY), *later, click(2 * DAY, 9, BUY)])
    found = plain().run(table)
    assert found == reference(table) == [ViewsOfDay(0, 9, 1, 1, 1), ViewsOfDay(1, 9, 1, 1, 3)]
