"""Terminals that show ASCII only: commands run to their end there, in processes of their own, and print ASCII."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.commands.plain_output import is_plain

PROGRAM = """
import tidegate as tg

@tg.table(key="id")
class Account:
    id: int
    balance: int = 0

@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "not enough")
    src.balance -= amount
    dst.balance += amount
    return src.balance
"""

RUN = """
import sys
from tidegate.cli import app
state, program = sys.argv[1:]
for order in (
    ["--help"],
    ["bench", "--help"],
    ["bench", "strategies", "--help"],
    ["state", "ls", state],
    ["state", "show", state],
    ["state", "get", state, "Guest", "\\u00fc \\u2192"],
    ["state", "get", state, "Guest", "\\u00fc"],
    ["state", "verify", state],
    ["log", "ls", state],
    ["explain", program],
):
    print("$", *(ascii(word) for word in order), flush=True)
    try:
        app(order)
    except SystemExit as end:
        print("ended with", end.code, flush=True)
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    @tg.table(key="name")
    class Guest:
        name: str
        came: bool = False

    @tg.transaction
    def enter(who: Guest) -> None:
        who.came = True

    path = tmp_path_factory.mktemp("plain") / "state"
    with tg.Engine([enter], directory=path) as engine:
        engine.execute(enter, who="ü →")
    (path.parent / "program.py").write_text(PROGRAM)
    return path


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii", "TERM": "xterm"},
        {"PYTHONIOENCODING": "latin-1", "TERM": "xterm"},
        {"LANG": "C", "TERM": "xterm"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "xterm"},
        {"TERM": "dumb", "LANG": "C.UTF-8"},
    ],
    ids=lambda environment: ",".join(f"{name}={value}" for name, value in environment.items()),
)
def test_every_command_runs_to_its_end_and_draws_with_ascii(state: Path, environment: dict[str, str]) -> None:
    names = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "TERM", "PYTHONUTF8")
    cleared = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", RUN, str(state), f"{state.parent / 'program.py'}:transfer"]
    done = subprocess.run(command, capture_output=True, check=False, env=cleared | environment)
    shown = done.stdout + done.stderr
    assert done.returncode == 0 and b"Traceback" not in shown, shown.decode("utf-8", "replace")
    assert shown.count(b"ended with 0") == 9 and shown.count(b"ended with 1") == 1
    encoding = environment.get("PYTHONIOENCODING", "ascii" if "PYTHONUTF8" in environment else "utf-8")
    text = shown.decode(encoding)
    data = {"ascii": r"\xfc", "latin-1": "ü", "utf-8": "ü"}[encoding]
    assert f"{data} ->" in text, "the row, with what stands for its characters"
    assert text.replace("ü", "").isascii(), {character for character in text if not character.isascii()}
    assert "ok " in text and "----" in text


@pytest.mark.parametrize(
    ("encoding", "environment", "expected"),
    [
        ("utf-8", {}, False),
        ("UTF-8", {"LANG": "en_US.UTF-8", "TERM": "xterm"}, False),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # Python set LC_CTYPE by itself
        ("utf-8", {"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, False),
        ("utf-8", {"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ("utf-8", {"LANG": "C", "PYTHONIOENCODING": "utf-8"}, False),
        ("utf-8", {"TERM": "dumb"}, True),
        ("cp1252", {"LANG": "en_US.UTF-8"}, True),
        (None, {}, True),
    ],
)
def test_which_terminals_are_taken_for_plain_ones(
    encoding: str | None, environment: dict[str, str], expected: bool
) -> None:
    assert is_plain(encoding, environment) is expected
