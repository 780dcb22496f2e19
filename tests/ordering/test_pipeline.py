"""Pipelines give what the plain functions give, one record after the other, whatever the options."""

from __future__ import annotations

import dataclasses
import functools
import random
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.foundation.errors import OperatorFailed
from tidegate.foundation.jit import uncompiled
from tidegate.ordering import DeadLetter, Observed, Pipeline, merge, pipeline

from .programs import Item, Program, Sum, copies, items, kept, many, raised, rows, summed, table

HEURISTICS = ("queue-size", "last-in-pipeline", "estimated-time", "current-throughput")


def _options(draw: random.Random) -> dict[str, Any]:
    return {
        "workers": draw.choice([1, 2, 3, 5]),
        "heuristic": draw.choice(HEURISTICS),
        "reorder": draw.choice(["non-blocking", "lock"]),
        "partitioning": draw.choice(["hybrid", "shared", "partitioned"]),
        "mode": draw.choice(["workers", "workers", "thread-per-operator"]),
        "capacity": draw.choice([1, 2, 7, 64, 1024]),
    }


@pytest.mark.parametrize("seed", range(60))
def test_random_pipelines_with_random_options_give_the_sequential_output(seed: int) -> None:
    with uncompiled():
        program = Program(seed)
        records = items(random.Random(seed).choice([0, 1, 20, 150]), seed)
        options = _options(random.Random(seed))
        found = program.pipeline.run(table(records), **options)
    assert rows(found) == rows(program.expected(records)), options


@pytest.mark.parametrize("seed", range(60, 68))
def test_random_compiled_pipelines_give_the_sequential_output(seed: int) -> None:
    program = Program(seed, length=3)
    records = items(2_000, seed)
    expected = rows(program.expected(records))
    for number in range(3):
        options = _options(random.Random(f"{seed} {number}"))
        assert rows(program.pipeline.run(table(records), **options)) == expected, options


@pytest.mark.parametrize("seed", range(100, 110))
def test_streams_give_records_as_they_come_in_the_sequential_order(seed: int) -> None:
    with uncompiled():
        program = Program(seed)
        records = items(100, seed)
        options = _options(random.Random(seed))
        found = list(program.pipeline.stream(iter(records), **options))
    assert rows(found) == rows(program.expected(records)), options


def test_every_scheme_with_more_workers_than_cores() -> None:
    records = items(20_000, 1)
    made = pipeline(Item).map(raised).stateful(summed, key="user").flat_map(copies).stateful(summed, key="name")
    states: list[dict[Any, Sum]] = [{}, {}]
    expected = []
    for record in records:
        one = raised(record)
        two = summed(states[0].setdefault(one.user, Sum()), one)
        for three in copies(two) if two is not None else []:
            four = summed(states[1].setdefault(three.name, Sum()), three)
            expected += [] if four is None else [four]
    for partitioning in ("hybrid", "shared", "partitioned"):
        for reorder in ("non-blocking", "lock"):
            found = made.run(table(records), workers=6, partitioning=partitioning, reorder=reorder, capacity=32)  # type: ignore[arg-type]
            assert rows(found) == rows(expected), (partitioning, reorder)


# --- what a stream promises -------------------------------------------------------------------------------------------


def test_a_stalled_sink_stops_the_source_with_a_bounded_number_of_records() -> None:
    taken = 0

    def source() -> Iterator[Item]:
        nonlocal taken
        for item in items(5_000, 3):
            taken += 1
            yield item

    stream = pipeline(Item).map(raised).map(raised).stream(source(), workers=2, capacity=16)
    next(stream)
    before = -1
    while taken > before:  # until nothing moves
        before = taken
        time.sleep(0.2)
    assert taken <= 2 + 5 * 16  # the source, two operators, the sink, and what the caller was given but did not take
    assert len(list(stream)) == 4_999


def test_a_stalled_source_does_not_hold_back_what_is_there() -> None:
    more = threading.Event()

    def source() -> Iterator[Item]:
        yield from items(3, 3)
        assert more.wait(60)
        yield from items(2, 4)

    stream = pipeline(Item).map(raised).stream(source(), workers=2)
    found = [next(stream), next(stream), next(stream)]
    more.set()
    assert rows(found + list(stream)) == rows([raised(item) for item in items(3, 3) + items(2, 4)])


def test_a_stream_that_is_dropped_ends_its_workers() -> None:
    before = threading.active_count()
    stream = pipeline(Item).map(raised).stream(iter(items(10_000, 5)), workers=3, capacity=8)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_an_error_of_the_source_is_raised_behind_the_output_of_what_came_before() -> None:
    def source() -> Iterator[Item]:
        yield from items(3, 3)
        raise OSError("the line is dead")

    found = []
    with pytest.raises(OSError, match="the line is dead"):
        for record in pipeline(Item).map(raised).stream(source(), workers=2):
            found.append(record)
    assert len(found) == 3


