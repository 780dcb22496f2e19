"""Collects the text of a generated function, line by line.

The generated code is three-address code written as Python: every step that reads state or can fail
is a separate statement, in Python's order of evaluation, and stores its value in a temporary:

    t1 = table__Account__balance[row__src]
    t2, t3 = subtract(t1, value__amount)
    if t3: return ESCAPE

So short circuits, aborts in the middle of an expression and the order of reads and writes are exactly
those of Python. Numba and LLVM remove the temporaries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

ESCAPES = "ESCAPE"
"""The status that generated code returns if plain Python must run the transaction."""

INTERRUPTS = "INTERRUPTED"
"""The status that generated code returns if the user interrupts a loop."""


class Emitter:
    """Lines of generated code with their indentation, fresh names, and the arrays they mention."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arrays: dict[str, None] = {}
        self._depth = 1
        self._temporaries = 0

    def emit(self, line: str) -> None:
        """Add one line."""
        self.lines.append("    " * self._depth + line)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a line that opens a block, and indent what follows inside it."""
        self.emit(header)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.emit("pass")
        self._depth -= 1

    def fresh(self) -> str:
        """A name that was not used before."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def keep(self, code: str) -> str:
        """Evaluate `code` now, into a temporary."""
        name = self.fresh()
        self.emit(f"{name} = {code}")
        return name

    def array(self, name: str) -> str:
        """Note that the code uses an array: it becomes an argument of the function."""
        self.arrays[name] = None
        return name
