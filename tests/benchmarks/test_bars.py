from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from tidegate.benchmarks.bars import Bar, Sense, number, render_bars


@pytest.mark.parametrize(
    ("sense", "found", "passed"),
    [
        (">", 1.0, False), (">", 1.001, True),
        ("≥", 1.0, True), ("≥", 0.999, False),
        ("≤", 1.0, True), ("≤", 1.001, False),
        (">", math.nan, False), ("≥", math.nan, False), ("≤", math.nan, False),
    ],
)  # fmt: skip
def test_a_bar_is_reached_or_missed(sense: Sense, found: float, passed: bool) -> None:
    assert Bar("a number", found, sense, 1.0).passed is passed


@pytest.mark.parametrize(
    ("value", "text"), [(0.95833, "0.9583"), (50.0, "50"), (1e7, "10,000,000"), (0.9996, "0.9996"), (1000, "1,000")]
)
def test_numbers_are_written_so_that_they_can_be_compared(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_shows_what_was_measured_and_what_is_required() -> None:
    text = io.StringIO()
    bars = [Bar("share of points", 0.91, "≥", 0.95), Bar("bytes", 62.0, "≤", 200.0)]
    Console(width=100, file=text).print(render_bars(bars))
    lines = [" ".join(line.split()) for line in text.getvalue().splitlines()]
    assert "share of points 0.91 ≥ 0.95 ✗" in lines and "bytes 62 ≤ 200 ✓" in lines


def test_a_record_is_json() -> None:
    told = json.loads(json.dumps(Bar("a ratio", 1.23456, ">", 1.0).as_record()))
    assert told == {"what": "a ratio", "found": 1.2346, "sense": ">", "bar": 1.0, "passed": True}
