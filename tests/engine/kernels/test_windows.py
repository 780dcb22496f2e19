"""Windows against lists: whatever enters, slides, is undone or moved, every answer is that of a naive window."""

from __future__ import annotations

import collections
import copy
import importlib.util
import itertools
import math
import random
import time
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.api.window import WindowRows
from tidegate.engine.kernels import windows as compiled
from tidegate.engine.kernels.window_journal import (
    JOURNAL_ROOM,
    LENGTH,
    NEEDS,
    NOTHING,
    STATE_WORDS,
    WINDOW,
    WINDOW_ROOM,
    put,
    undo,
)
from tidegate.engine.state.windows import HEADER, SEQUENCE, TIME, WindowLayout, Windows
from tidegate.foundation import jit
from tidegate.foundation.jit import inline, uncompiled
from tidegate.operations.layout import Kind

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
TOP = 50  # below it the order of a ranking would go unseen
TINY = {"journal_lines": 1, "ring_rows": 1, "table_buckets": 1}


def as_plain_python() -> ModuleType:
    """The kernels once more, uncompiled; `kernel` too, which would look on disk for what the real ones left there."""
    spec = importlib.util.spec_from_file_location("plain_windows", compiled.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with uncompiled(), mock.patch.object(jit, "kernel", lambda function: function):
        spec.loader.exec_module(module)
    return module


plain = as_plain_python()
EACH_WAY = pytest.mark.parametrize("kernels", [compiled, plain], ids=["compiled", "plain"])

Tuple = tuple[tuple[int, ...], int]


def as_float(word: int) -> float:
    return float(np.int64(word).view(np.float64))


def as_word(value: float) -> int:
    return int(np.float64(value).view(np.int64))


class Naive:
    """A window as two lists; every question is answered from the visible rows."""

    def __init__(self, layout: WindowLayout) -> None:
        self.layout = layout
        self.visible: list[Tuple] = []
        self.staged: list[Tuple] = []
        self.latest: int | None = None
        self.boundary: int | None = None

    def insert(self, words: tuple[int, ...], moment: int) -> bool:
        return self._by_time(words, moment) if self.layout.mode == "time" else self._by_rows(words)

    def _by_rows(self, words: tuple[int, ...]) -> bool:
        self.staged.append((words, 0))
        if len(self.staged) < self.layout.slide:
            return False
        self.visible = (self.visible + self.staged)[-self.layout.size :]
        self.staged = []
        return True

    def _by_time(self, words: tuple[int, ...], moment: int) -> bool:
        self.latest = moment if self.latest is None else max(self.latest, moment)
        boundary = self.latest // self.layout.slide * self.layout.slide
        slid = self.boundary is not None and boundary > self.boundary
        if slid:
            begin = boundary - self.layout.size
            self.visible = [row for row in self.visible if row[1] >= begin] + self.staged
            self.staged = []
        self.boundary = boundary
        self.staged.append((words, self.latest))
        return slid

    def answer(self, function: str, column: int, asked: tuple[int, ...]) -> Any:
        values: list[Any] = [words[column] for words, _ in self.visible]
        if self.layout.columns[column][1] is Kind.FLOAT:
            rows = WindowRows([{"x": as_float(word)} for word in values])
            if function == "top":
                return [as_word(value) for value in rows.top("x", TOP)]
            return as_word(getattr(rows, function)("x")) if values else 0
        counts = collections.Counter(values)
        if function == "sum":
            return sum(values)
        if function in ("min", "max"):
            return {"min": min, "max": max}[function](values, default=0)
        if function == "distinct":
            return len(counts)
        if function == "frequency":
            return [counts[value] for value in asked]
        return sorted(counts, key=lambda value: (-counts[value], value))[:TOP]


class Pair:
    """The same windows twice, in a heap and as lists; each step is made on both and compared."""

    def __init__(self, layouts: list[WindowLayout], kernels: ModuleType, **room: int) -> None:
        self.kernels = kernels
        self.windows = Windows(**room)
        for layout in layouts:
            self.windows.add(layout)
        self.naive = [Naive(layout) for layout in layouts]
        self.rooms: collections.Counter[int] = collections.Counter()

    def attempt(self, inserts: list[tuple[int, Tuple]]) -> list[bool]:
        """Insert after what the journal holds already; when room is missing, from the journal's beginning again."""
        windows, done = self.windows, []
        for number, (words, moment) in inserts:
            done.append(
                self.kernels.window_insert(
                    windows.heap,
                    windows.journal,
                    windows.state,
                    windows.bases[number],
                    np.array(words, np.int64),
                    moment,
                )
            )
            if windows.state[NEEDS] != NOTHING:
                break
        return done

    def run(self, inserts: list[tuple[int, Tuple]], undone_after: int | None) -> None:
        """One transaction; from `undone_after` on its inserts are taken back before it commits."""
        windows = self.windows
        kept = inserts if undone_after is None else inserts[:undone_after]
        expected = [self.naive[number].insert(*entering) for number, entering in kept]
        before = windows.heap.copy()
        while True:
            slid = self.attempt(kept)
            mark, after = int(windows.state[LENGTH]), windows.heap.copy()
            if undone_after is not None and windows.state[NEEDS] == NOTHING:
                self.attempt(inserts[undone_after:])
                if windows.state[NEEDS] == NOTHING:
                    undo(windows.heap, windows.journal, windows.state, mark)
                    assert windows.state[LENGTH] == mark
                    np.testing.assert_array_equal(windows.heap, after)
            if windows.state[NEEDS] == NOTHING:
                break
            self.rooms[int(windows.state[NEEDS])] += 1
            undo(windows.heap, windows.journal, windows.state, 0)
            np.testing.assert_array_equal(windows.heap, before)
            windows.make_room()
            assert windows.state[NEEDS] == NOTHING and windows.state[LENGTH] == 0
            before = windows.heap.copy()
        assert [bool(one) for one in slid] == expected
        windows.state[LENGTH] = 0
        self.compare()

    def compare(self) -> None:
        for number, naive in enumerate(self.naive):
            self.compare_rows(number, naive)
            for slot, (function, column) in enumerate(naive.layout.aggregates):
                values = tuple({words[column] for words, _ in naive.visible + naive.staged} | {0, 3, INT_MIN})
                expected = naive.answer(function, column, values)
                assert self.ask(number, slot, function, values) == expected, (naive.layout, slot)

    def compare_rows(self, number: int, naive: Naive) -> None:
        heap, base = self.windows.heap, self.windows.bases[number]
        assert self.kernels.window_count(heap, base) == len(naive.visible)
        columns = range(len(naive.layout.columns))
        assert [
            tuple(int(self.kernels.window_word(heap, base, column, position)) for column in columns)
            for position in range(len(naive.visible))
        ] == [words for words, _ in naive.visible]
        for found, expected in (
            (self.windows.rows(number), naive.visible),
            (self.windows.staged(number), naive.staged),
        ):
            for column, (name, _kind) in enumerate(naive.layout.columns):
                assert found[name].view(np.int64).tolist() == [words[column] for words, _ in expected]

    def ask(self, number: int, slot: int, function: str, values: tuple[int, ...]) -> Any:
        heap, base, kernels = self.windows.heap, self.windows.bases[number], self.kernels
        if function == "sum":
            if not kernels.window_sum_fits(heap, base, slot):
                total = sum(
                    words[self.naive[number].layout.aggregates[slot][1]] for words, _ in self.naive[number].visible
                )
                assert not INT_MIN <= total <= INT_MAX
                return total
            return int(kernels.window_sum(heap, base, slot))
        if function == "frequency":
            return [int(kernels.window_frequency(heap, base, slot, value)) for value in values]
        if function == "top":
            out = np.full(TOP + 2, -77)
            count = int(kernels.window_top(heap, base, slot, TOP, out))
            assert (out[count:] == -77).all()
            return out[:count].tolist()
        reader = {"min": kernels.window_min, "max": kernels.window_max, "distinct": kernels.window_distinct}[function]
        return int(reader(heap, base, slot))


def test_both_ways_are_what_they_say() -> None:
    names = [name for name in vars(plain) if name.startswith("window_") or name in ("fill", "_renew")]
    assert len(names) > 9
    assert all(isinstance(getattr(plain, name), FunctionType) for name in names)
    assert all(hasattr(getattr(compiled, name), "py_func") for name in names)


# --- what enters -------------------------------------------------------------------------------------------------

FUNCTIONS = ("sum", "min", "max", "distinct", "frequency", "top")
OF_FLOATS = ("min", "max", "top")
FLOATS = [0.0, -0.0, 1.5, -1.5, math.nan, -math.nan, math.inf, -math.inf, 5e-324, -5e-324, 0.1, 1e308]
values = st.one_of(st.integers(-4, 8), st.sampled_from([INT_MIN, INT_MAX, INT_MAX - 1, 1 << 40, 3 << 40, -(1 << 62)]))
floats = st.one_of(st.sampled_from(FLOATS), st.floats()).map(as_word)
moments = st.one_of(st.integers(-30, 60), st.sampled_from([INT_MIN, INT_MIN + 3, INT_MAX, INT_MAX - 7, 100, 1000]))


@st.composite
def layouts(draw: st.DrawFn) -> WindowLayout:
    columns = draw(st.lists(st.sampled_from([Kind.INT, Kind.INT, Kind.FLOAT]), max_size=3))
    size = draw(st.one_of(st.integers(1, 9), st.sampled_from([20, 1 << 62])))
    slide = draw(st.integers(1, min(size, 12)))
    asked = st.integers(0, max(len(columns) - 1, 0)).flatmap(
        lambda column: st.tuples(
            st.sampled_from(OF_FLOATS if columns[column] is Kind.FLOAT else FUNCTIONS), st.just(column)
        )
    )
    return WindowLayout(
        "w",
        tuple((f"c{position}", kind) for position, kind in enumerate(columns)),
        draw(st.sampled_from(["rows", "time"])),
        size,
        slide,
        tuple(draw(st.lists(asked, max_size=7 if columns else 0))),
    )


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[WindowLayout], list[tuple[list[tuple[int, Tuple]], int | None]]]:
    """Some windows, and transactions: what they insert where, and after how many inserts they take back the rest."""
    chosen = draw(st.lists(layouts(), min_size=1, max_size=3))
    found = []
    for size in draw(st.lists(st.integers(0, 12), max_size=12)):
        inserts = []
        for _ in range(size):
            number = draw(st.integers(0, len(chosen) - 1))
            words = tuple(draw(floats if kind is Kind.FLOAT else values) for _, kind in chosen[number].columns)
            inserts.append((number, (words, draw(moments))))
        found.append((inserts, draw(st.none() | st.integers(0, size))))
    return chosen, found


