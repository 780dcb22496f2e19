"""The slices of a transaction, each run alone on rows as they were, do together what the function does.

Every body is run by the oracle, as one operation, and slice by slice on copies of the rows: each slice
sees the other slices' rows as they were before the transaction. Then nothing may differ: the rows that
are written, the result, and of several failures the one with the smallest position is the reason.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tidegate.compiler.program import build_program
from tidegate.compiler.slicing import Body, Part, list_pieces, source_of
from tidegate.foundation.jit import uncompiled
from tidegate.operations.plan import ESCAPE, NEVER, ProgramPlan, RowParameter, failure

from ..truth.choices import Choices
from ..truth.comparison import bits, imported, plain
from ..truth.oracle import Oracle, Outcome
from ..truth.random_events import Event, random_case
from .operating import Desk

HEADER = """
import tidegate as tg


@tg.table(key="id")
class T:
    id: int
    n: int = 3
    x: float = 0.5
    f: bool = False


LIMIT = 2


def scaled(value, by):
    tg.require(value < 90, "too much to scale")
    return value * by


def bump(row):
    row.n += 1
    return row.n


def count_down(value):
    while value > 0:
        value -= 1
    return value


def sealed(value, rounds):
    value = value % 1000
    for step in range(rounds):
        value = (value * 7 + step) % 1000
    return value


def found_within(value, limit):
    for step in range(limit):
        if step > value:
            return step
    return 0


def spread(value):
    total = 0
    for step in range(value):
        total += step
    return total
