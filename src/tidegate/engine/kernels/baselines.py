"""Kernels of the baselines: published ways to run ordered transactions on several workers.

    lock            rows are locked in timestamp order, shared for reads; transactions run in place
    mvlk            the same with versions: a read waits for the writes before it, no write waits for a read
    partitioned     a transaction waits for its turn in every partition of the state that it touches
    chains          the operations of each row in timestamp order; workers go round until all are done
    unsafe-nolock   no worker waits: an upper bound on speed, wrong by design

In the first three and the last, a worker takes the next transaction in timestamp order and runs all of
it. The earliest transaction that has not run never waits, so nothing can block for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.engine.kernels.lifecycle import EXECUTED
from tidegate.engine.kernels.operation import (
    CURSOR,
    DONE,
    RUNNING,
    STOP,
    TURN,
    copy_row,
    invoke,
    perform,
    wait,
)
from tidegate.foundation.atomics import compare_exchange, fetch_add, load, store
from tidegate.foundation.jit import inline, kernel


class Locks(NamedTuple):
    """Per row, how many reads and writes were granted a place in the queue, and how many are over."""

    writes_queued: Any
    writes_done: Any
    reads_queued: Any
    reads_done: Any
    after_writes: Any  # per access: how many writes must be over before it
    after_reads: Any


@inline
def _run_in_place(graph, progress, machine, worker, transaction):  # type: ignore[no-untyped-def]
    """Run a transaction on the rows themselves; it undoes its own writes when it fails."""
    operation = graph.operation_first[transaction]
    for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
        graph.now[access] = graph.slot[access]
    found = invoke(graph, machine, worker, operation)
    if found < 0:
        store(progress.control, STOP, 1)
    progress.failure[transaction] = max(found, 0)


@inline
def _wait_until(counters, row, wanted, control):  # type: ignore[no-untyped-def]
    spins = 0
    while load(counters, row) < wanted:
        if load(control, STOP) != RUNNING:
            return False
        spins = wait(control, spins)
    return True


@inline
def _wait_for_turn(control, transaction):  # type: ignore[no-untyped-def]
    spins = 0
    while load(control, TURN) != transaction:
        if load(control, STOP) != RUNNING:
            return False
        spins = wait(control, spins)
    return True


@kernel
def run_locked(shapes, graph, progress, machine, worker, locks):  # type: ignore[no-untyped-def]
    """Strict two-phase locking; locks are queued in timestamp order, one transaction at a time."""
    control = progress.control
    while True:
        transaction = fetch_add(control, CURSOR, 1)
        if transaction >= graph.event.shape[0] or not _wait_for_turn(control, transaction):
            return
        if load(control, STOP) != RUNNING:
            return
        operation = graph.operation_first[transaction]
        first, stop = graph.access_first[operation], graph.access_first[operation + 1]
        for access in range(first, stop):
            if graph.alias[access] == access:
                row = shapes.row_base[graph.table[access]] + graph.slot[access]
                locks.after_writes[access] = locks.writes_queued[row]
                locks.after_reads[access] = locks.reads_queued[row]
                if graph.write[access]:
                    locks.writes_queued[row] += 1
                else:
                    locks.reads_queued[row] += 1
        store(control, TURN, transaction + 1)
        for access in range(first, stop):
            if graph.alias[access] == access:
                row = shapes.row_base[graph.table[access]] + graph.slot[access]
                if not _wait_until(locks.writes_done, row, locks.after_writes[access], control):
                    return
                if graph.write[access] and not _wait_until(locks.reads_done, row, locks.after_reads[access], control):
                    return
        _run_in_place(graph, progress, machine, worker, transaction)
        if load(control, STOP) != RUNNING:  # the run may be discarded, so no other transaction may read this
            return
        for access in range(first, stop):
            if graph.alias[access] == access:
                row = shapes.row_base[graph.table[access]] + graph.slot[access]
                if graph.write[access]:
                    fetch_add(locks.writes_done, row, 1)
                else:
                    fetch_add(locks.reads_done, row, 1)


@kernel
def release_rows(shapes, graph, locks):  # type: ignore[no-untyped-def]
    """Make the locks ready for the next batch."""
    for access in range(graph.slot.shape[0]):
        row = shapes.row_base[graph.table[access]] + graph.slot[access]
        locks.writes_queued[row] = 0
        locks.writes_done[row] = 0
        locks.reads_queued[row] = 0
        locks.reads_done[row] = 0


@kernel
def run_multiversion_locked(graph, progress, machine, worker):  # type: ignore[no-untyped-def]
    """A transaction waits for the writes before it on its rows, and writes versions of its own."""
    control = progress.control
    while True:
        transaction = fetch_add(control, CURSOR, 1)
        if transaction >= graph.event.shape[0]:
            return
        operation = graph.operation_first[transaction]
        for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
            write = graph.link[access]
            if graph.alias[access] != access or write < 0:
                continue
            before = graph.transaction[graph.operation[write]]
            spins = 0
            while load(progress.remaining, before) != 0:
                if load(control, STOP) != RUNNING:
                    return
                spins = wait(control, spins)
        found = perform(graph, progress, machine, worker, operation)
        if load(control, STOP) != RUNNING:
            return
        progress.failure[transaction] = found
        progress.aborted[transaction] = found != 0
        store(progress.remaining, transaction, 0)


@inline
def _partition(shapes, graph, access, partitions):  # type: ignore[no-untyped-def]
    row = shapes.row_base[graph.table[access]] + graph.slot[access]
    return (row * 0x9E3779B1 >> 7) % partitions


@kernel
def queue_in_partitions(shapes, graph, partitions, mask_out, queued_out, first_out, queue_out):  # type: ignore[no-untyped-def]
    """Which partitions each transaction touches, and the order of transactions in each partition."""
    first_out[:] = 0
    for transaction in range(graph.event.shape[0]):
        mask = 0
        operation = graph.operation_first[transaction]
        for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
            mask |= 1 << _partition(shapes, graph, access, partitions)
        mask_out[transaction] = mask
        for partition in range(partitions):
            first_out[partition + 1] += (mask >> partition) & 1
    for partition in range(partitions):
        first_out[partition + 1] += first_out[partition]
        queued_out[partition] = first_out[partition]
    for transaction in range(graph.event.shape[0]):
        for partition in range(partitions):
            if (mask_out[transaction] >> partition) & 1:
                queue_out[queued_out[partition]] = transaction
                queued_out[partition] += 1


@kernel
def run_partitioned(graph, progress, machine, worker, queues, serving):  # type: ignore[no-untyped-def]
    """A transaction runs when it is the first in every partition that it touches."""
    mask, first, queue = queues
    control = progress.control
    partitions = first.shape[0] - 1
    line = serving.shape[0] // partitions
    while True:
        transaction = fetch_add(control, CURSOR, 1)
        if transaction >= graph.event.shape[0]:
            return
        touched = mask[transaction]
        for partition in range(partitions):
            if (touched >> partition) & 1:
                spins = 0
                while queue[first[partition] + load(serving, partition * line)] != transaction:
                    if load(control, STOP) != RUNNING:
                        return
                    spins = wait(control, spins)
        _run_in_place(graph, progress, machine, worker, transaction)
        if load(control, STOP) != RUNNING:
            return
        for partition in range(partitions):
            if (touched >> partition) & 1:
                fetch_add(serving, partition * line, 1)


@kernel
def run_without_locks(graph, progress, machine, worker):  # type: ignore[no-untyped-def]
    """Everyone takes the next transaction and runs it, whatever others do to the same rows."""
    control = progress.control
    while True:
        transaction = fetch_add(control, CURSOR, 1)
        if transaction >= graph.event.shape[0] or load(control, STOP) != RUNNING:
            return
        _run_in_place(graph, progress, machine, worker, transaction)


# --- chains ------------------------------------------------------------------------------------------------


@inline
def _advance(graph, units, progress, machine, worker, chain, cursor):  # type: ignore[no-untyped-def]
    """Walk a chain as far as what it reads from has run; returns how many operations ran."""
    ran = 0
    while cursor[chain] < units.member_first[chain + 1]:
        operation = units.member[cursor[chain]]
        for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
            write = graph.link[access]
            waits = graph.alias[access] == access and write >= 0
            if waits and load(progress.state, graph.operation[write]) != EXECUTED:
                return ran
        progress.operation_failure[operation] = perform(graph, progress, machine, worker, operation)
        if load(progress.control, STOP) != RUNNING:
            return ran
        store(progress.state, operation, EXECUTED)
        cursor[chain] += 1
        ran += 1
    return ran


@kernel
def walk_own_chains(graph, units, progress, machine, worker, workers, cursor):  # type: ignore[no-untyped-def]
    """Shared nothing: every chain has one worker, which goes round its chains until all are at their end."""
    control = progress.control
    spins, open_chains = 0, True
    while open_chains:
        open_chains = False
        ran = 0
        for chain in range(worker, cursor.shape[0], workers):
            if cursor[chain] < units.member_first[chain + 1]:
                ran += _advance(graph, units, progress, machine, worker, chain, cursor)
                if load(control, STOP) != RUNNING:
                    return
                if cursor[chain] < units.member_first[chain + 1]:
                    open_chains = True
        spins = 0 if ran > 0 else wait(control, spins)


@kernel
def walk_any_chain(graph, units, progress, machine, worker, workers, cursor, taken):  # type: ignore[no-untyped-def]
    """Shared everything: a worker takes any chain that no other worker walks."""
    control = progress.control
    chains, operations = cursor.shape[0], graph.kind.shape[0]
    spins = 0
    while load(control, DONE) < operations:
        ran = 0
        for step in range(chains):
            chain = (worker * chains // workers + step) % chains
            if load(taken, chain) != 0 or not compare_exchange(taken, chain, 0, 1):
                continue
            ran += _advance(graph, units, progress, machine, worker, chain, cursor)
            if load(control, STOP) != RUNNING:
                return
            if cursor[chain] < units.member_first[chain + 1]:
                store(taken, chain, 0)  # a chain at its end stays taken
        if ran > 0:
            fetch_add(control, DONE, ran)
        if load(control, STOP) != RUNNING:
            return
        spins = 0 if ran > 0 else wait(control, spins)


# --- what to go back to --------------------------------------------------------------------------------------


@kernel
def save_rows(shapes, graph, machine, latest_write):  # type: ignore[no-untyped-def]
    """Keep every row that may be written, in the slot of its last version."""
    for access in range(graph.slot.shape[0]):
        if graph.write[access] and latest_write[shapes.row_base[graph.table[access]] + graph.slot[access]] == access:
            copy_row(machine, graph.table[access], graph.slot[access], graph.version[access])


@kernel
def restore_rows(shapes, graph, machine, latest_write):  # type: ignore[no-untyped-def]
    """Put back what `save_rows` kept."""
    for access in range(graph.slot.shape[0]):
        if graph.write[access] and latest_write[shapes.row_base[graph.table[access]] + graph.slot[access]] == access:
            copy_row(machine, graph.table[access], graph.version[access], graph.slot[access])
