"""Any dataflow graph, any cuts of its events: the engine computes what the model computes.

Each seed gives a program of streams, windows, triggers, nested groups and plain transactions, rows to load and
events. A failure prints the seed, what differed, and a program made as small as possible. One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_random_graphs.py
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pytest

import tidegate as tg
from tidegate.engine import core, stages
from tidegate.engine.graphs import lanes
from tidegate.engine.state import history, journal, streams, table, windows
from tidegate.foundation.jit import uncompiled

from .asking import Asked
from .choices import Choices, shrink
from .comparison import Mismatch
from .graph_comparison import Calls, check_graphs, explain
from .random_graphs import GraphCase, random_graph_case
from .running import FIRST_COMPILED_SEED, FIRST_SOAK_SEED, Record, chunks, name_of
from .stand_in import declared, model_of

UNCOMPILED, COMPILED = 100, 3
SOAK_UNCOMPILED, SOAK_COMPILED = 5_000, 300
CALLS = [Calls("cuts"), Calls("single"), Calls("ordered"), Calls()]
SIDE_BY_SIDE = [
    Calls("whole", "lock", 2), Calls("cuts", tg.Decision(), 3), Calls("whole", "mvlk", 8),
    Calls("ordered", "chains", 2), Calls("cuts", "adaptive", 2), Calls("whole", "adaptive", 4),
]  # fmt: skip


PLAIN_BY_STRATEGIES = [replace(calls, record=False) for calls in SIDE_BY_SIDE]


def some_calls(seed: int) -> list[Calls]:
    """One way by one worker, and two by several; every way has its turn."""
    return [ways[seed % len(ways)] for ways in (CALLS, SIDE_BY_SIDE, PLAIN_BY_STRATEGIES)]


@pytest.fixture(autouse=True)
def all_side_by_side(small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stages do not run side by side, the strategies run every plain transaction."""
    monkeypatch.setattr(stages, "AROUND_EVENTS", 1)


def failure_of(case: GraphCase, calls: Sequence[Calls]) -> Exception | None:
    for way in calls:
        try:
            check_graphs(case, way, Choices(len(case.drawn)))
        except Exception as error:
            error.add_note(f"with {way}")
            return error
    return None


def report(seed: int, case: GraphCase, error: Exception, calls: Sequence[Calls], small: bool, seconds: float) -> str:
    """The failure of a seed, as small as it could be made in the given time."""

    def again(drawn: Sequence[int]) -> GraphCase:
        return random_graph_case(Choices(replay=drawn), small)

    def fails(drawn: Sequence[int]) -> bool:
        with contextlib.suppress(RecursionError):
            return kind_of(failure_of(again(drawn), calls)) == kind_of(error)
        return False

    def kind_of(found: Exception | None) -> tuple[type, str]:
        return type(found), str(found.args[0]).split()[0] if found and found.args else ""

    shrunk = again(shrink(case.drawn, fails, seconds))
    final = failure_of(shrunk, calls) or error
    notes = " ".join(getattr(final, "__notes__", ()))
    what = "\n  ".join(str(part) for part in final.args)
    return f"seed {seed}: {type(final).__name__} {notes}\n{what}\n\n{explain(shrunk)}"


def run_seeds(seeds: range, *, small: bool = False, seconds: float = 30.0) -> int:
    for seed in seeds:
        case = random_graph_case(Choices(seed), small)
        error = failure_of(case, some_calls(seed))
        if error is not None:
            text = report(seed, case, error, some_calls(seed), small, seconds)
            pytest.fail(text, pytrace=not isinstance(error, Mismatch))
    return len(seeds)


def make_room_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """What otherwise happens once in thousands of tuples happens in every round: arrays grow, strings are collected."""
    monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
    for module, name, value in [
        (journal, "SMALLEST", 2),
        (lanes, "SMALLEST", 2),
        (streams, "SMALLEST", 2),
        (table, "SMALLEST", 1),
        (history, "SMALLEST", 1),
        (windows.Windows.__init__, "__defaults__", (2, 1, 2)),  # lines of its journal, rows of rings, buckets of tables
    ]:
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("seeds", chunks(0, UNCOMPILED, 10), ids=name_of)
def test_generated_code_equals_the_model(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 10 % 2:
        make_room_scarce(monkeypatch)
    with uncompiled():
        record_property("compared dataflow programs uncompiled", run_seeds(seeds))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, 1), ids=name_of)
