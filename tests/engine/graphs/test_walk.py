"""Dataflow graphs on the engine: rounds, groups, triggers, windows, waiting, outputs, look-ups; compiled and not."""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.engine import core
from tidegate.foundation.jit import uncompiled
from tidegate.testing import PlainProgram, check_history
from tidegate.workloads import leaderboard as board


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    notes: int = 0


orders = tg.stream("orders", account=int, amount=int, ts=int)
booked = tg.stream("booked", account=int, amount=int, ts=int)
alarms = tg.stream("alarms", account=int, total=int)
last_five = tg.window(booked, rows=5, slide=2)


@tg.transaction(on=orders, emits=[booked])
def book(account: Account, amount: int, ts: int) -> int:
    tg.require(amount != 13, "bad luck")
    account.balance += amount
    tg.emit(booked, account=account.id, amount=amount, ts=ts)
    return account.balance


@tg.trigger(on=last_five)
def count_slides(account: Account, seen: last_five) -> None:  # type: ignore[valid-type]
    account.notes += 100 * len(seen)


@tg.trigger(on=booked)
def refuse_large(account: Account, amount: int) -> None:
    tg.require(amount < 1_000, "too much at once")
    account.notes += 1


@tg.transaction(on=booked, emits=[alarms])
def watch(account: Account, amount: int, seen: last_five) -> None:  # type: ignore[valid-type]
    tg.require(amount != 77, "cannot be watched")
    if seen.slid and seen.sum("amount") > 100:
        tg.emit(alarms, account=account.id, total=seen.sum("amount"))


@tg.transaction
def audit(account: Account) -> int:
    return account.balance


GRAPH = [book, refuse_large, watch, count_slides]


def events(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table(
        {
            "transaction": ["audit" if len(row) == 1 else "orders" for row in rows],
            "account": [row[0] for row in rows],
            "amount": pa.array([row[1] if len(row) > 1 else None for row in rows], pa.int64()),
            "ts": pa.array([row[2] if len(row) > 2 else None for row in rows], pa.int64()),
        }
    )


def outcomes(table: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["committed"], row["reason"], row["result"]) for row in table.to_pylist()]


def balances(engine: tg.Engine) -> dict[int, tuple[int, int]]:
    return {row["id"]: (row["balance"], row["notes"]) for row in engine.scan(Account).to_pylist()}


