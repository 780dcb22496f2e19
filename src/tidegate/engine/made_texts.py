"""Puts strings of results together after the run: compiled code keeps what they are made of.

    return f"{name}: {total}"        result    a word below 0, which names the text
                                     part_0    the number of the string `name`
                                     part_1    total

The pool of strings cannot take a new one while workers run, and leaving compiled code for each took 70 us. Here a text
takes about one: its template is a Python expression over the parts, so the text is Python's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.state.columns import python_value, value_column
from tidegate.engine.state.strings import StringPool
from tidegate.operations.kinds import Kind
from tidegate.operations.plan import MadeText, ProgramPlan, text_word

Array = npt.NDArray[Any]

_BUILT_INS = {"ascii": ascii, "format": format, "repr": repr, "str": str}


def put_together(plan: ProgramPlan, kinds: Array, valid: Array, results: Sequence[Array], strings: StringPool) -> None:
    """Give the strings in the results of a batch their numbers; `kinds` and `valid` are the batch's."""
    for number, transaction in enumerate(plan.transactions):
        for place, text in enumerate(transaction.texts):
            words = results[plan.result_places[number][text.field]]
            events = np.flatnonzero((words == text_word(place)) & (kinds == number) & valid)
            if len(events):
                parts = [results[plan.part_places[number][array]][events] for array, _ in text.parts]
                made = pa.array(_texts(text, parts, strings), pa.large_string())
                words[events] = strings.numbers(made)


def _texts(text: MadeText, parts: list[Array], strings: StringPool) -> list[str]:
    columns: list[list[Any]] = []
    for (_, value_type), words in zip(text.parts, parts, strict=True):
        if value_type is Kind.STR:
            columns.append(value_column(words, value_type, strings).to_pylist())
        elif isinstance(value_type, Kind):
            columns.append(words.tolist())
        else:
            columns.append([python_value(word, value_type, strings) for word in words])
    return list(map(_template(text.template, len(text.parts)), *columns))


@functools.lru_cache(1024)
def _template(expression: str, parts: int) -> Callable[..., str]:
    """The function from parts to a text."""
    names = ", ".join(f"part_{number}" for number in range(parts))
    made: Callable[..., str] = eval(f"lambda {names}: {expression}", {"__builtins__": _BUILT_INS})
    return made
