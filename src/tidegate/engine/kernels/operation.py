"""What one operation does, and what all kernels that run operations share.

An operation is given slots: of the rows themselves, or of versions. Which versions it sees follows from its
links, past the versions of aborted transactions, to the row itself:

    now = row <- version of txn 3 <- version of txn 7 (aborted) <- this operation

A row that it writes is copied to the slot of its new version first, and the program works there. So no row
changes before a batch is over, and any operation can run again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.foundation.atomics import address_of, call, copy, relax, relax_crowded, store, ticks
from tidegate.foundation.jit import inline

LINE = 8  # words of a cache line: counters that several workers change lie so far apart
STOP = 0 * LINE
CURSOR = 1 * LINE
DONE = 2 * LINE
ARRIVED = 3 * LINE
PHASE = 4 * LINE
TURN = 5 * LINE
CROWDED = 6 * LINE
CONTROL_WORDS = 7 * LINE

RUNNING = 0
ESCAPED = 1
INTERRUPTED = 2

SAMPLE = 17  # one in 17 operations is timed: a prime, so that all parts of a transaction are sampled


class Progress(NamedTuple):
    """How far a batch has come."""

    control: Any
    pending: Any  # per unit
    state: Any  # per operation
    active: Any  # per operation: whether this exploration runs it
    operation_failure: Any  # per operation
    failure: Any  # per transaction, as all below
    remaining: Any
    aborted: Any


class Machine(NamedTuple):
    """What runs an operation: the program's function, and the memory of the tables."""

    operate: Any  # its address, in an array of one
    contexts: Any  # per worker: address of its context
    first_failure: Any  # per kind: the smallest position at which it can fail
    whole: Any  # per kind: whether it undoes its own writes
    column_first: Any  # per table: its first column
    column_address: Any
    column_size: Any
    cost_ticks: Any  # per worker and kind: time of the sampled operations
    cost_samples: Any


@inline
def wait(control, spins):  # type: ignore[no-untyped-def]
    """One step of waiting for another worker."""
    return relax_crowded(spins) if control[CROWDED] else relax(spins)


# --- one operation -----------------------------------------------------------------------------------------


@inline
def copy_row(machine, table, source, target):  # type: ignore[no-untyped-def]
    """Copy a row to another slot of its table."""
    for column in range(machine.column_first[table], machine.column_first[table + 1]):
        address, size = machine.column_address[column], machine.column_size[column]
        copy(address + source * size, address + target * size, size)


@inline
def visible(graph, progress, access):  # type: ignore[no-untyped-def]
    """The slot that an access reads: the newest version before it that is not aborted, or the row."""
    write = graph.link[access]
    while write >= 0 and progress.aborted[graph.transaction[graph.operation[write]]] != 0:
        write = graph.link[write]
    return graph.slot[access] if write < 0 else graph.version[write]


@inline
def invoke(graph, machine, worker, operation):  # type: ignore[no-untyped-def]
    """Call the program's function; one call in `SAMPLE` is timed."""
    kind, event = graph.kind[operation], graph.event[graph.transaction[operation]]
    slots = address_of(graph.now, graph.access_first[operation])
    if operation % SAMPLE != 0:
        return call(machine.operate[0], machine.contexts[worker], kind, event, slots)
    began = ticks()
    status = call(machine.operate[0], machine.contexts[worker], kind, event, slots)
    machine.cost_ticks[worker, kind] += ticks() - began
    machine.cost_samples[worker, kind] += 1
    return status


@inline
def perform(graph, progress, machine, worker, operation):  # type: ignore[no-untyped-def]
    """Run one operation on the versions it sees; returns its failure, 0 for none."""
    first, stop = graph.access_first[operation], graph.access_first[operation + 1]
    for access in range(first, stop):
        root = graph.alias[access]
        if root != access:
            graph.now[access] = graph.now[root]
            continue
        slot = visible(graph, progress, access)
        if graph.write[access]:
            copy_row(machine, graph.table[access], slot, graph.version[access])
            slot = graph.version[access]
        graph.now[access] = slot
    status = invoke(graph, machine, worker, operation)
    if status < 0:
        store(progress.control, STOP, ESCAPED)
        return 0
    if status > 0 and not machine.whole[graph.kind[operation]]:  # leave the row as if it had not run
        for access in range(first, stop):
            if graph.alias[access] == access and graph.write[access]:
                copy_row(machine, graph.table[access], visible(graph, progress, access), graph.version[access])
    return status
