"""Golden scripts of dataflow graphs: prose, a graph, commands, and what must come of them.

    # A payment is taken from one account by `spend`, and given to the other by `receive`.
    graph spend receive
    accounts A=100 B=0
    t1: payments A B 30
    ---
    round 1: spend receive
    t1 committed: 70
    accounts A=70 B=30

Above the line stand the graph, as some of the transactions below, the rows loaded first and the events: of the border
stream `payments src dst amount day`, where the day is 0 unless it is given, or of the plain transaction `deposit src
amount`. `nested spend receive` makes a group of them, `atomic batch 2` and `atomic batch day` say which events go
through the graph as one round, and a line `run` ends a call of `run`. What follows from the names is below: `spend` is
on payments, `receive` on what `spend` emits.

Below the line stands, for each call, what ran (`x2`: on two tuples; `aborted`: it left nothing), the outcome of every
event that was decided, with its result, and who waits; at the end the rows, the visible rows of windows and the tuples
that wait in the output stream, each with the number of its round. Every script runs as plain Python, in memory, with a
restart between its calls, and event by event, since it must not matter where calls are cut; some run in machine code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.embedding import Engine  # at once: what is first imported where nothing is compiled, stays so
from tidegate.foundation.jit import uncompiled

# Graphs here are made of some of the steps below: a trigger that is left out is meant to be.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not list it:tidegate.TidegateWarning")

SCRIPTS = sorted((Path(__file__).parent / "graphs").glob("*.txt"))
IN_MACHINE_CODE = [path for path in SCRIPTS if path.stem in ("chain", "nested_group_aborts", "trigger_on_a_window")]
"""Each takes seconds to compile: together they have rounds, a nested group, a window and a trigger."""


@tg.table(key="name")
class Account:
    name: str
    balance: int = 0


payments = tg.stream("payments", src=str, dst=str, amount=int, day=int)
spent = tg.stream("spent", src=str, dst=str, amount=int, day=int)
receipts = tg.stream("receipts", dst=str, amount=int)
recent = tg.window(spent, rows=3, slide=2)
week = tg.window(spent, time="day", length=10, slide=5)


@tg.transaction(on=payments, emits=[spent])
def spend(src: Account, dst: str, amount: int, day: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    tg.emit(spent, src=src.name, dst=dst, amount=amount, day=day)
    return src.balance


@tg.transaction(on=payments)
def tithe(dst: Account, amount: int) -> int:
    """A second transaction on the border: it gives a tenth on top."""
    tg.require(amount >= 10, "too little for a tenth")
    dst.balance += amount // 10
    return dst.balance


@tg.transaction(on=spent, emits=[receipts])
def receive(dst: Account, amount: int) -> None:
    tg.require(dst.exists, "no such account")
    dst.balance += amount
    tg.emit(receipts, dst=dst.name, amount=amount)


@tg.trigger(on=spent)
def limit(amount: int) -> None:
    tg.require(amount <= 100, "too much at once")


@tg.transaction(on=spent)
def reward(src: Account, last: recent) -> None:  # type: ignore[valid-type]
    """Whenever the window slides, whoever made it slide has 1000 for each visible row, and their sum."""
    if last.slid:
        src.balance += 1000 * len(last) + last.sum("amount")


@tg.trigger(on=recent)
def cheer(src: Account) -> None:
    src.balance += 1


@tg.transaction(on=spent)
def report(src: Account, seen: week) -> None:  # type: ignore[valid-type]
    if seen.slid:
        src.balance += 1000 * len(seen)


@tg.transaction
def deposit(src: Account, amount: int) -> int:
    src.balance += amount
    return src.balance


MEMBERS = {member.__name__: member for member in (spend, tithe, receive, limit, reward, cheer, report)}
WINDOWS = {"recent": (reward, recent), "week": (report, week)}
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("label", "transaction", "src", "dst")]
    + [(name, pa.int64()) for name in ("amount", "day")]
)
Event = dict[str, Any]


@dataclass
class Script:
    """A parsed script."""

    members: list[str] = field(default_factory=list)
    nested: list[list[str]] = field(default_factory=list)
    atomic_batch: int | str = 1
    loaded: dict[str, int] = field(default_factory=dict)
    calls: list[list[Event]] = field(default_factory=lambda: [[]])
    expected: list[str] = field(default_factory=list)

    def program(self) -> list[Any]:
        nested = [[MEMBERS[name] for name in group] for group in self.nested]
        members = [MEMBERS[name] for name in self.members]
        return [tg.dataflow(members, nested=nested, atomic_batch=self.atomic_batch), deposit]


def parse(text: str) -> Script:
    script = Script()
    commands, _, expected = text.partition("\n---\n")
    script.expected = [line for line in expected.splitlines() if line.strip()]
    for line in commands.splitlines():
        first, *rest = line.split() or ["#"]
        if first == "graph":
            script.members = rest
        elif first == "nested":
            script.nested.append(rest)
        elif first == "atomic":
            script.atomic_batch = int(rest[1]) if rest[1].isdigit() else rest[1]
        elif first == "accounts":
            script.loaded = {name: int(value) for name, value in (item.split("=") for item in rest)}
        elif first == "run":
            script.calls.append([])
        elif not first.startswith("#"):
            script.calls[-1].append(parse_event(line))
    return script


def parse_event(line: str) -> Event:
    label, _, command = line.partition(":")
    name, *values = command.split()
    event: Event = {**dict.fromkeys(SCHEMA.names), "label": label, "transaction": name, "day": 0}
    for parameter, value in zip({"deposit": ["src", "amount"]}.get(name, SCHEMA.names[2:]), values, strict=False):
        event[parameter] = None if value == "null" else int(value) if value.lstrip("-").isdigit() else value
    return event


class Play:
    """An engine that plays a script; with a folder, another one for each call, on the state that the last one left."""

    def __init__(self, script: Script, folder: Path | None) -> None:
        self.script, self.folder = script, folder
        self.lines: list[str] = []
        self.engine = self._open()
        rows = {"name": list(script.loaded), "balance": list(script.loaded.values())}
        self.engine.load(Account, pa.table(rows, pa.schema({"name": pa.string(), "balance": pa.int64()})))

    def _open(self) -> Engine:
        directory = None if self.folder is None else str(self.folder)
        return Engine(self.script.program(), record=True, directory=directory)

    def call(self, events: list[Event]) -> None:
        """One call of `run`, and its lines."""
        seen = len(self.engine.history)
        outcomes = self.engine.run(pa.Table.from_pylist(events, SCHEMA)).to_pylist()
        self.lines += told(self.engine.history[seen:])
        for row in outcomes:
            became = f"committed: {row['result']}" if row["committed"] else f"aborted: {row['reason']}"
            self.lines.append(f"{row['label']} {became}")
        decided = {row["label"] for row in outcomes}
        self.lines += [f"{event['label']} waits" for event in events if event["label"] not in decided]
        if self.folder is not None:
            self.engine.close()
            self.engine = self._open()

    def end(self) -> list[str]:
        """What is left: rows, windows, outputs."""
        rows = [f"{row['name']}={row['balance']}" for row in self.engine.scan(Account).to_pylist()]
        lines = [" ".join(["accounts", *rows])]
        for name, (owner, window) in WINDOWS.items():
            if owner.__name__ in self.script.members:
                lines.append(" ".join(["window", name, *map(str, self.engine.scan(window)["amount"].to_pylist())]))
        if "receive" in self.script.members:
            taken = self.engine.take(receipts).to_pylist()
            lines.append(" ".join(["receipts", *(f"{row['dst']}+{row['amount']}@{row['batch']}" for row in taken)]))
        self.engine.close()
        return lines


def told(steps: list[Any]) -> list[str]:
    """The history of a call: one line for each round, and for each plain transaction."""
    lines: list[str] = []
    rounds: list[int] = []
    for step in steps:
        name = f"{step.transaction}{f' x{step.tuples}' if step.tuples > 1 else ''}"
        name += "" if step.committed else " aborted"
        if step.batch == 0:
            lines.append(f"between rounds: {name}")
        elif rounds and rounds[-1] == step.batch:
            lines[-1] += f" {name}"
        else:
            lines.append(f"round {step.batch}: {name}")
        rounds.append(step.batch)
    return lines


def check_script(path: Path, state: Path | None) -> None:
    script = parse(path.read_text())
    play = Play(script, state)
    for events in script.calls:
        play.call(events)
    assert [*play.lines, *play.end()] == script.expected


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "restarted"])
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, kept: bool, tmp_path: Path) -> None:
    with uncompiled():
        check_script(path, tmp_path if kept else None)


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "restarted"])
@pytest.mark.parametrize("path", IN_MACHINE_CODE, ids=lambda path: path.stem)
def test_script_in_machine_code(path: Path, kept: bool, tmp_path: Path) -> None:
    check_script(path, tmp_path if kept else None)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_where_calls_are_cut_changes_no_outcome_and_no_row(path: Path) -> None:
    script = parse(path.read_text())
    with uncompiled():
        play = Play(script, None)
        for event in (event for events in script.calls for event in events):
            play.call([event])
    found = [line for line in [*play.lines, *play.end()] if not line.endswith(" waits")]
    assert sorted(found) == sorted(line for line in script.expected if not line.endswith(" waits"))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
