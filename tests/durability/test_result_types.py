"""A state that is opened with a program whose results have another type: warned of, once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidegate as tg
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.embedding import Engine  # at once: what is first imported where nothing is compiled, stays so
from tidegate.foundation.storage import open_storage

pytestmark = pytest.mark.usefixtures("plainly")


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


class Review(NamedTuple):
    score: float


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


@tg.transaction
def withdraw(dst: Account, amount: int) -> int:
    dst.balance -= amount
    return dst.balance


@tg.transaction
def review(dst: Account, amount: int) -> Review:
    return Review(amount / 2)


def use(folder: Path, *program: Any, result: Any = "auto") -> None:
    with Engine(list(program), directory=folder, result=result) as engine:
        engine.execute(deposit, dst=1, amount=1)


def newest(folder: Path) -> VersionInfo:
    found = VersionStore(open_storage(str(folder))).newest()
    assert found is not None
    return found


def test_another_type_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    use(tmp_path, deposit)
    assert newest(tmp_path).result == "int64"
    use(tmp_path, deposit, withdraw)  # of the same type
    with pytest.warns(tg.TidegateWarning, match=r"struct<deposit: int64, review: struct<score: double>> from now on"):
        use(tmp_path, deposit, review)
    assert 'result="json" is text for ever' in caplog.text
    use(tmp_path, deposit, review)


def test_a_struct_that_gets_more_fields_is_no_change(tmp_path: Path) -> None:
    use(tmp_path, deposit, result="struct")
    use(tmp_path, deposit, review, result="struct")
    with pytest.warns(tg.TidegateWarning, match=r"has the type struct<deposit: int64> from now on"):
        use(tmp_path, deposit, result="struct")


def test_json_never_changes(tmp_path: Path) -> None:
    use(tmp_path, deposit, result="json")
    use(tmp_path, deposit, review, result="json")
    assert newest(tmp_path).result == "string"


def test_versions_of_earlier_releases_recorded_none(tmp_path: Path) -> None:
    store = VersionStore(open_storage(str(tmp_path)))
    store.commit(VersionInfo(1, "change", "initial", 0, 0, 0.0), {})
    assert newest(tmp_path).result == ""
    with warnings.catch_warnings(action="error"):
        use(tmp_path, deposit, review)


def test_a_version_that_says_nothing_of_results_keeps_what_was_recorded(tmp_path: Path) -> None:
    use(tmp_path, deposit)
    before = newest(tmp_path)
    store = VersionStore(open_storage(str(tmp_path)))
    told = VersionInfo(before.version + 1, "change", "tool", 0, before.version, 0.0, layouts=before.layouts)
    assert store.commit(told, {}).result == "int64"