def test_compiled_code_equals_the_model(seeds: range, record_property: Record) -> None:
    record_property("compared dataflow programs compiled", run_seeds(seeds, small=True))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_UNCOMPILED, 500), ids=name_of)
def test_generated_code_equals_the_model_for_an_hour(seeds: range, record_property: Record) -> None:
    with uncompiled():
        record_property("compared dataflow programs uncompiled", run_seeds(seeds, seconds=120.0))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_COMPILED, 50), ids=name_of)
def test_compiled_code_equals_the_model_for_an_hour(seeds: range, record_property: Record) -> None:
    record_property("compared dataflow programs compiled", run_seeds(seeds, small=True, seconds=120.0))


def test_generated_programs_do_what_they_should_test() -> None:
    """Commits and aborts, inside and at the border; rounds that wait; windows that slide; triggers that run; rows that
    are looked up and written, aliases, rows that are not there; histories that are asked for, empty, long, deleted.
    """
    seen: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str | None] = collections.Counter()
    for seed in range(200):
        case = random_graph_case(Choices(seed))
        names = declared(case.source)
        model = model_of(names, case.keeps)
        for name in model.tables:
            model.load(name, case.loads[name])
        asked = Asked(model, seen)
        reasons.update(decided.outcome.reason for decided in model.run(case.events))
        for graph in model.graphs:
            triggers = {member.name: member for member in graph.members if member.is_trigger}
            groups = graph.groups()
            seen["nested rounds"] += sum(len(group) > 1 for group in groups) > 0
            for step in model.history:
                if step.dataflow == graph.name:
                    seen["steps"] += 1
                    seen["aborted steps"] += not step.committed
                    seen["interior aborted"] += not step.committed and step.group > 0
                    seen["trigger steps"] += step.transaction in triggers
            seen["graphs"] += 1
            seen["several borders"] += len(graph.borders()) > 1
            seen["several producers"] += any(
                sum(stream in member.emits for member in graph.members) > 1 for stream in model.state.outputs
            )
        seen["windows"] += len(model.state.windows)
        seen["filled windows"] += sum(bool(content.visible) for content in model.state.windows.values())
        seen["filled outputs"] += sum(bool(rows) for rows in model.state.outputs.values())
        seen["waiting"] += any(model.open.values())
        asked.count_programs(case)
    total = reasons.total()
    assert 0.5 < reasons[None] / total < 0.9, reasons
    assert reasons["NameError"] + reasons["TypeError"] + reasons["AttributeError"] == 0, reasons
    assert 0.1 < seen["aborted steps"] / seen["steps"] < 0.5, seen
    assert seen["interior aborted"] > 100 and seen["trigger steps"] > 300, seen
    assert seen["nested rounds"] > 40 and seen["several borders"] > 15 and seen["several producers"] > 3, seen
    assert seen["filled windows"] > seen["windows"] / 3 > 30, seen
    assert seen["filled outputs"] > 50 and seen["waiting"] > 30, seen
    assert min(seen["programs that look up"], seen["programs that remember"], seen["programs with both"]) > 15, seen
    assert seen["programs without graphs"] > 5, seen
    assert min(seen["lookups"], seen["written lookups"], seen["absent lookups"]) > 200, seen
    assert min(seen["aborts after lookups"], seen["aliases"]) > 50 and seen["deleted lookups"] > 15, seen
    assert min(seen["empty histories"], seen["histories"]) > 200 and seen["long histories"] > 30, seen
    assert min(seen["states of deleted rows"], seen["late states"], seen["states of one time"]) > 10, seen


def test_a_seed_gives_the_same_case_again_and_so_do_its_choices() -> None:
    first, second = random_graph_case(Choices(5)), random_graph_case(Choices(5))
    replayed = random_graph_case(Choices(replay=first.drawn))
    assert first.source == second.source == replayed.source
    assert repr(first.events) == repr(second.events) == repr(replayed.events)
