"""Every public callable with every wrong argument: it works, or it says what was required and what was got."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate import testing
from tidegate.ordering import merge, pipeline

from .wrong_values import EVENT, VALUES, Account, Sales, answers, booked, check, deposit, flow, passed, sell, share

TABLES_OF_EVENTS = {"pandas", "arrow", "record batch", "dicts", "dict of lists"}
EMPTY_LISTS = {"empty list", "empty tuple"}
CALLABLES = {"class", "function", "lambda", "table", "transaction"}
A_LIST = {*EMPTY_LISTS, "empty dict", "None", "[None]"}  # null, or null in it: an outcome says so
INTS = {"one", "zero", "negative", "bool"}
ANY = set(VALUES)

pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be read:UserWarning")


def _declared_with_key(key: Any) -> None:
    @tg.table(key=key)
    class Thing:
        text: int


@dataclass
class Number:
    amount: int


def _counted(amount: int) -> None:
    pass


def _kept() -> Path:
    """A state with one account."""
    if not Path("kept").exists():
        with tg.Engine([deposit], directory="kept") as engine:
            engine.execute(deposit, dst=1, amount=1)
    return Path("kept")


# The call, and the names of the values that it takes.
DECLARATIONS: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "table(key)": (_declared_with_key, {"text"}),
    "table(class)": (lambda v: tg.table(key="id")(v), {"table"}),
    "digits": (lambda v: tg.digits(v, 0), {"one"}),
    "digits(scale)": (lambda v: tg.digits(5, v), {"one", "zero"}),
    "transaction": (lambda v: tg.transaction(v), {"None"}),  # None: the parentheses of a decorator
    "transaction(compiled)": (lambda v: tg.transaction(compiled=v)(deposit.__wrapped__), {"bool"}),
    "transaction(on)": (lambda v: tg.transaction(on=v)(_counted), {"stream"}),
    "transaction(emits)": (lambda v: tg.transaction(on=booked, emits=v)(_counted), EMPTY_LISTS),
    "transaction(time)": (lambda v: tg.transaction(time=v)(deposit.__wrapped__), {"empty text"}),
    "trigger": (lambda v: tg.trigger(on=booked)(v), {"function", "lambda"}),
    "trigger(on)": (lambda v: tg.trigger(on=v)(_counted), {"stream", "window"}),
    "stream": (lambda v: tg.stream(v, amount=int), {"text"}),
    "stream(field)": (lambda v: tg.stream("other", amount=v), {"table"}),
    "window": (lambda v: tg.window(v, rows=3), {"stream"}),
    "window(rows)": (lambda v: tg.window(booked, rows=v), {"one"}),
    "window(time)": (lambda v: tg.window(booked, time=v, length=3), set()),
    "window(length)": (lambda v: tg.window(booked, time="amount", length=v), {"one"}),
    "window(slide)": (lambda v: tg.window(booked, rows=3, slide=v), {"one", "None"}),
    "dataflow": (lambda v: tg.dataflow(v), set()),
    "dataflow([])": (lambda v: tg.dataflow([v]), set()),
    "dataflow(nested)": (lambda v: tg.dataflow([check], nested=v), EMPTY_LISTS),
    "dataflow(nested=[])": (lambda v: tg.dataflow([check], nested=[v]), EMPTY_LISTS),
    "dataflow(atomic_batch)": (lambda v: tg.dataflow([check], atomic_batch=v), {"one"}),
    "dataflow(name)": (lambda v: tg.dataflow([check], name=v), {"text", "None"}),
    "Decision": (lambda v: tg.Decision(v), set()),
    "read": (lambda v: tg.read(_kept(), v, 1), {"table"}),
    "read(path)": (lambda v: tg.read(v, Account, 1), set()),
    "read(key)": (lambda v: tg.read(_kept(), Account, v), {"one", "zero", "negative"}),
    "read(version)": (lambda v: tg.read(_kept(), Account, 1, v), {"None"}),
    "Chains": (lambda v: tg.Chains(v), set()),
    "Partitioned": (lambda v: tg.Partitioned(v), {"one"}),
    "Published": (lambda v: tg.Published(v), set()),
    "Engine": (lambda v: tg.Engine(v), {"transaction", "dataflow"}),
    "Engine([])": (lambda v: tg.Engine([v]), {"transaction", "dataflow"}),
    "Engine([twice])": (lambda v: tg.Engine([deposit, v]), {"dataflow"}),
    "Engine(strategy)": (lambda v: tg.Engine([deposit], strategy=v), set()),
    "Engine(workers)": (lambda v: tg.Engine([deposit], workers=v), {"one"}),
    "Engine(punctuation)": (lambda v: tg.Engine([deposit], punctuation=v), {"one", "None"}),
    "Engine(record)": (lambda v: tg.Engine([deposit], record=v), {"bool"}),
    "Engine(recovery)": (lambda v: tg.Engine([deposit], recovery=v), set()),
    "Engine(sync)": (lambda v: tg.Engine([deposit], sync=v), set()),
    "Engine(keep_versions)": (lambda v: tg.Engine([deposit], keep_versions=v), {"None"}),
    "Engine(directory)": (lambda v: tg.Engine([deposit], directory=v).close(), {"text", "Path", "None"}),
}

NUMBERS = pipeline(Number)

PIPELINES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "pipeline": (lambda v: pipeline(v), set()),
    "merge": (lambda v: merge(NUMBERS, v), set()),
    "map": (lambda v: NUMBERS.map(v), set()),
    "stateful": (lambda v: NUMBERS.stateful(v), set()),
    "run(workers)": (lambda v: NUMBERS.run([{"amount": 1}], workers=v), {"one", "None"}),
    "run(reorder)": (lambda v: NUMBERS.run([{"amount": 1}], reorder=v), set()),
    "run(partitioning)": (lambda v: NUMBERS.run([{"amount": 1}], partitioning=v), set()),
    "run(mode)": (lambda v: NUMBERS.run([{"amount": 1}], mode=v), set()),
    "run(capacity)": (lambda v: NUMBERS.run([{"amount": 1}], capacity=v), {"one"}),
    "run(dead_letters)": (lambda v: NUMBERS.run([{"amount": 1}], dead_letters=v), {"None", *CALLABLES}),
    "run(publish)": (lambda v: NUMBERS.run([{"amount": 1}], publish=v), {"None"}),
}

VERBS: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "emit": (lambda v: tg.emit(v, amount=1), {"stream"}),
    "emit(fields)": (lambda v: tg.emit(booked, other=v), set()),
    "lookup": (lambda v: tg.lookup(v, 1), {"table"}),
    "lookup(key)": (lambda v: tg.lookup(Account, v), INTS),
    "lookup(composite key)": (lambda v: tg.lookup(Sales, (v, 1)), {"text", "empty text"}),
    "history": (lambda v: tg.history(v, last=1), {"row"}),
    "require": (lambda v: tg.require(False, v), set()),
    "abort": (lambda v: tg.abort(v), set()),
    "delete": (lambda v: tg.delete(v), {"row"}),
    "exists": (lambda v: tg.exists(v), {"row"}),
    "WindowRows": (lambda v: tg.WindowRows(v), {"dicts", *EMPTY_LISTS}),
    "row(key)": (lambda v: Account(v), INTS),
    "row(field)": (lambda v: Account(1, balance=v), INTS),
    "row(unknown field)": (lambda v: Account(1, other=v), set()),  # type: ignore[call-arg]
}

KIT: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "absent": (lambda v: testing.absent(v, 1), {"table"}),
    "absent(key)": (lambda v: testing.absent(Account, v), INTS),
    "rows": (lambda v: testing.rows(v).__enter__(), {"row"}),
    "rows(history)": (lambda v: testing.rows(history=v).__enter__(), EMPTY_LISTS),
    "rows(now)": (lambda v: testing.rows(now=v).__enter__(), {"one", "zero", "negative", "None"}),
    "collecting": (lambda v: testing.collecting(v), CALLABLES),
    "looking_up": (lambda v: testing.looking_up(v), CALLABLES),
    "remembering": (lambda v: testing.remembering(v), CALLABLES),
    "PlainProgram": (lambda v: testing.PlainProgram(v), EMPTY_LISTS),
    "PlainProgram(initial)": (lambda v: testing.PlainProgram([deposit], v), {"None", "empty dict"}),
    "PlainProgram.run": (
        lambda v: testing.PlainProgram([deposit]).run(v),
        TABLES_OF_EVENTS | EMPTY_LISTS | {"empty dict"},
    ),
    "PlainProgram.execute": (
        lambda v: testing.PlainProgram([deposit]).execute(v),
        {"dict of lists", "empty dict", "{'a': 1}"},
    ),
    "PlainProgram.rows": (lambda v: testing.PlainProgram([deposit]).rows(v), {"table"}),
    "assert_same_as_plain": (lambda v: testing.assert_same_as_plain(v, [[EVENT]], strategies=["serial"]), set()),
    "assert_same_as_plain(batches)": (
        lambda v: testing.assert_same_as_plain([deposit], v, strategies=["serial"]),
        EMPTY_LISTS,
    ),
    "assert_same_as_plain([batch])": (
        lambda v: testing.assert_same_as_plain([deposit], [v], strategies=["serial"]),
        TABLES_OF_EVENTS,
    ),
    "assert_same_as_plain(strategies)": (
        lambda v: testing.assert_same_as_plain([deposit], [], strategies=v),
        EMPTY_LISTS,
    ),
    "check_history": (lambda v: testing.check_history(v, []), {"dataflow"}),
    "check_history(steps)": (lambda v: testing.check_history(flow, v), EMPTY_LISTS),
    "EventSource": (lambda v: testing.EventSource(v), EMPTY_LISTS),
    "EventSource([])": (lambda v: testing.EventSource([v]), TABLES_OF_EVENTS | EMPTY_LISTS | {"empty dict"}),
    "run_source": (lambda v: testing.run_source([deposit], v, state="source"), set()),
    "run_source(state)": (
        lambda v: testing.run_source([deposit], testing.EventSource([]), state=v),
        {"text", "Path"},
    ),
}

EVENTS = {"transaction": ["deposit"], "dst": [1], "amount": [2], "sales": pa.nulls(1), "price": pa.nulls(1)} | {
    name: pa.nulls(1) for name in ("item", "accounts", "amounts")
}

METHODS: dict[str, tuple[Callable[[tg.Engine, Any], Any], set[str]]] = {
    "load": (lambda e, v: e.load(v, [{"id": 1}]), {"table"}),
    "load(rows)": (lambda e, v: e.load(Account, v), set()),
    "run": (lambda e, v: e.run(v), set()),
    "run(order_by)": (lambda e, v: e.run(EVENTS, order_by=v), {"None"}),
    "execute": (lambda e, v: e.execute(v, dst=1, amount=1), {"transaction"}),
    "execute(key)": (lambda e, v: e.execute(deposit, dst=v, amount=1), {"one", "zero", "negative", "None"}),
    "execute(value)": (lambda e, v: e.execute(deposit, dst=1, amount=v), {"one", "zero", "negative", "None"}),
    "execute(unknown)": (lambda e, v: e.execute(deposit, dst=1, amount=1, other=v), set()),
    "execute(composite key)": (lambda e, v: e.execute(sell, sales=v, price=1.0, item="a"), {"None"}),
    "execute(text)": (lambda e, v: e.execute(sell, sales=("n", 1), price=1.0, item=v), {"text", "empty text", "None"}),
    "execute(keys)": (lambda e, v: e.execute(share, accounts=v, amounts=[1]), A_LIST),
    "execute(values)": (lambda e, v: e.execute(share, accounts=[1], amounts=v), A_LIST),
    "execute(idempotency_key)": (
        lambda e, v: e.execute(deposit, dst=1, amount=1, idempotency_key=v),
        {"text", "empty text", "one", "zero", "negative", "None"},
    ),
    "read": (lambda e, v: e.read(v, 1), {"table"}),
    "read(key)": (lambda e, v: e.read(Account, v), {"one", "zero", "negative"}),
    "read(composite key)": (lambda e, v: e.read(Sales, v), set()),
    "read(part of a key)": (lambda e, v: e.read(Sales, (v, 1)), {"text", "empty text"}),
    "scan": (lambda e, v: e.scan(v), {"table"}),
    "take": (lambda e, v: e.take(v), set()),
    "best_punctuation": (lambda e, v: e.best_punctuation(v), {"one", "float", "huge", "None"}),
}


@pytest.fixture(scope="module", autouse=True)
def in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Names that are taken for paths must not make folders in the repository."""
    from tidegate.foundation.jit import uncompiled

    with pytest.MonkeyPatch.context() as patch, uncompiled():
        patch.chdir(tmp_path_factory.mktemp("arguments"))
        yield


