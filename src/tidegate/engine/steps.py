"""Steps of dataflow graphs, one by one: what each took in, so that a log can have them run again without triggers.

A step is one execution of a group, or of a plain transaction. A traced run gives its steps in the order of commit:

    run(events 0 1 2)                       trace
    round 7: check  takes event 0           flow 0, round 7, group 0, events (0,)
             bill   takes a tuple           flow 0, round 7, group 1, inputs: 1 tuple of `packed`
    audit (plain)   takes event 1           flow -1, transaction 3, events (1,)
    round 8: check  takes event 2, aborts   flow 0, round 8, group 0, reason "out of stock"
             bill   takes nothing           no step

Strong recovery runs the same events with triggers off: `begin_replay` forms rounds and runs nothing, `replay_step` runs
one step on the input of its record, and `end_replay` turns triggers on: it goes on in the open round behind the last
step, on what lies in its streams, and takes all that follows through the graphs as `run` does. Whatever number of steps
was replayed before, the state is that of the run itself.

Steps that aborted have a record, too. Without one, a log could not tell a step that aborted from one that never ran:
replay would leave its input in the stream, and run it when triggers are on again, after steps that in truth came behind
it; then it might commit. The record says why it aborted and not on what, so it is small, and nothing is run for it.

Invariant: the records of a run, or any number of its first ones, fit that run on the state that it began with, and the
same program; `replay_step` says where they do not. What this module does not do: it writes no files, and a record says
nothing of the program, so whoever keeps a log must know which one it belongs to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.strings import StringPool
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.operations.flow import STEP_HEAD, FlowsPlan
from tidegate.operations.layout import Kind
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
WORD = 8
_HEAD = struct.Struct(f"<{STEP_HEAD}q")
_PACKED = struct.Struct("<iqiiiIII")
_NO_REASON = -1


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a run: which, and what it took in.

    `flow` is the number of its graph, and -1 for a plain transaction; then `group` is the number of the transaction.
    `round` is 0 in a graph without a name. `events` are places among the events of the run, behind those that waited.
    """

    flow: int
    round: int
    group: int
    border: int
    """The border stream whose batch the round took in; -1 for a plain transaction."""
    events: tuple[int, ...] = ()
    inputs: bytes = b""
    """For each input stream of the group: how many tuples, and their words, eight bytes each."""
    texts: tuple[str, ...] = ()
    """The strings of the tuples, whose words are places in here."""
    reason: str | None = None
    """Why it aborted; None if it committed. A step that aborted has no inputs."""

    @property
    def committed(self) -> bool:
        """Whether it committed."""
        return self.reason is None


class StepCodec:
    """Turns traces, as generated code writes and reads them, into records and back."""

    def __init__(self, plan: ProgramPlan) -> None:
        assert plan.flows is not None
        self._plan, self._flows = plan, plan.flows
        self._groups = [group for flow in self._flows.flows for group in flow.group_numbers]
        self._flow_of = [self._flows.flow_of(group) for group in self._groups]
        self._inputs = [_inputs_of(self._flows, group) for group in self._groups]
        self._has_strings = [any(columns for _, _, columns in inputs) for inputs in self._inputs]

    def records(self, trace: Array, strings: StringPool, reasons: list[str]) -> list[StepRecord]:
        """The steps in a trace."""
        words, raw, at, found = trace.tolist(), trace.tobytes(), 0, []
        while at < len(words):
            length, what, number, cause, status, count = words[at : at + STEP_HEAD]
            first = at + STEP_HEAD
            reason = reasons[status - 1] if status else None
            if what < 0:
                found.append(StepRecord(-1, 0, -1 - what, -1, (cause,), reason=reason))
            else:
                events = tuple(words[first : first + count])
                inputs = raw[WORD * (first + count) : WORD * (at + length)]
                texts: tuple[str, ...] = ()
                if inputs and self._has_strings[what]:
                    inputs, texts = self._with_texts(what, inputs, strings)
                found.append(StepRecord(self._flow_of[what], number, what, cause, events, inputs, texts, reason))
            at += length
        return found

    def trace(self, record: StepRecord, strings: StringPool, events: int, status: int) -> bytes:
        """The words of a step for a run of so many events; `status` is what its reason is called there."""
        self._check(record, events)
        if record.flow < 0:
            return _HEAD.pack(STEP_HEAD, -1 - record.group, 0, record.events[0], status, 0)
        inputs = record.inputs
        if inputs and self._has_strings[record.group]:
            inputs = self._with_numbers(record, strings)
        taken = len(record.events)
        length = STEP_HEAD + taken + len(inputs) // WORD
        head = _HEAD.pack(length, record.group, record.round, record.border, status, taken)
        return head + struct.pack(f"<{taken}q", *record.events) + inputs

    def tuples(self, record: StepRecord) -> Iterator[tuple[int, int]]:
        """The input streams of a step, and how many tuples it took from each."""
        if record.flow >= 0 and record.inputs:
            words, at = memoryview(record.inputs).cast("q"), 0
            for stream, width, _ in self._inputs[record.group]:
                yield stream, words[at]
                at += 1 + words[at] * width

    def _check(self, record: StepRecord, events: int) -> None:
        """Raise if a record cannot be of this program and run: machine code would look beyond its arrays."""
        places = len(record.events) <= events and all(0 <= event < events for event in record.events)
        if not places or not (self._fits_a_group(record) if record.flow >= 0 else self._fits_an_event(record)):
            raise RecoveryImpossible(
                f"{describe(record, self._plan)}: its record does not fit this program and the {events} events of its "
                "run; replay a log with the program that wrote it"
            )

    def _fits_an_event(self, record: StepRecord) -> bool:
        return len(record.events) == 1 and 0 <= record.group < len(self._plan.transactions)

    def _fits_a_group(self, record: StepRecord) -> bool:
        flows = self._flows.flows
        if record.flow >= len(flows) or record.group not in flows[record.flow].group_numbers:
            return False
        if record.border not in flows[record.flow].borders:
            return False
        return self._has_all_words(record) if record.committed else not record.events and not record.inputs

    def _has_all_words(self, record: StepRecord) -> bool:
        if len(record.inputs) % WORD:
            return False
        words, at = memoryview(record.inputs).cast("q"), 0
        for _, width, _ in self._inputs[record.group]:
            if at >= len(words) or words[at] < 0:
                return False
            at += 1 + words[at] * width
        return at == len(words)

    def _strings_in(self, group: int, words: Array) -> Iterator[Array]:
        """The words of tuples that stand for strings, as views."""
        at = 0
        for _, width, columns in self._inputs[group]:
            count = int(words[at])
            tuples = words[at + 1 : at + 1 + count * width].reshape(count, width)
            for column in columns:
                yield tuples[:, column]
            at += 1 + count * width

    def _with_texts(self, group: int, inputs: bytes, strings: StringPool) -> tuple[bytes, tuple[str, ...]]:
        words = np.frombuffer(inputs, np.int64).copy()
        columns = list(self._strings_in(group, words))
        numbers = np.unique(np.concatenate(columns))
        for column in columns:
            column[:] = np.searchsorted(numbers, column)
        return words.tobytes(), tuple(strings.texts(numbers).to_pylist())

    def _with_numbers(self, record: StepRecord, strings: StringPool) -> bytes:
        words = np.frombuffer(record.inputs, np.int64).copy()
        numbers = strings.numbers(pa.array(record.texts, pa.string()))
        for column in self._strings_in(record.group, words):
            if len(column) and not (column.min() >= 0 and column.max() < len(numbers)):
                raise RecoveryImpossible(
                    f"{describe(record, self._plan)}: its tuples name strings that its record does not hold; "
                    "the log is damaged"
                )
            column[:] = numbers[column]
        return words.tobytes()


