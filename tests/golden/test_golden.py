"""Golden scripts: prose, commands, and what must come of them; the same scripts on every strategy.

    # A transfer that would overdraw A aborts. A later deposit must not see its write.
    accounts A=100 B=0
    t1: transfer A B 150
    t2: deposit A 50
    ---
    t1 aborted: insufficient funds
    t2 committed: A=150
    accounts A=150 B=0

Above the line stand the rows loaded first and the events. `t1 @7:` gives an event a place in the order;
a line `batch` ends a batch. Below it stands every outcome in input order, with the rows that its
transaction changed, and the table at the end. The changes of one event are found by running the events
up to it and one fewer, in order, on a fresh engine; the whole script then runs as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg

from ..strategies import CONFIGURATIONS

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
Balances = dict[str, int]


@tg.table(key="name")
class Account:
    name: str
    balance: int = 0


@tg.transaction
def deposit(src: Account, amount: int) -> None:
    src.balance += amount


@tg.transaction
def withdraw(src: Account, amount: int) -> None:
    src.balance -= amount
    tg.require(src.balance >= 0, "insufficient funds")


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> None:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount


@tg.transaction
def open(src: Account, amount: int) -> None:
    tg.require(not src.exists, "exists already")
    src.balance = amount


@tg.transaction
def close(src: Account) -> None:
    tg.require(src.exists, "no such account")
    tg.delete(src)


@tg.transaction
def sweep(dst: Account, others: list[Account]) -> None:
    """Moves everything from the others to dst and closes them."""
    for other in others:
        tg.require(other.exists, "no such account")
        amount = other.balance
        tg.delete(other)
        dst.balance += amount


@tg.transaction
def divide(src: Account, amount: int) -> None:
    src.balance = src.balance // amount


@tg.transaction
def pay(src: Account, others: list[Account], amount: int) -> None:
    """Pays each of the others the same amount; nobody is paid unless all can be."""
    for other in others:
        src.balance -= amount
        other.balance += amount
        tg.require(src.balance >= 0, "insufficient funds")


@tg.transaction
def replace(src: Account, amount: int) -> None:
    tg.delete(src)
    src.balance += amount


PROGRAM = [deposit, withdraw, transfer, open, close, sweep, divide, pay, replace]
ARGUMENTS = {
    "deposit": "src amount", "withdraw": "src amount", "transfer": "src dst amount", "open": "src amount",
    "close": "src", "sweep": "dst others", "divide": "src amount", "pay": "src others amount", "replace": "src amount",
}  # fmt: skip
SCHEMA = pa.schema(
    {
        "label": pa.string(),
        "ts": pa.int64(),
        "transaction": pa.string(),
        "src": pa.string(),
        "dst": pa.string(),
        "others": pa.list_(pa.string()),
        "amount": pa.int64(),
    }
)


@dataclass
class Script:
    """A parsed script."""

    loaded: Balances = field(default_factory=dict)
    batches: list[list[dict[str, Any]]] = field(default_factory=lambda: [[]])
    expected: list[str] = field(default_factory=list)


def parse(text: str) -> Script:
    script = Script()
    commands, _, expected = text.partition("\n---\n")
    script.expected = [line for line in expected.splitlines() if line.strip()]
    for line in commands.splitlines():
        if line.startswith("accounts"):
            script.loaded = {name: int(value) for name, value in (item.split("=") for item in line.split()[1:])}
        elif line == "batch":
            script.batches.append([])
        elif line.strip() and not line.startswith("#"):
            script.batches[-1].append(parse_event(line))
    return script


def parse_event(line: str) -> dict[str, Any]:
    head, _, command = line.partition(":")
    label, _, place = head.partition(" @")
    name, *values = command.split()
    event: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    event.update(label=label, ts=int(place or 0), transaction=name)
    for parameter, value in zip(ARGUMENTS.get(name, "").split(), values, strict=True):
        if value == "null":
            event[parameter] = None
        elif parameter == "others":
            event[parameter] = [item for item in value.split(",") if item]
        else:
            event[parameter] = eval(value, {"MAX": 2**63 - 1}) if parameter == "amount" else value
    return event


class Runner:
    """An engine with the script's rows loaded."""

    def __init__(self, script: Script, strategy: str, workers: int) -> None:
        self.engine = tg.Engine(PROGRAM, strategy=strategy, workers=workers)
        rows = {"name": list(script.loaded), "balance": list(script.loaded.values())}
        self.engine.load(Account, pa.table(rows, pa.schema({"name": pa.string(), "balance": pa.int64()})))

    def run(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self.engine.run(pa.Table.from_pylist(events, SCHEMA), order_by="ts").to_pylist()

    def balances(self) -> Balances:
        scanned = self.engine.scan(Account)
        return dict(zip(scanned["name"].to_pylist(), scanned["balance"].to_pylist(), strict=True))


def in_order(script: Script) -> list[dict[str, Any]]:
    return [event for batch in script.batches for event in sorted(batch, key=lambda event: event["ts"])]


def changes(before: Balances, after: Balances) -> str:
    """What changed, as the scripts write it: `A=150 B deleted`, or `nothing`."""
    parts = [
        f"{name}={after[name]}" if name in after else f"{name} deleted"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return " ".join(parts) or "nothing"


def play(script: Script, strategy: str, workers: int) -> list[str]:
    """The lines that a script must expect."""
    effects: dict[str, str] = {}
    events = in_order(script)
    before = script.loaded
    for count in range(1, len(events) + 1):
        prefix = Runner(script, strategy, workers)
        prefix.run([{**event, "ts": place} for place, event in enumerate(events[:count])])
        after = prefix.balances()
        effects[events[count - 1]["label"]] = changes(before, after)
        before = after
    runner = Runner(script, strategy, workers)
    lines = []
    for batch in script.batches:
        for outcome in runner.run(batch):
            if outcome["committed"]:
                lines.append(f"{outcome['label']} committed: {effects[outcome['label']]}")
            else:
                assert effects[outcome["label"]] == "nothing", "an aborted transaction left something behind"
                lines.append(f"{outcome['label']} aborted: {outcome['reason']}")
    assert runner.balances() == before, "batches and their prefixes disagree"
    return [*lines, " ".join(["accounts", *(f"{name}={value}" for name, value in before.items())])]


@pytest.mark.parametrize(("strategy", "workers"), CONFIGURATIONS)
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, strategy: str, workers: int) -> None:
    script = parse(path.read_text())
    assert play(script, strategy, workers) == script.expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10
