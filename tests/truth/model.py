"""The model of streams, windows and dataflow graphs, interpreted in the most obvious way.

It shares no code with Tidegate. A program is plain data: tables (the oracle's `Row` classes), procedures (a
function with its parameters), streams, windows and graphs. State is dicts and lists. Before a group runs, all of
it is copied; if anything in the group fails, the copy becomes the state again:

    event of a plain procedure     copy, call, keep or put the copy back
    event of a border stream       joins the open batch of its stream; is that complete, a round runs at once
    round                          for each group, in order of the graph: copy,
                                       for each member, for each tuple of its batch:
                                           the member's windows take the tuple; one that slides starts its triggers
                                           the body
                                   keep or put the copy back
    keep                           a row that differs from the copy has one more earlier state

Invariant: between two groups nothing of an aborted group can be found anywhere, because what it changed was thrown
away as a whole. What it does not do: speed, Arrow, several orders of execution. `stand_in` makes the plain data from
the source text that a user would write.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .graph_data import Graph, Procedure, Stream, Window
from .oracle import LARGEST, SMALLEST, Abort, Key, Oracle, Outcome, Row, fresh, normal, stored

Fields = dict[str, Any]


class Tuple:
    """One row of a window, as a body sees it."""

    def __init__(self, fields: Fields) -> None:
        self.__dict__.update(fields)


class View:
    """The visible rows of a window while one tuple runs."""

    def __init__(self, rows: Sequence[Fields], slid: bool) -> None:
        self._rows, self.slid = [Tuple(row) for row in rows], slid

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Tuple:
        return self._rows[index]

    def _values(self, name: str) -> list[Any]:
        return [getattr(row, name) for row in self._rows]

    def sum(self, name: str) -> Any:
        values = self._values(name)
        if any(isinstance(value, float) for value in values):
            return sum(values)
        total = sum(int(value) for value in values)
        if not SMALLEST <= total <= LARGEST:
            raise Abort("overflow")
        return total

    def min(self, name: str) -> Any:
        return min(self._values(name))

    def max(self, name: str) -> Any:
        return max(self._values(name))

    def distinct(self, name: str) -> int:
        return len(set(self._values(name)))

    def frequency(self, name: str, value: Any) -> int:
        return self._values(name).count(value)

    def top(self, name: str, count: int) -> list[Any]:
        values = [value for value in self._values(name) if value == value]
        counted = collections.Counter(0.0 if isinstance(value, float) and value == 0 else value for value in values)
        ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return [value for value, _ in ranked][: max(count, 0)]


@dataclasses.dataclass
class Content:
    """What a window holds; `time` and `boundary` matter to those by time."""

    visible: list[Fields] = dataclasses.field(default_factory=list)
    staged: list[Fields] = dataclasses.field(default_factory=list)
    visible_times: list[int] = dataclasses.field(default_factory=list)
    staged_times: list[int] = dataclasses.field(default_factory=list)
    time: int | None = None
    boundary: int | None = None

    def take(self, window: Window, fields: Fields) -> bool:
        """Takes one tuple; True when the window slides."""
        return self._by_rows(window, fields) if window.time is None else self._by_time(window, fields)

    def _by_rows(self, window: Window, fields: Fields) -> bool:
        self.staged.append(fields)
        if len(self.staged) < window.slide:
            return False
        self.visible = [*self.visible, *self.staged][-window.size :]
        self.staged = []
        return True

    def _by_time(self, window: Window, fields: Fields) -> bool:
        self.time = fields[window.time] if self.time is None else max(self.time, fields[window.time])
        boundary = self.time // window.slide * window.slide
        slides = self.boundary is not None and boundary > self.boundary
        if slides:
            stays = [time >= boundary - window.size for time in self.visible_times]
            self.visible = [*itertools.compress(self.visible, stays), *self.staged]
            self.visible_times = [*itertools.compress(self.visible_times, stays), *self.staged_times]
            self.staged, self.staged_times = [], []
        if slides or self.boundary is None:
            self.boundary = boundary
        self.staged.append(fields)
        self.staged_times.append(self.time)
        return slides


class Earlier(NamedTuple):
    """A state that a row came to have: when, whether it exists in it, and its fields."""

    key: Key
    time: int
    exists: bool
    fields: Fields


class Services(NamedTuple):
    """What a body may ask while it runs."""

    emit: Callable[[Stream, Fields], None]
    lookup: Callable[[type[Row], Any], Row]
    history: Callable[[Row, int], Sequence[Tuple]]


class Step(NamedTuple):
    """One procedure in one round, on so many tuples; the one that failed, if one did, is the last of them."""

    sequence: int
    dataflow: str
    transaction: str
    batch: int
    group: int
    committed: bool
    tuples: int
    reason: str | None


@dataclasses.dataclass(frozen=True)
class Decided:
    """An event that has its outcome."""

    event: Mapping[str, Any]
    outcome: Outcome


class Failed(Exception):
    """A call of a procedure that failed, and the reason."""

    def __init__(self, procedure: Procedure, reason: str) -> None:
        super().__init__(reason)
        self.procedure, self.reason = procedure, reason

    def told_to(self, procedure: Procedure) -> str:
        """What another procedure that is undone with it reads."""
        return self.reason if procedure is self.procedure else f"rolled back by {self.procedure.name}: {self.reason}"


@dataclasses.dataclass
class State:
    """All that an abort must put back."""

    tables: dict[str, dict[Key, Fields]]
    windows: dict[Window, Content]
    outputs: dict[Stream, list[Fields]]
    states: dict[str, list[Earlier]]
    batches: dict[Stream, list[Fields]] = dataclasses.field(default_factory=dict)
    changed: dict[tuple[str, Key], int] = dataclasses.field(default_factory=dict)
    """The rows that the group at hand changed, with the time of who changed them last."""

    def copied(self) -> State:
        """A copy of everything down to the values; streams and windows are names here."""
        return State(*({k: copy.deepcopy(v) for k, v in part.items()} for part in vars(self).values()))


class Model:
    """Graphs and plain procedures over their tables, run one event after the other."""

    def __init__(
        self, items: Sequence[Graph | Procedure], serving: Callable[[Services], Any], keeps: Mapping[str, int]
    ) -> None:
        self.graphs = [item for item in items if isinstance(item, Graph)]
        self.plain = {item.name: item for item in items if isinstance(item, Procedure)}
        self.serving, self.keeps = serving, keeps
        self.procedures = [*self.plain.values(), *(member for graph in self.graphs for member in graph.members)]
        kinds = [kind for procedure in self.procedures for _, kind, _ in procedure.parameters]
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Row)]
        tables += [table for procedure in self.procedures for table in procedure.looks_up]
        self.tables: dict[str, type[Row]] = {kind.__name__: kind for kind in tables}
        self.state = State(
            {name: {} for name in self.tables},
            {kind: Content() for kind in kinds if isinstance(kind, Window)},
            {stream: [] for graph in self.graphs for stream in graph.outputs()},
            {name: [] for name in keeps},
        )
        self.borders = {stream.name: (graph, stream) for graph in self.graphs for stream in graph.borders()}
        self.open: dict[str, list[Mapping[str, Any]]] = {name: [] for name in self.borders}
        self.rounds = {graph: 0 for graph in self.graphs}
        self.history: list[Step] = []
        self.interior_aborts: dict[str, dict[str, int]] = {}
        """Of the last run: how often procedures failed that events do not start."""

    # What a test asks.

    def load(self, name: str, rows: Iterable[Fields]) -> None:
        kind = self.tables[name]
        for row in rows:
            given = {field: stored(row[field], kind._fields[field]) for field in kind._defaults if field in row}
            self.state.tables[name][normal(tuple(row[part] for part in kind._key))] = {**kind._defaults, **given}

    def scan(self, name: str) -> list[Fields]:
        """The rows of a table sorted by key."""
        kind, rows = self.tables[name], self.state.tables[name]
        return [
            {field: {**rows[key], **dict(zip(kind._key, key, strict=True))}[field] for field in kind._fields}
            for key in sorted(rows)
        ]

    def visible(self, window: Window) -> list[Fields]:
        return self.state.windows[window].visible

    def waiting(self, stream: Stream) -> list[Fields]:
        """The events that wait, as they came."""
        return [{name: event[name] for name in stream.fields} for event in self.open[stream.name]]

    def take(self, stream: Stream) -> list[Fields]:
        """What was emitted into an output, with the number of its batch; forgets it."""
        taken, self.state.outputs[stream] = self.state.outputs[stream], []
        return taken

    def run(self, events: Iterable[Mapping[str, Any]]) -> list[Decided]:
        """Runs the events in order; the outcomes are those decided now, in the order of decision."""
        self.interior_aborts = {}
        return [decided for event in events for decided in self._event(event)]

    # How it runs.

    def _event(self, event: Mapping[str, Any]) -> list[Decided]:
        name = event.get("transaction", next(iter([*self.borders, *self.plain])))
        if name in self.plain:
            return [Decided(event, self._plain(self.plain[name], event))]
        if name not in self.borders:
            reason = "null transaction" if name is None else f"unknown transaction {name!r}"
            return [Decided(event, Outcome(False, reason, None))]
        graph, stream = self.borders[name]
        faults = self._faults(graph, stream, event)
        if faults:
            return [Decided(event, Outcome(False, faults[0], None, faults))]
        waiting = self.open[name]
        if isinstance(graph.atomic_batch, int):
            waiting.append(event)
            return self._round(graph, stream) if len(waiting) == graph.atomic_batch else []
        field = graph.atomic_batch
        closes = bool(waiting) and waiting[0][field] != event[field]
        decided = self._round(graph, stream) if closes else []
        self.open[name].append(event)
        return decided

    def _faults(self, graph: Graph, stream: Stream, event: Mapping[str, Any]) -> tuple[str, ...]:
        """All that keeps an event out of its stream: every field has a value, and a key is not NaN."""
        roles = [(name, kind) for name, kind in stream.fields.items()]
        for member in graph.members:
            if member.stream is stream:
                roles += [(name, kind) for name, kind, _ in member.parameters if not isinstance(kind, Window)]
        found = ((name, Oracle._fault(event[name], kind, False)) for name, kind in roles)
        return tuple(f"{fault} in column {name!r}" for name, fault in found if fault is not None)

    def _plain(self, procedure: Procedure, event: Mapping[str, Any]) -> Outcome:
        faults = tuple(
            f"{fault} in column {name!r}"
            for name, kind, is_list in procedure.parameters
            for fault in [Oracle._fault(event[name], kind, is_list)]
            if fault is not None
        )
        if faults:
            return Outcome(False, faults[0], None, faults)
        saved = self.state.copied()
        try:
            outcome = Outcome(True, None, self._call(procedure, event, {}, True))
            self._remember(saved)
        except Failed as failed:
            self.state = saved
            outcome = Outcome(False, failed.reason, None)
        self._record("", procedure.name, 0, -1, 1, outcome.reason)
        return outcome

    def _round(self, graph: Graph, stream: Stream) -> list[Decided]:
        """One atomic batch through the graph."""
        events, self.open[stream.name] = self.open[stream.name], []
        self.rounds[graph] += 1
        self.state.batches = {s: [] for member in graph.members for s in (member.stream, *member.emits)}
        self.state.batches[stream] = [tuple_of(stream, event) for event in events]
        reasons: dict[Procedure, str | None] = {}
        results: dict[Procedure, list[Any]] = {}
        for number, group in enumerate(graph.groups()):
            reason = self._group(graph, number, group, results)
            reasons.update(dict.fromkeys(group, reason))
        for output in graph.outputs():
            tuples = self.state.batches[output]
            self.state.outputs[output] += [{**fields, "batch": self.rounds[graph]} for fields in tuples]
        consumers = [m for group in graph.groups() for m in group if m.on is stream]
        reason = next((reasons[consumer] for consumer in consumers if reasons[consumer] is not None), None)
        if reason is not None:
            return [Decided(event, Outcome(False, reason, None)) for event in events]
        first = results[consumers[0]]
        return [Decided(event, Outcome(True, None, result)) for event, result in zip(events, first, strict=True)]

    def _group(
        self, graph: Graph, number: int, group: list[Procedure], results: dict[Procedure, list[Any]]
    ) -> str | None:
        """All members of a group; the reason why it aborted that events read, or None."""
        saved, failure = self.state.copied(), None
        ran = dict.fromkeys(group, 0)
        try:
            for member in group:
                if isinstance(member.on, Stream):
                    results[member] = [
                        self._tuple(graph, member, fields, ran) for fields in self.state.batches[member.on]
                    ]
            self._remember(saved)
        except Failed as failed:
            self.state, failure = saved, failed
        for member, tuples in ran.items():
            if tuples:
                reason = failure and failure.told_to(member)
                self._record(graph.name, member.name, self.rounds[graph], number, tuples, reason)
        if failure is None or failure.procedure.on in graph.borders():
            return failure and failure.reason
        counts = self.interior_aborts.setdefault(failure.procedure.name, {})
        counts[failure.reason] = counts.get(failure.reason, 0) + 1
        return f"rolled back by {failure.procedure.name}: {failure.reason}"

    def _tuple(self, graph: Graph, member: Procedure, fields: Fields, ran: dict[Procedure, int]) -> Any:
        """One tuple: the windows take it, triggers on those that slide run, then the body."""
        ran[member] += 1
        slid: dict[Window, bool] = {}
        for window in member.windows:
            slid[window] = self.state.windows[window].take(window, dict(fields))
            if slid[window]:
                for trigger in graph.members:
                    if trigger.on is window:
                        ran[trigger] += 1
                        self._call(trigger, fields, {window: True}, False)
        has_result = member is next(m for group in graph.groups() for m in group if m.on is member.on)
        return self._call(member, fields, slid, has_result and member.on in graph.borders())

    def _call(
        self, procedure: Procedure, fields: Mapping[str, Any], slid: Mapping[Window, bool], has_result: bool
    ) -> Any:
        """The function on rows taken out of the dicts; they are put back when it has returned.

        What it returns must fit its type only if it becomes somebody's result.
        """
        rows: dict[tuple[str, Key], Row] = {}
        arguments: list[Any] = []
        for name, kind, is_list in procedure.parameters:
            if isinstance(kind, Window):
                arguments.append(View(self.state.windows[kind].visible, slid[kind]))
            elif issubclass(kind, Row):
                if Oracle._fault(fields[name], kind, is_list) is not None:
                    raise Failed(procedure, f"NaN key in column {name!r}")
                keys = [Oracle._key(kind, part) for part in (fields[name] if is_list else [fields[name]])]
                taken = [self._take(rows, kind, key) for key in keys]
                arguments.append(taken if is_list else taken[0])
            else:
                value = fields[name]
                arguments.append([fresh(item) for item in value] if is_list else fresh(value))
        now = fields[procedure.time] if procedure.time else 0
        services = Services(
            self._emit,
            lambda kind, key: self._take(rows, kind, looked_up_key(kind, key)),
            lambda row, last: self._earlier(row, now, last),
        )
        try:
            with self.serving(services):
                result = procedure.function(*arguments)
                result = stored(result, procedure.returns) if has_result else None
        except Abort as abort:
            raise Failed(procedure, str(abort)) from abort
        except Exception as error:
            message = "" if procedure.compiled else str(error)
            raise Failed(procedure, type(error).__name__ + (message and f": {message}")) from error
        for (table, key), row in rows.items():
            after = {field: row.__dict__[field] for field in row._defaults} if row.exists else None
            if differs(self.state.tables[table].get(key), after):
                self.state.changed[table, key] = now
            if after is not None:
                self.state.tables[table][key] = after
            else:
                self.state.tables[table].pop(key, None)
        return result

    def _remember(self, before: State) -> None:
        """The group commits: each row that is not what it was has a new state, from when it was changed last."""
        for (table, key), time in self.state.changed.items():
            after = self.state.tables[table].get(key)
            if table in self.keeps and differs(before.tables[table].get(key), after):
                fields = self.tables[table]._defaults if after is None else after
                self.state.states[table].append(Earlier(key, time, after is not None, dict(fields)))
        self.state.changed = {}

    def _earlier(self, row: Row, now: int, last: int) -> list[Tuple]:
        """The states of a row in the last units of time, the newest first, but for those that nobody may ask for."""
        table = type(row).__name__
        key = normal(tuple(row.__dict__[part] for part in row._key))
        states = self.state.states[table]
        latest = max((state.time for state in states), default=0)
        assert last <= self.keeps[table]
        return [
            Tuple({**{name: fresh(value) for name, value in s.fields.items()}, "time": s.time, "exists": s.exists})
            for s in reversed(states)
            if s.key == key and now - last < s.time <= now and s.time > latest - self.keeps[table]
        ]

    def _take(self, rows: dict[tuple[str, Key], Row], kind: type[Row], key: Key) -> Row:
        name = kind.__name__
        if (name, key) not in rows:
            found = self.state.tables[name].get(key)
            rows[name, key] = kind(key, found and {field: fresh(value) for field, value in found.items()})
        return rows[name, key]

    def _emit(self, stream: Stream, fields: Fields) -> None:
        self.state.batches[stream].append({name: carried(fields[name], kind) for name, kind in stream.fields.items()})

    def _record(self, dataflow: str, name: str, batch: int, group: int, tuples: int, reason: str | None) -> None:
        self.history.append(Step(len(self.history), dataflow, name, batch, group, reason is None, tuples, reason))


def differs(before: Fields | None, after: Fields | None) -> bool:
    """Whether a row is another than it was; None is one that does not exist, and NaN is what it was."""
    if before is None or after is None:
        return before is not after
    pairs = [(before[name], after[name]) for name in after]
    return any(one != other and (one == one or other == other) for one, other in pairs)


def looked_up_key(kind: type[Row], key: Any) -> Key:
    """The key of a row that a body looks up: it must fit 64 bits and not be NaN."""
    parts = key if isinstance(key, tuple) else (key,)
    fitted = tuple(stored(part, kind._fields[name]) for name, part in zip(kind._key, parts, strict=True))
    if any(part != part for part in fitted):
        raise Abort(f"NaN key of {kind.__name__}")
    return normal(fitted)


def tuple_of(stream: Stream, event: Mapping[str, Any]) -> Fields:
    """The event's columns that are fields of the stream."""
    return {name: carried(event[name], kind) for name, kind in stream.fields.items()}


def carried(value: Any, kind: type) -> Any:
    """A value as a stream's field holds it: of a row its key, and what does not fit 64 bits aborts."""
    if not issubclass(kind, Row):
        return stored(value, kind)
    if isinstance(value, Row):
        value = tuple(value.__dict__[part] for part in kind._key)
    elif isinstance(value, dict):
        value = tuple(value[part] for part in kind._key)
    parts = value if isinstance(value, tuple) else (value,)
    key = normal(tuple(stored(part, kind._fields[name]) for name, part in zip(kind._key, parts, strict=True)))
    return key[0] if len(key) == 1 else dict(zip(kind._key, key, strict=True))