@pytest.mark.usefixtures("mode")
class TestRounds:
    def test_a_round_runs_before_the_next_event(self) -> None:
        with tg.Engine([tg.dataflow(GRAPH), audit], record=True) as engine:
            found = engine.run(events((1, 5, 0), (1,), (1, 13, 1), (1, 2_000, 2), (1, 7, 3), (1,)))
            assert outcomes(found) == [
                (True, None, 5),
                (True, None, 5),
                (False, "bad luck", None),
                (
                    False,
                    "rolled back by refuse_large: too much at once",
                    None,
                ),  # the trigger is a part of the transaction that emits
                (True, None, 12),
                (True, None, 12),
            ]
            assert balances(engine) == {1: (12, 2 + 100 * 2)}
            assert not check_history(tg.dataflow(GRAPH), engine.history)
            assert [(step.transaction, step.batch, step.committed) for step in engine.history][:4] == [
                ("book", 1, True),
                ("refuse_large", 1, True),
                ("watch", 1, True),
                ("audit", 0, True),
            ]
            assert [(step.transaction, step.reason) for step in engine.history if not step.committed] == [
                ("book", "bad luck"),
                ("book", "rolled back by refuse_large: too much at once"),
                ("refuse_large", "too much at once"),
            ]
            assert engine.last_batch is not None
            assert engine.last_batch.interior_aborts == {"refuse_large": {"too much at once": 1}}
            assert engine.last_batch.aborted == {
                "bad luck": 1,
                "rolled back by refuse_large: too much at once": 1,
            }

    def test_an_interior_abort_is_counted_and_has_its_reason_in_the_history(self) -> None:
        with tg.Engine([tg.dataflow(GRAPH), audit], record=True) as engine:
            found = engine.run(events((1, 77, 0), (2, 9, 1), (2, 77, 2)))
            assert outcomes(found) == [(True, None, 77), (True, None, 9), (True, None, 86)]  # each border stays
            assert engine.last_batch is not None and engine.last_batch.aborted == {}
            assert engine.last_batch.interior_aborts == {"watch": {"cannot be watched": 2}}
            assert "interior_aborts={'watch': {'cannot be watched': 2}}" in str(engine.last_batch)
            aborted = [step for step in engine.history if not step.committed]
            assert [(step.transaction, step.batch, step.reason) for step in aborted] == [
                ("watch", 1, "cannot be watched"),
                ("watch", 3, "cannot be watched"),
                ("count_slides", 3, "rolled back by watch: cannot be watched"),
            ]
            engine.run(events((2, 9, 3)))
            assert engine.last_batch.interior_aborts == {}

    def test_an_interior_abort_leaves_what_came_before(self) -> None:
        with tg.Engine([tg.dataflow(GRAPH), audit], record=True) as engine:
            found = engine.run(events((1, 77, 0), (2, 9, 1)))
            assert outcomes(found) == [(True, None, 77), (True, None, 9)]
            assert engine.scan(last_five).num_rows == 0  # one of the two never entered, so nothing slid
            assert balances(engine) == {1: (77, 1), 2: (9, 1)}

    @pytest.mark.usefixtures("plainly")
    def test_nested_is_all_or_nothing(self) -> None:
        graph = tg.dataflow(GRAPH, nested=[(book, watch)])
        with tg.Engine([graph]) as engine:
            found = engine.run(events((1, 77, 0), (2, 9, 1)).drop_columns(["transaction"]))
            assert outcomes(found) == [(False, "rolled back by watch: cannot be watched", None), (True, None, 9)]
            assert balances(engine) == {2: (9, 1)}
            assert engine.last_batch is not None
            assert engine.last_batch.interior_aborts == {"watch": {"cannot be watched": 1}}

    def test_outputs_wait_until_they_are_taken(self) -> None:
        with tg.Engine([tg.dataflow(GRAPH), audit], record=True) as engine:
            engine.run(events(*((n % 3, 30, n) for n in range(8))))
            assert engine.scan(alarms).num_rows == 3
            assert engine.take(alarms).to_pylist() == [
                {"account": 0, "total": 120, "batch": 4},
                {"account": 2, "total": 150, "batch": 6},
                {"account": 1, "total": 150, "batch": 8},
            ]
            assert engine.take(alarms).num_rows == 0
            with pytest.raises(tg.InputError, match="consumed"):
                engine.take(booked)


