"""Says at the end of the run how many random programs were compared, in one process or in many.

Tests report with `record_property`, which travels with the test's report from xdist's workers.
"""

from __future__ import annotations

import collections
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    totals: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, value in report.user_properties:
                    if str(name).startswith("compared "):
                        totals[name.removeprefix("compared ")] += value
    if totals:
        parts = ", ".join(f"{count:,} {name}" for name, count in totals.items())
        terminalreporter.write_line(f"the engine was compared with the oracle on random input: {parts}")
