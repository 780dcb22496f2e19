"""A real S3 server on loopback, which tests can make lie, and whose answers they can lose."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import fsspec
import pytest

_BUCKETS = itertools.count()


class S3Server:
    """moto's server; requests are taken one at a time, because S3's own answers are linearizable too.

    `ignores_conditions`: it puts objects whatever the condition says, as stores do that do not know it.
    `loses`: how many answers of the next puts get lost after the object was put.
    `refuses`: the next puts fail before anything happens.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            def log(self, *_arguments: Any) -> None:
                pass

        self.ignores_conditions = False
        self.loses = self.refuses = self.puts = 0
        self._turn = threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Silent)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._turn:
            is_put = environ["REQUEST_METHOD"] == "PUT"
            self.puts += is_put
            if is_put and self.refuses:
                self.refuses -= 1
                start("503 Service Unavailable", [("Content-Length", "0")])
                return [b""]
            if self.ignores_conditions:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if is_put and self.loses:
                self.loses -= 1
                list(self._app(environ, lambda *_: None))
                start("500 Internal Server Error", [("Content-Length", "0")])
                return [b""]
            return list(self._app(environ, start))

    def options(self) -> dict[str, Any]:
        """What a client needs to reach it."""
        retries = {"retries": {"total_max_attempts": 2}}  # s3fs repeats five times on top of that
        return {"endpoint_url": self.endpoint, "key": "someone", "secret": "something", "config_kwargs": retries}

    def new_bucket(self) -> str:
        """The URL of a bucket that nobody used before."""
        name = f"bucket-{next(_BUCKETS)}"
        fsspec.filesystem("s3", **self.options()).mkdir(name)
        return f"s3://{name}"

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, and fsspec set up so that s3:// URLs lead to it."""
    monkeypatch.setitem(fsspec.config.conf, "s3", s3_server.options())
    yield s3_server
    s3_server.ignores_conditions = False
    s3_server.loses = s3_server.refuses = 0
