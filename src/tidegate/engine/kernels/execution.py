"""Kernels that run a batch's operations: the three ways to explore the graph.

Every worker runs one of the `explore_*` kernels at the same time, without the GIL. They share arrays and
agree through atomic operations alone:

    pending[unit]       how many links the unit still waits for; who brings it to zero hands the unit on
    failure[txn]        0, or the first failing statement and its reason: position << 32 | status
    remaining[txn]      operations that have not run; who brings it to zero decides the transaction
    aborted[txn]        1: its versions are skipped by readers

With eager aborts, an operation runs when every transaction it reads from is decided, so what it reads is
final. With lazy aborts it runs when the operations it reads from ran; what it read may be taken back later
(`kernels.aborts`).

All waiting ends when `control[STOP]` is set: an operation needs plain Python, or the user interrupts.
"""

from __future__ import annotations

from tidegate.engine.kernels.lifecycle import ABORTED, EXECUTED, READY
from tidegate.engine.kernels.operation import (
    ARRIVED,
    CURSOR,
    DONE,
    LINE,
    PHASE,
    RUNNING,
    STOP,
    perform,
    wait,
)
from tidegate.engine.kernels.units import is_outside
from tidegate.foundation.atomics import compare_exchange, exchange, fetch_add, load, store
from tidegate.foundation.jit import inline, kernel

CHUNK = 8  # units that a worker takes at a time from a layer
UNITS_TAKEN = 16  # units that a worker takes at a time from those that never waited


@inline
def _keep_first(failure, transaction, found):  # type: ignore[no-untyped-def]
    """Keep the failure of the statement that comes first."""
    known = load(failure, transaction)
    while known == 0 or found < known:
        if compare_exchange(failure, transaction, known, found):
            return
        known = load(failure, transaction)


# --- what becomes visible, and to whom ---------------------------------------------------------------------


@inline
def _signal(graph, units, progress, eager, operation, ready, count):  # type: ignore[no-untyped-def]
    """Tell the units that read an operation's versions; those that wait for nothing more go to `ready`."""
    for access in range(graph.access_first[operation], graph.access_first[operation + 1]):
        if not graph.write[access] or graph.alias[access] != access:
            continue
        reader = graph.reader_first[access]
        while reader >= 0:
            waiting = graph.operation[reader]
            unit = units.unit[waiting]
            waits = progress.active[waiting] and is_outside(graph, units, unit, access, eager)
            if waits and fetch_add(progress.pending, unit, -1) == 1:
                ready[count] = unit
                count += 1
            reader = graph.reader_next[reader]
    return count


@inline
def _decide(graph, units, progress, transaction, ready, count):  # type: ignore[no-untyped-def]
    """All operations of a transaction ran: it commits or aborts, and its readers are told."""
    failed = load(progress.failure, transaction) != 0
    if failed:
        progress.aborted[transaction] = 1
    for operation in range(graph.operation_first[transaction], graph.operation_first[transaction + 1]):
        if failed:
            progress.state[operation] = ABORTED
        count = _signal(graph, units, progress, True, operation, ready, count)
    return count


@inline
def _run_eager(graph, units, progress, machine, worker, operation, ready, count):  # type: ignore[no-untyped-def]
    transaction = graph.transaction[operation]
    known = load(progress.failure, transaction)
    # A sibling failed at an earlier statement than this operation has: nothing it finds can matter.
    if known == 0 or (known >> 32) >= machine.first_failure[graph.kind[operation]]:
        found = perform(graph, progress, machine, worker, operation)
        if load(progress.control, STOP) != RUNNING:  # the run may be discarded, so this must not be visible
            return count
        if found != 0:
            _keep_first(progress.failure, transaction, found)
    progress.state[operation] = EXECUTED
    if fetch_add(progress.remaining, transaction, -1) == 1:
        count = _decide(graph, units, progress, transaction, ready, count)
    return count


@inline
def _run_lazy(graph, units, progress, machine, worker, operation, ready, count):  # type: ignore[no-untyped-def]
    found = perform(graph, progress, machine, worker, operation)
    if load(progress.control, STOP) != RUNNING:
        return count
    progress.operation_failure[operation] = found
    progress.state[operation] = EXECUTED if found == 0 else ABORTED
    return _signal(graph, units, progress, False, operation, ready, count)