@pytest.fixture(scope="module", params=["in memory", "with a folder"])
def engine(request: pytest.FixtureRequest, in_a_folder: None) -> Iterator[tg.Engine]:
    folder = None if request.param == "in memory" else "engine"
    with tg.Engine([deposit, sell, share], directory=folder) as engine:
        yield engine


def test_every_public_name_is_called_here() -> None:
    names = {name.partition("(")[0].partition(".")[0] for name in (*DECLARATIONS, *VERBS, *KIT)}
    values = {"BatchReport", "Dataflow", "Families", "Outcome", "Step", "Stream", "Transaction", "Window"}
    values |= {"CRASH", "CRASH_BEFORE_COMMIT", "Crash", "Rows", "SourceRun"}
    raised = {name for name in tg.__all__ if _is_error(getattr(tg, name))}
    assert {*tg.__all__, *testing.__all__} - values - raised - names == set()
    methods = {name for name in vars(tg.Engine) if not name.startswith("_")} - {"close", "last_batch", "decisions"}
    assert methods - {"history"} == {name.partition("(")[0] for name in METHODS}


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def verify(call: Callable[[Any], Any], expected: set[str]) -> None:
    taken, riddles = answers(call)
    assert riddles == []
    assert taken == expected


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declarations_say_what_they_require(name: str) -> None:
    verify(*DECLARATIONS[name])