def _inputs_of(flows: FlowsPlan, group: int) -> list[tuple[int, int, list[int]]]:
    """The input streams of a group, each with the words of a tuple and which of them are strings."""
    found = []
    for number in flows.inputs_of(group):
        kinds = [kind for field in flows.streams[number].fields for kind in field.kinds]
        found.append((number, len(kinds), [place for place, kind in enumerate(kinds) if kind is Kind.STR]))
    return found


def describe(record: StepRecord, plan: ProgramPlan) -> str:
    """A step in words."""
    flows = plan.flows
    if record.flow < 0 or flows is None or record.flow >= len(flows.flows):
        known = flows is not None and record.flow < 0 and 0 <= record.group < len(plan.names)
        return f"step of transaction {plan.names[record.group]!r}" if known else f"step of graph {record.flow}"
    flow = flows.flows[record.flow]
    name = f"dataflow {flow.name!r}, round {record.round}" if flow.name else "a transaction that looks rows up"
    if record.group not in flow.group_numbers:
        return f"step of {name}, group {record.group}"
    members = (flows.members[member].transaction for member in flows.group(record.group).members)
    return f"step of {name}, {' and '.join(plan.names[number] for number in members)}"


def misfit(record: StepRecord, plan: ProgramPlan, reason: str | None) -> RecoveryImpossible:
    """A step cannot be run again: it is not the one that comes next, or it aborts for a reason."""
    got = "another step comes next" if reason is None else f"it aborts: {reason}"
    required = "it comes next" if reason is None else "it commits"
    return RecoveryImpossible(
        f"{describe(record, plan)}: required: {required}; got: {got}; replay a log with the program that wrote it, on "
        "the state and with the events of its run, and use no clock or random number in transactions"
    )


# --- as bytes -------------------------------------------------------------------------------------------------


def pack_steps(records: Iterable[StepRecord]) -> bytes:
    """Records as bytes, for a log; those of several calls can stand one behind the other."""
    parts: list[bytes] = []
    for record in records:
        reason = None if record.reason is None else record.reason.encode()
        texts = [text.encode() for text in record.texts]
        size = _NO_REASON if reason is None else len(reason)
        head = (record.flow, record.round, record.group, record.border, size)
        parts.append(_PACKED.pack(*head, len(record.events), len(record.inputs), len(texts)))
        parts.append(struct.pack(f"<{len(record.events)}q", *record.events))
        parts += [reason or b"", record.inputs, struct.pack(f"<{len(texts)}I", *map(len, texts)), *texts]
    return b"".join(parts)


def unpack_steps(packed: bytes) -> list[StepRecord]:
    """What `pack_steps` was given."""
    found, at = [], 0

    def take(count: int) -> bytes:
        nonlocal at
        part = packed[at : at + count]
        if len(part) < count:
            raise RecoveryImpossible(
                f"steps of a log: the record at byte {at} needs {count} bytes, {len(part)} are left; the log is cut "
                "inside a record"
            )
        at += count
        return part

    while at < len(packed):
        flow, number, group, border, size, events, inputs, texts = _PACKED.unpack(take(_PACKED.size))
        places = struct.unpack(f"<{events}q", take(WORD * events))
        reason = None if size == _NO_REASON else take(size).decode()
        words = take(inputs)
        lengths = struct.unpack(f"<{texts}I", take(4 * texts))
        held = tuple(take(length).decode() for length in lengths)
        found.append(StepRecord(flow, number, group, border, places, words, held, reason))
    return found
