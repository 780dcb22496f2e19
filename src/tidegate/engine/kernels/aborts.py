"""Kernels for what follows an exploration: taking back what failed, and making the rest the state.

With lazy aborts an operation may have read from a transaction that failed. `take_back` aborts what failed,
un-aborts what no longer does, and marks what must run again for it: the readers, and their readers. The
marked operations are explored again, until nothing changes:

    t1 writes A, fails      t2 reads A, commits      t3 reads t2's B, fails: too little there
    t1 taken back           t2 runs again            t3 runs again, and commits

A fixed point is what serial execution gives, by induction in timestamp order: the first transaction
depends on nothing that can change, the second on nothing but the first, and so on.
"""

from __future__ import annotations

from tidegate.engine.kernels.lifecycle import ABORTED, BLOCKED, EXECUTED, READY
from tidegate.engine.kernels.operation import RUNNING, STOP, copy_row, perform
from tidegate.foundation.atomics import load
from tidegate.foundation.jit import inline, kernel


@inline
def _mark_readers(graph, operation, dirty):  # type: ignore[no-untyped-def]
    for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
        if graph.write[access] and graph.alias[access] == access:
            reader = graph.reader_first[access]
            while reader >= 0:
                dirty[graph.operation[reader]] = 1
                reader = graph.reader_next[reader]


@inline
def _first_failure(graph, progress, transaction):  # type: ignore[no-untyped-def]
    found = 0
    for operation in range(graph.operation_first[transaction], graph.operation_first[transaction + 1]):
        failure = progress.operation_failure[operation]
        if failure != 0 and (found == 0 or failure < found):
            found = failure
    return found


@inline
def _waits(graph, active, operation):  # type: ignore[no-untyped-def]
    """Whether something that an operation reads from runs again."""
    for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
        link = graph.link[access]
        if graph.alias[access] == access and link >= 0 and active[graph.operation[link]]:
            return True
    return False


@kernel
def take_back(graph, progress):  # type: ignore[no-untyped-def]
    """Abort what failed, un-abort what no longer fails; `active` becomes all that must run again for it.

    Returns how many operations those are: what read from a transaction that changed, and what read from that.
    """
    active = progress.active
    active[:] = 0
    again = 0
    for transaction in range(graph.event.shape[0]):
        found = _first_failure(graph, progress, transaction)
        changed = (found != 0) != (progress.aborted[transaction] != 0)
        progress.failure[transaction] = found
        progress.aborted[transaction] = found != 0
        for operation in range(graph.operation_first[transaction], graph.operation_first[transaction + 1]):
            if active[operation]:
                again += 1
                progress.state[operation] = BLOCKED if _waits(graph, active, operation) else READY
            elif found != 0:
                progress.state[operation] = ABORTED
            if changed or active[operation]:
                _mark_readers(graph, operation, active)
    return again


@kernel
def repair(graph, progress, machine, worker):  # type: ignore[no-untyped-def]
    """Run what is `active` again, and what depends on a change that this makes, in timestamp order.

    One pass settles everything: whatever an operation reads was settled before it.
    """
    dirty = progress.active
    again = 0
    for transaction in range(graph.event.shape[0]):
        first, stop = graph.operation_first[transaction], graph.operation_first[transaction + 1]
        for operation in range(first, stop):
            if dirty[operation]:
                progress.operation_failure[operation] = perform(graph, progress, machine, worker, operation)
                _mark_readers(graph, operation, dirty)
                again += 1
                if load(progress.control, STOP) != RUNNING:
                    return again
        found = _first_failure(graph, progress, transaction)
        if (found != 0) != (progress.aborted[transaction] != 0):
            for operation in range(first, stop):
                _mark_readers(graph, operation, dirty)
        progress.failure[transaction] = found
        progress.aborted[transaction] = found != 0
        for operation in range(first, stop):
            progress.state[operation] = EXECUTED if found == 0 else ABORTED
    return again


# --- the end -----------------------------------------------------------------------------------------------


@kernel
def install(shapes, graph, progress, machine, latest_write, start, stop):  # type: ignore[no-untyped-def]
    """Copy every row's newest version that was not aborted to the row itself; for some accesses."""
    for access in range(start, stop):
        if not graph.write[access] or graph.alias[access] != access:
            continue
        row = shapes.row_base[graph.table[access]] + graph.slot[access]
        if latest_write[row] != access:
            continue
        write = access
        while write >= 0 and progress.aborted[graph.transaction[graph.operation[write]]] != 0:
            write = graph.link[write]
        if write >= 0:
            copy_row(machine, graph.table[access], graph.version[write], graph.slot[access])


@kernel
def settle(graph, progress, status_out, valid_out):  # type: ignore[no-untyped-def]
    """Write the outcomes: a status for each event; an aborted transaction has no result."""
    for transaction in range(graph.event.shape[0]):
        failure = progress.failure[transaction]
        if failure != 0:
            event = graph.event[transaction]
            status_out[event] = failure & 0xFFFFFFFF
            valid_out[event] = False
