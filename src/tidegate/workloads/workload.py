"""What all workloads have in common: knobs, drawing of keys, and the truth to compare a run with.

A workload is a program with the events that make it hard. Published systems describe theirs by a few
knobs, and so do we; `Settings` holds the ones that every workload has:

    theta          θ   Zipf skew of the keys drawn: 0 is uniform, 1 is a few hot keys
    abort_ratio    a   share of the transactions that abort
    cost_us        C   microseconds that each operation spends computing (`tidegate.workloads.cost`)
    batch_events   T   events in a batch, which is the punctuation interval
    keys               rows in each table
    seed               the same settings and seed give the same events

A workload adds its own, such as the operations of a transaction (l) and the rows that each reads (r).

`Workload.verify` runs the same events one by one through the plain functions and lists what differs in a
run's outcomes and rows, bit for bit, and what the workload promises besides (money that is conserved).
`differences` compares two runs with each other, in the same way and much faster.

Invariant: batch number n of a workload depends on its settings and n alone, never on the batches
before it.
"""

from __future__ import annotations

import abc
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.testing import PlainProgram
from tidegate.workloads.cost import NOMINAL_PACE

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Tables = Mapping[type, pa.Table]

OUTCOME_COLUMNS = ("committed", "reason", "result")
PLENTY = 10**12
"""What a row opens with where only planted events may find too little."""
TOO_MUCH = 10**17
"""What a planted event asks for: more than any row ever holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The knobs that every workload has, those called "..._ratio" being shares; equal settings make equal events."""

    theta: float = 0.2
    abort_ratio: float = 0.01
    cost_us: float = 10.0
    batch_events: int = 10_240
    keys: int = 10_240
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("theta", "cost_us"):
            if getattr(self, name) < 0.0:
                raise ValueError(f"{name} is 0 or more; got {getattr(self, name)}")
        for name in (each.name for each in fields(self) if each.name.endswith("_ratio")):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share between 0 and 1; got {getattr(self, name)}")
        for name, least in self.least().items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}; got {getattr(self, name)}")

    def least(self) -> dict[str, int]:
        """The smallest value of each knob that counts something."""
        return {"batch_events": 1, "keys": 1}


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run: the outcomes of each batch, and the rows of each table at the end."""

    outcomes: list[pa.Table]
    rows: Tables


class Workload(abc.ABC):
    """A program, its opening rows and its events."""

    name: ClassVar[str]
    tables: ClassVar[tuple[type, ...]]
    program: Sequence[Any]
    """The transactions, as `tg.Engine` takes them."""

    def __init__(self, settings: Settings, pace: float = NOMINAL_PACE) -> None:
        """Make the workload; `pace` is how many rounds of `burn` a microsecond holds (`calibrate`)."""
        self.settings = settings
        self.rounds = round(settings.cost_us * pace)
        self.zipf = Zipf(settings.keys, settings.theta)

    @abc.abstractmethod
    def opening(self) -> Tables:
        """The rows before the first event."""

    @abc.abstractmethod
    def batch(self, number: int) -> pa.Table:
        """Batch `number`: a table of `batch_events` events, in order."""

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """What the application promises and the run did not keep, one line each."""
        return []

    def batches(self, count: int, start: int = 0) -> Iterator[pa.Table]:
        """`count` batches of events, from batch `start` on."""
        return (self.batch(number) for number in range(start, start + count))

    def random(self, *stream: int) -> np.random.Generator:
        """Randomness of its own for each batch and purpose."""
        return np.random.default_rng(
            [self.settings.seed, *(number + 1 for number in stream)]
        )  # zeros count for nothing

    def engine(self, strategy: Any = "serial", workers: int = 1) -> tg.Engine:
        """An engine with the opening rows loaded."""
        engine = tg.Engine(self.program, strategy=strategy, workers=workers)
        for table, rows in self.opening().items():
            engine.load(table, rows)
        return engine

    def run(self, batches: Iterable[pa.Table], strategy: Any = "serial", workers: int = 1) -> Run:
        """Run batches on a fresh engine."""
        engine = self.engine(strategy, workers)
        outcomes = [engine.run(events) for events in batches]
        return Run(outcomes, self.scan(engine))

    def scan(self, engine: tg.Engine) -> Tables:
        """The rows of all tables of an engine."""
        return {table: engine.scan(table) for table in self.tables}

    def verify(self, batches: Sequence[pa.Table], run: Run) -> list[str]:
        """What differs between a run of these batches and the plain functions; nothing if it is right."""
        opening = self.opening()
        plain = PlainProgram(self.program, opening)
        outcomes = [_outcome_table(plain.run(events)) for events in batches]
        wanted = Run(outcomes, {table: _row_table(table, plain.rows(table)) for table in self.tables})
        found = differences(wanted, run)
        return found or self.broken_promises(opening, pa.concat_tables(batches), run)


def _outcome_table(outcomes: Sequence[tg.Outcome]) -> pa.Table:
    types = (pa.bool_(), pa.string(), pa.int64())
    columns = {name: [getattr(each, name) for each in outcomes] for name in OUTCOME_COLUMNS}
    return pa.table({name: pa.array(columns[name], type) for name, type in zip(OUTCOME_COLUMNS, types, strict=True)})


def _row_table(table: type, rows: list[dict[str, Any]]) -> pa.Table:
    types = {int: pa.int64(), float: pa.float64()}
    return pa.Table.from_pylist(rows, pa.schema([(n, types[kind]) for n, kind in typing.get_type_hints(table).items()]))


def differences(wanted: Run, found: Run) -> list[str]:
    """Where two runs differ, in outcomes and rows, bit for bit; one line for each column that does."""
    if len(wanted.outcomes) != len(found.outcomes):
        return [f"{len(wanted.outcomes)} batches have outcomes, found {len(found.outcomes)}"]
    pairs = [
        (f"outcomes of batch {number}", one.select(OUTCOME_COLUMNS), other.select(OUTCOME_COLUMNS))
        for number, (one, other) in enumerate(zip(wanted.outcomes, found.outcomes, strict=True))
    ]
    pairs += [(f"rows of {table.__name__}", rows, found.rows[table]) for table, rows in wanted.rows.items()]
    return [problem for what, one, other in pairs for problem in _table_differences(what, one, other)]


def _table_differences(what: str, wanted: pa.Table, found: pa.Table) -> list[str]:
    if wanted.num_rows != found.num_rows:
        return [f"{what}: {wanted.num_rows} are right, found {found.num_rows}"]
    problems = []
    for name in wanted.column_names:
        left, right = (_bits(table.column(name).combine_chunks()) for table in (wanted, found))
        right = right.cast(left.type)
        if left.equals(right):
            continue
        same = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))
        row = int(np.argmin(same.to_numpy(zero_copy_only=False)))
        right_value, found_value = (table.column(name)[row].as_py() for table in (wanted, found))
        wrong = pc.sum(pc.invert(same)).as_py()
        problems.append(
            f"{what}: {name} differs in {wrong}, first in row {row}: {right_value!r}, found {found_value!r}"
        )
    return problems


def _bits(column: pa.Array) -> pa.Array:
    """Floats as their bits: NaN equals NaN, and 0.0 does not equal -0.0."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.Array.from_buffers(pa.int64(), len(column), column.buffers(), column.null_count, column.offset)