# --- records that fail ------------------------------------------------------------------------------------------------


def fails_at_seven(item: Item) -> Item:
    if item.number == 7:
        raise ValueError("seven")
    return item


def fails_at_five(state: Sum, item: Item) -> Item:
    state.count += 1
    if item.number == 5:
        raise ValueError("five")
    return item


@pytest.mark.parametrize("mode", ["workers", "thread-per-operator"])
def test_what_comes_before_a_failed_record_comes_out_and_then_the_first_failure_is_raised(mode: Any) -> None:
    made = pipeline(Item).map(fails_at_seven).stateful(fails_at_five, key="user")
    for _ in range(5):
        found = []
        with pytest.raises(
            OperatorFailed, match=r"'fails_at_five' .*raised ValueError: five, on Item\(number=5"
        ) as told:
            for record in made.stream(iter(items(40, 1)), workers=3, mode=mode, capacity=8):
                found.append(record.number)
        assert found == [0, 1, 2, 3, 4]
        assert isinstance(told.value.__cause__, ValueError)
        assert told.value.__cause__.__traceback__ is not None


def test_dead_letters_take_failed_records_and_the_others_go_on() -> None:
    letters: list[DeadLetter] = []
    found = pipeline(Item).map(fails_at_seven).run(table(items(40, 1)), workers=2, dead_letters=letters.append)
    assert [row["number"] for row in found.to_pylist()] == [n for n in range(40) if n != 7]
    assert [(letter.operator, letter.record.number) for letter in letters] == [("fails_at_seven", 7)]
    assert "ValueError: seven" in letters[0].traceback


@dataclass
class Big:
    total: int = 2**62


def doubled(state: Big, item: Item) -> Item:
    state.total *= 2
    return item


def test_a_state_that_leaves_64_bits_is_refused_by_name() -> None:
    with pytest.raises(OperatorFailed, match=r"Big\.total holds int of 64 bits, got 9223372036854775808"):
        pipeline(Item).stateful(doubled).run(table(items(3, 1)), workers=1)


def test_functions_that_return_something_else_are_refused_by_name() -> None:
    def wrong(item: Item) -> Item:
        return eval("7")  # type: ignore[no-any-return]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.TidegateWarning)
        made = pipeline(Item).map(wrong)
    with pytest.raises(OperatorFailed, match="operator 'wrong': required a Item, got 7"):
        made.run(table(items(3, 1)))


# --- heuristics -------------------------------------------------------------------------------------------------------


def test_a_function_can_be_the_heuristic() -> None:
    seen: set[str] = set()

    def busiest(operators: list[Observed]) -> int | None:
        seen.update(each.name for each in operators)
        return max(operators, key=lambda each: each.waiting).number

    made = pipeline(Item).map(raised).stateful(summed, key="user")
    expected = made.run(table(items(500, 1)), workers=1)
    assert made.run(table(items(500, 1)), workers=2, heuristic=busiest).equals(expected)
    assert seen == {"raised", "summed"}


def test_a_heuristic_may_let_a_worker_rest() -> None:
    asked = 0

    def hesitant(operators: list[Observed]) -> int | None:
        nonlocal asked
        asked += 1
        return operators[0].number if asked % 3 == 0 else None

    made = pipeline(Item).map(raised)
    assert made.run(table(items(50, 1)), workers=2, heuristic=hesitant).num_rows == 50


def test_a_heuristic_that_names_no_operator_ends_the_run() -> None:
    with pytest.raises(tg.InputError, match="heuristic: required the number of an operator or None, got 99"):
        pipeline(Item).map(raised).run(table(items(5, 1)), heuristic=lambda _: 99)


# --- measuring --------------------------------------------------------------------------------------------------------


def test_a_run_can_be_measured() -> None:
    measured = pipeline(Item).filter(kept).map(raised).measure(table(items(500, 1)), workers=2)
    first, second = measured.report.operators
    assert (first.name, first.records, first.outputs) == ("kept", 500, measured.table.num_rows)
    assert (second.name, second.records, second.outputs) == ("raised", first.outputs, first.outputs)
    assert second.selectivity == 1.0
    assert first.compiled
    assert len(measured.report.latencies) == measured.table.num_rows
    assert 0 < measured.report.latency(0.5) <= measured.report.latency(0.99)


# --- whatever can be called -------------------------------------------------------------------------------------------


class Adding:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __call__(self, item: Item) -> Item:
        return dataclasses.replace(item, number=item.number + self.amount)

    def method(self, item: Item) -> Item:
        return self(item)


def adding(amount: int, item: Item) -> Item:
    return Adding(amount)(item)


@pytest.mark.parametrize("function", [Adding(3), Adding(3).method, functools.partial(adding, 3)])
def test_methods_partials_and_objects_run_as_plain_python_with_a_notice(function: Any) -> None:
    with pytest.warns(tg.TidegateWarning, match="runs as plain Python"):
        made = pipeline(Item).map(function)
    assert rows(made.run(table(items(20, 1)), workers=2)) == rows([adding(3, item) for item in items(20, 1)])


