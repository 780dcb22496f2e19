"""Where everything of a running pipeline lies: one array of 64-bit words, `memory`, and the positions in it.

    memory   | global words | node 0 | node 1 | ... | worker 0 | worker 1 | ... | rings, queues, counters of the nodes

A pipeline is a graph of nodes in the order of the flow: the source, operators, edges into a merge, merges, the sink.
Node n has its words from `node_at(n)` on; the ones that several workers change lie on cache lines of their own. What is
large (rings, queues) lies behind all of them, and words of the node say where.

Every node but the source has a ring of records. Record number s (its serial number, in the order of the input) is at
place `s & MASK` of the ring from when it is put in until everything that follows from it was moved on:

    NEXT <= s < TAIL         the place holds record s;  TAIL - NEXT never exceeds the size of the ring
    s < HEAD                 a worker has claimed it
    STATUS of the place      0 while it is not done, k + 1 once its k outputs are there, -1 if it failed

So one bound, the size of the ring, limits the queue in front of an operator and the reorder buffer behind it together.
"""

from __future__ import annotations

from tidegate.foundation.jit import inline

LINE = 8
"""Words of a cache line."""

# --- a record's row: two words of ours, then its fields ---------------------------------------------------------------

ORIGIN, ENDS = 0, 1
"""When it entered the pipeline (ticks); and for which forks it is the last of a record's results (bits), or a hole."""

HOLE = 1 << 62
"""Marks a row that holds no record: only the ends of forks."""

# --- global words -----------------------------------------------------------------------------------------------------

STOP = 0 * LINE
"""Not zero: all workers leave their kernel as soon as they can."""
NODES = 1 * LINE
WORKERS = NODES + 1
WORKER_AT = NODES + 2
"""Where the words of worker 0 are."""
ENTRY = NODES + 3
"""The address of the generated `operate`."""
CONTEXT = NODES + 4
"""The address of the addresses that generated code works on."""
SLICE = NODES + 5
"""A time slice, in ticks."""
WINDOW = NODES + 6
"""The window of the current-throughput heuristic, in ticks."""
HEURISTIC = NODES + 7
LOCKED = 2 * LINE
"""1: outputs are moved under a lock, and who comes meanwhile waits; 0: who comes meanwhile goes on."""
WINDOW_BEGAN = 3 * LINE
CLOSED = 4 * LINE
"""1: the source gives no more records."""
FAILED = CLOSED + 1
"""1: a record failed; what comes behind it is not wanted."""
NODE_0 = 5 * LINE

# --- words of a node --------------------------------------------------------------------------------------------------

