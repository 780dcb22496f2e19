"""Small contended batches on interleaved workers: whatever the schedule, the outcome is that of serial execution.

A play is a function of its seed, which draws the events, the number of workers and the schedule. Pieces of work that
workers take at a time are made small, and all workers take part in everything, so that few events conflict often.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore
from tidegate.engine.execution import families, runner, scheduler
from tidegate.engine.kernels import execution
from tidegate.engine.planning import builder
from tidegate.foundation.jit import uncompiled
from tidegate.operations.decision import Strategy

from ..accounts import Account, collect, deposit, multiply, transfer
from .interleaver import InterleavedWorkers
from .kernels import plain_kernels
from .schedules import Schedule, Seeded


@tg.transaction
def raise_by(dst: Account, src: Account) -> int:
    """Reads one row and writes another; does not commute with anything."""
    tg.require(dst.balance < 500, "rich enough")
    dst.balance = dst.balance * 2 + src.balance
    return dst.balance


@tg.transaction
def charge(src: Account, dst: Account, value: int) -> None:
    """Two operations that may both fail: the first reason counts."""
    tg.require(src.balance >= value, "insufficient funds")
    src.balance -= value
    tg.require(dst.balance < 60, "full")
    dst.balance += value


@tg.transaction
def look(src: Account) -> int:
    return src.balance


TRANSACTIONS = (deposit, transfer, raise_by, charge, collect, multiply, look)
PROGRAM = build_program(TRANSACTIONS)
OPENING = pa.table({"id": np.arange(5), "balance": np.full(5, 50), "notes": np.zeros(5, np.int64), "rate": np.ones(5)})
LARGE = 2**62


def some_events(seed: int, count_max: int = 9, keys_max: int = 5) -> dict[str, Any]:
    """Events over few rows; in some batches one of them needs plain Python."""
    rng = np.random.default_rng([7, seed])
    count, keys = int(rng.integers(2, count_max + 1)), int(rng.integers(1, keys_max + 1))
    names = [transaction.__name__ for transaction in TRANSACTIONS]
    values = rng.integers(0, 90, count)
    if rng.random() < 0.1:
        values[rng.integers(count)] = LARGE
    return {
        "transaction": rng.choice(names, count, p=[0.15, 0.25, 0.2, 0.2, 0.1, 0.05, 0.05]).tolist(),
        "src": rng.integers(0, keys, count).tolist(),
        "dst": rng.integers(0, keys, count).tolist(),
        "others": [rng.integers(0, keys, rng.integers(0, 4)).tolist() for _ in range(count)],
        "value": values.tolist(),
    }


def outcome(strategy: Strategy, workers: int, events: dict[str, Any]) -> tuple[Any, Any]:
    """What events give on an engine of their own (None if they are interrupted), and the rows they leave."""
    with uncompiled():
        core = EngineCore(PROGRAM, strategy=strategy, workers=workers)
        core.load("Account", OPENING)
        try:
            result = core.run(pa.table({**events, "others": pa.array(events["others"], pa.list_(pa.int64()))}))
        except KeyboardInterrupt:
            return None, core.rows("Account")
    return result.outcomes.to_pydict(), core.rows("Account")


@contextmanager
def small_pieces(accesses: bool = False) -> Iterator[None]:
    """Inside this block kernels are plain Python, and even the smallest batch is shared among all workers."""
    with plain_kernels(accesses), pytest.MonkeyPatch.context() as patch:
        if accesses:  # building and installing need no atomic operation
            patch.setattr(builder, "PARALLEL_EVENTS", 1)
            patch.setattr(scheduler, "PARALLEL_ACCESSES", 1)
        patch.setattr(families, "PARALLEL_EVENTS", 1)
        patch.setattr(families, "BUNDLE_EVENTS", 1)
        patch.setattr(execution, "CHUNK", 1)
        patch.setattr(execution, "UNITS_TAKEN", 2)
        yield


def play(
    seed: int, strategy: Strategy, schedule: Schedule | None = None, finds_races: bool = False, interrupts: bool = False
) -> bool:
    """Run a batch under a schedule and compare it with serial execution; returns whether it was interrupted.

    A batch that is interrupted leaves the rows as they were.
    """
    events = some_events(seed)
    workers = 2 + seed % 2
    interleaved = InterleavedWorkers(workers, schedule or Seeded(seed), finds_races, interrupts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "Workers", lambda _: interleaved)
        outcomes, rows = outcome(strategy, workers, events)
    expected = (None, OPENING) if outcomes is None else outcome("serial", 1, events)
    assert (outcomes, rows.to_pydict()) == (expected[0], expected[1].to_pydict()), (
        f"{strategy} on {workers} workers is not as serial execution: {events}"
    )
    return outcomes is None
