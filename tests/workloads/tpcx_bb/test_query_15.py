"""TPCx-BB 15 against its definition: a line through the sales of all days that have ended, by exact fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pytest

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs
from tidegate.ordering import pipeline
from tidegate.workloads.tpcx_bb.events import Sale, sales
from tidegate.workloads.tpcx_bb.query_15 import Declining, query


def slope_of(points: list[tuple[int, int]]) -> Fraction:
    """The slope of the line of least squares, as in any book: covariance by variance."""
    mean_x, mean_y = (Fraction(sum(values), len(points)) for values in zip(*points, strict=True))
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return Fraction(covariance) / sum((x - mean_x) ** 2 for x, _ in points)


def reference(table: pa.Table) -> list[Declining]:
    """At the first sale of a category on a day: the line through all its days before."""
    rows = [row for row in table.to_pylist() if row["quantity"] > 0]
    sold: dict[int, Counter[int]] = {}
    for row in rows:
        sold.setdefault(row["category"], Counter())[row["time"] // 86_400] += row["quantity"] * row["cents"]
    found, seen = [], set()
    for row in rows:
        category, day = row["category"], row["time"] // 86_400
        if (category, day) in seen:
            continue
        seen.add((category, day))
        points = sorted((x, y) for x, y in sold[category].items() if x < day)
        if len(points) >= 2 and slope_of(points) <= 0:
            found.append(Declining(points[-1][0], category, len(points), float(slope_of(points))))
    return found


def plain() -> PlainPipeline:
    found: PlainPipeline = query(PlainPipeline(Sale))
    return found


def test_the_pipeline_gives_what_the_definition_says() -> None:
    table = sales(5_000, stores=1, tills=4, items=100, rate=0.001)
    assert differs(query(pipeline(Sale)).run(table, workers=3), reference(table)) == ""


@pytest.mark.parametrize(("count", "rate"), [(0, 1.0), (200, 0.0005), (5_000, 0.001), (5_000, 0.004)])
def test_the_plain_functions_give_what_the_definition_says(count: int, rate: float) -> None:
    table = sales(count, stores=1, tills=4, items=100, rate=rate)
    wanted = reference(table)
    assert plain().run(table) == wanted
    assert len({each.category for each in wanted}) > 2 or count == 0


def answer(*sales_of_days: tuple[int, int], category: int = 3) -> list[Declining]:
    """What is emitted for sales of (day, cents), one after the other."""
    same = {"store": 1, "till": 1, "ticket": 1, "item": 1, "category": category, "quantity": 1}
    table = pa.Table.from_pylist([{**same, "time": 86_400 * day, "cents": cents} for day, cents in sales_of_days])
    found: list[Declining] = plain().run(table)
    assert found == reference(table)
    return found


def test_a_category_is_emitted_when_its_sales_fall_or_stay() -> None:
    assert answer((0, 500), (1, 300), (2, 1)) == [Declining(1, 3, 2, -200.0)]
    assert answer((0, 500), (1, 500), (2, 1)) == [Declining(1, 3, 2, 0.0)]
    assert answer((0, 500), (1, 501), (2, 1)) == []


def test_two_days_must_have_ended() -> None:
    assert answer((0, 500), (1, 300), (1, 10)) == [] == answer((0, 500), (0, 400), (0, 1))


def test_all_sales_of_a_day_count_and_it_is_emitted_once_a_day() -> None:
    assert answer((0, 500), (1, 300), (1, 300), (2, 1)) == []
    assert answer((0, 500), (1, 300), (2, 1), (2, 1)) == [Declining(1, 3, 2, -200.0)]


def test_a_day_without_sales_is_no_point() -> None:
    assert answer((0, 500), (10, 400), (20, 1)) == [Declining(10, 3, 2, -10.0)]
