"""Array views of memory of which only the address is known.

A generated program's `operate` is called from machine code, which can pass numbers but no NumPy arrays. So the arrays
of a batch are listed by address, and the program makes views of them:

    integers_at(address)[slot]           keys, values, offsets, strings by their number
    floats_at(address)[slot]
    flags_at(address)[slot]              one byte each, as NumPy keeps bools
    bytes_at(address)[position]
    key_words_at(address, width)[slot, field]
    key_floats_at(address, width)[slot, field]

Each function exists twice: as plain Python over NumPy, and in compiled code, where a view is a pointer in a register.
Nothing is allocated or reference-counted: the caller keeps the array alive. A view has no length, so an index past the
end is not detected; slots and offsets come from the engine, which also made the arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.foundation.jit import ir, lower_builtin, populate_array, type_callable, types

Array = npt.NDArray[Any]

LENGTH = 1 << 48  # longer than any memory: the real length of a view is not known
VIEWS_KEPT = 1 << 12


class _Memory:
    """What NumPy needs to see an address as an array."""

    def __init__(self, address: int, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
        typestr = np.dtype(dtype).str
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": typestr, "version": 3}


@functools.lru_cache(VIEWS_KEPT)
def _view(address: int, dtype: type[np.generic], *width: int) -> Array:
    return np.asarray(_Memory(address, dtype, (LENGTH, *width)))


def integers_at(address: int) -> Array:
    """The 64-bit integers from `address` on."""
    return _view(int(address), np.int64)


def floats_at(address: int) -> Array:
    """The floats from `address` on."""
    return _view(int(address), np.float64)


def flags_at(address: int) -> Array:
    """The bools from `address` on."""
    return _view(int(address), np.bool_)


def bytes_at(address: int) -> Array:
    """The bytes from `address` on."""
    return _view(int(address), np.uint8)


def key_words_at(address: int, width: int) -> Array:
    """The keys of a table from `address` on: one row per slot, `width` words each."""
    return _view(int(address), np.int64, width)


def key_floats_at(address: int, width: int) -> Array:
    """The same keys, read as floats."""
    return _view(int(address), np.float64, width)


# --- machine code ---------------------------------------------------------------------------------
# Rejected: overloads. Without reference counts a compiled function cannot return an array that it made, but code
# that is lowered in place can.


def _lower(function: Callable[..., Array], element: Any, dimensions: int) -> None:
    """Register with the compiler how `function` makes a view of the elements, or rows of them, at an address."""
    array = types.Array(element, dimensions, "C")
    integers = (types.int64,) * dimensions

    def resolve(_context: Any) -> Callable[..., Any]:
        return (lambda address: array(*integers)) if dimensions == 1 else (lambda address, width: array(*integers))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder)
        size = context.get_abi_sizeof(context.get_data_type(element))
        word = context.get_value_type(types.int64)
        strides = [ir.Constant(word, size)]
        if dimensions == 2:
            strides.insert(0, builder.mul(arguments[1], strides[0]))
        populate_array(
            view,
            data=builder.inttoptr(arguments[0], view.data.type),
            shape=[ir.Constant(word, LENGTH), *arguments[1:]],
            strides=strides,
            itemsize=ir.Constant(word, size),
            meminfo=None,
        )
        return view._getvalue()

    type_callable(function)(resolve)
    lower_builtin(function, *integers)(generate)


_lower(integers_at, types.int64, 1)
_lower(floats_at, types.float64, 1)
_lower(flags_at, types.boolean, 1)
_lower(bytes_at, types.uint8, 1)
_lower(key_words_at, types.int64, 2)
_lower(key_floats_at, types.float64, 2)
