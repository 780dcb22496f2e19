"""The best entries of counts that grow one by one, in a fixed number of integers.

Counts of pairs come in, each one higher than the pair's count before. The list keeps the best `size`: larger counts
first, then smaller pairs. When something of a later hour arrives, the list is emitted.

An entry is one integer that is larger the better it is: the count, and below it what is left from the largest pair.

    entry = count << 40 | (2**40 - 1 - pair)

Two things make the list exact although it forgets all other pairs. A pair that is not in it can come in only when its
own count grows, and then it arrives here. And the entry that a pair had before is known from its new one, since only
the count differs, by one: where it is met, it is dropped. So one walk from the best entry to the last keeps the list
in order:

    entries 9 7 5 3, the new one is 6, its pair had 5       9 7 [6] 5→dropped 3        9 7 6 3
    entries 9 7 5 3, the new one is 4, its pair had none    9 7 5 [4] 3→out            9 7 5 4

A compiled state has plain fields only, and a field cannot be chosen by a number. So `top_list` writes the operator
for a size, with a field for each entry, for example for two that begin again every hour:

    def top_2(state: Top2, counted: Counted) -> list[Ranked]:
        '''The best 2 pairs, emitted when their hour has ended.'''
        out = []
        if counted.hour > state.hour:
            for rank in range(1, 3):
                entry = 0
                if rank == 1:
                    entry = state.entry_0
                if rank == 2:
                    entry = state.entry_1
                if entry > 0:
                    pair = pair_in(entry)
                    out.append(Ranked(state.hour, rank, smaller_of(pair), larger_of(pair), count_in(entry)))
            state.hour = counted.hour
            state.entry_0 = 0
            state.entry_1 = 0
        entry = entry_of(counted.pair, counted.count)
        before = entry - COUNT_STEP
        if entry > state.entry_1:
            if entry > state.entry_0:
                entry, state.entry_0 = state.entry_0, entry
            if entry == before:
                entry = 0
            if entry > state.entry_1:
                entry, state.entry_1 = state.entry_1, entry
            if entry == before:
                entry = 0
        return out
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

from tidegate.workloads.tpcx_bb.baskets import ITEM_BITS, larger_of, smaller_of

PAIR_BITS = 2 * ITEM_BITS
PAIR_MAX = (1 << PAIR_BITS) - 1
COUNT_STEP = 1 << PAIR_BITS


@dataclass
class Counted:
    """A pair whose count has just grown to this."""

    hour: int
    pair: int
    count: int


@dataclass
class Ranked:
    """A place in the list of an hour, from 1 on."""

    hour: int
    rank: int
    first: int
    second: int
    count: int


def entry_of(pair: int, count: int) -> int:
    """What a list keeps of a pair: larger is better."""
    return count << PAIR_BITS | PAIR_MAX - pair


def pair_in(entry: int) -> int:
    """The pair of an entry."""
    return PAIR_MAX - (entry & PAIR_MAX)


def count_in(entry: int) -> int:
    """The count of an entry."""
    return entry >> PAIR_BITS


def source_for(size: int, *, begins_again: bool) -> str:
    """The text of the operator."""
    lines = [
        f"def top_{size}(state: Top{size}, counted: Counted) -> list[Ranked]:",
        f"    '''The best {size} pairs, emitted when their hour has ended.'''",
        "    out = []",
        "    if counted.hour > state.hour:",
        f"        for rank in range(1, {size + 1}):",
        "            entry = 0",
    ]
    for place in range(size):
        lines += [
            f"            if rank == {place + 1}:",
            f"                entry = state.entry_{place}",
        ]
    lines += [
        "            if entry > 0:",
        "                pair = pair_in(entry)",
        "                out.append(Ranked(state.hour, rank, smaller_of(pair), larger_of(pair), count_in(entry)))",
        "        state.hour = counted.hour",
    ]
    if begins_again:
        lines += [f"        state.entry_{place} = 0" for place in range(size)]
    lines += [
        "    entry = entry_of(counted.pair, counted.count)",
        "    before = entry - COUNT_STEP",
        f"    if entry > state.entry_{size - 1}:",
    ]
    for place in range(size):
        lines += [
            f"        if entry > state.entry_{place}:",
            f"            entry, state.entry_{place} = state.entry_{place}, entry",
            "        if entry == before:",
            "            entry = 0",
        ]
    return "\n".join([*lines, "    return out", ""])


@functools.cache
def top_list(size: int, *, begins_again: bool) -> Callable[[Any, Counted], list[Ranked]]:
    """A stateful operator that keeps the best `size` pairs, of each hour or of all time."""
    if size < 1:
        raise ValueError(f"size is 1 or more; got {size}")
    source = source_for(size, begins_again=begins_again)
    file = f"<top list of {size}, {'of each hour' if begins_again else 'of all time'}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    fields = [("hour", int, 0), *((f"entry_{place}", int, 0) for place in range(size))]
    state = make_dataclass(f"Top{size}", fields, namespace={"__module__": __name__})
    functions = (entry_of, pair_in, count_in, smaller_of, larger_of)
    names: dict[str, Any] = {each.__name__: each for each in (*functions, Counted, Ranked, state)}
    names |= {"COUNT_STEP": COUNT_STEP, "__name__": __name__}
    exec(compile(source, file, "exec"), names)
    operator: Callable[[Any, Counted], list[Ranked]] = names[f"top_{size}"]
    return operator
