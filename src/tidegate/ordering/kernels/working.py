"""What a worker does: it asks for an operator, works for it during a time slice, and asks again.

`work` runs until it needs somebody: it returns DONE when nothing will ever come again, STOPPED when all shall stop,
PYTHON when a record must be run as plain Python, SPACE when an operator has more outputs than fit, NO_MEMORY when there
is no memory to keep them, ASK when a user's heuristic decides. The worker's own words remember what it was doing, so it
is called again to go on.

Nobody is ever woken: a worker without work looks again, more and more seldom, up to a millisecond apart. So no
wake-up can be lost.
"""

from __future__ import annotations

from tidegate.foundation.atomics import address_of, allocate, call, copy, doze, exchange, fetch_add, load, store, ticks
from tidegate.foundation.jit import inline, kernel
from tidegate.operations.pipeline import FRAME_OUT, FRAME_ROOM, FRAME_SLOT, NO_ROOM
from tidegate.operations.plan import INTERRUPTED
from tidegate.ordering.kernels.choosing import (
    BEHIND,
    BUSY_NOW,
    COST_OF,
    LIMIT_OF,
    SELECTIVITY_OF,
    SLICE_OF,
    SPENT_ON,
    WAITING,
    current_throughput,
    estimated_time,
    last_in_pipeline,
    queue_size,
)
from tidegate.ordering.kernels.claiming import claim, claim_again
from tidegate.ordering.kernels.layout import (
    ASK,
    AT_NODE,
    BEGAN,
    BLOCKS,
    BUSY,
    CHOSEN,
    CLOSED,
    CODE,
    CONTEXT,
    COST,
    DONE,
    EDGE,
    ENDS,
    ENTRY,
    ESTIMATED_TIME,
    FAILED,
    FIXED,
    FLAG,
    FRAME,
    HEAD,
    HEURISTIC,
    HOLE,
    INTERRUPT,
    KIND,
    LAST_IN_PIPELINE,
    LEFT,
    LIMIT,
    MANY,
    MASK,
    MERGE,
    NEXT,
    NO_MEMORY,
    NODES,
    NOT_RUN,
    NOW,
    OUT_STRIDE,
    OUTPUTS,
    OUTS,
    PYTHON,
    QUEUE_SIZE,
    ROWS,
    SCRATCH,
    SCRATCH_WORDS,
    SELECTIVITY,
    SERIAL,
    SINK,
    SLICE,
    SLICE_OUTPUTS,
    SLICE_RECORDS,
    SLOTS,
    SOURCE,
    SPACE,
    SPENT,
    STARTED,
    STOP,
    STOPPED,
    STRIDE,
    TAIL,
    TALLY,
    TALLY_WORDS,
    TARGET,
    TARGETS,
    UPSTREAM,
    USER,
    WINDOW,
    WINDOW_BEGAN,
    node_at,
    worker_at,
)
from tidegate.ordering.kernels.moving import finish, move
from tidegate.ordering.kernels.putting import has_room

LOOKS, DOZE_LEAST, DOZE_MOST = 64, 20, 1000
"""A worker without work looks so often at once; then it sleeps in between, for so many microseconds."""

SLICE_RECORDS_MAX = 1 << 14


@inline
def _is_operator(kind):  # type: ignore[no-untyped-def]
    return kind != SOURCE and kind < EDGE


@kernel
def _progress(memory):  # type: ignore[no-untyped-def]
    """A number that grows with everything that happens to a record."""
    found = memory[NODES] * 0
    for node in range(memory[NODES]):
        at = node_at(node)
        found += load(memory, at + TAIL) + load(memory, at + HEAD) + load(memory, at + NEXT)
    return found


@kernel
def _is_over(memory, before):  # type: ignore[no-untyped-def]
    """Whether nothing will come out any more; asked by a worker that found nothing to do or to move.

    Either the source is closed and every record has left all nodes but the sink. Nodes are asked in the order of the
    flow: once all before a node are empty, nothing comes to it any more.

    Or a record failed. What is behind it stays where it is, and it is over once nobody works or moves anything, nothing
    waits to be claimed, and the sink has room. Nodes are asked one after the other, so it counts only if there was no
    progress since `before`, when this worker began to look.
    """
    failed = load(memory, FAILED) != 0
    if load(memory, CLOSED) == 0 and not failed:
        return False
    for node in range(memory[NODES]):
        at = node_at(node)
        kind = memory[at + KIND]
        if failed:
            if load(memory, at + BUSY) != 0 or load(memory, at + FLAG) != 0:
                return False
            if kind == SINK and not has_room(memory, at):
                return False
            if _is_operator(kind) and load(memory, at + HEAD) < load(memory, at + TAIL):
                return False
        elif kind != SINK and load(memory, at + NEXT) < load(memory, at + TAIL):
            return False
    return not failed or _progress(memory) == before


# --- one record -------------------------------------------------------------------------------------------------------


