"""Probes: as long as they must be, read with what batches showed, and never beyond the batch."""

from __future__ import annotations

import pytest

from tidegate.engine.adaptation.probing import PROBE_EVENTS, PROBE_EVENTS_MAX, Prober


class Functions:
    """A clock and functions of a known cost, in a call that takes time itself."""

    def __init__(self, cost_ns: float, call_ns: float = 2000.0) -> None:
        self.cost_ns, self.call_ns = cost_ns, call_ns
        self.now_ns = 0.0
        self.ran: list[tuple[int, int]] = []

    def clock(self) -> float:
        """Seconds."""
        return self.now_ns * 1e-9

    def run(self, start: int, stop: int) -> int:
        """Run a range of events; plain Python runs one in each."""
        if stop > start:
            self.ran.append((start, stop))
        self.now_ns += self.call_ns + self.cost_ns * (stop - start)
        return 1 if stop > start else 0


@pytest.mark.parametrize("cost_ns", [20.0, 300.0, 10_000.0, 1e6])
def test_the_cost_is_found_whatever_it_is(cost_ns: float) -> None:
    functions = Functions(cost_ns)
    probe = Prober(functions.clock).probe(functions.run, 100_000)
    assert probe.cost_ns == pytest.approx(cost_ns, rel=0.01)
    assert probe.events == sum(stop - start for start, stop in functions.ran)
    assert probe.interpreted == len(functions.ran)
    assert [start for start, _ in functions.ran] == [0, *(stop for _, stop in functions.ran[:-1])]


def test_costly_functions_are_probed_shortly_and_cheap_ones_at_length() -> None:
    costly, cheap = Functions(10_000.0), Functions(20.0)
    assert Prober(costly.clock).probe(costly.run, 10_000).events == PROBE_EVENTS
    assert Prober(cheap.clock).probe(cheap.run, 10_000).events > PROBE_EVENTS_MAX


def test_the_next_probe_is_as_long_as_the_last_one_says() -> None:
    functions = Functions(100.0)
    prober = Prober(functions.clock)
    prober.probe(functions.run, 100_000)
    functions.ran.clear()
    prober.probe(functions.run, 100_000)
    assert len(functions.ran) == 1


@pytest.mark.parametrize("events", [1, PROBE_EVENTS, PROBE_EVENTS + 1])
def test_a_probe_ends_with_its_batch(events: int) -> None:
    functions = Functions(1.0)
    assert Prober(functions.clock).probe(functions.run, events).events == events


def test_what_batches_took_says_how_a_probe_is_to_be_read() -> None:
    """The first events always take three times what the others take."""
    functions = Functions(900.0)
    prober = Prober(functions.clock)
    for _ in range(30):
        prober.probe(functions.run, 1000)
        prober.learn(300.0)
    assert prober.probe(functions.run, 1000).cost_ns == pytest.approx(300.0, rel=0.01)


def test_a_call_that_was_timed_while_something_else_ran_is_not_believed_for_ever() -> None:
    """Else every later probe would be as long as can be: all of a small batch, on one worker."""
    functions = Functions(1_000.0, call_ns=10e6)
    prober = Prober(functions.clock)
    prober.probe(functions.run, PROBE_EVENTS)
    functions.call_ns = 2_000.0
    assert prober.probe(functions.run, 100_000).cost_ns == pytest.approx(1_000.0, rel=0.1)
    assert prober.probe(functions.run, 100_000).events < PROBE_EVENTS_MAX / 2
