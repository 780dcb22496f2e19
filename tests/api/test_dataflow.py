"""What `tg.stream`, `tg.window`, `tg.trigger` and `tg.dataflow` make, and what they refuse, with the graph drawn."""

from __future__ import annotations

import gc
import warnings
from typing import Annotated, Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler import streams
from tidegate.compiler.program import build_program
from tidegate.testing import collecting, looking_up

# Graphs here are made of some of the steps below: a trigger that is left out is meant to be.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not list it:tidegate.TidegateWarning")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.table(key=("day", "shop"))
class Sales:
    day: int
    shop: str
    total: int = 0


paid = tg.stream("paid", account=int, amount=int, ts=int)
booked = tg.stream("booked", account=int, amount=int)
checked = tg.stream("checked", account=int)
sold = tg.stream("sold", sales=Sales, amount=int)
recent = tg.window(paid, rows=10, slide=2)


@tg.transaction(on=paid, emits=[booked])
def book(account: Account, amount: int) -> int:
    account.balance += amount
    tg.emit(booked, account=account.id, amount=amount)
    return account.balance


@tg.transaction(on=booked, emits=[checked])
def check(account: Account) -> None:
    tg.emit(checked, account=account.id)


@tg.transaction(on=checked)
def close(account: Account) -> None:
    account.balance = 0


@tg.trigger(on=booked)
def note(account: Account, amount: int) -> None:
    account.balance += 0


class TestOrder:
    def test_members_stand_in_the_order_of_the_graph_however_they_are_listed(self) -> None:
        graph = tg.dataflow([close, check, book])
        assert graph.groups == (("book",), ("check",), ("close",))
        assert graph.edges == {("book", "check"), ("check", "close")}
        assert graph.name == "paid" and [stream.name for stream in graph.borders] == ["paid"]

    def test_nested_members_are_one_group(self) -> None:
        assert tg.dataflow([book, check, close], nested=[(check, close)]).groups == (("book",), ("check", "close"))

    def test_a_trigger_belongs_to_who_emits(self) -> None:
        assert tg.dataflow([book, check, note]).groups == (("book", "note"), ("check",))

    def test_the_graph_is_drawn(self) -> None:
        assert tg.dataflow([book, check]).draw().splitlines() == [
            "    paid ──> book ──> booked",
            "    booked ──> check ──> checked",
        ]


def refused(action: Any, *words: str) -> None:
    with pytest.raises(tg.DefinitionError) as found:
        action()
    for word in words:
        assert word in str(found.value), str(found.value)


