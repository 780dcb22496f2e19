"""The graph of a pipeline: which node takes what from which, in the order of the flow.

A pipeline is declared from its source on, and each part knows only what is in front of it. `lay_out` turns it round: it
starts at the result, and gives every node the nodes behind it.

    pipeline(Click).map(parse)            source -> parse -> top -> sink
        .stateful(top)

    a, b = base.branch(f, g)              base -> f -> edge -> merge -> sink
    merge(a, b)                           base -> g -> edge ->

A merge joins branches of one fork: the nearest part that all of them have in common. Each merge has its own bit in the
rows, by which its branches say where the results of a record end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.foundation.errors import DefinitionError, LimitExceeded
from tidegate.operations.pipeline import HEADER, RecordLayout
from tidegate.ordering.kernels.layout import TARGETS_MAX
from tidegate.ordering.steps import Operator, Side

FORKS_MAX = 60


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a pipeline: an operator behind another part, a merge of several, or the source."""

    gives: RecordLayout
    before: Part | None = None
    operator: Operator | None = None
    merged: tuple[Part, ...] = ()

    @property
    def source(self) -> Part:
        """The source that records of this part come from."""
        part = self
        while part.before is not None or part.merged:
            part = part.merged[0] if part.merged else part.before  # type: ignore[assignment]
        return part


@dataclass(slots=True, eq=False)
class Node:
    """A node of the running graph."""

    what: str
    takes: RecordLayout
    operator: Operator | None = None
    key: int = -1
    """Which word of a row is the key."""
    upstream: int = -1
    targets: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    fork_bit: int = 0
    merge_bit: int = 0


def ancestors(part: Part) -> Iterator[Part]:
    """A part and all in front of it; from a merge on, those in front of its fork."""
    found: Part | None = part
    while found is not None:
        yield found
        found = common_part(found.merged) if found.merged else found.before


def common_part(parts: Sequence[Part]) -> Part:
    """The fork of branches: the nearest part that all of them come from."""
    others = [{id(each) for each in ancestors(part)} for part in parts[1:]]
    for candidate in ancestors(parts[0]):
        if all(id(candidate) in known for known in others):
            return candidate
    raise DefinitionError(
        "merge joins branches of one pipeline; got parts of different ones: begin with one pipeline()"
    )


class _Layout:
    """Lays parts out as nodes, those in front first."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.forks = 0

    def add(self, node: Node, upstream: int) -> int:
        number = len(self.nodes)
        node.upstream = upstream
        self.nodes.append(node)
        if upstream >= 0:
            self.nodes[upstream].targets.append(number)
        return number

    def chain(self, part: Part, start: Part, begin: int) -> int:
        """Lay out what is between `start`, whose node is `begin`, and `part`; returns the node of `part`."""
        if part is start:
            return begin
        if part.merged:
            fork = common_part(part.merged)
            return self.merge(part, self.chain(fork, start, begin), fork)
        assert part.before is not None
        assert part.operator is not None
        return self.operator(part.operator, self.chain(part.before, start, begin))

    def operator(self, operator: Operator, upstream: int) -> int:
        takes, key = operator.takes, -1
        if operator.side is Side.KEYED:
            names = [column.name for column in takes.fields]
            named = names.index(operator.key) if isinstance(operator.key, str) else -1
            if operator.selector is None:
                key = HEADER + named
            else:
                upstream = self.add(Node("operator", takes, operator.selector), upstream)
                takes, key = operator.selector.gives, HEADER + len(names)
        return self.add(Node("operator", takes, operator, key), upstream)

    def merge(self, part: Part, fork: int, common: Part) -> int:
        if self.nodes[fork].fork_bit:  # this fork is inside a branch of that one
            edge = self.add(Node("edge", common.gives), fork)
            fork = self.join([edge], common.gives, 0)
        if self.forks >= FORKS_MAX:
            raise LimitExceeded(f"merge: required at most {FORKS_MAX} merges in a pipeline; merge more at once")
        bit = 1 << self.forks
        self.forks += 1
        self.nodes[fork].fork_bit = bit
        edges = [self.add(Node("edge", part.gives), self.chain(each, common, fork)) for each in part.merged]
        return self.join(edges, part.gives, bit)

    def join(self, edges: list[int], gives: RecordLayout, bit: int) -> int:
        """The node that takes rows from edges in turn; from a single one it only hands them on."""
        number = self.add(Node("merge", gives, branches=edges, merge_bit=bit), -1)
        self.nodes[number].upstream = self.nodes[edges[0]].upstream
        return number


def lay_out(result: Part) -> list[Node]:
    """The nodes of a pipeline: the source first, the sink last."""
    layout = _Layout()
    source = result.source
    begin = layout.add(Node("source", source.gives), -1)
    layout.add(Node("sink", result.gives), layout.chain(result, source, begin))
    for node in layout.nodes:
        if len(node.targets) + len(node.branches) > TARGETS_MAX:
            raise LimitExceeded(f"branch: required at most {TARGETS_MAX} branches of a fork, got {len(node.targets)}")
    return layout.nodes