@EACH_WAY
@settings(max_examples=120, deadline=None)
@given(programs(), st.booleans())
def test_windows_behave_as_lists(kernels: ModuleType, program: Any, tiny: bool) -> None:
    chosen, transactions = program
    pair = Pair(chosen, kernels, **(TINY if tiny else {}))
    for inserts, undone_after in transactions:
        pair.run(inserts, undone_after)


def all_of(layout: WindowLayout) -> list[tuple[str, int]]:
    """All that can be asked of a window's columns."""
    kinds = [kind for _, kind in layout.columns]
    return [(name, n) for name, n in itertools.product(FUNCTIONS, range(len(kinds))) if _fits(name, kinds[n])]


def _fits(function: str, kind: Kind) -> bool:
    return kind is not Kind.FLOAT or function in OF_FLOATS


def random_layout(rng: random.Random, mode: str) -> WindowLayout:
    size = rng.choice([1, 2, 7, 30, 200])
    slide = rng.choice([1, size, rng.randint(1, size)])
    every = tuple((function, column) for column in range(2) for function in FUNCTIONS)
    every += tuple((function, 2) for function in OF_FLOATS)
    asked = tuple(rng.sample(every, rng.randint(1, len(every))))
    columns = (("a", Kind.INT), ("b", Kind.INT), ("x", Kind.FLOAT))
    return WindowLayout("w", columns, mode, size, slide, asked)  # type: ignore[arg-type]


