"""Ctrl-C ends a loop that never ends, and nothing of its transaction or batch has happened: in a process of its own,
which gets a real SIGINT.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tidegate.foundation.interrupts import Interrupts, ending_at_once, signals

PROGRAM = """
    import os, signal, sys, threading, time
    import pyarrow as pa
    import tidegate as tg
    from tidegate.foundation.jit import uncompiled

    @tg.table(key="id")
    class Row:
        id: int
        n: int = 0

    @tg.transaction
    def spin(row: Row, n: int) -> int:
        row.n += 1
        while n > 0:
            if row.n < 0:
                break
        return row.n

    def forever(n):
        while n > 0:
            pass
        return n

    @tg.transaction
    def spin_inside(row: Row, other: Row, n: int) -> int:
        row.n += forever(n) + 1
        other.n += 1
        return row.n

    @tg.transaction(compiled=False)
    def spin_plainly(row: Row, n: int) -> int:
        row.n += 1
        while n > 0:
            pass
        return row.n

    asked = tg.stream("asked", row=int, n=int)

    @tg.transaction(on=asked)
    def spin_in_graph(row: Row, n: int) -> int:
        row.n += 1
        while n > 0:
            pass
        return row.n

    graph = tg.dataflow([spin_in_graph])

    def interrupted(action):
        \"\"\"Whether Ctrl-C, pressed while an action runs, ends it.\"\"\"
        started = threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT))
        started.start()
        try:
            action()
        except KeyboardInterrupt:
            started.join()
            return True
        return False

    def events(**columns):
        return pa.table(columns)

    def rows(engine):
        return {row["id"]: row["n"] for row in engine.scan(Row).to_pylist()}
"""


def run(body: str, *arguments: str) -> None:
    """Run a body behind the program in a process of its own; it must end by itself, and print `as it should`."""
    script = textwrap.dedent(PROGRAM) + textwrap.dedent(body) + '\nprint("as it should")\n'
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.stdout.endswith("as it should\n"), done.stdout + done.stderr


# The source must be in a file, or the functions cannot be compiled.
@pytest.fixture(autouse=True)
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def in_a_file(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text(command[2])
        return real([command[0], str(file), *command[3:]], **options)  # type: ignore[call-overload,no-any-return]

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", in_a_file)


def test_a_loop_in_execute_is_ended_and_its_transaction_undone() -> None:
    run(
        """
        engine = tg.Engine([spin, spin_inside])
        assert engine.execute(spin, row=1, n=0).result == 1
        assert interrupted(lambda: engine.execute(spin, row=1, n=1))
        assert engine.execute(spin_inside, row=9, other=9, n=0).result == 2
        assert interrupted(lambda: engine.execute(spin_inside, row=2, other=3, n=1))
        assert rows(engine) == {1: 1, 9: 2}
        assert engine.execute(spin, row=1, n=0).result == 2
        assert engine.execute(spin, row=2, n=0).result == 1
        """
    )


def test_a_loop_in_plain_python_is_ended_too() -> None:
    run(
        """
        engine = tg.Engine([spin_plainly])
        assert engine.execute(spin_plainly, row=1, n=0).result == 1
        assert interrupted(lambda: engine.execute(spin_plainly, row=1, n=1))
        assert interrupted(lambda: engine.run(events(row=[1, 2, 1], n=[0, 0, 1])))
        assert rows(engine) == {1: 1}
        """
    )


def test_a_loop_in_a_batch_is_ended_and_the_whole_batch_undone() -> None:
    """Serially, by families on two workers, in place and by graphs of operations; the latter as plain Python only."""
    run(
        """
        def check(strategy):
            engine = tg.Engine([spin_inside], strategy=strategy, workers=2)
            engine.run(events(row=[1, 2], other=[3, 4], n=[0, 0]))
            batch = events(row=[1, 5, 2, 1], other=[3, 6, 4, 3], n=[0, 0, 1, 0])
            assert interrupted(lambda: engine.run(batch)), strategy
            assert rows(engine) == {1: 1, 2: 1, 3: 1, 4: 1}, strategy
            assert engine.run(events(row=[1], other=[9], n=[0]))["result"].to_pylist() == [2]

        for strategy in ("serial", tg.Families()):
            check(strategy)
        with uncompiled():
            for strategy in ("serial", "chains", "lock", tg.Decision()):
                check(strategy)
        """
    )


def test_an_engine_with_a_directory_goes_on_from_before_the_loop(tmp_path: Path) -> None:
    run(
        """
        engine = tg.Engine([spin, graph], directory=sys.argv[1])
        kinds = ["spin", "asked"]
        engine.run(events(transaction=kinds, row=[1, 1], n=[0, 0]))  # it is compiled before anything is interrupted
        engine.execute(spin, row=1, n=0)
        assert interrupted(lambda: engine.execute(spin, row=1, n=1))
        assert rows(engine) == {1: 3}
        for kind in kinds:
            assert interrupted(lambda: engine.run(events(transaction=[kind, kind], row=[1, 1], n=[0, 1])))
            assert rows(engine) == {1: 3}
        engine.run(events(transaction=["asked"], row=[1], n=[0]))
        engine.close()
        assert rows(tg.Engine([spin, graph], directory=sys.argv[1])) == {1: 4}
        """,
        str(tmp_path / "state"),
    )


def test_a_graph_in_memory_that_was_interrupted_says_so() -> None:
    run(
        """
        engine = tg.Engine([graph])
        engine.run(events(row=[1], n=[0]))
        assert interrupted(lambda: engine.run(events(row=[1, 1], n=[0, 1])))
        try:
            engine.run(events(row=[1], n=[0]))
        except tg.InputError as error:
            assert "make another engine" in str(error), error
        else:
            raise AssertionError("it went on with half a batch")
        """
    )


def test_other_signals_end_no_loop_and_reach_those_who_wait_for_them() -> None:
    run(
        """
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        came = []
        signal.signal(signal.SIGALRM, lambda *_: came.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        engine = tg.Engine([spin])
        engine.execute(spin, row=1, n=0)
        assert interrupted(lambda: engine.execute(spin, row=1, n=1))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert came and signal.set_wakeup_fd(-1) == wakes
        seen = os.read(woken, 1000)
        assert signal.SIGALRM in seen and signal.SIGINT in seen
        """
    )


def test_a_handler_of_the_users_decides_itself() -> None:
    run(
        """
        pressed = []
        signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
        engine = tg.Engine([spin])
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert engine.execute(spin, row=1, n=0).committed
        assert pressed
        """
    )


def test_signals_are_noted_only_while_somebody_watches() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts(watch=True):
        assert not signals().any()
        os.kill(os.getpid(), signal.SIGINT)
        assert signals()[0] == signal.SIGINT
    assert not signals().any() and signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        assert not signals().any()


@pytest.mark.usefixtures("interruptible")
def test_a_users_function_is_ended_at_once() -> None:
    ran = []
    with pytest.raises(KeyboardInterrupt), Interrupts(watch=True), ending_at_once():
        signal.raise_signal(signal.SIGINT)  # `os.kill` may reach another thread first
        ran.append("behind the signal")
    assert not ran
