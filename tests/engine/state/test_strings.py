"""The string pool: equal strings have equal numbers, and strings that nobody holds do not pile up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.engine import core
from tidegate.engine.batch import table_of_names
from tidegate.engine.kernels.strings import match_names
from tidegate.engine.state.strings import StringPool, string_buffers, words_of


@given(st.lists(st.text(max_size=12), max_size=300))
def test_strings_come_back_and_equal_ones_share_a_number(texts: list[str]) -> None:
    pool = StringPool(4)
    numbers = pool.numbers(pa.array(texts, pa.string()))
    assert pool.texts(numbers).to_pylist() == texts
    assert len(set(numbers.tolist())) == len(set(texts))
    assert [pool.number(text) for text in texts] == numbers.tolist()


def test_a_sliced_column_gives_its_own_strings() -> None:
    column = pa.array(["a", "bb", "ccc", "dd"]).slice(1, 2)
    pool = StringPool()
    assert pool.texts(pool.numbers(column)).to_pylist() == ["bb", "ccc"]


@tg.table(key="name")
class Person:
    name: str
    note: str = "none yet"


@tg.transaction
def remember(person: Person, note: str, keep: bool) -> str:
    before = person.note
    if keep:
        person.note = note
    elif person.exists:
        tg.delete(person)
    return before


def test_strings_that_no_row_holds_are_collected(monkeypatch: object) -> None:
    """Every event has new strings; only the rows' own may stay."""
    engine = tg.Engine([remember])
    rounds, size = 6, core.STRINGS_KEPT // 2
    for number in range(rounds):
        names = [f"person {number} {row}" for row in range(size)]
        keep = np.arange(size) < 50
        events = pa.table({"person": names, "note": [f"note {name}" for name in names], "keep": keep})
        assert set(engine.run(events)["result"].to_pylist()) == {"none yet"}
    rows = engine.scan(Person)
    assert rows.num_rows == 50 * rounds
    assert all(
        note == f"note {name}" for name, note in zip(rows["name"].to_pylist(), rows["note"].to_pylist(), strict=True)
    )
    assert engine.read(Person, "person 0 3") == {"name": "person 0 3", "note": "note person 0 3"}
    assert engine.execute(remember, person="person 0 3", note="", keep=False).result == "note person 0 3"
    assert engine.execute(remember, person="person 0 3", note="", keep=False).result == "none yet"
    assert len(engine._core.strings) < 2 * core.STRINGS_KEPT + 2 * size


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text("ab", max_size=12), min_size=1, max_size=40, unique=True),
    st.lists(st.text("ab", max_size=12), max_size=40),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 3),
)
def test_names_are_found_among_any_others(names: list[str], others: list[str], kind: pa.DataType, skipped: int) -> None:
    column = pa.array([*others, *names, *others], kind).slice(skipped)
    offsets, data = string_buffers(column, wide=False)
    found = np.zeros(len(column), np.int16)
    unknown = match_names(offsets, data, words_of(data), table_of_names(names), found)
    expected = [names.index(text) if text in names else -1 for text in column.to_pylist()]
    assert found.tolist() == expected and unknown == expected.count(-1)
