"""Stages of dataflow graphs side by side in the smallest batch: small pieces, and threads that switch often."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidegate.engine import stages
from tidegate.engine.graphs import walk


@contextmanager
def stages_in_pieces(events: int, switch_seconds: float) -> Iterator[None]:
    """Inside this block a piece has this many events, and Python switches threads after this many seconds."""
    interval = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "SIDE_BY_SIDE_EVENTS", 1)
        patch.setattr(walk, "PIECES", 10_000)
        patch.setattr(walk, "PIECE_EVENTS", events)
        sys.setswitchinterval(switch_seconds)
        try:
            yield
        finally:
            sys.setswitchinterval(interval)
