"""What cannot be a program is refused where it is declared, with the file, the line and its text.

Each case is a small source file in which the offending line ends with `# here`. The message must name
that file and line, repeat the line, and contain the words that tell the user what is wrong.
"""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import pytest

import tidegate as tg

HEADER = """\
import math
from dataclasses import dataclass
from typing import NamedTuple

import tidegate as tg


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0
    rate: float = 0.0
    open: bool = False
    owner: str = ""


@tg.table(key="name")
class Person:
    name: str
    age: int = 0


LIMITS = {"a": 1}


"""

BODIES: dict[str, tuple[str, list[str]]] = {
    # name of the case: statements of `def wrong(src: Account, dst: Account, rows: list[Account], amount: int,
    # share: float, label: str)`, and words of the message
    "an attribute that the table lacks": ("amount = src.balanse  # here", ["Account", "balanse", "id, balance, rate"]),
    "a field that the table lacks is assigned": ("src.balanse = 3  # here", ["Account", "balanse", "balance"]),
    "a field that the table lacks is added to": ("src.balanse += 3  # here", ["Account", "balanse"]),
    "a row where a number is needed": ("src.balance += dst  # here", ["row", "Account"]),
    "a row where a condition is needed": ("if src:  # here\n    pass", ["row of Account", "exists"]),
    "a row in a comparison": ("if src == dst:  # here\n    pass", ["row", "is"]),
    "a row in an ordered comparison": ("if src < dst:  # here\n    pass", ["row"]),
    "a row assigned to a field": ("src.balance = dst  # here", ["balance", "int", "row"]),
    "a row as a result": ("return src  # here", ["value", "row"]),
    "a list as a result": ("return rows  # here", ["value", "list"]),
    "a list where a number is needed": ("src.balance += rows  # here", ["list"]),
    "a field of a list": ("src.balance = rows.balance  # here", ["row", "list"]),
    "a field of a number": ("src.balance = amount.balance  # here", ["row", "int"]),
    "a float into an int field": ("src.balance = share  # here", ["Account.balance", "int", "float"]),
    "a quotient into an int field": ("src.balance = amount / 2  # here", ["Account.balance", "int", "float"]),
    "a float added to an int field": ("src.balance += share  # here", ["Account.balance", "int", "float"]),
    "a string into an int field": ("src.balance = label  # here", ["Account.balance", "int", "str"]),
    "an int into a bool field": ("src.open = amount  # here", ["Account.open", "bool", "int"]),
    "an int into a string field": ("src.owner = amount  # here", ["Account.owner", "str", "int"]),
    "a key assigned": ("src.id = 3  # here", ["Account.id", "key"]),
    "a key added to": ("src.id += 3  # here", ["Account.id", "key"]),
    "existence assigned": ("src.exists = False  # here", ["exists"]),
    "existence of a number": ("tg.require(tg.exists(amount), 'no')  # here", ["row", "int"]),
    "existence of a list": ("tg.require(tg.exists(rows), 'no')  # here", ["row", "list", "[i]"]),
    "existence of a table": ("tg.require(tg.exists(Account), 'no')  # here", ["exists() takes a row", "'Account'"]),
    "existence of two rows": ("tg.require(tg.exists(src, dst), 'no')  # here", ["exists() takes one row", "2"]),
    "a reason that is an int": ("tg.require(src.open, amount)  # here", ["reason", "string", "int"]),
    "a row in a reason": ('tg.abort(f"no {src}")  # here', ["value", "row of Account"]),
    "a reason that is a number": ("tg.abort(3)  # here", ["reason"]),
    "a requirement without a reason": ("tg.require(src.open)  # here", ["condition", "reason"]),
    "delete of a value": ("tg.delete(amount)  # here", ["row", "int"]),
    "delete of a list": ("tg.delete(rows)  # here", ["row", "list"]),
    "try": ("try:  # here\n    src.balance += 1\nfinally:\n    pass", ["Try", "compiled=False"]),
    "with": ("with open('x'):  # here\n    pass", ["With", "compiled=False"]),
    "import": ("import os  # here", ["Import", "compiled=False"]),
    "a function inside": ("def inner():  # here\n    pass", ["FunctionDef", "compiled=False"]),
    "a class inside": ("class Inner:  # here\n    pass", ["ClassDef", "compiled=False"]),
    "global": ("global amount_seen  # here", ["Global", "compiled=False"]),
    "del": ("x = 1\ndel x  # here", ["Delete", "compiled=False"]),
    "match": ("match amount:  # here\n    case 1:\n        pass", ["Match", "compiled=False"]),
    "for else": ("for row in rows:\n    pass\nelse:\n    src.balance = 1  # here", ["else"]),
    "while else": ("while amount < 0:\n    pass\nelse:\n    src.balance = 1  # here", ["else"]),
    "a lambda": ("f = lambda: 3  # here", ["Lambda"]),
    "a list display": ("x = [1, 2]  # here", ["[1, 2]"]),
    "a dict display": ("x = {}  # here", ["{}"]),
    "a row in an f-string": ('src.owner = f"{src}"  # here', ["value", "row of Account", "field"]),
    "an f-string into an int field": ('src.balance = f"{amount}"  # here', ["Account.balance", "int", "str"]),
    "a string and a number added": ("src.owner = label + amount  # here", ["Add", "str and int", "str(...)"]),
    "a string and a number in order": ("src.open = label < amount  # here", ["<", "str", "int"]),
    "a number in a string": ("src.open = amount in label  # here", ["in", "int in str"]),
    "a loop over a string": ("for x in label:  # here\n    pass", ["list", "str"]),
    "a string with half of a pair": ("src.owner = '\\ud800'  # here", ["surrogate"]),
    "a string compared with a number": ("src.open = label == amount  # here", ["str", "int"]),
    "an unknown method of a string": ("src.owner = label.split()  # here", ["split", "known are", "upper"]),
    "a method of a number": ("src.balance = amount.bit_length()  # here", ["amount.bit_length", "compiled=False"]),
    "a slice": ("for row in rows[1:]:  # here\n    pass", ["rows[1:]"]),
    "an index into a number": ("src.balance = amount[0]  # here", ["list"]),
    "an assignment to an element": ("rows[0] = src  # here", ["rows[0]"]),
    "a float as an index": ("src.balance = rows[share].balance  # here", ["int", "float"]),
    "a loop over a number": ("for x in amount:  # here\n    pass", ["list", "int"]),
    "a loop over a row": ("for x in src:  # here\n    pass", ["list", "row"]),
    "a loop with too many targets": ("for a, b in rows:  # here\n    pass", ["a, b"]),
    "a range of floats": ("for x in range(share):  # here\n    pass", ["int", "float"]),
    "an unknown name": ("src.balance = nowhere  # here", ["nowhere", "not defined"]),
    "an unknown function": ("src.balance = nowhere(3)  # here", ["nowhere"]),
    "a function that cannot be compiled": ("src.balance = divmod(amount, 2)  # here", ["divmod", "compiled=False"]),
    "print": ("print(amount)  # here", ["print", "compiled=False"]),
    "a module's dict": ("src.balance = LIMITS['a']  # here", ["LIMITS"]),
    "a value that is called": ("src.balance = amount(3)  # here", ["amount", "not a function"]),
    "a variable with two types": ("x = 1\nx = label  # here", ["x", "int", "str"]),
    "a row variable of two tables": ("r = src\nfor r in people:  # here\n    pass", ["r", "Account", "Person"]),
    "a conditional of two types": ("x = amount if src.open else label  # here", ["int", "str"]),
    "and of two types": ("x = amount and label  # here", ["int", "str"]),
    "invert of a float": ("src.rate = ~share  # here", ["~", "float"]),
    "a shift of a float": ("src.rate = share << 2  # here", ["float"]),
    "is between values": ("src.open = amount is 3  # here", ["is", "rows"]),
    "in a list of rows": ("src.open = src in rows  # here", ["in"]),
    "too many values": ("a, b = 1, 2, 3  # here", ["2", "3"]),
    "a result of another type": ("return label  # here", ["str", "int"]),
    "a named argument of a built-in": ("src.balance = int(x=share)  # here", ["int"]),
    "a length of a number": ("src.balance = len(amount)  # here", ["len", "int"]),
    "a variable read before it is assigned": ("src.balance = later  # here\nlater = 1", ["later"]),
}  # fmt: skip