@pytest.mark.usefixtures("plainly")
class TestAtomicBatches:
    @pytest.mark.parametrize("cuts", [(0, 7), (0, 1, 2, 3, 4, 5, 6, 7), (0, 2, 5, 7)])
    def test_by_count_whatever_the_calls(self, cuts: tuple[int, ...]) -> None:
        """Three at a time: the second batch holds a 13, so all of it aborts; the seventh event waits."""
        table = events((1, 1, 0), (2, 2, 0), (1, 3, 0), (3, 4, 0), (3, 13, 0), (1, 5, 0), (2, 6, 0))
        table = table.drop_columns(["transaction"])
        with tg.Engine(tg.dataflow(GRAPH, atomic_batch=3)) as engine:
            parts = [engine.run(table.slice(a, b - a)) for a, b in itertools.pairwise(cuts)]
            found = outcomes(pa.concat_tables(parts))
            assert found == [(True, None, 1), (True, None, 2), (True, None, 4)] + [(False, "bad luck", None)] * 3
            assert engine.scan(orders).to_pylist() == [{"account": 2, "amount": 6, "ts": 0}]
            assert {key: balance for key, (balance, _) in balances(engine).items()} == {1: 4, 2: 2}

    def test_by_a_field(self) -> None:
        table = events((1, 1, 7), (1, 2, 7), (1, 13, 8), (1, 4, 8), (1, 5, 9)).drop_columns(["transaction"])
        with tg.Engine(tg.dataflow(GRAPH, atomic_batch="ts"), record=True) as engine:
            found = outcomes(engine.run(table))
            assert found == [(True, None, 1), (True, None, 3), (False, "bad luck", None), (False, "bad luck", None)]
            assert engine.scan(orders).num_rows == 1
            assert [(s.batch, s.tuples) for s in engine.history if s.transaction == "book"] == [(1, 2), (2, 1)]

    def test_a_refused_event_takes_no_place_in_a_batch(self) -> None:
        table = events((1, 1, 0), (None, 2, 0), (1, 3, 0)).drop_columns(["transaction"])
        with tg.Engine(tg.dataflow(GRAPH, atomic_batch=2)) as engine:
            assert outcomes(engine.run(table)) == [
                (True, None, 1),
                (False, "null key in column 'account'", None),
                (True, None, 4),
            ]


numbers = tg.stream("numbers", account=int, v=int, at=int, text=str, price=float)


@tg.transaction(on=numbers)
def by_rows(account: Account, v: int, w: tg.window(numbers, rows=7, slide=3)) -> str:  # type: ignore[valid-type]
    account.notes += 1
    tg.require(v % 5 != 4, "odd one out")
    total = 0
    for row in w:
        total += row.v
    tg.require(total == w.sum("v"), "sums differ")
    account.balance = total + len(w)
    best = w.top("v", 2)
    if len(best) > 1:
        account.balance += 10 * best[0] + best[1] + w.frequency("v", best[0])
    if len(w) > 0:
        account.balance += 1000 * w.max("v") + w.min("v") + w.distinct("text") + int(w[0].price + w[-1].price)
        return w[-1].text
    return "empty"


@tg.transaction(on=numbers)
def by_time(account: Account, w: tg.window(numbers, time="at", length=20, slide=5)) -> None:  # type: ignore[valid-type]
    account.notes += 1000 * len(w) + (1_000_000 if w.slid else 0)


def number_events(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "account": rng.integers(0, 4, count),
            "v": rng.integers(-9, 10, count),
            "at": np.cumsum(rng.integers(-1, 4, count)),
            "text": rng.choice(["a", "b", "c"], count),
            "price": rng.random(count).round(2),
        }
    )


def naive(table: pa.Table) -> tuple[list[Any], dict[int, tuple[int, int]]]:
    """The two transactions over plain lists."""
    rows: dict[int, list[int]] = {}
    found, visible, staged = [], [], []  # type: ignore[var-annotated]
    timed: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    boundary, latest = None, None
    for event in table.to_pylist():
        keep = (list(visible), list(staged))
        staged.append(event)
        if len(staged) == 3:
            visible, staged = (visible + staged)[-7:], []
        if event["v"] % 5 == 4:
            visible, staged = keep
            found.append((False, "odd one out", None))
        else:
            row = rows.setdefault(event["account"], [0, 0])
            row[1] += 1
            plain = tg.WindowRows(visible)
            row[0] = plain.sum("v") + len(plain)
            best = plain.top("v", 2)
            if len(best) > 1:
                row[0] += 10 * best[0] + best[1] + plain.frequency("v", best[0])
            text = "empty"
            if visible:
                row[0] += 1000 * plain.max("v") + plain.min("v") + plain.distinct("text")
                row[0] += int(visible[0]["price"] + visible[-1]["price"])
                text = visible[-1]["text"]
            found.append((True, None, text))
        now = event["at"] if latest is None else max(event["at"], latest)
        latest, slid = now, False
        if boundary is None:
            boundary = now // 5 * 5
        elif now // 5 * 5 > boundary:
            boundary, slid = now // 5 * 5, True
            timed = [row for row in timed + waiting if row["time"] >= boundary - 20]
            waiting = []
        waiting.append({"time": now})
        rows.setdefault(event["account"], [0, 0])[1] += 1000 * len(timed) + (1_000_000 if slid else 0)
    return found, {key: (balance, notes) for key, (balance, notes) in sorted(rows.items())}