@pytest.mark.parametrize("name", PIPELINES)
def test_ordered_pipelines_say_what_they_require(name: str) -> None:
    verify(*PIPELINES[name])


@pytest.mark.parametrize("name", VERBS)
def test_verbs_in_plain_calls_say_what_they_require(name: str) -> None:
    with testing.rows():
        verify(*VERBS[name])


@pytest.mark.parametrize("name", KIT)
def test_the_kit_says_what_it_requires(name: str) -> None:
    verify(*KIT[name])


@pytest.mark.parametrize("name", METHODS)
def test_an_engine_says_what_it_requires(engine: tg.Engine, name: str) -> None:
    call, expected = METHODS[name]
    verify(lambda value: call(engine, value), expected)


def test_an_engine_of_a_graph_says_what_it_requires() -> None:
    with tg.Engine(flow) as engine:
        verify(lambda value: engine.take(value), set())
        verify(lambda value: engine.scan(value), {"stream"})
        verify(lambda value: engine.execute(value, amount=1), set())
        assert engine.take(passed).num_rows == 0


@pytest.mark.parametrize("folder", [None, "closed"])
def test_a_closed_engine_says_so(folder: str | None) -> None:
    engine = tg.Engine([deposit], directory=folder)
    engine.close()
    engine.close()
    for call in (
        lambda: engine.run([EVENT]),
        lambda: engine.load(Account, [{"id": 1}]),
        lambda: engine.execute(deposit, dst=1, amount=1),
        lambda: engine.execute(deposit, dst=1, amount=1, idempotency_key="a"),
        lambda: engine.read(Account, 1),
        lambda: engine.scan(Account),
        lambda: engine.take(booked),
        lambda: engine.last_batch,
        lambda: engine.decisions,
        lambda: engine.history,
        lambda: engine.best_punctuation(),
    ):
        with pytest.raises(tg.InputError, match="this engine is closed"):
            call()