@inline
def _keep_outputs(memory, at, mine, place, count):  # type: ignore[no-untyped-def]
    """Take outputs from the worker's scratch space into the place of their record; False if there is no memory."""
    words = count * memory[at + OUT_STRIDE]
    target = address_of(memory, memory[at + OUTS] + place * memory[at + OUT_STRIDE])
    if count > 1:
        target = allocate(8 * words)
        if target == 0:
            return False
        memory[memory[at + BLOCKS] + place] = target
    copy(memory[mine + SCRATCH], target, 8 * words)
    return True


@kernel
def _run_record(memory, node, mine, number):  # type: ignore[no-untyped-def]
    """Run a record; 0, or why the worker must leave."""
    at = node_at(node)
    place = number & memory[at + MASK]
    row = memory[at + ROWS] + place * memory[at + STRIDE]
    count = memory[mine + OUTPUTS]
    if count == NOT_RUN:
        memory[memory[at + STARTED] + place] = memory[mine + NOW]
    scratch = memory[at + MANY] == 1 or count != NOT_RUN
    if memory[row + ENDS] & HOLE:
        count, scratch = row * 0, False
    elif count == NOT_RUN:
        if memory[at + CODE] < 0:
            return PYTHON
        frame = mine + FRAME
        memory[frame + FRAME_SLOT] = memory[memory[at + SLOTS] + place]
        if scratch:
            memory[frame + FRAME_OUT] = memory[mine + SCRATCH]
            memory[frame + FRAME_ROOM] = memory[mine + SCRATCH_WORDS] // memory[at + OUT_STRIDE]
        else:
            memory[frame + FRAME_OUT] = address_of(memory, memory[at + OUTS] + place * memory[at + OUT_STRIDE])
            memory[frame + FRAME_ROOM] = 1
        count = call(
            memory[ENTRY], memory[CONTEXT], memory[at + CODE], address_of(memory, row), address_of(memory, frame)
        )
        if count < 0:
            return SPACE if count == NO_ROOM else INTERRUPT if count == INTERRUPTED else PYTHON
    memory[mine + OUTPUTS] = NOT_RUN
    if scratch and count > 0 and not _keep_outputs(memory, at, mine, place, count):
        return NO_MEMORY  # the state has changed already, so the record cannot be run again
    memory[mine + SLICE_RECORDS] += 1
    memory[mine + SLICE_OUTPUTS] += max(count, 0)
    finish(memory, node, number, count)
    return 0


# --- a time slice -----------------------------------------------------------------------------------------------------


