"""What a transaction's function costs: the first events of a batch are run, and timed.

Only a whole call can be timed, and the call itself takes time. So a probe grows until the functions dominate:

    run  16 events   the call took 2 us, the run 5 us    too short to tell
    run  64 events   the run took 90 us                  90 - 2 us in 64 events: 1.4 us each

The first events of a batch run on cold caches; the time of the whole batch later shows how far off the probe was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

PROBE_EVENTS, PROBE_EVENTS_MAX = 16, 1024
PROBE_CALLS = 8
"""A probe should take this many times as long as an empty call."""

LEARNING = 0.3
"""The weight of the newest batch in the correction of probes (exponential smoothing)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found."""

    events: int
    """How many events were run."""
    cost_ns: float
    """Nanoseconds per event, corrected by what earlier batches showed about probes."""
    interpreted: int
    """How many of the events plain Python ran."""


@dataclass(slots=True)
class Prober:
    """Probes batches, and remembers what makes short probes accurate: the time of an empty call, and a correction."""

    _clock: Callable[[], float] = time.perf_counter
    _call_seconds: float = 0.0
    _cost_ns: float = 0.0
    _bias: float = 1.0

    def probe(self, run: Callable[[int, int], int], events: int) -> Probe:
        """Run a batch's first events; `run(start, stop)` runs a range and returns how many of them plain Python ran."""
        call, step = self._call_seconds, PROBE_EVENTS
        if call == 0.0:
            run(0, 0)  # the first call loads the program
            call = self._timed(run, 0, 0)[0]
        elif self._cost_ns > 0.0:
            step = int(min(max(PROBE_CALLS * call / self._cost_ns * 1e9, PROBE_EVENTS), PROBE_EVENTS_MAX))
        position, interpreted = 0, 0
        while True:
            stop = min(position + step, events)
            seconds, found = self._timed(run, position, stop)
            count, position, interpreted = stop - position, stop, interpreted + found
            if seconds < call:  # the empty call was disturbed when it was timed
                call = self._timed(run, 0, 0)[0]
            if seconds > PROBE_CALLS / 2 * call or step >= PROBE_EVENTS_MAX or position == events:
                self._cost_ns = max((seconds - call) / max(count, 1) * 1e9, 1.0)
                self._call_seconds = call
                return Probe(position, self._cost_ns * self._bias, interpreted)
            step *= 4

    def learn(self, really_ns: float) -> None:
        """Correct later probes by what the functions of the last probed batch really took."""
        ratio = min(max(really_ns / self._cost_ns, 0.1), 2.0)
        self._bias += LEARNING * (ratio - self._bias)

    def _timed(self, run: Callable[[int, int], int], start: int, stop: int) -> tuple[float, int]:
        began = self._clock()
        interpreted = run(start, stop)
        return self._clock() - began, interpreted
