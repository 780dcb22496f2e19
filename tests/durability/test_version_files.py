from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_files import VersionFiles
from tidegate.durability.version_reader import VersionReader
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.storage import Storage

if TYPE_CHECKING:
    from tests.durability.conftest import History

VERSIONS = 9


@pytest.fixture
def state(storage: Storage, history: History) -> VersionReader:
    store = VersionStore(storage)
    for version in range(1, VERSIONS + 1):
        store.commit(history.info(version), history.changes(version))
        if version == 5:
            store.snapshot(history.info(5), history.whole(5))
    return VersionReader(storage)


@pytest.mark.parametrize("version", [1, 4, 5, 6, VERSIONS])
def test_rows_are_streamed_and_found_as_the_whole_version_has_them(
    state: VersionReader, history: History, version: int
) -> None:
    sizes: list[int] = []
    files = VersionFiles(state, version, sizes.append)
    for layout in (history.account, history.vote):
        expected = rows_at(VersionStore(state.storage), layout, version)
        streamed = pa.concat_tables([layout.arrow_schema.empty_table(), *files.rows(layout)])
        assert streamed.sort_by(layout.key[0]).equals(expected)
        known = {row[layout.key[0]]: row for row in expected.to_pylist()}
        asked = {*known, *rows_at(VersionStore(state.storage), layout, VERSIONS)[layout.key[0]].to_pylist()}
        for key in asked:
            found = files.find(layout, pa.table({layout.key[0]: [key]}))
            assert (None if found is None else found.to_pylist()[0]) == known.get(key)
    assert sum(sizes) >= files.size("Account") > 0


def test_a_version_that_is_not_there_says_so(state: VersionReader) -> None:
    with pytest.raises(RecoveryImpossible, match="the newest is 9"):
        VersionFiles(state, VERSIONS + 1)
