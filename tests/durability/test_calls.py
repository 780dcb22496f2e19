from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tidegate.durability.calls import Calls
from tidegate.durability.command_log import CommandLog, Sync
from tidegate.foundation.appending import Appender
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage


class Engine:
    """Counts, and notices when two calls run at once."""

    def __init__(self, path: Path, sync: Sync = "never") -> None:
        self.lock = threading.RLock()
        self.log = CommandLog(open_storage(str(path)), sync)
        self.log.begin(1, "", state="s", epoch=1, program="p", transactions=[])
        self.calls = Calls(self.lock, self.log)
        self.count = 0
        self._inside = False

    def add(self, fail: bool = False) -> int:
        assert not self._inside, "two calls at once"
        self._inside = True
        time.sleep(0)
        if fail:
            self._inside = False
            raise InputError("a bad call")
        self.count += 1
        self.log.append(b"x")
        self._inside = False
        return self.count

    def call(self, fail: bool = False) -> int:
        found: int = self.calls.run(lambda: self.add(fail))
        return found


def in_threads(count: int, work: Any) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread waits for ever"


@pytest.mark.parametrize("sync", ["never", "group"])
def test_calls_run_one_at_a_time_and_each_gets_its_own_outcome(tmp_path: Path, sync: Sync) -> None:
    engine, seen = Engine(tmp_path, sync), list[int]()

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(200):
            if rng.random() < 0.1:
                with pytest.raises(InputError):
                    engine.call(fail=True)
            elif rng.random() < 0.1:
                with engine.calls.turn():
                    time.sleep(0)
            else:
                seen.append(engine.call())

    in_threads(12, work)
    assert sorted(seen) == list(range(1, engine.count + 1))


def test_one_thread_that_has_the_engine_serves_those_that_wait(tmp_path: Path) -> None:
    engine, results, ran_by = Engine(tmp_path), list[int](), set[int]()

    def add() -> int:
        ran_by.add(threading.get_ident())
        return engine.add()

    def work(number: int) -> None:
        results.append(engine.calls.result(engine.calls.make(add)))

    with engine.calls.turn():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while len(engine.calls._queue) < 8:
            time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert sorted(results) == list(range(1, 9)) and len(ran_by) == 1


def test_calls_queue_while_the_log_is_written_and_run_when_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, results = Engine(tmp_path, "group"), list[int]()
    begun, may_end = threading.Event(), threading.Event()
    sync = Appender.sync

    def sync_slowly(self: Appender) -> None:
        begun.set()
        assert may_end.wait(60)
        sync(self)

    monkeypatch.setattr(Appender, "sync", sync_slowly)
    threads = [threading.Thread(target=lambda: results.append(engine.call())) for _ in range(6)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(engine.calls._queue) < 5:
        time.sleep(0.001)
    assert engine.count == 1 and results == [], "none of them could be answered before the next sync"
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [1, 2, 3, 4, 5, 6]


def test_an_interrupt_is_the_matter_of_the_thread_that_got_it(tmp_path: Path) -> None:
    engine, told = Engine(tmp_path), list[str]()

    def interrupt() -> int:
        raise KeyboardInterrupt

    other = engine.calls.make(interrupt)

    def wait(_number: int) -> None:
        try:
            engine.calls.result(other)
        except InterruptedError as error:
            told.append(str(error))

    mine = engine.calls.make(engine.add)
    with pytest.raises(KeyboardInterrupt):
        engine.calls.result(mine)
    in_threads(1, wait)
    assert len(told) == 1 and "not certain" in told[0]
    assert engine.calls.result(mine) == 1, "what was not begun is still in the queue"
    assert engine.call() == 2


def test_a_caller_that_is_interrupted_in_the_queue_leaves_it_and_holds_up_nobody(tmp_path: Path) -> None:
    engine, results = Engine(tmp_path), list[int]()

    def interrupt(number: int, frame: object) -> None:
        raise InterruptedError

    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.calls.turn():
            held.set()
            assert may_end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(InterruptedError):
            engine.call()  # the first in the queue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not engine.calls._queue
    others = [threading.Thread(target=lambda: results.append(engine.call())) for _ in range(3)]
    for thread in others:
        thread.start()
    while len(engine.calls._queue) < 3:
        time.sleep(0.001)
    may_end.set()
    for thread in (holder, *others):
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(results) == [1, 2, 3], "what was interrupted in the queue did not run"
