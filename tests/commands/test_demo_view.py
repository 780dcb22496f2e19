"""The demo counts each batch once and its verdict says what does not hold."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console, RenderableType

from tidegate.commands.demo_view import DemoProgress, live_table, verdict_panel
from tidegate.workloads.ledger import Verdict


def text_of(view: RenderableType) -> str:
    shown = io.StringIO()
    Console(file=shown, width=100).print(view)
    return shown.getvalue()


def verdict(**changes: object) -> Verdict:
    values: dict[str, object] = {
        "events": 1000,
        "accounts": 10,
        "committed": 990,
        "aborted": {"insufficient funds": 10},
        "money": 123456,
        "money_expected": 123456,
        "counting_problems": [],
        "outcome_problems": [],
        "state_problems": [],
    }
    return Verdict(**(values | changes))  # type: ignore[arg-type]


def test_a_batch_that_is_reported_again_counts_once() -> None:
    progress = DemoProgress(100)
    for _ in range(3):
        progress.add_batch(0, 50, 0.5)
    progress.add_batch(1, 50, 0.25)
    assert progress.events == 100
    assert progress.rate == pytest.approx(100 / 0.75)
    assert progress.rate_last == pytest.approx(200)


def test_latency_is_by_nearest_rank() -> None:
    progress = DemoProgress(100)
    for batch in range(100):
        progress.add_batch(batch, 1, (batch + 1) / 1000)
    assert progress.latency(0.5) == 0.050
    assert progress.latency(0.99) == 0.099
    assert progress.latency(1.0) == 0.100


def test_the_table_can_be_drawn_before_the_first_batch() -> None:
    assert "0 ms" in text_of(live_table(DemoProgress(100), "running"))


def test_the_table_shows_aborts_by_reason() -> None:
    progress = DemoProgress(100, committed=90, aborted=Counter({"insufficient funds": 7, "overflow": 3}))
    progress.add_batch(0, 100, 0.2)
    shown = text_of(live_table(progress, "done"))
    assert "insufficient funds" in shown and "overflow" in shown and "500" in shown


def test_a_verdict_that_holds_has_four_ticks() -> None:
    shown = text_of(verdict_panel(verdict(), DemoProgress(1000)))
    assert shown.count("✓") == 4 and "✗" not in shown
    assert "money conserved: 1,234.56" in shown and "verified" in shown


@pytest.mark.parametrize(
    ("changes", "crosses"),
    [
        ({"money": 123455}, 1),
        ({"state_problems": ["1 differ in balance"]}, 1),
        ({"outcome_problems": ["1 differ in result"]}, 1),
        ({"counting_problems": ["1 events have no outcome"]}, 2),
    ],
)
def test_a_verdict_that_does_not_hold_says_so_and_why(changes: dict[str, object], crosses: int) -> None:
    failed = verdict(**changes)
    shown = text_of(verdict_panel(failed, DemoProgress(1000)))
    assert shown.count("✗") == crosses and "NOT" in shown
    assert all(problem in shown for problem in failed.problems)


def test_a_reason_is_shown_to_the_letter() -> None:
    shown = text_of(live_table(DemoProgress(10, aborted=Counter({"[/] \x1b[31m:smile:": 1})), "done"))
    assert r"[/] \x1b[31m:smile:" in shown and "\x1b" not in shown
