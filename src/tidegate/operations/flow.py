"""Dataflow graphs as data: streams, windows, and which transaction runs when.

    stream ──> transaction ──emit──> stream ──> transaction ...
                    │
                 window (private to its transaction)

A graph is run in rounds. A round takes one atomic batch of a border stream through the graph: group by group, and
within a group member by member, both in the order of the graph. A group commits as a whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operations.arrays import ArraySpec
from tidegate.operations.layout import Kind, TableLayout, ValueType

if TYPE_CHECKING:
    from tidegate.operations.plan import TransactionPlan

# The position of a run, so that it can stop and resume (`control` in generated code):
POSITION, GROUP, ACTIVE, WHICH, LOGGED, RECORD, MODE, TRACED, TRACE_END, ROUNDS = range(10)
"""In order: the next event; the next group of the open round; the round's border stream; which array is full; how many
history entries there are; whether a history is kept; what happens with the trace of steps; how many words of it are
written or read; where it ends on replay; and from ROUNDS on, the number of each graph's last round."""

UNTRACED, TRACING, REPLAYING = range(3)
"""Values of `control[MODE]`: steps are not traced; each is recorded in `trace`; `trace` says which steps to run."""

# A step in a trace: one execution of a group, or of a plain transaction, as words.
STEP_WORDS, STEP_FLOW, STEP_WHAT, STEP_ROUND, STEP_CAUSE, STEP_STATUS, STEP_EVENTS, STEP_TEXTS, STEP_HEAD = range(9)
"""The head, in order: the length in words; the graph, -1 for a plain transaction; the group, or -1 minus the number of
the plain transaction; the round, 0 if the graph has no name; the round's border stream, or the plain transaction's
event; why it aborted, 0 if it committed; how many events it took from the border; how many strings it has once packed
(`engine.graphs.steps`). The events follow, then for each input stream the number of its tuples and their words. An
aborted step has only its head: it is never run again."""

# What a stage does with a stream that leads to another stage (`roles` in generated code):
ALONE, GIVES, TAKES, NOTHING = range(4)
"""All stages run as one, and the stream is emptied after each round; the stage writes the stream and records where each
round ends; the stage reads the stream; the stage does not use the stream."""

# Why generated code returns:
DONE, PLAIN_EVENT, PLAIN_GROUP, TABLE_FULL, STREAM_FULL, WINDOW_FULL, JOURNAL_FULL, TOUCHED_FULL, LOG_FULL = range(9)
HISTORY_FULL, TRACE_FULL, MISFIT = 9, 10, 11
NO_ROOM = -2
"""A transaction of a graph found a stream full: its group is undone, and run again after the stream has grown."""

HISTORY_FIRST, HISTORY_NEXT, HISTORY_LATEST = range(3)
"""The words of a table history's state: the number of the oldest state that is kept, the number of the next one, and
the latest time."""

TOP_WORDS = 1 << 12
"""The maximum number of values that all calls of a window's `top` in one transaction return: they share an array."""

ROOM = -10
"""A step that finds an array full returns ROOM minus the code of that array (TABLE_FULL, ...)."""

STOPPED = -7
"""A step was interrupted by the user, and its group is undone: ROOM minus what the body returned."""


_OWN = "0_"


def own_stream(transaction: str) -> str:
    """The stream of a plain transaction that runs as a graph of its own; no declared stream begins with a digit."""
    return f"{_OWN}{transaction}"


def event_name(stream: str) -> str:
    """The name by which events address a stream: the stream's, or that of the plain transaction that it belongs to."""
    return stream.removeprefix(_OWN)


def column_of(fields: tuple[StreamField, ...], name: str) -> int:
    """The number of a field's first column in a stream: a key of several fields takes several columns."""
    column = 0
    for field in fields:
        if field.name == name:
            break
        column += len(field.kinds)
    return column


