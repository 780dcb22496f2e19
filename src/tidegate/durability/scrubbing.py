"""Reads a state again and again, a little at a time, so that damage is found while a backup still has the file.

    step(1 MB)    000000000081.snapshot    bytes 0 to 1 MB
    step(1 MB)    000000000081.snapshot    bytes 1 to 2 MB
    step(1 MB)    000000000081.snapshot    the rest; 000000000082.change; 000000000083.change, its first bytes
    ...                                                                  at the end it begins again

The keeper of a state calls `step` now and then, with as many bytes as it can spare. The position is kept in memory;
files that were collected meanwhile are skipped, and new files are in the next pass.

Invariant: a step reads at most what it may, and one piece or one header more. It never writes, and does not raise for
damage: it logs an error that names the file, and returns its message.

Not here: the chain, the head and the rows (verification.py). Bytes that the operating system has cached are read from
memory, so damage on the disk may show later. Not safe for several threads at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tidegate.durability import files
from tidegate.durability.listing import parse_name
from tidegate.durability.version_info import from_header
from tidegate.foundation.errors import TidegateError
from tidegate.foundation.storage import Storage

PIECE_SIZE = 256 << 10

_log = logging.getLogger(__name__)


class Scrubber:
    """Goes through the files of a state in circles."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._rest = self._pass()
        self.passes = 0
        self.files = 0
        self.bytes = 0

    def step(self, bytes_max: int) -> list[str]:
        """Checks about `bytes_max` bytes more; what is wrong with them. A step ends where a pass does."""
        found, left = [], bytes_max
        while left > 0:
            try:
                size, problem = next(self._rest)
            except StopIteration:
                self.passes += 1
                self._rest = self._pass()
                break
            left -= size
            self.bytes += size
            if problem:
                _log.error("%s", problem)
                found.append(problem)
        return found

    def _pass(self) -> Iterator[tuple[int, str | None]]:
        """Every file once: how many bytes were read, and what is wrong."""
        try:
            names = self._storage.list()
        except TidegateError as error:
            yield 0, f"{error}"
            return
        for name in names:
            if not parse_name(name):
                continue
            try:
                yield from self._check(name)
                self.files += 1
            except FileNotFoundError:  # collected
                continue
            except TidegateError as error:
                yield 0, f"{error}"

    def _check(self, name: str) -> Iterator[tuple[int, str | None]]:
        parsed = parse_name(name)
        assert parsed is not None
        header = files.read_header(self._storage, name)
        from_header(files.described(self._storage, name), *parsed, header)
        for piece in files.read_pieces(self._storage, name, header, PIECE_SIZE):
            yield piece.size, None