"""

# name -> (body, the slices as source; empty where it runs as one operation)
BODIES: dict[str, tuple[str, list[str]]] = {
    "transfer": (
        """
        tg.require(a.n >= amount, "insufficient")
        a.n -= amount
        b.n += amount
        return a.n
        """,
        ["tg.require(a.n >= amount, 'insufficient')\na.n -= amount\nreturn a.n", "b.n += amount"],
    ),
    "four_rows_two_conditions": (
        """
        tg.require(a.n >= amount and b.n >= 1, "first")
        tg.require(c.n >= amount, "second")
        a.n -= amount
        b.n -= 1
        c.n -= amount
        d.n += amount + b.id
        return a.n
        """,
        [
            "tg.require(a.n >= amount and b.n >= 1, 'first')\na.n -= amount\nreturn a.n",
            "b.n -= 1",
            "tg.require(c.n >= amount, 'second')\nc.n -= amount",
            "d.n += amount + b.id",
        ],
    ),
    "branches_with_different_rows": (
        """
        if a.n > amount:
            b.n += 1
        elif a.f:
            c.n += 2
        else:
            d.n += 3
            tg.require(amount != 7, "seven")
        """,
        [
            "if a.n > amount:\n    b.n += 1",
            "if not a.n > amount:\n    if a.f:\n        c.n += 2\n    else:\n        tg.require(amount != 7, 'seven')",
            "if not a.n > amount:\n    if not a.f:\n        d.n += 3",
        ],
    ),
    "early_return": (
        """
        if a.n > amount:
            return 0
        a.n += 1
        b.n += 1
        return a.n
        """,
        [
            "if a.n > amount:\n    return 0\na.n += 1\nreturn a.n",
            "if a.n > amount:\n    return\nb.n += 1",
        ],
    ),
    "early_return_without_a_value": (
        """
        if c.f:
            return
        b.n += 1
        a.n += 1
        """,
        ["if c.f:\n    return\na.n += 1", "if c.f:\n    return\nb.n += 1"],
    ),
    "a_field_read_before_it_is_assigned": (
        """
        b.n = a.n
        a.n = amount
        """,
        ["a.n = amount", "b.n = a.n"],
    ),
    "a_field_read_after_it_was_assigned": (
        """
        a.n = amount
        b.n = a.n
        c.n += 1
        """,
        ["a.n = amount\nb.n = a.n", "c.n += 1"],
    ),
    "another_field_of_an_assigned_row": (
        """
        a.n = amount
        b.x = a.x * 2
        """,
        ["a.n = amount", "b.x = a.x * 2"],
    ),
    "existence_after_an_assignment": (
        """
        a.n = amount
        b.f = a.exists
        c.n += 1
        """,
        ["a.n = amount\nb.f = a.exists", "c.n += 1"],
    ),
    "existence_asked_of_a_function": (
        """
        tg.require(tg.exists(d) or amount > 3, "low")
        a.n = amount
        b.f = tg.exists(a)
        c.n += 1
        """,
        ["tg.require(tg.exists(d) or amount > 3, 'low')\na.n = amount\nb.f = tg.exists(a)", "c.n += 1"],
    ),
    "assigned_in_the_other_branch": (
        """
        if amount > 3:
            a.n = 1
        else:
            b.n = a.n
        """,
        ["if amount > 3:\n    a.n = 1", "if not amount > 3:\n    b.n = a.n"],
    ),
    "variables": (
        """
        fee = 1
        if c.f:
            fee = c.n // 2
        total = amount + fee
        a.n -= total
        b.n += amount
        c.x += fee
        """,
        [
            "fee = 1\nif c.f:\n    fee = c.n // 2\ntotal = amount + fee\na.n -= total",
            "b.n += amount",
            "fee = 1\nif c.f:\n    fee = c.n // 2\nc.x += fee",
        ],
    ),
    "loop_over_a_list": (
        """
        for row in rows:
            row.n += amount
        for row in rows:
            tg.require(row.n < 9, "full")
        a.n -= amount
        """,
        [
            "a.n -= amount",
            "for row in rows:\n    row.n += amount\nfor row in rows:\n    tg.require(row.n < 9, 'full')",
        ],
    ),
    "loop_that_returns": (
        """
        for row in rows:
            if row.n > amount:
                return row.id
        a.n += 1
        b.n += 2
        return 0
        """,
        [
            "for row in rows:\n    if row.n > amount:\n        return row.id\na.n += 1\nreturn 0",
            "for row in rows:\n    if row.n > amount:\n        return\nb.n += 2",
        ],
    ),
    "while_loop": (
        """
        tg.require(amount < 50, "long")
        count = amount
        while count > 0:
            count -= 1
            a.n += 1
        b.n += 1
        tg.require(b.n < 5, "late")
        """,
        [
            "tg.require(amount < 50, 'long')\ncount = amount\nwhile count > 0:\n    count -= 1\n    a.n += 1",
            "b.n += 1\ntg.require(b.n < 5, 'late')",
        ],
    ),
    "range_behind_a_check": (
        """
        tg.require(c.n >= amount, "not that often")
        total = 0
        for step in range(amount):
            total += step
        a.n += total
        b.n += 1
        """,
        [
            "tg.require(c.n >= amount, 'not that often')\ntotal = 0\n"
            "for step in range(amount):\n    total += step\na.n += total",
            "b.n += 1",
        ],
    ),
    "range_behind_a_check_of_another_row": (
        """
        tg.require(a.n >= amount, "not that often")
        a.n += 1
        for step in range(amount):
            b.n += step
        """,
        ["a.n += 1", "tg.require(a.n >= amount, 'not that often')\nfor step in range(amount):\n    b.n += step"],
    ),
    "helper_without_rows": (
        """
        a.n = scaled(amount, 2)
        b.n = scaled(a.id, c.n)
        """,
        ["a.n = scaled(amount, 2)", "b.n = scaled(a.id, c.n)"],
    ),
    "helpers_that_take_time": (
        """
        first = sealed(a.n, amount)
        second = sealed(b.n, amount)
        tg.require(a.n >= amount, "insufficient")
        a.n = first
        b.n = second
        """,
        [
            "first = sealed(a.n, amount)\ntg.require(a.n >= amount, 'insufficient')\na.n = first",
            "second = sealed(b.n, amount)\nb.n = second",
        ],
    ),
    "helper_with_a_row": (
        """
        a.n = bump(b)
        """,
        [],
    ),
    "delete_and_write": (
        """
        if b.n > amount:
            tg.delete(a)
        b.n += 1
        c.f = True
        """,
        ["if b.n > amount:\n    tg.delete(a)", "b.n += 1", "c.f = True"],
    ),
    "abort_after_writes": (
        """
        a.n += 1
        b.n += 1
        if c.f:
            tg.abort("flagged")
        tg.require(b.n < 6, "too many")
        """,
        [
            "a.n += 1\nif c.f:\n    tg.abort('flagged')",
            "b.n += 1\ntg.require(b.n < 6, 'too many')",
        ],
    ),
    "division_by_a_field": (
        """
        a.n += amount // c.n
        b.x += amount / (a.id - 1)
        return b.x
        """,
        ["a.n += amount // c.n", "b.x += amount / (a.id - 1)\nreturn b.x"],
    ),
    "result_of_two_rows": (
        """
        a.n += 1
        b.n += 1
        return a.n + b.n
        """,
        [],
    ),
    "result_of_rows_that_are_only_read": (
        """
        a.n += 1
        b.n += 1
        return c.n + d.n + b.n
        """,
        ["a.n += 1", "b.n += 1\nreturn c.n + d.n + b.n"],
    ),
    "swap": (
        """
        a.n, b.n = b.n, a.n
        c.n += 1
        """,
        ["a.n, b.n = (b.n, a.n)", "c.n += 1"],
    ),
    "row_variable": (
        """
        chosen = a if amount > 3 else b
        chosen.n += 1
        c.n += 1
        """,
        ["chosen = a if amount > 3 else b\nchosen.n += 1", "c.n += 1"],
    ),
    "assigned_or_aborted": (
        """
        if c.n > 3:
            rate = 2
        elif c.f:
            tg.abort("neither")
        else:
            raise ValueError
        a.n += rate
        b.n += 1
        """,
        [
            "if c.n > 3:\n    rate = 2\nelif c.f:\n    tg.abort('neither')\nelse:\n    raise ValueError\na.n += rate",
            "b.n += 1",
        ],
    ),
    "assigned_or_aborted_by_another_row": (
        """
        if a.n > 3:
            rate = 2
            a.x += 1
        else:
            tg.abort("small")
        b.n += rate
        """,
        ["if a.n > 3:\n    a.x += 1", "if a.n > 3:\n    rate = 2\nelse:\n    tg.abort('small')\nb.n += rate"],
    ),
    "a_test_that_fails": (
        """
        if amount // b.n > 1:
            pass
        a.n += 1
        b.n += 1
        """,
        ["a.n += 1", "if amount // b.n > 1:\n    pass\nb.n += 1"],
    ),
    "rebound_parameter": (
        """
        amount = amount * 2
        a.n += amount
        amount += b.n
        b.n += amount
        """,
        ["amount = amount * 2\na.n += amount", "amount = amount * 2\namount += b.n\nb.n += amount"],
    ),
    "overflow": (
        """
        a.n = a.n * 4611686018427387904
        b.n += 1
        tg.require(b.n < 6, "too many")
        """,
        ["a.n = a.n * 4611686018427387904", "b.n += 1\ntg.require(b.n < 6, 'too many')"],
    ),
    "index_of_a_list": (
        """
        a.n += rows[1].n
        b.n += amount // c.n
        """,
        ["a.n += rows[1].n", "b.n += amount // c.n"],
    ),
    "generators": (
        """
        total = sum(row.n for row in rows if row.f or row.n > 2)
        a.n = total
        b.f = any(row.n > amount for row in rows)
        """,
        [
            "total = sum((row.n for row in rows if row.f or row.n > 2))\na.n = total",
            "b.f = any((row.n > amount for row in rows))",
        ],
    ),
    "nothing_written": ("return a.n + b.n", []),
}
NUMBERS = (0, 3, 5, 8)
AMOUNTS = (0, 2, 4, 7, 60)


def text_of(name: str, body: str) -> str:
    lines = [line.strip("\n") for line in body.strip("\n").splitlines()]
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    inner = "\n".join("    " + line[indent:] for line in lines if line.strip())
    # What is in a list, and whether a row is touched at all, differs: every body gets the same parameters.
    result = " -> float" if "return b.x" in body else " -> int" if "return " in body else ""
    header = f"@tg.transaction\ndef {name}(a: T, b: T, c: T, d: T, rows: list[T], amount: int){result}:"
    return f"\n\n{header}\n{inner}\n"


SOURCE = HEADER + "".join(text_of(name, body) for name, (body, _) in BODIES.items())


@pytest.fixture(scope="module")
def plan() -> Iterator[ProgramPlan]:
    with imported(SOURCE) as module:
        yield build_program([getattr(module, name) for name in BODIES]).plan


@pytest.mark.parametrize("name", BODIES)
def test_the_slices_of(name: str, plan: ProgramPlan) -> None:
    number = plan.names.index(name)
    found = [plan.operations[kind] for kind in plan.slices[number]]
    assert [operation.text for operation in found] == BODIES[name][1]
    assert bool(found) != bool(plan.transactions[number].unsplit)
    for operation in found:
        assert not operation.whole
        assert operation.transaction == number
        touched = [row for row in ("a", "b", "c", "d", "rows") if re.search(rf"\b{row}\b", operation.text)]
        assert operation.rows == tuple(touched)
        assert set(operation.writes) <= set(operation.rows)
    writes = [row for operation in found for row in operation.writes]
    assert len(writes) == len(set(writes))


@pytest.mark.parametrize("mode", [uncompiled, nullcontext], ids=["plain", "compiled"])
def test_slices_together_are_the_function(mode: Any, plan: ProgramPlan) -> None:
    with mode():
        for name in BODIES:
            number = plan.names.index(name)
            for numbers in itertools.product(NUMBERS, NUMBERS, NUMBERS):
                for amount in AMOUNTS:
                    rows = rows_of(numbers, amount)
                    case = f"{name} of {rows} and {amount}"
                    expected = ask_oracle(name, rows, amount)
                    together(plan, number, rows, {"amount": amount}, expected, case)


def rows_of(numbers: tuple[int, ...], amount: int) -> dict[str, Any]:
    n, m, k = numbers
    rows = {
        "a": {"id": 1, "n": n, "x": 1.5, "f": True, "exists": True},
        "b": {"id": 2, "n": m, "x": 0.25, "f": False, "exists": True},
        "c": {"id": 3, "n": k, "x": 0.5, "f": k == 0, "exists": True},
        "d": {"id": 4, "n": 3, "x": 0.5, "f": False, "exists": False},
    }
    many = [{"id": 10 + i, "n": value, "x": 1.0, "f": i == 0, "exists": True} for i, value in enumerate((m, 2, k))]
    return rows | {"rows": many[: amount % 4]}


_ORACLE = Oracle(SOURCE, list(BODIES))


def ask_oracle(name: str, rows: dict[str, Any], amount: int) -> tuple[Outcome, dict[int, dict[str, Any] | None]]:
    """What the function does: its outcome, and the rows by their ids."""
    _ORACLE.state["T"] = {}
    flat = [rows["a"], rows["b"], rows["c"], rows["d"], *rows["rows"]]
    _ORACLE.load("T", [row for row in flat if row["exists"]])
    keys = {key: rows[key]["id"] for key in "abcd"} | {"rows": [row["id"] for row in rows["rows"]]}
    outcome = _ORACLE.execute({"transaction": name, "amount": amount, **keys})
    return outcome, {row["id"]: _ORACLE.state["T"].get((row["id"],)) for row in flat}


def together(
    plan: ProgramPlan,
    number: int,
    rows: dict[str, Any],
    values: dict[str, Any],
    expected: tuple[Outcome, dict[int, dict[str, Any] | None]],
    case: str,
) -> None:
    """Run a transaction as one operation and as slices, and compare both with what is expected."""
    outcome, after = expected
    for kinds in ((number,), *((plan.slices[number],) if plan.slices[number] else ())):
        desks = {kind: Desk(plan, number, rows, values) for kind in kinds}
        statuses = {kind: desk.operate(kind) for kind, desk in desks.items()}
        check_failures(plan, statuses, desks, outcome, case)
        if any(statuses.values()):
            continue
        results = [found for kind in kinds for found in [desks[kind].outcome(0)[1]] if found is not None]
        assert results == ([] if outcome.result is None else [(outcome.result,)]), case
        for kind, desk in desks.items():
            for name in plan.operations[kind].writes:
                ids = [row["id"] for row in (rows[name] if name == "rows" else [rows[name]])]
                found = [
                    {k: v for k, v in row.items() if k != "exists"} if row["exists"] else None for row in desk.row(name)
                ]
                assert found == [after[one] for one in ids], f"{case}: {name} in {plan.operations[kind].text!r}"
        if kinds != (number,):
            check_untouched(plan, rows, desks, case)


def check_failures(
    plan: ProgramPlan, statuses: dict[int, int], desks: dict[int, Desk], outcome: Outcome, case: str
) -> None:
    if ESCAPE in statuses.values():  # plain Python decides
        assert not outcome.committed, case
        return
    failed = {status: kind for kind, status in statuses.items() if status}
    assert outcome.committed == (not failed), case
    if failed:
        first = min(failed)
        assert desks[failed[first]].outcome(first) == ("aborted", outcome.reason), case
        for status, kind in failed.items():
            assert plan.operations[kind].whole or status >> 32 >= plan.operations[kind].first_failure, case


def check_untouched(plan: ProgramPlan, rows: dict[str, Any], desks: dict[int, Desk], case: str) -> None:
    """No slice touches rows that it does not write."""
    for kind, desk in desks.items():
        for name in set(rows) - set(plan.operations[kind].writes):
            given = rows[name] if name == "rows" else [rows[name]]
            assert desk.row(name) == [{k: v for k, v in row.items() if k != "id"} for row in given], case


# --- failures -------------------------------------------------------------------------------------------


def test_failures_tell_where(plan: ProgramPlan) -> None:
    number = plan.names.index("four_rows_two_conditions")
    with uncompiled():
        rows = rows_of((0, 0, 0), 4)
        statuses = [Desk(plan, number, rows, {"amount": 4}).operate(kind) for kind in plan.slices[number]]
    reasons = [plan.reasons.index(reason) + 1 for reason in ("first", "second")]
    assert statuses == [failure(0, reasons[0]), 0, failure(1, reasons[1]), 0]
    assert [plan.operations[kind].first_failure for kind in plan.slices[number]] == [0, 3, 1, 5]


def test_what_cannot_fail_says_never(plan: ProgramPlan) -> None:
    number = plan.names.index("a_field_read_before_it_is_assigned")
    assert [plan.operations[kind].first_failure for kind in plan.slices[number]] == [NEVER, NEVER]


# --- running ahead --------------------------------------------------------------------------------------

AHEAD = {
    "a.n += 1\nb.n += 1": True,
    "for row in rows:\n    row.n += 1\na.n = 1": True,
    "for k in range(5):\n    a.n += k\nb.n = 1": True,
    "for k in range(LIMIT):\n    a.n += k\nb.n = 1": True,
    "for k in range(len(rows)):\n    rows[k].n += k\nb.n = 1": True,
    "for k in range(amount):\n    a.n += k\nb.n = 1": True,
    "tg.require(amount < 9, '')\nfor k in range(amount):\n    a.n += k\nb.n = 1": True,
    "tg.require(c.n > amount, '')\nfor k in range(amount):\n    a.n += k\nb.n = 1": False,
    "if c.n > amount:\n    for k in range(amount):\n        a.n += k\nb.n = 1": False,
    "if c.n < amount:\n    return\nfor k in range(amount):\n    a.n += k\nb.n = 1": False,
    "for k in range(c.n):\n    a.n += 1\nb.n = 1": False,
    "m = c.n\nfor k in range(m):\n    a.n += 1\nb.n = 1": False,
    "m = 1\nif c.f:\n    m = 5\nfor k in range(m):\n    a.n += 1\nb.n = 1": False,
    "m = 1\nwhile m < 4:\n    m += 1\na.n = m\nb.n = 1": False,
    "a.n = count_down(amount)\nb.n = 1": False,
    "a.n = spread(amount)\nb.n = 1": True,
    "a.n = spread(c.n)\nb.n = 1": False,
    "a.n = sealed(c.n, amount)\nb.n = sealed(d.n, rounds=amount)": True,
    "a.n = sealed(amount, c.n)\nb.n = 1": False,
    "a.n = sealed(c.n, 5)\nb.n = 1": True,
    "a.n = found_within(c.n, amount)\nb.n = 1": False,
    "a.f = any(k > c.n for k in range(amount))\nb.n = 1": False,
    "a.f = any(k > amount for k in range(amount))\nb.n = 1": True,
    "for k in range(amount):\n    if c.n < k:\n        break\n    a.n += 1\nb.n = 1": False,
    "for k in range(amount):\n    tg.require(c.n < k, '')\n    a.n += 1\nb.n = 1": False,
    "for row in rows:\n    row.n = sealed(row.n, amount)\n    tg.require(amount > 0, '')\nb.n = 1": True,
    "for row in rows:\n    row.n = sealed(row.n, amount)\n    tg.require(row.n > 0, '')\nb.n = 1": False,
    "for row in rows:\n    row.n += 1\n    tg.require(row.n > 0, '')\nb.n = 1": True,
    "a.n = sum(k for k in range(c.n))\nb.n = 1": False,
    "a.n = sum(sum(k for k in range(row.n)) for row in rows)\nb.n = 1": False,
}


def test_what_may_run_on_values_that_are_taken_back() -> None:
    """Only what comes to an end on any values of the rows."""
    bodies = {f"body_{position}": body for position, body in enumerate(AHEAD)}
    with imported(HEADER + "".join(text_of(name, body) for name, body in bodies.items())) as module:
        plans = [getattr(module, name).plan for name in bodies]
    found = {body: plan.speculative for body, plan in zip(AHEAD, plans, strict=True)}
    assert found == AHEAD
    assert all(plan.slices for plan in plans)


# --- the pure part ----------------------------------------------------------------------------------------


def test_pieces_are_numbered_as_they_stand() -> None:
    tree = ast.parse("'doc'\nif a:\n    b\n    pass\nelse:\n    c\nfor x in y:\n    z\n")
    pieces = list_pieces(tree.body)
    shown = [(piece.position, ast.unparse(piece.node).splitlines()[0], piece.path) for piece in pieces]
    assert shown == [
        (0, "if a:", ()),
        (1, "b", ((0, True),)),
        (2, "c", ((0, False),)),
        (3, "for x in y:", ()),
    ]


def test_a_slice_keeps_the_numbers_of_the_whole() -> None:
    tree = ast.parse("if a:\n    b\nelse:\n    c\nreturn d")
    pieces = list_pieces(tree.body)
    body = Body(pieces, Part({"row"}, set(), held={0, 2, 3}))
    statements = body.build(tree.body)
    assert source_of(statements) == "if not a:\n    c\nreturn"
    assert [body.positions[id(statement)] for statement in statements] == [0, 3]


# --- random programs --------------------------------------------------------------------------------------

RANDOM_PROGRAMS = 400
FIRST_SEED = 5_000_000


def test_slices_of_random_programs() -> None:
    """Slices one after the other against the whole body, over programs and rows from seeds."""
    sliced = committed = failed = 0
    for seed in range(FIRST_SEED, FIRST_SEED + RANDOM_PROGRAMS):
        choices = Choices(seed)
        case = random_case(choices)
        with imported(case.program.source) as module, uncompiled():
            plan = build_program([getattr(module, spec.name) for spec in case.program.transactions]).plan
            for event in (event for batch in case.batches for event in batch.events):
                number = plan.names.index(event["transaction"]) if event.get("transaction") in plan.names else 0
                rows = rows_of_event(plan, number, event, choices)
                if not plan.slices[number] or rows is None:
                    continue
                sliced += 1
                status = slices_against_whole(plan, number, rows, event, f"seed {seed}: {event}")
                committed += status == 0
                failed += status > 0
    assert sliced > RANDOM_PROGRAMS // 4
    assert committed > sliced // 4
    assert failed > sliced // 40


def rows_of_event(plan: ProgramPlan, number: int, event: Event, choices: Choices) -> dict[str, Any] | None:
    """Random rows under the event's keys; None for an event that no engine would run."""
    found: dict[str, Any] = {}
    for parameter in plan.transactions[number].parameters:
        value = event.get(parameter.name)
        items = value if isinstance(value, list) else [value]
        parts = [part for item in items for part in (item.values() if isinstance(item, dict) else [item])]
        if any(part is None for part in parts):
            return None
        if not isinstance(parameter, RowParameter):
            continue
        rows = []
        for item in items:
            keys = item if isinstance(item, dict) else {parameter.table.key[0]: item}
            columns = {
                column.name: random_value(column.kind.value, choices) for column in parameter.table.value_columns
            }
            rows.append({**keys, **columns, "exists": choices.chance(80)})
        found[parameter.name] = rows if parameter.many else rows[0]
    return found


