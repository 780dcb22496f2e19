from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tidegate.foundation.errors import DefinitionError, InputError
from tidegate.foundation.jit import uncompiled
from tidegate.ordering import pipeline
from tidegate.os_scheduling import drivers
from tidegate.os_scheduling.drivers import EndpointDriver, Operator, OrderedDriver, read_answer, read_ordered
from tidegate.os_scheduling.observations import observe

from .engines import engine


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_an_endpoint_publishes_its_operators() -> None:
    with engine() as running:
        parse, toll = EndpointDriver(running.url).operators()
        assert (parse.name, parse.pid, parse.threads) == ("parse", running.process.pid, running.threads[:1])
        assert (toll.query, toll.metrics["queue_size"], toll.metrics["processed"]) == ("roads", 90.0, 10.0)


def test_an_ordered_pipeline_tells_its_operators_by_number() -> None:
    figures = {"waiting": 3, "records": 10, "outputs": 5, "cost_seconds": 0.2, "rate": 1.0, "selectivity": 0.5}
    answer = {
        "process": 7,
        "operators": [
            {"number": 1, "name": "f", "thread": 8, "downstream": [2, 4], "oldest_seconds": 0.1, **figures},
            {"number": 2, "name": "f", "thread": 9, "downstream": [4], "oldest_seconds": None, **figures},
            {"number": 4, "name": "g", "thread": 0, "downstream": [], "oldest_seconds": None, **figures},
        ],
    }
    first, second, third = read_ordered(answer)
    assert [each.name for each in (first, second, third)] == ["f#1", "f#2", "g"]
    assert (first.pid, first.threads, first.downstream) == (7, (8,), ("f#2", "g"))
    assert first.metrics == {"queue_size": 3, "processed": 10, "emitted": 5, "busy_seconds": 2, "head_age": 0.1}
    assert second.metrics["head_age"] == 0, "nothing waits"


@dataclass
class Number:
    value: int


def doubled(number: Number) -> Number:
    return Number(number.value * 2)


def test_a_running_ordered_pipeline_is_seen_with_its_threads() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    more = threading.Event()

    def numbers() -> Iterator[Number]:
        yield Number(1)
        more.wait(60)

    with uncompiled():
        running = pipeline(Number).map(doubled).map(doubled).stream(numbers(), mode="thread-per-operator", publish=port)
        assert next(running) == Number(4)
        seen = observe({"x": OrderedDriver(f"http://127.0.0.1:{port}")})
        more.set()
        assert list(running) == []
    first, second = seen.operators
    assert first.downstream == (second.name,) and first.threads != second.threads and seen.notes == ()
    assert {"queue_size", "processed", "emitted", "busy_seconds", "head_age", "cpu_seconds"} == first.metrics.keys()


def test_numbers_are_metrics_and_what_is_not_known_is_left_out() -> None:
    answer = {
        "pid": 7,
        "operators": [{"name": "a", "threads": [8], "rate": None, "x": float("inf"), "cost": 2, "ready": True}],
    }
    assert read_answer(answer) == [Operator("a", 7, (8,), metrics={"cost": 2.0})]


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b"{}", b'{"pid": 1, "operators": [{"name": "a"}]}', b"\xff"])
def test_an_answer_of_something_else_is_told_with_what_was_expected(body: bytes) -> None:
    with (
        answering(body) as url,
        pytest.raises(InputError, match=r"required a JSON object with a process.*endpoint of an engine"),
    ):
        EndpointDriver(url).operators()


def test_an_engine_that_stalls_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as stalled, pytest.raises(TimeoutError):
        EndpointDriver(f"http://127.0.0.1:{stalled.getsockname()[1]}").operators()


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "https://127.0.0.1", "file:///etc/passwd", "7070", ""])
def test_only_endpoints_of_this_node_are_asked(url: str) -> None:
    with pytest.raises(DefinitionError, match=r"on this node"):
        EndpointDriver(url)
