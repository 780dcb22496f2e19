"""Every way in which the engine can run a program: tests that must hold on all of them read this list."""

from __future__ import annotations

STRATEGIES: tuple[str, ...] = ("serial", "adaptive")
WORKERS: tuple[int, ...] = (1, 2)
CONFIGURATIONS: tuple[tuple[str, int], ...] = tuple(
    (strategy, workers) for strategy in STRATEGIES for workers in WORKERS
)
