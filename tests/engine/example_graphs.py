"""Random batches with their graphs, as the engine builds them: for tests of code that works on graphs.

The program has transactions of many shapes: one row, two rows that split, four rows of two tables, lists that
split and lists that do not, readers only. A test takes some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.batch import Batch
from tidegate.engine.core import EngineCore
from tidegate.engine.execution.scheduler import Run
from tidegate.engine.planning.builder import GraphBuilder, Plan

from ..accounts import Account, Asset, deposit, transfer


@tg.transaction
def swap(src: Account, dst: Account, have: Asset, want: Asset, value: int) -> int:
    src.balance -= value
    dst.balance += value
    have.amount -= 1
    want.amount += 1
    tg.require(src.balance >= 0, "insufficient funds")
    tg.require(have.amount >= -3, "insufficient assets")
    return want.amount


@tg.transaction
def look(src: Account, have: Asset) -> int:
    return src.balance + have.amount


@tg.transaction
def price(src: Account, want: Asset) -> int:
    want.amount = want.amount + src.balance % 7
    return want.amount


@tg.transaction
def follow(src: Account, dst: Account) -> int:
    """One operation; where both are the same row, it is read under one name and written under the other."""
    dst.balance = dst.balance + src.balance % 5
    return dst.balance


@tg.transaction
def spend(src: Account, want: Asset, value: int) -> int:
    """Two operations, of which the second reads the row that the first writes, as it was before."""
    before = src.balance
    src.balance = src.balance - value
    want.amount = want.amount + before
    return want.amount


@tg.transaction
def share(src: Account, others: list[Account], value: int) -> int:
    for other in others:
        other.balance += value
        src.balance -= value
    return src.balance


@tg.transaction
def pledge(src: Account, assets: list[Asset], value: int) -> int:
    src.balance -= value
    for asset in assets:
        asset.amount += value
    return src.balance


@tg.transaction
def total(others: list[Account]) -> int:
    found = 0
    for other in others:
        found += other.balance
    return found


SHAPES = [deposit, transfer, swap, look, price, follow, spend, share, pledge, total]


def random_events(rng: np.random.Generator, program: list[Any], count: int, keys: int) -> pa.Table:
    """Events of a program over few keys; some are refused before they run: their name is null."""

    def key() -> Any:
        return rng.integers(0, keys, count)

    def some() -> list[list[int]]:
        return [list(map(int, rng.integers(0, keys, rng.integers(0, 4)))) for _ in range(count)]

    names = [None if rng.random() < 0.05 else program[rng.integers(len(program))].__name__ for _ in range(count)]
    return pa.table(
        {
            "transaction": pa.array(names, pa.string()),
            **{name: key() for name in ("src", "dst", "have", "want")},
            **{name: pa.array(some(), pa.list_(pa.int64())) for name in ("others", "assets")},
            "value": rng.integers(0, 9, count),
        }
    )


def random_program(rng: np.random.Generator) -> list[Any]:
    """Two or three shapes."""
    return [SHAPES[n] for n in rng.choice(len(SHAPES), rng.integers(2, 4), replace=False)]


@dataclass(slots=True)
class Built:
    """A batch inside the engine at the moment when its graph is complete."""

    core: EngineCore
    events: pa.Table
    batch: Batch
    order: Any
    plan: Plan

    @property
    def builder(self) -> GraphBuilder:
        return self.core.runner._builder

    def start(self) -> Run:
        """A run of the graph, without a machine that could run operations."""
        return self.core.runner._scheduler.start(self.plan, None)  # type: ignore[arg-type]


@contextmanager
def built(
    program: list[Any], events: pa.Table, workers: int = 1, split: bool = True, order: Any = None, start: int = 0
) -> Iterator[Built]:
    """The graph of a batch of events; the engine drops it at the end of the block."""
    core = EngineCore(build_program(program), strategy="mvlk", workers=workers)
    order = np.arange(events.num_rows) if order is None else order
    try:
        batch = core._take_in(events, {})
        builder = core.runner._builder
        plan = builder.build(batch, order, start, split)
        yield Built(core, events, batch, order, plan)
        builder.forget(plan)
    finally:
        core.runner.workers.close()
