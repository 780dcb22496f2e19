"""Bars: what a number must reach, and whether it did.

A bar on the speed beside an experiment's reference belongs to the experiment (`Experiment.bars`). This is for every
other number: a share of points, bytes for an operation, the speed beside the best of many.

    bar                                        measured        required
    operations/s and core, streaming ledger    31,200,000      ≥ 10,000,000 ✓
    bytes/operation, streaming ledger          62              ≤ 200 ✓

What is not a number reaches no bar.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table

from tidegate.benchmarks.harness import plain_table

Sense = Literal[">", "≥", "≤"]
_HOLDS: dict[Sense, Callable[[float, float], bool]] = {">": operator.gt, "≥": operator.ge, "≤": operator.le}


@dataclass(frozen=True, slots=True)
class Bar:
    """One number beside the one that it must reach."""

    what: str
    found: float
    sense: Sense
    limit: float

    @property
    def passed(self) -> bool:
        """Whether it was reached."""
        return _HOLDS[self.sense](self.found, self.limit)

    @property
    def style(self) -> str:
        """The colour of what was reached or missed."""
        return "green" if self.passed else "red"

    def __str__(self) -> str:
        return self.shown()

    def shown(self, unit: str = "") -> str:
        """What was required, and whether it was reached."""
        return f"{self.sense} {number(self.limit)}{unit} {'✓' if self.passed else '✗'}"

    def as_record(self) -> dict[str, Any]:
        """What a record says of it."""
        return {
            "what": self.what,
            "found": round(self.found, 4),
            "sense": self.sense,
            "bar": self.limit,
            "passed": self.passed,
        }


def number(value: float) -> str:
    """A number as it is easiest to compare: 31,200,000 or 0.9583."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def render_bars(bars: Sequence[Bar]) -> Table:
    """The bars as a table for a terminal."""
    table = plain_table("Bars", ["bar"], ["measured", "required"])
    table.columns[0].no_wrap = False
    for bar in bars:
        table.add_row(bar.what, number(bar.found), str(bar), style=bar.style)
    return table
