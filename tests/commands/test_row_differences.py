"""Rows of any version, and what differs between two, without the program that wrote them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.commands import row_differences
from tidegate.durability import stored_rows
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.operations.layout import Column, Kind

from .stored import ACCOUNT, SEAT, changes, info, make_state


def test_each_version_has_its_own_rows(tmp_path: Path) -> None:
    store = make_state(tmp_path)
    found = {v: stored_rows.rows_at(store, ACCOUNT, v).to_pydict() for v in (1, 2, 3)}
    assert found == {
        1: {"id": [1, 2], "balance": [100, 50]},
        2: {"id": [1, 2, 3], "balance": [100, 80, 5]},
        3: {"id": [2, 3], "balance": [80, 5]},
    }


def test_a_snapshot_below_the_version_changes_nothing(tmp_path: Path) -> None:
    store = make_state(tmp_path)
    rows = stored_rows.rows_at(store, ACCOUNT, 2)
    store.snapshot(info(2, ACCOUNT, SEAT), {"Account": rows, "Seat": SEAT.arrow_schema.empty_table()})
    assert stored_rows.rows_at(store, ACCOUNT, 3).to_pydict() == {"id": [2, 3], "balance": [80, 5]}


def test_a_row_that_went_and_came_back_is_there_once() -> None:
    parts = [changes(ACCOUNT, (1, 5, True)), changes(ACCOUNT, (1, 0, False)), changes(ACCOUNT, (1, 9, True))]
    assert stored_rows.fold(ACCOUNT, parts).to_pylist() == [{"id": 1, "balance": 9}]


def test_no_changes_are_no_rows() -> None:
    assert stored_rows.fold(ACCOUNT, []).equals(ACCOUNT.arrow_schema.empty_table())


def test_a_version_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecoveryImpossible, match="no version 9"):
        stored_rows.rows_at(make_state(tmp_path), ACCOUNT, 9)


def test_the_difference_of_two_versions(tmp_path: Path) -> None:
    store = make_state(tmp_path)
    before, after = (stored_rows.rows_at(store, ACCOUNT, version) for version in (1, 3))
    found = list(row_differences.difference(ACCOUNT, before, after))
    assert [(each.key["id"], each.what) for each in found] == [(1, "removed"), (2, "changed"), (3, "added")]
    assert found[1].before == {"id": 2, "balance": 50} and found[1].after == {"id": 2, "balance": 80}


def test_a_version_does_not_differ_from_itself(tmp_path: Path) -> None:
    rows = stored_rows.rows_at(make_state(tmp_path), ACCOUNT, 3)
    assert list(row_differences.difference(ACCOUNT, rows, rows)) == []


def test_rows_from_before_a_new_field_have_its_default(tmp_path: Path) -> None:
    wider = replace(ACCOUNT, columns=(*ACCOUNT.columns, Column("limit", Kind.INT, 10)))
    store = make_state(tmp_path)
    store.commit(info(4, wider, SEAT), {"Account": changes(wider, (3, 5, 20, True))})
    layout = row_differences.layouts_at(store, None)["Account"]
    before, after = (stored_rows.rows_at(store, layout, version) for version in (3, 4))
    (only,) = row_differences.difference(layout, before, after)
    assert only.before == {"id": 3, "balance": 5, "limit": 10}
    assert only.after == {"id": 3, "balance": 5, "limit": 20}


def test_a_composite_key_is_found_by_its_fields(tmp_path: Path) -> None:
    rows = stored_rows.rows_at(make_state(tmp_path), SEAT, 3)
    found = row_differences.with_key(SEAT, rows, ["B", "7"])
    assert found.to_pylist() == [{"row": "B", "number": 7, "taken": True}]
    assert row_differences.with_key(SEAT, rows, ["B", "8"]).num_rows == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [(["B"], r"\(row: str, number: int\): required 2 values"), (["B", "x"], "'number' holds int, got 'x'")],
)
def test_a_key_that_cannot_be_is_refused(tmp_path: Path, texts: list[str], message: str) -> None:
    rows = stored_rows.rows_at(make_state(tmp_path), SEAT, 3)
    with pytest.raises(InputError, match=message):
        row_differences.with_key(SEAT, rows, texts)


def test_a_table_is_chosen_by_name_or_because_it_is_the_only_one() -> None:
    assert row_differences.choose_table({"Account": ACCOUNT}, None) is ACCOUNT
    both = {"Account": ACCOUNT, "Seat": SEAT}
    assert row_differences.choose_table(both, "Seat") is SEAT
    with pytest.raises(InputError, match=r"which of the tables is meant.*Account, Seat"):
        row_differences.choose_table(both, None)
    with pytest.raises(InputError, match=r"no table 'Saet'.*Account, Seat"):
        row_differences.choose_table(both, "Saet")