def random_tuple(rng: random.Random, now: int, spread: int) -> Tuple:
    wide = rng.choice([spread, 10 * spread, 1 << 62])
    real = rng.choice([rng.choice(FLOATS), rng.randint(0, spread) / 8])
    return (rng.randint(0, spread), rng.randint(-wide, wide), as_word(real)), now + rng.randint(-5, 3)


@pytest.mark.parametrize("mode", ["rows", "time"])
@pytest.mark.parametrize("seed", range(12))
def test_long_lives_of_windows_that_grow_from_nothing(seed: int, mode: str) -> None:
    rng = random.Random(seed)
    pair = Pair([random_layout(rng, mode), random_layout(rng, mode)], compiled, **TINY)
    now, spread = -50, rng.choice([2, 40, 5000])
    for _ in range(60):
        inserts = []
        for _ in range(rng.choice([1, 3, 40])):
            now += rng.choice([0, 0, 1, 2, rng.choice([5, 60, 700])])
            inserts.append((rng.randrange(2), random_tuple(rng, now, spread)))
        pair.run(inserts, rng.choice([None, rng.randint(0, len(inserts))]))
    assert pair.rooms[JOURNAL_ROOM] > 3
    assert pair.rooms[WINDOW_ROOM] > 0


# --- one question at a time --------------------------------------------------------------------------------------


