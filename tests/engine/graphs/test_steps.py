"""What a trace says of each step, how steps are run again, and what becomes of records that do not fit.

That any steps of any program do, whatever the cut, is in `tests/truth/test_random_steps.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.engine import stages
from tidegate.engine.core import EngineCore
from tidegate.engine.generated import load
from tidegate.engine.graphs.steps import pack_steps, unpack_steps
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.jit import uncompiled


@tg.table(key="id")
class Stock:
    id: str
    left: int = 3


@tg.table(key="id")
class Bill:
    id: str
    total: int = 0
    text: str = ""


orders = tg.stream("orders", item=str, price=int)
packed = tg.stream("packed", item=str, price=int, share=float)
sent = tg.stream("sent", item=str, total=int)
asked: list[str] = []


@tg.transaction(on=orders, emits=[packed])
def pack(item: Stock, price: int) -> int:
    tg.require(item.left > 0, "out of stock")
    item.left -= 1
    tg.emit(packed, item=item.id, price=price, share=price / 2)
    return item.left


@tg.transaction(on=packed, emits=[sent], compiled=False)
def bill(item: Bill, price: int, share: float) -> None:
    asked.append(item.id)
    tg.require(price != 13, "an unlucky price")
    item.total += price + int(share)
    tg.emit(sent, item=item.id, total=item.total)


@tg.transaction
def write(note: Bill, word: str) -> None:
    tg.require(word != "", "nothing to write")
    note.text = word


shop = tg.dataflow([pack, bill], name="shop")
EVENTS = pa.table(
    {
        "transaction": ["orders", "write", "orders", "orders", "write", "orders", "orders"],
        "item": ["tea", None, "rum", "tea", None, "tea", "tea"],
        "price": [4, None, 13, 6, None, 8, 10],
        "note": [None, "tea", None, None, "rum", None, None],
        "word": [None, "late", None, None, "", None, None],
    }
)
STATE = {
    "Stock": [{"id": "rum", "left": 2}, {"id": "tea", "left": 0}],
    "Bill": [{"id": "tea", "total": 27, "text": "late"}],
}


def shop_core() -> EngineCore:
    return EngineCore(build_program([shop, write]))


def tables_of(core: EngineCore) -> dict[str, Any]:
    return {name: core.rows(name).to_pylist() for name in STATE}


@pytest.fixture
def plain() -> Any:
    with uncompiled():
        yield


def test_a_trace_has_what_each_step_took_in_and_why_it_aborted(plain: Any) -> None:
    core = shop_core()
    steps = unpack_steps(core.run(EVENTS, trace=True).steps)
    assert [(step.flow, step.round, step.group, step.events, step.texts, step.reason) for step in steps] == [
        (0, 1, 0, (0,), (), None),
        (0, 1, 1, (), ("tea",), None),
        (-1, 0, 2, (1,), (), None),
        (0, 2, 0, (2,), (), None),
        (0, 2, 1, (), (), "an unlucky price"),
        (0, 3, 0, (3,), (), None),
        (0, 3, 1, (), ("tea",), None),
        (-1, 0, 2, (4,), (), "nothing to write"),
        (0, 4, 0, (5,), (), None),
        (0, 4, 1, (), ("tea",), None),
        (0, 5, 0, (), (), "out of stock"),
    ]
    count, item, price, share = np.frombuffer(steps[1].inputs, np.int64)
    assert (count, item, price, np.int64(share).view(np.float64)) == (1, 0, 4, 2.0)
    assert tables_of(core) == STATE
    assert core.run(EVENTS).steps == b""


def test_a_step_runs_on_the_input_of_its_record_and_not_on_what_lies_in_the_stream(plain: Any) -> None:
    core = shop_core()
    steps = unpack_steps(core.run(EVENTS, trace=True).steps)
    words = np.frombuffer(steps[1].inputs, np.int64).copy()
    words[2] += 1_000
    steps[1] = dataclasses.replace(steps[1], inputs=words.tobytes(), texts=("ink",))
    again = shop_core()
    again.begin_replay(EVENTS)
    again.replay_steps(steps)
    again.end_replay()
    assert tables_of(again)["Bill"] == [
        {"id": "ink", "total": 1_006, "text": ""},
        {"id": "tea", "total": 21, "text": "late"},
    ]


def test_a_record_may_hold_more_tuples_than_the_stream_has_room_for(plain: Any) -> None:
    core = shop_core()
    first, second, *_ = unpack_steps(core.run(EVENTS, trace=True).steps)
    count, *tuples = np.frombuffer(second.inputs, np.int64).tolist()
    again = shop_core()
    again.begin_replay(EVENTS.slice(0, 1))
    again.replay_steps([first])
    again.replay_steps([dataclasses.replace(second, inputs=np.array([500 * count, *tuples * 500], np.int64).tobytes())])
    again.end_replay()
    assert again.rows("Bill").to_pylist() == [{"id": "tea", "total": 500 * 6, "text": ""}]


def test_steps_that_aborted_are_not_run_again_and_what_no_step_tells_of_is(plain: Any) -> None:
    core = shop_core()
    result = core.run(EVENTS, trace=True)
    steps = unpack_steps(result.steps)
    for cut, wanted in ((4, ["tea", "rum", "tea", "tea"]), (5, ["tea", "tea", "tea"]), (11, ["tea", "tea", "tea"])):
        again = shop_core()
        again.begin_replay(EVENTS)
        asked.clear()
        again.replay_steps(steps[:cut])
        assert again.end_replay().outcomes.equals(result.outcomes)
        assert asked == wanted
        assert tables_of(again) == STATE


def test_replayed_steps_start_nothing(plain: Any) -> None:
    core = shop_core()
    first = unpack_steps(core.run(EVENTS, trace=True).steps)[0]
    again = shop_core()
    again.begin_replay(EVENTS)
    asked.clear()
    again.replay_steps([first])
    assert asked == [] and again.rows("Bill").num_rows == 0
    assert again.flows is not None and again.flows.scan(again.flows.stream_number("packed")).num_rows == 1


@pytest.mark.parametrize("wrong", ["left out", "twice", "of another round", "of another event"])
def test_steps_that_do_not_fit_the_run_are_refused(plain: Any, wrong: str) -> None:
    core = shop_core()
    steps = unpack_steps(core.run(EVENTS, trace=True).steps)
    if wrong == "left out":
        del steps[2:5]
    elif wrong == "twice":
        steps.insert(3, steps[2])
    elif wrong == "of another round":
        steps[3] = dataclasses.replace(steps[3], round=7)
    else:
        steps[2] = dataclasses.replace(steps[2], events=(4,))
    again = shop_core()
    again.begin_replay(EVENTS)
    with pytest.raises(RecoveryImpossible, match="required: it comes next; got: another step comes next"):
        again.replay_steps(steps)


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": b""},
        {"inputs": b"1234567"},
        {"inputs": np.array([-1], np.int64).tobytes()},
        {"inputs": np.array([9, 0, 1, 2], np.int64).tobytes()},
        {"events": (7,)},
        {"events": (-1,)},
        {"border": 1},
        {"group": 2},
        {"flow": 1},
        {"reason": "why not"},
    ],
    ids=repr,
)
def test_records_that_cannot_be_of_this_program_are_refused_before_machine_code_reads_them(
    plain: Any, wrong: dict[str, Any]
) -> None:
    core = shop_core()
    first, second, *_ = unpack_steps(core.run(EVENTS, trace=True).steps)
    again = shop_core()
    again.begin_replay(EVENTS)
    again.replay_steps([first])
    with pytest.raises(RecoveryImpossible, match=r"does not fit this program and the 7 events of its run"):
        again.replay_steps([dataclasses.replace(second, **wrong)])


def test_a_string_that_a_record_does_not_hold_is_refused(plain: Any) -> None:
    core = shop_core()
    first, second, *_ = unpack_steps(core.run(EVENTS, trace=True).steps)
    again = shop_core()
    again.begin_replay(EVENTS)
    again.replay_steps([first])
    with pytest.raises(RecoveryImpossible, match="bill: its tuples name strings that its record does not hold"):
        again.replay_steps([dataclasses.replace(second, texts=())])


def test_a_step_that_committed_and_now_aborts_is_refused(plain: Any) -> None:
    core = shop_core()
    steps = unpack_steps(core.run(EVENTS, trace=True).steps)
    again = shop_core()
    again.load("Stock", pa.table({"id": ["tea"], "left": [0]}))
    again.begin_replay(EVENTS)
    with pytest.raises(RecoveryImpossible, match="pack: required: it commits; got: it aborts: out of stock"):
        again.replay_steps(steps)


def test_an_interpreted_step_that_committed_and_now_aborts_is_refused(plain: Any) -> None:
    core = shop_core()
    first, second, *_ = unpack_steps(core.run(EVENTS, trace=True).steps)
    words = np.frombuffer(second.inputs, np.int64).copy()
    words[2] = 13
    again = shop_core()
    again.begin_replay(EVENTS)
    again.replay_steps([first])
    with pytest.raises(RecoveryImpossible, match="bill: required: it commits; got: it aborts: an unlucky price"):
        again.replay_steps([dataclasses.replace(second, inputs=words.tobytes())])


def test_packed_steps_come_back_and_cut_ones_are_refused(plain: Any) -> None:
    core = shop_core()
    packed_steps = core.run(EVENTS, trace=True).steps
    steps = unpack_steps(packed_steps)
    assert unpack_steps(pack_steps(steps) + packed_steps) == steps + steps
    assert unpack_steps(b"") == [] and unpack_steps(pack_steps([])) == []
    for size in range(1, len(packed_steps)):
        with pytest.raises(RecoveryImpossible, match="what was packed as one must be unpacked as one"):
            unpack_steps(packed_steps[:size])


def test_traced_runs_are_walked_by_one_worker_and_come_to_the_same(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that run side by side commit in no order that a log could have; so they do not where steps are traced."""
    monkeypatch.setattr(stages, "SIDE_BY_SIDE_EVENTS", 1)
    found = []
    for trace in (False, True):
        core = EngineCore(build_program([shop]), strategy="lock", workers=2)
        result = core.run(EVENTS.filter(pc.equal(EVENTS["transaction"], "orders")), trace=trace)
        found.append((result.report.strategy, core.rows("Bill").to_pylist(), core.rows("Stock").to_pylist()))
        core.runner.workers.close()
    assert [strategy for strategy, *_ in found] == ["stages", "serial"]
    assert found[0][1:] == found[1][1:]


def test_who_traces_nothing_has_no_machine_code_for_it() -> None:
    program = build_program([shop, write])
    core = EngineCore(program)
    core.run(EVENTS)
    module = load(program.plan)
    assert module.flow.signatures and not module.traced_flow.signatures


def test_a_program_without_graphs_has_no_steps() -> None:
    with uncompiled():
        core = EngineCore(build_program([write]))
        events = EVENTS.filter(pc.equal(EVENTS["transaction"], "write"))
        outcomes = core.run(events).outcomes
        with pytest.raises(RecoveryImpossible, match="only programs with graphs have steps"):
            core.begin_replay(events)
        result = core.run(events, trace=True)
        assert result.steps == b"" and result.outcomes.equals(outcomes)
