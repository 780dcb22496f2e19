"""What has to be true of a state: the oracle applies each version's batch once, in the order of the versions.

The ledger is written by watching the disk, not by asking the engine: when a version's file gets its name,
the attempt that the process is busy with was applied, with its events in the order in which that attempt had them.

    version        1            2            3            4
    applied        a, batch 0   a, batch 1   b, batch 0   a, batch 2
    acknowledged   yes          yes          yes          not yet: a power failure may take it away

What is compared: the outcomes of every attempt that returned, first or repeated, and every table of every version
that can be rebuilt, bit by bit. The oracle shares no code with the engine (tests/truth/oracle.py).

Invariant: `entries` grows by one at a time and is cut, at a power failure, no lower than the last acknowledged one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegate.compiler.program import build_program
from tidegate.durability.served import Applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import rows_by_running
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import TidegateError
from tidegate.operations.plan import Program as BuiltProgram

from ..truth.choices import Choices
from ..truth.comparison import ARROW, bits, compare_outcomes, events_table, imported, used_tables
from ..truth.oracle import Oracle, Outcome
from ..truth.random_events import Batch, Case, Event, random_case
from ..truth.random_expressions import TableSpec
from ..truth.random_programs import ColumnSpec, Program, TransactionSpec

LEDGER = """\
import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    if src.balance == 0:
        tg.delete(src)
    return dst.balance
"""


class Wrong(AssertionError):
    """The state is not what it has to be."""


@dataclass(frozen=True)
class Attempt:
    """One execution of a batch, with its events in the order in which this attempt got them."""

    applicant: Applicant | None
    events: tuple[Event, ...]
    owner: Owner | None
    loads: Mapping[str, list[Event]] | None = None  # an initial load

    @property
    def key(self) -> tuple[str, int]:
        """Under what the batch was asked for; an attempt of an engine inside a process has none."""
        return ("", 0) if self.applicant is None else (self.applicant.name, self.applicant.batch)

    @property
    def query(self) -> str:
        return "" if self.applicant is None else self.applicant.query


@dataclass(frozen=True)
class Entry:
    """A version: what made it, its outcomes by the events' notes, and all rows after it."""

    attempt: Attempt | None
    outcomes: dict[str, Outcome]
    high: int | None
    state: dict[str, Any]
    tables: dict[str, list[Event]]


@functools.cache
def ledger_case() -> Case:
    """Accounts, deposits and transfers; few accounts, so that the order matters."""
    account = TableSpec("Account", (("id", "int", None), ("balance", "int", "0")), ("id",))
    src, dst = (ColumnSpec(name, True, False, (("id", "int"),)) for name in ("src", "dst"))
    amount = ColumnSpec("amount", False, False, (("", "int"),))
    transactions = [
        TransactionSpec("deposit", ((dst, account), (amount, None)), "int"),
        TransactionSpec("transfer", ((src, account), (dst, account), (amount, None)), "int"),
    ]
    program = Program(LEDGER, [account], transactions=transactions, columns=[src, dst, amount])
    return Case(program, order="int")


def ledger_events(choices: Choices, size: int, clock: int) -> list[Event]:
    """Deposits and transfers around a moment, some of them late, some at the same time."""
    return [
        {
            "transaction": choices.pick(["deposit", "transfer"]),
            "ts": clock + choices.between(-3, 4),
            "src": choices.between(1, 4),
            "dst": choices.between(1, 4),
            "amount": choices.between(1, 9),
        }
        for _ in range(size)
    ]


@dataclass(frozen=True)
class Subject:
    """A program, and batches of events for it; `late` is how it takes events that come too late."""

    case: Case
    program: BuiltProgram
    order_by: str | None
    late: str

    def events(self, choices: Choices, size: int, clock: int) -> list[Event]:
        """A batch of so many events."""
        if self.case is ledger_case():
            return ledger_events(choices, size, clock)
        drawn = [event for batch in self.case.batches for event in batch.events]
        return [choices.pick(drawn) for _ in range(size if drawn else 0)]

    def table(self, events: Sequence[Event]) -> pa.Table:
        """The events as Arrow."""
        return events_table(self.case, Batch(list(events), None))

    def loads(self) -> dict[str, list[Event]]:
        """Rows to begin with."""
        names = {table.name for table in used_tables(self.case.program)}
        if self.case is ledger_case():
            return {"Account": [{"id": 1, "balance": 20}, {"id": 2, "balance": 5}]}
        return {name: rows for name, rows in self.case.batches[0].loads.items() if name in names and rows}

    def loaded(self) -> dict[str, pa.Table]:
        """The rows to begin with as Arrow."""
        kinds = {table.name: {name: kind for name, kind, _ in table.fields} for table in self.case.program.tables}
        return {
            name: pa.Table.from_pylist(rows, pa.schema([(field, ARROW[kinds[name][field]]) for field in rows[0]]))
            for name, rows in self.loads().items()
        }


@contextmanager
def subject(seed: int, *, random_program: bool, late: str = "run") -> Iterator[Subject]:
    """The fixed ledger, or a random program; only the ledger's truth knows late events."""
    case = random_case(Choices(seed), "small") if random_program else ledger_case()
    with imported(case.program.source) as module:
        program = build_program([getattr(module, spec.name) for spec in case.program.transactions])
        yield Subject(case, program, "ts" if case.order else None, "run" if random_program else late)