def one(mode: str, size: int, slide: int, *aggregates: tuple[str, int], columns: int = 1) -> WindowLayout:
    kinds = tuple((f"c{position}", Kind.INT) for position in range(columns))
    return WindowLayout("w", kinds, mode, size, slide, aggregates)  # type: ignore[arg-type]


def lives(layout: WindowLayout, entering: list[tuple[int, int]], kernels: ModuleType) -> list[tuple[bool, list[int]]]:
    """Per tuple (value, time) whether it slid, and what was visible then."""
    windows = Windows()
    base = windows.add(layout)
    found = []
    for value, moment in entering:
        slid = kernels.window_insert(windows.heap, windows.journal, windows.state, base, (value,), moment)
        found.append((bool(slid), windows.rows(0)["c0"].tolist()))
    return found


@EACH_WAY
def test_a_window_by_rows_shows_what_is_staged_when_enough_is(kernels: ModuleType) -> None:
    found = lives(one("rows", 3, 2), [(n, 0) for n in range(1, 7)], kernels)
    assert found == [
        (False, []),
        (True, [1, 2]),
        (False, [1, 2]),
        (True, [2, 3, 4]),
        (False, [2, 3, 4]),
        (True, [4, 5, 6]),
    ]


@EACH_WAY
def test_a_tumbling_window_starts_over(kernels: ModuleType) -> None:
    found = lives(one("rows", 2, 2), [(n, 0) for n in range(1, 6)], kernels)
    assert [visible for _, visible in found] == [[], [1, 2], [1, 2], [3, 4], [3, 4]]


@EACH_WAY
def test_a_window_by_time_slides_before_it_takes_the_tuple_that_passes_a_boundary(kernels: ModuleType) -> None:
    entering = [(1, 7), (2, 9), (3, 4), (4, 10), (5, 19), (6, 25), (7, 31), (8, 90)]
    found = lives(one("time", 15, 10), entering, kernels)
    assert found == [
        (False, []),
        (False, []),
        (False, []),  # late: its time counts as 9
        (True, [1, 2, 3]),
        (False, [1, 2, 3]),
        (True, [1, 2, 3, 4, 5]),  # from 5 on
        (True, [5, 6]),  # from 15 on
        (True, [7]),  # what was staged is seen once, however late
    ]


@EACH_WAY
def test_time_may_be_as_small_and_as_large_as_a_word(kernels: ModuleType) -> None:
    moments = (INT_MIN, INT_MIN + 8, INT_MIN + 18, 0, INT_MAX, INT_MAX)
    found = lives(one("time", 100, 10), list(enumerate(moments)), kernels)
    assert found == [(False, []), (True, [0]), (True, [0, 1]), (True, [2]), (True, [3]), (False, [3])]


