"""Any dataflow graph, any cut of its log of steps: steps run again, then triggers, give what the run itself gave.

Each seed gives a program and its events, cut into calls. One engine runs the calls with a trace. For
each call, and each number of its first steps, another engine is brought to the state before the call by changes and
outputs alone, as from a checkpoint; it replays these steps, turns triggers on, and must be equal in all that lasts:
tables, those of graphs too, outputs, windows, what waits, earlier states, changes, outcomes, and the steps it ran.

One seed again:

    TIDEGATE_SEED=1234 pytest tests/truth/test_random_steps.py
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore
from tidegate.engine.graphs.steps import StepRecord, pack_steps, unpack_steps
from tidegate.foundation.jit import uncompiled
from tidegate.operations.plan import Program

from .choices import Choices
from .comparison import ARROW, bits, imported
from .graph_comparison import events_schema, explain, pieces
from .random_graphs import GraphCase, random_graph_case
from .running import Record, chunks, name_of
from .test_random_graphs import make_room_scarce

PLAIN, SCARCE, COMPILED = 40, 24, 1
EXAMINED = 60
FIRST_SCARCE_SEED, FIRST_COMPILED_SEED = 500, 4_000_000
COMPARED = "compared dataflow programs run again from their steps"
CUTS_MAX = 8
"""A call of many steps is cut behind some of them only."""


@dataclasses.dataclass(frozen=True)
class Call:
    events: pa.Table
    order: Any = None
    refused: dict[str, Any] | None = None


@dataclasses.dataclass
class Checkpoint:
    """All that another engine needs to go on: changes since the beginning, and outputs."""

    changes: list[dict[str, pa.Table]]
    outputs: dict[str, pa.Table]

    def open(self, program: Program) -> EngineCore:
        core = EngineCore(program, track_changes=True)
        for changes in self.changes:
            core.apply(changes)
        core.restore_outputs(self.outputs)
        return core


def state_of(core: EngineCore) -> dict[str, Any]:
    """All that lasts, as plain data."""
    graphs = core.graphs()
    assert graphs is not None and core.flows is not None
    found: dict[str, Any] = {name: core.rows(name).to_pylist() for name in core.tables}
    found |= {f"output {name}": table.to_pylist() for name, table in core.outputs_waiting().items()}
    found["rounds"] = [int(n) for n, flow in zip(graphs.rounds, graphs.flows.flows, strict=True) if flow.name]
    found["waiting"] = graphs.waiting.rows()
    for number in range(len(graphs.flows.windows)):
        found[f"window {number}"] = graphs.window_rows(number).to_pylist()
    for number, stream in enumerate(graphs.streams):
        if not stream.output and not any(number in flow.borders for flow in graphs.flows.flows):
            found[f"stream {number}"] = graphs.scan(number).to_pylist() and "not empty"
    for name, history in graphs.histories.items():
        first, stop = int(history.state[0]), int(history.state[1])
        places = np.arange(first, stop) & (len(history.time) - 1)
        keys = history.table.keys[history.slots[places]].tolist() if not has_strings(history) else None
        found[f"earlier states of {name}"] = [history.time[places].tolist(), history.exists[places].tolist(), keys]
    return found


def has_strings(history: Any) -> bool:
    return any(column.kind.value == "str" for column in history.table.layout.key_columns)


def changes_of(core: EngineCore) -> tuple[dict[str, pa.Table], Any]:
    """The changes of a call, and the same as plain data in one order."""
    changes = core.take_changes()
    return changes, {name: sorted(map(repr, bits(table.to_pylist()))) for name, table in changes.items()}


def calls_of(case: GraphCase, seed: int) -> list[Call]:
    choices = Choices(seed)
    found = []
    for start, stop in pieces(len(case.events), "whole" if seed % 3 == 0 else "cuts", choices):
        noted = [{"note": number, **case.events[number]} for number in range(start, stop)]
        events = pa.Table.from_pylist(noted, events_schema(case))
        order = np.array(sorted(range(len(noted)), key=lambda n: (n * 7 % 5, n)), np.int64)
        late = np.array([choices.chance(10) for _ in noted], np.bool_)
        found.append(Call(events, order if choices.chance(30) else None, {"late": late} if late.any() else None))
    return found


def cuts_of(count: int, choices: Choices) -> Sequence[int]:
    if count < CUTS_MAX:
        return range(count + 1)
    return sorted({0, count, *(choices.below(count) for _ in range(CUTS_MAX - 2))})


def opened(case: GraphCase, module: Any) -> EngineCore:
    """An engine with the rows of a case."""
    core = EngineCore(build_program([getattr(module, name) for name in case.names]), track_changes=True)
    for table in case.tables:
        if table.name in core.tables:
            schema = pa.schema([(name, ARROW[kind]) for name, kind, _ in table.fields])
            core.load(table.name, pa.Table.from_pylist(case.loads[table.name], schema))
    return core


def check_steps(case: GraphCase, seed: int) -> int:
    """Compares all calls of a case, each cut behind any of its steps; returns how many cuts there were."""
    with imported(case.source) as module:
        core = opened(case, module)
        program, cuts = core.program, 0
        before = Checkpoint([core.take_changes()], {})
        for number, call in enumerate(calls_of(case, seed)):
            untraced = before.open(program)
            result = core.run(call.events, call.order, call.refused, trace=True)
            outcomes, steps = result.outcomes.to_pylist(), unpack_steps(result.steps)
            assert unpack_steps(pack_steps(steps)) == steps
            changes, change_rows = changes_of(core)
            wanted = [outcomes, state_of(core), change_rows]
            without = untraced.run(call.events, call.order, call.refused)
            got = [without.outcomes.to_pylist(), state_of(untraced), changes_of(untraced)[1]]
            assert_same(got, wanted, f"call {number}, run from a checkpoint")
            assert not without.steps
            for cut in cuts_of(len(steps), Choices(seed)):
                what = f"call {number}, {cut} of {len(steps)} steps"
                fresh = before.open(program)
                fresh.begin_replay(call.events, call.order, call.refused)
                for step in steps[:cut]:
                    fresh.replay_steps([step])
                ended = fresh.end_replay(trace=True)
                got = [ended.outcomes.to_pylist(), state_of(fresh), changes_of(fresh)[1]]
                assert_same(got, wanted, what)
                assert unpack_steps(ended.steps) == steps[cut:], what
                cuts += 1
            before = Checkpoint([*before.changes, changes], core.outputs_waiting())
            if Choices(seed + number).chance(40):
                core.restore_outputs({})
                before.outputs = core.outputs_waiting()
        return cuts


def assert_same(got: list[Any], wanted: list[Any], what: str) -> None:
    for part, (have, want) in enumerate(zip(got, wanted, strict=True)):
        if isinstance(want, dict):
            assert have.keys() == want.keys(), what
            for name in want:
                assert bits(have[name]) == bits(want[name]), f"{what}: {name} is\n{have[name]}\nnot\n{want[name]}"
        else:
            assert bits(have) == bits(want), f"{what}, part {part}:\n{have}\nnot\n{want}"


def count(seen: collections.Counter[str], program: Program, steps: list[StepRecord]) -> None:
    graphs = program.plan.flows
    assert graphs is not None
    seen["steps"] += len(steps)
    for step in steps:
        seen["plain"] += step.flow < 0
        seen["without a name"] += step.flow >= 0 and not graphs.flows[step.flow].name
        seen["aborted"] += not step.committed
        seen["inputs"] += bool(step.inputs)
        seen["texts"] += bool(step.texts)
        seen["events and inputs"] += bool(step.inputs) and bool(step.events)
        seen["several events"] += len(step.events) > 1
        if step.flow >= 0:
            group = graphs.group(step.group)
            seen["nested"] += len(group.members) > 1
            seen["window triggers"] += any(graphs.members[member].on_window >= 0 for member in group.members)
            plans = [program.plan.transactions[graphs.members[member].transaction] for member in group.members]
            seen["interpreted"] += any(not plan.compiled for plan in plans)
            seen["aborted inside"] += not step.committed and not graphs.borders_of(step.group)
            seen["second graph"] += step.flow > 0


def run_seeds(seeds: range, small: bool = False) -> int:
    cuts = 0
    for seed in seeds:
        case = random_graph_case(Choices(seed), small)
        try:
            cuts += check_steps(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}\n{explain(case)}")
            raise
    return cuts


@pytest.mark.parametrize("seeds", chunks(0, PLAIN, 20), ids=name_of)
def test_any_first_steps_and_then_triggers_give_what_the_run_gave(seeds: range, record_property: Record) -> None:
    with uncompiled():
        assert run_seeds(seeds) > len(seeds)
    record_property(COMPARED, len(seeds))


def test_steps_of_generated_programs_are_of_all_kinds() -> None:
    seen: collections.Counter[str] = collections.Counter()
    with uncompiled():
        for seed in range(EXAMINED):
            case = random_graph_case(Choices(seed))
            with imported(case.source) as module:
                core = opened(case, module)
                for call in calls_of(case, seed):
                    traced = core.run(call.events, call.order, call.refused, trace=True)
                    count(seen, core.program, unpack_steps(traced.steps))
    assert seen["steps"] > 800, seen
    assert min(seen["aborted"], seen["interpreted"], seen["nested"], seen["inputs"]) > 100, seen
    assert min(seen["several events"], seen["window triggers"], seen["events and inputs"]) > 60, seen
    assert min(seen["plain"], seen["without a name"], seen["second graph"]) > 40, seen
    assert min(seen["aborted inside"], seen["texts"]) > 20, seen


@pytest.mark.parametrize("seeds", chunks(FIRST_SCARCE_SEED, SCARCE, 12), ids=name_of)
def test_so_they_do_where_every_array_is_too_small(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_room_scarce(monkeypatch)
    with uncompiled():
        assert run_seeds(seeds) > len(seeds)
    record_property(COMPARED, len(seeds))


@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, COMPILED, 1), ids=name_of)
def test_so_they_do_in_machine_code(seeds: range, record_property: Record) -> None:
    assert run_seeds(seeds, small=True) > len(seeds)
    record_property(COMPARED, len(seeds))
