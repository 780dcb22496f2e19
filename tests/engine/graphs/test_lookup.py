"""Traps of `tg.lookup` and `tg.history` that random programs found, each by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg


@tg.table(key="id")
class Box:
    id: int
    size: int = 0


@tg.table(key="at")
class Point:
    at: float
    hits: int = 0


def find(number: int) -> Any:
    return tg.lookup(Box, number)


def enlarge(number: int, by: int) -> int:
    box = tg.lookup(Box, number)
    box.size += by
    return box.size  # type: ignore[no-any-return]


def times(ts: Any) -> int:
    return len(tg.history(ts, last=100))


@tg.transaction(time="ts")
def grow(point: Point, number: int, ts: int, by: int) -> int:
    return enlarge(number, by)


@tg.transaction(time="ts")
def ask(box: Box, ts: int) -> int:
    """Sums up the times of all states: 1000 for each, and the times."""
    return sum(1000 + old.time for old in tg.history(box, last=100))


@tg.transaction(time="ts")
def ask_through_helper(box: Box, ts: int) -> int:
    return times(box)


@tg.transaction
def take(point: Point, number: int, by: int) -> int:
    box = find(number)
    box.size -= by
    tg.require(box.size >= 0, "too small")
    return box.size  # type: ignore[no-any-return]


HELPED = [grow, ask, ask_through_helper]
"""Compiled once for several tests."""


@pytest.mark.usefixtures("mode")
class TestHelpers:
    def test_one_that_writes_what_it_looks_up_knows_the_time(self) -> None:
        with tg.Engine(HELPED) as engine:
            assert engine.execute(grow, point=0.0, number=1, ts=7, by=2).result == 2
            assert engine.execute(ask, box=1, ts=9).result == 1007

    def test_one_that_asks_for_states_knows_the_time_whatever_its_parameters_are_called(self) -> None:
        with tg.Engine(HELPED) as engine:
            engine.execute(grow, point=0.0, number=1, ts=7, by=2)
            assert engine.execute(ask_through_helper, box=1, ts=7).result == 1
            assert engine.execute(ask_through_helper, box=1, ts=6).result == 0

    def test_a_row_that_one_found_and_the_body_wrote_is_put_back_by_an_abort(self) -> None:
        with tg.Engine([take]) as engine:
            engine.load(Box, pa.table({"id": [1], "size": [5]}))
            assert engine.execute(take, point=0.0, number=1, by=9).reason == "too small"
            assert engine.execute(take, point=0.0, number=2, by=9).reason == "too small"
            assert engine.scan(Box).to_pylist() == [{"id": 1, "size": 5}]


@pytest.mark.usefixtures("mode")
def test_an_int_that_may_become_a_float_is_a_float_key() -> None:
    @tg.transaction
    def hit(box: Box, half: bool) -> float:
        at = 1
        if half:
            at += 0.5  # type: ignore[assignment]
        tg.lookup(Point, at).hits += 1
        return at

    with tg.Engine([hit]) as engine:
        engine.run(pa.table({"box": [1, 1, 1], "half": [True, False, False]}))
        assert engine.scan(Point).to_pylist() == [{"at": 1.0, "hits": 2}, {"at": 1.5, "hits": 1}]


changes = tg.stream("changes", box=int, ts=int, size=int)
recent = tg.window(changes, rows=1)


@tg.transaction(on=changes, time="ts")
def change(box: Box, ts: int, size: int, seen: recent) -> None:  # type: ignore[valid-type]
    if size >= 0:
        box.size = size


@tg.trigger(on=recent, time="size")
def mark(box: Box, size: int) -> None:
    if size % 2 == 1:
        box.size = -1


@tg.transaction(on=changes, time="ts", compiled=False)
def change_plainly(box: Box, ts: int, size: int, seen: recent) -> None:  # type: ignore[valid-type]
    if size >= 0:
        box.size = size


in_machine_code = tg.dataflow([change, mark], atomic_batch=3)
in_plain_python = tg.dataflow([change_plainly, mark], atomic_batch=3)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("graph", [in_machine_code, in_plain_python], ids=["machine code", "plain Python"])
@pytest.mark.parametrize(
    ("sizes", "state"),
    [
        ((4, 4, -2), 1010),  # changed by the first; the second assigns what was there, the third nothing
        ((4, 6, -2), 1020),  # changed by the second
        ((0, 4, 0), None),  # it exists and is 0, as it was: no state
        ((4, -2, 0), None),  # changed, and changed back
        ((2, 5, 2), 1030),  # the trigger of the third does nothing, its owner changes
        ((2, 8, 5), 1030),  # a trigger changes at time 5, its owner after it, at 30
    ],
)
def test_a_state_begins_with_the_step_that_changed_the_row_last(
    graph: Any, sizes: tuple[int, ...], state: int | None
) -> None:
    with tg.Engine([graph, ask]) as engine:
        engine.load(Box, pa.table({"id": [1], "size": [0]}))
        names, ids = ["changes"] * 3, [1] * 3
        engine.run(pa.table({"transaction": names, "box": ids, "ts": [10, 20, 30], "size": sizes}))
        assert engine.execute(ask, box=1, ts=30).result == (state or 0)


@tg.transaction(on=changes, time="ts")
def renew(box: Box, ts: int, size: int) -> None:
    box.size = size
    tg.delete(tg.lookup(Box, box.id))


@pytest.mark.usefixtures("plainly")
def test_what_a_step_did_in_between_is_no_change() -> None:
    """The second step writes a row that is gone, and deletes it again: the row is gone since the first."""
    with tg.Engine([tg.dataflow([renew], atomic_batch=2), ask]) as engine:
        engine.load(Box, pa.table({"id": [1], "size": [5]}))
        names, ids = ["changes"] * 2, [1] * 2
        engine.run(pa.table({"transaction": names, "box": ids, "ts": [10, 20], "size": [6, 7]}))
        assert engine.execute(ask, box=1, ts=30).result == 1010


@pytest.mark.usefixtures("mode")
def test_states_of_times_near_the_ends_of_64_bits() -> None:
    lowest, highest = -(2**63), 2**63 - 1
    with tg.Engine(HELPED) as engine:
        engine.execute(grow, point=0.0, number=1, ts=lowest, by=1)
        engine.execute(grow, point=0.0, number=1, ts=lowest + 5, by=1)
        assert engine.execute(ask_through_helper, box=1, ts=lowest + 5).result == 2
        assert engine.execute(ask_through_helper, box=1, ts=lowest).result == 1
        engine.execute(grow, point=0.0, number=1, ts=highest, by=1)
        assert engine.execute(ask_through_helper, box=1, ts=highest).result == 1
        assert engine.execute(ask_through_helper, box=1, ts=lowest + 5).result == 0


@pytest.mark.usefixtures("plainly")
class TestStreamsNamedLikeATransactionThatLooksUp:
    """Such a transaction runs as a graph of its own; its stream must not be taken for one that somebody declared."""

    taken = tg.stream("take", label=str, size=int)
    moves = tg.stream("moves", number=int, by=int)

    @pytest.mark.parametrize("consumed", [False, True], ids=["output", "interior"])
    def test_both_are_what_they_were_declared_as(self, consumed: bool) -> None:
        moves, taken = self.moves, self.taken

        @tg.transaction(on=moves, emits=[taken])
        def move(number: Box, by: int) -> int:
            number.size += by
            tg.emit(taken, label="moved", size=number.size)
            return number.size

        @tg.transaction(on=taken)
        def note(label: str, size: int) -> None:
            tg.lookup(Box, 100).size += size

        events = pa.table(
            {
                "transaction": ["moves", "take", "moves"],
                "number": [7, 7, 7],
                "by": [5, 2, 1],
                "point": [0.0, 0.0, 0.0],
            }
        )
        graph = tg.dataflow([move, note] if consumed else [move])
        with tg.Engine([graph, take]) as engine:
            assert engine.run(events)["result"].to_pylist() == [5, 3, 4]
            if consumed:
                assert engine.read(Box, 100) == {"id": 100, "size": 9}
            else:
                rows = [{"label": "moved", "size": size, "batch": batch} for size, batch in ((5, 1), (4, 2))]
                assert engine.scan(taken).to_pylist() == engine.take(taken).to_pylist() == rows

    def test_a_border_is_refused(self) -> None:
        border = tg.stream("take", number=int)

        @tg.transaction(on=border)
        def move(number: Box) -> None:
            number.size += 1

        with pytest.raises(tg.DefinitionError, match="both named 'take'"):
            tg.Engine([tg.dataflow([move]), take])
