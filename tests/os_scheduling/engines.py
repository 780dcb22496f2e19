"""Engines to schedule: real threads of this process, and a process of its own with an endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.os_scheduling import cgroups, procfs
from tidegate.os_scheduling.drivers import Operator
from tidegate.os_scheduling.observations import Observed
from tidegate.os_scheduling.procfs import Thread

HIERARCHY = cgroups.find_hierarchy(Path("/proc/self/mounts").read_text())

needs_nice = pytest.mark.skipif(not procfs.may_set_any_nice(), reason="needs CAP_SYS_NICE")
needs_groups = pytest.mark.skipif(
    HIERARCHY is None or HIERARCHY.version != 1 or not os.access(HIERARCHY.mount, os.W_OK),
    reason="needs a writable cpu controller of cgroup version 1",
)

ENGINE = """
import http.server, json, os, sys, threading
ended = threading.Event()
threads = [threading.Thread(target=ended.wait, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
operators = [{"name": name, "threads": [thread.native_id], "queue_size": size, "processed": 10, "emitted": 5}
             for name, thread, size in zip(("parse", "toll"), threads, (0, 90))]
class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"pid": os.getpid(), "query": "roads", "operators": operators}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"port": server.server_port, "threads": [thread.native_id for thread in threads]}), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Engine:
    """A process with two operators: `parse` with an empty queue, `toll` with a long one."""

    process: subprocess.Popen[str]
    url: str
    threads: tuple[int, int]


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine in a process of its own, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        try:
            yield Engine(process, f"http://127.0.0.1:{said['port']}/", tuple(said["threads"]))
        finally:
            process.kill()


class Threads:
    """Idle threads of this process; each ends when it is told to."""

    def __init__(self, count: int) -> None:
        self._ends = [threading.Event() for _ in range(count)]
        self._threads = [threading.Thread(target=end.wait, daemon=True) for end in self._ends]
        for thread in self._threads:
            thread.start()
        self.tids = [thread.native_id or 0 for thread in self._threads]

    def __getitem__(self, index: int) -> Thread:
        found = procfs.find_thread(os.getpid(), self.tids[index])
        assert found is not None
        return found

    def end(self, index: int) -> None:
        self._ends[index].set()
        self._threads[index].join()
        while procfs.find_thread(os.getpid(), self.tids[index]):  # Python has ended it, the kernel soon will
            pass

    def nice(self) -> list[int]:
        return [os.getpriority(os.PRIO_PROCESS, tid) for tid in self.tids]

    def operators(self, *sizes: float) -> list[Operator]:
        """An operator for each thread, called a, b, c, ..., with these queue sizes."""
        return [
            Operator(name, os.getpid(), (tid,), metrics={"queue_size": size})
            for name, tid, size in zip("abcdef", self.tids, sizes, strict=False)
        ]


@contextmanager
def idle(count: int) -> Iterator[Threads]:
    """Threads that do nothing."""
    threads = Threads(count)
    try:
        yield threads
    finally:
        for index in range(count):
            threads.end(index)


class Published:
    """A driver that gives what it was given, or raises it."""

    def __init__(self, operators: Sequence[Operator] | Exception) -> None:
        self.now = operators

    def operators(self) -> Sequence[Operator]:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


def seen(
    name: str, downstream: tuple[str, ...] = (), logical: tuple[str, ...] = (), query: str = "q", **metrics: float
) -> Observed:
    """An operator as it is observed, on a thread that only exists on paper."""
    thread = Thread(1, 1000 + sum(map(ord, name)), 1)
    return Observed(name, query, (thread,), downstream, logical or (name,), metrics)