@EACH_WAY
def test_sums_are_exact_beyond_a_word_and_back(kernels: ModuleType) -> None:
    windows = Windows()
    base = windows.add(one("rows", 3, 1, ("sum", 0)))
    found: list[int | None] = []
    for value in (INT_MAX, 1, -1, -1, INT_MIN, 0, INT_MIN, INT_MIN, INT_MAX, INT_MAX):
        kernels.window_insert(windows.heap, windows.journal, windows.state, base, (value,), 0)
        fits = kernels.window_sum_fits(windows.heap, base, 0)
        found.append(int(kernels.window_sum(windows.heap, base, 0)) if fits else None)
    assert found == [INT_MAX, None, INT_MAX, -1, None, None, None, None, None, INT_MAX - 1]


@EACH_WAY
@pytest.mark.parametrize("wanted", [-1, 0, 1, 2, 3, 7, 40, 300])
def test_the_top_is_in_order_and_as_long_as_asked_or_as_there_is_room(kernels: ModuleType, wanted: int) -> None:
    rng = random.Random(wanted)
    entering = [min(rng.randint(0, 150), rng.randint(0, 150)) - 60 for _ in range(900)]
    windows = Windows()
    base = windows.add(one("rows", 500, 1, ("top", 0), ("distinct", 0)))
    for value in entering:
        while True:
            kernels.window_insert(windows.heap, windows.journal, windows.state, base, (value,), 0)
            if windows.state[NEEDS] == NOTHING:
                break
            undo(windows.heap, windows.journal, windows.state, 0)
            windows.make_room()
        windows.state[LENGTH] = 0
    counts = collections.Counter(entering[-500:])
    expected = sorted(counts, key=lambda value: (-counts[value], value))[: max(wanted, 0)]
    for room in (0, 1, 5, 400):
        out = np.full(room, 1 << 50)
        count = kernels.window_top(windows.heap, base, 0, wanted, out)
        assert out[:count].tolist() == expected[:room]
        assert (out[count:] == 1 << 50).all()
    assert kernels.window_distinct(windows.heap, base, 1) == len(counts)


def test_slots_that_ask_the_same_share_what_is_kept() -> None:
    shared, alone = Windows(), Windows()
    shared.add(one("rows", 9, 1, ("distinct", 0), ("sum", 0), ("top", 0), ("frequency", 0), ("sum", 0), ("top", 0)))
    alone.add(one("rows", 9, 1, ("top", 0), ("sum", 0)))
    assert shared.layouts[0].owners == (2, 1, 2, 2, 1, 2)
    assert len(shared.heap) - len(alone.heap) == 4 * compiled.SLOT_WORDS


# --- journal and room --------------------------------------------------------------------------------------------


def test_a_full_journal_is_said_and_nothing_is_written() -> None:
    heap, journal, state = np.arange(5), np.zeros((2, 2), np.int64), np.zeros(STATE_WORDS, np.int64)
    put(heap, journal, state, 3, 30)
    put(heap, journal, state, 3, 31)
    assert state.tolist() == [2, NOTHING, 0, 0]
    put(heap, journal, state, 1, 10)
    assert heap.tolist() == [0, 1, 2, 31, 4]
    assert state.tolist() == [2, JOURNAL_ROOM, 0, 0]
    assert journal.tolist() == [[3, 3], [3, 30]]
    undo(heap, journal, state, 1)
    assert heap.tolist() == [0, 1, 2, 30, 4]
    put(heap, journal, state, 1, 10)
    assert heap.tolist() == [0, 1, 2, 30, 4], "what is missing is still missing"
    undo(heap, journal, state, 0)
    assert heap.tolist() == [0, 1, 2, 3, 4]
    assert state[LENGTH] == 0


@EACH_WAY
def test_a_window_does_nothing_while_something_is_missing(kernels: ModuleType) -> None:
    windows = Windows()
    base = windows.add(one("rows", 2, 1, ("sum", 0), ("min", 0), ("top", 0)))
    windows.state[:] = 0, WINDOW_ROOM, 99, 5
    before = windows.heap.copy()
    assert not kernels.window_insert(windows.heap, windows.journal, windows.state, base, (5,), 0)
    np.testing.assert_array_equal(windows.heap, before)
    assert windows.state.tolist() == [0, WINDOW_ROOM, 99, 5]