# --- drawing ----------------------------------------------------------------------------------------


def names_column(which: Integers, names: Sequence[str]) -> pa.Array:
    """The `transaction` column: `names[which]`."""
    return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(names)).cast(pa.string())


def lists_column(matrix: Integers, there: Flags) -> pa.Array:
    """A column of lists: the rows of a matrix where `there`, null elsewhere."""
    offsets = np.concatenate([[0], np.cumsum(np.where(there, matrix.shape[1], 0))])
    flat = pa.array(matrix[there].ravel())
    found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
    missing = pa.array(np.full(len(there), None, dtype=object), found.type)
    return pc.if_else(pa.array(there), found, missing)


class Zipf:
    """Draws numbers below `count`, small ones more often: number k with weight (k + 1)^-theta."""

    def __init__(self, count: int, theta: float) -> None:
        self.count = count
        self._cumulative: npt.NDArray[np.float64] | None = None
        if theta > 0.0:
            cumulative = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -theta)
            self._cumulative = cumulative / cumulative[-1]

    def draw(self, random: np.random.Generator, count: int) -> Integers:
        """`count` numbers, each drawn by itself."""
        if self._cumulative is None:
            return random.integers(0, self.count, count, dtype=np.int64)
        drawn = np.searchsorted(self._cumulative, random.random(count), side="right")
        return np.minimum(drawn, self.count - 1).astype(np.int64)

    def draw_distinct(self, random: np.random.Generator, rows: int, columns: int) -> Integers:
        """A matrix of numbers, no number twice in a row.

        A number that its row has already is drawn again, up to eight times. After that the next free number is
        taken, so that drawing ends even where few keys are hot.
        """
        if columns > self.count:
            raise ValueError(f"{columns} different keys for one event were asked for, there are {self.count}")
        found = np.empty((rows, columns), np.int64)
        for column in range(columns):
            found[:, column] = self.draw(random, rows)
            again, tries = _repeated(found, column, np.arange(rows)), 0
            while len(again):
                tries += 1
                redrawn = self.draw(random, len(again))
                found[again, column] = redrawn if tries <= 8 else (found[again, column] + 1) % self.count
                again = _repeated(found, column, again)
        return found


def _repeated(found: Integers, column: int, among: Integers) -> Integers:
    """The rows among those given whose number in `column` is in an earlier column, too."""
    repeated: Flags = (found[among, :column] == found[among, column, None]).any(axis=1)
    return among[repeated]
