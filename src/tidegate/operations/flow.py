"""What a dataflow graph is, as data: streams, windows, and which transaction runs when.

    stream ──> transaction ──emit──> stream ──> transaction ...
                    │
                 window (private to its transaction)

A graph is run in rounds. A round takes one atomic batch of a border stream through the graph: group by group,
and in a group member by member, each in the order of the graph. A group commits as a whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operations.arrays import ArraySpec
from tidegate.operations.layout import Kind, TableLayout

if TYPE_CHECKING:
    from tidegate.operations.plan import TransactionPlan

# Where a run stands, so that it can stop and go on (`control` in generated code):
POSITION, GROUP, ACTIVE, WHICH, LOGGED, RECORD, MODE, TRACED, TRACE_END, ROUNDS = range(10)
"""The next event; the next group of the open round, the round's border stream; what is full; entries of the history,
whether one is kept; what happens with the trace of steps, how many of its words are written or read, where it ends when
it is read; from the last on, the number of the last round of each graph."""

UNTRACED, TRACING, REPLAYING = range(3)
"""What `control[MODE]` says: steps leave no trace; each is noted in `trace`; `trace` says which steps to run."""

# A step in a trace: one execution of a group, or of a plain transaction, as words.
STEP_WORDS, STEP_FLOW, STEP_WHAT, STEP_ROUND, STEP_CAUSE, STEP_STATUS, STEP_EVENTS, STEP_TEXTS, STEP_HEAD = range(9)
"""How many words it has; its graph, -1 for a plain transaction; its group, or -1 minus its plain transaction; its
round, 0 where the graph has no name; the border stream of the round, or the event of the plain transaction; why it
aborted, 0 if it committed; how many events it took from the border; how many strings it has once it is packed
(`engine.graphs.steps`). The events follow, then for each input stream the number of its tuples and their words. A step
that aborted is its head and nothing else: nobody runs it again."""

# What a stage does with a stream that leads to another one (`roles` in generated code):
ALONE, GIVES, TAKES, NOTHING = range(4)
"""All stages run as one, and the stream is emptied after each round; it is the stage's own, which notes where each
round ends; it is another stage's; it is of no concern."""

# Why generated code comes back:
DONE, PLAIN_EVENT, PLAIN_GROUP, TABLE_FULL, STREAM_FULL, WINDOW_FULL, JOURNAL_FULL, TOUCHED_FULL, LOG_FULL = range(9)
HISTORY_FULL, TRACE_FULL, MISFIT = 9, 10, 11
NO_ROOM = -2
"""A transaction of a graph found a stream full: its group is undone and run again with more room."""

HISTORY_FIRST, HISTORY_NEXT, HISTORY_LATEST = range(3)
"""What the state of a table's history says: the number of the oldest state that is kept, that of the next one, and the
latest time."""

TOP_WORDS = 1 << 12
"""How many values all calls of a window's `top` in one transaction give at most: they share an array."""

ROOM = -10
"""A step that finds an array full returns this minus the code."""


_OWN = "0_"


def own_stream(transaction: str) -> str:
    """The stream of a plain transaction that runs as a graph of its own; no declared stream begins with a digit."""
    return f"{_OWN}{transaction}"


def event_name(stream: str) -> str:
    """What events call those who are on a stream: its name, or that of the transaction whose own it is."""
    return stream.removeprefix(_OWN)


def column_of(fields: tuple[StreamField, ...], name: str) -> int:
    """The number of a field among the columns of a stream: a key of several fields takes several."""
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
    kind: Kind | None
    table: TableLayout | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the values that carry it: one, or one for each field of the key."""
        if self.table is not None:
            return tuple(column.kind for column in self.table.key_columns)
        assert self.kind is not None
        return (self.kind,)


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

    `time` names the field that carries the time; empty for a window that counts rows. `size` and `slide` are rows
    or units of time.
    """

    name: str
    stream: StreamLayout
    size: int
    slide: int
    time: str = ""
    identity: int = 0
    """Parameters with the same number are the same window: that of its owner, and of triggers on it."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A streaming transaction in its graph.

    `on_window` is the window that starts it, if it is such a trigger; `gives_results` whether the events of its border
    stream get what it returns: the first transaction on the stream.
    """

    transaction: int
    stream: int
    border: bool
    emits: tuple[int, ...] = ()
    on_window: int = -1
    gives_results: bool = False


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Members that commit together; `emits` are all their streams, whose counts are taken back if it aborts."""

    members: tuple[int, ...]
    emits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """One dataflow graph; numbers of streams, members and groups are those of the program.

    `batch` is the size of an atomic batch, or the name of the field whose equal values are one. `first_group` is the
    number of its first group. A plain transaction that runs as a graph of its own has no name.
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
    """Groups, and plain transactions, that one worker must run one by one; `takes` are the streams of other stages.

    Stages have nothing in common but the streams that lead from one to another (`compiler.stages`).
    """

    groups: tuple[int, ...]
    transactions: tuple[int, ...]
    takes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowsPlan:
    """All dataflow graphs of a program; a program of plain transactions alone has none, and one stage."""

    streams: tuple[StreamLayout, ...] = ()
    outputs: tuple[bool, ...] = ()
    windows: tuple[WindowParameter, ...] = ()
    owners: tuple[int, ...] = ()
    members: tuple[MemberPlan, ...] = ()
    flows: tuple[FlowPlan, ...] = ()
    journalled: tuple[str, ...] = ()
    """The tables whose rows groups may write."""
    remembered: tuple[tuple[str, int], ...] = ()
    """Tables of whose rows somebody asks for earlier states, and how many units of time are kept."""
    stages: tuple[StagePlan, ...] = ()
    """What can run side by side: each stage stands behind those that it takes streams from."""
    arrays: tuple[ArraySpec, ...] = ()
    """What generated code for graphs takes: what `run` takes, and more."""

    def flow_of(self, group: int) -> int:
        """The graph that a group belongs to."""
        return next(number for number, flow in enumerate(self.flows) if group in flow.group_numbers)

    def group(self, number: int) -> GroupPlan:
        """A group by its number."""
        flow = self.flows[self.flow_of(number)]
        return flow.groups[number - flow.first_group]

    def inputs_of(self, group: int) -> tuple[int, ...]:
        """The streams inside the graph that a group takes tuples from, those of its own members too."""
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
        """Where a window lies: its owner's stage, and its number among the windows of that."""
        stages = [self.stage_of_member(owner) for owner in self.owners[: window + 1]]
        return stages[window], stages[:window].count(stages[window])

    @property
    def crossing(self) -> tuple[int, ...]:
        """The streams that lead from one stage to another."""
        return tuple(sorted({stream for stage in self.stages for stream in stage.takes}))

    def window(self, identity: int) -> int:
        """The number of a window; -1 if it is none of these graphs'."""
        return next((n for n, window in enumerate(self.windows) if window.identity == identity), -1)

    @property
    def may_wait(self) -> bool:
        """Whether events may have to wait for others of their atomic batch."""
        return any(flow.batch != 1 for flow in self.flows)


NO_GRAPHS = FlowsPlan()


def structures_of(flows: FlowsPlan, plans: tuple[TransactionPlan, ...], window: int) -> list[tuple[str, str]]:
    """The aggregates that anybody asks of a window: function and field, in the order of their structures."""
    found: dict[tuple[str, str], None] = {}
    for member in flows.members:
        plan = plans[member.transaction]
        own = {w.name for w in plan.windows if w.identity == flows.windows[window].identity}
        for parameter, function, field in plan.aggregates:
            if parameter in own:
                found[function, field] = None
    return list(found)
