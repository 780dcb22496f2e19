"""A small history that the tests of this package share: what each version changes is known by formula."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.durability.evolution import change_schema
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.storage import Storage, open_storage
from tidegate.operations.layout import Column, Kind, TableLayout

from ..s3 import s3, s3_server

__all__ = ["s3", "s3_server"]

ACCOUNT = TableLayout("Account", (Column("id", Kind.INT, 0), Column("balance", Kind.INT, 0)), ("id",))
VOTE = TableLayout(
    "Vote",
    (
        Column("phone", Kind.STR, ""),
        Column("weight", Kind.FLOAT, 1.0),
        Column("counted", Kind.BOOL, False),
    ),
    ("phone",),
)

State = dict[str, dict[Any, tuple[Any, ...]]]


class History:
    """Builds infos and change tables, and applies change tables to plain dictionaries."""

    account = ACCOUNT
    vote = VOTE

    def info(self, version: int, **fields: Any) -> VersionInfo:
        values: dict[str, Any] = {
            "version": version,
            "kind": "change",
            "query": "query",
            "batch": version - 1,
            "base": version - 1,
            "created_at": 1.5,
            "events": 3,
            "committed": 2,
            "high": None,
            "layouts": (ACCOUNT, VOTE),
            "rows": {},
            "size": 0,
        }
        return VersionInfo(**{**values, **fields})

    def rows(self, layout: TableLayout, rows: Iterable[tuple[Any, ...]], *, change: bool = True) -> pa.Table:
        """A change table of `layout` from (values..., exists), or a table of whole rows from (values...)."""
        schema = change_schema(layout) if change else layout.arrow_schema
        listed = list(rows)
        columns = [[row[index] for row in listed] for index in range(len(schema))]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def changes(self, version: int) -> dict[str, pa.Table]:
        """Version n: account n gets 10 n, account n-1 gets 1, account n-5 goes; one vote is cast."""
        accounts = [(version, 10 * version, True), (version - 1, 1, True), (version - 5, 0, False)]
        votes = [(f"+{version} \N{SNOWMAN}", version / 3, version % 2 == 0, True)]
        return {"Account": self.rows(ACCOUNT, accounts), "Vote": self.rows(VOTE, votes)}

    def state(self, version: int) -> State:
        """What the changes of versions 1 to n give."""
        return self.apply([self.changes(number) for number in range(1, version + 1)])

    def apply(self, steps: Iterable[Mapping[str, pa.Table]], state: State | None = None) -> State:
        result: State = {} if state is None else state
        keys = {"Account": 1, "Vote": 1}
        for step in steps:
            for name, table in step.items():
                rows = result.setdefault(name, {})
                for *values, exists in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    key = tuple(values[: keys.get(name, 1)])
                    if exists:
                        rows[key] = tuple(values)
                    else:
                        rows.pop(key, None)
        return result

    def whole(self, version: int) -> dict[str, pa.Table]:
        """The state at a version as tables of whole rows."""
        state = self.state(version)
        return {layout.name: self.rows(layout, state[layout.name].values(), change=False) for layout in (ACCOUNT, VOTE)}

    def commit(self, store: VersionStore, first: int, last: int) -> None:
        for version in range(first, last + 1):
            store.commit(self.info(version), self.changes(version))

    def loaded(self, store: VersionStore, version: int | None = None, **options: Any) -> State:
        return self.apply(store.load(version, **options)[1])


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    local = request.param == "local"
    return open_storage(str(tmp_path / "state") if local else f"memory://{uuid.uuid4().hex}")