class TestRefusals:
    def test_a_circle(self) -> None:
        there, back = tg.stream("there", account=int), tg.stream("back", account=int)

        @tg.transaction(on=there, emits=[back])
        def go(account: Account) -> None:
            tg.emit(back, account=account.id)

        @tg.transaction(on=back, emits=[there])
        def come(account: Account) -> None:
            tg.emit(there, account=account.id)

        refused(lambda: tg.dataflow([book, check, close, go, come]), "circle", "there ──> go ──> back")

    def test_only_a_circle_has_no_border(self) -> None:
        loop = tg.stream("loop", account=int)

        @tg.transaction(on=loop, emits=[loop])
        def again(account: Account) -> None:
            tg.emit(loop, account=account.id)

        refused(lambda: tg.dataflow([again]), "circle")

    def test_a_stream_nobody_feeds(self) -> None:
        def declare() -> Any:
            @tg.transaction(on=paid, emits=[checked])
            def silent(account: Account) -> None:
                account.balance += 1

            return silent

        refused(declare, "silent", "never says tg.emit(checked", "nobody would feed it")
        refused(lambda: tg.dataflow([check, note, close]), "note", "no transaction emits")

    def test_two_owners_of_a_window(self) -> None:
        @tg.transaction(on=paid)
        def one(account: Account, seen: recent) -> None:  # type: ignore[valid-type]
            account.balance = len(seen)

        @tg.transaction(on=paid)
        def two(account: Account, seen: recent) -> None:  # type: ignore[valid-type]
            account.balance = len(seen)

        refused(lambda: tg.dataflow([one, two]), "two owners", "'one'", "'two'")

    def test_one_window_under_two_names(self) -> None:
        def twice() -> Any:
            @tg.transaction(on=paid)
            def f(account: Account, seen: recent, again: recent) -> None:  # type: ignore[valid-type]
                account.balance = len(seen) + len(again)

        def in_a_trigger() -> Any:
            @tg.trigger(on=recent)
            def f(account: Account, seen: recent, again: recent) -> None:  # type: ignore[valid-type]
                account.balance = len(seen) + len(again)

        for declare in (twice, in_a_trigger):
            refused(declare, "'seen' and 'again' are one window", "declare a second tg.window(...)")

    def test_windows_that_would_be_kept_under_one_name(self) -> None:
        @tg.transaction(on=paid)
        def look(account: Account, at_all: tg.window(paid, rows=2)) -> None:  # type: ignore[valid-type]
            account.balance = len(at_all)

        @tg.transaction(on=paid)
        def look_at(account: Account, all: tg.window(paid, rows=3)) -> None:  # type: ignore[valid-type]
            account.balance = len(all)

        refused(
            lambda: tg.Engine(tg.dataflow([look, look_at])), "look(at_all) and look_at(all)", "rename one of the param"
        )

    @pytest.mark.parametrize("names", [(None, None), ("one", "one"), ("one", "two")])
    def test_one_stream_in_two_dataflows(self, names: tuple[str | None, str | None]) -> None:
        @tg.transaction(on=paid)
        def also(account: Account) -> None:
            account.balance += 1

        graphs = [tg.dataflow([member], name=name) for member, name in zip((book, also), names, strict=True)]
        refused(
            lambda: tg.Engine(graphs), "'paid' belongs to two dataflows", "book>", "also>", "put their transactions"
        )

    def test_two_dataflows_of_one_name(self) -> None:
        graphs = [tg.dataflow([book], name="checked"), tg.dataflow([close])]
        refused(lambda: tg.Engine(graphs), "two dataflows are named 'checked'", "book>", "close>", "name=...")

    @pytest.mark.parametrize("field", ["committed", "reason", "result"])
    def test_a_border_field_that_is_called_like_a_part_of_the_outcome(self, field: str) -> None:
        asked = tg.stream("asked", account=int, **{field: int})

        @tg.transaction(on=asked)
        def answer(account: Account) -> None:
            account.balance += 1

        refused(
            lambda: tg.dataflow([answer]), "'asked'", f"field {field!r}", f"rename the field, for example asked_{field}"
        )

        @tg.transaction(on=paid, emits=[asked], compiled=False)
        def ask(account: Account) -> None:
            tg.emit(asked, account=account.id, **{field: 1})

        tg.dataflow([ask, answer])  # inside a graph it meets no outcome

    def test_somebody_between_the_members_of_a_group(self) -> None:
        refused(lambda: tg.dataflow([book, check, close], nested=[(book, close)]), "between", "take it into the group")

    def test_a_plain_transaction(self) -> None:
        @tg.transaction
        def plain(account: Account) -> None:
            account.balance = 1

        refused(lambda: tg.dataflow([book, plain]), "plain", "not on a stream")
        refused(lambda: tg.Engine([book]), "book", "dataflow")

    def test_a_nested_stranger(self) -> None:
        refused(lambda: tg.dataflow([book], nested=[(book, check)]), "check", "not in the list")

    @pytest.mark.parametrize("size", [0, -1, True, 1.5, "amounts", "account_"])
    def test_a_batch_that_is_none(self, size: Any) -> None:
        refused(lambda: tg.dataflow([book], atomic_batch=size), "atomic_batch")

    def test_parameters_that_the_stream_does_not_carry(self) -> None:
        def wrong_name() -> Any:
            @tg.transaction(on=booked)
            def f(konto: Account) -> None:
                konto.balance = 1

        def wrong_kind() -> Any:
            @tg.transaction(on=booked)
            def f(account: Account, amount: str) -> None:
                account.balance = 1

        def wrong_key() -> Any:
            @tg.transaction(on=booked)
            def f(account: Sales) -> None:
                account.total = 1

        def a_list() -> Any:
            @tg.transaction(on=booked)
            def f(account: list[Account]) -> None:
                account[0].balance = 1

        refused(wrong_name, "konto", "booked", "account, amount")
        refused(wrong_kind, "amount", "str")
        refused(wrong_key, "account", "Sales")
        refused(a_list, "account", "list")

    def test_emitting_what_was_not_declared_or_does_not_fit(self) -> None:
        def undeclared() -> Any:
            @tg.transaction(on=paid)
            def f(account: Account) -> None:
                tg.emit(checked, account=account.id)

        def missing() -> Any:
            @tg.transaction(on=paid, emits=[booked])
            def f(account: Account) -> None:
                tg.emit(booked, account=account.id)

        def wrong() -> Any:
            @tg.transaction(on=paid, emits=[booked])
            def f(account: Account) -> None:
                tg.emit(booked, account=account.id, amount="much")

        refused(undeclared, "checked", "emits=[checked")
        refused(missing, "booked", "account, amount")
        refused(wrong, "amount", "int", "str")

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, ("rows", "length")),
            ({"rows": 5, "time": "ts"}, ("either",)),
            ({"time": "ts"}, ("length",)),
            ({"rows": 0}, ("at least 1",)),
            ({"rows": 5, "slide": 6}, ("slides by 6",)),
            ({"time": "amounts", "length": 5}, ("amounts", "account, amount, ts")),
        ],
    )
    def test_windows_that_are_none(self, given: Any, words: tuple[str, ...]) -> None:
        refused(lambda: tg.window(paid, **given), *words)

    def test_streams_that_are_none(self) -> None:
        refused(lambda: tg.stream("two words", a=int), "two words")
        refused(lambda: tg.stream("empty"), "no fields")
        refused(lambda: tg.stream("bad", a=list), "'a'", "int, float, bool, str")

    def test_a_window_where_no_stream_is(self) -> None:
        def declare() -> Any:
            @tg.transaction
            def f(account: Account, seen: recent) -> None:  # type: ignore[valid-type]
                account.balance = 1

        refused(declare, "seen", "on a stream")

    def test_more_of_the_most_frequent_than_there_is_room_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def declare() -> Any:
            @tg.transaction(on=paid)
            def f(account: Account, w: tg.window(paid, rows=3)) -> None:  # type: ignore[valid-type]
                account.balance = len(w.top("amount", 3)) + len(w.top("ts", 3))

        monkeypatch.setattr(streams, "TOP_WORDS", 6)
        declare()
        monkeypatch.setattr(streams, "TOP_WORDS", 5)
        refused(declare, "top()", "more than 5 values")

    def test_a_sum_of_floats_is_no_int(self) -> None:
        prices = tg.stream("prices", account=int, price=float)

        def declare() -> Any:
            @tg.transaction(on=prices)
            def f(account: Account, seen: tg.window(prices, rows=3)) -> None:  # type: ignore[valid-type]
                account.balance = seen.sum("price")

        refused(declare, "Account.balance holds int, got float", "write int(...) or round(...)")


