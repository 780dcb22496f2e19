from __future__ import annotations

import errno
import pickle

from tidegate.foundation import refusals
from tidegate.foundation.errors import StorageFailed, StorageUncertain


def test_a_refused_write_says_that_nothing_was_committed_and_what_to_do() -> None:
    error = refusals.failed("state/a", "write", OSError(errno.ENOSPC, "full"))
    assert str(error) == (
        "state/a: could not write it: No space left on device (errno 28). Nothing was committed; what was "
        "committed before stands. Free space on the file system that holds it, then run again."
    )
    assert "committed" not in str(refusals.failed("state/a", "read", OSError(errno.ENOSPC, "full")))


def test_a_doubt_never_says_that_nothing_was_committed() -> None:
    error = refusals.in_doubt("state/a", "giving it its name failed", ValueError("odd"))
    assert isinstance(error, StorageUncertain) and isinstance(error, StorageFailed)
    assert "state/a: giving it its name failed: ValueError: odd" in str(error)
    assert "Nothing was committed" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_taken_name_is_named() -> None:
    assert refusals.taken("state/a").errno == errno.EEXIST
    assert refusals.taken("state/a").filename == "state/a"
