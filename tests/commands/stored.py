"""A small real state on disk for the tests of the state commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.served import once_applicant
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.storage import open_storage
from tidegate.operations.layout import Column, Kind, TableLayout

ACCOUNT = TableLayout("Account", (Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0)), ("id",))
SEAT = TableLayout(
    "Seat",
    (Column("row", Kind.STR, ""), Column("number", Kind.INT, 0), Column("taken", Kind.BOOL, False)),
    ("row", "number"),
)


def info(version: int, *layouts: TableLayout) -> VersionInfo:
    """What version `version` would record: batch `version - 1` of one query."""
    return VersionInfo(
        version=version,
        kind="change",
        query="0123456789abcdef",
        batch=version - 1,
        base=version - 1,
        created_at=1_700_000_000.0 + version,
        events=10,
        committed=9,
        high=version * 100,
        layouts=layouts,
        rows={},
        size=0,
    )


def changes(layout: TableLayout, *rows: tuple[Any, ...]) -> pa.Table:
    """A change table; each row ends with whether it exists."""
    schema = layout.arrow_schema.append(pa.field("exists", pa.bool_(), nullable=False))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def make_state(path: Path) -> VersionStore:
    """Three versions: accounts 1 and 2; then 2 changes and 3 comes; then 1 goes and a seat is taken."""
    store = VersionStore(open_storage(str(path)))
    store.commit(info(1, ACCOUNT, SEAT), {"Account": changes(ACCOUNT, (1, 100, True), (2, 50, True))})
    store.commit(info(2, ACCOUNT, SEAT), {"Account": changes(ACCOUNT, (2, 80, True), (3, 5, True))})
    last = {"Account": changes(ACCOUNT, (1, 0, False)), "Seat": changes(SEAT, ("B", 7, True, True))}
    store.commit(info(3, ACCOUNT, SEAT), last)
    return store


def make_state_with_events(path: Path) -> VersionStore:
    """Two versions of a ledger: the first keeps the row that changed, the second the event that changed it."""

    @tg.table(key="id")
    class Account:
        id: int
        balance: int = 0

    @tg.transaction
    def deposit(dst: Account, amount: int) -> None:
        dst.balance += amount

    logs: tuple[Log, ...] = ("changes", "commands")
    for number, log in enumerate(logs):
        engine = VersionedEngine(build_program(deposit), str(path), log=log)
        events = pa.table({"dst": [1], "amount": [5]})
        engine.process(once_applicant(f"{number}"), events, order_by=None, late="run", owner=None)
    return VersionStore(open_storage(str(path)))