@dataclass(frozen=True, slots=True)
class StreamField:
    """A field of a stream: a plain value, or the key of a table's row."""

    name: str
    type: ValueType | None
    table: TableLayout | None = None

    @property
    def types(self) -> tuple[ValueType, ...]:
        """The types of the values that carry it: one, or one for each field of the key."""
        if self.table is not None:
            return tuple(column.type for column in self.table.key_columns)
        assert self.type is not None
        return (self.type,)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What arrays of those values hold."""
        return tuple(value_type.kind for value_type in self.types)


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """A stream by name and fields."""

    name: str
    fields: tuple[StreamField, ...]

    def field(self, name: str) -> StreamField | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == name), None)


@dataclass(frozen=True, slots=True)
class WindowParameter:
    """A parameter that is a window over the stream of its transaction.

    `time` names the field that carries the time; it is empty for a window that counts rows. `size` and `slide` are in
    rows or in units of time.
    """

    name: str
    stream: StreamLayout
    size: int
    slide: int
    time: str = ""
    identity: int = 0
    """Parameters with the same number are the same window: its owner's parameter, and those of triggers on it."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A streaming transaction in its graph.

    `on_window` is the window that starts it, if it is a trigger. `gives_results` says whether its return values become
    the results of its border stream's events: true for the first transaction on the stream.
    """

    transaction: int
    stream: int
    border: bool
    emits: tuple[int, ...] = ()
    on_window: int = -1
    gives_results: bool = False

    @property
    def is_entry(self) -> bool:
        """Whether events start it: it is on a border stream, and no trigger."""
        return self.border and self.on_window < 0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Members that commit together; `emits` are all streams they emit to, whose counts an abort resets."""

    members: tuple[int, ...]
    emits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """One dataflow graph; numbers of streams, members and groups are those of the program.

    `batch` is the size of an atomic batch, or the name of a field: events with equal values of it form a batch.
    `first_group` is the number of its first group. A plain transaction that runs as its own graph has no name.
    """

    name: str
    groups: tuple[GroupPlan, ...]
    borders: tuple[int, ...]
    batch: int | str
    first_group: int

    @property
    def group_numbers(self) -> range:
        """The numbers of its groups."""
        return range(self.first_group, self.first_group + len(self.groups))


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Groups and plain transactions that one worker runs one by one; `takes` are its input streams from other stages.

    Stages share nothing but the streams that lead from one to another (`compiler.stages`).
    """

    groups: tuple[int, ...]
    transactions: tuple[int, ...]
    takes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowsPlan:
    """All dataflow graphs of a program; a program with only plain transactions has no graph, and one stage."""

    streams: tuple[StreamLayout, ...] = ()
    outputs: tuple[bool, ...] = ()
    windows: tuple[WindowParameter, ...] = ()
    owners: tuple[int, ...] = ()
    members: tuple[MemberPlan, ...] = ()
    flows: tuple[FlowPlan, ...] = ()
    journalled: tuple[str, ...] = ()
    """The tables whose rows groups may write."""
    remembered: tuple[tuple[str, int], ...] = ()
    """The tables whose earlier row states some transaction asks for, and for how many units of time they are kept."""
    stages: tuple[StagePlan, ...] = ()
    """What can run in parallel; each stage comes after those that it takes streams from."""
    arrays: tuple[ArraySpec, ...] = ()
    """The arrays that generated code for graphs takes: those of `run`, and more."""

    def flow_of(self, group: int) -> int:
        """The graph that a group belongs to."""
        return next(number for number, flow in enumerate(self.flows) if group in flow.group_numbers)

    def group(self, number: int) -> GroupPlan:
        """A group by its number."""
        flow = self.flows[self.flow_of(number)]
        return flow.groups[number - flow.first_group]

    def inputs_of(self, group: int) -> tuple[int, ...]:
        """The streams inside the graph that a group takes tuples from, including those between its own members."""
        members = (self.members[member] for member in self.group(group).members)
        return tuple(sorted({m.stream for m in members if not m.border and m.on_window < 0}))

    def borders_of(self, group: int) -> tuple[int, ...]:
        """The border streams that a group takes events from."""
        members = (self.members[member] for member in self.group(group).members)
        return tuple(sorted({m.stream for m in members if m.border}))

    def stage_of(self, group: int) -> int:
        """The stage that a group belongs to."""
        return next(number for number, stage in enumerate(self.stages) if group in stage.groups)

    def stage_of_member(self, member: int) -> int:
        """The stage that runs a member."""
        groups = (number for flow in self.flows for number in flow.group_numbers)
        return self.stage_of(next(number for number in groups if member in self.group(number).members))

    def place_of_window(self, window: int) -> tuple[int, int]:
        """Where a window lies: its owner's stage, and its number among that stage's windows."""
        stages = [self.stage_of_member(owner) for owner in self.owners[: window + 1]]
        return stages[window], stages[:window].count(stages[window])

    @property
    def crossing(self) -> tuple[int, ...]:
        """The streams that lead from one stage to another."""
        return tuple(sorted({stream for stage in self.stages for stream in stage.takes}))

    def window(self, identity: int) -> int:
        """The number of a window; -1 if it belongs to none of these graphs."""
        return next((n for n, window in enumerate(self.windows) if window.identity == identity), -1)

    @property
    def may_wait(self) -> bool:
        """Whether an event may have to wait for other events of its atomic batch."""
        return any(flow.batch != 1 for flow in self.flows)


NO_GRAPHS = FlowsPlan()


def structures_of(flows: FlowsPlan, plans: tuple[TransactionPlan, ...], window: int) -> list[tuple[str, str]]:
    """All aggregates that transactions ask a window for, as function and field, in the order of their structures."""
    found: dict[tuple[str, str], None] = {}
    for member in flows.members:
        plan = plans[member.transaction]
        own = {w.name for w in plan.windows if w.identity == flows.windows[window].identity}
        for parameter, function, field in plan.aggregates:
            if parameter in own:
                found[function, field] = None
    return list(found)
