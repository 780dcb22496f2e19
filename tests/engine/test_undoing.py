"""What was saved comes back, in the same arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.engine.undoing import undone


class Holder:
    def __init__(self) -> None:
        self.words = np.arange(4)
        self.view = self.words[1:]
        self.columns = {"a": np.zeros(2), "b": np.ones(2)}
        self.items: list[Any] = [1, 2]
        self.number = 7


def test_all_attributes_come_back_and_views_stay_views() -> None:
    holder, rows = Holder(), ["x"]
    words, columns, items = holder.words, holder.columns, holder.items
    with pytest.raises(tg.TransactionFailed), undone([holder, rows, None]):
        holder.words[:] = 9
        holder.words = np.concatenate([holder.words, holder.words])
        holder.columns["a"][:] = 5
        holder.columns["b"] = np.zeros(8)
        holder.columns["c"] = np.zeros(1)
        holder.items.append(3)
        holder.number = 8
        rows.append("y")
        raise tg.TransactionFailed
    assert holder.words is words and words.tolist() == [0, 1, 2, 3]
    assert holder.columns is columns and {name: column.tolist() for name, column in columns.items()} == {
        "a": [0.0, 0.0],
        "b": [1.0, 1.0],
    }
    assert holder.items is items and (items, holder.number, rows) == ([1, 2], 7, ["x"])
    words[1] = 70
    assert holder.view[0] == 70
