"""Tables and fields get other names, or go, in a state that nobody works on.

    version   7                          8                                   9
    tables    Account(id, balance)       Konto(id, balance)                  Account(id, balance)
                                         (renamed; all rows are in it)       (rolled back to 7)

The next version holds all rows, under the new names (`VersionStore.commit_whole`), and readers begin with it. So it is
made by one file, as every version is, and nothing of the versions below is altered: rolling back to one of them brings
the old names back. What was applied for queries stays applied, and they go on with their next batch. Earlier states of
a table's rows, which the engine keeps for `tg.history`, are renamed with it.

A table that is renamed leaves nothing behind under its old name. So a program that still has the old one is refused by
`evolution.require_no_renaming`, and one that has a renamed field by `evolution.require_fit`. Fields that were dropped
are noted in the header of every later version; `evolution.require_none_dropped` refuses a program that has one.

Rejected: a version that only notes the new names. Every reader of an older file would have to follow them.

Cost: all rows are read and written once, one section at a time in memory.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.api.table import RESERVED
from tidegate.durability import evolution
from tidegate.durability.administration import HIDDEN, Administration
from tidegate.durability.compaction import merged
from tidegate.durability.files import Body
from tidegate.durability.version_files import Told, VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout

Started = Callable[[int], None]
"""Is told how many bytes there are to read."""


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The new version, the one below it, and how many rows the table has that was changed."""

    version: VersionInfo
    below: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Step:
    """What becomes of one table: its layout then, and which of its columns are taken over, by their new names."""

    target: TableLayout
    columns: dict[str, str]

    def apply(self, rows: pa.Table) -> pa.Table:
        taken = pa.Table.from_arrays([rows.column(name) for name in self.columns.values()], names=list(self.columns))
        return evolution.upgrade(taken, self.target).drop_columns([evolution.EXISTS.name])


