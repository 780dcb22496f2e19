"""All windows of an engine: where they lie, how they get more room, how they are stored and come back.

Compiled code works on these arrays, and finds a window by its number:

    heap      window 0          | window 1                    | window 2 ...
              ^ bases[0]          ^ bases[1]                    ^ bases[2]

              header 16 words   MODE SIZE SLIDE COLUMNS WIDTH CAPACITY RING SLOTS
                                FIRST STAGED NEXT BOUNDARY LATEST - - -
              slots   8 each    FUNCTION COLUMN OWNER DATA SPACE, two words of its own, FLOATS
              ring              CAPACITY rows of WIDTH words
              data              of slot 0, of slot 1, ...

    journal   (index, what stood there), one line for each word that a transaction changed
    state     LENGTH of the journal, NEEDS, WINDOW, PART

What the words mean is drawn in `kernels.windows`. A window is a copy away from any other place, because nothing in it
says where it lies. Room is made between two attempts of a transaction, when the journal is empty: the window is built
anew, twice as large where it was full, and the others close up around it. So `heap`, `journal` and what `bases` holds
are to be read again after `make_room`; `state` stays where it is, and so does `bases` once all windows are added.

Aggregates are never stored: they follow from the visible rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.window_journal import (
    JOURNAL_ROOM,
    LENGTH,
    NEEDS,
    NOTHING,
    PART,
    STATE_WORDS,
    WINDOW,
    WINDOW_ROOM,
)
from tidegate.engine.kernels.windows import (
    CAPACITY,
    COUNTS,
    COUNTS_ENTRY,
    ENTRY,
    FIRST,
    FLOATS,
    HEADER_WORDS,
    LATEST,
    MAX,
    MIN,
    NEXT,
    RANKING,
    RANKING_ENTRY,
    RING,
    ROWS_MODE,
    SLOT_WORDS,
    SPACE,
    STAGED,
    SUM,
    TIME_MODE,
    WIDTH,
    fill,
)
from tidegate.operations.flow import TOP_WORDS
from tidegate.operations.layout import Kind, ValueType

Array = npt.NDArray[Any]

FUNCTIONS = {"sum": SUM, "min": MIN, "max": MAX, "distinct": COUNTS, "frequency": COUNTS, "top": RANKING}
"""What a body can ask of a window, and what a slot keeps to answer it."""

SEQUENCE, TIME, HEADER = "#sequence", "#time", "#header"
"""What an export holds besides the columns; no column can have such a name."""

JOURNAL_LINES = 1 << 12
RING_ROWS = 1 << 10  # windows by rows that never hold more than this get all their room at once
TABLE_BUCKETS = 1 << 6
FILL_LINES = 1 << 10  # far more than one row changes in one slot while it enters


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """A window as data: what it keeps of a tuple, when it slides, and what its transactions ask of it.

    `aggregates` are pairs of a name in `FUNCTIONS` and the position of a column; their own positions are the slots.
    """

    name: str
    columns: tuple[tuple[str, ValueType], ...]
    mode: Literal["rows", "time"]
    size: int
    slide: int
    aggregates: tuple[tuple[str, int], ...] = ()

    @property
    def width(self) -> int:
        """The words of a row: its columns, and its time where that matters."""
        return len(self.columns) + (self.mode == "time")

    @property
    def owners(self) -> tuple[int, ...]:
        """Per slot the one that keeps what it asks: the first of its kind, or a ranking, which counts as well."""
        kept = [(FUNCTIONS[function], column) for function, column in self.aggregates]
        found = []
        for function, column in kept:
            ranked = (RANKING, column)
            found.append(kept.index(ranked if function == COUNTS and ranked in kept else (function, column)))
        return tuple(found)


class Windows:
    """The windows of one engine. Their numbers count up as they are added.

    Rows, columns and exports hold values as table columns do: strings by their number.
    """

    def __init__(
        self,
        journal_lines: int = JOURNAL_LINES,
        ring_rows: int = RING_ROWS,
        table_buckets: int = TABLE_BUCKETS,
    ) -> None:
        self.layouts: list[WindowLayout] = []
        self.heap = np.zeros(0, np.int64)
        self.journal = np.zeros((journal_lines, 2), np.int64)
        self.state = np.zeros(STATE_WORDS, np.int64)
        self.bases = np.zeros(0, np.int64)
        self.words = np.zeros(1, np.int64)
        """The tuple that is about to enter a window; the same as floats."""
        self.float_words = self.words.view(np.float64)
        self.tops = np.zeros(TOP_WORDS, np.int64)
        """What calls of `top` returned in the current transaction; the same as floats."""
        self.float_tops = self.tops.view(np.float64)
        self._ring_rows = ring_rows
        self._table_buckets = table_buckets

    def add(self, layout: WindowLayout) -> int:
        """Lay out an empty window, number `len(layouts)` until now; returns where it begins."""
        self.layouts.append(layout)
        self.words = np.zeros(max(len(self.words), len(layout.columns)), np.int64)
        self.float_words = self.words.view(np.float64)
        self.bases = np.append(self.bases, len(self.heap))
        self.heap = np.append(self.heap, self._sized(layout, _NO_SCALARS, np.zeros((0, layout.width), np.int64)))
        return int(self.bases[-1])

    # --- room -----------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Make the room that `state` asks for, and clear that; the changes that did not fit are taken back before."""
        needs = self.state[NEEDS]
        if needs == JOURNAL_ROOM:
            used = int(self.state[LENGTH])
            larger = np.zeros((max(2 * len(self.journal), 1), 2), np.int64)
            larger[:used] = self.journal[:used]
            self.journal = larger
        elif needs == WINDOW_ROOM:
            number = int(np.flatnonzero(self.bases == self.state[WINDOW])[0])
            window = self._window(number)
            rows, buckets = int(window[CAPACITY]), self._spaces(number)
            if self.state[PART] == 0:
                rows *= 2
            else:
                buckets[int(self.state[PART]) - 1] *= 2
            self._replace(number, _built(self.layouts[number], *self._kept(number), rows, buckets))
        self.state[NEEDS] = NOTHING

    def _window(self, number: int) -> Array:
        """A window's words."""
        stop = self.bases[number + 1] if number + 1 < len(self.bases) else len(self.heap)
        return self.heap[self.bases[number] : stop]

    def _spaces(self, number: int) -> list[int]:
        """What each slot of a window has room for."""
        slots = len(self.layouts[number].aggregates)
        words = self._window(number)[HEADER_WORDS : HEADER_WORDS + slots * SLOT_WORDS]
        return [int(space) for space in words[SPACE::SLOT_WORDS]]

    def _replace(self, number: int, window: Array) -> None:
        assert self.state[LENGTH] == 0, "a window moved while the journal holds changes of it"
        parts = [window if n == number else self._window(n) for n in range(len(self.layouts))]
        self.heap = np.concatenate(parts)
        self.bases[1:] = np.cumsum([len(part) for part in parts[:-1]])

    def _sized(self, layout: WindowLayout, scalars: Array, words: Array) -> Array:
        """A window with some rows in it, and as much room as they need and this engine gives at first."""
        rows = self._ring_rows if layout.mode == "time" else min(self._ring_rows, layout.size + layout.slide)
        visible = words[: _visible(scalars)]
        buckets = [self._table_buckets] * len(layout.aggregates)
        for slot, (name, column) in enumerate(layout.aggregates):
            if FUNCTIONS[name] in (COUNTS, RANKING):
                buckets[slot] = max(buckets[slot], 2 * len(np.unique(visible[:, column])))
        return _built(layout, scalars, words, max(rows, len(words)), buckets)

    # --- rows in and out ------------------------------------------------------------------------------

    def rows(self, number: int) -> dict[str, Array]:
        """The visible rows of a window, oldest first."""
        scalars, words = self._kept(number)
        return self._columns(number, words[: _visible(scalars)])

    def staged(self, number: int) -> dict[str, Array]:
        """The rows that wait for a window to slide, oldest first."""
        scalars, words = self._kept(number)
        return self._columns(number, words[_visible(scalars) :])

    def header(self, number: int) -> Array:
        """Where a window stands: first, staged, next, boundary, latest."""
        return self._window(number)[FIRST : LATEST + 1].copy()

    def between(self, number: int, first: int, count: int) -> dict[str, Array]:
        """Some rows of a window by their numbers: its columns, and `#time`."""
        window = self._window(number)
        words = _ring(window)[np.arange(first, first + count) & (window[CAPACITY] - 1)]
        by_time = self.layouts[number].mode == "time"
        time = words[:, -1].copy() if by_time else np.zeros(count, np.int64)
        return {TIME: time, **self._columns(number, words)}

    def restore(self, number: int, contents: Mapping[str, Array]) -> None:
        """Make a window hold these rows, whatever it held; its aggregates are computed anew.

        Besides the columns, of visible and staged rows together: `#sequence`, the number that each row got as it came;
        `#time`, its effective time (0 in a window by rows); and `#header`: first, staged, next, boundary, latest.
        """
        layout, scalars = self.layouts[number], np.asarray(contents[HEADER], np.int64)
        columns = [_as_words(contents[name], of.kind) for name, of in layout.columns]
        if layout.mode == "time":
            columns.append(np.asarray(contents[TIME], np.int64))
        words = np.zeros((len(contents[SEQUENCE]), layout.width), np.int64)
        for position, column in enumerate(columns):
            words[:, position] = column
        assert np.array_equal(contents[SEQUENCE], _numbers(scalars)), layout.name
        self._replace(number, self._sized(layout, scalars, words))

    def _kept(self, number: int) -> tuple[Array, Array]:
        """The numbers that a window counts with, from FIRST to LATEST, and the words of all rows in it."""
        window = self._window(number)
        scalars = window[FIRST : LATEST + 1].copy()
        return scalars, _ring(window)[_numbers(scalars) & (window[CAPACITY] - 1)]

    def _columns(self, number: int, words: Array) -> dict[str, Array]:
        columns = self.layouts[number].columns
        return {name: _as_values(words[:, position], of.kind) for position, (name, of) in enumerate(columns)}

    # --- strings --------------------------------------------------------------------------------------

    def string_numbers(self) -> list[Array]:
        """The numbers of all strings that rows hold."""
        return [
            self._kept(number)[1][:, position]
            for number, layout in enumerate(self.layouts)
            for position in _string_columns(layout)
        ]

    def renumber(self, numbers: Array) -> None:
        """String number n is number `numbers[n]` from now on."""
        for number, layout in enumerate(self.layouts):
            positions = _string_columns(layout)
            if positions:
                scalars, words = self._kept(number)
                words[:, positions] = numbers[words[:, positions]]
                rows = int(self._window(number)[CAPACITY])
                self._replace(number, _built(layout, scalars, words, rows, self._spaces(number)))


