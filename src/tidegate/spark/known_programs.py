"""The programs that this process has called `transact` with, by the state that they ran on.

A state with log="commands" is read by running its events again, with the program that ran them. In a notebook that
program was passed to `transact` a few lines above `read_state`; users need not pass it twice.

A program is found by the fingerprint that the state asks for, so it can be missing, but never wrong.
"""

from __future__ import annotations

from collections import OrderedDict

from tidegate.durability.fingerprint import fingerprint
from tidegate.operations.plan import Program

PROGRAMS_MAX = 32
"""The most programs that are remembered; beyond this the least recently passed one is dropped."""

_programs: OrderedDict[tuple[str, str], Program] = OrderedDict()


def remember(path: str, program: Program) -> None:
    """Remember a program that runs on the state at a path."""
    key = (path, fingerprint(program))
    _programs.pop(key, None)
    _programs[key] = program
    while len(_programs) > PROGRAMS_MAX:
        _programs.popitem(last=False)


def known(path: str, name: str) -> Program | None:
    """The program with fingerprint `name` that ran on the state at a path; None if it is not known."""
    return _programs.get((path, name))
