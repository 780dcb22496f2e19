"""Every way in which the engine can run a program: tests that must hold on all of them read this list.

`unsafe-nolock` is not here: it is wrong by design, and has a test of its own that says so.
"""

from __future__ import annotations

import itertools

from tidegate.operations.decision import DECISIONS, Chains, Families, Partitioned, Published, Strategy

STRATEGIES: tuple[Strategy, ...] = (
    "serial",
    "adaptive",
    "lock",
    "mvlk",
    "partitioned",
    Partitioned(2),
    "chains",
    Chains("shared-everything"),
    Published(),
    Families(),
    *DECISIONS,
)
WORKERS: tuple[int, ...] = (1, 2, 3, 8)

CONFIGURATIONS: tuple[tuple[Strategy, int], ...] = tuple((strategy, 2) for strategy in STRATEGIES)
"""Each strategy once, for tests that run on all of them."""

COMBINATIONS: tuple[tuple[Strategy, int], ...] = tuple(itertools.product(STRATEGIES, WORKERS))
"""Each strategy with each number of workers, for tests that take some of them in turn."""
