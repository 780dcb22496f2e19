from __future__ import annotations

import os
import subprocess
import sys

from tidegate.foundation import processes


def test_this_process_runs_and_one_that_started_at_another_time_does_not() -> None:
    start = processes.started(os.getpid())
    assert processes.is_running(os.getpid(), start)
    assert not processes.is_running(os.getpid(), start - 100)


def test_a_killed_process_is_gone_even_before_its_parent_reaps_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = processes.started(child.pid)
        assert processes.is_running(child.pid, start)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie as long as we wait
        assert not processes.is_running(child.pid, start)
    assert not processes.is_running(child.pid, start)
