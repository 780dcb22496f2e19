"""Coordination of threads in compiled code: atomic memory operations, waiting, calls by address.

Each atomic works on one element of an array and is one or two machine instructions inside a kernel. What a thread
wrote before it releases a value is visible to the thread that acquires that value.

    fetch_add(array, index, amount)          the value before
    exchange(array, index, value)            the value before
    compare_exchange(array, index, old, new) whether it was `old` and is `new` now
    load(array, index)                       acquire
    store(array, index, value)               release
    relax(spins)                             one step of waiting: spin at first, later yield the processor
    relax_crowded(spins)                     the same where threads outnumber processors: in the end it sleeps
    ticks()                                  the processor's cycle counter
    call(address, context, kind, event, slots)    a function of four integers by its address
    address_of(array, index)                 the address of an element
    peek(address, index)                     the 64-bit integer at that address
    copy(source, target, size)               `size` bytes, one or a multiple of eight
    allocate(size), free(address)            memory of the C library, for what outlives a call
    doze(microseconds)                       let others have the processor for that long

Each exists twice: as plain Python, which is the definition, and as an `overload` that compiled code uses. So a kernel
can be run uncompiled, step by step, with any interleaving of its workers. The plain functions share a lock, so that
each is atomic among threads too.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable
from typing import Any

from tidegate.foundation.jit import compiled_form, intrinsic, ir, types

SPINS = 1 << 7
"""How often a waiting thread spins before it yields the processor."""

YIELDS, SLEEP_MICROSECONDS = 16, 50


_one_at_a_time = threading.Lock()
os.register_at_fork(  # no thread of a fork would ever give it back
    before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release
)


# --- as plain Python ---------------------------------------------------------------------------------------


def fetch_add(array: Any, index: int, amount: int) -> int:
    """Add to an element; returns its previous value."""
    with _one_at_a_time:
        before = int(array[index])
        array[index] = before + amount
        return before


def exchange(array: Any, index: int, value: int) -> int:
    """Store a value; returns the previous one."""
    with _one_at_a_time:
        before = int(array[index])
        array[index] = value
        return before


def compare_exchange(array: Any, index: int, old: int, new: int) -> bool:
    """Store `new` if the element equals `old`; returns whether it did."""
    with _one_at_a_time:
        if int(array[index]) != old:
            return False
        array[index] = new
        return True


def load(array: Any, index: int) -> int:
    """Read an element (acquire): whatever was written before it was stored is visible."""
    with _one_at_a_time:
        return int(array[index])


def store(array: Any, index: int, value: int) -> None:
    """Store an element (release): this thread's earlier writes become visible first."""
    with _one_at_a_time:
        array[index] = value


def relax_crowded(spins: int) -> int:
    """One step of waiting when threads outnumber processors: later steps sleep, so that others can work."""
    time.sleep(0 if spins < SPINS + YIELDS else SLEEP_MICROSECONDS * 1e-6)
    return spins + 1


def relax(spins: int) -> int:
    """One step of waiting: the first steps only pause, later ones yield the processor."""
    time.sleep(0)
    return spins + 1


def ticks() -> int:
    """The processor's cycle counter; nanoseconds in plain Python."""
    return time.perf_counter_ns()


_FUNCTION_OF_FOUR = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)


def call(address: int, context: int, kind: int, event: int, slots: int) -> int:
    """Call a function of four 64-bit integers by its address."""
    return int(_FUNCTION_OF_FOUR(int(address))(int(context), int(kind), int(event), int(slots)))


def address_of(array: Any, index: int) -> int:
    """The address of an element."""
    return int(array.ctypes.data) + int(index) * int(array.itemsize)


def peek(address: int, index: int) -> int:
    """Element `index` of the 64-bit integers at `address`."""
    return ctypes.c_int64.from_address(int(address) + 8 * int(index)).value


def copy(source: int, target: int, size: int) -> None:
    """Copy `size` bytes: one, or a multiple of eight."""
    ctypes.memmove(int(target), int(source), int(size))


_library = ctypes.CDLL(None)
_library.malloc.restype, _library.malloc.argtypes = ctypes.c_size_t, (ctypes.c_size_t,)
_library.free.restype, _library.free.argtypes = None, (ctypes.c_size_t,)


def allocate(size: int) -> int:
    """The address of `size` new bytes; 0 if there are none."""
    return int(_library.malloc(int(size)))


def free(address: int) -> None:
    """Give back what `allocate` gave."""
    _library.free(int(address))


def doze(microseconds: int) -> None:
    """Sleep."""
    time.sleep(microseconds * 1e-6)


# --- as machine code ---------------------------------------------------------------------------------------

_WORD = ir.IntType(64)