@EACH_WAY
@pytest.mark.parametrize("mode", ["rows", "time"])
def test_an_insert_that_fails_at_any_change_can_be_taken_back(kernels: ModuleType, mode: str) -> None:
    """The journal is cut off after each number of lines in turn, while ring and table are full and much changes."""
    layout = one(mode, 16, 16, *((function, 0) for function in ("sum", "min", "max", "top")))
    pair = Pair([layout], kernels, ring_rows=32, table_buckets=8)
    for position in range(47 if mode == "rows" else 48):
        pair.run([(0, ((position * position % 7,), position))], None)
    assert not pair.rooms
    last = ((2,), 48)
    before, lines = pair.windows.heap.copy(), 0
    slid = False
    while not slid:
        pair.windows.journal = np.zeros((lines, 2), np.int64)
        slid = bool(pair.attempt([(0, last)])[0])
        assert slid == (pair.windows.state[NEEDS] == NOTHING)
        if not slid:
            assert pair.windows.state[NEEDS] == JOURNAL_ROOM
            undo(pair.windows.heap, pair.windows.journal, pair.windows.state, 0)
            np.testing.assert_array_equal(pair.windows.heap, before)
            pair.windows.state[NEEDS] = NOTHING
        lines += 1
    assert lines > 60
    assert pair.naive[0].insert(*last)
    pair.compare()


def test_the_journal_keeps_its_lines_when_it_grows() -> None:
    windows = Windows(journal_lines=2)
    base = windows.add(one("rows", 3, 1))
    before = windows.heap.copy()
    compiled.window_insert(windows.heap, windows.journal, windows.state, base, (5,), 0)
    assert windows.state[NEEDS] == JOURNAL_ROOM
    assert windows.state[LENGTH] == 2
    windows.make_room()
    assert len(windows.journal) == 4
    undo(windows.heap, windows.journal, windows.state, 0)
    np.testing.assert_array_equal(windows.heap, before)


def test_a_window_that_grows_moves_those_behind_it() -> None:
    layouts = [one("rows", 1, 1, ("max", 0)), one("time", 1000, 1, ("sum", 0)), one("rows", 1, 1, ("min", 0))]
    pair = Pair(layouts, compiled, ring_rows=2)
    bases = pair.windows.bases
    first = bases.tolist()
    for moment in range(40):
        pair.run([(0, ((-moment,), 0)), (1, ((moment,), moment)), (2, ((-moment,), 0))], None)
    assert pair.windows.bases is bases
    assert bases[:2].tolist() == first[:2]
    assert bases[2] > first[2]
    assert pair.windows.state[WINDOW] == bases[1]
    assert pair.rooms == {WINDOW_ROOM: 5}  # 2, 4, 8, 16, 32, 64 rows


def test_no_window_moves_while_the_journal_holds_changes() -> None:
    windows = Windows()
    base = windows.add(one("rows", 3, 1))
    compiled.window_insert(windows.heap, windows.journal, windows.state, base, (5,), 0)
    with pytest.raises(AssertionError, match="journal holds changes"):
        windows.restore(0, export(windows, 0))


def test_nothing_is_made_when_nothing_is_missing() -> None:
    windows = Windows()
    windows.add(one("rows", 3, 1))
    heap, journal = windows.heap, windows.journal
    windows.make_room()
    assert windows.heap is heap and windows.journal is journal


def export(windows: Windows, number: int) -> dict[str, Any]:
    """All that a window has to remember, as it is stored between batches."""
    header = windows.header(number)
    sequence = np.arange(header[0], header[2])
    return {SEQUENCE: sequence, HEADER: header, **windows.between(number, int(header[0]), len(sequence))}


