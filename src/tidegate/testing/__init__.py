"""For your own tests: run a program against the plain functions, and crash it where it hurts.

from tidegate.testing import CRASH, CRASH_BEFORE_COMMIT, EventSource, assert_same_as_plain, check_history, run_source

def test_ledger_equals_the_plain_functions():
    assert_same_as_plain([transfer, deposit], [first, second], initial={Account: rows})

def test_ledger_survives_crashes(tmp_path):
    source = EventSource([first, CRASH, second, CRASH_BEFORE_COMMIT, third])
    run = run_source([transfer, deposit], source, state=str(tmp_path))
    assert run.outcomes[1]["committed"].to_pylist() == [True, False]

def test_the_show_ran_in_order():
    assert check_history(show, engine.history) == []
"""

from tidegate.testing.assertions import assert_same_as_plain
from tidegate.testing.history import check_history
from tidegate.testing.plain import PlainProgram
from tidegate.testing.source import CRASH, CRASH_BEFORE_COMMIT, Crash, EventSource, SourceRun, run_source

__all__ = [
    "CRASH",
    "CRASH_BEFORE_COMMIT",
    "Crash",
    "EventSource",
    "PlainProgram",
    "SourceRun",
    "assert_same_as_plain",
    "check_history",
    "run_source",
]