class TestAnnotatedWindows:
    def test_type_checkers_and_the_engine_read_the_same_annotation(self) -> None:
        @tg.transaction(on=booked)
        def last(account: Account, recent: Annotated[tg.WindowRows, tg.window(booked, rows=2, slide=1)]) -> None:
            account.balance = recent[-1].amount

        (window,) = last.windows.values()
        assert repr(window) == "<window over booked, rows=2, slide=1>"
        engine = tg.Engine(tg.dataflow([last]))
        engine.run(pa.table({"account": [1, 1], "amount": [5, 7]}))
        assert engine.read(Account, 1) == {"id": 1, "balance": 7}
        assert engine.scan(window)["amount"].to_pylist() == [5, 7]

    def test_what_else_is_annotated_means_nothing(self) -> None:
        @tg.transaction
        def put(account: Annotated[Account, "a row"], amounts: list[Annotated[int, "cents"]]) -> None:
            account.balance = amounts[0]

        assert [(p.name, p.many) for p in put.plan.parameters] == [("account", False), ("amounts", True)]

    def test_a_window_that_says_too_little_or_too_much(self) -> None:
        def bare() -> Any:
            @tg.transaction(on=booked)
            def f(account: Account, recent: tg.WindowRows) -> None: ...

        def of_int() -> Any:
            @tg.transaction(on=booked)
            def f(account: Account, recent: Annotated[int, tg.window(booked, rows=2)]) -> None: ...

        def two() -> Any:
            @tg.transaction(on=booked)
            def f(
                account: Account,
                recent: Annotated[tg.WindowRows, tg.window(booked, rows=2), tg.window(booked, rows=3)],
            ) -> None: ...

        advice = "write recent: Annotated[tg.WindowRows, tg.window(...)]"
        refused(bare, "'recent' does not say which window it is", advice)
        refused(of_int, "'recent' is annotated int with a window", advice)
        refused(two, "'recent' is annotated WindowRows with two windows", advice)

    def test_a_window_where_no_stream_is(self) -> None:
        def declare() -> Any:
            @tg.transaction
            def f(account: Account, recent: Annotated[tg.WindowRows, tg.window(booked, rows=2)]) -> None: ...

        refused(declare, "'recent' is a window", "on a stream")