@kernel
def _assign(memory, mine, node):  # type: ignore[no-untyped-def]
    """Assign a worker to an operator; False if enough others work for it."""
    at = node_at(node)
    if fetch_add(memory, at + BUSY, 1) >= memory[at + LIMIT]:
        fetch_add(memory, at + BUSY, -1)
        return False
    memory[mine + AT_NODE] = node
    memory[mine + NOW] = ticks()
    memory[mine + BEGAN] = memory[mine + NOW]
    memory[mine + SLICE_RECORDS] = 0
    memory[mine + SLICE_OUTPUTS] = 0
    known = load(memory, at + COST)
    memory[mine + LEFT] = max(1, min(SLICE_RECORDS_MAX, 256 * memory[SLICE] // known)) if known > 0 else 1
    return True


@kernel
def _leave(memory, mine):  # type: ignore[no-untyped-def]
    """End a worker's time slice: note what it took. Returns how many records it did."""
    node = memory[mine + AT_NODE]
    at = node_at(node)
    time, records = ticks() - memory[mine + BEGAN], memory[mine + SLICE_RECORDS]
    if records > 0:
        cost, share = 256 * time // records, 65536 * memory[mine + SLICE_OUTPUTS] // records
        known = load(memory, at + COST)
        store(memory, at + COST, (7 * known + cost) >> 3 if known > 0 else max(cost, 1))
        store(memory, at + SELECTIVITY, (7 * load(memory, at + SELECTIVITY) + share) >> 3)
    fetch_add(memory, at + SPENT, time)
    tally = mine + TALLY + TALLY_WORDS * node
    memory[tally] += records
    memory[tally + 1] += memory[mine + SLICE_OUTPUTS]
    memory[tally + 2] += time
    memory[mine + AT_NODE] = -1
    fetch_add(memory, at + BUSY, -1)
    return records


@kernel
def _slice(memory, worker, mine):  # type: ignore[no-untyped-def]
    """Work for the operator that the worker is assigned to; 0 when the slice ends, or why the worker must leave."""
    node = memory[mine + AT_NODE]
    at = node_at(node)
    while True:
        number = memory[mine + SERIAL]
        if number < 0:
            if memory[mine + LEFT] <= 0 or load(memory, STOP) != 0:
                return 0
            number = claim(memory, node, mine, worker)
            if number < 0:
                if move(memory, memory[at + UPSTREAM]) == 0:
                    return 0
                number = claim(memory, node, mine, worker)
                if number < 0:
                    return 0
            memory[mine + SERIAL] = number
        code = _run_record(memory, node, mine, number)
        if code != 0:
            return code
        memory[mine + LEFT] -= 1
        memory[mine + NOW] = ticks()
        if memory[mine + NOW] - memory[mine + BEGAN] > 2 * memory[SLICE]:  # records have become more expensive
            memory[mine + LEFT] = 0
        rests = memory[mine + LEFT] <= 0 or load(memory, STOP) != 0
        memory[mine + SERIAL] = claim_again(memory, node, mine, rests)
        if memory[mine + SERIAL] >= 0 and load(memory, STOP) != 0:
            return STOPPED


# --- choosing ---------------------------------------------------------------------------------------------------------


@kernel
def observe(memory, figures):  # type: ignore[no-untyped-def]
    """Write what heuristics look at into an array with a row for each node; returns whether anybody needs a worker."""
    needed = False
    for node in range(memory[NODES]):
        at = node_at(node)
        waiting = load(memory, at + TAIL) - load(memory, at + HEAD) if _is_operator(memory[at + KIND]) else 0
        figures[node, WAITING] = waiting
        figures[node, BUSY_NOW] = load(memory, at + BUSY)
        figures[node, LIMIT_OF] = memory[at + LIMIT]
        figures[node, COST_OF] = max(load(memory, at + COST), 1) / 256.0
        figures[node, SELECTIVITY_OF] = load(memory, at + SELECTIVITY) / 65536.0
        figures[node, SPENT_ON] = load(memory, at + SPENT)
        figures[node, SLICE_OF] = memory[SLICE]
        behind = 0
        for number in range(memory[at + TARGETS]):
            target = node_at(memory[at + TARGET + number])
            if _is_operator(memory[target + KIND]):
                behind = max(behind, load(memory, target + TAIL) - load(memory, target + HEAD))
        figures[node, BEHIND] = behind
        needed |= waiting > 0 and figures[node, BUSY_NOW] < figures[node, LIMIT_OF]
    return needed


@inline
def _turn_window(memory):  # type: ignore[no-untyped-def]
    """Begin a new window of the current-throughput heuristic when the old one is over."""
    began = load(memory, WINDOW_BEGAN)
    now = ticks()
    if now - began > memory[WINDOW] and exchange(memory, WINDOW_BEGAN, now) == began:
        for node in range(memory[NODES]):
            store(memory, node_at(node) + SPENT, 0)


@inline
def _fixed(memory, mine):  # type: ignore[no-untyped-def]
    """The only operator that a worker works for; -1 for any. Once a record has failed, all work for all to the end."""
    return memory[mine + FIXED] if load(memory, FAILED) == 0 else memory[mine + FIXED] * 0 - 1


@kernel
def _choose(memory, mine, figures):  # type: ignore[no-untyped-def]
    """The operator that the heuristic chooses; -1: none, -2: ask the user's."""
    fixed = _fixed(memory, mine)
    if fixed >= 0:
        at = node_at(fixed)
        return fixed if load(memory, at + HEAD) < load(memory, at + TAIL) else at * 0 - 1
    _turn_window(memory)
    if not observe(memory, figures):
        return -1
    which = memory[HEURISTIC]
    if which == USER:
        chosen = memory[mine + CHOSEN]
        memory[mine + CHOSEN] = -2
        return chosen
    if which == QUEUE_SIZE:
        return queue_size(figures)
    if which == LAST_IN_PIPELINE:
        return last_in_pipeline(figures)
    if which == ESTIMATED_TIME:
        return estimated_time(figures)
    return current_throughput(figures)


@kernel
def _move_all(memory, mine):  # type: ignore[no-untyped-def]
    """Move on whatever waits for room or for nobody; returns how many steps that were.

    From the end of the flow to its beginning, so that what one node gives up makes room for the one before.
    """
    steps = 0
    fixed = _fixed(memory, mine)
    for back in range(memory[NODES]):
        node = memory[NODES] - 1 - back
        kind = memory[node_at(node) + KIND]
        if kind != SINK and kind != EDGE and (fixed < 0 or _is_near(memory, fixed, node)):
            steps += move(memory, node)
    return steps


@inline
def _is_near(memory, fixed, node):  # type: ignore[no-untyped-def]
    """Whether the thread of one operator moves the results of a node: its own, those of the source and of merges."""
    kind = memory[node_at(node) + KIND]
    return node == fixed or kind in (SOURCE, MERGE)


@kernel
def work(memory, worker, figures):  # type: ignore[no-untyped-def]
    """Work until somebody is needed; returns why."""
    mine = worker_at(memory, worker)
    looks, pause = 0, DOZE_LEAST
    while True:
        if memory[mine + AT_NODE] < 0:
            if load(memory, STOP) != 0:
                return STOPPED
            node = _choose(memory, mine, figures)
            if node == -2:
                return ASK
            if node >= 0:
                _assign(memory, mine, node)
        done = 0
        if memory[mine + AT_NODE] >= 0:
            code = _slice(memory, worker, mine)
            if code != 0:
                return code
            done = _leave(memory, mine)
        if done == 0:  # nothing to claim either: all that waits may be of buckets that others own
            before = _progress(memory)
            done = _move_all(memory, mine)
            if done == 0 and _is_over(memory, before):
                return DONE
        if done > 0:
            looks, pause = 0, DOZE_LEAST
            continue
        looks += 1
        if looks > LOOKS:
            doze(pause)
            pause = min(2 * pause, DOZE_MOST)
