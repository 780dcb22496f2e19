"""A simulation's ids depend on its seed alone, whatever else the process does meanwhile."""

from __future__ import annotations

import contextvars
import random
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.foundation import jit

from .seeded_ids import seeded_ids

KERNEL = """\
from tidegate.foundation.jit import kernel_or_plain

@kernel_or_plain
def run(x):
    return x + 4711
"""


def ids_around(meanwhile: Callable[[], object]) -> list[uuid.UUID]:
    """Two ids of one seed; something else happens between them."""
    with seeded_ids(random.Random(17)):
        first = uuid.uuid4()
        meanwhile()
        return [first, uuid.uuid4()]


def in_a_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


ALONE = ids_around(lambda: None)


def test_a_kernel_that_is_compiled_and_cached_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    assert ids_around(lambda: jit.load_program(KERNEL).run(1)) == ALONE
    assert list(tmp_path.glob("**/*.nbc"))  # it was new, and its file was named


def test_a_thread_of_somebody_else_takes_none() -> None:
    assert ids_around(lambda: in_a_thread(uuid.uuid4)) == ALONE


def test_a_thread_in_the_simulations_context_takes_them() -> None:
    drawn: list[uuid.UUID] = []

    def draw() -> None:
        context = contextvars.copy_context()
        in_a_thread(lambda: drawn.append(context.run(uuid.uuid4)))

    assert ids_around(draw)[0] == ALONE[0]
    assert drawn == ALONE[1:]


def test_afterwards_ids_are_random_again() -> None:
    real = uuid.uuid4
    with seeded_ids(random.Random(17)):
        pass
    assert uuid.uuid4 is real and jit.uuid is uuid
