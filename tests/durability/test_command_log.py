from __future__ import annotations

import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tidegate.durability import log_segments
from tidegate.durability.command_log import CommandLog, Sync
from tidegate.foundation.appending import Appender
from tidegate.foundation.errors import StateOwned, StorageFailed, StorageUncertain
from tidegate.foundation.storage import Storage, open_storage

FIELDS: dict[str, Any] = {"state": "s", "epoch": 1, "program": "p", "transactions": []}


def opened(storage: Storage, sync: Sync = "group") -> CommandLog:
    log = CommandLog(storage, sync)
    log.begin(1, "", **FIELDS)
    return log


def records(storage: Storage) -> list[bytes]:
    """The payloads of all segments, in order; their chain is checked on the way."""
    found: list[bytes] = []
    counted: dict[str, int] = {}
    for segment in log_segments.following(storage, None, counted):
        payloads = list(segment.payloads())
        counted[segment.name] = sum(len(payload) for payload in payloads)  # every record here is one byte
        found += payloads
    return found


@pytest.mark.parametrize("sync", ["group", "always", "never"])
def test_what_was_waited_for_can_be_read(storage: Storage, sync: Sync) -> None:
    log = opened(storage, sync)
    for record in (b"a", b"b", b"c"):
        log.wait(log.append(record))
    assert records(storage) == [b"a", b"b", b"c"]


def test_a_group_is_one_frame_and_always_is_a_frame_each(tmp_path: Path) -> None:
    for sync, expected in (("group", [b"abc"]), ("never", [b"abc"]), ("always", [b"a", b"b", b"c"])):
        storage = open_storage(str(tmp_path / sync))
        log = opened(storage, sync)  # type: ignore[arg-type]
        group = [log.append(record) for record in (b"a", b"b", b"c")][-1]
        log.wait(group)
        assert records(storage) == expected


def test_segments_go_on_from_each_other_and_an_empty_one_adds_nothing(storage: Storage) -> None:
    log = opened(storage)
    log.wait(log.append(b"a"))
    before = log.hash
    for _ in range(3):
        log.begin(2, log.hash)
        assert log.hash == before
    log.wait(log.append(b"b"))
    assert records(storage) == [b"a", b"b"] and log.hash != before


@pytest.mark.parametrize("sync", ["group", "always"])
def test_syncs_are_shared_by_groups_only(tmp_path: Path, sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(str(tmp_path))
    log, syncs = opened(storage, sync), []
    released, started = threading.Event(), threading.Event()
    real = Appender.sync

    def slow(self: Appender) -> None:
        syncs.append(1)
        started.set()
        released.wait()
        real(self)

    monkeypatch.setattr(Appender, "sync", slow)
    threads = [threading.Thread(target=log.wait, args=(log.append(b"a"),))]
    threads[0].start()
    started.wait()
    groups = [log.append(bytes([number])) for number in range(65, 73)]
    threads += [threading.Thread(target=log.wait, args=(group,)) for group in groups]
    for thread in threads[1:]:
        thread.start()
    released.set()
    for thread in threads:
        thread.join()
    assert len(syncs) == (2 if sync == "group" else 9)
    assert b"".join(records(storage)) == b"aABCDEFGH"


def test_one_that_is_interrupted_while_it_waits_leaves_the_others_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(open_storage(str(tmp_path)))
    released, started = threading.Event(), threading.Event()
    real = Appender.sync

    def slow(self: Appender) -> None:
        started.set()
        released.wait()
        real(self)

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(Appender, "sync", slow)
    threads = [threading.Thread(target=log.wait, args=(log.append(b"a"),))]
    threads[0].start()
    started.wait()
    group = log.append(b"b")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(InterruptedError):
            log.wait(group)  # the first in the row for the next group
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    threads += [threading.Thread(target=log.wait, args=(group,)) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    while len(group.gates) < 3:
        time.sleep(0.001)
    released.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert records(open_storage(str(tmp_path))) == [b"a", b"b"]


def test_a_reader_waits_for_what_was_appended_and_for_nothing_else(tmp_path: Path) -> None:
    log = opened(open_storage(str(tmp_path)))
    log.wait(log.last())
    log.append(b"a")
    log.wait(log.last())
    assert records(open_storage(str(tmp_path))) == [b"a"]


def test_a_failed_sync_is_told_to_all_that_wait_and_to_all_that_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(open_storage(str(tmp_path)))

    def fail(self: Appender) -> None:
        raise self._die("syncing it failed", OSError(5, "Input/output error"))

    monkeypatch.setattr(Appender, "sync", fail)
    told: list[str] = []

    def wait(group: Any) -> None:
        try:
            log.wait(group)
        except StorageUncertain as error:
            told.append(str(error))

    threads = [threading.Thread(target=wait, args=(log.append(bytes([number])),)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(told) == 5 and all("open the state again" in text for text in told)
    for ask in (lambda: log.append(b"b"), lambda: log.reserve(1), log.flush):
        with pytest.raises(StorageUncertain):
            ask()


def test_an_interrupt_while_writing_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(open_storage(str(tmp_path)))

    def interrupt(self: Appender) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Appender, "sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.wait(log.append(b"a"))
    with pytest.raises(StorageUncertain, match="interrupted"):
        log.append(b"b")


def test_a_full_disk_is_noticed_before_a_record_exists(small_disk: Path) -> None:
    log = opened(open_storage(str(small_disk / "state")))
    log.reserve(1000)
    with pytest.raises(StorageFailed, match="No space left"):
        log.reserve(1 << 20)
    log.wait(log.append(b"a"))
    log.close()
    assert records(open_storage(str(small_disk / "state"))) == [b"a"]


def test_where_nothing_can_be_appended_to_a_number_that_is_taken_ends_the_ownership() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    first, second = opened(storage), opened(storage)
    second.wait(second.append(b"a"))
    with pytest.raises(StateOwned, match="taken over"):
        first.wait(first.append(b"x"))
    assert records(storage) == [b"a"]
