"""What a row costs in a window that slides by one: a window of 100 rows beside one of 100,000.

Both are full before the clock starts, so that every tuple makes the oldest row leave. The body asks for all aggregates
that are kept incrementally. The sums of both are compared with what plain lists come to.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.workloads.written import load_source

SMALL, LARGE = 100, 100_000
BAR = 0.5
"""The large window's speed as a share of the small one's; the rest is memory that no longer fits a cache."""

_SOURCE = '''\
import tidegate as tg


@tg.table(key="id")
class Seen:
    """The last sum of the window, and a checksum of everything else that it was asked for."""

    id: int
    total: int = 0
    checks: int = 0


numbers = tg.stream("numbers", seen=int, value=int)


@tg.transaction(on=numbers)
def watch(seen: Seen, value: int, recent: tg.window(numbers, rows={size}, slide=1)):
    """Ask for everything that is kept."""
    seen.total = recent.sum("value")
    seen.checks += recent.min("value") + recent.max("value")
    seen.checks += recent.distinct("value") + recent.frequency("value", value)


graph = tg.dataflow([watch])
'''


def experiment(sizes: tuple[int, int], *, inserts: int, seed: int) -> Experiment:
    """The declaration: the same tuples through a small and a large window."""
    programs = {size: load_source(f"tidegate_window_{size}", _SOURCE.format(size=size)) for size in sizes}
    random = np.random.default_rng(seed)
    values = random.integers(0, 1_000, max(sizes) + inserts)

    def events(part: np.ndarray) -> pa.Table:
        return pa.table({"seen": np.zeros(len(part), np.int64), "value": part})

    def prepare(size: int) -> tuple[tg.Engine, int]:
        engine = tg.Engine([programs[size].graph])
        engine.run(events(values[max(sizes) - size : max(sizes)]))
        return engine, size

    def run(prepared: tuple[tg.Engine, int]) -> pa.Table:
        return prepared[0].run(events(values[max(sizes) :]))

    def verify(prepared: tuple[tg.Engine, int], _: pa.Table) -> None:
        engine, size = prepared
        found = engine.read(programs[size].Seen, 0)
        if found is None or found["total"] != int(values[-size:].sum()):
            raise AssertionError(f"a window of {size} rows: {found}, but the sum is {int(values[-size:].sum())}")

    names = [f"{size:,} rows" for size in sizes]
    return Experiment(
        name="windows",
        title=f"Windows that slide by one: {inserts:,} tuples, sum, min, max, distinct and frequency",
        items=inserts,
        item="tuple",
        variants=[
            Variant(name, prepare=partial(prepare, size), run=run, verify=verify)
            for name, size in zip(names, sizes, strict=True)
        ],
        bars={names[1]: BAR},
        settings={"inserts": inserts, "sizes": list(sizes)},
        seed=seed,
    )
