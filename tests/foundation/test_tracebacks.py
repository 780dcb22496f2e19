"""Errors of Tidegate show the lines of whoever called, and all lines when somebody asks for them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.foundation.errors import InputError
from tidegate.foundation.tracebacks import VARIABLE, briefly

from ..wrong_values import Account, deposit, flow

PACKAGE = Path(tg.__file__).parent


def frames(call: Callable[[], Any], error: type[Exception] = tg.TidegateError) -> tuple[int, list[str]]:
    """How many frames of Tidegate the error's traceback has, and the functions of all others."""
    with pytest.raises(error) as caught:
        call()
    found = traceback.extract_tb(caught.value.__traceback__)
    ours = [frame for frame in found if Path(frame.filename).is_relative_to(PACKAGE)]
    return len(ours), [frame.name for frame in found if frame not in ours]


def my_call(work: Callable[[], Any]) -> Callable[[], Any]:
    def mine() -> Any:
        return work()

    return mine


ENGINE = tg.Engine([deposit])
CALLS: dict[str, Callable[[], Any]] = {
    "Engine": lambda: tg.Engine([deposit], strategy="none"),
    "run": lambda: ENGINE.run([{"dst": "a", "amount": 1}]),
    "load": lambda: ENGINE.load(Account, [{"id": 1}, {"id": 1}]),
    "execute": lambda: ENGINE.execute(deposit, dst="a", amount=1),
    "read": lambda: ENGINE.read(Account, "a"),
    "scan": lambda: ENGINE.scan(flow),  # type: ignore[arg-type]
    "stream": lambda: tg.stream("a b", x=int),
    "window": lambda: tg.window(1, rows=1),  # type: ignore[arg-type]
    "dataflow": lambda: tg.dataflow([]),
    "transaction": lambda: tg.transaction(1),  # type: ignore[call-overload]
    "table": lambda: tg.table(key="id")(Path),  # type: ignore[type-var]
}


@pytest.mark.parametrize("name", CALLS)
def test_the_last_lines_shown_are_the_users(name: str) -> None:
    ours, others = frames(my_call(CALLS[name]))
    assert ours <= 2, "where the public function is left"
    assert others[-2:] == ["mine", "<lambda>"]


def test_what_an_error_was_caused_by_is_said_without_our_lines() -> None:
    with pytest.raises(tg.InputError) as caught:
        ENGINE.execute(deposit, dst=1, amount="a")
    cause = caught.value.__cause__
    assert isinstance(cause, Exception) and "required int" in str(cause) and cause.__traceback__ is None


def test_lines_of_a_users_function_that_we_called_stay() -> None:
    @briefly
    def public(callback: Callable[[], None]) -> None:
        callback()

    def callback() -> None:
        raise InputError("by the user")

    assert frames(lambda: public(callback))[1][-1] == "callback"


def test_all_lines_are_there_when_asked_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    short, _ = frames(CALLS["execute"])
    with caplog.at_level(logging.DEBUG, "tidegate"):
        logged, _ = frames(CALLS["execute"])
    monkeypatch.setenv(VARIABLE, "1")
    assert frames(CALLS["execute"])[0] == logged > short


def test_what_nobody_raised_on_purpose_keeps_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.embedding.as_table", lambda *_: 1 // 0)
    ours, _ = frames(lambda: ENGINE.run([{"dst": 1, "amount": 1}]), ZeroDivisionError)
    assert ours >= 2


def test_the_signature_and_the_docstring_stay() -> None:
    assert tg.Engine.run.__doc__ is not None and "order_by" in tg.Engine.run.__doc__
    assert tg.Engine.run.__name__ == "run"
