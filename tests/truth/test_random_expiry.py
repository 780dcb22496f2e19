"""Rows that expire: any program, any strategy, any batch cuts give what the plain functions give with a clock beside.

The programs of `test_random_programs`, with a time to live for some tables, and a time for every event: a parameter or
`order_by`, rising with late events in between. The oracle never removes a row; it takes expired ones for absent.

Beside them one dataflow graph of two stages, with random events: in one walk, side by side, and after crashes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine import core
from tidegate.foundation.jit import uncompiled

from ..stages_in_pieces import stages_in_pieces
from .running import FIRST_COMPILED_SEED, Record, chunks, name_of, run_seeds, some_compiled, some_in_turn


@pytest.mark.parametrize("seeds", chunks(0, 240, 60), ids=name_of)
def test_generated_code_equals_the_plain_functions(
    seeds: range, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seeds.start // 60 % 2:  # strings are collected before every batch
        monkeypatch.setattr(core, "STRINGS_KEPT", -(10**9))
    with uncompiled():
        run_seeds(seeds, some_in_turn, record_property, "programs with rows that expire", size="expiring")


@pytest.mark.parametrize("seeds", chunks(FIRST_COMPILED_SEED, 4, 2), ids=name_of)
def test_so_does_machine_code(seeds: range, record_property: Record) -> None:
    run_seeds(seeds, some_compiled, record_property, "compiled programs with rows that expire", size="small expiring")


@tg.table(key="id", ttl=10, by="seen")
class Visitor:
    id: int
    seen: int = 0
    hits: int = 0


@tg.table(key="id", ttl=4, by="at")
class Shelf:
    id: int
    at: int = 0
    sum: int = 0


came = tg.stream("came", visitor=Visitor, ts=int)
took = tg.stream("took", shelf=Shelf, ts=int, hits=int)


@tg.transaction(on=came, emits=[took], time="ts")
def come(visitor: Visitor, ts: int) -> int:
    before = visitor.hits
    tg.require(before < 6, "too often")
    visitor.seen = ts
    visitor.hits += 1
    tg.emit(took, shelf=visitor.id % 3, ts=ts, hits=visitor.hits)
    return before


@tg.transaction(on=took)
def take(shelf: Shelf, ts: int, hits: int) -> None:
    if not shelf.exists or shelf.sum % 2 == 0:
        shelf.at = ts
    shelf.sum += hits


Rows = dict[int, tuple[int, int]]


def modelled(events: list[tuple[int, int]], size: int) -> tuple[Rows, Rows, list[int | None]]:
    """What the graph must do, with dicts: visitors, shelves, and the results of events; None where it aborts."""
    visitors: Rows = {}
    shelves: Rows = {}
    results: list[int | None] = []
    clock, waiting = -(10**9), list[tuple[int, int]]()

    def alive(rows: Rows, ttl: int) -> Rows:
        return {key: row for key, row in rows.items() if row[0] >= clock - ttl}

    for event in events:
        clock = max(clock, event[1])
        waiting.append(event)
        if len(waiting) < size:
            continue
        before, taken, given = dict(visitors), [], []
        for key, time in waiting:
            hits = alive(visitors, 10).get(key, (0, 0))[1]
            given.append(hits)
            visitors[key] = (time, hits + 1)
            taken.append((key % 3, time, hits + 1))
        if max(given) >= 6:
            visitors, taken, given = before, [], [None] * size
        results += given
        for key, time, hits in taken:
            there = alive(shelves, 4)
            at, total = there.get(key, (0, 0))
            shelves[key] = (time if key not in there or total % 2 == 0 else at, total + hits)
        waiting = []
    return alive(visitors, 10), alive(shelves, 4), results


def rows_of(engine: tg.Engine, table: type) -> Rows:
    return {key: (time, number) for key, time, number in (row.values() for row in engine.scan(table).to_pylist())}


def a_life(seed: int, mode: str, folder: Path) -> set[str]:
    """Random events in random cuts; returns the strategies that ran them."""
    choose, now, events = random.Random(seed), 0, list[tuple[int, int]]()
    for _ in range(choose.randint(1, 40)):
        now += choose.choice([0, 0, 1, 2, 5, 12])
        events.append((choose.randint(1, 5), now - choose.choice([0, 0, 0, 3, 15])))
    size = choose.choice([1, 1, 2, 3])
    options: dict[str, Any] = {"workers": 2} if mode == "side by side" else {}
    if mode.endswith("recovery"):
        options = {"directory": folder / f"{mode} {seed}", "recovery": mode.split()[0]}
    program = [tg.dataflow([come, take], atomic_batch=size, name="shop")]
    engine, results, strategies, begin = tg.Engine(program, **options), list[int | None](), set[str](), 0
    while begin < len(events):
        end = min(len(events), begin + choose.randint(1, 20))
        keys, times = zip(*events[begin:end], strict=True)
        batch = pa.table({"transaction": ["came"] * (end - begin), "visitor": keys, "ts": times})
        results += engine.run(batch)["result"].to_pylist()
        assert engine.last_batch is not None
        strategies.add(engine.last_batch.strategy)
        if engine._kept is not None and choose.random() < 0.5:
            engine._kept._join()
            engine._kept._let_go()
            engine = tg.Engine(program, **options)
        begin = end
    assert (rows_of(engine, Visitor), rows_of(engine, Shelf), results) == modelled(events, size), f"seed {seed}"
    engine.close()
    return strategies


@pytest.mark.parametrize("mode", ["one walk", "side by side", "weak recovery", "strong recovery"])
def test_so_do_dataflow_graphs(mode: str, tmp_path: Path, record_property: Record) -> None:
    with uncompiled(), stages_in_pieces(3, 1e-5):
        strategies = set().union(*(a_life(seed, mode, tmp_path) for seed in range(25)))
    assert ("stages" in strategies) == (mode == "side by side")
    record_property("compared graphs with rows that expire", 25)