class TestPlain:
    def test_emit_gives_to_whoever_collects(self) -> None:
        found: list[Any] = []
        with collecting(lambda stream, fields: found.append((stream.name, fields))):
            assert book(Account(3, 5), 4) == 9
        assert found == [("booked", {"account": 3, "amount": 4})]
        assert book(Account(3, 5), 4) == 9  # and nobody has to

    def test_emit_checks_its_fields(self) -> None:
        with pytest.raises(TypeError, match="account, amount"):
            tg.emit(booked, account=1)

    def test_window_rows(self) -> None:
        rows = tg.WindowRows([{"v": 3}, {"v": 1}, {"v": 3}], slid=True)
        assert (len(rows), rows.slid, rows[-1].v, [row.v for row in rows]) == (3, True, 3, [3, 1, 3])
        assert (rows.sum("v"), rows.min("v"), rows.max("v"), rows.distinct("v")) == (7, 1, 3, 2)
        assert (rows.frequency("v", 3), rows.top("v", 5), rows.top("v", 1)) == (2, [3, 1], [3])
        with pytest.raises(ValueError):
            tg.WindowRows().min("v")

    def test_lookup_asks_whoever_knows(self) -> None:
        with looking_up(lambda table, key: table(key, balance=7)):
            assert tg.lookup(Account, 3) == Account(3, balance=7)
        with pytest.raises(LookupError, match=r"testing\.rows"):
            tg.lookup(Account, 3)


class TestTriggersThatAreNotListed:
    """A trigger runs inside another transaction, so leaving it out changes what that one does."""

    def test_one_on_a_stream_is_warned_about(self) -> None:
        with pytest.warns(tg.TidegateWarning, match=r"trigger 'note' is on <stream booked.*'book'.*never runs"):
            build_program(tg.dataflow([book, check]))

    def test_one_on_a_window_is_warned_about(self) -> None:
        sliding = tg.window(paid, rows=3)

        @tg.transaction(on=paid)
        def watch(account: Account, rows: Annotated[tg.WindowRows, sliding]) -> None:
            account.balance += len(rows)

        @tg.trigger(on=sliding)
        def slid(account: Account) -> None:
            account.balance += 1

        with pytest.warns(tg.TidegateWarning, match="trigger 'slid' is on <window over paid"):
            build_program(tg.dataflow([watch]))
        with warnings.catch_warnings(action="error"):
            build_program(tg.dataflow([watch, slid]))

    def test_one_that_could_not_run_in_the_dataflow_is_no_matter(self) -> None:
        with warnings.catch_warnings(action="error"):
            build_program(tg.dataflow([check, close]))

    def test_one_that_is_declared_again_replaces_the_earlier_one_and_one_that_is_gone_is_forgotten(self) -> None:
        made = tg.stream("made", account=int)

        @tg.transaction(on=paid, emits=[made])
        def make(account: Account) -> None:
            tg.emit(made, account=account.id)

        def declare() -> tg.Transaction:
            @tg.trigger(on=made)
            def tell(account: Account) -> None:
                account.balance += 1

            return tell

        first = declare()
        second = declare()  # as when a notebook's cell runs again
        with warnings.catch_warnings(action="error"):
            build_program(tg.dataflow([make, second]))
            build_program(tg.dataflow([make, first]))
        del first, second
        gc.collect()
        with warnings.catch_warnings(action="error"):
            build_program(tg.dataflow([make]))