class TestRowsInTheFormsThatPeopleHave:
    @pytest.mark.parametrize("name", sorted(TABLES_OF_EVENTS))
    def test_events(self, name: str) -> None:
        engine = tg.Engine([deposit])
        assert engine.run(VALUES[name]).to_pylist() == [EVENT | {"committed": True, "reason": None, "result": 2}]

    def test_rows_to_load(self) -> None:
        rows = [{"id": 1, "balance": 10}, {"id": 2, "balance": 20}]
        indexed = pd.DataFrame(rows).set_index("id")
        filtered = pd.DataFrame([*rows, {"id": 3, "balance": 0}]).query("balance > 0")
        for given in (rows, tuple(rows), pd.DataFrame(rows), indexed, filtered, pa.Table.from_pylist(rows)):
            engine = tg.Engine([deposit])
            engine.load(Account, given)
            assert engine.scan(Account).to_pylist() == rows

    def test_a_list_of_dicts_has_the_columns_of_all_of_them(self) -> None:
        """Arrow would take those of the first, and drop the others without a word."""
        engine = tg.Engine([deposit, sell])
        events = [
            {"transaction": "deposit", "dst": 1, "amount": 5},
            {"transaction": "sell", "sales": {"shop": "n", "day": 1}, "price": 2.5, "item": "a"},
        ]
        assert engine.run(events)["reason"].to_pylist() == [None, None]
        assert engine.read(Sales, ("n", 1)) == {"shop": "n", "day": 1, "total": 2.5}

    def test_outcomes_of_a_pandas_frame_go_back_to_pandas(self) -> None:
        frame = pd.DataFrame({"dst": [1, 2], "amount": [5, 6]}, index=[7, 9])
        outcomes = tg.Engine([deposit]).run(frame).to_pandas()
        assert list(outcomes.columns) == ["dst", "amount", "committed", "reason", "result"]
        assert list(outcomes.index) == [0, 1]

    def test_a_column_of_several_types_is_refused_with_what_to_do(self) -> None:
        with pytest.raises(tg.InputError, match=r"events: list cannot become an Arrow table: .*one type"):
            tg.Engine([deposit]).run([{"dst": 1, "amount": 1}, {"dst": "a", "amount": 1}])


