"""The memory of a running pipeline: the array that all kernels work on, and the views that plain Python needs of it.

`kernels.layout` says what lies where; this module computes the sizes and writes the words that never change. Everything
is allocated here, once: rings and queues do not grow, so a pipeline that stands still holds a bounded number of
records. Only the states of keys become larger (`make_room`), while no worker runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tidegate.compiler.operators import link_operators
from tidegate.engine.execution.timing import read_ticks, ticks_per_second
from tidegate.engine.generated import load
from tidegate.foundation import atomics
from tidegate.operations.kinds import Kind
from tidegate.operations.pipeline import HEADER
from tidegate.ordering.graph import Node
from tidegate.ordering.kernels import layout as at
from tidegate.ordering.records import Words
from tidegate.ordering.states import States
from tidegate.ordering.steps import Operator, Side
from tidegate.ordering.strings import SharedStrings

Reorder = Literal["non-blocking", "lock"]
Partitioning = Literal["hybrid", "shared", "partitioned"]
Mode = Literal["workers", "thread-per-operator"]

PARTITIONS = 100
"""Buckets of a keyed operator, unless it says how many: the paper's number."""
QUEUES_WORDS = 1 << 20
"""Records that the queues of all buckets of an operator hold at most, unless it has more buckets than that."""
SCRATCH_WORDS = 1024
_KINDS = {"hybrid": at.HYBRID, "shared": at.SHARED, "partitioned": at.PARTITIONED}
_WHATS = {"source": at.SOURCE, "edge": at.EDGE, "merge": at.MERGE, "sink": at.SINK}


@dataclass(frozen=True, slots=True)
class Options:
    """How a pipeline runs."""

    workers: int
    heuristic: int
    reorder: Reorder
    partitioning: Partitioning
    mode: Mode
    capacity: int
    slice_seconds: float
    window_seconds: float