@pytest.mark.usefixtures("mode")
def test_windows_of_both_kinds_equal_plain_lists() -> None:
    with tg.Engine(tg.dataflow([by_rows, by_time])) as engine:
        for seed, count in enumerate((1, 2, 60, 500)):
            table = number_events(count, seed)
            with tg.Engine(tg.dataflow([by_rows, by_time])) as engine:
                wanted, rows = naive(table)
                half = outcomes(engine.run(table.slice(0, count // 2)))
                assert half + outcomes(engine.run(table.slice(count // 2))) == wanted
                assert balances(engine) == rows


@pytest.mark.usefixtures("plainly")
class TestPlainPython:
    def test_a_group_with_an_interpreted_member_is_the_same(self) -> None:
        @tg.transaction(on=booked, emits=[alarms], compiled=False)
        def watch_plainly(account: Account, amount: int, seen: last_five) -> None:  # type: ignore[valid-type]
            tg.require(amount != 77, "cannot be watched")
            if seen.slid and seen.sum("amount") > 100:
                tg.emit(alarms, account=account.id, total=seen.sum("amount"))

        table = events(*((n % 3, (30, 77, 13)[n % 7 % 3], n) for n in range(40))).drop_columns(["transaction"])
        found = []
        for member in (watch, watch_plainly):
            graph = tg.dataflow([book, refuse_large, member, count_slides], nested=[(book, member)])
            with tg.Engine(graph) as engine:
                name = member.__name__
                result = [
                    (committed, reason and reason.replace(name, "watch"), value)
                    for committed, reason, value in outcomes(engine.run(table))
                ]
                assert engine.last_batch is not None
                assert engine.last_batch.interior_aborts == {name: {"cannot be watched": 12}}
                found.append(
                    (result, balances(engine), engine.take(alarms).to_pylist(), engine.scan(last_five).to_pylist())
                )
                assert (engine.last_batch is not None) and (engine.last_batch.interpreted > 0) == (member is not watch)
        assert found[0] == found[1]

    def test_an_integer_that_leaves_64_bits(self) -> None:
        with tg.Engine(tg.dataflow(GRAPH)) as engine:
            engine.load(Account, pa.table({"id": [1], "balance": [2**63 - 5]}))
            found = engine.run(events((1, 3, 0), (1, 9, 1), (1, 1, 2)).drop_columns(["transaction"]))
            assert outcomes(found) == [(True, None, 2**63 - 2), (False, "overflow", None), (True, None, 2**63 - 1)]


@tg.table(key="name")
class Person:
    name: str
    friend: str = ""
    coins: int = 0


@tg.transaction
def pass_on(person: Person, coins: int, steps: int) -> int:
    """Give coins to a friend's friend's friend: who that is, only the rows know."""
    giver = person
    for _ in range(steps):
        tg.require(giver.exists, "nobody there")
        giver = tg.lookup(Person, giver.friend)
    tg.require(person.coins >= coins, "not enough")
    person.coins -= coins
    giver.coins += coins
    return giver.coins


@tg.transaction
def befriend(person: Person, friend: str, coins: int) -> None:
    person.friend = friend
    person.coins += coins


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("seed", range(3))
def test_look_ups_equal_the_plain_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 400
    names = np.array(["ann", "bob", "cid", "dee", ""])
    table = pa.table(
        {
            "transaction": rng.choice(["pass_on", "befriend"], count),
            "person": rng.choice(names, count),
            "friend": rng.choice(names, count),
            "coins": rng.integers(-3, 9, count),
            "steps": rng.integers(0, 4, count),
        }
    )
    plain = PlainProgram([pass_on, befriend])
    with tg.Engine([pass_on, befriend]) as engine:
        found = outcomes(engine.run(table.slice(0, 150))) + outcomes(engine.run(table.slice(150)))
        assert found == [(o.committed, o.reason, o.result) for o in plain.run(table)]
        assert engine.scan(Person).to_pylist() == plain.rows(Person)
        wanted = plain.execute({"transaction": "pass_on", "person": "ann", "coins": 1, "steps": 2})
        assert engine.execute(pass_on, person="ann", coins=1, steps=2) == wanted
        assert engine.scan(Person).to_pylist() == plain.rows(Person)


def look_up_for(name: str) -> Any:
    """A helper that a compiled body would take in."""
    return tg.lookup(Person, name)


class TestLookUpsInPlainPython:
    """Nobody would note what plain Python writes to rows that it finds on its own: it may not find any."""

    def test_are_refused_where_they_stand(self) -> None:
        with pytest.raises(tg.DefinitionError, match="lookup needs a compiled body"):

            @tg.transaction(compiled=False)
            def direct(person: Person) -> None:
                tg.lookup(Person, "bob").coins += 1

    @pytest.mark.parametrize("beside", [[], [pass_on]], ids=["alone", "beside a graph"])
    def test_are_an_error_of_the_program_and_no_outcome_where_they_hide(self, beside: list[Any]) -> None:
        @tg.transaction(compiled=False)
        def hidden(person: Person, coins: int, steps: int) -> None:
            look_up_for("bob").coins += 1

        event = {"transaction": ["hidden"], "person": ["ann"], "coins": [1], "steps": [0]}
        with uncompiled(), tg.Engine([hidden, *beside]) as engine:
            with pytest.raises(tg.DefinitionError, match=r"hidden.*Person"):
                engine.run(pa.table(event))
            assert engine.scan(Person).num_rows == 0


def test_a_look_up_of_what_is_no_table_is_refused() -> None:
    with pytest.raises(tg.DefinitionError, match="takes a table"):

        @tg.transaction
        def wrong(person: Person) -> None:
            tg.lookup(int, 3)


texts = tg.stream("texts", account=int, text=str)
echoed = tg.stream("echoed", text=str)


@tg.transaction(on=texts, emits=[echoed])
def echo(account: Account, text: str, last: tg.window(texts, rows=3, slide=1)) -> str:  # type: ignore[valid-type]
    account.notes += last.distinct("text")
    tg.emit(echoed, text=last[0].text)
    return last[0].text


def test_strings_that_nobody_holds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of ever new strings: the pool holds those of the window and of outputs, and what they say stays."""
    monkeypatch.setattr(core, "STRINGS_KEPT", 50)
    with uncompiled(), tg.Engine(tg.dataflow([echo])) as engine:
        said = [f"text number {n}" for n in range(600)]
        for start in range(0, 600, 20):
            part = said[start : start + 20]
            found = engine.run(pa.table({"account": [1] * 20, "text": part}))["result"].to_pylist()
            assert found == [said[max(0, n - 2)] for n in range(start, start + 20)]
            if start % 100 == 80:
                assert engine.take(echoed)["text"].to_pylist() == [
                    said[max(0, n - 2)] for n in range(start - 80, start + 20)
                ]
        assert engine.scan(Account).to_pylist() == [{"id": 1, "balance": 0, "notes": 1 + 2 + 3 * 598}]
        assert len(engine._core.strings) < 400


def test_only_streams_that_need_room_grow() -> None:
    with uncompiled(), tg.Engine(tg.dataflow(GRAPH)) as engine:
        engine.run(events(*((n % 3, 30, n) for n in range(400))).drop_columns(["transaction"]))
        flows = engine._core.flows
        assert flows is not None
        sizes = {stream.layout.name: len(stream.batches) for stream in flows.streams}
        assert sizes["alarms"] >= 199 and sizes["booked"] == sizes["orders"] == 64


def test_a_window_of_somebody_else_is_not_there() -> None:
    with uncompiled(), tg.Engine(tg.dataflow(GRAPH)) as engine:
        with pytest.raises(tg.InputError, match=r"watch\.seen"):
            engine.scan(tg.window(booked, rows=3))
        with pytest.raises(tg.InputError, match="orders, booked, alarms"):
            engine.scan(numbers)


class TestKept:
    def test_a_graph_that_remembers_other_fields_is_refused(self, tmp_path: Path) -> None:
        wider = tg.stream("texts", account=int, text=str, more=int)

        @tg.transaction(on=wider)
        def echo(account: Account, last: tg.window(wider, rows=3, slide=1)) -> None:  # type: ignore[valid-type]
            account.notes += len(last)

        with uncompiled():
            with tg.Engine(tg.dataflow([globals()["echo"]]), directory=str(tmp_path / "state")) as engine:
                engine.run(pa.table({"account": [1], "text": ["a"]}))
            with pytest.raises(tg.DefinitionError, match=r"tidegate_window_echo_last.*of_more"):
                tg.Engine(tg.dataflow([echo]), directory=str(tmp_path / "state"))

    def test_windows_rounds_and_waiting_events_survive(self, tmp_path: Path) -> None:
        table = events(*((n % 3, 30 + n, n) for n in range(23))).drop_columns(["transaction"])
        graph = tg.dataflow(GRAPH, atomic_batch=4, name="kept")
        with uncompiled():
            whole = tg.Engine(graph)
            wanted = outcomes(whole.run(table))
            found = []
            for start in range(0, 23, 5):
                with tg.Engine(graph, directory=str(tmp_path / "state")) as engine:
                    found += outcomes(engine.run(table.slice(start, 5)))
            with tg.Engine(graph, directory=str(tmp_path / "state")) as engine:
                assert found == wanted
                for what in (Account, last_five, orders):
                    assert engine.scan(what).to_pylist() == whole.scan(what).to_pylist()


def test_threads_that_execute_see_whole_groups_only() -> None:
    """The graph moves money in two steps of one nested transaction: no audit may see the first without the second."""
    wires = tg.stream("wires", src=int, dst=int, amount=int)
    arrivals = tg.stream("arrivals", dst=int, amount=int)

    @tg.transaction(on=wires, emits=[arrivals])
    def send(src: Account, dst: int, amount: int) -> None:
        src.balance -= amount
        tg.emit(arrivals, dst=dst, amount=amount)

    @tg.transaction(on=arrivals)
    def arrive(dst: Account, amount: int) -> None:
        dst.balance += amount

    @tg.transaction
    def supply(one: Account, two: Account, three: Account) -> int:
        return one.balance + two.balance + three.balance

    graph = tg.dataflow([send, arrive], nested=[(send, arrive)])
    rng = np.random.default_rng(1)
    with tg.Engine([graph, supply]) as engine:
        engine.load(Account, pa.table({"id": [0, 1, 2], "balance": [100, 100, 100]}))
        seen: list[Any] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.append(engine.execute(supply, one=0, two=1, three=2).result)

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            count = 200
            engine.run(
                pa.table(
                    {
                        "transaction": ["wires"] * count,
                        "src": rng.integers(0, 3, count),
                        "dst": rng.integers(0, 3, count),
                        "amount": rng.integers(0, 9, count),
                        **{name: pa.nulls(count, pa.int64()) for name in ("one", "two", "three")},
                    }
                )
            )
        done.set()
        for thread in threads:
            thread.join()
        assert seen and set(seen) == {300}


@pytest.mark.usefixtures("plainly")
class TestLeaderboard:
    @pytest.mark.parametrize("every", [50, 400])
    def test_the_graph_is_what_a_client_comes_to_that_waits(self, every: int) -> None:
        settings = board.LeaderboardSettings(every=every, again=0.2, seed=every)
        votes = board.events(1_500, settings)
        with board.engine(settings, record=True) as graph, board.engine(settings, graph=False) as alone:
            found = outcomes(graph.run(votes))
            client = board.SynchronousClient(alone)
            wanted = [client.vote(v["phone"], v["contestant"], v["show"]) for v in votes.to_pylist()]
            assert found == [(o.committed, o.reason, o.result) for o in wanted]
            for table in (board.Contestant, board.Show, board.Board, board.Voter):
                assert graph.scan(table).to_pylist() == alone.scan(table).to_pylist()
            left = graph.scan(board.Show)["left"].to_pylist()[0]
            assert graph.take(board.removals).num_rows == left > 0
            assert not check_history(board.leaderboard, graph.history)


# --- windows of floats, and strings, in graphs ------------------------------------------------------------------------

ticks = tg.stream("ticks", shop=int, price=float, label=str)
last_prices = tg.window(ticks, rows=7, slide=2)


@tg.table(key="id")
class Shop:
    id: int
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0
    often: float = 0.0
    text: str = ""


@tg.transaction(on=ticks)
def follow(shop: Shop, price: float, label: str, seen: last_prices) -> float:  # type: ignore[valid-type]
    shop.total = seen.sum("price")
    if len(seen) > 0:
        shop.low = seen.min("price")
        shop.high = seen.max("price")
    for value in seen.top("price", 2):
        shop.often += value
    if label.startswith("x"):
        shop.text = f"{label}/{shop.total}"
    tg.require(len(label) < 4, f"{label} is {len(label)} long")
    return -seen.sum("price")


@pytest.mark.parametrize("compiled", [True, False])
def test_aggregates_of_floats_are_those_of_the_visible_rows(compiled: bool) -> None:
    """Every sum, extreme and most frequent value is what the plain function gives, with NaN, -0.0 and lost digits."""
    prices = [0.1, 1e20, -1e20, float("nan"), -0.0, 0.0, 0.0, 5e-324, float("inf"), 0.1, 0.2, 0.3, -0.0, 1.5]
    labels = ["a", "xy", "", "long", "x😀", "éé", "abcd"]
    given = [(prices[n * 5 % 14], labels[n % 7]) for n in range(70)]
    shop, visible, staged, expected = Shop(1), list[Any](), list[Any](), []
    for price, label in given:
        before = (dict(shop.__dict__), visible, list(staged))
        staged.append({"price": price, "label": label})
        slid = len(staged) == 2
        if slid:
            visible, staged = [*visible, *staged][-7:], []
        try:
            expected.append((None, follow(shop, price, label, tg.WindowRows(visible, slid))))
        except tg.Abort as aborted:
            state, visible, staged = before
            shop.__dict__.update(state)
            expected.append((aborted.reason, None))
    with contextlib.nullcontext() if compiled else uncompiled():
        engine = tg.Engine([tg.dataflow([follow])])
        columns = {"shop": [1] * 70, "price": [p for p, _ in given], "label": [label for _, label in given]}
        outcomes = engine.run(pa.table(columns))
        row = engine.read(Shop, 1)
    found = zip(outcomes["reason"].to_pylist(), outcomes["result"].to_pylist(), strict=True)
    assert [(reason, bits(result)) for reason, result in found] == [
        (reason, bits(result)) for reason, result in expected
    ]
    assert row is not None and {name: bits(value) for name, value in row.items()} == {
        name: bits(shop.__dict__[name]) for name in row
    }


def bits(value: Any) -> Any:
    """A float by its bits, as results keep it: a result is a float where the function may return an int; one NaN."""
    if isinstance(value, str) or value is None:
        return value
    return "nan" if value != value else struct.pack("<d", value)
