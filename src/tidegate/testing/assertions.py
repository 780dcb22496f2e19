"""One assertion: a program run through the engine equals its plain functions."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.api.table import layout_of
from tidegate.api.transaction import Transaction
from tidegate.embedding import Engine
from tidegate.foundation.arguments import items
from tidegate.foundation.arrow_tables import RowData, as_table
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.decision import DECISIONS, Strategy
from tidegate.operations.outcomes import OUTCOME_COLUMNS, Outcome
from tidegate.testing.plain import PlainProgram, loaded

STRATEGIES: tuple[Strategy, ...] = ("serial", "adaptive", "lock", "mvlk", "partitioned", "chains", *DECISIONS)
"""Every strategy that promises the answers of the plain functions."""


@briefly
def assert_same_as_plain(
    transactions: Sequence[Transaction],
    batches: Sequence[RowData],
    *,
    initial: Mapping[type, RowData] | None = None,
    order_by: str | None = None,
    strategies: Sequence[Strategy] = STRATEGIES,
    workers: int = 2,
) -> None:
    """Assert that every strategy gives the outcomes, results and rows of the plain functions, bit for bit.

    Args:
        transactions: the program.
        batches: tables of events (Arrow, pandas or lists of dicts), run one after the other.
        initial: rows to load first, by table.
        order_by: the column that orders the events of a batch.
        strategies: which strategies to compare; by default all that are exact.
        workers: how many threads run transactions.
    """
    first = loaded(initial)
    given = [as_table("batches", batch) for batch in items("batches", batches, "a list of tables of events")]
    for strategy in items("strategies", strategies, "a list of strategies"):
        plain = PlainProgram(transactions, first)
        engine = Engine(transactions, strategy=strategy, workers=workers)
        for table, rows in first.items():
            engine.load(table, rows)
        for number, batch in enumerate(given):
            expected = plain.run(batch, order_by)
            got = engine.run(batch, order_by)
            _compare_outcomes(
                f"strategy {strategy}, batch {number}", batch, expected, _outcomes(got, batch, transactions)
            )
            for table in plain.classes.values():
                _compare_rows(f"strategy {strategy}, after batch {number}", table, plain, engine)


def _outcomes(got: pa.Table, batch: pa.Table, transactions: Sequence[Transaction]) -> list[Outcome]:
    names = batch["transaction"].to_pylist() if "transaction" in batch.column_names else [None] * batch.num_rows
    found = []
    for name, row in zip(names, got.select(list(OUTCOME_COLUMNS)).to_pylist(), strict=True):
        result = row["result"]
        if isinstance(result, dict) and name in result and set(result) - {name}:
            result = result[name]
        returned = next((t.plan.result for t in transactions if name in (None, t.__name__)), None)
        result = result if returned is None else returned.take(result)
        found.append(Outcome(row["committed"], row["reason"], result))
    return found


def _compare_outcomes(where: str, batch: pa.Table, expected: list[Outcome], got: list[Outcome]) -> None:
    for row, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        if not _same(wanted, found):
            event = batch.slice(row, 1).to_pylist()[0]
            raise AssertionError(f"{where}, event {row} {event}:\n  plain functions: {wanted}\n  engine: {found}")


def _compare_rows(where: str, table: type, plain: PlainProgram, engine: Engine) -> None:
    layout, scanned = layout_of(table), engine.scan(table).to_pylist()
    assert layout is not None
    expected, got = plain.rows(table), [{c.name: c.type.take(row[c.name]) for c in layout.columns} for row in scanned]
    for row in range(max(len(expected), len(got))):
        wanted = expected[row] if row < len(expected) else "no such row"
        found = got[row] if row < len(got) else "no such row"
        if not _same(wanted, found):
            raise AssertionError(f"{where}, {table.__name__}:\n  plain functions: {wanted}\n  engine: {found}")


def _same(first: Any, second: Any) -> bool:
    """Bitwise equality, except that any NaN equals any NaN; 0.0 does not equal -0.0."""
    if isinstance(first, float) and isinstance(second, float):
        return (first != first and second != second) or struct.pack("d", first) == struct.pack("d", second)
    if isinstance(first, Outcome) and isinstance(second, Outcome):
        return (first.committed, first.reason) == (second.committed, second.reason) and _same(
            first.result, second.result
        )
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    return bool(first == second)
