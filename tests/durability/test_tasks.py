"""Work beside the calls of an engine: in order, by threads, in a fork, and where no thread is left."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future

import pytest

from tidegate.durability.tasks import Threads, done


def test_what_is_submitted_is_done_in_order_by_one_thread() -> None:
    background, gate, threads = Threads(), threading.Event(), []

    def first() -> None:
        gate.wait()
        threads.append(threading.get_ident())

    submitted = [background.submit(first), background.submit(lambda: threads.append(threading.get_ident()))]
    assert not any(future.done() for future in submitted)
    gate.set()
    background.close()
    assert all(future.done() for future in submitted)
    assert len(threads) == 2
    assert threads[0] == threads[1] != threading.get_ident()


def test_what_fails_says_so_to_who_asks() -> None:
    background = Threads()
    with pytest.raises(ZeroDivisionError):
        background.submit(lambda: 1 // 0).result()
    with pytest.raises(ZeroDivisionError):
        done(lambda: 1 // 0).result()
    background.close()


def test_where_no_thread_is_left_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background = Threads()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert background.submit(lambda: threading.get_ident()).result(0) == threading.get_ident()
    with pytest.raises(RuntimeError):
        background.start(lambda: None)


def test_after_it_was_closed_work_is_done_at_once() -> None:
    background = Threads()
    background.close()
    assert background.submit(lambda: 7).result(0) == 7


def test_a_fork_has_a_thread_of_its_own() -> None:
    background = Threads()
    background.submit(lambda: None).result()  # the thread waits for more, and the fork has a copy without it
    child = os.fork()
    if child == 0:
        found: Future[int] = background.submit(lambda: 7)
        os._exit(found.result(60))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    background.close()
