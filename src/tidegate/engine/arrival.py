"""The order in which a batch's events run, and which of them come too late.

Events run by `order_by`; where that leaves a tie (or is not given), in the order of their source. An
event whose `order_by` is null has no place in the order and is refused. `content_hashes` names events
by what they say, so that an order can be written down and found again when the same events arrive in
another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.intake import valid_mask
from tidegate.engine.kernels.events import is_strictly_increasing
from tidegate.engine.kernels.strings import hash_rows
from tidegate.engine.state.columns import one_piece
from tidegate.engine.state.strings import string_buffers
from tidegate.foundation.errors import InputError

Array = npt.NDArray[Any]
LATE = "late event"


@dataclass(slots=True)
class Arrival:
    """The order of a batch. `total` says that `order_by` alone decides it; `high` is its highest value.

    `times` are the values of `order_by` where they are numbers, or timestamps: their microseconds.
    """

    order: Array
    total: bool
    refused: dict[str, Array]
    high: int | float | str | None
    times: Array | None = None


def arrange(events: pa.Table, order_by: str | None, late_below: Any = None) -> Arrival:
    """The order of a batch of events.

    Args:
        events: the batch.
        order_by: the column that orders events, or None for the order in which they stand.
        late_below: with a value, events whose `order_by` is lower are refused as late.
    """
    if order_by is None:
        return Arrival(np.arange(events.num_rows), False, {}, None)
    if order_by not in events.column_names:
        raise InputError(
            f"events: the order_by column {order_by!r} is missing; the columns are: {', '.join(events.column_names)}"
        )
    column = one_piece(events.column(order_by))
    values, original = _sortable(column, order_by)
    refused: dict[str, Array] = {}
    valid = valid_mask(column)
    if valid is not None:
        refused[f"null in order column {order_by!r}"] = ~valid
    if values.dtype == np.float64 and np.isnan(values).any():
        refused[f"NaN in order column {order_by!r}"] = np.isnan(values) & (True if valid is None else valid)
        values = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if late_below is not None:
        refused[LATE] = _below(original, values, late_below)
    order, total = _sorted(values)
    return Arrival(order, total, refused, _highest(original, values, refused), _times(values, column.type))


def content_hashes(events: pa.Table) -> npt.NDArray[np.int64]:
    """A 64-bit hash of each event's content; equal events have equal hashes."""
    found = np.zeros(events.num_rows, np.uint64)
    for name in events.column_names:
        found = _mix(found * np.uint64(31) + _column_hash(one_piece(events.column(name))))
    return found.view(np.int64)


def reorder(hashes: Array, logged: Array) -> Array | None:
    """The positions that put events into a logged order; None when they are not the same events."""
    if len(hashes) != len(logged):
        return None
    here, there = np.argsort(hashes, kind="stable"), np.argsort(logged, kind="stable")
    if not np.array_equal(hashes[here], logged[there]):
        return None
    order = np.empty(len(hashes), np.int64)
    order[there] = here
    return order


def _sortable(column: pa.Array, name: str) -> tuple[Array, pa.Array]:
    """The column as numbers that sort as it does, and the column itself."""
    types = pa.types
    kind = column.type
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
    if types.is_null(kind):
        return np.zeros(len(column), np.int64), column
    if types.is_timestamp(kind) or types.is_date64(kind) or types.is_time64(kind) or types.is_duration(kind):
        column = column.cast(pa.int64())
    elif types.is_date32(kind) or types.is_time32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    if types.is_integer(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"events: the order_by column {name!r} holds a value beyond 64 bits: {error}") from error
        return np.asarray(column.fill_null(0).to_numpy()), column
    if types.is_floating(column.type):
        column = column.cast(pa.float64())
        return np.asarray(column.fill_null(0.0).to_numpy()), column
    if types.is_string_view(column.type):
        column = column.cast(pa.string())
    if types.is_string(column.type) or types.is_large_string(column.type):
        return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy()).astype(np.int64), column
    raise InputError(
        f"events: the order_by column {name!r} has type {kind}, required: a number, a timestamp, a date or a string"
    )


def _times(values: Array, found: pa.DataType) -> Array | None:
    """The values of an order column as times of events; None where they are none."""
    if pa.types.is_integer(found) or pa.types.is_floating(found):
        return values
    if not pa.types.is_timestamp(found):
        return None
    if found.unit == "ns":
        return values // 1000
    factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[found.unit]
    limit = (2**63 - 1) // factor
    return np.clip(values, -limit, limit) * factor


def _sorted(values: Array) -> tuple[Array, bool]:
    """The order of the values, equal ones as they stand; and whether no two are equal."""
    state = is_strictly_increasing(values)
    if state:
        return np.arange(len(values)), state == 2
    order = np.argsort(values, kind="stable")
    return order, bool(is_strictly_increasing(values[order]) == 2)


def _below(column: pa.Array, values: Array, limit: Any) -> Array:
    if isinstance(limit, str):
        return np.asarray(pc.fill_null(pc.less(column, limit), False).to_numpy(zero_copy_only=False))
    return np.asarray(values < limit)


def _highest(column: pa.Array, values: Array, refused: dict[str, Array]) -> int | float | str | None:
    lost = [rows for reason, rows in refused.items() if reason != LATE]
    if not lost:
        at = int(np.argmax(values)) if len(values) else -1
    else:
        kept = np.flatnonzero(~np.logical_or.reduce(lost))
        at = int(kept[np.argmax(values[kept])]) if len(kept) else -1
    if at < 0:
        return None
    found: int | float | str = column[at].as_py()
    return found


def _mix(words: Array) -> Array:
    mixed: Array = words ^ (words >> np.uint64(33))
    mixed = mixed * np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _column_hash(column: pa.Array) -> Array:
    types, kind = pa.types, column.type
    if types.is_struct(kind):
        found = np.zeros(len(column), np.uint64)
        for number in range(kind.num_fields):
            found = _mix(found * np.uint64(37) + _column_hash(pc.struct_field(column, number)))
    elif types.is_list(kind) or types.is_large_list(kind):
        column = column.cast(pa.large_list(kind.value_type))
        offsets = np.asarray(column.offsets)
        span = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        found = _list_hash(_column_hash(span), offsets - offsets[0])
    elif types.is_null(kind):
        found = np.zeros(len(column), np.uint64)
    elif types.is_boolean(kind):
        found = _mix(np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint64))
    elif types.is_floating(kind):
        found = _mix(np.ascontiguousarray(column.cast(pa.float64()).fill_null(0.0).to_numpy()).view(np.uint64))
    elif types.is_integer(kind) or types.is_temporal(kind):
        words = column if types.is_integer(kind) else column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        found = _mix(words.fill_null(0).to_numpy().astype(np.uint64))
    else:
        texts = column.cast(pa.large_string()) if not types.is_binary(kind) else column.cast(pa.large_binary())
        offsets, data = (
            string_buffers(texts)
            if types.is_large_string(texts.type)
            else string_buffers(texts.view(pa.large_string()))
        )
        found = np.empty(len(column), np.uint64)
        hash_rows(offsets, data, found)
    valid = valid_mask(column)
    return found if valid is None else np.where(valid, found, np.uint64(0x9E3779B97F4A7C15))


def _list_hash(elements: Array, offsets: Array) -> Array:
    """Combine the hashes of each list's elements, in their order."""
    sizes = np.diff(offsets)
    place = np.arange(len(elements)) - np.repeat(offsets[:-1], sizes)
    mixed = _mix(elements + place.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    summed = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return _mix(summed[offsets[1:]] - summed[offsets[:-1]] + sizes.astype(np.uint64))
