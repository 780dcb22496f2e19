"""Loads generated programs, and hands them what they may name.

Generated code imports nothing: it may call every public function of `CALLED`, and name every code of
`operations.flow`. Machine code that was kept from an earlier run is not used once any of these modules has changed.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from tidegate.engine.kernels import flows, index, signals, texts, window_journal, windows
from tidegate.foundation import arithmetic, atomics, jit, memory, words
from tidegate.operations import flow
from tidegate.operations.pipeline import NO_ROOM, PipelinePlan
from tidegate.operations.plan import ESCAPE, INTERRUPTED, ProgramPlan

CALLED = (arithmetic, words, memory, flows, signals, texts, window_journal, windows)


def _functions(module: ModuleType) -> dict[str, Any]:
    own = {name: found for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__}
    return {name: found for name, found in own.items() if not name.startswith("_") and callable(found)}


PROVIDED: dict[str, Any] = {
    **{name: function for module in CALLED for name, function in _functions(module).items()},
    **{name: code for name, code in vars(flow).items() if name.isupper() and type(code) is int},
    **{"entry": jit.entry, "inline": jit.inline, "kernel_or_plain": jit.kernel_or_plain},
    **{"math": math, "infinity": math.inf, "not_a_number": math.nan},
    **{"ESCAPE": ESCAPE, "INTERRUPTED": INTERRUPTED, "OUTPUTS_FULL": NO_ROOM},
    **{"WINDOW_JOURNAL_LENGTH": window_journal.LENGTH, "WINDOW_NEEDS": window_journal.NEEDS},
}


def load(plan: ProgramPlan | PipelinePlan) -> ModuleType:
    """The module of a program: `run`, `operate`, and `flow` if it has graphs. A pipeline has `operate` alone."""
    return jit.load_program(plan.source, PROVIDED, [*CALLED, index, atomics, flow])
