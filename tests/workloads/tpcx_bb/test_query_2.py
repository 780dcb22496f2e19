"""TPCx-BB 2 against its definition: clicks are cut into sessions, and sessions are sets of items."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.events import Click, clicks
from tidegate.workloads.tpcx_bb.query_2 import FREQUENT, query
from tidegate.workloads.tpcx_bb.top_lists import Ranked


def reference(table: pa.Table) -> list[Ranked]:
    """The list at the end of every hour in which a session ended with a frequent pair, but for the last of them."""
    rows = [row for row in table.to_pylist() if row["user"] and row["item"]]
    ended: list[tuple[int, int, set[int]]] = []  # the row that shows it, its hour, the items
    for user in {row["user"] for row in rows}:
        own = [(number, row) for number, row in enumerate(rows) if row["user"] == user]
        items: list[int] = []
        for (_, before), (number, row) in itertools.pairwise(own):
            items.append(before["item"])
            if row["time"] - before["time"] > 3600:
                ended.append((number, row["time"] // 3600, set(list(dict.fromkeys(items))[:12])))
                items = []
    counts: Counter[tuple[int, int]] = Counter()
    lists: dict[int, list[tuple[int, int, int]]] = {}
    for _, hour, basket in sorted(ended, key=lambda entry: entry[0]):
        pairs = list(itertools.combinations(sorted(basket), 2))
        counts.update(pairs)
        if any(counts[pair] >= 5 for pair in pairs):
            lists[hour] = sorted((-count, *pair) for pair, count in counts.items() if count >= 5)[:30]
    return [
        Ranked(hour, rank, one, other, -negative)
        for hour in sorted(lists)[:-1]
        for rank, (negative, one, other) in enumerate(lists[hour], start=1)
    ]


def plain() -> PlainPipeline:
    found: PlainPipeline = query(PlainPipeline(Click))
    return found


def test_the_pipeline_gives_what_the_definition_says() -> None:
    table = clicks(5_000, users=20, items=40, rate=0.05)
    assert differs(query(pipeline(Click)).run(table, workers=3), reference(table)) == ""


@pytest.mark.parametrize(
    ("count", "rate", "items"), [(0, 1.0, 5), (300, 0.01, 5), (5_000, 0.05, 40), (5_000, 0.02, 12)]
)
def test_the_plain_functions_give_what_the_definition_says(count: int, rate: float, items: int) -> None:
    table = clicks(count, users=20, items=items, rate=rate)
    wanted = reference(table)
    assert plain().run(table) == wanted
    assert FREQUENT == 5 and (len({ranked.hour for ranked in wanted}) > 5 or count <= 300)


def visit(user: int, time: int, *items: int) -> list[dict[str, int]]:
    return [{"time": time, "user": user, "item": item, "action": 0} for item in items]


def answer(*visits: list[dict[str, int]]) -> list[Ranked]:
    rows = [row for each in visits for row in each]
    table = pa.Table.from_pylist(rows, pa.schema([(name, pa.int64()) for name in ("time", "user", "item", "action")]))
    found: list[Ranked] = plain().run(table)
    assert found == reference(table)
    return found


def everyone(time: int, *items: int, users: int = 5) -> list[dict[str, int]]:
    return [row for user in range(1, users + 1) for row in visit(user, time, *items)]


def test_a_session_ends_when_the_next_click_is_more_than_an_hour_later() -> None:
    after = [everyone(4 * 3600 + 1, 1, 2), everyone(8 * 3600, 1, 2)]
    assert answer(everyone(100, 7, 5), everyone(3700, 9), *after)[0] == Ranked(4, 1, 5, 7, 5)
    found = answer(everyone(100, 7, 5), everyone(3700, 9), *after)
    assert [(ranked.first, ranked.second) for ranked in found] == [(5, 7), (5, 9), (7, 9)], (
        "exactly an hour is not more"
    )
    found = answer(everyone(100, 7, 5), everyone(3701, 9), *after)
    assert [(ranked.first, ranked.second) for ranked in found] == [(5, 7)]


def test_a_pair_counts_once_for_a_session_and_a_session_that_goes_on_does_not_count() -> None:
    assert answer(everyone(0, 5, 7, 5, 7)) == []
    assert answer(everyone(0, 5, 7, 5, 7, users=4), everyone(9000, 1, users=4), everyone(99_999, 1)) == []


def test_counts_are_of_all_time() -> None:
    times = [hour * 7200 for hour in range(4)]
    found = answer(*(everyone(time, 5, 7) for time in times))
    assert [(ranked.hour, ranked.count) for ranked in found] == [(2, 5), (4, 10)]


def test_nobody_and_no_item_do_not_matter() -> None:
    nobody = visit(0, 10, 5, 7) * 20 + visit(0, 20_000, 5, 7) * 20
    assert answer(everyone(0, 5, 0, users=5), nobody, everyone(90_000, 0, 7), everyone(190_000, 1)) == []


def test_of_a_session_with_more_than_twelve_items_the_first_twelve_count() -> None:
    found = answer(everyone(0, *range(1, 15)), everyone(9_000, *range(1, 15)), everyone(19_000, 1))
    assert len(found) == 30 and max(ranked.second for ranked in found) <= 12
