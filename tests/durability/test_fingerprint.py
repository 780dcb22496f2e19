"""A program's fingerprint: another one whenever the same events could give other rows, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.fingerprint import fingerprint, require_repeatable
from tidegate.operations.plan import Program

PLAIN: dict[str, Any] = {"default": 0, "limit": 3, "word": "seen", "reason": "too much"}
GRAPH: dict[str, Any] = {"rows": 3, "slide": 1, "batch": 1, "limit": 3, "word": "seen"}


def plain(default: int, limit: int, word: str, reason: str) -> Program:
    @tg.table(key="id")
    class Account:
        id: int
        balance: int = default
        note: str = ""

    @tg.transaction
    def book(account: Account, amount: int) -> int:
        tg.require(amount < limit, reason)
        account.balance += amount
        account.note = word
        return account.balance

    return build_program(book)


def graph(rows: int, slide: int, batch: int | str, limit: int, word: str) -> Program:
    @tg.table(key="id")
    class Account:
        id: int
        total: int = 0
        note: str = ""

    booked = tg.stream("booked", account=Account, amount=int)

    @tg.transaction(on=booked)
    def watch(account: Account, amount: int, recent: tg.window(booked, rows=rows, slide=slide)) -> None:  # type: ignore[valid-type]
        tg.require(amount < limit, "too much")
        account.total += recent.sum("amount")
        account.note = word

    return build_program(tg.dataflow([watch], atomic_batch=batch))


@pytest.mark.parametrize("change", [{"default": 1}, {"limit": 4}, {"word": "read"}, {"reason": "no"}])
def test_a_change_of_what_a_transaction_does_changes_it(change: dict[str, Any]) -> None:
    assert fingerprint(plain(**PLAIN)) == fingerprint(plain(**PLAIN))
    assert fingerprint(plain(**PLAIN)) != fingerprint(plain(**PLAIN | change))


@pytest.mark.parametrize("change", [{"rows": 4}, {"slide": 2}, {"batch": 2}, {"batch": "amount"}, {"word": "read"}])
def test_a_change_of_a_graph_changes_it(change: dict[str, Any]) -> None:
    assert fingerprint(graph(**GRAPH)) == fingerprint(graph(**GRAPH))
    assert fingerprint(graph(**GRAPH)) != fingerprint(graph(**GRAPH | change))


def test_it_is_the_same_in_every_process() -> None:
    """Hashes of strings differ from process to process; what is stored must not."""
    code = (
        "from tests.durability import test_fingerprint as t; "
        "print(t.fingerprint(t.plain(**t.PLAIN)), t.fingerprint(t.graph(**t.GRAPH)))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] == [fingerprint(plain(**PLAIN)), fingerprint(graph(**GRAPH))]


def test_a_program_with_plain_python_cannot_be_repeated() -> None:
    @tg.table(key="id")
    class Account:
        id: int
        balance: int = 0

    @tg.transaction(compiled=False)
    def guess(account: Account) -> None:
        account.balance = hash(object())

    with pytest.raises(tg.InputError, match=r'here: log="commands" requires .* got guess, declared compiled=False'):
        require_repeatable(build_program(guess), "here")
    require_repeatable(plain(**PLAIN), "here")
