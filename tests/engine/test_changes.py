"""What `take_changes` gives brings another engine to the same rows, however often it is asked."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.core import EngineCore


@tg.table(key="id")
class Row:
    """A row that comes and goes."""

    id: int
    value: int = 0


@tg.transaction
def write(row: Row, value: int) -> int:
    """Write a row; it exists afterwards."""
    row.value = value
    return value


@tg.transaction
def remove(row: Row, value: int) -> int:
    """Remove a row; nothing happens if it is not there."""
    tg.delete(row)
    return value


def cores() -> tuple[EngineCore, EngineCore]:
    program = build_program([write, remove])
    return EngineCore(program, track_changes=True), EngineCore(program)


def act(core: EngineCore, rng: random.Random) -> None:
    """A batch, or a single transaction, over more keys than there are slots to begin with."""
    count = rng.choice((0, 1, 3, 40))
    names = [rng.choice(("write", "remove")) for _ in range(count)]
    if count == 0:
        core.execute(rng.randrange(2), {"row": rng.randrange(30), "value": rng.randrange(9)})
        return
    keys, values = ([rng.randrange(limit) for _ in range(count)] for limit in (30, 9))
    core.run(pa.table({"transaction": names, "row": keys, "value": values}))


@pytest.mark.parametrize("seed", range(40))
def test_changes_bring_another_engine_to_the_same_rows(seed: int) -> None:
    rng = random.Random(seed)
    core, other = cores()
    for _ in range(60):
        act(core, rng)
        if rng.random() < 0.3:
            other.apply(core.take_changes())
            assert core.rows("Row").equals(other.rows("Row"))
            assert core.take_changes() == {}
        elif rng.random() < 0.1:  # they could not be kept: they come again
            core.touch_again(core.take_changes())


def test_a_slot_that_another_row_got_is_noted_again() -> None:
    core, other = cores()
    core.run(pa.table({"transaction": ["write", "remove"], "row": [1, 1], "value": [5, 0]}))
    core.run(pa.table({"transaction": ["write"], "row": [2], "value": [7]}))
    other.apply(core.take_changes())
    assert other.rows("Row").to_pylist() == [{"id": 2, "value": 7}]


def test_a_row_that_is_written_by_every_batch_is_noted_once() -> None:
    core, _ = cores()
    for value in range(50):
        core.run(pa.table({"transaction": ["write"], "row": [1], "value": [value]}))
    assert core.tables["Row"].touched._slots == 1
    assert core.take_changes()["Row"].to_pylist() == [{"id": 1, "value": 49, "exists": True}]
    core.run(pa.table({"transaction": ["write"], "row": [1], "value": [99]}))
    assert core.take_changes()["Row"]["value"].to_pylist() == [99]
