"""What a running pipeline tells of its operators, read as an outside scheduler reads it."""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.foundation.jit import uncompiled
from tidegate.ordering import merge, pipeline


@dataclass
class Number:
    value: int


def doubled(number: Number) -> Number:
    return Number(number.value * 2)


def is_small(number: Number) -> bool:
    return number.value < 100


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def told_at(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.loads(answer.read())  # type: ignore[no-any-return]


def test_operators_are_told_while_the_pipeline_runs_and_no_longer() -> None:
    port, more = free_port(), threading.Event()

    def numbers() -> Iterator[Number]:
        yield from (Number(value) for value in range(200))
        more.wait(60)
        yield Number(1)

    first = pipeline(Number).map(doubled)
    made = merge(*first.branch(lambda p: p.filter(is_small), lambda p: p)).filter(is_small)
    with uncompiled():
        running = made.stream(numbers(), mode="thread-per-operator", publish=port)
        found = [next(running) for _ in range(100)]
        told = told_at(port)
        more.set()
        found += list(running)
    assert len(found) == 102
    assert told["process"] == os.getpid() and told["seconds"] > 0
    operators = told["operators"]
    assert [each["name"] for each in operators] == ["doubled", "is_small", "is_small"]
    assert operators[0]["downstream"] == [operators[1]["number"], operators[2]["number"]]
    assert operators[1]["downstream_names"] == ["is_small"] and operators[2]["downstream"] == []
    assert len({each["thread"] for each in operators} - {0}) == 3
    for each in operators:
        assert each["capacity"] == 1024 and 0 <= each["waiting"] <= 1024
        assert 0 <= each["outputs"] <= each["records"] and each["cost_seconds"] >= 0 and each["rate"] >= 0
        assert (each["oldest_seconds"] is None) == (each["waiting"] == 0)
    with pytest.raises(urllib.error.URLError):
        told_at(port)


def test_a_unix_socket_is_there_during_the_run_and_removed_after_it(tmp_path: Path) -> None:
    path = tmp_path / "run.sock"
    with uncompiled():
        running = pipeline(Number).map(doubled).stream([Number(1)], mode="thread-per-operator", publish=path)
        assert next(running) == Number(2)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert list(running) == []
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["operators"][0]["name"] == "doubled"
    assert not path.exists()


def test_a_port_that_is_taken_is_told_and_no_thread_is_left() -> None:
    before = threading.active_count()
    with socket.socket() as other, uncompiled():
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(tg.InputError, match=f"publish: {port} cannot be used"):
            pipeline(Number).map(doubled).run([{"value": 1}], mode="thread-per-operator", publish=port)
    assert threading.active_count() == before


@pytest.mark.parametrize("publish", [-1, 65_536, True, 1.5, "", [8080]])
def test_an_address_that_is_none_is_refused(publish: Any) -> None:
    with pytest.raises(tg.DefinitionError, match="publish: required a port from 0 to 65535"):
        pipeline(Number).run([{"value": 1}], mode="thread-per-operator", publish=publish)


def test_workers_that_share_operators_publish_nothing() -> None:
    with pytest.raises(tg.DefinitionError, match='publish: required mode="thread-per-operator"'):
        pipeline(Number).run([{"value": 1}], publish=0)
