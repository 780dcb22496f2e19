"""TPCx-BB 4 against its definition: clicks are cut into sessions, and abandoned ones are averaged."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pyarrow as pa
import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.events import BUY, CART, VIEW, Click, clicks
from tidegate.workloads.tpcx_bb.query_4 import Abandonment, query


def reference(table: pa.Table) -> list[Abandonment]:
    """The average at the end of every hour in which an abandoned session ended, but for the last of them."""
    rows = [row for row in table.to_pylist() if row["user"]]
    abandoned: list[tuple[int, int]] = []  # the hour in which it was known, pages
    for user in {row["user"] for row in rows}:
        actions: list[int] = []
        for before, row in itertools.pairwise(row for row in rows if row["user"] == user):
            actions.append(before["action"])
            if row["time"] - before["time"] > 3600:
                if CART in actions and BUY not in actions:
                    abandoned.append((row["time"] // 3600, len(actions)))
                actions = []
    found = []
    for hour in sorted({hour for hour, _ in abandoned})[:-1]:
        pages = [pages for ended, pages in abandoned if ended <= hour]
        found.append(Abandonment(hour, len(pages), float(Fraction(sum(pages), len(pages)))))
    return found


def plain() -> PlainPipeline:
    found: PlainPipeline = query(PlainPipeline(Click))
    return found


def test_the_pipeline_gives_what_the_definition_says() -> None:
    table = clicks(5_000, users=20, items=40, rate=0.05)
    assert differs(query(pipeline(Click)).run(table, workers=3), reference(table)) == ""


@pytest.mark.parametrize(("count", "rate"), [(0, 1.0), (300, 0.01), (5_000, 0.05), (5_000, 0.01)])
def test_the_plain_functions_give_what_the_definition_says(count: int, rate: float) -> None:
    table = clicks(count, users=20, items=40, rate=rate)
    wanted = reference(table)
    assert plain().run(table) == wanted
    assert len(wanted) > 10 or count <= 300


def visit(user: int, time: int, *actions: int) -> list[dict[str, int]]:
    return [{"time": time, "user": user, "item": 1, "action": action} for action in actions]


def answer(*visits: list[dict[str, int]]) -> list[tuple[int, float]]:
    """Sessions and average at the end of hour 4, when visits that began before are over."""
    later = [visit(user, time, CART) for time in (4 * 3600, 9 * 3600, 19 * 3600) for user in (1, 2)]
    table = pa.Table.from_pylist([row for each in (*visits, *later) for row in each])
    found: list[Abandonment] = plain().run(table)
    assert found == reference(table)
    return [(each.sessions, each.pages) for each in found if each.hour == 4]


def test_a_cart_that_is_left_behind_counts_with_all_pages_of_the_session() -> None:
    assert answer(visit(1, 0, VIEW, CART, VIEW)) == [(1, 3.0)]
    assert answer(visit(1, 0, VIEW, CART, VIEW), visit(2, 10, CART, CART)) == [(2, 2.5)]


def test_sessions_that_buy_or_only_look_do_not_count() -> None:
    assert answer(visit(1, 0, VIEW, CART, BUY), visit(2, 10, VIEW)) == []
    assert answer(visit(1, 0, BUY, CART), visit(2, 10, CART)) == [(1, 1.0)]


def test_exactly_an_hour_is_still_the_same_session() -> None:
    assert answer(visit(1, 0, CART), visit(1, 3600, VIEW)) == [(1, 2.0)]
    assert answer(visit(1, 0, VIEW), visit(1, 3601, CART)) == [(1, 1.0)]


def test_nobody_is_no_user() -> None:
    assert answer(visit(0, 0, CART), visit(1, 10, CART)) == [(1, 1.0)]
