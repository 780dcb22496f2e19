"""Where in a user's source something stands, and how an error shows it.

An error about a declaration is read by the person who wrote that line, so it shows the line:

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
        """The message with its place in front, the source line below, and what to do at the end."""
        shown = f"\n    {self.text}" if self.text else ""
        return f"{self.file}:{self.line}: {message}{shown}" + (f"\n{advice}" if advice else "")
