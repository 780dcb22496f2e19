"""Loads generated programs, and hands them what they may name: decorators, kernels, arithmetic, codes.

Generated code imports nothing: what it calls is listed here, where tools see it. Machine code that was kept from an
earlier run is not used once any module of these has changed.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

from tidegate.engine.kernels import index, windows
from tidegate.engine.kernels.flows import is_forgotten, slot_of, tick, touch
from tidegate.engine.kernels.windows import (
    undo,
    window_count,
    window_distinct,
    window_frequency,
    window_insert,
    window_max,
    window_min,
    window_sum,
    window_sum_fits,
    window_top,
    window_word,
)
from tidegate.foundation import atomics
from tidegate.foundation.arithmetic import (
    add,
    can_count,
    ceil,
    compare,
    divide,
    float_floor_divide,
    float_modulo,
    float_power,
    floor,
    floor_divide,
    modulo,
    multiply,
    power,
    round_half_even,
    shift_left,
    shift_right,
    subtract,
    truncate,
)
from tidegate.foundation.jit import entry, generated, kernel_or_plain, load_program
from tidegate.foundation.memory import flags_at, floats_at, integers_at, key_floats_at, key_words_at
from tidegate.operations import flow
from tidegate.operations.plan import ESCAPE, ProgramPlan

_DECORATORS = (entry, generated, kernel_or_plain)
_ARITHMETIC = (
    *(add, subtract, multiply, divide, floor_divide, modulo, power, shift_left, shift_right, compare, can_count),
    *(float_floor_divide, float_modulo, float_power, floor, ceil, truncate, round_half_even),
)
_VIEWS = (flags_at, floats_at, integers_at, key_floats_at, key_words_at)
_GRAPHS = (is_forgotten, slot_of, tick, touch, undo, window_insert, window_word, window_count)
_AGGREGATES = (window_distinct, window_frequency, window_min, window_sum, window_sum_fits, window_top)
_FUNCTIONS: tuple[Any, ...] = (*_DECORATORS, *_ARITHMETIC, *_VIEWS, *_GRAPHS, *_AGGREGATES)

PROVIDED: dict[str, Any] = {
    **{function.__name__: function for function in _FUNCTIONS},
    **{name: code for name, code in vars(flow).items() if name.isupper()},
    "ESCAPE": ESCAPE,
    "WINDOW_JOURNAL_LENGTH": windows.LENGTH,
    "WINDOW_NEEDS": windows.NEEDS,
    "window_max": window_max,
    "math": math,
    "infinity": math.inf,
    "not_a_number": math.nan,
}


def load(plan: ProgramPlan) -> ModuleType:
    """The module of a program: `run`, `operate`, and `flow` if it has graphs."""
    used = {sys.modules[function.__module__] for function in _FUNCTIONS}
    return load_program(plan.source, PROVIDED, [*used, index, atomics, flow])
