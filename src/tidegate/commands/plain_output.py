r"""Output for terminals that show ASCII only: no command crashes there, and none prints what they cannot show.

    a terminal with UTF-8       ✓  ──────  5 µs      rows as they are
    LANG=C, TERM=dumb           ok ------  5 us      rows as they are, where the encoding has their characters
    an encoding without them    ok ------  5 us      rows with \xfc and \u2192 for what it has not

Inside `plain_streams` standard output and standard error say that they are ASCII, so that Rich draws with ASCII, and
turn the few other characters that this package writes into ASCII.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO, cast

SYMBOLS = str.maketrans(
    {
        "✓": "ok",
        "✗": "x",
        "→": "->",
        "─": "-",
        "│": "|",
        "…": "...",
        "–": "-",
        "—": "-",
        "×": "x",
        "÷": "/",
        "≤": "<=",
        "≥": ">=",
        "µ": "u",
        "•": "*",
    }
)
"""What stands for the characters that this package prints itself."""

_COERCED = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""What Python makes of the locale C by itself: then the user has not said that the terminal shows more than ASCII."""


def is_plain(encoding: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a stream of that encoding is to get ASCII only."""
    if not (encoding or "").lower().startswith("utf") or environment.get("TERM") == "dumb":
        return True
    kind = environment.get("LC_CTYPE", "")
    said = environment.get("LC_ALL") or ("" if kind in _COERCED else kind) or environment.get("LANG")
    return said in ("C", "POSIX") and "PYTHONIOENCODING" not in environment


class _PlainStream:
    """A text stream that calls itself ASCII."""

    encoding = "ascii"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.translate(SYMBOLS))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def plain_streams() -> Iterator[None]:
    """Inside, whatever is printed can be shown; outside, the streams are what they were."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_plain(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _plain(stream: TextIO) -> TextIO:
    if not is_plain(stream.encoding, os.environ):
        return stream
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast(TextIO, _PlainStream(stream))
