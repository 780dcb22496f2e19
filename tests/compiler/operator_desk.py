"""Runs one operator as the ordered runtime does: `operate` is called by its address, on words at addresses."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints

import numpy as np

from tidegate.api.annotations import value_type
from tidegate.compiler.operators import compile_operator, link_operators
from tidegate.engine.generated import load
from tidegate.engine.state.columns import word_of
from tidegate.engine.state.strings import StringPool
from tidegate.operations.kinds import Kind, ValueType
from tidegate.operations.layout import Column, TableLayout
from tidegate.operations.pipeline import FRAME_WORDS, HEADER, NO_ROOM, OperatorPlan, RecordLayout
from tidegate.operations.plan import ESCAPE, INTERRUPTED
from tidegate.operations.values import none_mask

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)
HIDDEN, SLOT = -77, 1
FAILED = (ESCAPE, INTERRUPTED, NO_ROOM)


def layout_of(declared: type) -> RecordLayout:
    """The layout of a dataclass."""
    return RecordLayout(declared.__name__, tuple(_columns(declared)), declared)


def state_of(declared: type) -> TableLayout:
    """The layout of a state: a hidden key of one word, and its fields."""
    return TableLayout(declared.__name__, (Column("<key>", Kind.INT, 0), *_columns(declared)), ("<key>",))


def _columns(declared: type) -> list[Column]:
    hints = get_type_hints(declared, include_extras=True)
    return [Column(f.name, value_type(hints[f.name]), None) for f in dataclasses.fields(declared)]  # type: ignore[arg-type]


def compiled(
    function: Callable[..., Any],
    record: type,
    outputs: type | None = None,
    state: type | None = None,
    many: Any = "one",
    role: Any = "map",
) -> OperatorPlan:
    """The plan of an operator over dataclasses."""
    found = None if outputs is None else layout_of(outputs)
    return compile_operator(function, role, layout_of(record), None if state is None else state_of(state), found, many)


class Desk:
    """One operator of a pipeline on a desk, with a state in slot 1 and room for outputs."""

    def __init__(self, plan: OperatorPlan, outputs: RecordLayout, state: type | None, before: int = 1) -> None:
        self.plan, self.outputs, self.state = plan, outputs, state
        self.number = before
        self.pipeline = link_operators([*[None] * before, plan])
        self.entry = load(self.pipeline).operate
        self.strings = StringPool()
        self._columns = {} if state is None else {c.name: c.type for c in state_of(state).value_columns}
        self.columns = {name: np.zeros(3, of.dtype) for name, of in self._columns.items()}
        self.exists = np.zeros(3, np.bool_)
        worker = {
            "literals": np.array([self.strings.number(text) for text in self.pipeline.literals], np.int64),
            "texts": self.strings.places,
            "signals": np.zeros(1, np.int64),
        }
        self.signals = worker["signals"]
        found = []
        for spec in self.pipeline.arrays:
            if spec.owner == "state":
                assert spec.of == self.number
                found.append(self.exists if spec.role == "exists" else self.columns[str(spec.key)])
            else:
                found.append(worker[spec.role])
        for spec, array in zip(self.pipeline.arrays, found, strict=True):
            assert array.dtype == spec.dtype
        self._held = found
        self._context = np.array([array.ctypes.data for array in found], np.int64)

    def row(self, record: Any, layout: RecordLayout) -> np.ndarray[Any, Any]:
        """A record as words; what does not fit raises."""
        row = np.full(layout.stride, HIDDEN, np.int64)
        for place, column in enumerate(layout.fields, HEADER):
            word = self.word(getattr(record, column.name), column.type)
            (row.view(np.float64) if column.kind is Kind.FLOAT else row)[place] = word
        return row

    def bits(self, row: np.ndarray[Any, Any]) -> bytes:
        """The words of a row's fields, and of its key."""
        words = [
            row.view(np.float64)[place] if column.kind is Kind.FLOAT else row[place]
            for place, column in enumerate(self.outputs.fields, HEADER)
        ]
        return b"".join(map(_bits, [*words, *row[self.outputs.stride :]]))

    def word(self, value: Any, of: ValueType) -> Any:
        """The word of a value."""
        return word_of(of.fit(value), of, self.strings)

    def put(self, state: Any) -> None:
        """Write the state."""
        for name, of in self._columns.items():
            self.columns[name][SLOT] = self.word(getattr(state, name), of)

    def words_of_state(self, state: Any) -> dict[str, bytes]:
        """The bits of a state."""
        return {
            name: _bits(self.columns[name].dtype.type(self.word(getattr(state, name), of)))
            for name, of in self._columns.items()
        }

    def stored(self) -> dict[str, bytes]:
        """The bits of the state as it is now; nothing else was written."""
        for name, array in self.columns.items():
            assert not array[0] and not array[2], f"{name} of another slot was written"
        return {name: _bits(array[SLOT]) for name, array in self.columns.items()}

    def operate(self, record: Any, room: int, key: bool = False) -> tuple[int, np.ndarray[Any, Any]]:
        """The status, and the memory of output rows."""
        row = self.row(record, self.plan.record)
        before = row.copy()
        out = np.full((room + 1, self.outputs.stride + key), HIDDEN, np.int64)
        frame = np.array([SLOT, out.ctypes.data, room, 0][:FRAME_WORDS], np.int64)
        call = _CALL(self.entry.address)
        status = int(call(self._context.ctypes.data, self.number, row.ctypes.data, frame.ctypes.data))
        if self.entry.error is not None:
            error, self.entry.error = self.entry.error, None
            raise error
        assert (row == before).all(), "the input row was written"
        assert (out[:, :HEADER] == HIDDEN).all(), "hidden words were written"
        assert (out[room:] == HIDDEN).all(), "behind the room was written"
        return status, out


