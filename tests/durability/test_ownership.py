from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.durability import ownership
from tidegate.durability.ownership import ENGINE, admit, current, release
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.errors import StateOwned
from tidegate.foundation.storage import Storage, open_storage

if TYPE_CHECKING:
    from tests.durability.conftest import History


def owned(storage: Storage, history: History, owner: Owner | None, epoch: int = 1) -> VersionInfo:
    """A state whose newest version an owner committed."""
    store = VersionStore(storage)
    newest = store.tip()
    version = 1 if newest is None else newest.version + 1
    return store.commit(history.info(version, owner=owner, epoch=epoch), history.changes(version))


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "state"))


A, B = Owner("a", "ledger", "token-a"), Owner("b", "auction", "token-b")


def test_a_state_without_versions_is_anybodys(storage: Storage) -> None:
    assert admit(storage, None, A) == 1
    assert current(storage) is None


def test_an_owner_goes_on_in_its_epoch_and_a_batch_data_frame_owns_nothing(storage: Storage, history: History) -> None:
    assert admit(storage, owned(storage, history, A, 3), A) == 3
    assert current(storage) == A
    assert release(storage, "a")
    newest = owned(storage, history, None, admit(storage, VersionStore(storage).tip(), None))
    assert newest.epoch == 4 and current(storage) is None
    assert admit(storage, newest, None) == 4
    assert admit(storage, newest, B) == 5


def test_the_same_query_takes_over_at_once_wherever_it_runs(storage: Storage, history: History) -> None:
    ownership.stay_alive(storage, A.token)
    newest = owned(storage, history, A)
    assert admit(storage, newest, Owner("a", "ledger", "another process, on another host")) == 1


def test_a_living_owner_is_believed_and_named(local: Storage, history: History) -> None:
    ownership.stay_alive(local, A.token)
    newest = owned(local, history, A)
    for other in (B, None):
        with pytest.raises(StateOwned) as refused:
            admit(local, newest, other)
        message = str(refused.value)
        assert "'a'" in message and "ledger" in message and "still running" in message
        assert f"tidegate state release {local.path}" in message


@contextlib.contextmanager
def holding(storage: Storage, token: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds an owner's lock."""
    program = (
        "import sys; from tidegate.durability.ownership import stay_alive; "
        "from tidegate.foundation.storage import open_storage; "
        "stay_alive(open_storage(sys.argv[1]), sys.argv[2]); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", program, storage.path, token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_an_owner_lives_as_long_as_any_of_its_processes(local: Storage, history: History) -> None:
    with holding(local, A.token) as driver:
        with holding(local, A.token) as worker:
            newest = owned(local, history, A)
            driver.kill()
            driver.wait()
            with pytest.raises(StateOwned):
                admit(local, newest, B)
            worker.kill()
            worker.wait()
        assert admit(local, newest, B) == 2


def test_a_clock_step_and_other_names_of_the_host_change_nothing(
    local: Storage, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(local, A.token):
        newest = owned(local, history, A)
        monkeypatch.setattr(time, "time", lambda: 4e9)
        monkeypatch.setattr("socket.gethostname", lambda: "renamed")
        monkeypatch.setattr("os.getpid", lambda: 1)
        with pytest.raises(StateOwned):
            admit(local, newest, B)


def test_where_there_are_no_locks_an_owner_is_believed_until_it_is_released(history: History) -> None:
    storage = open_storage("memory://no-locks")
    newest = owned(storage, history, A)
    with pytest.raises(StateOwned, match="cannot be seen here"):
        admit(storage, newest, B)
    assert release(storage, "a")
    assert admit(storage, newest, B) == 2


def test_only_the_owning_query_is_released_and_once(storage: Storage, history: History) -> None:
    assert not release(storage, "a")
    owned(storage, history, A)
    assert not release(storage, "b") and current(storage) == A
    assert release(storage, "a") and current(storage) is None
    assert not release(storage, "a")


def test_a_query_that_comes_back_after_it_was_released_owns_the_state_again(storage: Storage, history: History) -> None:
    newest = owned(storage, history, A)
    release(storage, "a")
    epoch = admit(storage, newest, A)
    assert epoch == 2
    owned(storage, history, A, epoch)
    assert current(storage) == A


def test_marks_of_earlier_epochs_are_removed(storage: Storage, history: History) -> None:
    for epoch in (1, 2, 3):
        owned(storage, history, A, epoch)
        release(storage, "a")
    ownership.tidy(storage, 3)
    assert [name for name in storage.list() if name.endswith(".released")] == ["000000000003.released"]


def test_an_open_engine_keeps_everybody_else_out(local: Storage) -> None:
    held = ownership.hold_alone(local)
    assert held is not None
    with pytest.raises(StateOwned, match="another tg"):
        ownership.hold_alone(local)
    with pytest.raises(StateOwned, match="has this state open"):
        admit(local, None, A)
    held.release()
    assert admit(local, None, A) == 1


def test_an_engine_that_died_is_taken_over_by_the_next(local: Storage, history: History) -> None:
    newest = owned(local, history, Owner("embedded-1", "tg.Engine", ENGINE))
    held = ownership.hold_alone(local)
    assert held is not None
    assert admit(local, newest, Owner("embedded-2", "tg.Engine", ENGINE)) == 2
    held.release()
    assert admit(local, newest, A) == 2


def test_of_many_that_want_the_next_version_one_commits_it(tmp_path: Path, history: History) -> None:
    for attempt in range(10):
        storage = open_storage(str(tmp_path / str(attempt)))
        owned(storage, history, Owner("dead", "dead", "nobody"))
        owners = [Owner(f"query-{number}", "q", f"token-{number}") for number in range(6)]
        start, won = threading.Barrier(len(owners)), []

        def take(
            owner: Owner, storage: Storage = storage, start: threading.Barrier = start, won: list[str] = won
        ) -> None:
            ownership.stay_alive(storage, owner.token)
            start.wait()
            with contextlib.suppress(StateOwned, FileExistsError):
                store = VersionStore(storage)
                epoch = admit(storage, store.tip(), owner)
                store.commit(history.info(2, owner=owner, epoch=epoch), history.changes(2))
                won.append(owner.query)

        threads = [threading.Thread(target=take, args=(owner,)) for owner in owners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        holder = current(storage)
        assert holder is not None and won == [holder.query]