FUNCTIONS: dict[str, tuple[str, list[str]]] = {
    "no row": ("@tg.transaction\ndef wrong(amount: int) -> int:  # here\n    return amount\n", ["row", "table"]),
    "an unknown annotation": (
        "@tg.transaction\ndef wrong(src: Account, amount: complex) -> None:  # here\n    pass\n",
        ["amount", "complex", "int, float, bool, str"],
    ),
    "an annotation that is not defined": (
        "@tg.transaction\ndef wrong(src: 'Nowhere') -> None:  # here\n    pass\n",
        ["Nowhere", "not defined"],
    ),
    "a parameter without annotation": (
        "@tg.transaction\ndef wrong(src: Account, amount) -> None:  # here\n    pass\n",
        ["amount", "annotation"],
    ),
    "a list of lists": (
        "@tg.transaction\ndef wrong(src: Account, x: list[list[int]]) -> None:  # here\n    pass\n",
        ["x", "list[list[int]]"],
    ),
    "a list of nothing": (
        "@tg.transaction\ndef wrong(src: Account, x: list) -> None:  # here\n    pass\n",
        ["x", "list"],
    ),
    "any number of parameters": (
        "@tg.transaction\ndef wrong(src: Account, *rest: int) -> None:  # here\n    pass\n",
        ["rest"],
    ),
    "a default": (
        "@tg.transaction\ndef wrong(src: Account, amount: int = 3) -> None:  # here\n    pass\n",
        ["amount", "default"],
    ),
    "a result that a column cannot hold": (
        "@tg.transaction\ndef wrong(src: Account) -> dict:  # here\n    return {}\n",
        ["dict", "NamedTuple"],
    ),
    "an interpreted result that a column cannot hold": (
        "@tg.transaction(compiled=False)\ndef wrong(src: Account) -> dict:  # here\n    return {}\n",
        ["dict", "NamedTuple"],
    ),
    "a table as result": (
        "@tg.transaction\ndef wrong(src: Account) -> Account:  # here\n    return src\n",
        ["Account"],
    ),
    "a value where nothing is declared": (
        "@tg.transaction\ndef wrong(src: Account) -> None:\n    return src.balance  # here\n",
        ["nothing", "value"],
    ),
    "a helper that cannot be compiled": (
        "def helper(x):\n    return x.split()  # here\n\n\n@tg.transaction\n"
        "def wrong(src: Account, label: str) -> None:\n    src.owner = helper(label)\n",
        ["helper", "split"],
    ),
    "a helper that calls itself": (
        "def helper(x):\n    return helper(x - 1) if x else 0  # here\n\n\n@tg.transaction\n"
        "def wrong(src: Account) -> None:\n    src.balance = helper(3)\n",
        ["helper", "itself"],
    ),
    "a helper with too few arguments": (
        "def helper(x, y):\n    return x\n\n\n@tg.transaction\ndef wrong(src: Account) -> None:\n"
        "    src.balance = helper(3)  # here\n",
        ["helper", "y"],
    ),
    "a transaction that calls another": (
        "@tg.transaction\ndef other(src: Account) -> int:\n    return src.balance\n\n\n@tg.transaction\n"
        "def wrong(src: Account) -> int:\n    return other(src)  # here\n",
        ["other", "transaction"],
    ),
    "a struct with a missing field": (
        "class Pair(NamedTuple):\n    a: int\n    b: int\n\n\n@tg.transaction\ndef wrong(src: Account) -> Pair:\n"
        "    return Pair(1)  # here\n",
        ["Pair", "b"],
    ),
    "a coroutine": ("@tg.transaction\nasync def wrong(src: Account) -> None:  # here\n    pass\n", ["def"]),
    "a generator": ("@tg.transaction\ndef wrong(src: Account) -> None:\n    yield 3  # here\n", ["Yield"]),
}