TAIL = 0 * LINE
HEAD = 1 * LINE
NEXT = 2 * LINE
FLAG = 3 * LINE
"""1 while a worker moves outputs of this node on."""
BUSY = 4 * LINE
"""Workers that are assigned to the operator."""
SPENT = 5 * LINE
"""Ticks that workers spent on it in the current window."""
COST = 6 * LINE
"""Ticks for a record, times 256, smoothed."""
SELECTIVITY = COST + 1
"""Outputs for a record, times 65,536, smoothed."""
CLAIM_LOCK = 7 * LINE
MOVED = 8 * LINE
"""Outputs of record NEXT that were moved already; the branch whose turn it is in a merge."""
KIND = MOVED + 1
CODE = MOVED + 2
"""The operator's number in generated code; -1: plain Python."""
LIMIT = MOVED + 3
"""How many workers at most."""
MASK = MOVED + 4
STRIDE = MOVED + 5
"""Words of a row that comes in."""
OUT_STRIDE = MOVED + 6
MANY = MOVED + 7
"""1: an operator that may have several outputs for a record."""
ROWS = 9 * LINE
"""Where the rows of the ring are; of the source, their address."""
OUTS = ROWS + 1
"""Where the output rows are, one for each place."""
STATUS = ROWS + 2
BLOCKS = ROWS + 3
"""Where the addresses of blocks are that hold the outputs of a place when there are several."""
SLOTS = ROWS + 4
"""Where the state slots of the records are."""
BUCKETS = ROWS + 5
"""Where the buckets of the records are."""
UPSTREAM = ROWS + 6
TARGETS = ROWS + 7
"""How many nodes take what comes out; their numbers follow from TARGET on."""
KEY = 10 * LINE
"""Which word of a row is the key; -1: no key."""
INDEX = KEY + 1
"""The address of the key index: pairs of a key and its slot."""
INDEX_MASK = KEY + 2
STATES = KEY + 3
"""How many keys have a slot."""
STATES_MAX = KEY + 4
"""How many could have one; at that many, the runtime must make room."""
PARTITIONS = KEY + 5
BOUNDS = KEY + 6
"""Where the upper bounds of ranges are; -1: a hash of the key chooses the bucket."""
NEEDS_ROOM = KEY + 7
QUEUE_MASK = 11 * LINE
"""The size of each bucket's queue, less one."""
QUEUES = QUEUE_MASK + 1
COUNTS = QUEUE_MASK + 2
"""Where the counters of the buckets are, each on a line: delegated records, records put in, records taken out."""
FORK_BIT = QUEUE_MASK + 3
"""The bit of the fork behind this node; 0: none."""
MERGE_BIT = QUEUE_MASK + 4
"""The bit of the fork whose branches this node merges; 0: none."""
BRANCHES = QUEUE_MASK + 5
"""How many edges lead into a merge; their numbers stand behind those of its targets."""
FLOAT_KEY = QUEUE_MASK + 6
"""1: keys are the bits of floats."""
STARTED = QUEUE_MASK + 7
"""Where it is noted for each place when a worker began with its record (ticks)."""
PROCESSED = 12 * LINE
"""Ticks from the beginning of each record until all its outputs had been moved on, added up."""
TARGET = 13 * LINE
TARGETS_MAX = 2 * LINE
NODE_WORDS = TARGET + TARGETS_MAX

# --- counters of a bucket ---------------------------------------------------------------------------------------------

DELEGATED, PUT, TAKEN, OWNED = 0, 1, 2, 3

# --- words of a worker ------------------------------------------------------------------------------------------------

AT_NODE = 0
"""The operator that it is assigned to; -1: none."""
FIXED = 1
"""The only operator that it works for; -1: any."""
SERIAL = 2
"""The record that it has claimed and not finished; -1: none."""
BUCKET = 3
"""The bucket that it owns; -1: none."""
LEFT = 4
"""Records left in its time slice."""
BEGAN = 5
"""When its slice began."""
OUTPUTS = 6
"""The outputs that plain Python gave for its record; NOT_RUN: none yet, FAILURE: it failed."""
CHOSEN = 7
"""What a user's heuristic chose; -2: not asked yet."""
FRAME = 8
"""What generated code is told: state slot, address of output rows, how many fit."""
SCRATCH = 12
"""The address of its own output rows, and for how many words there is space."""
SCRATCH_WORDS = 13
SLICE_RECORDS, SLICE_OUTPUTS = 14, 15
"""What it has done in its slice."""
NOW = 16
"""When it ended its last record."""
TALLY = 24
"""For each node: records, outputs, ticks."""
TALLY_WORDS = 8

NOT_RUN, FAILURE = -1, -2

# --- kinds of nodes ---------------------------------------------------------------------------------------------------

SOURCE, STATELESS, STATEFUL, HYBRID, SHARED, PARTITIONED, EDGE, MERGE, SINK = range(9)

# --- why a worker leaves its kernel -----------------------------------------------------------------------------------

DONE, STOPPED, PYTHON, SPACE, INTERRUPT, ASK, NO_MEMORY = range(1, 8)

# --- heuristics -------------------------------------------------------------------------------------------------------

QUEUE_SIZE, LAST_IN_PIPELINE, ESTIMATED_TIME, CURRENT_THROUGHPUT, USER = range(5)


@inline
def node_at(node):  # type: ignore[no-untyped-def]
    """Where the words of a node begin."""
    return NODE_0 + node * NODE_WORDS


@inline
def worker_at(memory, worker):  # type: ignore[no-untyped-def]
    """Where the words of a worker begin."""
    return memory[WORKER_AT] + worker * (TALLY + TALLY_WORDS * memory[NODES])