def random_value(kind: str, choices: Choices) -> Any:
    match kind:
        case "int":
            return choices.weighted([(9, choices.between(-5, 40)), (1, 2**62)])
        case "float":
            return choices.between(-20, 80) / 4
        case "bool":
            return choices.chance(50)
    return choices.pick(["", "a", "b", "zz"])


def slices_against_whole(plan: ProgramPlan, number: int, rows: dict[str, Any], event: Event, case: str) -> int:
    """Compare; returns the status of the whole."""
    whole = Desk(plan, number, rows, event)
    status = whole.operate(number)
    desks = {kind: Desk(plan, number, rows, event) for kind in plan.slices[number]}
    statuses = {kind: desk.operate(kind) for kind, desk in desks.items()}
    if status == ESCAPE:
        assert ESCAPE in statuses.values(), case
    elif status:
        first = min((found for found in statuses.values() if found > 0), default=0)
        assert ESCAPE in statuses.values() or first & 0xFFFFFFFF == status, case
        assert any(found > 0 and found & 0xFFFFFFFF == status for found in statuses.values()), case
    else:
        assert not any(statuses.values()), case
        results = [found for desk in desks.values() for found in [desk.outcome(0)[1]] if found is not None]
        expected = whole.outcome(0)[1]
        assert bits(plain(results)) == bits(plain([] if expected is None else [expected])), case
        for kind, desk in desks.items():
            for name in plan.operations[kind].writes:
                assert bits(desk.row(name)) == bits(whole.row(name)), f"{case}: {name}"
    return status
