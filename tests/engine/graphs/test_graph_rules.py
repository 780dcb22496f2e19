"""Rules of `docs/graphs.md` that are easily misread; the scripts in `tests/golden` test the others."""

from __future__ import annotations

import itertools
import math
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.embedding import Engine  # at once: what is first imported where nothing is compiled, stays so

pytestmark = pytest.mark.usefixtures("plainly")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    notes: int = 0


orders = tg.stream("orders", account=int, amount=int, ts=int, price=float)
booked = tg.stream("booked", account=int, amount=int, ts=int)
by_rows = tg.window(orders, rows=4, slide=2)
by_time = tg.window(orders, time="ts", length=20, slide=10)


@tg.transaction(on=orders)
def count_rows(account: Account, seen: by_rows) -> int:  # type: ignore[valid-type]
    return len(seen) + (100 if seen.slid else 0)


@tg.transaction(on=orders)
def count_time(account: Account, seen: by_time) -> int:  # type: ignore[valid-type]
    return len(seen) + (100 if seen.slid else 0)


@tg.transaction(on=orders)
def book(account: Account, amount: int) -> int:
    account.balance += amount
    return account.balance


def events(amounts: list[Any], ts: list[Any] | None = None, price: list[Any] | None = None) -> pa.Table:
    count = len(amounts)
    return pa.table(
        {
            "account": [1] * count,
            "amount": pa.array(amounts, pa.int64()),
            "ts": pa.array(ts if ts is not None else [0] * count, pa.int64()),
            "price": pa.array(price if price is not None else [0.0] * count, pa.float64()),
        }
    )


class TestWindowsByRows:
    def test_slide_before_they_are_full_and_show_the_tuple_that_made_them_slide(self) -> None:
        with Engine(tg.dataflow([count_rows])) as engine:
            found = engine.run(events([1, 2, 3, 4, 5, 6]))["result"].to_pylist()
            assert found == [0, 102, 2, 104, 4, 104]
            assert engine.scan(by_rows)["amount"].to_pylist() == [3, 4, 5, 6]

    def test_staged_rows_show_when_it_slides_and_not_before(self) -> None:
        with Engine(tg.dataflow([count_rows])) as engine:
            shown = []
            for amount in range(1, 6):
                engine.run(events([amount]))
                shown.append(engine.scan(by_rows)["amount"].to_pylist())
            assert shown == [[], [1, 2], [1, 2], [1, 2, 3, 4], [1, 2, 3, 4]]


class TestWindowsByTime:
    def play(self, times: list[int]) -> list[tuple[int, list[int]]]:
        """For each time: what the transaction returned, and the times that are visible then."""
        with Engine(tg.dataflow([count_time])) as engine:
            return [
                (engine.run(events([0], [ts]))["result"].to_pylist()[0], engine.scan(by_time)["ts"].to_pylist())
                for ts in times
            ]

    def test_are_cut_at_multiples_of_slide_whenever_the_first_tuple_came(self) -> None:
        assert self.play([7, 9, 10, 19, 20]) == [
            (0, []),
            (0, []),
            (102, [7, 9]),  # the cut is 10: all before it show, the tuple at 10 itself does not
            (2, [7, 9]),
            (104, [7, 9, 10, 19]),
        ]

    def test_are_cut_alike_before_zero(self) -> None:
        assert self.play([-11, -10, -1, 0]) == [(0, []), (101, [-11]), (1, [-11]), (103, [-11, -10, -1])]

    def test_hold_what_came_within_their_length_before_the_cut(self) -> None:
        assert self.play([0, 9, 10, 19, 20, 30])[-1] == (103, [10, 19, 20])

    def test_take_a_late_tuple_as_of_the_latest_time_seen(self) -> None:
        """The tuple of time 1 comes when it is 25: it shows and leaves with that one, and still says 1."""
        assert self.play([5, 25, 1, 30, 50]) == [(0, []), (101, [5]), (1, [5]), (102, [25, 1]), (101, [30])]

    def test_show_what_was_staged_once_even_after_a_long_pause(self) -> None:
        assert self.play([5, 1000, 1010]) == [(0, []), (101, [5]), (101, [1000])]


class TestTriggers:
    def test_on_a_stream_run_behind_all_tuples_of_their_transaction_and_before_the_next_one(self) -> None:
        ran: list[str] = []

        @tg.transaction(on=orders, emits=[booked], compiled=False)
        def take(account: Account, amount: int, ts: int) -> None:
            ran.append(f"take {amount}")
            tg.emit(booked, account=account.id, amount=amount, ts=ts)

        @tg.transaction(on=booked, compiled=False)
        def follow(account: Account, amount: int) -> None:
            ran.append(f"follow {amount}")

        @tg.trigger(on=booked, compiled=False)
        def check(account: Account, amount: int) -> None:
            ran.append(f"check {amount}")

        with Engine(tg.dataflow([take, follow, check], atomic_batch=2)) as engine:
            engine.run(events([1, 2]))
        assert ran == ["take 1", "take 2", "check 1", "check 2", "follow 1", "follow 2"]

    def test_on_a_window_run_before_the_body_of_the_tuple_that_made_it_slide(self) -> None:
        ran: list[str] = []

        @tg.transaction(on=orders, compiled=False)
        def take(account: Account, amount: int, seen: by_rows) -> None:  # type: ignore[valid-type]
            ran.append(f"take {amount}, {len(seen)} rows")

        @tg.trigger(on=by_rows, compiled=False)
        def slid(account: Account, amount: int, seen: by_rows) -> None:  # type: ignore[valid-type]
            ran.append(f"slid {amount}, {len(seen)} rows")

        with Engine(tg.dataflow([take, slid], atomic_batch=2)) as engine:
            engine.run(events([1, 2]))
        assert ran == ["take 1, 0 rows", "slid 2, 2 rows", "take 2, 2 rows"]