def test_messages_say_what_was_required_and_got() -> None:
    frame = pd.DataFrame({"a": range(1000)})
    for call, told in (
        (lambda: tg.Engine([deposit], workers="two"), "workers: required a whole number of at least 1, got 'two'"),
        (lambda: tg.Engine(frame), "transactions: required a list of functions .* got a pandas DataFrame$"),
        (lambda: tg.Engine([deposit], directory=7), 'directory: required a path such as "state/ledger" or a pathlib'),
        (lambda: tg.Engine([deposit]).run(5), "events: required a pyarrow.Table, .* or a list of dicts, got 5"),
        (lambda: tg.Engine([deposit], sync="no"), "sync: required one of 'group', 'always', 'never', got 'no'"),
        (lambda: tg.delete({"id": 1}), r"tg.delete: required a row, such as Account\(1\), got {'id': 1}"),
        (lambda: tg.table(key="id")(lambda: 1), "@tg.table decorates a class, got <function"),
        (lambda: tg.Engine([deposit]).execute(deposit), "execute 'deposit': missing amount, dst; it takes amount, dst"),
    ):
        with pytest.raises((tg.TidegateError, TypeError), match=told):
            call()


def test_a_path_of_pathlib_is_a_folder(tmp_path: Path) -> None:
    for number in itertools.islice(itertools.count(), 2):
        with tg.Engine([deposit], directory=tmp_path / "state") as engine:
            assert engine.execute(deposit, dst=1, amount=5).result == 5 * (number + 1)
