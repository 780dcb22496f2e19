"""Random contended batches, every strategy in turn, any number of workers, cut anywhere: always the serial outcome.

A round is a function of its number alone: `play(4711)` plays it again. A round that does not end fails, and so
does a run of many rounds that leaves threads behind or needs more and more memory.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.execution import runner, scheduler
from tidegate.engine.planning import builder
from tidegate.operations.decision import Strategy

from ...accounts import Account, Asset, close, collect, deposit, swap, transfer
from ...strategies import STRATEGIES
from ...truth.running import Record

SHORT_SECONDS = 7.0
LONG_SECONDS = 3600.0  # `TIDEGATE_STRESS_SECONDS` changes it
ROUND_SECONDS_MAX = 240.0
MEMORY_GROWTH_MAX = 96 << 20
WORKERS_MAX = 8


@tg.transaction
def pledge(src: Account, assets: list[Asset], value: int) -> int:
    src.balance -= value
    for asset in assets:
        asset.amount += value
    tg.require(src.balance >= 0, "insufficient funds")
    return src.balance


@tg.transaction
def look(src: Account, have: Asset) -> int:
    return src.balance * 1000 + have.amount


@tg.transaction
def scale(dst: Account, factor: int) -> int:
    """Leaves 64 bits if the factor is large."""
    dst.notes = dst.balance * factor
    return dst.notes


PROGRAM = [deposit, transfer, swap, close, collect, pledge, look, scale]


# --- a round -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Round:
    """What one round does, all of it from its number."""

    number: int
    strategy: Strategy
    workers: int
    events: pa.Table
    cuts: list[int]
    opening: pa.Table
    small: bool  # graphs are cut into small pieces, and all workers build each of them

    @property
    def batches(self) -> list[pa.Table]:
        edges = [0, *self.cuts, self.events.num_rows]
        return [self.events.slice(edges[n], edges[n + 1] - edges[n]) for n in range(len(edges) - 1)]

    def __str__(self) -> str:
        events = f"{self.events.num_rows} events in {len(self.batches)} batches"
        return f"play({self.number}): {self.strategy}, {self.workers} workers, {events}"


def make_round(number: int, count_max: int) -> Round:
    rng = np.random.default_rng([42, number])
    count = int(count_max ** rng.random()) if rng.random() < 0.8 else count_max
    keys = int(300 ** rng.random())
    return Round(
        number,
        STRATEGIES[number % len(STRATEGIES)],
        int(rng.integers(1, WORKERS_MAX + 1)),
        random_events(rng, count, keys),
        sorted(map(int, rng.integers(0, count + 1, rng.integers(0, 5)))),
        pa.table({"id": np.arange(keys), "balance": rng.integers(0, 400, keys)}),
        bool(rng.random() < 0.5),
    )


def random_events(rng: np.random.Generator, count: int, keys: int) -> pa.Table:
    """Events over few keys, some hot; from hardly any abort to nine of ten."""
    skew, pressure = rng.choice([1.0, 2.0, 6.0]), 10 ** rng.uniform(0, 3.3)
    weights = rng.dirichlet(np.full(len(PROGRAM), 0.6))
    names = np.array([transaction.__name__ for transaction in PROGRAM])
    large = 2**62 if rng.random() < 0.1 else 3

    def key() -> Any:
        return (keys * rng.random(count) ** skew).astype(np.int64)

    def some() -> pa.Array:
        sizes = rng.integers(0, 5, count)
        flat = (keys * rng.random(int(sizes.sum())) ** skew).astype(np.int64)
        return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), flat)

    return pa.table(
        {
            "transaction": names[rng.choice(len(PROGRAM), count, p=weights)],
            **{name: key() for name in ("src", "dst", "have", "want")},
            "others": some(),
            "assets": some(),
            "value": rng.integers(0, int(pressure) + 1, count),
            "count": rng.integers(0, 4, count),
            "factor": np.where(rng.random(count) < 0.01, large, 2),
        }
    )


def outcome(strategy: Strategy, workers: int, batches: list[pa.Table], opening: pa.Table) -> list[pa.Table]:
    """All outcomes in one table, and the rows afterwards. The engine is not closed: its threads must end with it."""
    engine = tg.Engine(PROGRAM, strategy=strategy, workers=workers)
    engine.load(Account, opening)
    outcomes = pa.concat_tables([engine.run(batch) for batch in batches])
    return [outcomes, engine.scan(Account), engine.scan(Asset)]


def play(number: int, count_max: int = 20_000) -> float:
    """Play one round; returns the share of transactions that aborted."""
    found = make_round(number, count_max)
    expected = outcome("serial", 1, [found.events], found.opening)
    with pytest.MonkeyPatch.context() as patch, watched(str(found)):
        if found.small:
            patch.setattr(runner, "PIECE_EVENTS", 1 + found.events.num_rows // 3)
            patch.setattr(builder, "PARALLEL_EVENTS", 8)
            patch.setattr(scheduler, "PARALLEL_ACCESSES", 8)
        got = outcome(found.strategy, found.workers, found.batches, found.opening)
    for wanted, table, name in zip(expected, got, ("outcomes", "accounts", "assets"), strict=True):
        assert table.equals(wanted), f"{found}: {name} differ from the serial run's"
    return 1.0 - float(np.mean(expected[0]["committed"].to_numpy()))


@contextmanager
def watched(what: str) -> Iterator[None]:
    """Interrupt what takes too long, and fail; if even that does not help, end the process with all stacks."""
    late = threading.Event()

    def interrupt() -> None:
        late.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = threading.Timer(ROUND_SECONDS_MAX, interrupt)
    timer.daemon = True
    faulthandler.dump_traceback_later(2 * ROUND_SECONDS_MAX, exit=True)
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if not late.is_set():
            raise
        pytest.fail(f"{what}: not done after {ROUND_SECONDS_MAX:.0f} seconds")
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


# --- many rounds ---------------------------------------------------------------------------------------------


def threads_left(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads started since then that still run, although those of dropped engines had ten seconds to end."""
    deadline = time.monotonic() + 10
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    return left


def memory_now() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(psutil.Process().memory_info().rss)


def play_for(seconds: float, first: int, count_max: int) -> list[float]:
    """Rounds until the time is over, but each strategy at least once; returns the shares of aborts."""
    threads, memory = set(threading.enumerate()), 0
    outcome("mvlk", 2, [make_round(0, 100).events], pa.table({"id": [1]}))  # compiled before the clock starts
    warm = 2 * len(STRATEGIES)
    began, shares = time.monotonic(), []
    for number in range(first, first + 10**9):
        if len(shares) >= len(STRATEGIES) and time.monotonic() - began > seconds:
            break
        shares.append(play(number, count_max))
        if len(shares) == warm:
            memory = memory_now()
    left = threads_left(threads)
    assert not left, f"threads that did not end with their engines: {left}"
    if len(shares) > 2 * warm:
        growth = memory_now() - memory
        assert growth < MEMORY_GROWTH_MAX, f"{growth >> 20} MiB more than after {warm} rounds"
    return shares


def test_some_seconds_of_random_batches(record_property: Record) -> None:
    shares = play_for(SHORT_SECONDS, 0, 3000)
    record_property("compared rounds of contended batches", len(shares))
    assert max(shares) > 0.5 and min(shares) < 0.2  # batches of both kinds


@pytest.mark.soak
def test_an_hour_of_random_batches() -> None:
    seconds = float(os.environ.get("TIDEGATE_STRESS_SECONDS", LONG_SECONDS))
    shares = play_for(seconds, int(time.time()), 20_000)
    assert max(shares) > 0.5
