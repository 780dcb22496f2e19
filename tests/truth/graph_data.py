"""A program of streams, windows and graphs as plain data, and the order in which a graph's members run.

    Stream, Window      what flows, and the latest of it
    Procedure           a function with its parameters: plain, on a stream, or a trigger
    Graph               procedures, which of them commit together, and what makes an atomic batch

Nothing runs here: `model` interprets it, `stand_in` makes it from the source text that a user would write.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A stream: each field has a plain type, or a table and then carries the key of a row."""

    name: str
    fields: dict[str, type]


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """The latest tuples of a stream, by rows or, where `time` names a field, by time."""

    stream: Stream
    size: int
    slide: int
    time: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Procedure:
    """A transaction or trigger: parameters are (name, table, type or window, whether a list)."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[tuple[str, Any, bool], ...]
    returns: Any = None
    on: Stream | Window | None = None
    emits: tuple[Stream, ...] = ()
    is_trigger: bool = False
    time: str = ""
    """The parameter that carries its own time, if it says one."""
    looks_up: tuple[type, ...] = ()
    """The tables that its text names: those whose rows it may look up."""
    compiled: bool = True
    """Whether a reason is the bare name of an exception; of plain Python it has the message, too."""

    @property
    def stream(self) -> Stream | None:
        """The stream whose tuples it runs on."""
        return self.on.stream if isinstance(self.on, Window) else self.on

    @property
    def windows(self) -> list[Window]:
        return [kind for _, kind, _ in self.parameters if isinstance(kind, Window)]


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """A dataflow: its procedures as listed, those that commit together, and what makes an atomic batch."""

    name: str
    members: tuple[Procedure, ...]
    nested: tuple[tuple[Procedure, ...], ...] = ()
    atomic_batch: int | str = 1

    def owner(self, window: Window) -> Procedure:
        """The member that has the window as a parameter and is not itself started by it."""
        (owner,) = (member for member in self.members if window in member.windows and member.on is not window)
        return owner

    def edges(self) -> set[tuple[Procedure, Procedure]]:
        """Who comes before whom: producers before consumers.

        A trigger on a window runs inside its owner, so the owner too comes before whoever consumes from it.
        """
        found = set()
        for producer, consumer in itertools.product(self.members, self.members):
            if isinstance(consumer.on, Stream) and consumer.on in producer.emits:
                found.add((producer, consumer))
                if isinstance(producer.on, Window):
                    found.add((self.owner(producer.on), consumer))
        return found

    def groups(self) -> list[list[Procedure]]:
        """All groups in the order in which a round runs them, the members of each in order as well.

        Where the graph leaves a choice, the list decides: among members who is listed first, among groups whose
        first member comes first.
        """
        together: list[set[Procedure]] = [set(group) for group in self.nested]
        together += [{member} for member in self.members if not any(member in group for group in together)]
        for host, trigger in self._inside():
            one = next(group for group in together if host in group)
            other = next(group for group in together if trigger in group)
            if one is not other:
                together.remove(other)
                one |= other
        members = in_order({member: place for place, member in enumerate(self.members)}, self.edges())
        home = {member: number for number, group in enumerate(together) for member in group}
        between = {(home[a], home[b]) for a, b in self.edges() if home[a] != home[b]}
        rank = {number: min(map(members.index, group)) for number, group in enumerate(together)}
        return [[m for m in members if m in together[number]] for number in in_order(rank, between)]

    def _inside(self) -> list[tuple[Procedure, Procedure]]:
        """Each trigger with whom it runs inside: the owner of its window, or who emits into its stream."""
        found = []
        for trigger in self.members:
            if isinstance(trigger.on, Window):
                found.append((self.owner(trigger.on), trigger))
            elif trigger.is_trigger:
                found += [(producer, trigger) for producer in self.members if trigger.on in producer.emits]
        return found

    def borders(self) -> list[Stream]:
        """Streams that members run on and no member emits into."""
        used = [member.on for member in self.members if isinstance(member.on, Stream)]
        return [stream for stream in dict.fromkeys(used) if not any(stream in m.emits for m in self.members)]

    def outputs(self) -> list[Stream]:
        """Streams that members emit into and no member runs on."""
        emitted = [stream for member in self.members for stream in member.emits]
        return [stream for stream in dict.fromkeys(emitted) if not any(stream is m.on for m in self.members)]


def in_order(rank: Mapping[Any, int], edges: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Topological order: of all that nothing precedes any more, the one with the lowest rank comes next."""
    waiting, ordered = dict(rank), []
    edges = set(edges)
    while waiting:
        free = [node for node in waiting if not any(b == node and a in waiting for a, b in edges)]
        if not free:
            raise ValueError("the graph has a cycle")
        ordered.append(min(free, key=lambda node: rank[node]))
        del waiting[ordered[-1]]
    return ordered