@tg.transaction(on=orders)
def refuse_small(account: Account, amount: int) -> None:
    tg.require(amount >= 10, "too small")
    account.notes += 1


@tg.transaction(on=orders)
def refuse_odd(account: Account, amount: int) -> None:
    tg.require(amount % 2 == 0, "odd")
    account.notes += 100


class TestSeveralTransactionsOnOneStream:
    MEMBERS = (book, refuse_small, refuse_odd)

    def test_an_event_reads_the_first_that_aborted_and_the_others_stay(self) -> None:
        with Engine(tg.dataflow(self.MEMBERS)) as engine:
            found = engine.run(events([10, 2, 11, 3])).to_pylist()
            assert [(row["reason"], row["result"]) for row in found] == [
                (None, 10),
                ("too small", None),
                ("odd", None),
                ("too small", None),
            ]
            assert engine.read(Account, 1) == {"id": 1, "balance": 26, "notes": 2 + 200}

    def test_nested_they_are_all_or_nothing(self) -> None:
        with Engine(tg.dataflow(self.MEMBERS, nested=[self.MEMBERS])) as engine:
            found = engine.run(events([10, 2, 11, 3]))
            assert found["reason"].to_pylist() == [None, "too small", "odd", "too small"]
            assert engine.read(Account, 1) == {"id": 1, "balance": 10, "notes": 101}


class TestAtomicBatchesByAField:
    def test_nan_equals_nothing_so_each_is_a_batch_of_its_own(self) -> None:
        with Engine(tg.dataflow([book], atomic_batch="price"), record=True) as engine:
            engine.run(events([1, 2, 3, 4, 5], price=[0.5, math.nan, math.nan, 0.0, -0.0]))
            assert [(step.batch, step.tuples) for step in engine.history] == [(1, 1), (2, 1), (3, 1)]
            assert engine.scan(orders)["amount"].to_pylist() == [4, 5]

    def test_nan_that_waits_is_closed_by_nan(self, tmp_path: Path) -> None:
        graph = tg.dataflow([book], atomic_batch="price")
        for amount, wanted in ((1, []), (2, [1]), (3, [2])):
            with Engine(graph, directory=str(tmp_path)) as engine:
                assert engine.run(events([amount], price=[math.nan]))["amount"].to_pylist() == wanted


def test_a_null_in_a_border_field_that_no_transaction_uses_refuses_the_event() -> None:
    """`book` takes neither ts nor price; an event carries every field of its stream all the same."""
    with Engine(tg.dataflow([book])) as engine:
        found = engine.run(events([1, 2, 3], ts=[None, 0, 0], price=[0.0, None, 0.0]))
        assert found["reason"].to_pylist() == ["null in column 'ts'", "null in column 'price'", None]
        assert engine.read(Account, 1) == {"id": 1, "balance": 3, "notes": 0}


def test_output_tuples_that_nobody_took_are_there_after_any_number_of_restarts(tmp_path: Path) -> None:
    @tg.transaction(on=orders, emits=[booked])
    def take(account: Account, amount: int, ts: int) -> None:
        account.balance += amount
        tg.emit(booked, account=account.id, amount=amount, ts=ts)

    graph = tg.dataflow([take])
    for amount in (1, 2, 3):
        with Engine(graph, directory=str(tmp_path)) as engine:
            engine.run(events([amount]))
    for wanted in ([(1, 1), (2, 2), (3, 3)], []):
        with Engine(graph, directory=str(tmp_path)) as engine:
            rows = engine.take(booked).to_pylist()
            assert [(row["amount"], row["batch"]) for row in rows] == wanted


@tg.transaction
def audit(account: Account) -> int:
    return account.balance


class TestExecuteBesideRun:
    def started_in_the_first_round(self, directory: str | None, cut: int) -> set[int]:
        """What calls read that are made from another thread while the first of 50 rounds runs."""
        results: list[int] = []
        threads: list[threading.Thread] = []

        @tg.transaction(on=orders, compiled=False)
        def slowly(account: Account, amount: int) -> None:
            account.balance += amount
            if not threads:
                asked = threading.Event()
                threads.append(threading.Thread(target=ask, args=(asked,)))
                threads[0].start()
                asked.wait()

        def ask(asked: threading.Event) -> None:
            asked.set()
            results.append(engine.execute(audit, account=1).result)

        engine = Engine([tg.dataflow([slowly]), audit], directory=directory)
        table = events([1] * 50).append_column("transaction", pa.array(["orders"] * 50))
        with engine:
            for start, stop in itertools.pairwise([*range(0, 50, cut), 50]):
                engine.run(table.slice(start, stop - start))
            threads[0].join()
        return set(results)

    @pytest.mark.parametrize("kept", [False, True])
    def test_a_call_is_served_before_or_behind_a_whole_run(self, kept: bool, tmp_path: Path) -> None:
        assert self.started_in_the_first_round(str(tmp_path) if kept else None, 50) == {50}

    def test_a_call_is_served_between_the_parts_of_a_run_given_in_parts(self) -> None:
        (found,) = self.started_in_the_first_round(None, 10)
        assert found in (10, 20, 30, 40, 50)
