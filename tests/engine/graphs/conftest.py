"""Whether the generated code of a graph runs compiled, as plain Python, or both in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tidegate.foundation.jit import uncompiled


@pytest.fixture
def plainly() -> Iterator[None]:
    """The generated code runs as plain Python: compiling a graph takes seconds."""
    with uncompiled():
        yield


@pytest.fixture(params=["compiled", "uncompiled"])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs twice: on machine code, and on the same generated code as plain Python."""
    with uncompiled() if request.param == "uncompiled" else nullcontext():
        yield