# --- out and in again --------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 12), st.data())
def test_what_is_exported_and_restored_goes_on_as_before(program: Any, cut: int, data: st.DataObject) -> None:
    chosen, transactions = program
    first = Pair(chosen, compiled)
    for inserts, undone_after in transactions[:cut]:
        first.run(inserts, undone_after)
    asked = [
        WindowLayout(
            layout.name,
            layout.columns,
            layout.mode,
            layout.size,
            layout.slide,
            tuple(data.draw(st.permutations(all_of(layout)))),
        )
        for layout in chosen
    ]
    second = Pair(asked, compiled, **TINY)
    for inserts, _ in transactions[cut:][:2]:  # whatever stood there is forgotten
        second.run(inserts, None)
    for number, naive in enumerate(first.naive):
        second.windows.restore(number, export(first.windows, number))
        second.naive[number] = copy.copy(naive)
        second.naive[number].layout = asked[number]
    second.compare()
    for inserts, undone_after in transactions[cut:]:
        second.run(inserts, undone_after)


def test_an_export_names_rows_times_and_header() -> None:
    windows = Windows()
    base = windows.add(one("time", 10, 5))
    for value, moment in [(1, 3), (2, 7), (3, 6), (4, 31)]:
        compiled.window_insert(windows.heap, windows.journal, windows.state, base, (value,), moment)
    exported = export(windows, 0)
    assert exported["c0"].tolist() == [2, 3, 4]
    assert exported[SEQUENCE].tolist() == [1, 2, 3]
    assert exported[TIME].tolist() == [7, 7, 31]
    assert exported[HEADER].tolist() == [1, 3, 4, 6, 31]


def test_columns_of_every_kind_come_out_as_they_went_in() -> None:
    kinds = (("i", Kind.INT), ("f", Kind.FLOAT), ("b", Kind.BOOL), ("s", Kind.STR))
    windows, other = Windows(), Windows()
    for made in (windows, other):
        made.add(WindowLayout("w", kinds, "rows", 2, 1, (("distinct", 3), ("sum", 2))))
    floats = np.array([-0.0, np.nan, 1e300])
    for position, (truth, text) in enumerate([(True, 2), (False, 4), (True, 4)]):
        words = np.array([-position, floats.view(np.int64)[position], truth, text])
        compiled.window_insert(windows.heap, windows.journal, windows.state, windows.bases[0], words, 0)
    windows.state[LENGTH] = 0
    other.restore(0, export(windows, 0))
    for made in (windows, other):
        rows = made.rows(0)
        assert [rows[name].dtype for name, _ in kinds] == [np.int64, np.float64, np.bool_, np.int64]
        assert rows["i"].tolist() == [-1, -2]
        np.testing.assert_array_equal(rows["f"].view(np.int64), floats.view(np.int64)[1:])
        assert rows["b"].tolist() == [False, True]
        assert rows["s"].tolist() == [4, 4]


def test_strings_can_be_renumbered() -> None:
    layout = WindowLayout("w", (("s", Kind.STR), ("n", Kind.INT)), "rows", 3, 2, (("frequency", 0), ("sum", 1)))
    windows = Windows()
    windows.add(one("rows", 4, 1, ("max", 0)))
    base = windows.add(layout)
    for text, number in [(7, 1), (9, 2), (7, 3), (8, 4), (6, 5)]:
        compiled.window_insert(windows.heap, windows.journal, windows.state, base, (text, number), 0)
    windows.state[LENGTH] = 0
    assert [numbers.tolist() for numbers in windows.string_numbers()] == [[9, 7, 8, 6]]
    numbers = np.array([0, 0, 0, 0, 0, 0, 3, 1, 2, 0])
    windows.renumber(numbers)
    base = windows.bases[1]
    assert windows.rows(1)["s"].tolist() == [0, 1, 2]
    assert windows.rows(1)["n"].tolist() == [2, 3, 4]
    assert windows.staged(1)["s"].tolist() == [3]
    assert [int(compiled.window_frequency(windows.heap, base, 0, n)) for n in (0, 1, 2, 3, 7)] == [1, 1, 1, 0, 0]
    assert compiled.window_sum(windows.heap, base, 1) == 9


# --- inside other machine code -----------------------------------------------------------------------------------
# `generated`, not `kernel`: what is kept on disk for a test would outlive changes of the kernels that it took in.


