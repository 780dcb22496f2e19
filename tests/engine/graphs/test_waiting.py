"""Events that wait for their atomic batch: later runs are checked and bound as if nothing waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine.graphs.waiting import (  # at once: what is first imported where nothing is compiled, stays so
    Waiting,
    join,
)

pytestmark = pytest.mark.usefixtures("plainly")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key="name")
class Person:
    name: str
    friend: str = ""


orders = tg.stream("orders", account=int, amount=int)
prices = tg.stream("prices", account=int, price=float)


@tg.transaction(on=orders)
def book(account: Account, amount: int) -> int:
    account.balance += amount
    return account.balance


@tg.transaction(on=prices)
def weigh(account: Account, price: float) -> None:
    account.balance += int(price)


@tg.transaction
def audit(others: list[Account], person: Person) -> int:
    """Its columns are of no concern to orders: lists among them."""
    total = 0
    for other in others:
        total += other.balance
    return total


pairs = tg.dataflow([book], atomic_batch=2)
FIVE = pa.table({"account": [1], "amount": [5]})


def table(**columns: Any) -> pa.Table:
    return pa.table({"account": [1], **columns})


def brief(outcomes: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["amount"], row["committed"], row["result"]) for row in outcomes.to_pylist()]


BOTH = [(5, True, 5), (6, True, 11)]
NAMED = table(transaction=["orders"], amount=[6])


class TestTheNewEventsAreCheckedByThemselves:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (FIVE, NAMED),
            (table(transaction=["orders"], amount=[5]), table(amount=[6])),
            (FIVE, table(transaction=pa.array(["orders"]).dictionary_encode(), amount=[6])),
            (FIVE, table(transaction=pa.array(["orders"], pa.large_string()), amount=[6])),
            (table(transaction=pa.array(["orders"]).dictionary_encode(), amount=[5]), NAMED),
            (FIVE, table(amount=pa.array([6], pa.uint64()))),
            (table(amount=pa.array([5], pa.int8())), table(amount=pa.array([6], pa.uint64()))),
        ],
    )
    def test_names_may_come_and_go_and_numbers_may_be_of_any_width(self, first: pa.Table, second: pa.Table) -> None:
        with tg.Engine(pairs) as engine:
            assert engine.run(first).num_rows == 0
            assert brief(engine.run(second)) == BOTH

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (pa.table({"account": [1]}), "column 'amount' is missing"),
            (table(amount=["6"]), "column 'amount' has type string, required: int"),
            (table(amount=[True]), "column 'amount' has type bool, required: int"),
            (table(amount=[6.0]), "column 'amount' has type double, required: int"),
            (table(amount=pa.array([2**63], pa.uint64())), "a value that does not fit"),
            (table(transaction=[3], amount=[6]), "column 'transaction' has type int64"),
            (table(amount=[6], result=[1]), "column 'result' is what the outcome is called"),
        ],
    )
    def test_what_is_refused_is_what_is_refused_when_nothing_waits(self, bad: pa.Table, message: str) -> None:
        told = []
        for before in (0, 1):
            with tg.Engine(pairs) as engine:
                engine.run(FIVE.slice(0, before))
                with pytest.raises(tg.InputError, match=message) as error:
                    engine.run(bad)
                told.append(str(error.value))
                assert engine.scan(orders).num_rows == before
                if before:
                    assert brief(engine.run(table(amount=[6]))) == BOTH
        assert told[0] == told[1]

    def test_a_null_name_is_still_a_null_name(self) -> None:
        with tg.Engine(pairs) as engine:
            engine.run(FIVE)
            found = engine.run(table(transaction=pa.array([None], pa.string()), amount=[6]))
            assert found["reason"].to_pylist() == ["null transaction"]
            assert brief(engine.run(table(amount=[6]))) == BOTH

    def test_integers_that_a_float_cannot_hold_are_rounded_as_when_nothing_waits(self) -> None:
        large = 2**60 + 1
        for waits in (False, True):
            with tg.Engine(tg.dataflow([weigh], atomic_batch=2)) as engine:
                second = table(price=[large])
                for run in [table(price=[0.5]), second] if waits else [pa.concat_tables([second, second])]:
                    found = engine.run(run)
                assert found["committed"].to_pylist() == [True, True]
                assert engine.scan(Account)["balance"].to_pylist() == [2**60 if waits else 2**61]


class TestColumnsThatArePassedThrough:
    @pytest.mark.parametrize(
        ("first", "second", "wanted"),
        [
            (["a"], [3], ["a", "3"]),
            ([3], ["b"], ["3", "b"]),
            ([1], [2.5], [1.0, 2.5]),
            ([2**53 + 1], [2.5], ["9007199254740993", "2.5"]),
            ([True], [7], ["true", "7"]),
            (pa.array(["a"]).dictionary_encode(), ["b"], ["a", "b"]),
            (pa.array([None]), [7], [None, 7]),
            ([[1, 2]], [3], ["[1, 2]", "3"]),
            ([[1, 2]], pa.array([[3]], pa.list_(pa.int8())), [[1, 2], [3]]),
            ([b"\xff"], ["b"], [b"\xff", b"b"]),
            ([{"a": 1}], [b"\xff"], ["{'a': 1}", "b'\\xff'"]),
        ],
    )
    def test_may_change_their_type_and_lose_nothing(self, first: Any, second: Any, wanted: list[Any]) -> None:
        with tg.Engine(pairs) as engine:
            engine.run(table(amount=[5], note=first))
            found = engine.run(table(amount=[6], note=second))
            assert (found["note"].to_pylist(), brief(found)) == (wanted, BOTH)

    def test_may_come_and_go(self) -> None:
        with tg.Engine(pairs) as engine:
            engine.run(table(amount=[5], note=["a"]))
            found = engine.run(table(amount=[6], other=[1.5]))
            assert found.select(["note", "other"]).to_pylist() == [
                {"note": "a", "other": None},
                {"note": None, "other": 1.5},
            ]

    def test_outcomes_have_the_columns_of_their_own_run_where_no_event_that_waited_is_among_them(self) -> None:
        with tg.Engine([pairs, audit]) as engine:
            nobody = {"others": pa.nulls(1), "person": pa.nulls(1)}
            engine.run(table(transaction=["orders"], amount=[5], note=["a"], **nobody))
            asked = {"others": [[1]], "person": ["ann"], "account": pa.nulls(1), "amount": pa.nulls(1)}
            found = engine.run(pa.table({"transaction": ["audit"], **asked, "note": [[1]]}).drop_columns(["note"]))
            assert found.column_names == ["transaction", *asked, "committed", "reason", "result"]
            assert found["result"].to_pylist() == [0]
            found = engine.run(table(transaction=["orders"], amount=[6], **nobody))
            assert (found["note"].to_pylist(), brief(found)) == (["a", None], BOTH)

    def test_a_run_of_no_events_decides_nothing_and_changes_no_types(self) -> None:
        with tg.Engine(pairs) as engine:
            engine.run(FIVE)
            assert engine.run(pa.table({"account": pa.nulls(0), "amount": pa.nulls(0)})).num_rows == 0
            assert brief(engine.run(table(amount=[6]))) == BOTH


class TestSeveralThatWait:
    def test_they_wait_in_the_order_of_running_not_of_the_table(self) -> None:
        with tg.Engine(tg.dataflow([book], atomic_batch=4)) as engine:
            engine.run(pa.table({"account": [1, 1, 1], "amount": [30, 10, 20], "ts": [3, 1, 2]}), order_by="ts")
            assert engine.scan(orders)["amount"].to_pylist() == [10, 20, 30]
            found = engine.run(table(amount=[1], ts=[0]), order_by="ts")
            assert brief(found) == [(10, True, 10), (20, True, 30), (30, True, 60), (1, True, 61)]

    def test_each_keeps_the_shape_of_its_run(self) -> None:
        """Four in a batch, of four shapes; the events before them are of another stream, and wait as well."""
        graphs = [tg.dataflow([book], atomic_batch=4), tg.dataflow([weigh], atomic_batch=3)]
        with tg.Engine(graphs) as engine:
            other = {"price": pa.nulls(1, pa.float64())}
            engine.run(table(transaction=["prices"], price=[0.5], amount=pa.nulls(1)))
            engine.run(table(transaction=["orders"], amount=pa.array([1], pa.int8()), **other))
            engine.run(table(transaction=["orders"], amount=pa.array([2], pa.uint64()), note=["a"], **other))
            engine.run(table(transaction=["orders"], amount=[3], note=[7], **other))
            assert engine.scan(orders)["amount"].to_pylist() == [1, 2, 3]
            assert engine.scan(prices).to_pylist() == [{"account": 1, "price": 0.5}]
            found = engine.run(table(transaction=["orders"], amount=[4], **other))
            assert brief(found) == [(1, True, 1), (2, True, 3), (3, True, 6), (4, True, 10)]
            assert found["note"].to_pylist() == [None, "a", "7", None]
            assert engine.scan(orders).num_rows == 0 and engine.scan(prices).num_rows == 1

    def test_many_runs_of_equal_columns_are_kept_as_one_table(self) -> None:
        with tg.Engine(tg.dataflow([book], atomic_batch=50)) as engine:
            for number in range(49):
                engine.run(table(amount=[1]).replace_schema_metadata({"run": str(number)}))
            flows = engine._core.flows
            assert flows is not None and len(flows.waiting.tables) == 1 and len(flows.waiting) == 49
            assert engine.run(table(amount=[1])).num_rows == 50

    @pytest.mark.parametrize("recovery", ["weak", "strong"])
    def test_they_wait_through_restarts_as_they_came(self, tmp_path: Path, recovery: Any) -> None:
        graph = tg.dataflow([book], atomic_batch=3)
        parts = [FIVE, table(transaction=["orders"], amount=[6], note=["a"]), table(amount=[7], note=[3])]
        found = None
        for part in parts:
            with tg.Engine(graph, directory=str(tmp_path), recovery=recovery) as engine:
                found = engine.run(part)
        assert found is not None and brief(found) == [(5, True, 5), (6, True, 11), (7, True, 18)]
        assert found["note"].to_pylist() == [None, "a", "3"]
        assert found["transaction"].to_pylist() == [None, "orders", None]

    def test_a_program_that_has_more_to_offer_now_still_knows_whose_they_are(self, tmp_path: Path) -> None:
        with tg.Engine(pairs, directory=str(tmp_path)) as engine:
            engine.run(FIVE)
        with tg.Engine([pairs, audit], directory=str(tmp_path)) as engine:
            assert engine.scan(orders).to_pylist() == [{"account": 1, "amount": 5}]
            found = engine.run(NAMED.append_column("others", pa.nulls(1)).append_column("person", pa.nulls(1)))
            assert brief(found) == BOTH

    def test_a_stream_that_is_declared_otherwise_now_is_named(self, tmp_path: Path) -> None:
        changed = tg.stream("orders", account=int, amount=str)

        @tg.transaction(on=changed)
        def note(account: Account, amount: str) -> None:
            account.balance += 1 if amount == "x" else 2

        with tg.Engine(pairs, directory=str(tmp_path)) as engine:
            engine.run(FIVE)
        message = r"do not fit the program any more: their column 'amount' has type int64, required: str"
        with (
            tg.Engine(tg.dataflow([note], atomic_batch=2), directory=str(tmp_path)) as engine,
            pytest.raises(tg.InputError, match=message),
        ):
            engine.run(table(amount=["x"]))


def test_tables_are_packed_and_unpacked_as_they_are() -> None:
    waiting = Waiting()
    assert waiting.part(FIVE, np.array([0]), "orders").num_rows == 0
    assert waiting.part(NAMED, np.array([0, 1]), "orders").num_rows == 0
    again = Waiting.unpacked(waiting.packed(), "votes")
    assert [len(part) for part in again.tables] == [1, 1] and again.rows() == waiting.rows()
    assert [part["amount"].to_pylist() for part in again.of_stream("orders")] == [[5], [6]]
    assert join(again.tables)["transaction"].to_pylist() == [None, "orders"]
    assert len(Waiting.unpacked(Waiting().packed(), "votes")) == 0


def test_events_that_an_earlier_version_kept_without_a_name_are_those_of_the_only_stream() -> None:
    bare = pa.table({"ts": [1, 2]})
    again = Waiting.unpacked(Waiting([bare]).packed(), "votes")
    assert [table.to_pylist() for table in again.of_stream("votes")] == [bare.to_pylist()]
