from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate.durability.row_reading import find_row, read_files
from tidegate.durability.version_files import VersionFiles
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import RecoveryImpossible
from tidegate.foundation.storage import Storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


@pytest.mark.parametrize("version", [None, 1, 4])
def test_every_row_is_found(storage: Storage, history: History, version: int | None) -> None:
    history.commit(VersionStore(storage), 1, 7)
    rows = history.state(version or 7)["Account"]
    for key in range(-5, 9):
        found = find_row(storage, history.account, (key,), version)
        assert (None if found is None else tuple(found.values())) == rows.get((key,))


def test_files_that_go_are_read_again_from_the_newest_version(storage: Storage, history: History) -> None:
    store = VersionStore(storage, keep_versions=1)
    history.commit(store, 1, 3)
    seen: list[int] = []

    def look(info: VersionInfo, files: VersionFiles) -> int:
        seen.append(info.version)
        if info.version == 3:  # a query goes on, and collects what is being read
            history.commit(store, 4, 5)
            store.snapshot(history.info(5), history.whole(5))
            history.commit(store, 6, 6)
            store.collect()
        return sum(rows.num_rows for rows in files.rows(history.account))

    assert read_files(storage, None, look) == len(history.state(6)["Account"])
    assert seen == [3, 6]
    with pytest.raises(RecoveryImpossible):
        read_files(storage, 3, look)
