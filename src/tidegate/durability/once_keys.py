"""The outcomes of transactions that were executed with an idempotency key.

    execute(transfer, ..., idempotency_key="order-7")     runs, the outcome is remembered under the key
    execute(transfer, ..., idempotency_key="order-7")     runs nothing, gives that outcome again
    execute(deposit, ...,  idempotency_key="order-7")     refused: the key belongs to another call

Keys and outcomes are part of the state: they are replayed with the log, and kept in a hidden table of every checkpoint.
The newest `KEYS_MAX` are remembered.

Invariant: while a key is remembered, its transaction runs at most once.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.durability.evolution import change_schema
from tidegate.foundation.errors import InputError
from tidegate.operations.layout import Column, Kind, TableLayout
from tidegate.operations.outcomes import Outcome
from tidegate.operations.plan import ResultType

KEYS_MAX = 1_000_000

LAYOUT = TableLayout(
    "tidegate_once",
    (
        Column("number", Kind.INT, 0),
        Column("key", Kind.STR, ""),
        Column("call", Kind.STR, ""),
        Column("outcome", Kind.STR, ""),
    ),
    ("number",),
)


class _Entry(NamedTuple):
    number: int
    call: str
    outcome: Outcome


class OnceKeys:
    """The keys that were used, oldest first, and what became of their calls."""

    def __init__(self) -> None:
        self._entries: dict[int | str, _Entry] = {}
        self._next = 0
        self._stored: tuple[int, int] = (0, 0)
        """The numbers that checkpoints hold: from the first to before the second."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: int | str, call: bytes, result: ResultType | None) -> Outcome | None:
        """The outcome of the call that was made with a key; None if there was none.

        `call` is what is asked for, and `result` what its transaction returns.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.call != _digest(call):
            raise InputError(
                f"execute: the idempotency key {key!r} was used for another call (another transaction, or other "
                "arguments): give each call a key of its own, and repeat a call exactly"
            )
        return outcome_with(entry.outcome, None if result is None else result.decode(entry.outcome.result))

    def add(self, key: int | str, call: bytes, outcome: Outcome, result: ResultType | None) -> None:
        """A call was made."""
        outcome = outcome_with(outcome, None if result is None else result.encode(outcome.result))
        self._entries[key] = _Entry(self._next, _digest(call), outcome)
        self._next += 1
        while len(self._entries) > KEYS_MAX:
            del self._entries[next(iter(self._entries))]

    def changes(self) -> pa.Table | None:
        """What is different since the last checkpoint, as rows; None when nothing is."""
        first = next(iter(self._entries.values())).number if self._entries else self._next
        old_first, old_next = self._stored
        gone = range(old_first, min(first, old_next))
        come = [(key, entry) for key, entry in self._newest_first() if entry.number >= old_next]
        self._stored = (first, self._next)
        if not come and not gone:
            return None
        rows = [
            (
                entry.number,
                json.dumps(key),
                entry.call,
                json.dumps([entry.outcome.committed, entry.outcome.reason, entry.outcome.result]),
                True,
            )
            for key, entry in come
        ]
        rows += [(number, "", "", "", False) for number in gone]
        schema = change_schema(LAYOUT)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
            schema=schema,
        )

    def forget_stored(self) -> None:
        """A checkpoint failed: the next one holds everything."""
        self._stored = (0, 0)

    def _newest_first(self) -> list[tuple[int | str, _Entry]]:
        found = []
        for key in reversed(self._entries):
            entry = self._entries[key]
            if entry.number < self._stored[1]:
                break
            found.append((key, entry))
        return found

    @classmethod
    def restore(cls, rows: pa.Table) -> OnceKeys:
        """The keys in the rows of a checkpoint."""
        found = cls()
        for row in rows.sort_by("number").to_pylist():
            outcome = Outcome(*json.loads(row["outcome"]))
            found._entries[json.loads(row["key"])] = _Entry(row["number"], row["call"], outcome)
            found._next = row["number"] + 1
        first = next(iter(found._entries.values())).number if found._entries else found._next
        found._stored = (first, found._next)
        return found


def outcome_with(outcome: Outcome, result: Any) -> Outcome:
    """An outcome with its result in another form: entries hold plain values, which JSON knows."""
    return Outcome(outcome.committed, outcome.reason, result)


def _digest(call: bytes) -> str:
    return hashlib.blake2b(call, digest_size=8).hexdigest()