_numbers = itertools.count()


def declare(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"refused_{next(_numbers)}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_refused(path: Path, source: str, words: list[str]) -> None:
    lines = source.splitlines()
    number = next(index for index, line in enumerate(lines, 1) if line.endswith("# here"))
    with pytest.raises(tg.DefinitionError) as error:
        declare(path, source)
    message = str(error.value)
    assert f"{path}:{number}:" in message, message
    assert lines[number - 1].strip() in message, message
    said = message.replace(lines[number - 1].strip(), "")
    for word in words:
        assert word in said, f"{word!r} is not said in: {message}"
    assert "wrong" in said or "helper" in said, f"the transaction is not named in: {message}"


def transaction_with(body: str) -> str:
    people = ", people: list[Person]" if "people" in body else ""
    signature = f"src: Account, dst: Account, rows: list[Account], amount: int, share: float, label: str{people}"
    indented = "\n".join("    " + line for line in body.splitlines())
    arrow = " -> int" if "return" in body else ""
    return f"{HEADER}@tg.transaction\ndef wrong({signature}){arrow}:\n{indented}\n"


@pytest.mark.filterwarnings('ignore:"is" with:SyntaxWarning')
@pytest.mark.parametrize("case", BODIES)
def test_a_body_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    body, words = BODIES[case]
    assert_refused(tmp_path / "program.py", transaction_with(body), words)


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    text, words = FUNCTIONS[case]
    assert_refused(tmp_path / "program.py", HEADER + text, words)


@pytest.mark.parametrize("case", [name for name, (body, _) in BODIES.items() if "compiled=False" in BODIES[name][1]])
def test_what_cannot_be_compiled_can_be_interpreted(case: str, tmp_path: Path) -> None:
    source = transaction_with(BODIES[case][0]).replace("@tg.transaction\n", "@tg.transaction(compiled=False)\n")
    declare(tmp_path / "program.py", source)


def test_two_tables_with_one_name_in_one_transaction(tmp_path: Path) -> None:
    source = HEADER + (
        "First = Account\n\n\n@tg.table(key='id')\nclass Account:\n    id: int\n    total: int\n\n\n"
        "@tg.transaction\ndef wrong(a: First, b: Account) -> None:  # here\n    a.balance = b.total\n"
    )
    assert_refused(tmp_path / "program.py", source, ["Account", "rename"])


def test_two_tables_with_one_name_in_one_program(tmp_path: Path) -> None:
    source = HEADER + (
        "@tg.transaction\ndef first(a: Account) -> None:\n    a.balance = 1\n\n\n"
        "@tg.table(key='id')\nclass Account:\n    id: int\n    total: int\n\n\n"
        "@tg.transaction\ndef second(a: Account) -> None:\n    a.total = 1\n"
    )
    module = declare(tmp_path / "program.py", source)
    with pytest.raises(tg.DefinitionError, match="Account"):
        tg.Engine([module.first, module.second])


def test_two_transactions_with_one_name(tmp_path: Path) -> None:
    source = HEADER + (
        "@tg.transaction\ndef same(a: Account) -> None:\n    a.balance = 1\n\n\nfirst = same\n\n\n"
        "@tg.transaction\ndef same(a: Account) -> None:\n    a.balance = 2\n"
    )
    module = declare(tmp_path / "program.py", source)
    with pytest.raises(tg.DefinitionError, match="same"):
        tg.Engine([module.first, module.same])


@pytest.mark.parametrize("program", [[], [3], [print], "transfer", [lambda: 1]])
def test_a_program_is_a_list_of_transactions(program: object) -> None:
    with pytest.raises(tg.DefinitionError, match="transaction"):
        tg.Engine(program)


def test_a_column_that_two_transactions_use_differently_is_refused(tmp_path: Path) -> None:
    """`amount` cannot be an int and a list at once: no event table could carry both."""
    source = HEADER + (
        "@tg.transaction\ndef first(a: Account, x: int) -> None:\n    a.balance = x\n\n\n"
        "@tg.transaction\ndef second(a: Account, x: list[int]) -> None:\n    a.balance = len(x)\n"
    )
    module = declare(tmp_path / "program.py", source)
    with pytest.raises(tg.DefinitionError, match=r"'x'"):
        tg.Engine([module.first, module.second])


WRAPPER = """
import functools


def twice(function):
    @functools.wraps(function)
    def run(a):
        return function(a) + function(a)

    return run


"""


def test_a_helper_that_a_decorator_wraps_is_not_taken_for_the_function_inside(tmp_path: Path) -> None:
    helper = "@twice\ndef more(n):\n    return n + 1\n\n\n"
    body = "@tg.transaction\ndef pay(a: Account) -> int:\n    return more(a.balance)\n"
    with pytest.raises(tg.DefinitionError, match=r"more\(\) is wrapped by a decorator"):
        declare(tmp_path / "helper.py", HEADER + WRAPPER + helper + body)
    wrapped = "@tg.transaction\n@twice\ndef pay(a: Account) -> int:\n    return a.balance\n"
    with pytest.raises(tg.DefinitionError, match="it is wrapped by a decorator"):
        declare(tmp_path / "whole.py", HEADER + WRAPPER + wrapped)
