"""Operators of every kind, random pipelines of them, and the truth: the plain functions, one record after the other."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate import TidegateWarning
from tidegate.ordering import Pipeline, merge, pipeline


@dataclass
class Item:
    number: int
    user: int
    name: str
    price: float
    hot: bool
    note: str | None


@dataclass
class Sum:
    count: int = 0
    price: float = 0.0
    last: str = ""


@dataclass
class Seen:
    names: dict[str, int] = field(default_factory=dict)


def raised(item: Item) -> Item:
    return Item(item.number, item.user, item.name, item.price * 1.1 + 0.1, not item.hot, item.note)


def kept(item: Item) -> bool:
    return item.number % 3 != 1 or item.hot


def odd(item: Item) -> Item | None:
    if item.user % 2 == 0:
        return None
    return Item(item.number + 1, item.user, item.name, item.price, item.hot, item.name)


def copies(item: Item) -> list[Item]:
    made: list[Item] = []
    for step in range(item.user % 4):
        made.append(Item(item.number * 10 + step, item.user + step, item.name, item.price + step, item.hot, None))
    return made


def many(item: Item) -> list[Item]:
    return [Item(step, item.user, item.name, item.price, item.hot, item.note) for step in range(item.number % 40)]


def summed(state: Sum, item: Item) -> Item | None:
    state.count += 1
    state.price += item.price
    if state.count % 3 == 0:
        return None
    found = Item(state.count, item.user, state.last, state.price, item.hot, item.note)
    state.last = item.name
    return found


def huge(state: Sum, item: Item) -> Item:
    state.count += 1
    if item.number % 5 == 0:
        state.count = (state.count + 2**62) * 4 // 4 - 2**62  # beyond 64 bits on the way
    return Item(state.count, item.user, item.name, item.price, item.hot, item.note)


def shouted(item: Item) -> Item:
    return Item(item.number, item.user, item.name.upper() + "!", item.price, item.hot, item.note)  # a new string


def first_of_name(state: Seen, item: Item) -> Item | None:
    state.names[item.name] = state.names.get(item.name, 0) + 1
    return item if state.names[item.name] == 1 else None


def by_price(item: Item) -> int:
    return math.floor(item.price) % 7


STATELESS: dict[str, Sequence[Callable[..., Any]]] = {
    "map": (raised, odd, copies, shouted),
    "filter": (kept,),
    "flat_map": (copies, many),
}
STATEFUL: Sequence[Callable[..., Any]] = (summed, huge, first_of_name)
KEYS: Sequence[Any] = (None, "user", "name", "price", "hot", "note", by_price)


def items(count: int, seed: int) -> list[Item]:
    """Random records."""
    draw = random.Random(seed)
    return [
        Item(
            number,
            draw.randrange(12),
            draw.choice(["a", "b", "", "ä"]) * draw.randrange(3),
            draw.choice([0.0, -0.0, 0.1, 1e300, draw.random() * 10]),
            draw.random() < 0.5,
            draw.choice([None, "x", "y"]),
        )
        for number in range(count)
    ]


def numbered(users: Sequence[int]) -> list[Item]:
    """Records that differ by their number only, one for each user."""
    return [Item(number, user, "a", 1.0, True, None) for number, user in enumerate(users)]


class Program:
    """A random pipeline, beside it what it means: a function from a record to the records that come out."""

    def __init__(self, seed: int, length: int = 5) -> None:
        self._random = random.Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TidegateWarning)
            self.pipeline, self.step = self._extended(pipeline(Item), lambda item: [item], length)

    def _extended(
        self, made: Pipeline, step: Callable[[Item], list[Item]], length: int
    ) -> tuple[Pipeline, Callable[[Item], list[Item]]]:
        for _ in range(self._random.randrange(length + 1)):
            made, following = self._one(made, length)
            step = _after(step, following)
        return made, step

    def _one(self, made: Pipeline, length: int) -> tuple[Pipeline, Callable[[Item], list[Item]]]:
        kind = self._random.choice(["map", "filter", "flat_map", "stateful", "stateful", "stateful", "branch"])
        if kind == "branch":
            parts = [self._extended(made, lambda item: [item], length // 2) for _ in range(self._random.choice([2, 3]))]
            return merge(*(part for part, _ in parts)), lambda item: [out for _, step in parts for out in step(item)]
        if kind != "stateful":
            function = self._random.choice(STATELESS[kind])
            return getattr(made, kind)(function), plain(kind, function)
        function, key = self._random.choice(STATEFUL), self._random.choice(KEYS)
        partitions = self._random.choice([None, 1, 3]) if key is not None else None
        if key == "user" and self._random.random() < 0.3:
            return made.stateful(function, key, partitions=[2, 5, 9]), plain_stateful(function, key)
        return made.stateful(function, key=key, partitions=partitions), plain_stateful(function, key)

    def expected(self, records: Sequence[Item]) -> list[Item]:
        """What the plain functions give."""
        return [out for record in records for out in self.step(record)]


def _after(first: Callable[[Item], list[Item]], second: Callable[[Item], list[Item]]) -> Callable[[Item], list[Item]]:
    return lambda item: [out for middle in first(item) for out in second(middle)]


def plain(kind: str, function: Callable[..., Any]) -> Callable[[Item], list[Item]]:
    """What a stateless operator means."""

    def step(item: Item) -> list[Item]:
        result = function(item)
        if kind == "filter":
            return [item] if result else []
        return [] if result is None else result if isinstance(result, list) else [result]

    return step


def plain_stateful(function: Callable[..., Any], key: Any) -> Callable[[Item], list[Item]]:
    """What a stateful operator means, from its first record on."""
    states: dict[Any, Any] = {}
    new = {summed: Sum, huge: Sum, first_of_name: Seen}[function]

    def step(item: Item) -> list[Item]:
        found = key(item) if callable(key) else None if key is None else getattr(item, key)
        result = function(states.setdefault(found, new()), item)
        return [] if result is None else [result]

    return step


def table(records: Sequence[Item]) -> pa.Table:
    """Records as columns."""
    names = list(Item.__dataclass_fields__)
    types = [pa.int64(), pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.string()]
    return pa.table(
        {name: pa.array([getattr(r, name) for r in records], kind) for name, kind in zip(names, types, strict=True)}
    )


def rows(found: pa.Table | Sequence[Item]) -> list[tuple[Any, ...]]:
    """Rows for a comparison bit for bit: floats by their text, so that 0.0 and -0.0 differ."""
    if isinstance(found, pa.Table):
        found = [Item(**row) for row in found.to_pylist()]
    return [tuple(repr(value) for value in vars(item).values()) for item in found]
