"""How many events should share a batch: the punctuation interval, estimated from what batches took.

A batch of n events takes a fixed time (workers start, arrays are set up) and a time for each event:

    seconds(n) = fixed + each * n

Both are fitted to the batches so far. A larger interval spreads the fixed part over more events; beyond
some size that no longer matters, and an event only waits longer for its outcome:

    for throughput    the smallest n for which the fixed part is a twentieth of the whole
    for latency       the largest n that still takes no longer than the target
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

FIXED_SHARE = 0.05
EVENTS_MIN, EVENTS_MAX = 64, 1 << 20
FIXED_SECONDS = 200e-6
"""The fixed time that is assumed while all batches have had about the same size, so that it cannot be fitted."""

SAMPLES = 64


@dataclass(slots=True)
class Punctuation:
    """Remembers batches, and estimates the best interval."""

    samples: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, events: int, seconds: float) -> None:
        """A batch was run."""
        if events > 0:
            self.samples.append((events, seconds))

    def fit(self) -> tuple[float, float]:
        """Fixed seconds of a batch, and seconds of each event."""
        events = np.array([count for count, _ in self.samples], np.float64)
        seconds = np.array([taken for _, taken in self.samples], np.float64)
        if len(events) > 1 and events.max() > 1.5 * events.min():
            # Each batch counts alike, however large: the relative error is what matters.
            weights = 1.0 / np.maximum(seconds, 1e-9)
            terms = np.stack([np.ones_like(events), events], axis=1) * weights[:, None]
            fixed, each = np.linalg.lstsq(terms, seconds * weights, rcond=None)[0]
            if fixed > 0.0 and each > 0.0:
                return float(fixed), float(each)
        each = float(np.median(np.maximum(seconds - FIXED_SECONDS, seconds / 2) / events))
        return FIXED_SECONDS, each

    def best(self, latency_seconds: float | None = None) -> int | None:
        """Events for each batch; None before the first batch."""
        if not self.samples:
            return None
        fixed, each = self.fit()
        wanted = fixed / (FIXED_SHARE * each) if latency_seconds is None else (latency_seconds - fixed) / each
        return int(min(max(wanted, EVENTS_MIN), EVENTS_MAX))
