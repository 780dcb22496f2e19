"""Claims the next record of an operator for a worker: in order, and two records of one bucket never at once.

    stateless       any record: the one at HEAD, by a compare and exchange
    stateful        the same; one worker at a time is assigned
    hybrid          the paper's: HEAD is the master queue, each bucket has a queue of its own, and a counter of records
                    that were taken from the master queue for it

                        claim record s from the master queue; b = its bucket
                        if fetch_add(delegated[b], 1) == 0:        nobody works on the bucket: it is mine
                            do: the oldest record of b's queue
                            while fetch_add(delegated[b], -1) > 1
                        otherwise whoever works on b will do one record more, and I claim the next

    shared          a baseline: a lock lets one worker at a time take the record at HEAD and wait for its bucket
    partitioned     a baseline: a worker takes a whole bucket, does what its queue holds, and gives it back

Why hybrid keeps the order and loses nothing: a bucket's queue is in the order of the input, its worker alone takes from
it, and `delegated` is zero only when nobody is working on the bucket. Every record taken from the master queue raised
`delegated` by one, and one record of the bucket is done for each: the record itself, or an older one whose own claim
comes later and is counted then. A queue is never empty when it is asked: records enter it before they enter the master
queue. A record's bucket is read before the record is taken from the master queue: once it is taken, another worker may
do it for an older claim of its own, and its place may hold another record already. Who owns a bucket keeps it while it
runs plain Python or rests at a stop, and no other worker waits for it.
"""

from __future__ import annotations

from tidegate.foundation.atomics import compare_exchange, exchange, fetch_add, load, relax_crowded, store
from tidegate.foundation.jit import inline, kernel
from tidegate.ordering.kernels.layout import (
    BUCKET,
    BUCKETS,
    CLAIM_LOCK,
    COUNTS,
    DELEGATED,
    HEAD,
    HYBRID,
    KIND,
    LINE,
    MASK,
    OWNED,
    PARTITIONED,
    PARTITIONS,
    PUT,
    QUEUE_MASK,
    QUEUES,
    SHARED,
    STATEFUL,
    STOP,
    TAIL,
    TAKEN,
    node_at,
)


@inline
def _head(memory, at):  # type: ignore[no-untyped-def]
    """Take the record at HEAD; -1 if there is none."""
    while True:
        head = load(memory, at + HEAD)
        if head >= load(memory, at + TAIL):
            return head * 0 - 1
        if compare_exchange(memory, at + HEAD, head, head + 1):
            return head


@inline
def _oldest(memory, at, bucket):  # type: ignore[no-untyped-def]
    """The oldest record of a bucket that has one; only its owner asks."""
    counter, mask = memory[at + COUNTS] + LINE * bucket, memory[at + QUEUE_MASK]
    taken = memory[counter + TAKEN]
    number = memory[memory[at + QUEUES] + bucket * (mask + 1) + (taken & mask)]
    store(memory, counter + TAKEN, taken + 1)
    return number


@inline
def _hybrid(memory, at, mine):  # type: ignore[no-untyped-def]
    while True:
        head = load(memory, at + HEAD)
        if head >= load(memory, at + TAIL):
            return head * 0 - 1
        bucket = load(memory, memory[at + BUCKETS] + (head & memory[at + MASK]))
        if not compare_exchange(memory, at + HEAD, head, head + 1):
            continue
        if fetch_add(memory, memory[at + COUNTS] + LINE * bucket + DELEGATED, 1) == 0:
            memory[mine + BUCKET] = bucket
            return _oldest(memory, at, bucket)


@inline
def _shared(memory, at, mine):  # type: ignore[no-untyped-def]
    if exchange(memory, at + CLAIM_LOCK, 1) != 0:
        spins = 0
        while exchange(memory, at + CLAIM_LOCK, 1) != 0:
            if load(memory, STOP) != 0:
                return memory[at + HEAD] * 0 - 1
            spins = relax_crowded(spins)
    number = memory[at + HEAD]
    if number < load(memory, at + TAIL):
        bucket = memory[memory[at + BUCKETS] + (number & memory[at + MASK])]
        owner = memory[at + COUNTS] + LINE * bucket + OWNED
        spins = 0
        while exchange(memory, owner, 1) != 0:
            if load(memory, STOP) != 0:
                exchange(memory, at + CLAIM_LOCK, 0)
                return number * 0 - 1
            spins = relax_crowded(spins)
        memory[mine + BUCKET] = bucket
        store(memory, at + HEAD, number + 1)
    else:
        number = number * 0 - 1
    exchange(memory, at + CLAIM_LOCK, 0)
    return number


@inline
def _partitioned(memory, at, mine, worker):  # type: ignore[no-untyped-def]
    count = memory[at + PARTITIONS]
    for step in range(count):
        bucket = (worker + step) % count
        counter = memory[at + COUNTS] + LINE * bucket
        if load(memory, counter + TAKEN) >= load(memory, counter + PUT):
            continue
        if exchange(memory, counter + OWNED, 1) != 0:
            continue
        if load(memory, counter + TAKEN) < load(memory, counter + PUT):
            memory[mine + BUCKET] = bucket
            fetch_add(memory, at + HEAD, 1)
            return _oldest(memory, at, bucket)
        exchange(memory, counter + OWNED, 0)
    return count * 0 - 1


@kernel
def claim(memory, node, mine, worker):  # type: ignore[no-untyped-def]
    """A record for a worker whose words are at `mine`, which owns its bucket from now on; -1 if there is none."""
    at = node_at(node)
    kind = memory[at + KIND]
    if kind == HYBRID:
        return _hybrid(memory, at, mine)
    if kind == SHARED:
        return _shared(memory, at, mine)
    if kind == PARTITIONED:
        return _partitioned(memory, at, mine, worker)
    return _head(memory, at)


@kernel
def claim_again(memory, node, mine, rests):  # type: ignore[no-untyped-def]
    """After a record: another one of the bucket that the worker owns; -1 if it gave the bucket back.

    A worker that `rests` gives back a bucket of the partitioned scheme; one of the hybrid scheme is its own until all
    that was delegated to it is done.
    """
    at = node_at(node)
    kind, bucket = memory[at + KIND], memory[mine + BUCKET]
    if kind <= STATEFUL:
        return bucket * 0 - 1
    counter = memory[at + COUNTS] + LINE * bucket
    if kind == HYBRID and fetch_add(memory, counter + DELEGATED, -1) > 1:
        return _oldest(memory, at, bucket)
    if kind == PARTITIONED and not rests and memory[counter + TAKEN] < load(memory, counter + PUT):
        fetch_add(memory, at + HEAD, 1)
        return _oldest(memory, at, bucket)
    memory[mine + BUCKET] = -1
    if kind != HYBRID:
        exchange(memory, counter + OWNED, 0)
    return bucket * 0 - 1
