"""How runs end: by Ctrl-C, dropped, in forks, beside others; and that functions which wait do so at the same time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.foundation.errors import OperatorFailed
from tidegate.ordering import DeadLetter, pipeline

from .programs import Item, items, raised, rows, table

INTERRUPTED = """
    import os, signal, sys, threading
    from dataclasses import dataclass
    from tidegate.ordering import pipeline

    @dataclass
    class Item:
        number: int

    def spin(item: Item) -> Item:
        count = 0
        while item.number >= 0:
            count += 1
        return Item(count)

    def wait_for_more():
        yield Item(-1)
        threading.Event().wait()

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    made = pipeline(Item).map(spin)
    assert made.run([{"number": -1}]).num_rows == 1     # compiled before
    before = set(threading.enumerate())
    timer = threading.Timer(0.5, press)
    try:
        timer.start()
        if sys.argv[1] == "run":
            made.run([{"number": 1}] * 5, workers=3)
        else:
            for item in made.stream(wait_for_more(), workers=3):
                pass
    except KeyboardInterrupt:
        timer.join()
        left = {thread.name for thread in set(threading.enumerate()) - before}
        assert left <= {"tidegate-source"}, left        # which waits for the user's next record
        print("as it should")
"""


def ended(threads: set[threading.Thread]) -> bool:
    """Whether no other threads are left, soon."""
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.01)
    return not set(threading.enumerate()) - threads


def uncompiled_map(function: Callable[[Item], Item]) -> tg.ordering.Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.TidegateWarning)
        return pipeline(Item).map(function)


@pytest.mark.parametrize("what", ["run", "stream"])
def test_an_interrupt_ends_workers_even_in_a_loop_that_never_ends(what: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(INTERRUPTED))
    done = subprocess.run([sys.executable, str(file), what], capture_output=True, text=True, timeout=120)
    assert done.stdout == "as it should\n", done.stderr


def test_a_stream_that_is_garbage_ends_its_workers() -> None:
    threads = set(threading.enumerate())
    held: list[object] = [pipeline(Item).map(raised).stream(iter(items(5_000, 5)), workers=3, capacity=8)]
    next(held[0])  # type: ignore[call-overload]
    held.append(held)  # in a circle
    del held
    gc.collect()
    assert ended(threads)


def test_two_streams_at_once_and_one_inside_the_other() -> None:
    made, records = pipeline(Item).map(raised), items(50, 1)
    expected = rows([raised(item) for item in records])
    pairs = zip(made.stream(records, workers=2), made.stream(iter(records), workers=3, capacity=1), strict=True)
    assert [rows(list(pair)) for pair in pairs] == [[row, row] for row in expected]
    nested = made.stream(made.stream(iter(records), workers=2), workers=2)
    assert rows(list(nested)) == rows([raised(raised(item)) for item in records])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_streams_of_its_own_and_does_not_go_on_with_its_parents() -> None:
    made, records = pipeline(Item).map(raised), items(50, 1)
    expected = rows([raised(item) for item in records])
    begun = made.stream(iter(records), workers=2, capacity=4)
    first = next(begun)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert rows(list(made.stream(iter(records), workers=2))) == expected
            with pytest.raises(tg.TidegateError, match="required the process that began it, got a fork"):
                list(begun)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rows([first, *begun]) == expected


def exits(item: Item) -> Item:
    if item.number == 2:
        sys.exit("enough")
    return item


def test_a_function_that_exits_fails_its_record_and_is_no_dead_letter() -> None:
    threads, letters = set(threading.enumerate()), list[DeadLetter]()
    with pytest.raises(OperatorFailed, match="raised SystemExit: enough") as told:
        uncompiled_map(exits).run(table(items(9, 1)), workers=2, dead_letters=letters.append)
    assert isinstance(told.value.__cause__, SystemExit)
    assert not letters
    assert ended(threads)


def test_functions_that_wait_do_so_at_the_same_time() -> None:
    """Eight workers are in the function at once: the barrier lets nobody through before."""
    together = threading.Barrier(8)

    def waits(item: Item) -> Item:
        together.wait(60)
        return item

    records = items(16, 1)
    assert rows(uncompiled_map(waits).run(table(records), workers=8)) == rows(records)
