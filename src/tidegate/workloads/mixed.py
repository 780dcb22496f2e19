"""Plain transactions beside a dataflow graph and beside one that looks rows up: what a real program looks like.

    seal        plain        two accounts, and some microseconds of work
    readings    a graph      a meter's reading, then the total of its street
    forward     looks up     a letter is sent on to the office that its present office names

They share no table, so the strategies may run `seal` on all workers, whatever else is in the batch.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.testing import PlainProgram
from tidegate.workloads.cost import burn

STREETS = 16
OFFICES = 64
SHARES = {"seal": 0.8, "readings": 0.1, "forward": 0.1}
"""How many of the events are of each kind."""


@tg.table(key="id")
class Account:
    """A row of plain transactions."""

    id: int
    moves: int = 0
    seal: int = 0


@tg.table(key="id")
class Meter:
    """A row of the graph's first step."""

    id: int
    total: int = 0


@tg.table(key="id")
class Street:
    """A row of its second step."""

    id: int
    total: int = 0


@tg.table(key="id")
class Office:
    """A row that is looked up."""

    id: int
    next: int = 1
    letters: int = 0


readings = tg.stream("readings", meter=int, amount=int)
sums = tg.stream("sums", street=int, amount=int)


@tg.transaction
def seal(src: Account, dst: Account, amount: int, rounds: int) -> None:
    """Two rows, and some work."""
    src.moves += 1
    dst.moves += 1
    src.seal = burn(src.seal + dst.seal + amount, rounds)


@tg.transaction(on=readings, emits=[sums])
def read(meter: Meter, amount: int) -> None:
    """A reading, on to the total of the street."""
    meter.total += amount
    tg.emit(sums, street=meter.id % STREETS, amount=amount)


@tg.transaction(on=sums)
def add_up(street: Street, amount: int) -> None:
    """The total of a street."""
    street.total += amount


@tg.transaction
def forward(office: Office, amount: int) -> None:
    """A letter goes on to the next office; which one that is changes with every letter."""
    after = tg.lookup(Office, office.next)
    after.letters += 1
    office.next = (office.next + amount) % OFFICES


PROGRAM = [seal, tg.dataflow([read, add_up], name="meters"), forward]
TABLES = (Account, Meter, Street, Office)


def mixed_events(count: int, *, accounts: int, rounds: int, seed: int) -> pa.Table:
    """Events of all kinds, in no order."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "transaction": rng.choice(list(SHARES), count, p=list(SHARES.values())),
            "src": rng.integers(0, accounts, count),
            "dst": rng.integers(0, accounts, count),
            "meter": rng.integers(0, 1_000, count),
            "office": rng.integers(0, OFFICES, count),
            "amount": rng.integers(1, 100, count),
            "rounds": np.full(count, rounds),
        }
    )


class Truth:
    """The program in plain Python."""

    def __init__(self) -> None:
        self._plain = PlainProgram([seal, forward])
        self._totals: dict[type, Counter[int]] = {Meter: Counter(), Street: Counter()}

    def run(self, events: pa.Table) -> None:
        """Run events one by one; both steps of the graph only add."""
        for event in events.to_pylist():
            if event["transaction"] == "readings":
                self._totals[Meter][event["meter"]] += event["amount"]
                self._totals[Street][event["meter"] % STREETS] += event["amount"]
            else:
                self._plain.execute(event)

    def rows(self) -> list[list[tuple[int, ...]]]:
        """The rows of all tables, sorted by key."""
        return [
            sorted(self._totals[table].items())
            if table in self._totals
            else [tuple(row.values()) for row in self._plain.rows(table)]
            for table in TABLES
        ]
