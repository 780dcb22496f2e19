"""Steps of dataflow graphs, one by one: what each took in, so that a log can have them run again without triggers.

A step is one execution of a group, or of a plain transaction. A traced run gives its steps in the order of commit:

    run(events 0 1 2)                       trace
    round 7: check  takes event 0           flow 0, round 7, group 0, events (0,)
             bill   takes a tuple           flow 0, round 7, group 1, inputs: 1 tuple of `packed`
    audit (plain)   takes event 1           flow -1, transaction 3, events (1,)
    round 8: check  takes event 2, aborts   flow 0, round 8, group 0, reason "out of stock"
             bill   takes nothing           no step

Strong recovery runs the same events with triggers off: `begin_replay` forms rounds and runs nothing, `replay_steps`
runs steps on the input in their records, and `end_replay` turns triggers on: it goes on in the open round behind the
last step, on what lies in its streams, and takes all that follows through the graphs as `run` does. Whatever number of
steps was replayed before, the state is that of the run itself.

Steps that aborted have a record, too. Without one, a log could not tell a step that aborted from one that never ran:
replay would leave its input in the stream, and run it when triggers are on again, after steps that in truth came behind
it; then it might commit. The record says why it aborted and not on what, so it is small, and nothing is run for it.

Invariant: the records of a run, or any number of its first ones, fit that run on the state that it began with, and the
same program; `replay_steps` says where they do not. What this module does not do: it writes no files, and a record says
nothing of the program, so a log must record which program it belongs to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.kernels.flows import step_places
from tidegate.engine.state.strings import StringPool
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.operations.flow import (
    STEP_EVENTS,
    STEP_HEAD,
    STEP_STATUS,
    STEP_TEXTS,
    STEP_WHAT,
    STEP_WORDS,
    FlowsPlan,
)
from tidegate.operations.layout import Kind
from tidegate.operations.plan import ProgramPlan

Array = npt.NDArray[Any]
WORD = 8
_HEAD = struct.Struct(f"<{STEP_HEAD}q")
_SIZES = struct.Struct("<QII")
_NO_TEXT = b"\xff"  # None among texts: no text has this byte


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
    texts: tuple[str | None, ...] = ()
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
        self._plan, self._flows = plan, plan.flows
        groups = [group for flow in self._flows.flows for group in flow.group_numbers]
        self._inputs = [_inputs_of(self._flows, group) for group in groups]
        strings = [any(columns for _, _, columns in inputs) for inputs in self._inputs]
        self._with_strings = np.array([*strings, *[False] * len(plan.transactions)], np.bool_)
        """By group; what stands from the end on, where plain transactions have their numbers, has none."""

    def pack(self, trace: Array, strings: StringPool, reasons: list[str]) -> bytes:
        """The steps in a trace as `pack_steps` gives them."""
        places = np.empty(len(trace) // STEP_HEAD, np.int64)
        places = places[: step_places(trace, STEP_WORDS, places)]
        used, numbered = np.unique(trace[places + STEP_STATUS], return_inverse=True)
        kept = used[used > 0]
        trace[places + STEP_STATUS] = numbered + (1 if len(kept) == len(used) else 0)
        texts = self._name_strings(trace, places, strings)
        return _packed(trace.tobytes(), [reasons[status - 1] for status in kept], texts)

    def _name_strings(self, trace: Array, places: Array, strings: StringPool) -> list[str | None]:
        """Let words that stand for strings be places among the strings of their step; returns those of all steps."""
        whats = trace[places + STEP_WHAT]
        texts: list[str | None] = []
        for place in places[self._with_strings[whats] & (trace[places + STEP_WORDS] > STEP_HEAD)].tolist():
            first = place + STEP_HEAD + trace[place + STEP_EVENTS]
            columns = list(self._strings_in(int(trace[place + STEP_WHAT]), trace[first : place + trace[place]]))
            numbers, firsts = np.unique(np.concatenate(columns), return_index=True)
            by_place = np.argsort(firsts)  # the same step has the same bytes, however an engine numbers its strings
            ranks = np.argsort(by_place)
            for column in columns:
                column[:] = ranks[np.searchsorted(numbers, column)]
            trace[place + STEP_TEXTS] = len(numbers)
            texts += strings.texts_or_none(numbers[by_place]).to_pylist()
        return texts

    def trace(self, record: StepRecord, strings: StringPool, events: int, status: int) -> bytes:
        """The words of a step for a run of so many events; `status` is what its reason is called there."""
        self._check(record, events)
        inputs = record.inputs
        if inputs and self._with_strings[record.group]:
            inputs = self._with_numbers(record, strings)
        return _words(record, inputs, status)

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

    def _with_numbers(self, record: StepRecord, strings: StringPool) -> bytes:
        words = np.frombuffer(record.inputs, np.int64).copy()
        numbers = strings.numbers_or_none(pa.array(record.texts, pa.string()))
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
    if record.flow < 0 or record.flow >= len(flows.flows):
        known = record.flow < 0 and 0 <= record.group < len(plan.names)
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
    """Records as bytes, for a log; those of several calls can stand one behind the other.

    Sizes, then the words of the steps as in a trace, then the reasons of those that aborted, then the strings of all.
    """
    words: list[bytes] = []
    texts: list[str | None] = []
    reasons: dict[str, int] = {}
    for record in records:
        status = 0 if record.reason is None else reasons.setdefault(record.reason, len(reasons) + 1)
        words.append(_words(record, record.inputs, status))
        texts += record.texts
    return _packed(b"".join(words), list(reasons), texts)


def _words(record: StepRecord, inputs: bytes, status: int) -> bytes:
    if record.flow < 0:
        return _HEAD.pack(STEP_HEAD, -1, -1 - record.group, 0, record.events[0], status, 0, 0)
    taken = len(record.events)
    length = STEP_HEAD + taken + len(inputs) // WORD
    head = (length, record.flow, record.group, record.round, record.border, status, taken, len(record.texts))
    return _HEAD.pack(*head) + struct.pack(f"<{taken}q", *record.events) + inputs


def _packed(words: bytes, reasons: list[str], texts: list[str | None]) -> bytes:
    encoded = [_NO_TEXT if text is None else text.encode() for text in (*reasons, *texts)]
    lengths = struct.pack(f"<{len(encoded)}I", *map(len, encoded))
    return b"".join([_SIZES.pack(len(words), len(reasons), len(texts)), words, lengths, *encoded])


def unpack_steps(packed: bytes) -> list[StepRecord]:
    """What `pack_steps` was given."""
    found: list[StepRecord] = []
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        part = packed[at : at + count]
        if len(part) < count:
            raise RecoveryImpossible(
                f"steps of a log, byte {at}: required: {count} bytes; got: {len(part)}; what was packed as one must be "
                "unpacked as one"
            )
        at += count
        return part

    while at < len(packed):
        size, reasons, texts = _SIZES.unpack(take(_SIZES.size))
        raw = take(size)
        lengths = struct.unpack(f"<{reasons + texts}I", take(4 * (reasons + texts)))
        held = [take(length) for length in lengths]
        named = [None if text == _NO_TEXT else text.decode() for text in held[reasons:]]
        found += _records(raw, [reason.decode() for reason in held[:reasons]], named)
    return found


def _records(raw: bytes, reasons: list[str], texts: list[str | None]) -> list[StepRecord]:
    words, at, named, found = memoryview(raw).cast("q").tolist(), 0, 0, []
    while at < len(words):
        length, flow, what, number, cause, status, count, strings = words[at : at + STEP_HEAD]
        reason = reasons[status - 1] if status else None
        if flow < 0:
            found.append(StepRecord(-1, 0, -1 - what, -1, (cause,), reason=reason))
        else:
            first = at + STEP_HEAD
            events = tuple(words[first : first + count])
            inputs = raw[WORD * (first + count) : WORD * (at + length)]
            held = tuple(texts[named : named + strings])
            found.append(StepRecord(flow, number, what, cause, events, inputs, held, reason))
            named += strings
        at += length
    return found
