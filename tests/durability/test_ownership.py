from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.durability import ownership
from tidegate.durability.ownership import Owner, claim, current, release
from tidegate.foundation import processes
from tidegate.foundation.errors import StateOwned, StorageCorrupted
from tidegate.foundation.storage import Storage, open_storage

MINE = Owner.of_this_process("query-1", "ledger")


@pytest.fixture
def other_process() -> Iterator[tuple[subprocess.Popen[bytes], Owner]]:
    """A running process and the owner that it is for the same query id."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child, replace(MINE, pid=child.pid, started=processes.started(child.pid), name="other")
        child.kill()


def test_a_free_state_is_taken_and_claiming_again_changes_nothing(storage: Storage) -> None:
    assert current(storage) is None
    claim(storage, MINE)
    assert current(storage) == MINE
    names = storage.list()
    claim(storage, replace(MINE, name="renamed"))
    assert storage.list() == names
    assert current(storage) == MINE


def test_a_second_query_is_refused_with_the_owner_named(storage: Storage) -> None:
    claim(storage, MINE)
    with pytest.raises(StateOwned) as caught:
        claim(storage, replace(MINE, query="query-2"))
    message = str(caught.value)
    for part in (storage.path, "'query-1'", "ledger", str(os.getpid()), MINE.host, "running since 20"):
        assert part in message
    assert "Stop that query first, or use another state path. If you know that" in message
    assert f"tidegate state release {storage.path}" in message
    assert current(storage) == MINE


def test_the_same_query_in_two_live_processes_is_refused(
    storage: Storage, other_process: tuple[subprocess.Popen[bytes], Owner]
) -> None:
    child, other = other_process
    claim(storage, other)
    with pytest.raises(StateOwned, match=str(child.pid)):
        claim(storage, MINE)


@pytest.mark.parametrize("query", ["query-1", "query-2"])
def test_a_dead_owner_is_taken_over(
    storage: Storage, other_process: tuple[subprocess.Popen[bytes], Owner], query: str
) -> None:
    child, other = other_process
    claim(storage, other)
    child.kill()
    child.wait()
    successor = replace(MINE, query=query)
    claim(storage, successor)
    assert current(storage) == successor
    assert len(storage.list()) == 1


def test_an_owner_whose_process_id_was_given_to_another_process_is_dead(storage: Storage) -> None:
    claim(storage, replace(MINE, query="query-0", started=MINE.started - 1000))
    claim(storage, MINE)
    assert current(storage) == MINE


def test_an_owner_on_another_host_is_believed_until_it_is_released(storage: Storage) -> None:
    far = replace(MINE, host="far-away", pid=1, started=0.0)
    claim(storage, far)
    with pytest.raises(StateOwned, match=r"can be seen on far-away only.*tidegate state release"):
        claim(storage, MINE)
    assert release(storage, far.query)
    claim(storage, MINE)
    assert current(storage) == MINE


def test_only_the_owning_query_is_released(storage: Storage) -> None:
    assert not release(storage, "query-1")
    claim(storage, MINE)
    assert not release(storage, "query-2")
    assert current(storage) == MINE
    assert release(storage, "query-1")
    assert current(storage) is None
    assert not release(storage, "query-1")
    claim(storage, replace(MINE, query="query-2"))
    assert len(storage.list()) == 1


def test_a_slow_claimer_does_not_take_a_number_below_the_newest(storage: Storage) -> None:
    """It found number 1 dead, slept while the state was taken and released, and wakes up to take 2."""
    claim(storage, replace(MINE, started=0.0))
    claim(storage, MINE)
    release(storage, MINE.query)
    assert not ownership._take(storage, 2, replace(MINE, query="slow"))
    assert current(storage) is None


def test_of_many_that_find_a_dead_owner_exactly_one_takes_over(tmp_path: Path) -> None:
    for attempt in range(10):
        storage = open_storage(str(tmp_path / str(attempt)))
        claim(storage, replace(MINE, query="dead", started=0.0))
        won = race_for(storage, [replace(MINE, query=f"query-{number}") for number in range(6)])
        owner = current(storage)
        assert owner is not None and won == [owner.query]


def race_for(storage: Storage, owners: list[Owner]) -> list[str]:
    """The queries that were told that the state is theirs, when all claim it at once."""
    start, won = threading.Barrier(len(owners)), []

    def take(owner: Owner) -> None:
        start.wait()
        with contextlib.suppress(StateOwned):
            claim(storage, owner)
            won.append(owner.query)

    threads = [threading.Thread(target=take, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_damaged_record_is_refused_with_what_to_do(storage: Storage) -> None:
    for number, data in enumerate([b"", b"{", b'{"query": "a"}', b"[1]"], start=1):
        storage.write(f"{number:012d}.owner", [data], exclusive=True)
        with pytest.raises(StorageCorrupted, match=f"{number:012d}.owner: expected a record.*delete the file"):
            claim(storage, MINE)
