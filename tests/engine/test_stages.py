"""Stages of dataflow graphs: how a program is divided, and that stages side by side give the serial outcomes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine.graphs import lanes
from tidegate.engine.graphs.lanes import Pipeline, pieces_of
from tidegate.engine.state.streams import StreamState
from tidegate.foundation.jit import uncompiled
from tidegate.operations.decision import Strategy
from tidegate.operations.plan import ProgramPlan
from tidegate.testing import check_history

from ..stages_in_pieces import stages_in_pieces


@tg.table(key="id")
class Stock:
    id: int
    left: int = 0


@tg.table(key="id")
class Debt:
    id: int
    owes: int = 0
    bills: int = 0


@tg.table(key="id")
class Parcel:
    id: int
    sent: int = 0


orders = tg.stream("orders", item=int, buyer=int, count=int)
packed = tg.stream("packed", item=int, buyer=int, count=int)
billed = tg.stream("billed", buyer=int, total=int)
reminders = tg.stream("reminders", buyer=int, total=int)


@tg.transaction(on=orders, emits=[packed])
def pack(item: Stock, buyer: int, count: int) -> int:
    tg.require(item.left >= count, "sold out")
    item.left -= count
    if count > 0:
        tg.emit(packed, item=item.id, buyer=buyer, count=count)
    return item.left


@tg.transaction(on=packed, emits=[billed])
def bill(buyer: Debt, count: int, recent: tg.window(packed, rows=10, slide=3)) -> None:  # type: ignore[valid-type]
    tg.require(buyer.owes < 400, "owes too much")
    buyer.owes += 10 * count + len(recent)
    buyer.bills += 1
    tg.emit(billed, buyer=buyer.id, total=buyer.owes)


@tg.transaction(on=packed)
def send(item: Parcel, count: int) -> None:
    tg.require(count != 4, "too heavy")
    item.sent += count


@tg.transaction(on=billed, emits=[reminders])
def remind(buyer: int, total: int, month: tg.window(billed, rows=20, slide=20)) -> None:  # type: ignore[valid-type]
    if month.slid:
        tg.emit(reminders, buyer=buyer, total=month.max("total"))


@tg.transaction
def restock(item: Stock, count: int) -> int:
    item.left += count
    return item.left


@tg.transaction
def pay(buyer: Debt, count: int) -> int:
    tg.require(buyer.owes >= count, "owes less")
    buyer.owes -= count
    return buyer.owes


shop = tg.dataflow([pack, bill, send, remind])
PROGRAM = [shop, restock, pay]


def batch(count: int, seed: int, spare: float = 0.3) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = np.where(rng.random(count) < spare, rng.choice(["restock", "pay"], count), "orders")
    buyers = pa.array(rng.integers(0, 30, count), mask=rng.random(count) < 0.01)  # a null key is a refused event
    return pa.table(
        {"transaction": names, "item": rng.integers(0, 40, count), "buyer": buyers, "count": rng.integers(0, 5, count)}
    )


def answers(strategy: Strategy, workers: int, batches: list[pa.Table], program: Any = PROGRAM) -> tuple[Any, list[str]]:
    """Everything that a user can observe of a run, and the strategy of each batch."""
    seen, ran = [], []
    with tg.Engine(program, strategy=strategy, workers=workers, record=True) as engine:
        engine.load(Stock, pa.table({"id": np.arange(40), "left": np.full(40, 50)}))
        for one in batches:
            seen += [engine.run(one), engine.scan(Stock), engine.scan(Debt), engine.scan(Parcel)]
            seen += [engine.scan(bill.windows["recent"]), engine.take(reminders)]
            assert engine.last_batch is not None
            ran.append(engine.last_batch.strategy)
        history = engine.history
        assert check_history(shop, history) == []
        steps = sorted(step[1:] for step in map(tuple, history))
    return (seen, steps), ran


@pytest.fixture
def many_pieces() -> Iterator[None]:
    """Stages run side by side in small pieces, and threads are switched as often as possible."""
    with stages_in_pieces(events=7, switch_seconds=1e-6):
        yield


def hidden_look() -> None:
    """A look-up that the compiler cannot see."""
    tg.lookup(Stock, 1)


def stages_of(*parts: Any) -> list[set[str]]:
    """The names of the transactions in each stage."""
    plan = build_program(list(parts)).plan
    found = []
    for stage in plan.flows.stages:
        members = [plan.flows.members[m].transaction for g in stage.groups for m in plan.flows.group(g).members]
        found.append({plan.transactions[number].name for number in (*members, *stage.transactions)})
    return found


class TestWhichThereAre:
    def test_parts_that_share_no_table(self) -> None:
        assert stages_of(shop) == [{"pack"}, {"bill"}, {"send"}, {"remind"}]

    def test_plain_transactions_belong_to_who_has_their_tables(self) -> None:
        assert stages_of(*PROGRAM) == [{"pack", "restock"}, {"bill", "pay"}, {"send"}, {"remind"}]

    def test_a_plain_transaction_over_two_of_them_joins_them(self) -> None:
        @tg.transaction
        def settle(item: Stock, buyer: Debt) -> None:
            item.left += buyer.bills

        assert stages_of(shop, settle) == [{"pack", "bill", "settle"}, {"send"}, {"remind"}]

    def test_a_way_there_and_back_joins_all_on_it(self) -> None:
        back = tg.stream("back", item=int)

        @tg.transaction(on=packed, emits=[back])
        def weigh(item: Parcel) -> None:
            item.sent += 1
            tg.emit(back, item=item.id)

        @tg.transaction(on=back)
        def put_back(item: Stock) -> None:
            item.left += 1

        there_and_back = tg.dataflow([pack, weigh, put_back])
        assert stages_of(there_and_back) == [{"pack", "weigh", "put_back"}]

    def test_a_nested_group_is_one(self) -> None:
        nested = tg.dataflow([pack, bill, send, remind], nested=[(pack, bill)])
        assert stages_of(nested) == [{"pack", "bill"}, {"send"}, {"remind"}]

    def test_two_on_one_border_are_one_because_either_decides_its_events(self) -> None:
        @tg.transaction(on=orders)
        def audit(buyer: Debt, count: int) -> None:
            tg.require(count < 4, "audited")
            buyer.bills += 1

        assert stages_of(tg.dataflow([pack, audit, send])) == [{"pack", "audit"}, {"send"}]

    def test_who_emits_into_one_stream_is_one_because_tuples_have_an_order(self) -> None:
        @tg.transaction(on=packed, emits=[billed])
        def gift(item: Parcel, buyer: int) -> None:
            item.sent += 1
            tg.emit(billed, buyer=buyer, total=0)

        assert stages_of(tg.dataflow([pack, bill, gift, remind])) == [{"pack"}, {"bill", "gift"}, {"remind"}]


class TestSideBySide:
    @pytest.mark.usefixtures("many_pieces")
    @pytest.mark.parametrize("workers", [2, 3, 8])
    @pytest.mark.parametrize("strategy", ["lock", tg.Decision(), "adaptive"], ids=str)
    def test_the_answers_are_those_of_the_serial_walk(self, strategy: Strategy, workers: int) -> None:
        batches = [batch(count, seed) for seed, count in enumerate((500, 1, 0, 700))]
        wanted, alone = answers("serial", 1, batches)
        found, ran = answers(strategy, workers, batches)
        assert found == wanted
        assert set(alone) == {"serial"} and "stages" in ran

    @pytest.mark.usefixtures("many_pieces")
    @pytest.mark.parametrize("size", [1, 2, 3, "count"])
    def test_with_atomic_batches_that_span_pieces_and_runs(self, size: int | str) -> None:
        program = [tg.dataflow([pack, bill, send, remind], atomic_batch=size), restock, pay]
        batches = [batch(count, seed, spare=0.5) for seed, count in enumerate((100, 37, 200))]
        with uncompiled():
            (wanted, _), (found, _) = answers("serial", 1, batches, program), answers("mvlk", 3, batches, program)
        assert found == wanted

    @pytest.mark.usefixtures("many_pieces")
    @pytest.mark.parametrize("times", [10, pytest.param(1_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
    def test_many_times(self, times: int) -> None:
        """Machine code without the GIL, in many pieces: what a race could break, it would break here."""
        batches = [batch(3_000, 1)]
        wanted, _ = answers("serial", 1, batches)
        for turn in range(times):
            assert answers("lock", 2 + 2 * (turn % 2), batches)[0] == wanted

    def test_steps_are_kept_in_the_order_in_which_they_happened(self, many_pieces: None) -> None:
        with tg.Engine(PROGRAM, strategy="lock", workers=2, record=True) as engine:
            engine.load(Stock, pa.table({"id": np.arange(40), "left": np.full(40, 10**9)}))
            engine.run(batch(4_000, 3, spare=0.0))
            rounds = [step.batch for step in engine.history if step.transaction == "send"]
            order = [step.transaction for step in engine.history]
        assert rounds == sorted(rounds)
        first_sent = order.index("send")
        assert "pack" in order[first_sent:] and "pack" in order[:first_sent]  # neither waited for all of the other

    def test_small_batches_and_one_worker_are_not_worth_it(self) -> None:
        for workers, count in ((2, 100), (1, 5_000)):
            _, ran = answers("lock", workers, [batch(count, 0)])
            assert ran == ["serial"]

    @pytest.mark.usefixtures("many_pieces")
    def test_a_stage_of_plain_python_beside_machine_code(self) -> None:
        @tg.transaction(on=packed, compiled=False)
        def post(item: Parcel, count: int) -> None:
            tg.require(count != 4, f"too heavy: {count}")
            item.sent += count

        program = [tg.dataflow([pack, bill, post]), restock, pay]
        seen = []
        ways: list[tuple[Strategy, int]] = [("serial", 1), ("lock", 3)]
        for strategy, workers in ways:
            with tg.Engine(program, strategy=strategy, workers=workers) as engine:
                engine.load(Stock, pa.table({"id": np.arange(40), "left": np.full(40, 100)}))
                seen.append([engine.run(batch(400, 5)), engine.scan(Parcel), engine.scan(Debt)])
                assert engine.last_batch is not None and engine.last_batch.interpreted > 100
        assert seen[0] == seen[1]

    @pytest.mark.usefixtures("many_pieces")
    def test_an_error_of_the_program_ends_all_stages(self) -> None:
        @tg.transaction(on=packed, compiled=False)
        def broken(item: Parcel, count: int) -> None:
            item.sent += 1
            if item.sent > 3:
                hidden_look()  # no look-ups in plain Python: the program is at fault

        program = [tg.dataflow([pack, bill, broken])]
        with uncompiled(), tg.Engine(program, strategy="lock", workers=2) as engine:
            engine.load(Stock, pa.table({"id": np.arange(40), "left": np.full(40, 100)}))
            before = set(threading.enumerate())
            with pytest.raises(tg.DefinitionError, match="lookup"):
                engine.run(batch(2_000, 0, spare=0.0).drop(["transaction"]))
            assert len(set(threading.enumerate()) - before) <= 2  # the engine's workers


BEFORE = [[], [0], [0], [1]]


def plan_and_streams() -> tuple[ProgramPlan, list[StreamState]]:
    plan = build_program(PROGRAM).plan
    return plan, [StreamState(s, output) for s, output in zip(plan.flows.streams, plan.flows.outputs, strict=True)]


class TestPipeline:
    def test_a_lane_follows_those_that_it_takes_streams_from(self) -> None:
        plan, streams = plan_and_streams()
        walked = [lanes.Lane(plan, streams, stage) for stage in range(4)]
        assert [lane.givers(walked) for lane in walked] == BEFORE

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_every_piece_of_every_lane_once_and_behind_those_before_it(self, workers: int) -> None:
        ran: list[tuple[int, int]] = []
        pipeline = Pipeline(BEFORE, 20, lambda lane, piece: ran.append((lane, piece)))
        threads = [threading.Thread(target=pipeline.work, args=(n,)) for n in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ran) == [(lane, piece) for lane in range(4) for piece in range(20)]
        place = {task: position for position, task in enumerate(ran)}
        for piece in range(20):
            assert place[0, piece] < min(place[1, piece], place[2, piece]) and place[1, piece] < place[3, piece]

    def test_a_worker_that_fails_stops_all(self) -> None:
        def fail(lane: int, piece: int) -> None:
            if (lane, piece) == (1, 3):
                raise RuntimeError("broken")

        pipeline = Pipeline(BEFORE, 100, fail)
        with pytest.raises(RuntimeError, match="broken"):
            pipeline.work(0)
        pipeline.work(1)  # comes back at once

    @pytest.mark.parametrize("events", [0, 1, 511, 512, 513, 100_000])
    def test_pieces_are_the_whole(self, events: int) -> None:
        stops = pieces_of(events, 32, 512)
        assert stops[-1] == events and list(stops) == sorted(set(stops))
        assert len(stops) <= 33


def test_a_lane_of_all_stages_gives_and_takes_nothing() -> None:
    plan, streams = plan_and_streams()
    whole = lanes.Lane(plan, streams, None)
    assert whole.mine.all() and set(whole.roles) == {0}
    assert whole.spans and all(span is streams[number].span for number, span in whole.spans.items())