@inline
def run_unit(graph, units, progress, machine, eager, worker, unit, ready):  # type: ignore[no-untyped-def]
    """Run a unit's operations in timestamp order; returns how many units it made ready."""
    count = 0
    for index in range(units.member_first[unit], units.member_first[unit + 1]):
        operation = units.member[index]
        if not progress.active[operation]:
            continue
        progress.state[operation] = READY
        if eager:
            count = _run_eager(graph, units, progress, machine, worker, operation, ready, count)
        else:
            count = _run_lazy(graph, units, progress, machine, worker, operation, ready, count)
        if load(progress.control, STOP) != RUNNING:
            return count
    return count


@kernel
def count_pending(graph, units, progress, eager):  # type: ignore[no-untyped-def]
    """How many links each unit waits for, among the operations of this exploration."""
    pending = progress.pending
    pending[:] = 0
    for access in range(graph.slot.shape[0]):
        operation = graph.operation[access]
        write = graph.link[access]
        if write < 0 or graph.alias[access] != access or not progress.active[operation]:
            continue
        unit = units.unit[operation]
        if progress.active[graph.operation[write]] and is_outside(graph, units, unit, write, eager):
            pending[unit] += 1


@kernel
def layer(graph, units, progress, eager, order_out, layer_first_out):  # type: ignore[no-untyped-def]
    """The units, layer by layer: a unit lies behind all that it waits for; returns how many layers.

    Counts `pending` down to zero; the exploration needs it counted again.
    """
    filled, layers = 0, 0
    for unit in range(progress.pending.shape[0]):
        if progress.pending[unit] == 0:
            order_out[filled] = unit
            filled += 1
    begin = 0
    layer_first_out[0] = 0
    while begin < filled:
        end = filled
        for position in range(begin, end):
            unit = order_out[position]
            for index in range(units.member_first[unit], units.member_first[unit + 1]):
                operation = units.member[index]
                if not progress.active[operation]:
                    continue
                first, stop = operation, operation + 1
                if eager:
                    transaction = graph.transaction[operation]
                    progress.remaining[transaction] -= 1
                    if progress.remaining[transaction] != 0:
                        continue
                    first, stop = graph.operation_first[transaction], graph.operation_first[transaction + 1]
                for sibling in range(first, stop):
                    filled = _signal(graph, units, progress, eager, sibling, order_out, filled)
        layers += 1
        layer_first_out[layers] = end
        begin = end
    return layers


# --- exploration -------------------------------------------------------------------------------------------


@inline
def meet(control, workers):  # type: ignore[no-untyped-def]
    """Wait until all workers are here; false when the batch stops."""
    phase = load(control, PHASE)
    if fetch_add(control, ARRIVED, 1) == workers - 1:
        store(control, ARRIVED, 0)
        store(control, CURSOR, 0)
        store(control, PHASE, phase + 1)
        return load(control, STOP) == RUNNING
    spins = 0
    while load(control, PHASE) == phase:
        if load(control, STOP) != RUNNING:
            return False
        spins = wait(control, spins)
    return load(control, STOP) == RUNNING


@kernel
def explore_bfs(graph, units, progress, machine, eager, worker, workers, layers, ready):  # type: ignore[no-untyped-def]
    """Layer by layer: all workers take units of one layer, and meet before the next."""
    order, layer_first = layers
    control = progress.control
    for depth in range(layer_first.shape[0] - 1):
        begin, end = layer_first[depth], layer_first[depth + 1]
        while True:
            position = begin + fetch_add(control, CURSOR, CHUNK)
            if position >= end:
                break
            for index in range(position, min(position + CHUNK, end)):
                run_unit(graph, units, progress, machine, eager, worker, order[index], ready)
                if load(control, STOP) != RUNNING:
                    return
        if not meet(control, workers):
            return


