"""What threads of compiled code need to agree with one another: atomic memory, waiting, calls by address.

Each function here works on one element of an array and is one or two machine instructions inside a
kernel. They give the order that hand-over needs: what a thread wrote before it releases a value is
seen by the thread that acquires it.

    fetch_add(array, index, amount)          the value before
    exchange(array, index, value)            the value before
    compare_exchange(array, index, old, new) whether it was `old` and is `new` now
    load(array, index)                       acquire
    store(array, index, value)               release
    relax(spins)                             one step of waiting: brief spinning, then the processor is given up
    relax_crowded(spins)                     the same where threads outnumber processors: then it sleeps
    ticks()                                  the processor's cycle counter
    call(address, context, kind, event, slots)    a function of four integers by its address
    address_of(array, index)                 where an element lies
    peek(address, index)                     the 64-bit integer that lies there
    copy(source, target, size)               `size` bytes, one or a multiple of eight

Each exists twice: as plain Python, which is the definition, and as an `overload` that compiled code uses. So a
kernel whose functions are not compiled can be run step by step, with any interleaving of its workers, to look for
one that goes wrong. The plain ones share a lock, so that each is one step among threads, too.
"""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from typing import Any

from tidegate.foundation.jit import compiled_form, intrinsic, ir, types

SPINS = 1 << 7
"""How often a waiting thread looks again before it lets others run."""

YIELDS, SLEEP_MICROSECONDS = 16, 50


_one_at_a_time = threading.Lock()


# --- as plain Python ---------------------------------------------------------------------------------------


def fetch_add(array: Any, index: int, amount: int) -> int:
    """Add to an element; returns what it was."""
    with _one_at_a_time:
        before = int(array[index])
        array[index] = before + amount
        return before


def exchange(array: Any, index: int, value: int) -> int:
    """Put a value in place; returns what was there."""
    with _one_at_a_time:
        before = int(array[index])
        array[index] = value
        return before


def compare_exchange(array: Any, index: int, old: int, new: int) -> bool:
    """Put `new` in place if `old` is there; returns whether it was."""
    with _one_at_a_time:
        if int(array[index]) != old:
            return False
        array[index] = new
        return True


def load(array: Any, index: int) -> int:
    """An element, with all that was written before it was stored."""
    with _one_at_a_time:
        return int(array[index])


def store(array: Any, index: int, value: int) -> None:
    """Store an element, after all that this thread wrote before."""
    with _one_at_a_time:
        array[index] = value


def relax_crowded(spins: int) -> int:
    """One step of waiting where more threads than processors run: later steps sleep, so that others can work."""
    time.sleep(0 if spins < SPINS + YIELDS else SLEEP_MICROSECONDS * 1e-6)
    return spins + 1


def relax(spins: int) -> int:
    """One step of waiting: the first steps only pause, later ones give up the processor."""
    time.sleep(0)
    return spins + 1


def ticks() -> int:
    """The processor's cycle counter; of plain Python, nanoseconds."""
    return time.perf_counter_ns()


_FUNCTION_OF_FOUR = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)


def call(address: int, context: int, kind: int, event: int, slots: int) -> int:
    """Call a function of four 64-bit integers by its address."""
    return int(_FUNCTION_OF_FOUR(int(address))(int(context), int(kind), int(event), int(slots)))


def address_of(array: Any, index: int) -> int:
    """Where an element lies."""
    return int(array.ctypes.data) + int(index) * int(array.itemsize)


def peek(address: int, index: int) -> int:
    """The 64-bit integer number `index` of those that lie at `address`."""
    return ctypes.c_int64.from_address(int(address) + 8 * int(index)).value


def copy(source: int, target: int, size: int) -> None:
    """Copy one byte, or a multiple of eight."""
    ctypes.memmove(int(target), int(source), int(size))


# --- as machine code ---------------------------------------------------------------------------------------


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _is_array_of_integers(array: Any) -> bool:
    return isinstance(array, types.Array) and isinstance(array.dtype, types.Integer)