class Ledger:
    """The versions that must be there, and what each of them must hold."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._oracle = Oracle(subject.case.program.source)
        self._tables = used_tables(subject.case.program)
        self.entries = [Entry(None, {}, None, copy.deepcopy(self._oracle.state), self._scan())]
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.certain = 0  # the newest version that somebody was told of

    @property
    def newest(self) -> int:
        """The newest version."""
        return len(self.entries) - 1

    def applied(self, attempt: Attempt, version: int) -> None:
        """A version got its name."""
        if version != self.newest + 1:
            raise Wrong(f"version {version} was made on top of version {self.newest}")
        if attempt.key != ("", 0) and self.version_of(attempt) is not None:
            raise Wrong(f"{attempt.key} was applied as version {self.version_of(attempt)} and again as {version}")
        before = self.entries[-1]
        high, outcomes = before.high, {}
        if attempt.loads is not None:
            for name, rows in attempt.loads.items():
                self._oracle.load(name, rows)
        else:
            refuses = (
                self.subject.late == "refuse" and attempt.applicant is not None
            )  # a tg.Engine knows no late events
            below = before.high if refuses else None
            late = [event for event in attempt.events if below is not None and event["ts"] < below]
            others = [event for event in attempt.events if below is None or event["ts"] >= below]
            order_by = self.subject.order_by
            found = self._oracle.run(others, order_by)
            outcomes = {event["note"]: outcome for event, outcome in zip(others, found, strict=True)}
            outcomes |= {event["note"]: Outcome(False, "late event", None) for event in late}
            if refuses:
                high = max([event["ts"] for event in attempt.events] + ([] if high is None else [high]), default=None)
        self.entries.append(Entry(attempt, outcomes, high, copy.deepcopy(self._oracle.state), self._scan()))

    def version_of(self, attempt: Attempt) -> int | None:
        """The version that the batch of an attempt made; None if it was not applied."""
        for version in range(self.newest, 0, -1):
            made_by = self.entries[version].attempt
            if made_by is not None and made_by.key == attempt.key and attempt.key != ("", 0):
                return version
        return None

    def acknowledge(self, attempt: Attempt, outcomes: pa.Table, version: int | None = None) -> None:
        """Somebody was given outcomes: the batch is applied for good, and they are the ones that it has to have."""
        version = self.version_of(attempt) if version is None else version
        if version is None:
            raise Wrong(f"{attempt.key} returned outcomes, but made no version")
        if self.acknowledged.get(attempt.key, version) != version:
            raise Wrong(f"{attempt.key} was version {self.acknowledged[attempt.key]} and is version {version} now")
        if attempt.key != ("", 0):
            self.acknowledged[attempt.key] = version
        self.certain = max(self.certain, version)
        entry = self.entries[version]
        made_by = entry.attempt
        assert made_by is not None
        kept = attempt.applicant is not None and attempt.applicant.form == "call"
        events = list(made_by.events if kept else attempt.events)
        if not events and outcomes.num_rows == 0:
            return
        notes = outcomes["note"].to_pylist()
        if notes != [event["note"] for event in events]:
            raise Wrong(f"{attempt.key}: outcomes of the events {notes}, expected those of {events}")
        wanted = [entry.outcomes[event["note"]] for event in events]
        compare_outcomes(self.subject.case.program, outcomes, Batch(events, None), wanted)

    def cut(self, version: int) -> None:
        """A power failure left the versions up to this one."""
        if version < self.certain:
            raise Wrong(f"version {self.certain} was acknowledged, and only {version} is left")
        del self.entries[version + 1 :]
        self._oracle.state = copy.deepcopy(self.entries[-1].state)

    def compare(self, reader: VersionReader, version: int) -> None:
        """That a version says what made it, and holds the rows that it has to hold."""
        made_by = self.entries[version].attempt
        try:
            info = reader.info(version)
            if made_by is not None and made_by.applicant is not None and (info.query, info.batch) != made_by.key:
                raise Wrong(f"version {version} says that it is {info.query} {info.batch}, it is {made_by.key}")
            self._compare(self._read(reader, version), version)
        except TidegateError as error:
            error.add_note(f"version {version} of {self.newest}")
            raise

    def _compare(self, found: dict[str, list[Event]], version: int) -> None:
        for table in self._tables:
            wanted = self.entries[version].tables[table.name]
            if bits(found.get(table.name, [])) != bits(wanted):
                raise Wrong(
                    f"version {version}, table {table.name}:\n  expected {wanted}\n  got {found.get(table.name)}"
                )

    def _read(self, reader: VersionReader, version: int) -> dict[str, list[Event]]:
        """All rows of a version, put together from its files; by the program where they hold events."""
        info = reader.locate(version)
        if reader.program_of(info):
            program = self.subject.program
            layouts = {layout.name: layout for layout in program.plan.tables}
            return {
                table.name: rows_by_running(reader, program, layouts[table.name], version).to_pylist()
                for table in self._tables
            }
        _, steps = reader.load(version)
        rows: dict[str, dict[tuple[Any, ...], Event]] = {table.name: {} for table in self._tables}
        keys = {table.name: table.key for table in self._tables}
        for step in steps:
            for name, changes in step.items():
                for row in changes.to_pylist():
                    key = tuple(row[part] for part in keys[name])
                    if row.pop("exists"):
                        rows[name][key] = row
                    else:
                        rows[name].pop(key, None)
        return {name: [found[key] for key in sorted(found)] for name, found in rows.items()}

    def _scan(self) -> dict[str, list[Event]]:
        return {table.name: self._oracle.scan(table.name) for table in self._tables}


def named(events: Sequence[Event]) -> tuple[Event, ...]:
    """Events with a note each, by which their outcomes are found whatever their order."""
    return tuple({**event, "note": f"event {number}"} for number, event in enumerate(events))


def shuffled(attempt: Attempt, choices: Choices) -> Attempt:
    """The same batch as a source may repeat it: the same events, in another order."""
    rest, events = list(attempt.events), []
    while rest:
        events.append(rest.pop(choices.below(len(rest))))
    return replace(attempt, events=tuple(events))