# --- declarations -----------------------------------------------------------------------------------------------------


def unannotated(item):  # type: ignore[no-untyped-def]
    return item


def of_another(number: int) -> Item:
    raise AssertionError


@dataclass
class Demanding:
    count: int


def with_demands(state: Demanding, item: Item) -> Item:
    return item


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda p: p.map(unannotated), "must say what it returns"),
        (lambda p: p.map(of_another), "takes int, but the records that arrive here are Item"),
        (lambda p: p.map(7), "map: required a function, got 7"),
        (lambda p: p.flat_map(raised), r"required: list\[...\] of a dataclass"),
        (lambda p: p.stateful(raised), "takes item, required: the state and the record"),
        (lambda p: p.stateful(with_demands), "Demanding.count has no default"),
        (lambda p: p.stateful(summed, key="nobody"), "key='nobody' is not a field of Item; fields are: number, user"),
        (lambda p: p.stateful(summed, key=3), "key: required a field or a function of the record, got 3"),
        (lambda p: p.stateful(summed, partitions=3), "there is no key"),
        (lambda p: p.stateful(summed, key="user", partitions=[3, 1]), "partitions: required a number of buckets"),
        (lambda p: merge(p), "merge: required two pipelines or more"),
        (lambda p: merge(p, pipeline(Sum)), "different classes, Item and Sum"),
        (lambda p: merge(p, pipeline(Item)), "merge joins branches of one pipeline"),
        (lambda p: p.branch("x"), "branch: required functions from a pipeline to a pipeline"),
        (lambda _: pipeline(int), "pipeline: required a dataclass"),
        (lambda p: p.run([], workers=0), "workers: required a whole number"),
        (lambda p: p.run([], heuristic="best"), "heuristic: required one of 'queue-size'"),
        (lambda p: p.run([], mode="fast"), "mode: required one of"),
        (lambda p: p.run([], capacity=0), "capacity: required a whole number"),
        (lambda p: p.stream(7), "stream: required an iterable of records, got 7"),
    ],
)
def test_wrong_declarations_are_refused(declare: Any, message: str) -> None:
    with pytest.raises(tg.DefinitionError, match=message):
        declare(pipeline(Item))


def test_wrong_data_is_refused() -> None:
    with pytest.raises(tg.InputError, match="the column 'number' of Item is missing; columns are: user"):
        pipeline(Item).run({"user": [1]})
    with pytest.raises(tg.InputError, match="column 'price' has type string, required: float"):
        pipeline(Item).run(table(items(2, 1)).set_column(3, "price", pa.array(["1", "2"])))
    with pytest.raises(tg.InputError, match="column 'user' is null in row 1"):
        pipeline(Item).run(table(items(2, 1)).set_column(1, "user", pa.array([1, None])))
    with pytest.raises(tg.InputError, match="record 1 of the stream: required a Item, got 7"):
        list(pipeline(Item).map(raised).stream([items(1, 1)[0], 7]))
    with pytest.raises(tg.InputError, match=r"Item\.user holds int of 64 bits, got"):
        list(pipeline(Item).map(raised).stream([Item(1, 2**70, "", 0.0, True, None)]))


def test_branches_get_every_record_and_merge_in_its_order() -> None:
    base = pipeline(Item).filter(kept)
    left, right = base.branch(lambda p: p.flat_map(many), lambda p: p.map(raised))
    both = merge(left, right)
    records = items(60, 2)
    expected = [out for r in records if kept(r) for out in [*many(r), raised(r)]]
    assert rows(both.run(table(records), workers=2, capacity=4)) == rows(expected)
    again = merge(*base.branch(2))
    assert rows(again.run(table(records))) == rows([r for r in records if kept(r) for _ in range(2)])


def test_a_pipeline_is_a_value_and_runs_as_often_as_one_likes_from_any_thread() -> None:
    made = pipeline(Item).stateful(summed, key="user")
    expected = made.run(table(items(300, 1)), workers=1)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(made.run(table(items(300, 1)), workers=2))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.equals(expected) for each in found] == [True] * 3
    assert isinstance(made, Pipeline)


@dataclass(frozen=True)
class Fixed:
    n: int = 0


def assigns(state: Fixed, item: Item) -> Item:
    state.n = item.number  # type: ignore[misc]
    return item


def test_a_state_whose_class_runs_code_is_left_to_plain_python() -> None:
    with pytest.warns(tg.TidegateWarning, match=r"Fixed has __setattr__ \(it is frozen\)"):
        declared = pipeline(Item).stateful(assigns)
    with pytest.raises(OperatorFailed, match="FrozenInstanceError"):
        declared.run(table(items(2, 1)))
