"""Loading rows: in pieces, each key once, all or nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine import core


@tg.table(key="id")
class Item:
    id: int
    price: int = 7
    name: str = "?"


@tg.transaction
def touch(item: Item) -> int:
    return item.price


@pytest.fixture(params=[1, 3, 1000])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tg.Engine:
    monkeypatch.setattr(core, "LOAD_ROWS", request.param)
    loaded = tg.Engine([touch])
    loaded.load(Item, pa.table({"id": [5, 1, 3], "price": [50, 10, 30]}))
    return loaded


def rows(engine: tg.Engine) -> list[tuple[int, int, str]]:
    return [(row["id"], row["price"], row["name"]) for row in engine.scan(Item).to_pylist()]


def test_rows_are_loaded_replaced_and_filled_with_defaults(engine: tg.Engine) -> None:
    engine.load(Item, pa.table({"name": ["b", "c"], "id": [2, 3]}))
    assert rows(engine) == [(1, 10, "?"), (2, 7, "b"), (3, 7, "c"), (5, 50, "?")]


@pytest.mark.parametrize("ids", [[9, 9], [9, 8, 9], [1, 8, 4, 1], [8, 4, 3, 2, 3]])
def test_a_key_that_stands_twice_is_refused_and_nothing_is_loaded(engine: tg.Engine, ids: list[int]) -> None:
    before = rows(engine)
    first, again = ids.index(max(ids, key=ids.count)), len(ids) - 1
    with pytest.raises(tg.InputError, match=rf"is in row {first} and again in row {again}"):
        engine.load(Item, pa.table({"id": ids}))
    assert rows(engine) == before
    engine.load(Item, pa.table({"id": sorted(set(ids)), "price": [1] * len(set(ids))}))
    assert {row[0] for row in rows(engine)} == {1, 3, 5, *ids}
    assert engine.run(pa.table({"item": ids}))["result"].to_pylist() == [1] * len(ids)
