"""For your own tests: compare a program with its plain functions, and crash it before and after commits.

from tidegate.testing import CRASH, CRASH_BEFORE_COMMIT, EventSource, assert_same_as_plain, check_history, run_source

def test_ledger_equals_the_plain_functions():
    assert_same_as_plain([transfer, deposit], [first, second], initial={Account: rows})

def test_ledger_survives_crashes(tmp_path):
    source = EventSource([first, CRASH, second, CRASH_BEFORE_COMMIT, third])
    run = run_source([transfer, deposit], source, state=str(tmp_path))
    assert run.outcomes[1]["committed"].to_pylist() == [True, False]

def test_the_show_ran_in_order():
    assert check_history(show, engine.history) == []

A transaction is a plain function. These helpers supply its surroundings when a test calls it alone:

def test_a_first_vote_is_passed_on():
    with collecting(lambda stream, fields: passed_on.append(fields)):
        validate(absent(Voter, 7), Contestant(3))

def test_closing_moves_what_is_left():
    with rows(Account(1, balance=100)) as found:
        close(Customer(7, account=1))
    assert found.find(Account, 0).balance == 100

    absent          a row that does not exist
    collecting      receives the tuples of `tg.emit`
    rows            the rows that `tg.lookup` finds, and the states that `tg.history` finds
    looking_up      supplies the rows for `tg.lookup` by a function
    remembering     supplies the states for `tg.history` by a function
"""

from tidegate.api.control import looking_up, remembering
from tidegate.api.stream import collecting
from tidegate.testing.assertions import assert_same_as_plain
from tidegate.testing.given import Rows, rows
from tidegate.testing.history import check_history
from tidegate.testing.plain import PlainProgram, absent
from tidegate.testing.source import CRASH, CRASH_BEFORE_COMMIT, Crash, EventSource, SourceRun, run_source

__all__ = [
    "CRASH",
    "CRASH_BEFORE_COMMIT",
    "Crash",
    "EventSource",
    "PlainProgram",
    "Rows",
    "SourceRun",
    "absent",
    "assert_same_as_plain",
    "check_history",
    "collecting",
    "looking_up",
    "remembering",
    "rows",
    "run_source",
]
