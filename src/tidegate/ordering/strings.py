"""The strings of a running pipeline, which several threads may add to."""

from __future__ import annotations

import threading
from typing import Any

from tidegate.engine.state.strings import StringPool


class SharedStrings(StringPool):
    """A pool in which one thread at a time adds strings; others read meanwhile (see `StringPool`)."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        super().__init__()

    def _intern(self, offsets: Any, data: Any) -> Any:
        with self._one_at_a_time:
            return super()._intern(offsets, data)