@dataclass(slots=True)
class Reshaping:
    """A state whose tables are to be changed; raises StateOwned when somebody works on it.

    `told` is told how many bytes more were read, `started` how many there are.
    """

    storage: Storage
    told: Told = field(default=lambda size: None)
    started: Started = field(default=lambda size: None)
    administration: Administration = field(init=False)
    layouts: dict[str, TableLayout] = field(init=False)

    def __post_init__(self) -> None:
        self.administration = Administration(VersionStore(self.storage))
        newest = self.administration.newest
        if newest is None:
            self.administration.store.load(None)  # raises, and says that there is no state here
        assert newest is not None
        self.layouts = {layout.name: layout for layout in newest.layouts}

    def rename_table(self, old: str, new: str) -> Reshaped:
        """The rows of table `old` become rows of table `new`, which is not there yet, or has no rows."""
        self._require_table(old)
        self._require_name(new, "table", new.startswith(HIDDEN))
        if new == old:
            raise InputError(f"{self.storage.path}: required another name than {old}, got the same")
        names = {old: new, f"{HIDDEN}history_{old}": f"{HIDDEN}history_{new}"}
        steps = {name: _renamed(self.layouts[name], names[name]) for name in names if name in self.layouts}
        for name, step in steps.items():
            known = self.layouts.get(step.target.name)
            if known is not None:
                evolution.require_fit(self.storage.path, [step.target], [known])
                steps[name] = replace(step, target=known)
        dropped = {names.get(table, table): fields for table, fields in self._dropped().items()}
        return self._commit(old, steps, dropped)

    def rename_field(self, table: str, old: str, new: str) -> Reshaped:
        """A field gets another name; key fields, too."""
        layout = self._require_field(table, old)
        self._require_name(new, "field", new in RESERVED or new.startswith("_"))
        if any(column.name == new for column in layout.columns):
            raise InputError(f"{self.storage.path}: {table} has a field {new!r} already; choose another name")
        dropped = self._dropped()
        dropped[table] = [name for name in dropped.get(table, []) if name != new]
        return self._commit(table, self._with_history(table, {old: new}), dropped)

    def drop_field(self, table: str, name: str) -> Reshaped:
        """A field goes, with its values; the key stays."""
        layout = self._require_field(table, name)
        if name in layout.key:
            raise InputError(
                f"{self.storage.path}: {name!r} belongs to the key of {table}, which tells rows apart: it cannot be "
                f"dropped. Fields that can be: {', '.join(column.name for column in layout.value_columns) or 'none'}"
            )
        dropped = self._dropped()
        dropped[table] = [*dropped.get(table, []), name]
        return self._commit(table, self._with_history(table, {name: None}), dropped)

    def _dropped(self) -> dict[str, list[str]]:
        newest = self.administration.newest
        return {} if newest is None else dict(newest.dropped or {})

    def _with_history(self, table: str, names: dict[str, str | None]) -> dict[str, _Step]:
        """The steps for a table whose fields get other names (None: they go), and for its earlier states."""
        steps = {table: _with_fields(self.layouts[table], names)}
        history = self.layouts.get(f"{HIDDEN}history_{table}")
        if history is not None:  # its columns are key_NAME and of_NAME
            marked = {
                f"{mark}{name}": None if new is None else f"{mark}{new}"
                for name, new in names.items()
                for mark in ("key_", "of_")
            }
            steps[history.name] = _with_fields(history, marked)
        return steps

    def _commit(self, table: str, steps: dict[str, _Step], dropped: dict[str, list[str]]) -> Reshaped:
        administration = self.administration
        newest = administration.newest
        assert newest is not None
        source = VersionFiles(administration.store, newest.version, self.told)
        self.started(2 * sum(source.size(layout.name) for layout in source.layouts))
        targets: dict[str, TableLayout] = {}
        sections: dict[str, list[Body]] = {}
        taken = {step.target.name for name, step in steps.items() if step.target.name != name}
        for layout in source.layouts:
            step = steps.get(layout.name) or _renamed(layout, layout.name)
            name = step.target.name
            found = merged(source, layout, step.apply)
            if found and layout.name in taken:
                raise InputError(
                    f"{self.storage.path}: {table} cannot become {name}: there is a table {name} already, and it has "
                    "rows. Required a table without rows, or none of that name."
                )
            targets[name] = step.target
            sections.setdefault(name, []).extend(("table", name, section) for section in found)
        counts = {name: sum(len(body) for _, _, body in bodies) for name, bodies in sections.items()}
        changed = steps[table].target.name
        version = administration.commit_whole(
            counts,
            [body for bodies in sections.values() for body in bodies],
            layouts=tuple(targets.values()),
            dropped={name: fields for name, fields in dropped.items() if fields},
        )
        return Reshaped(version, newest.version, counts[changed])

    def _require_table(self, name: str) -> TableLayout:
        if name not in self.layouts or name.startswith(HIDDEN):
            own = sorted(name for name in self.layouts if not name.startswith(HIDDEN))
            raise InputError(
                f"{self.storage.path}: there is no table {name!r}. This state has: {', '.join(own) or 'no tables'}"
            )
        return self.layouts[name]

    def _require_field(self, table: str, name: str) -> TableLayout:
        layout = self._require_table(table)
        if all(column.name != name for column in layout.columns):
            known = ", ".join(column.name for column in layout.columns)
            raise InputError(f"{self.storage.path}: {table} has no field {name!r}; its fields are: {known}")
        return layout

    def _require_name(self, name: str, what: str, reserved: bool) -> None:
        if reserved or not name.isidentifier() or keyword.iskeyword(name):
            raise InputError(
                f"{self.storage.path}: required the name of a {what}, as a program declares it, got {name!r}"
            )


def _renamed(layout: TableLayout, name: str) -> _Step:
    return _Step(replace(layout, name=name), {column.name: column.name for column in layout.columns})


def _with_fields(layout: TableLayout, names: dict[str, str | None]) -> _Step:
    """A table some of whose fields get other names; those of the name None go."""
    taken = {column.name: names.get(column.name, column.name) for column in layout.columns}
    columns = tuple(replace(column, name=new) for column in layout.columns if (new := taken[column.name]) is not None)
    key = tuple(names.get(name) or name for name in layout.key)
    by = taken.get(layout.by) or ""
    target = replace(layout, columns=columns, key=key, ttl=layout.ttl if by else None, by=by)
    return _Step(target, {new: old for old, new in taken.items() if new is not None})
