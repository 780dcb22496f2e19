"""A small program for simulations of an engine, and what it must compute, as plain Python.

    program     accounts that transactions change, create and delete; a dataflow that takes in orders by twos, so that
                one may wait, and emits bills, which wait until they are taken
    Ledger      the same as dicts and lists: `apply` gives the state after a command, and what the command answers

Commands are plain data, so that a simulation can draw them from a seed and print them. It shares no code with Tidegate
but the outcomes' class; `state_of` gives the state of an engine in the same form.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any, NamedTuple

import pyarrow as pa

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability.logged import LoggedEngine
from tidegate.engine.core import EngineCore
from tidegate.operations.plan import Program

ACCOUNTS = 5


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


def deposit(dst: Account, amount: int) -> int:
    tg.require(amount >= 0, "negative")
    dst.balance += amount
    return dst.balance


def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


def leave(dst: Account) -> None:
    tg.delete(dst)


orders = tg.stream("orders", account=Account, amount=int)
packed = tg.stream("packed", account=Account, amount=int)
bills = tg.stream("bills", account=int, amount=int)


@tg.transaction(on=orders, emits=[packed])
def pack(account: Account, amount: int) -> None:
    tg.require(amount > 0, "nothing ordered")
    account.balance += amount
    tg.emit(packed, account=account.id, amount=amount)


@tg.transaction(on=packed, emits=[bills])
def bill(account: Account, amount: int) -> None:
    account.balance += 1000 * amount
    tg.emit(bills, account=account.id, amount=amount)


SHOP = tg.dataflow([pack, bill], atomic_batch=2)
PLAIN = ("deposit", "transfer", "leave")


@functools.cache
def program(compiled: bool) -> Program:
    """The program; one that is not compiled cannot be replayed, so an engine logs its rows instead."""
    plain = [tg.transaction(compiled=compiled)(function) for function in (deposit, transfer, leave)]
    return build_program([*plain, SHOP])


class Command(NamedTuple):
    """What is asked of an engine: `arguments` are those of a transaction, events, or rows."""

    kind: str
    name: str = ""
    arguments: Any = None
    key: int | str | None = None


class Refused(Exception):
    """What is asked for is not permitted."""


@dataclasses.dataclass
class Ledger:
    """All that an engine with this program must remember."""

    balances: dict[int, int] = dataclasses.field(default_factory=dict)
    keys: dict[int | str, tuple[Any, tg.Outcome]] = dataclasses.field(default_factory=dict)
    waiting: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    bills: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    rounds: int = 0

    def plain(self) -> Any:
        """Everything but what the calls with keys were, for comparison with `state_of`."""
        outcomes = {key: outcome for key, (_, outcome) in self.keys.items()}
        return self.balances, outcomes, self.waiting, self.bills, self.rounds

    def apply(self, command: Command) -> tuple[Ledger, Any]:
        """The state after a command, and its answer; `Refused` if the command is a mistake."""
        after = Ledger(dict(self.balances), dict(self.keys), list(self.waiting), list(self.bills), self.rounds)
        answer = getattr(after, f"_{command.kind}")(command)
        return after, answer

    def _execute(self, command: Command) -> tg.Outcome:
        call = (command.name, command.arguments)
        if command.key in self.keys:
            known, outcome = self.keys[command.key]
            if known != call:
                raise Refused
            return outcome
        outcome = self._transaction(command.name, **command.arguments)
        if command.key is not None:
            self.keys[command.key] = (call, outcome)
        return outcome

    def _transaction(self, name: str, dst: int, amount: int = 0, src: int = 0) -> tg.Outcome:
        balances = self.balances
        if name == "leave":
            balances.pop(dst, None)
            return tg.Outcome(True, None, None)
        if name == "deposit":
            if amount < 0:
                return tg.Outcome(False, "negative", None)
            balances[dst] = balances.get(dst, 0) + amount
            return tg.Outcome(True, None, balances[dst])
        if balances.get(src, 0) < amount:
            return tg.Outcome(False, "insufficient funds", None)
        balances[src] = balances.get(src, 0) - amount
        balances[dst] = balances.get(dst, 0) + amount
        return tg.Outcome(True, None, balances[src])

    def _run(self, command: Command) -> None:
        if command.name:
            raise Refused(command.name)
        for name, account, amount in command.arguments:
            if name == "deposit":
                self._transaction("deposit", account, amount)
                continue
            self.waiting.append((account, amount))
            if len(self.waiting) == 2:
                self._round()

    def _round(self) -> None:
        batch, self.waiting = self.waiting, []
        self.rounds += 1
        if all(amount > 0 for _, amount in batch):
            for account, amount in batch:
                self.balances[account] = self.balances.get(account, 0) + 1001 * amount
                self.bills.append((account, amount, self.rounds))

    def _load(self, command: Command) -> None:
        self.balances |= dict(command.arguments)

    def _take(self, command: Command) -> list[tuple[int, int, int]]:
        taken, self.bills = self.bills, []
        return taken


def draw(choices: random.Random) -> Command:
    """Any command; keys come from a few, so that calls are repeated, now and then with other arguments."""
    kind = choices.choices(["execute", "once", "run", "load", "take"], [8, 4, 4, 1, 2])[0]
    account = choices.randrange(ACCOUNTS)
    if kind == "once":
        number = choices.randrange(4)
        amount = number if choices.random() < 0.9 else 7
        key = number if number % 2 else f"call {number}"
        if number == 3:
            return Command("execute", "transfer", {"src": 3, "dst": 4, "amount": 2 * amount}, key)
        return Command("execute", "deposit", {"dst": number, "amount": amount}, key)
    if kind == "execute":
        name = choices.choices(PLAIN, [5, 4, 1])[0]
        arguments = {"dst": account, "amount": choices.randrange(-1, 9), "src": choices.randrange(ACCOUNTS)}
        wanted = {"deposit": ("dst", "amount"), "transfer": ("src", "dst", "amount"), "leave": ("dst",)}[name]
        return Command("execute", name, {name: arguments[name] for name in wanted})
    if kind == "run":
        drawn = [
            (choices.choice(["deposit", "orders", "orders"]), choices.randrange(ACCOUNTS), choices.randrange(5))
            for _ in range(choices.randrange(6))
        ]
        return Command("run", "committed stands for something else" if choices.random() < 0.2 else "", drawn)
    if kind == "load":
        return Command("load", "", [(account, choices.randrange(100)), (account + 1, 1)])
    return Command("take")


def perform(engine: LoggedEngine, command: Command) -> Any:
    """The answer of an engine."""
    if command.kind == "execute":
        names = [plan.name for plan in engine.program.plan.transactions]
        return engine.execute(names.index(command.name), command.arguments, command.key)
    if command.kind == "run":
        events = _events(command.arguments)
        engine.run(events.append_column("committed", events["amount"]) if command.name else events, None)
        return None
    if command.kind == "load":
        ids, balances = zip(*command.arguments, strict=True)
        engine.load("Account", pa.table({"id": list(ids), "balance": list(balances)}))
        return None
    return [tuple(row.values()) for row in engine.take("bills").to_pylist()]


def _events(rows: list[tuple[str, int, int]]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in ("transaction", "dst", "account", "amount")}
    for name, account, amount in rows:
        columns["transaction"].append(name)
        columns["dst"].append(account if name == "deposit" else None)
        columns["account"].append(account if name == "orders" else None)
        columns["amount"].append(amount)
    kinds = {"transaction": pa.string()}
    arrays = {name: pa.array(column, kinds.get(name, pa.int64())) for name, column in columns.items()}
    return pa.table({**arrays, "src": pa.nulls(len(rows), pa.int64())})


def state_of(engine: LoggedEngine) -> Any:
    """What an engine holds, in the form of `Ledger.plain`."""

    def look(core: EngineCore) -> Any:
        graphs = core.graphs()
        assert graphs is not None
        rows = core.rows("Account")
        waiting = graphs.waiting.rows()
        return (
            dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True)),
            {key: entry.outcome for key, entry in engine._keys._entries.items()},
            [(event["account"], event["amount"]) for event in waiting],
            [tuple(row.values()) for row in core.outputs_waiting()["bills"].to_pylist()],
            int(graphs.rounds[next(n for n, flow in enumerate(graphs.flows.flows) if flow.name)]),
        )

    return engine.read(look)
