"""Fixtures of several tests that run random programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..stages_in_pieces import stages_in_pieces


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that nobody will run again stay out of the user's cache."""
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))


@pytest.fixture
def small_pieces() -> Iterator[None]:
    """Stages run side by side whenever there are several, two events at a time."""
    with stages_in_pieces(events=2, switch_seconds=1e-5):
        yield
