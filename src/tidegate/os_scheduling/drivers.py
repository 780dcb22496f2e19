"""How the scheduler sees an engine: its operators, their threads, and the numbers that it publishes about them.

A driver asks one running engine through a public interface, and has one method:

    class Driver(Protocol):
        def operators(self) -> Sequence[Operator]: ...

It may raise whatever it likes: an engine that does not answer is told in a note, its threads get their own
priorities back, and the next round asks again. A driver gives the numbers that its engine has, under the names of
`metrics.PRIMITIVES`; what is missing is computed from the others.

`EndpointDriver` is for an engine that publishes its operators itself, on an endpoint that answers a GET with one JSON
object:

    {"pid": 310, "query": "traffic",
     "operators": [{"name": "toll", "threads": [322], "downstream": ["sink"], "logical": ["toll"],
                    "queue_size": 17, "processed": 90411, "emitted": 90002, "busy_seconds": 3.1, "head_age": 0.02}]}

`OrderedDriver` is for an ordered pipeline of this package that runs with mode="thread-per-operator" and `publish=PORT`.

Only `pid`, and of an operator `name` and `threads`, are required. Any other number of an operator is a metric of that
name, and null is one that is not known yet.
"""

from __future__ import annotations

import collections
import json
import math
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from tidegate.foundation.errors import DefinitionError, InputError

ANSWER_BYTES_MAX = 16 << 20
TIMEOUT_SECONDS = 1.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NOT_METRICS = {"name", "threads", "downstream", "logical", "query"}


@dataclass(frozen=True, slots=True)
class Operator:
    """One physical operator: what the engine runs on threads of its own.

    Args:
        name: Unique in its driver.
        pid: The process that runs it, as this node numbers it.
        threads: The ids of its threads (`threading.get_native_id()`); several if they share its work.
        query: What it is a part of; groups can be made by it.
        downstream: The names of the operators that take its output.
        logical: The operators of the user's query that it runs: several if the engine fused them. Several physical
            operators with the same one are its replicas. Its own name if empty.
        metrics: What the engine publishes about it, by name.
    """

    name: str
    pid: int
    threads: tuple[int, ...]
    query: str = ""
    downstream: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Driver(Protocol):
    """Sees one engine."""

    def operators(self) -> Sequence[Operator]:
        """The operators that run now, with fresh numbers."""
        ...


class EndpointDriver:
    """Sees an engine that publishes its operators as JSON over HTTP.

    Args:
        url: The address of its endpoint, on this node.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _LOOPBACK:
            raise DefinitionError(
                f"url: required the address of an endpoint on this node, such as http://127.0.0.1:7070, got {url!r}. "
                "Thread ids of another node mean nothing here: run one scheduler on each node"
            )
        self._url = url
        self._read: Callable[[Mapping[str, Any]], list[Operator]] = read_answer
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy

    def operators(self) -> Sequence[Operator]:
        """Ask the endpoint."""
        with self._opener.open(self._url, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read(ANSWER_BYTES_MAX)
        try:
            return self._read(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{self._url}: required a JSON object with a process and its operators, as this driver reads it; got "
                f"{text[:80]!r} ({type(error).__name__}: {error}). Is it the endpoint of an engine?"
            ) from error


class OrderedDriver(EndpointDriver):
    """Sees an ordered pipeline that runs with a thread for each operator and publishes them on a port.

    Args:
        url: The address of its endpoint, on this node.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._read = read_ordered


def read_ordered(answer: Mapping[str, Any]) -> list[Operator]:
    """The operators in an answer of an ordered pipeline; those with the same name get their numbers as well."""
    several = collections.Counter(each["name"] for each in answer["operators"])
    names = {
        each["number"]: each["name"] if several[each["name"]] == 1 else f"{each['name']}#{each['number']}"
        for each in answer["operators"]
    }
    return [
        Operator(
            name=names[each["number"]],
            pid=int(answer["process"]),
            threads=(int(each["thread"]),),
            downstream=tuple(names[number] for number in each["downstream"]),
            metrics={
                "queue_size": float(each["waiting"]),
                "processed": float(each["records"]),
                "emitted": float(each["outputs"]),
                "busy_seconds": float(each["cost_seconds"]) * each["records"],
                "head_age": float(each["oldest_seconds"] or 0),
            },
        )
        for each in answer["operators"]
    ]


def read_answer(answer: Mapping[str, Any]) -> list[Operator]:
    """The operators in an endpoint's answer."""
    pid, query = int(answer["pid"]), str(answer.get("query") or "")
    return [
        Operator(
            name=str(each["name"]),
            pid=pid,
            threads=tuple(int(thread) for thread in each["threads"]),
            query=str(each.get("query") or query),
            downstream=tuple(map(str, each.get("downstream", ()))),
            logical=tuple(map(str, each.get("logical", ()))),
            metrics={name: float(value) for name, value in each.items() if _is_metric(name, value)},
        )
        for each in answer["operators"]
    ]


def _is_metric(name: str, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return name not in _NOT_METRICS and is_number and math.isfinite(float(value))  # type: ignore[arg-type]
