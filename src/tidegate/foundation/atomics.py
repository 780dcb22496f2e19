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

They exist in compiled code only: plain Python has no use for them.
"""

from __future__ import annotations

import platform
from typing import Any

from tidegate.foundation.jit import generated, intrinsic, ir, types

SPINS = 1 << 7
"""How often a waiting thread looks again before it lets others run."""

YIELDS, SLEEP_MICROSECONDS = 16, 50


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


@generated
def fetch_add(array, index, amount):  # type: ignore[no-untyped-def]
    """Add to an element; returns what it was."""
    return _fetch_add(array, index, amount)


@generated
def exchange(array, index, value):  # type: ignore[no-untyped-def]
    """Put a value in place; returns what was there."""
    return _exchange(array, index, value)


@generated
def compare_exchange(array, index, old, new):  # type: ignore[no-untyped-def]
    """Put `new` in place if `old` is there; returns whether it was."""
    return _compare_exchange(array, index, old, new)


@generated
def load(array, index):  # type: ignore[no-untyped-def]
    """An element, with all that was written before it was stored."""
    return _load(array, index)


@generated
def store(array, index, value):  # type: ignore[no-untyped-def]
    """Store an element, after all that this thread wrote before."""
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


@generated
def relax_crowded(spins):  # type: ignore[no-untyped-def]
    """One step of waiting where more threads than processors run: later steps sleep, so that others can work."""
    if spins < SPINS:
        _pause()
    elif spins < SPINS + YIELDS:
        _yield_processor()
    else:
        _sleep_microseconds(SLEEP_MICROSECONDS)
    return spins + 1


@generated
def relax(spins):  # type: ignore[no-untyped-def]
    """One step of waiting: the first steps only pause, later ones give up the processor."""
    if spins < SPINS:
        _pause()
    else:
        _yield_processor()
    return spins + 1


@intrinsic  # type: ignore[untyped-decorator]
def ticks(typingctx: Any) -> Any:
    """The processor's cycle counter."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), kind), [])

    return types.int64(), generate


@intrinsic  # type: ignore[untyped-decorator]
def call(typingctx: Any, address: Any, context: Any, kind: Any, event: Any, slots: Any) -> Any:
    """Call a function of four 64-bit integers by its address."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * 4).as_pointer())
        return builder.call(pointer, arguments[1:])

    return types.int64(*[types.int64] * 5), generate


@intrinsic  # type: ignore[untyped-decorator]
def _address_of(typingctx: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], arguments[1])
        return builder.ptrtoint(pointer, ir.IntType(64))

    if _is_array_of_integers(array):
        return types.int64(array, types.int64), generate
    return None


@generated
def address_of(array, index):  # type: ignore[no-untyped-def]
    """Where an element lies."""
    return _address_of(array, index)


@intrinsic  # type: ignore[untyped-decorator]
def peek(typingctx: Any, address: Any, index: Any) -> Any:
    """The 64-bit integer number `index` of those that lie at `address`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.int64(types.int64, types.int64), generate


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


@generated
def copy(source, target, size):  # type: ignore[no-untyped-def]
    """Copy one byte, or a multiple of eight."""
    if size == 1:
        _copy_byte(source, target)
    else:
        for offset in range(0, size, 8):
            _copy_word(source + offset, target + offset)
