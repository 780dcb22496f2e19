"""Folders of state for benchmarks of durability: as a crash leaves them, and what the log in them holds.

    engine ── commands ──> folder ── left_behind ──> copy ── tg.Engine(directory=copy) ──> recovered rows
              (still open)

An engine that is closed writes a checkpoint, so that opening its folder replays nothing. Recovery is therefore measured
and verified on a copy of the folder of an engine that is still open: what a process that is killed at that moment
leaves. Where bytes are the subject, `log_frames` reads them from the log itself; a file's length says little, because
space is allocated ahead.

Nothing is measured here.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Variant
from tidegate.durability import log_segments
from tidegate.durability.log_format import Frame, frames
from tidegate.foundation.storage import open_storage

BACKGROUND = ("tidegate checkpoint", "tidegate-compaction")
"""What the names of the threads begin with that write checkpoints and snapshots."""


@dataclass(frozen=True, slots=True)
class Template:
    """A program and the rows that it starts with, in a folder that is copied for each run: its log is empty."""

    program: Any
    path: Path

    def copy(self) -> Path:
        """A folder of its own for one run."""
        return left_behind(self.path)

    def open(self, path: Path, **options: Any) -> tg.Engine:
        """An engine on a folder."""
        return tg.Engine(self.program, directory=str(path), **options)

    def open_copy(self, **options: Any) -> tuple[tg.Engine, Path]:
        """An engine on a folder of its own, and that folder."""
        path = self.copy()
        return self.open(path, **options), path

    def require_durable(
        self, wanted: Mapping[type, pa.Table], what: str, opened: tuple[tg.Engine, Path], result: Any
    ) -> None:
        """AssertionError unless an engine of `open_copy` and what a crash would leave of it hold these rows."""
        engine, path = opened
        _require_tables(engine, wanted, what)
        require_recovered(self, path, wanted, what)
        _discard(engine, path)

    def reopened(self, name: str, prepare: Callable[[], Path], wanted: Mapping[type, pa.Table]) -> Variant:
        """A variant that opens what a crash left, and must find these rows."""

        def verify(path: Path, engine: tg.Engine) -> None:
            _require_tables(engine, wanted, name)
            _discard(engine, path)

        return Variant(name, prepare=prepare, run=self.open, verify=verify)


def make_template(program: Any, tables: Mapping[type, pa.Table], folder: Path) -> Template:
    """A template with these rows, which are in a checkpoint."""
    path = Path(tempfile.mkdtemp(dir=folder))
    with tg.Engine(program, directory=str(path)) as engine:
        for table, rows in tables.items():
            engine.load(table, rows)
    return Template(program, path)


def left_behind(path: Path) -> Path:
    """A copy, beside the folder, of what a process that is killed now would leave in it."""
    wait_for_background()
    copy = Path(tempfile.mkdtemp(dir=path.parent))
    shutil.copytree(path, copy, dirs_exist_ok=True)
    return copy


def wait_for_background() -> None:
    """Return when no thread of this process writes a checkpoint or a snapshot."""
    for thread in threading.enumerate():
        if thread.name.startswith(BACKGROUND):
            thread.join()


def log_frames(path: Path) -> list[int]:
    """The bytes of each frame in the newest segment of a folder's log: one frame for each time that it was written."""
    storage = open_storage(str(path))
    segment = log_segments.open_segment(storage, log_segments.numbers(storage)[-1])
    parts = frames(segment.file, segment.data, segment.header)
    return [part.end.offset - part.offset for part in parts if isinstance(part, Frame)]


def require_rows(found: pa.Table, wanted: pa.Table, what: str) -> None:
    """AssertionError when two tables, both sorted by key, do not hold the same rows."""
    if not found.select(wanted.column_names).cast(wanted.schema).combine_chunks().equals(wanted.combine_chunks()):
        raise AssertionError(f"{what}: the rows differ from those of the plain functions")


def require_recovered(template: Template, path: Path, wanted: Mapping[type, pa.Table], what: str) -> None:
    """AssertionError when what a crash would leave of a folder does not come back as these rows."""
    copy = left_behind(path)
    engine = template.open(copy)
    _require_tables(engine, wanted, f"{what}, opened again")
    _discard(engine, copy)


def _require_tables(engine: tg.Engine, wanted: Mapping[type, pa.Table], what: str) -> None:
    for table, rows in wanted.items():
        require_rows(engine.scan(table), rows, what)


def _discard(engine: tg.Engine, path: Path) -> None:
    engine.close()
    shutil.rmtree(path)
