"""Strings in bodies: what looks at them is compiled, what makes new ones is plain Python, and both equal the function.

Every question about two strings is a transaction of one program; it is asked of strings with everything that UTF-8 has.
"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.fingerprint import fingerprint
from tidegate.foundation.jit import uncompiled
from tidegate.testing import PlainProgram, assert_same_as_plain

PREFIX = "pre"
TEXTS = [
    "",
    "a",
    "ab",
    "b",
    "é",
    "e\u0301",
    "\uffff",
    "\U00010000",
    "😀",
    "a😀b",
    "käse",
    "KÄSE",
    "a\0",
    "prefix",
    "x" * 40,
]


@tg.table(key="id")
class Note:
    id: int
    text: str = ""
    count: int = 0


@tg.transaction
def compares(row: Note, s: str, t: str) -> int:
    found = 0
    if s < t:
        found += 1
    if s <= t:
        found += 2
    if s > t:
        found += 4
    if s >= t:
        found += 8
    if s == t:
        found += 16
    if s != t:
        found += 32
    if "a" < s <= t < "zz":
        found += 64
    return found


@tg.transaction
def contains(row: Note, s: str, t: str) -> int:
    found = len(s) * 1000
    if s in t:
        found += 1
    if s not in t:
        found += 2
    if s in ("a", t, "käse"):
        found += 4
    if s in {"b", "😀"} or s not in ["", "a"]:
        found += 8
    if s.startswith(t):
        found += 16
    if s.endswith(("b", t)):
        found += 32
    if PREFIX.startswith(s) and s:
        found += 64
    if min(s, t) == s and max("m", s, t) != "m":
        found += 128
    if row.text and not s:
        found += 256
    row.count += found
    return found


@tg.transaction
def makes(row: Note, s: str, t: str) -> str:
    if len(s) == 1:
        row.text = s + t
    elif t:
        row.text += f"{s.upper()}|{t!r:>6}|{len(t):03d}"
    return row.text[:12].strip() or str(row.count)


@tg.transaction
def refuses(row: Note, s: str, t: str) -> int:
    row.count += 1
    tg.require(len(s) < 3, f"{s}: {len(s)} {row.count}")
    tg.require(s != t, s)
    if t == "b":
        tg.abort("no " + t.upper())
    if t == "é":
        raise tg.Abort(PREFIX + str(row.count / 3))
    return row.count


PROGRAM = [compares, contains, makes, refuses]
PAIRS = list(itertools.product(TEXTS, TEXTS))


def events(names: list[str], pairs: list[tuple[str, str]]) -> pa.Table:
    asked = [(name, n % 40, s, t) for n, (s, t) in enumerate(pairs) for name in names]
    columns = [list(column) for column in zip(*asked, strict=True)]
    return pa.table(dict(zip(["transaction", "row", "s", "t"], columns, strict=True)))


@pytest.mark.parametrize("strategy", ["serial", tg.Families(), "chains", tg.Decision()], ids=str)
def test_strings_are_those_of_the_functions_on_any_strategy(strategy: Any) -> None:
    """Compiled, and shared among workers; what makes strings runs serially in the end."""
    for names in (["compares", "contains"], [p.__name__ for p in PROGRAM]):
        table = events(names, PAIRS)
        engine, plain = tg.Engine(PROGRAM, strategy=strategy, workers=2), PlainProgram(PROGRAM)
        outcomes = engine.run(table).select(["committed", "reason", "result"]).to_pylist()
        for found, name, wanted in zip(outcomes, table["transaction"].to_pylist(), plain.run(table), strict=True):
            result = found["result"][name] if found["result"] is not None else None
            assert (found["committed"], found["reason"], result) == (wanted.committed, wanted.reason, wanted.result)
        assert engine.scan(Note).to_pylist() == plain.rows(Note)


def test_one_transaction_alone_equals_its_function() -> None:
    engine, plain = tg.Engine(PROGRAM), PlainProgram(PROGRAM)
    for (s, t), transaction in itertools.product(PAIRS[::3], PROGRAM):
        found = engine.execute(transaction, row=1, s=s, t=t)
        assert found == plain.execute({"transaction": transaction.__name__, "row": 1, "s": s, "t": t})


def test_strings_that_grow_in_a_batch_are_read_where_they_are() -> None:
    """Plain Python adds strings until the pool has moved several times, and compiled code reads them in between."""

    @tg.transaction
    def grow(row: Note, s: str) -> int:
        row.text = (row.text + s)[-50:]
        return len(row.text)

    @tg.transaction
    def measure(row: Note, s: str) -> int:
        return len(row.text) + (1000 if row.text.endswith(s) else 0)

    names = ["grow", "measure", "measure"] * 400
    table = pa.table({"transaction": names, "row": [1] * 1200, "s": [f"é{n // 3}" for n in range(1200)]})
    assert_same_as_plain([grow, measure], [table])


def test_what_a_reason_is_made_of_is_computed_before_the_condition_is_checked() -> None:
    @tg.transaction
    def check(row: Note, n: int) -> int:
        tg.require(n < 10, f"{100 // n}")
        tg.require(n > -10, f"{n:c}")
        return n

    with uncompiled():
        engine = tg.Engine([check])
        found = [engine.execute(check, row=1, n=n).reason for n in (0, 20, -3, -20, 5)]
    assert found == ["ZeroDivisionError", "5", "OverflowError", "OverflowError", None]


def test_a_reason_costs_nothing_until_it_is_given() -> None:
    engine = tg.Engine([refuses])
    assert engine.execute(refuses, row=1, s="a", t="x").committed
    assert engine.last_batch is not None and engine.last_batch.interpreted == 0
    assert engine.execute(refuses, row=1, s="abc", t="x").reason == "abc: 3 2"
    assert engine.last_batch.interpreted == 1
    assert engine.read(Note, 1) == {"id": 1, "text": "", "count": 1}


@pytest.mark.parametrize(
    "strategy", ["serial", "chains", tg.Decision(abort="lazy"), tg.Decision(abort="eager")], ids=str
)
def test_a_computed_reason_aborts_every_part_of_a_split_transaction(strategy: Any) -> None:
    def checked(amount: int) -> None:
        tg.require(amount < 9, f"too much: {amount}")

    @tg.transaction
    def move(src: Note, dst: Note, amount: int) -> None:
        checked(amount)
        src.count -= amount
        dst.count += amount

    assert len(move.plan.slices) == 2
    table = pa.table({"src": [1, 2, 3, 1], "dst": [2, 3, 1, 3], "amount": [3, 9, 4, 12]})
    with uncompiled():
        engine = tg.Engine([move], strategy=strategy, workers=2)
        reasons = engine.run(table)["reason"].to_pylist()
        assert reasons == [None, "too much: 9", None, "too much: 12"]
        assert engine.scan(Note)["count"].to_pylist() == [1, 3, -4]


def test_programs_that_make_other_strings_have_other_fingerprints() -> None:
    def labelled(sign: str) -> Any:
        @tg.transaction
        def label(row: Note, n: int) -> str:
            return f"{sign}{n}"

        return label

    assert fingerprint(build_program([labelled("+")])) != fingerprint(build_program([labelled("-")]))


def test_half_of_a_surrogate_pair_aborts_and_leaves_nothing() -> None:
    @tg.transaction
    def store(row: Note, other: Note, n: int) -> None:
        row.text = "there"
        other.text = chr(n)

    @tg.transaction
    def give(row: Note, n: int) -> str:
        row.count += 1
        return chr(n)

    @tg.transaction
    def refuse(row: Note, n: int) -> None:
        tg.abort(chr(n))

    program = [store, give, refuse]
    names = ["store", "give", "refuse", "store"]
    table = pa.table({"transaction": names, "row": [1] * 4, "other": [2] * 4, "n": [0xD800] * 3 + [0x1F600]})
    with uncompiled():
        assert_same_as_plain(program, [table])
        reasons = tg.Engine(program).run(table)["reason"].to_pylist()
    assert reasons == ["UnicodeEncodeError"] * 3 + [None]