class Flow:
    """The memory of one run."""

    def __init__(self, nodes: Sequence[Node], options: Options, source_places: int, strings: SharedStrings) -> None:
        self.nodes, self.options, self.strings = nodes, options, strings
        self._capacity = 1 << max(options.capacity - 1, 0).bit_length()
        operators = [node.operator for node in nodes]
        self._plan = link_operators([None if found is None else found.plan for found in operators])
        self.states = {n: States(found, strings) for n, found in enumerate(operators) if found and found.state}
        self._size = at.NODE_0 + len(nodes) * at.NODE_WORDS
        self._worker_at = self._take(options.workers * self._worker_words)
        places = [self._places(number) for number in range(len(nodes))]
        self._whole = np.zeros(self._size + at.LINE, np.int64)
        skipped = -self._whole.ctypes.data // 8 % at.LINE  # begin on a cache line
        self.memory: Words = self._whole[skipped : skipped + self._size]
        self.source_rows = np.zeros((source_places, nodes[0].takes.stride), np.int64)
        self._write_globals()
        for number, node in enumerate(nodes):
            self._write_node(number, node, places[number])
        self.scratch = [np.zeros(SCRATCH_WORDS, np.int64) for _ in range(options.workers)]
        for worker in range(options.workers):
            self._write_worker(worker)
        self._bind()

    # --- layout -------------------------------------------------------------------------------------------------------

    @property
    def _worker_words(self) -> int:
        return at.TALLY + at.TALLY_WORDS * len(self.nodes)

    def _take(self, words: int) -> int:
        """Where so many words begin, on a cache line."""
        begin = self._size
        self._size += -(-words // at.LINE) * at.LINE
        return begin

    def _places(self, number: int) -> dict[int, int]:
        """Where the rings, queues and counters of a node are."""
        node = self.nodes[number]
        if node.what in ("source", "merge"):
            return {}
        size = self._capacity
        found = {at.ROWS: self._take(size * node.takes.stride)}
        if node.operator is None:
            return found
        found[at.OUTS] = self._take(size * node.operator.gives.stride)
        found |= {word: self._take(size) for word in (at.STATUS, at.BLOCKS, at.SLOTS, at.STARTED)}
        if node.key >= 0:
            found[at.BUCKETS] = self._take(size)
            found[at.COUNTS] = self._take(at.LINE * self._partitions(node.operator))
            if self._kind(node) in (at.HYBRID, at.PARTITIONED):
                found[at.QUEUES] = self._take(self._partitions(node.operator) * self._queue_places(node.operator))
            if isinstance(node.operator.partitions, tuple):
                found[at.BOUNDS] = self._take(len(node.operator.partitions))
        return found

    def _queue_places(self, operator: Operator | None) -> int:
        """Records that the queue of one bucket holds: where there are many buckets, few wait for each."""
        buckets = 1 if operator is None else self._partitions(operator)
        return min(self._capacity, 1 << max(QUEUES_WORDS // buckets, 1).bit_length() - 1)

    def _partitions(self, operator: Operator) -> int:
        """How many buckets a keyed operator has."""
        if isinstance(operator.partitions, tuple):
            return len(operator.partitions) + 1
        if self.options.mode == "thread-per-operator":
            return 1
        return operator.partitions or (
            self.options.workers if self.options.partitioning == "partitioned" else PARTITIONS
        )

    def _kind(self, node: Node) -> int:
        operator = node.operator
        if operator is None:
            return _WHATS[node.what]
        if operator.side is Side.STATELESS:
            return at.STATELESS
        if operator.side is Side.STATEFUL or self.options.mode == "thread-per-operator":
            return at.STATEFUL
        return _KINDS[self.options.partitioning]

    def _limit(self, node: Node) -> int:
        if node.operator is None:
            return 0
        kind = self._kind(node)
        if kind == at.STATEFUL or self.options.mode == "thread-per-operator":
            return 1
        return (
            self.options.workers if kind == at.STATELESS else min(self._partitions(node.operator), self.options.workers)
        )

    def _write_globals(self) -> None:
        rate = ticks_per_second()
        words = {
            at.NODES: len(self.nodes),
            at.WORKERS: self.options.workers,
            at.WORKER_AT: self._worker_at,
            at.SLICE: int(self.options.slice_seconds * rate),
            at.WINDOW: int(self.options.window_seconds * rate),
            at.HEURISTIC: self.options.heuristic,
            at.LOCKED: int(self.options.reorder == "lock"),
            at.WINDOW_BEGAN: int(read_ticks()),
        }
        for place, word in words.items():
            self.memory[place] = word

    def _write_node(self, number: int, node: Node, places: dict[int, int]) -> None:
        operator = node.operator
        words = {
            at.SELECTIVITY: 1 << 16,
            at.KIND: self._kind(node),
            at.CODE: -1 if operator is None or operator.plan is None else number,
            at.LIMIT: self._limit(node),
            at.MASK: self._capacity - 1,
            at.STRIDE: node.takes.stride,
            at.OUT_STRIDE: operator.gives.stride if operator is not None else 0,
            at.MANY: int(operator is not None and operator.many == "list"),
            at.UPSTREAM: max(node.upstream, 0),
            at.KEY: node.key,
            at.FLOAT_KEY: int(node.key >= HEADER and node.takes.fields[node.key - HEADER].kind is Kind.FLOAT),
            at.BOUNDS: -1,
            at.QUEUES: -1,
            at.QUEUE_MASK: self._queue_places(operator) - 1,
            at.PARTITIONS: self._partitions(operator) if operator is not None else 0,
            at.FORK_BIT: node.fork_bit,
            at.MERGE_BIT: node.merge_bit,
            at.TARGETS: len(node.targets),
            at.BRANCHES: len(node.branches),
            **{at.TARGET + place: target for place, target in enumerate([*node.targets, *node.branches])},
            **places,
        }
        if node.what == "source":
            words |= {at.ROWS: self.source_rows.ctypes.data, at.MASK: len(self.source_rows) - 1}
        base = at.NODE_0 + number * at.NODE_WORDS
        for place, word in words.items():
            self.memory[base + place] = word
        if operator is not None and isinstance(operator.partitions, tuple) and node.key >= 0:
            bounds = places[at.BOUNDS]
            self.memory[bounds : bounds + len(operator.partitions)] = operator.partitions

    def _write_worker(self, worker: int) -> None:
        mine = self.worker_at(worker)
        for place in (at.AT_NODE, at.FIXED, at.SERIAL, at.BUCKET):
            self.memory[mine + place] = -1
        self.memory[mine + at.OUTPUTS] = at.NOT_RUN
        self.memory[mine + at.CHOSEN] = -2
        if self.options.mode == "thread-per-operator":
            operators = [number for number, node in enumerate(self.nodes) if node.operator is not None]
            self.memory[mine + at.FIXED] = [*operators, -1][worker]  # without operators, a worker that only moves rows
        self.use_scratch(worker, self.scratch[worker])

    def worker_at(self, worker: int) -> int:
        """Where the words of a worker begin."""
        return self._worker_at + worker * self._worker_words

    def node_at(self, node: int) -> int:
        """Where the words of a node begin."""
        return at.NODE_0 + node * at.NODE_WORDS

    def use_scratch(self, worker: int, scratch: Words) -> None:
        """Give a worker memory for outputs."""
        self.scratch[worker] = scratch
        mine = self.worker_at(worker)
        self.memory[mine + at.SCRATCH], self.memory[mine + at.SCRATCH_WORDS] = scratch.ctypes.data, len(scratch)

    # --- generated code -----------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Load the generated code, and tell it where its arrays are."""
        self.signals = np.zeros(at.LINE, np.int64)
        self._literals = np.array([self.strings.number(text) for text in self._plan.literals], np.int64)
        self.entry = load(self._plan).operate
        self.memory[at.ENTRY] = self.entry.address
        self._point()

    def _point(self) -> None:
        """Write down where arrays are; those of states move when they grow."""
        own: dict[str, Any] = {"literals": self._literals, "texts": self.strings.places, "signals": self.signals}
        arrays: list[npt.NDArray[Any]] = []
        for spec in self._plan.arrays:
            found = own[spec.role] if spec.owner == "worker" else getattr(self.states[int(spec.of)], spec.role)
            arrays.append(found if spec.key is None else found[spec.key])
        self._context = np.array([array.ctypes.data for array in arrays] or [0], np.int64)
        self.memory[at.CONTEXT] = self._context.ctypes.data
        for number, states in self.states.items():
            base = self.node_at(number)
            self.memory[base + at.INDEX] = states.index.ctypes.data
            self.memory[base + at.INDEX_MASK] = states.index_mask
            self.memory[base + at.STATES_MAX] = states.room

    def make_room(self) -> None:
        """Make room for more keys where it is asked for; no worker runs now."""
        for number, states in self.states.items():
            if self.memory[self.node_at(number) + at.NEEDS_ROOM]:
                states.grow()
                self.memory[self.node_at(number) + at.NEEDS_ROOM] = 0
        self._point()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def word(self, node: int, place: int) -> int:
        """A word of a node."""
        return atomics.load(self.memory, self.node_at(node) + place)

    def row(self, node: int, number: int) -> Words:
        """The row of a record in the ring of a node."""
        base, stride = self.node_at(node), self.nodes[node].takes.stride
        begin = int(self.memory[base + at.ROWS]) + (number & int(self.memory[base + at.MASK])) * stride
        return self.memory[begin : begin + stride]

    def free_blocks(self) -> None:
        """Free the outputs that nobody will take any more."""
        for number, node in enumerate(self.nodes):
            if node.operator is None:
                continue
            base = self.node_at(number)
            statuses, blocks = int(self.memory[base + at.STATUS]), int(self.memory[base + at.BLOCKS])
            for place in np.flatnonzero(self.memory[statuses : statuses + self._capacity] > 2):
                atomics.free(int(self.memory[blocks + place]))
                self.memory[statuses + place] = 0