@kernel
def explore_dfs(graph, units, progress, machine, eager, worker, workers, layers, ready):  # type: ignore[no-untyped-def]
    """Each worker walks its own share of every layer, and waits where a unit is not ready yet."""
    order, layer_first = layers
    control = progress.control
    for depth in range(layer_first.shape[0] - 1):
        for index in range(layer_first[depth] + worker, layer_first[depth + 1], workers):
            spins = 0
            while load(progress.pending, order[index]) > 0:
                if load(control, STOP) != RUNNING:
                    return
                spins = wait(control, spins)
            if load(control, STOP) != RUNNING:
                return
            run_unit(graph, units, progress, machine, eager, worker, order[index], ready)


@inline
def _send(inbox, following, unit, target):  # type: ignore[no-untyped-def]
    """Put a unit on a worker's stack of signals."""
    while True:
        top = load(inbox, target * LINE)
        following[unit] = top
        if compare_exchange(inbox, target * LINE, top, unit):
            return


@inline
def _take_all(stack, owner):  # type: ignore[no-untyped-def]
    """Everything on a worker's stack, -1 if there is nothing."""
    if load(stack, owner * LINE) < 0:
        return -1
    return exchange(stack, owner * LINE, -1)


@inline
def _take_some(offer, following, worker, workers):  # type: ignore[no-untyped-def]
    """The first units of a worker's offer, one's own if there is one; the rest stays there for everybody."""
    for step in range(workers):
        victim = (worker + step) % workers
        first = _take_all(offer, victim)
        if first >= 0:
            last = first
            for _ in range(UNITS_TAKEN - 1):
                if following[last] < 0:
                    break
                last = following[last]
            store(offer, victim * LINE, following[last])  # the offer was empty, so nobody else has written there
            following[last] = -1
            return first
    return -1


@inline
def _take_signals(inbox, worker, workers):  # type: ignore[no-untyped-def]
    """What was signalled to another worker that has not looked yet."""
    for step in range(1, workers):
        found = _take_all(inbox, (worker + step) % workers)
        if found >= 0:
            return found
    return -1


@kernel
def explore_ns(graph, units, progress, machine, eager, worker, workers, stacks, ready, leave):  # type: ignore[no-untyped-def]
    """Whoever finishes a unit signals those that waited for it: one stays here, the others go to their owners.

    Who was signalled comes before who never waited, or the longest chains would begin last. What never waited is
    offered to all in timestamp order; a worker takes some of it at a time. Returns true when all units are done.
    With `leave` it also returns, false, when it would have to wait: it may come back.
    """
    inbox, offer, following = stacks
    control = progress.control
    total = progress.pending.shape[0]
    finished, spins = 0, 0
    unit, signalled, later = -1, -1, -1
    while True:
        if unit < 0:
            if signalled < 0:
                signalled = _take_all(inbox, worker)
            if signalled >= 0:
                unit = signalled
                signalled = following[unit]
            elif later >= 0:
                unit = later
                later = following[unit]
        if unit < 0:
            if finished > 0:
                fetch_add(control, DONE, finished)
                finished = 0
            later = _take_some(offer, following, worker, workers)
            if later < 0:
                later = _take_signals(inbox, worker, workers)
            if later < 0:
                if load(control, DONE) >= total or load(control, STOP) != RUNNING:
                    return True
                if leave:
                    return False
                spins = wait(control, spins)
            continue
        spins = 0
        count = run_unit(graph, units, progress, machine, eager, worker, unit, ready)
        finished += 1
        if load(control, STOP) != RUNNING:
            return True
        unit = -1
        if count > 0:
            unit = ready[0]
            for index in range(1, count):
                _send(inbox, following, ready[index], ready[index] % workers)


@kernel
def hand_out(progress, workers, stacks):  # type: ignore[no-untyped-def]
    """Offer the units that wait for nothing, so that the earliest lie on top."""
    inbox, offer, following = stacks
    for worker in range(workers):
        inbox[worker * LINE] = -1
        offer[worker * LINE] = -1
    for unit in range(progress.pending.shape[0] - 1, -1, -1):
        if progress.pending[unit] == 0:
            target = unit % workers
            following[unit] = offer[target * LINE]
            offer[target * LINE] = unit