def _on_element(array: Any, generate: Callable[..., Any], values: int = 0, result: Any = None) -> Any:
    """Type and code of an operation on one element of an array of integers; None for any other array.

    Args:
        array: the array's type.
        generate: generates the code from the builder, a pointer to the element, and the values.
        values: how many arguments of the element's type follow the array and the index.
        result: the type of the result; None is the element's type.
    """
    if not (isinstance(array, types.Array) and isinstance(array.dtype, types.Integer)):
        return None

    def generate_at(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        found = generate(builder, builder.gep(data, [arguments[1]]), *arguments[2:])
        return context.get_dummy_value() if result is types.void else found

    return (result or array.dtype)(array, types.int64, *[array.dtype] * values), generate_at


@intrinsic  # type: ignore[untyped-decorator]
def _fetch_add(_typing: Any, array: Any, _index: Any, _amount: Any) -> Any:
    return _on_element(array, lambda builder, *given: builder.atomic_rmw("add", *given, "acq_rel"), 1)


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    return _on_element(array, lambda builder, *given: builder.atomic_rmw("xchg", *given, "acq_rel"), 1)


@intrinsic  # type: ignore[untyped-decorator]
def _compare_exchange(_typing: Any, array: Any, _index: Any, _old: Any, _new: Any) -> Any:
    def generate(builder: Any, *given: Any) -> Any:
        return builder.extract_value(builder.cmpxchg(*given, "acq_rel", "acquire"), 1)

    return _on_element(array, generate, 2, types.boolean)


@intrinsic  # type: ignore[untyped-decorator]
def _load(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(builder: Any, pointer: Any) -> Any:
        return builder.load_atomic(pointer, "acquire", align=array.dtype.bitwidth // 8)

    return _on_element(array, generate)


@intrinsic  # type: ignore[untyped-decorator]
def _store(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    def generate(builder: Any, pointer: Any, value: Any) -> Any:
        return builder.store_atomic(value, pointer, "release", align=array.dtype.bitwidth // 8)

    return _on_element(array, generate, 1, types.void)


@intrinsic  # type: ignore[untyped-decorator]
def _address_of(_typing: Any, array: Any, _index: Any) -> Any:
    return _on_element(array, lambda builder, pointer: builder.ptrtoint(pointer, _WORD), result=types.int64)


def _calling(name: str, result: Any, *parameters: Any) -> Callable[..., Any]:
    """Code that calls a function of LLVM or of the C library by its name."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(result, parameters)
        found = builder.call(builder.module.declare_intrinsic(name, (), kind), arguments)
        return context.get_dummy_value() if signature.return_type == types.void else found

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def _pause(_typing: Any) -> Any:
    if platform.machine() in ("x86_64", "AMD64"):
        return types.void(), _calling("llvm.x86.sse2.pause", ir.VoidType())
    return types.void(), lambda context, *_: context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def _yield_processor(_typing: Any) -> Any:
    return types.void(), _calling("sched_yield", ir.IntType(32))


@intrinsic  # type: ignore[untyped-decorator]
def _sleep_microseconds(_typing: Any, _count: Any) -> Any:
    return types.void(types.int32), _calling("usleep", ir.IntType(32), ir.IntType(32))


@intrinsic  # type: ignore[untyped-decorator]
def _allocate(_typing: Any, _size: Any) -> Any:
    return types.int64(types.int64), _calling("malloc", _WORD, _WORD)


@intrinsic  # type: ignore[untyped-decorator]
def _free(_typing: Any, _address: Any) -> Any:
    return types.void(types.int64), _calling("free", ir.VoidType(), _WORD)


@intrinsic  # type: ignore[untyped-decorator]
def _ticks(_typing: Any) -> Any:
    return types.int64(), _calling("llvm.readcyclecounter", _WORD)


@intrinsic  # type: ignore[untyped-decorator]
def _call(_typing: Any, _address: Any, _context: Any, _kind: Any, _event: Any, _slots: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD] * 4).as_pointer())
        return builder.call(pointer, arguments[1:])

    return types.int64(*[types.int64] * 5), generate


@intrinsic  # type: ignore[untyped-decorator]
def _peek(_typing: Any, _address: Any, _index: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.int64(types.int64, types.int64), generate


def _copying(bits: int) -> Any:
    """Type and code of copying an integer of `bits` bits from one address to another."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, target = (builder.inttoptr(address, ir.IntType(bits).as_pointer()) for address in arguments)
        builder.store(builder.load(source), target)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _copy_word(_typing: Any, _source: Any, _target: Any) -> Any:
    return _copying(64)


@intrinsic  # type: ignore[untyped-decorator]
def _copy_byte(_typing: Any, _source: Any, _target: Any) -> Any:
    return _copying(8)


compiled_form(of=fetch_add, inlined=True)(lambda array, index, amount: _fetch_add(array, index, amount))
compiled_form(of=exchange, inlined=True)(lambda array, index, value: _exchange(array, index, value))
compiled_form(of=compare_exchange, inlined=True)(
    lambda array, index, old, new: _compare_exchange(array, index, old, new)
)
compiled_form(of=load, inlined=True)(lambda array, index: _load(array, index))
compiled_form(of=store, inlined=True)(lambda array, index, value: _store(array, index, value))
compiled_form(of=address_of, inlined=True)(lambda array, index: _address_of(array, index))
compiled_form(of=peek, inlined=True)(lambda address, index: _peek(address, index))
compiled_form(of=ticks, inlined=True)(lambda: _ticks())
compiled_form(of=allocate, inlined=True)(lambda size: _allocate(size))
compiled_form(of=free, inlined=True)(lambda address: _free(address))
compiled_form(of=doze, inlined=True)(lambda microseconds: _sleep_microseconds(microseconds))
compiled_form(of=call, inlined=True)(
    lambda address, context, kind, event, slots: _call(address, context, kind, event, slots)
)


@compiled_form(of=relax_crowded, inlined=True)
def _compiled_relax_crowded(spins):  # type: ignore[no-untyped-def]
    if spins < SPINS:
        _pause()
    elif spins < SPINS + YIELDS:
        _yield_processor()
    else:
        _sleep_microseconds(SLEEP_MICROSECONDS)
    return spins + 1


@compiled_form(of=relax, inlined=True)
def _compiled_relax(spins):  # type: ignore[no-untyped-def]
    if spins < SPINS:
        _pause()
    else:
        _yield_processor()
    return spins + 1


@compiled_form(of=copy, inlined=True)
def _compiled_copy(source, target, size):  # type: ignore[no-untyped-def]
    if size == 1:
        _copy_byte(source, target)
    else:
        for offset in range(0, size, 8):
            _copy_word(source + offset, target + offset)
