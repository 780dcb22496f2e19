from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tidegate.foundation import holds
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import StorageFailed
from tidegate.foundation.holds import Hold
from tidegate.foundation.storage import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "state"))


def held(storage: LocalStorage, name: str, *, exclusive: bool = False) -> Hold:
    hold = storage.hold(name, exclusive=exclusive)
    assert hold is not None
    return hold


def other_process(storage: LocalStorage, statement: str) -> subprocess.Popen[str]:
    """Another process that runs a statement over the same folder, says "done" and waits for its input to end."""
    script = textwrap.dedent(
        f"""
        import sys
        from tidegate.foundation.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        {statement}
        print("done", flush=True)
        sys.stdin.read()
        """
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, storage.path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_nothing_is_held_before_anybody_holds_it(storage: LocalStorage) -> None:
    assert storage.is_held("a.lock") is False
    assert storage.list() == [], "asking makes no file"


def test_several_share_a_lock_and_all_of_them_must_let_go(storage: LocalStorage) -> None:
    first, second = held(storage, "a.lock"), held(storage, "a.lock")
    assert storage.is_held("a.lock") is True
    first.release()
    assert storage.is_held("a.lock") is True
    second.release()
    assert storage.is_held("a.lock") is False


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_an_exclusive_hold_and_any_other_exclude_each_other(storage: LocalStorage, first: bool, second: bool) -> None:
    hold = held(storage, "a.lock", exclusive=first)
    begun = time.monotonic()
    with pytest.raises(BlockingIOError, match=r"a\.lock"):
        storage.hold("a.lock", exclusive=second)
    assert time.monotonic() - begun < 5
    hold.release()
    held(storage, "a.lock", exclusive=second).release()


def test_releasing_twice_does_not_touch_what_came_after(storage: LocalStorage) -> None:
    first = held(storage, "a.lock", exclusive=True)
    first.release()
    second = held(storage, "a.lock", exclusive=True)  # likely under the same descriptor
    first.release()
    assert storage.is_held("a.lock") is True
    second.release()


def test_a_hold_ends_when_its_process_is_killed(storage: LocalStorage) -> None:
    with other_process(storage, "hold = storage.hold('a.lock', exclusive=True)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert storage.is_held("a.lock") is True
        with pytest.raises(BlockingIOError):
            storage.hold("a.lock")
        process.kill()
        process.wait()
    assert storage.is_held("a.lock") is False
    held(storage, "a.lock", exclusive=True).release()


def test_a_program_started_by_the_holder_does_not_inherit_the_hold(storage: LocalStorage) -> None:
    hold = held(storage, "a.lock", exclusive=True)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        os.close(hold._descriptor)  # the end of this process, as far as the lock can see
        assert storage.is_held("a.lock") is False
        child.kill()
    hold._descriptor = -1


def test_a_fork_neither_keeps_its_parents_hold_nor_ends_it(storage: LocalStorage) -> None:
    """In a process of its own: forking one with threads is a warning."""
    statement = textwrap.dedent(
        """
        import os
        from tidegate.foundation import holds
        hold = storage.hold("a.lock", exclusive=True)
        again, stay = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(stay[1])
            hold.release()
            os.write(again[1], b"x")
            os.read(stay[0], 1)
            os._exit(0)
        os.read(again[0], 1)
        assert storage.is_held("a.lock") is True, "the child ended it"
        os.close(hold._descriptor)
        assert storage.is_held("a.lock") is False, "the child kept it"
        os.write(stay[1], b"x")
        os.waitpid(child, 0)
        """
    )
    with other_process(storage, textwrap.indent(statement, " " * 8).strip()) as process:
        assert process.communicate("")[0] == "done\n"


def test_releasing_ends_the_lock_of_copies_too(storage: LocalStorage) -> None:
    """A fork that Python knows nothing of keeps a copy of the descriptor."""
    hold = held(storage, "a.lock", exclusive=True)
    copy = os.dup(hold._descriptor)
    hold.release()
    assert storage.is_held("a.lock") is False
    os.close(copy)


def test_sweeping_removes_locks_that_nobody_holds_and_no_others(storage: LocalStorage) -> None:
    shared = held(storage, "shared.lock")
    alone = held(storage, "alone.lock", exclusive=True)
    held(storage, "free.lock").release()
    held(storage, "kept").release()
    assert storage.sweep() == ["free.lock"]
    assert storage.list() == ["alone.lock", "kept", "shared.lock"]
    shared.release()
    alone.release()
    assert storage.sweep() == ["alone.lock", "shared.lock"]


def test_while_another_process_sweeps_no_held_lock_is_removed(storage: LocalStorage) -> None:
    """The other process sweeps all the time; without the look at the name after locking this fails at once."""
    sweeping = "print('done', flush=True)\n        while True: storage.sweep()"
    with other_process(storage, sweeping) as sweeper:
        assert sweeper.stdout is not None
        assert sweeper.stdout.readline() == "done\n"
        for _ in range(300):
            hold = held(storage, "a.lock")
            assert storage.exists("a.lock")
            assert storage.is_held("a.lock") is True
            hold.release()
        assert sweeper.poll() is None, "it still sweeps"
        sweeper.kill()


def test_asking_at_once_is_no_hold(storage: LocalStorage) -> None:
    held(storage, "a.lock").release()
    answers: set[bool | None] = set()

    def ask() -> None:
        answers.update(storage.is_held("a.lock") for _ in range(500))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {False}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_says_so(tmp_path: Path, number: int) -> None:
    class Lockless(OsDisk):
        def lock(self, descriptor: int, *, exclusive: bool) -> None:
            raise OSError(number, os.strerror(number))

    storage = LocalStorage(str(tmp_path), Lockless())
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert storage.hold("a.lock") is None
    assert storage.is_held("a.lock") is None
    assert storage.sweep() == []
    if before:
        assert len(os.listdir("/proc/self/fd")) == before, "no descriptor is left open"


def test_other_refusals_name_the_file(tmp_path: Path) -> None:
    class Failing(OsDisk):
        def lock(self, descriptor: int, *, exclusive: bool) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = LocalStorage(str(tmp_path), Failing())
    for ask in (storage.hold, storage.is_held):
        with pytest.raises(StorageFailed, match=r"a\.lock: could not lock it: Input/output error"):
            ask("a.lock")


def test_a_file_that_may_only_be_read_can_be_asked_for(tmp_path: Path) -> None:
    class ReadOnly(OsDisk):
        def open_existing(self, path: str, *, writable: bool) -> int:
            if writable:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return super().open_existing(path, writable=False)

    hold = held(LocalStorage(str(tmp_path)), "a.lock")
    reader = LocalStorage(str(tmp_path), ReadOnly())
    assert reader.is_held("a.lock") is True
    hold.release()
    assert reader.is_held("a.lock") is False


def test_a_conflict_costs_a_fraction_of_a_second() -> None:
    assert sum(holds.PATIENCE_SECONDS) < 0.1
