"""A place in a user's source, and how an error shows it.

The reader of an error about a declaration is the person who wrote that line, so the error shows the line:

    ledger.py:14: transaction 'transfer': table Account has no field 'balanse'
        src.balanse -= amount
    fields are: id, balance
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The source line, stripped; empty where the source cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def describe(self, message: str, advice: str = "") -> str:
        """The message preceded by its place, followed by the source line and the advice."""
        shown = f"\n    {self.text}" if self.text else ""
        return f"{self.file}:{self.line}: {message}{shown}" + (f"\n{advice}" if advice else "")