_NO_SCALARS = np.zeros(LATEST + 1 - FIRST, np.int64)


def _built(layout: WindowLayout, scalars: Array, words: Array, rows: int, buckets: Sequence[int]) -> Array:
    """A window built from its rows; the ring and, per slot, the hash table have the given sizes."""
    capacity = _power_of_two(rows)
    owners = layout.owners
    ring = HEADER_WORDS + SLOT_WORDS * len(owners)
    end = ring + capacity * layout.width
    slots = np.zeros((len(owners), SLOT_WORDS), np.int64)
    for slot, (name, column) in enumerate(layout.aggregates):
        function = FUNCTIONS[name]
        space, entry, size = 0, 0, 0
        if function in (MIN, MAX):
            space = size = capacity
        elif function == COUNTS:
            space, entry = _power_of_two(max(buckets[slot], 2)), COUNTS_ENTRY
            size = space * entry
        elif function == RANKING:
            space, entry = _power_of_two(max(buckets[slot], 2)), RANKING_ENTRY
            size = space * entry + space // 2
        slots[slot, : SPACE + 1] = function, column, owners[slot], end, space
        slots[slot, ENTRY] = entry
        slots[slot, FLOATS] = layout.columns[column][1] is Kind.FLOAT
        end += size if owners[slot] == slot else 0
    window = np.zeros(end, np.int64)
    mode = TIME_MODE if layout.mode == "time" else ROWS_MODE
    window[:FIRST] = mode, layout.size, layout.slide, len(layout.columns), layout.width, capacity, ring, len(owners)
    window[FIRST : LATEST + 1] = scalars
    window[HEADER_WORDS:ring] = slots.reshape(-1)
    _ring(window)[_numbers(scalars) & (capacity - 1)] = words
    state = np.zeros(STATE_WORDS, np.int64)
    fill(window, np.zeros((FILL_LINES, 2), np.int64), state, 0)
    assert state[NEEDS] == NOTHING, f"window {layout.name}: its own rows do not fit"
    return window


def _ring(window: Array) -> Array:
    """The rows of a window's ring, as a view."""
    first, capacity, width = int(window[RING]), int(window[CAPACITY]), int(window[WIDTH])
    return window[first : first + capacity * width].reshape(capacity, width)


def _visible(scalars: Array) -> int:
    """How many rows of a window are visible, by its numbers from FIRST on."""
    return int(scalars[STAGED - FIRST] - scalars[0])


def _numbers(scalars: Array) -> Array:
    """The numbers of all rows that a window keeps."""
    return np.arange(scalars[0], scalars[NEXT - FIRST])


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()


def _string_columns(layout: WindowLayout) -> list[int]:
    return [position for position, (_name, of) in enumerate(layout.columns) if of.kind is Kind.STR]


def _as_values(words: Array, kind: Kind) -> Array:
    """Words as a column of a kind."""
    if kind is Kind.FLOAT:
        return words.copy().view(np.float64)
    return words.astype(kind.dtype)


def _as_words(values: Array, kind: Kind) -> Array:
    """A column of a kind as words."""
    if kind is Kind.FLOAT:
        return np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.asarray(values).astype(np.int64)
