"""The dynamic ledger: one stream whose character changes thirteen times.

The real job: traffic is never one workload. In the night an exchange sees deposits only, then a few owners
get busy, then everybody trades, and on a bad day half of the trades fail. A schedule that was right an
hour ago is wrong now.

    phase    1        deposits only, scattered keys
    phases   2 -  5   skew rises
    phases   6 -  9   transfers rise to 95 %
    phases  10 - 13   aborts rise

Each phase is a streaming ledger with other knobs; all phases run on the same tables, one after the other. What
one phase reached stays for those after it, except that hot keys cool down when trading starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.workloads.streaming_ledger import MORPHSTREAM, LedgerSettings


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the stream in which the knobs stand still."""

    name: str
    settings: LedgerSettings


def phases(base: LedgerSettings = MORPHSTREAM) -> list[Phase]:
    """The thirteen phases; `base` gives keys, cost, events in a batch, and the seed."""
    calm = replace(base, theta=0.0, transfer_ratio=0.0, abort_ratio=0.0)
    trading = replace(calm, theta=0.2)
    failing = replace(trading, transfer_ratio=0.95)
    skewed = [Phase(f"skew {theta:g}", replace(calm, theta=theta)) for theta in (0.25, 0.5, 0.75, 1.0)]
    traded = [
        Phase(f"transfers {ratio:.0%}", replace(trading, transfer_ratio=ratio)) for ratio in (0.25, 0.5, 0.75, 0.95)
    ]
    failed = [Phase(f"aborts {ratio:.0%}", replace(failing, abort_ratio=ratio)) for ratio in (0.1, 0.3, 0.5, 0.7)]
    return [Phase("deposits only", calm), *skewed, *traded, *failed]