def _bits(word: Any) -> bytes:
    """The bits of a word; which NaN it is does not count, but None is another one."""
    if isinstance(word, np.floating) and word != word and not none_mask(np.array([word]))[0]:
        return b"NaN"
    return bytes(word.tobytes())


def check(desk: Desk, function: Callable[..., Any], record: Any, state: Any = None, escapes: bool | None = None) -> int:
    """Require that an operator does what the plain function does; gives its status with enough room.

    Where plain Python raises or gives what no record holds, it must escape; elsewhere it may, but not if `escapes` is
    False.
    """
    plain = None if state is None else dataclasses.replace(state)
    arguments = [record] if state is None else [plain, record]
    try:
        expected: list[bytes] | None = _outputs(desk, function(*arguments), record)
        after = desk.words_of_state(plain)
    except Exception:
        expected, after = None, {}
    if state is not None:
        desk.put(state)
    before, existed = desk.stored(), bool(desk.exists[SLOT])
    count = 0 if expected is None else len(expected)
    for room in range(count):
        status, _ = desk.operate(record, room, desk.plan.role == "key")
        assert status in FAILED, f"{count} outputs in {room} rows"
        assert desk.stored() == before and desk.exists[SLOT] == existed, "not undone"
    room, status = count, NO_ROOM
    while status == NO_ROOM:  # a list may have been longer on the way
        room = 2 * room + 1
        status, out = desk.operate(record, room, desk.plan.role == "key")
        assert status != NO_ROOM or desk.stored() == before, "not undone"
    if status < 0:
        assert desk.stored() == before and desk.exists[SLOT] == existed, "not undone"
        assert status == ESCAPE
        assert expected is None or escapes is not False, f"escapes for {record}, {state}"
        return status
    assert expected is not None, f"plain Python raises for {record}, {state}; got {status} outputs"
    assert escapes is not True, f"does not escape for {record}, {state}"
    assert status == count, f"{status} outputs instead of {count} for {record}, {state}"
    assert [desk.bits(row) for row in out[:status]] == expected, f"other outputs for {record}, {state}"
    assert desk.stored() == after, f"another state for {record}, {state}"
    return status


def _outputs(desk: Desk, result: Any, record: Any) -> list[bytes]:
    """The words of what a plain function returned."""
    if desk.plan.role == "filter":
        return [desk.bits(desk.row(record, desk.outputs))] if result else []
    if desk.plan.role == "key":
        of = desk.plan.key
        assert of is not None
        word = desk.word(result, of)
        if of.kind is Kind.FLOAT and result is not None:
            if word != word:
                raise ValueError("NaN")
            word = word + 0.0
        dtype = np.float64 if of.kind is Kind.FLOAT else np.int64
        return [desk.bits(desk.row(record, desk.outputs)) + np.array([word], dtype).tobytes()]
    if isinstance(result, list):
        return [desk.bits(desk.row(each, desk.outputs)) for each in result]
    return [] if result is None else [desk.bits(desk.row(result, desk.outputs))]
