"""Counts what the bodies of a program ask the model for: which rows they look up, and what rows were before.

Asked(model, seen)      from now on; `seen` counts
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

from .model import Model, Services
from .oracle import Key, Row
from .random_graphs import GraphCase


class Asked:
    """Stands between a model and what it asks itself, and counts."""

    def __init__(self, model: Model, seen: collections.Counter[str]) -> None:
        self.model, self.seen = model, seen
        self._inside: list[tuple[Row, dict[str, Any]]] | None = None
        self._serving, self._take, self._earlier = model.serving, model._take, model._earlier
        for name in ("serving", "_take", "_earlier"):
            setattr(model, name, getattr(self, name.strip("_")))

    @contextlib.contextmanager
    def serving(self, services: Services) -> Iterator[None]:
        """A body runs; what it looked up was written, or not, when it is over."""
        self._inside = found = []
        try:
            with self._serving(services):
                yield
        except BaseException:
            self.seen["aborts after lookups"] += bool(found)
            raise
        finally:
            self._inside = None
        self.seen["written lookups"] += sum(row.__dict__ != before for row, before in found)
        self.seen["deleted lookups"] += sum(before["exists"] and not row.exists for row, before in found)

    def take(self, rows: dict[tuple[str, Key], Row], kind: type[Row], key: Key) -> Row:
        """A row, for a parameter or looked up."""
        known = (kind.__name__, key) in rows
        row = self._take(rows, kind, key)
        if self._inside is not None:
            self._inside.append((row, dict(row.__dict__)))
            self.seen["lookups"] += 1
            self.seen["aliases"] += known
            self.seen["absent lookups"] += not row.exists
        return row

    def earlier(self, row: Row, now: int, last: int) -> list[Any]:
        """The states of a row."""
        found = self._earlier(row, now, last)
        times = [state.time for state in found]
        self.seen["histories"] += bool(found)
        self.seen["empty histories"] += not found
        self.seen["long histories"] += len(found) > 3
        self.seen["states of deleted rows"] += sum(not state.exists for state in found)
        self.seen["late states"] += times != sorted(times, reverse=True)
        self.seen["states of one time"] += len(set(times)) < len(times)
        return found

    def count_programs(self, case: GraphCase) -> None:
        """What kind of program it was."""
        looks_up = any(procedure.looks_up for procedure in self.model.procedures)
        self.seen["programs that look up"] += looks_up
        self.seen["programs that remember"] += bool(case.keeps)
        self.seen["programs with both"] += looks_up and bool(case.keeps)
        self.seen["programs without graphs"] += not case.graphs
