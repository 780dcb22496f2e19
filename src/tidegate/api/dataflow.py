"""`tg.dataflow`: transactions that start each other through streams.

    show = tg.dataflow([validate, rank, remove_last], nested=[(validate, rank, remove_last)], atomic_batch=1)

    votes ──> validate ──> valid ──> rank ──> ranked ──> remove_last

A stream that no transaction of the graph emits is fed from outside: transactions on it are border transactions, all
others are interior. An atomic batch that a border transaction takes in goes through the graph as one round.

An event carries every field of its stream: a null in any of them refuses it, even if no transaction uses the field. If
several transactions are on a border stream, an event is committed if all of them commit. If some abort, the event gets
the reason of the first of those in the graph, and the effects of the others stay; nest the transactions to prevent
that. An event's result is that of the first transaction on its stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.api.stream import Stream
from tidegate.api.transaction import ProgramPart, Transaction
from tidegate.api.window import Window
from tidegate.foundation.arguments import items, whole
from tidegate.foundation.arguments import name as named
from tidegate.foundation.errors import DefinitionError
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.outcomes import OUTCOME_COLUMNS


@dataclass(eq=False, repr=False)
class Dataflow(ProgramPart):
    """A dataflow graph of streaming transactions; declared with `tg.dataflow`.

    `transactions` are its members in the order of execution, `members` the same grouped by what commits together, and
    `groups` their names. `edges` are pairs of names: the first must run before the second in every round.
    """

    name: str
    transactions: tuple[Transaction, ...]
    members: tuple[tuple[Transaction, ...], ...]
    edges: frozenset[tuple[str, str]]
    borders: tuple[Stream, ...]
    atomic_batch: int | str

    def __post_init__(self) -> None:
        self.groups = tuple(tuple(member.__name__ for member in group) for group in self.members)

    def draw(self) -> str:
        """The graph as text: one line for each transaction."""
        return draw(self.transactions)

    def __repr__(self) -> str:
        return f"<dataflow {self.name}: {', '.join(t.__name__ for t in self.transactions)}>"


@briefly
def dataflow(
    transactions: Sequence[Transaction],
    *,
    nested: Iterable[Sequence[Transaction]] = (),
    atomic_batch: int | str = 1,
    name: str | None = None,
) -> Dataflow:
    """Declare a dataflow graph.

    Args:
        transactions: functions declared with `@tg.transaction(on=...)` and `@tg.trigger(on=...)`.
        nested: groups of transactions that commit together or not at all; nothing else runs in between.
        atomic_batch: how many tuples of a border stream form a batch, or the name of a field: then consecutive tuples
            with equal values in it form a batch. NaN equals nothing, so each NaN is a batch by itself.
        name: its name in tools and states; by default that of its first border stream. It must be unique within an
            engine.
    """
    required = "a list of transactions that are on streams"
    members = items("dataflow", transactions, required)
    groups = items("dataflow: nested", nested, "a list of groups of transactions, such as [(validate, rank)]")
    together = [items("dataflow: nested", group, "groups such as (validate, rank)") for group in groups]
    if name is not None:
        named("dataflow: name", name, "a text")
    return _Graph(members, together).declare(atomic_batch, name)


def draw(transactions: Iterable[object]) -> str:
    """Transactions and the streams between them, one line each."""
    lines = []
    for member in transactions:
        if not isinstance(member, Transaction):
            continue
        source = f"slide of {member.on!r}" if isinstance(member.on, Window) else getattr(member.on, "name", "?")
        emitted = ", ".join(stream.name for stream in member.emits)
        lines.append(f"    {source} ──> {member.__name__}{f' ──> {emitted}' if emitted else ''}")
    return "\n".join(lines)


class _Graph:
    """Checks a graph and finds its order of execution."""

    def __init__(self, members: list[Transaction], nested: list[list[Transaction]]) -> None:
        self.members, self.nested = members, nested
        self.place = {id(member): number for number, member in enumerate(members)}

    def refuse(self, message: str) -> DefinitionError:
        """The error, with the graph drawn."""
        return DefinitionError(f"dataflow: {message}\n{draw(self.members)}")

    def declare(self, atomic_batch: int | str, name: str | None) -> Dataflow:
        """The dataflow, or a refusal."""
        self._check_members()
        self._check_windows()
        edges = self._edges()
        group_of = self._groups()
        order = self._sort(list(range(len(self.members))), edges, "the transactions start each other in a circle")
        groups = sorted(set(group_of))
        between = {(group_of[a], group_of[b]) for a, b in edges if group_of[a] != group_of[b]}
        rank = {
            group: min(order.index(m) for m in range(len(self.members)) if group_of[m] == group) for group in groups
        }
        sorted_groups = self._sort(
            sorted(groups, key=lambda group: rank[group]),
            between,
            "a transaction outside a nested group would have to run between its members; take it into the group",
        )
        listed = tuple(tuple(self.members[m] for m in order if group_of[m] == group) for group in sorted_groups)
        borders = self._borders()
        self._check_batch(atomic_batch, borders)
        return Dataflow(
            name or borders[0].name,
            tuple(member for group in listed for member in group),
            listed,
            frozenset((self.members[a].__name__, self.members[b].__name__) for a, b in edges),
            borders,
            atomic_batch,
        )

    def _check_members(self) -> None:
        if not self.members:
            raise DefinitionError("dataflow: a list of streaming transactions is required, got an empty one")
        for member in self.members:
            declared: object = member  # annotations are not enforced: users may pass anything
            if not isinstance(declared, Transaction) or declared.on is None:
                raise DefinitionError(
                    f"dataflow: {getattr(member, '__name__', member)!r} is not on a stream; "
                    "declare it with @tg.transaction(on=...) or @tg.trigger(on=...), or give it to the engine beside "
                    "the dataflow"
                )
        names = [member.__name__ for member in self.members]
        for found in names:
            if names.count(found) > 1:
                raise self.refuse(f"two transactions are named {found!r}; rename one")
        streams: dict[str, Stream] = {}
        for member in self.members:
            for stream in (*self._inputs(member), *member.emits):
                if streams.setdefault(stream.name, stream) is not stream:
                    raise self.refuse(f"two different streams are named {stream.name!r}; rename one")
        for group in self.nested:
            for member in group:
                if id(member) not in self.place:
                    shown = getattr(member, "__name__", member)
                    raise self.refuse(f"the nested group names {shown!r}, which is not in the list of transactions")

    def _inputs(self, member: Transaction) -> list[Stream]:
        return [member.on.stream if isinstance(member.on, Window) else member.on]  # type: ignore[list-item]

    def _check_windows(self) -> None:
        owners: dict[int, str] = {}
        for member in self.members:
            for window in member.windows.values():
                if member.trigger and isinstance(member.on, Window) and member.on is window:
                    continue
                other = owners.setdefault(window.identity, member.__name__)
                if other != member.__name__:
                    raise self.refuse(
                        f"{window!r} has two owners, {other!r} and {member.__name__!r}; a window belongs to one "
                        "transaction: declare another for the second"
                    )
        for member in self.members:
            if isinstance(member.on, Window) and member.on.identity not in owners:
                raise self.refuse(
                    f"trigger {member.__name__!r} waits for the slide of {member.on!r}, which no transaction has as a "
                    "parameter"
                )

    def _producers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, member in enumerate(self.members):
            for stream in member.emits:
                found.setdefault(stream.name, []).append(number)
        return found

    def _owner(self, window: Window) -> int:
        return next(
            number
            for number, member in enumerate(self.members)
            if member.on is not window and any(w is window for w in member.windows.values())
        )

    def _edges(self) -> set[tuple[int, int]]:
        """Pairs of members: the first comes before the second."""
        producers = self._producers()
        edges: set[tuple[int, int]] = set()
        for number, member in enumerate(self.members):
            if isinstance(member.on, Window):
                continue  # it runs inside its owner
            for producer in producers.get(member.on.name, ()):  # type: ignore[union-attr]
                edges.add((producer, number))
                source = self.members[producer].on
                if isinstance(source, Window):
                    edges.add((self._owner(source), number))
        return edges

    def _groups(self) -> list[int]:
        """For each member the number of its group."""
        group = list(range(len(self.members)))

        def join(one: int, other: int) -> None:
            old, new = group[other], group[one]
            group[:] = [new if found == old else found for found in group]

        for nested in self.nested:
            for member in nested[1:]:
                join(self.place[id(nested[0])], self.place[id(member)])
        producers = self._producers()
        for number, member in enumerate(self.members):
            if isinstance(member.on, Window):
                join(self._owner(member.on), number)
        for number, member in enumerate(self.members):
            if member.trigger and isinstance(member.on, Stream):
                feeding = producers.get(member.on.name, [])
                if not feeding:
                    raise self.refuse(
                        f"trigger {member.__name__!r} is on the stream {member.on.name!r}, which no transaction emits; "
                        "a trigger runs inside the transaction that emits"
                    )
                if len({group[producer] for producer in feeding}) > 1:
                    raise self.refuse(
                        f"trigger {member.__name__!r} is on the stream {member.on.name!r}, which several transactions "
                        "emit; a trigger runs inside one: nest them, or use a stream for each"
                    )
                join(feeding[0], number)
        return group

    def _sort(self, nodes: list[int], edges: set[tuple[int, int]], problem: str) -> list[int]:
        """The nodes in topological order; of several that could be next, the first in the list is taken."""
        left, order = list(nodes), []
        while left:
            ready = [node for node in left if not any(b == node and a in left for a, b in edges)]
            if not ready:
                raise self.refuse(problem)
            order.append(ready[0])
            left.remove(ready[0])
        return order

    def _borders(self) -> tuple[Stream, ...]:
        emitted = set(self._producers())
        borders: dict[str, Stream] = {}
        for member in self.members:
            if isinstance(member.on, Stream) and member.on.name not in emitted:
                borders[member.on.name] = member.on
        if not borders:
            raise self.refuse("no stream is fed from outside, so nothing would ever run")
        for stream in borders.values():
            for field in stream.layout.fields:
                if field.name in OUTCOME_COLUMNS:
                    raise self.refuse(
                        f"the border stream {stream.name!r} has a field {field.name!r}, and so is a column of the "
                        f"outcomes called ({', '.join(OUTCOME_COLUMNS)}); an event's column of that name is refused: "
                        f"rename the field, for example {stream.name}_{field.name}"
                    )
        return tuple(borders.values())

    def _check_batch(self, atomic_batch: object, borders: tuple[Stream, ...]) -> None:
        if isinstance(atomic_batch, str):
            for stream in borders:
                field = stream.layout.field(atomic_batch)
                if field is None or field.type is None:
                    raise self.refuse(
                        f"atomic_batch={atomic_batch!r} is not a field of the border stream {stream.name!r}; fields "
                        f"are: {', '.join(f.name for f in stream.layout.fields)}"
                    )
        else:
            try:
                whole("atomic_batch", atomic_batch)
            except DefinitionError as error:
                raise self.refuse(f"{error}; or give the name of a field") from None