@intrinsic  # type: ignore[untyped-decorator]
def _fetch_add(typingctx: Any, array: Any, index: Any, amount: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        return builder.atomic_rmw("add", pointer, arguments[2], "acq_rel")

    if _is_array_of_integers(array):
        return array.dtype(array, types.int64, array.dtype), generate
    return None


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        return builder.atomic_rmw("xchg", pointer, arguments[2], "acq_rel")

    if _is_array_of_integers(array):
        return array.dtype(array, types.int64, array.dtype), generate
    return None


@intrinsic  # type: ignore[untyped-decorator]
def _compare_exchange(typingctx: Any, array: Any, index: Any, old: Any, new: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        pair = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    if _is_array_of_integers(array):
        return types.boolean(array, types.int64, array.dtype, array.dtype), generate
    return None


@intrinsic  # type: ignore[untyped-decorator]
def _load(typingctx: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        return builder.load_atomic(pointer, "acquire", align=array.dtype.bitwidth // 8)

    if _is_array_of_integers(array):
        return array.dtype(array, types.int64), generate
    return None


@intrinsic  # type: ignore[untyped-decorator]
def _store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        builder.store_atomic(arguments[2], pointer, "release", align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    if _is_array_of_integers(array):
        return types.void(array, types.int64, array.dtype), generate
    return None


@compiled_form(of=fetch_add, inlined=True)
def _compiled_fetch_add(array, index, amount):  # type: ignore[no-untyped-def]
    return _fetch_add(array, index, amount)


@compiled_form(of=exchange, inlined=True)
def _compiled_exchange(array, index, value):  # type: ignore[no-untyped-def]
    return _exchange(array, index, value)


@compiled_form(of=compare_exchange, inlined=True)
def _compiled_compare_exchange(array, index, old, new):  # type: ignore[no-untyped-def]
    return _compare_exchange(array, index, old, new)


@compiled_form(of=load, inlined=True)
def _compiled_load(array, index):  # type: ignore[no-untyped-def]
    return _load(array, index)


@compiled_form(of=store, inlined=True)
def _compiled_store(array, index, value):  # type: ignore[no-untyped-def]
    _store(array, index, value)


@intrinsic  # type: ignore[untyped-decorator]
def _pause(typingctx: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def _yield_processor(typingctx: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.module.declare_intrinsic("sched_yield", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic  # type: ignore[untyped-decorator]
def _sleep_microseconds(typingctx: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        builder.call(builder.module.declare_intrinsic("usleep", (), kind), arguments)
        return context.get_dummy_value()

    return types.void(types.int32), generate


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


@intrinsic  # type: ignore[untyped-decorator]
def _ticks(typingctx: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), kind), [])

    return types.int64(), generate


@compiled_form(of=ticks, inlined=True)
def _compiled_ticks():  # type: ignore[no-untyped-def]
    return _ticks()


@intrinsic  # type: ignore[untyped-decorator]
def _call(typingctx: Any, address: Any, context: Any, kind: Any, event: Any, slots: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * 4).as_pointer())
        return builder.call(pointer, arguments[1:])

    return types.int64(*[types.int64] * 5), generate


@compiled_form(of=call, inlined=True)
def _compiled_call(address, context, kind, event, slots):  # type: ignore[no-untyped-def]
    return _call(address, context, kind, event, slots)


@intrinsic  # type: ignore[untyped-decorator]
def _address_of(typingctx: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        return builder.ptrtoint(pointer, ir.IntType(64))

    if _is_array_of_integers(array):
        return types.int64(array, types.int64), generate
    return None


@compiled_form(of=address_of, inlined=True)
def _compiled_address_of(array, index):  # type: ignore[no-untyped-def]
    return _address_of(array, index)


@intrinsic  # type: ignore[untyped-decorator]
def _peek(typingctx: Any, address: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.int64(types.int64, types.int64), generate


@compiled_form(of=peek, inlined=True)
def _compiled_peek(address, index):  # type: ignore[no-untyped-def]
    return _peek(address, index)


@intrinsic  # type: ignore[untyped-decorator]
def _copy_word(typingctx: Any, source: Any, target: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = [builder.inttoptr(address, ir.IntType(64).as_pointer()) for address in arguments]
        builder.store(builder.load(pointers[0]), pointers[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _copy_byte(typingctx: Any, source: Any, target: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = [builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in arguments]
        builder.store(builder.load(pointers[0]), pointers[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@compiled_form(of=copy, inlined=True)
def _compiled_copy(source, target, size):  # type: ignore[no-untyped-def]
    if size == 1:
        _copy_byte(source, target)
    else:
        for offset in range(0, size, 8):
            _copy_word(source + offset, target + offset)