@inline
def drive(heap, journal, state, base, columns, position, answers_out, top_out):  # type: ignore[no-untyped-def]
    """Insert rows from `position` on and ask everything after each; returns where room was missing."""
    values, moments = columns
    while position < values.shape[0]:
        mark = state[LENGTH]
        slid = compiled.window_insert(heap, journal, state, base, (values[position],), moments[position])
        if state[NEEDS] != NOTHING:
            undo(heap, journal, state, mark)
            return position
        answers_out[position, 0] = slid
        answers_out[position, 1] = compiled.window_count(heap, base)
        answers_out[position, 2] = compiled.window_sum(heap, base, 0)
        answers_out[position, 3] = compiled.window_min(heap, base, 1)
        answers_out[position, 4] = compiled.window_max(heap, base, 2)
        answers_out[position, 5] = compiled.window_distinct(heap, base, 3)
        answers_out[position, 6] = compiled.window_frequency(heap, base, 4, values[position])
        answers_out[position, 7] = compiled.window_top(heap, base, 5, TOP, top_out[position])
        state[LENGTH] = 0
        position += 1
    return position


def driven(windows: Windows, values: Any, moments: Any) -> tuple[Any, Any]:
    answers, top = np.zeros((len(values), 8), np.int64), np.zeros((len(values), TOP), np.int64)
    position = 0
    while True:
        arrays = (windows.heap, windows.journal, windows.state, windows.bases[0])
        position = drive(*arrays, (values, moments), position, answers, top)
        if position == len(values):
            return answers, top
        windows.make_room()


@pytest.mark.parametrize(
    ("mode", "size", "slide", "spread"),
    [
        ("rows", 100, 1, 30),
        ("rows", 64, 64, 1 << 40),
        ("rows", 50, 7, 3),
        ("time", 60, 10, 20),
        ("time", 300, 1, 1 << 40),
        ("time", 25, 25, 5),
    ],
)
def test_compiled_code_gets_the_answers_of_lists(mode: str, size: int, slide: int, spread: int) -> None:
    rng = np.random.default_rng(size)
    layout = one(mode, size, slide, *((function, 0) for function in FUNCTIONS))
    windows, naive = Windows(**TINY), Naive(layout)
    windows.add(layout)
    values = rng.integers(-spread, spread, 3000)
    moments = np.cumsum(rng.integers(-1, 3, 3000))
    answers, top = driven(windows, values, moments)
    for position, value in enumerate(values.tolist()):
        slid = naive.insert((value,), int(moments[position]))
        expected = [naive.answer(function, 0, (value,)) for function in FUNCTIONS]
        ranked = expected[5]
        wanted = [slid, len(naive.visible), *expected[:4], *expected[4], len(ranked)]
        assert answers[position].tolist() == wanted, position
        assert top[position, : len(ranked)].tolist() == ranked, position


def test_a_row_costs_the_same_in_a_large_window_as_in_a_small_one() -> None:
    """A thousand times the rows: what looks at all of them would take hundreds of times as long."""
    seconds = {}
    for size in (100, 100_000):
        layout = one("rows", size, 1, *((function, 0) for function in FUNCTIONS))
        windows = Windows()
        windows.add(layout)
        values = np.random.default_rng(1).integers(0, 1 << 40, 220_000)
        driven(windows, values[:110_000], values)
        began = time.process_time()
        driven(windows, values[110_000:], values)
        seconds[size] = time.process_time() - began
    assert seconds[100_000] < 20 * seconds[100]


@pytest.mark.parametrize("function", FUNCTIONS[:5])
def test_sliding_by_one_changes_as_many_words_in_any_window(function: str) -> None:
    lines = {}
    for size in (16, 4096):
        windows = Windows(journal_lines=1 << 20, ring_rows=1 << 14, table_buckets=1 << 14)
        base = windows.add(one("rows", size, 1, (function, 0)))
        values = np.random.default_rng(2).integers(0, 1 << 40, 3 * size + 4000)
        for position, value in enumerate(values.tolist()):
            if position == len(values) - 4000:
                windows.state[LENGTH] = 0
            compiled.window_insert(windows.heap, windows.journal, windows.state, base, (value,), 0)
        assert windows.state[NEEDS] == NOTHING
        lines[size] = int(windows.state[LENGTH]) / 4000
    assert lines[4096] < 1.5 * lines[16] < 30
