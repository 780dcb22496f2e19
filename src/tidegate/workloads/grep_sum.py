"""Grep and sum (GS): records are looked up, summed, and the mean is written to other records.

The real job: derived values over a large shared table, such as a price that follows the mean of the prices
it was made from. It is synthetic and has a knob for everything, which makes it the one to explore with.

    table    key   fields
    Record   id    value, seal

    grep_sum    l rows written; each is set to the mean of r rows of its own that are read
                a = "above the ceiling"

The transaction has one parameter for each row, so that every written row is an operation of its own:
w0, w1, ... are written and r0_0, r0_1, ... are the rows whose mean goes into w0. A function's signature is
fixed, so `transaction_for` writes the function for a given l and r, for example l = 1 and r = 2:

    @tg.transaction
    def grep_sum(w0: Record, r0_0: Record, r0_1: Record, ceiling: float, rounds: int) -> int:
        seal0 = burn(w0.seal + 1, rounds)
        mean0 = (r0_0.value + r0_1.value) / 2
        tg.require(mean0 <= ceiling, "above the ceiling")
        w0.value = mean0
        w0.seal = seal0
        return seal0

Each operation spends the cost C before any condition is checked. All rows of an event are different.

Promise: no value ever leaves the range of the opening values.
"""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.workloads.cost import NOMINAL_PACE, burn
from tidegate.workloads.workload import Run, Settings, Tables, Workload, names_column

VALUE_MAX = 1_000.0


@tg.table(key="id")
class Record:
    """A value that others are derived from."""

    id: int
    value: float = 0.0
    seal: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepSumSettings(Settings):
    """The knobs of grep and sum: `length` is l, `reads` is r."""

    length: int = 1
    reads: int = 2
    keys: int = 12_288

    def least(self) -> dict[str, int]:
        """Every row of an event is another one."""
        return {"batch_events": 1, "length": 1, "reads": 1, "keys": self.length * (1 + self.reads)}


TSTREAM = GrepSumSettings(theta=0.6, abort_ratio=0.0, cost_us=0.0, batch_events=500, length=5, reads=1, keys=10_000)
"""Ten accesses to ten thousand records, as in TStream's evaluation; half of them are writes."""

MORPHSTREAM = GrepSumSettings()
"""As in MorphStream's evaluation."""


def written_names(length: int) -> list[str]:
    """The parameters that are written."""
    return [f"w{write}" for write in range(length)]


def read_names(length: int, reads: int) -> list[str]:
    """The parameters that are read, those of the first written row first."""
    return [f"r{write}_{read}" for write in range(length) for read in range(reads)]


def source_for(length: int, reads: int) -> str:
    """The text of the transaction that writes `length` rows from `reads` rows each."""
    rows = [f"{name}: Record" for name in (*written_names(length), *read_names(length, reads))]
    lines = [
        "@tg.transaction",
        f"def grep_sum({', '.join(rows)}, ceiling: float, rounds: int) -> int:",
        f'    """Set {length} rows to the mean of {reads} others each."""',
    ]
    writes = range(length)
    lines += [f"    seal{write} = burn(w{write}.seal + 1, rounds)" for write in writes]
    for write in writes:
        total = " + ".join(f"r{write}_{read}.value" for read in range(reads))
        lines.append(f"    mean{write} = ({total}) / {reads}")
    lines += [f'    tg.require(mean{write} <= ceiling, "above the ceiling")' for write in writes]
    for write in writes:
        lines += [f"    w{write}.value = mean{write}", f"    w{write}.seal = seal{write}"]
    return "\n".join([*lines, "    return seal0", ""])


@functools.cache
def transaction_for(length: int, reads: int) -> Any:
    """The transaction for l and r, declared as if its text were in a file."""
    source = source_for(length, reads)
    file = f"<grep_sum of {length} writes and {reads} reads each>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"tg": tg, "burn": burn, "Record": Record, "__name__": __name__}
    exec(compile(source, file, "exec"), names)
    return names["grep_sum"]


class GrepSum(Workload):
    """Means of some records written to others."""

    name: ClassVar[str] = "grep and sum"
    tables: ClassVar[tuple[type, ...]] = (Record,)
    settings: GrepSumSettings

    def __init__(self, settings: GrepSumSettings = MORPHSTREAM, pace: float = NOMINAL_PACE) -> None:
        super().__init__(settings, pace)
        self.program = [transaction_for(settings.length, settings.reads)]

    def opening(self) -> Tables:
        """Records 0, 1, 2, ... with values from 0 to `VALUE_MAX`."""
        keys = self.settings.keys
        values = self.random().random(keys) * VALUE_MAX
        return {Record: pa.table({"id": np.arange(keys), "value": values})}

    def batch(self, number: int) -> pa.Table:
        """A batch; the ceiling of a planted event is below every value."""
        settings, random = self.settings, self.random(number)
        count = settings.batch_events
        names = [*written_names(settings.length), *read_names(settings.length, settings.reads)]
        rows = self.zipf.draw_distinct(random, count, len(names))
        aborts = random.random(count) < settings.abort_ratio
        return pa.table(
            {
                "transaction": names_column(np.zeros(count, np.int64), ["grep_sum"]),
                **{name: np.ascontiguousarray(rows[:, column]) for column, name in enumerate(names)},
                "ceiling": np.where(aborts, -1.0, 2 * VALUE_MAX),
                "rounds": np.full(count, self.rounds),
            }
        )

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """Means stay in the range of what they are made from."""
        found = pc.min_max(run.rows[Record]["value"]).as_py()
        if found["min"] < 0.0 or found["max"] > VALUE_MAX:
            return [f"values from {found['min']} to {found['max']}, they must stay between 0 and {VALUE_MAX}"]
        return []
