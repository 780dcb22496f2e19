"""A small server that tells, while a pipeline runs, what an outside scheduler needs to know of its operators.

With mode="thread-per-operator" and `publish=8080` (a port of 127.0.0.1; 0 is any free one) or `publish="run.sock"` (a
Unix socket), a GET of any path is answered over HTTP with JSON:

    {"process": 4711, "seconds": 1.5, "operators": [
      {"number": 1, "name": "session", "thread": 4715, "waiting": 12, "capacity": 1024, "records": 90000,
       "outputs": 45000, "cost_seconds": 0.000011, "selectivity": 0.5, "rate": 60000.0, "oldest_seconds": 0.0004,
       "downstream": [2], "downstream_names": ["top_pages"]}, ...]}

`seconds` is how long the run has lasted, `thread` the native id of the operator's thread (0 before it has started),
`waiting` the records that no thread has begun, `rate` records a second since the run began. Cost, selectivity and
counts are those of finished time slices. `oldest_seconds` is the age of the first waiting record since it entered the
pipeline; null if none waits. Workers are not stopped for an answer, so its numbers may be a few records apart. The
address is logged at INFO. When the run ends, the server is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tidegate.engine.execution.timing import read_ticks, ticks_per_second
from tidegate.foundation.arguments import refusal
from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.ordering.kernels import layout as at
from tidegate.ordering.runtime import Runtime

Publish = int | str | os.PathLike[str]
PORT_MOST = 65_535
_log = logging.getLogger(__name__)


def check_publish(publish: Any, mode: str) -> None:
    """Raise a DefinitionError unless it is an address, or None."""
    if publish is None:
        return
    port = isinstance(publish, int) and not isinstance(publish, bool) and 0 <= publish <= PORT_MOST
    if not port and not (isinstance(publish, str | os.PathLike) and os.fspath(publish)):
        raise refusal("publish", f"a port from 0 to {PORT_MOST}, or the path of a Unix socket", publish)
    if mode != "thread-per-operator":
        raise DefinitionError(
            f'publish: required mode="thread-per-operator", got mode={mode!r}; workers that share all operators have '
            "no thread for each"
        )


@contextlib.contextmanager
def published(runtime: Runtime, publish: Publish | None) -> Iterator[None]:
    """Serve the figures of a running pipeline until the block is left."""
    if publish is None:
        yield
        return
    began = time.perf_counter()
    server = _serve(publish, lambda: figures(runtime, time.perf_counter() - began))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="tidegate-publish", daemon=True)
    thread.start()
    _log.info("the operators of a pipeline are told at %s", server.server_address)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        if not isinstance(publish, int):
            Path(publish).unlink(missing_ok=True)


def figures(runtime: Runtime, seconds: float) -> dict[str, Any]:
    """What is told of all operators; `seconds` is how long the run has lasted."""
    flow = runtime.flow
    numbers = [number for number, node in enumerate(flow.nodes) if node.operator is not None]
    told = [_operator(runtime, number, worker, seconds) for worker, number in enumerate(numbers)]
    return {"process": os.getpid(), "seconds": seconds, "operators": told}


def _operator(runtime: Runtime, number: int, worker: int, seconds: float) -> dict[str, Any]:
    flow, per_second = runtime.flow, ticks_per_second()
    operator = flow.nodes[number].operator
    assert operator is not None
    tally = flow.worker_at(worker) + at.TALLY + at.TALLY_WORDS * number
    records, outputs, ticks = (int(word) for word in flow.memory[tally : tally + 3])
    head = flow.word(number, at.HEAD)
    waiting = max(0, flow.word(number, at.TAIL) - head)
    oldest = (int(read_ticks()) - int(flow.row(number, head)[at.ORIGIN])) / per_second if waiting else None
    behind = _operators_behind(runtime, number)
    return {
        "number": number,
        "name": operator.name,
        "thread": runtime.thread_ids[worker],
        "waiting": waiting,
        "capacity": flow.word(number, at.MASK) + 1,
        "records": records,
        "outputs": outputs,
        "cost_seconds": ticks / per_second / max(records, 1),
        "selectivity": outputs / max(records, 1),
        "rate": records / max(seconds, 1e-9),
        "oldest_seconds": None if oldest is None else max(0.0, oldest),
        "downstream": [each for each, _ in behind],
        "downstream_names": [name for _, name in behind],
    }


def _operators_behind(runtime: Runtime, number: int) -> list[tuple[int, str]]:
    """The operators that take what comes out of a node, also through a merge."""
    nodes = runtime.flow.nodes
    found: list[tuple[int, str]] = []
    merges = [each for each, node in enumerate(nodes) if number in node.branches]
    for target in [*nodes[number].targets, *merges]:
        operator = nodes[target].operator
        found += [(target, operator.name)] if operator is not None else _operators_behind(runtime, target)
    return list(dict.fromkeys(found))


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def _serve(publish: Publish, tell: Callable[[], dict[str, Any]]) -> _Server | _UnixServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(tell()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: requests are no news."""

    try:
        if isinstance(publish, int):
            return _Server(("127.0.0.1", publish), Handler)
        return _UnixServer(os.fspath(publish), Handler)
    except OSError as error:
        raise InputError(f"publish: {publish!r} cannot be used: {error}; take another port or path, or 0") from error
