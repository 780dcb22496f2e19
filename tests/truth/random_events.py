"""Random events and rows for a random program: few hot keys, and every kind of bad event.

A `Case` is a program with rows to load and batches to run. Keys come from a small pool per kind, so
that transactions meet on the same rows (rarely from a wide one, so that tables and indexes grow); the
pools hold the nasty ones as well (both ends of 64 bits, minus zero, infinities, empty strings, strings
with a zero byte). Bad events are rare but present: null and NaN keys, null parameters, unknown and null
names, a null where the order is read from.

    small    programs that compile in a second
    usual    batches of up to 40 events, rarely 100: most of what can go wrong does so among few
    large    batches of hundreds, several in a row, mostly over many keys and without extreme values: where it pays
             to share the work, so that the adaptive strategy does
    expiring, small expiring    the same as usual and small, with rows that expire, if a table has a field for it
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .choices import Choices
from .random_programs import ColumnSpec, Program, random_program

KEYS: dict[str, list[Any]] = {
    "int": [1, 2, 3, 0, -1, 7, 2**63 - 1, -(2**63), 10**12, -(2**63) + 1],
    "str": ["a", "b", "", "käse", "a\0", "key with spaces", "A", "a" * 40],
    "float": [1.0, 0.5, 0.0, -0.0, -2.5, math.inf, -math.inf, 1e300, 5e-324],
    "bool": [True, False],
}
WIDE: dict[str, list[Any]] = {
    "int": [number * 0x9E3779B97F4A7C15 % 2**64 - 2**63 for number in range(100)],
    "str": [f"key {number}" * (number % 5) for number in range(100)],
    "float": [number / 7 - 3.0 for number in range(100)],
}
VALUES: dict[str, list[Any]] = {
    "int": [1, 0, 2, 5, -1, 3, 10, -7, 100, 50],
    "float": [1.0, 0.0, 0.5, -1.5, 2.0, 0.1, 10.0, -0.0, 3.7],
    "bool": [True, False],
    "str": ["a", "b", "", "käse", "a longer string of text", "other"],
}
EDGES: dict[str, list[Any]] = {
    "int": [2**63 - 1, -(2**63), 2**62, 2**53 + 1, -(2**31), 4611686018427387905],
    "float": [math.nan, math.inf, -math.inf, 1e308, -1e308, 9007199254740993.0, 9.223372036854776e18, 5e-324],
    "bool": [True, False],
    "str": ["a\0b", "\U0001f600", " ", "\U0001f600a\u0301", "\uffff", "7"],
}
Event = dict[str, Any]
Size = Literal["small", "usual", "large", "expiring", "small expiring"]


@dataclass(frozen=True)
class Batch:
    """Events as they arrive, the column that orders them, and rows to load by table before they run."""

    events: list[Event]
    order_by: str | None
    loads: dict[str, list[Event]] = field(default_factory=dict)


@dataclass
class Case:
    """One comparison: a program and batches. `order` is the kind of the column `ts`, if there is one.

    If rows expire and transactions do not declare their time, the time is `by_order`.
    """

    program: Program
    batches: list[Batch] = field(default_factory=list)
    has_transaction_column: bool = True
    order: str | None = None
    by_order: bool = False
    size: Size = "usual"
    drawn: Sequence[int] = ()


def random_case(choices: Choices, size: Size = "usual") -> Case:
    large = size == "large"
    program = random_program(choices, small=size.startswith("small"), calm=large)
    case = Case(program, size=size)
    single = len(program.transactions) == 1
    case.has_transaction_column = not (single and choices.chance(50))
    wide = choices.chance(75 if large else 12)
    pools = {
        kind: [keys[0], *(WIDE.get(kind, keys) if wide else (choices.pick(keys) for _ in range(choices.between(0, 5))))]
        for kind, keys in KEYS.items()
    }
    case.order = choices.weighted([(6, None), (4, "int"), (1, "float"), (1, "str")])
    sizes = [(1, 1), (4, 8), (4, 20), (3, 40), (1, 0), (3 if wide else 0, 100)]
    for number in range(choices.weighted([(2, 2), (2, 4)] if large else [(3, 1), (3, 2), (2, 3)])):
        loads = _loads(choices, program, pools) if number == 0 or choices.chance(15) else {}
        count = choices.weighted([(1, 100), (2, 200), (2, 300)] if large else sizes)
        events = [_event(choices, case, pools) for _ in range(count)]
        case.batches.append(Batch(events, "ts" if case.order else None, loads))
    if size.endswith("expiring"):
        _let_rows_expire(choices, case)
    case.drawn = choices.drawn
    return case


def _let_rows_expire(choices: Choices, case: Case) -> None:
    """Give tables a time to live, by fields of one kind, and events a time: a parameter, or the order."""
    program = case.program
    kind = choices.weighted([(3, "int"), (1, "float")])
    expiring = [table for table in program.tables if table.readable(kind)]
    if not expiring:
        return
    for number, table in enumerate(expiring):
        if number == 0 or choices.chance(70):
            ttl, by = choices.pick([5, 1, 20, 60]), choices.pick(table.readable(kind))
            head = f"\nclass {table.name}:\n"
            program.source = program.source.replace(f"){head}", f", ttl={ttl}, by={by!r}){head}")
    declared = choices.chance(60)
    case.order, case.by_order = (None, False) if declared else (kind, True)
    if declared:
        time = ColumnSpec("ts", is_key=False, is_list=False, kinds=(("", "int"),))
        program.source = program.source.replace("@tg.transaction\n", '@tg.transaction(time="ts")\n')
        program.source = re.sub(r"( *def transaction_\d+\()", r"\1ts: int, ", program.source)
        program.transactions[:] = [
            replace(spec, parameters=((time, None), *spec.parameters)) for spec in program.transactions
        ]
        program.columns.append(time)
    now = choices.between(-5, 40)
    for place, batch in enumerate(case.batches):
        for event in batch.events:
            now += choices.weighted([(6, 0), (4, 1), (2, 3), (1, 12)])
            late = choices.weighted([(8, 0), (2, 4), (1, 30)])
            event["ts"] = None if choices.chance(1) else now - late if kind == "int" or declared else (now - late) / 4
        case.batches[place] = replace(batch, order_by=None if declared else "ts")


def _value(choices: Choices, kind: str, wild: int) -> Any:
    return choices.pick(EDGES[kind] if choices.chance(wild) else VALUES[kind])


def _loads(choices: Choices, program: Program, pools: dict[str, list[Any]]) -> dict[str, list[Event]]:
    """Rows for each table; a field is left out now and then, and takes its default."""
    loads: dict[str, list[Event]] = {}
    for table in program.tables:
        rows: dict[tuple[Any, ...], Event] = {}
        optional = [name for name, _ in table.writable()]
        missing = choices.pick(optional) if choices.chance(10) else None
        for _ in range(choices.weighted([(1, 0), (2, 3), (2, 6)])):
            row = {
                name: choices.pick(pools[kind]) if name in table.key else _value(choices, kind, program.wild)
                for name, kind, _ in table.fields
                if name != missing
            }
            rows[tuple(row[name] for name in table.key)] = row
        loads[table.name] = list(rows.values())
    return loads


def _event(choices: Choices, case: Case, pools: dict[str, list[Any]]) -> Event:
    program = case.program
    event: Event = {}
    chosen = choices.pick(program.transactions)
    if case.has_transaction_column:
        event["transaction"] = chosen.name
        if choices.chance(2):
            event["transaction"] = choices.pick(["unknown", None, "", "transaction_00"])
    if case.order is not None:
        place = choices.between(0, 30)
        places = {"int": place - 5, "float": place / 4 - 2, "str": f"{place:x}"}
        event["ts"] = None if choices.chance(1) else places[case.order]
    needed = {column.name for column, _ in chosen.parameters}
    for column in program.columns:
        # A column that the named transaction does not take may hold anything, a null above all.
        unused_null = column.name not in needed and choices.chance(60)
        event[column.name] = None if unused_null else _cell(choices, column, pools, program.wild)
    return event


def _cell(choices: Choices, column: ColumnSpec, pools: dict[str, list[Any]], wild: int) -> Any:
    if choices.chance(1):
        return None
    if not column.is_list:
        return _item(choices, column, pools, wild)
    return [
        _item(choices, column, pools, wild) for _ in range(choices.weighted([(2, 2), (3, 1), (3, 3), (1, 0), (1, 5)]))
    ]


def _item(choices: Choices, column: ColumnSpec, pools: dict[str, list[Any]], wild: int) -> Any:
    if column.is_list and choices.chance(1):
        return None
    if not column.is_key:
        return _value(choices, column.kinds[0][1], wild)
    parts = {name: _key_part(choices, kind, pools) for name, kind in column.kinds}
    return parts if column.is_struct else next(iter(parts.values()))


def _key_part(choices: Choices, kind: str, pools: dict[str, list[Any]]) -> Any:
    if choices.chance(1):
        return math.nan if kind == "float" and choices.chance(50) else None
    return choices.pick(pools[kind])
