"""Streaming ledger (SL): money and assets move between owners, and no account is ever overdrawn.

The real job: an exchange or a bank keeps, for each owner, an account with money and an account with
assets. Deposits top up a pair of them, transfers move money and assets from one pair to another and must
fail as a whole when either source has too little.

    table     key   fields
    Account   id    balance, seal
    Asset     id    quantity, seal

    deposit     2 rows written                                       a = "overdrawn"
    transfer    4 rows written, conditions on both sources           a = "insufficient funds" / "assets"

Each written row has a seal: the cost C is spent on it (`cost.burn`), once for each row, before any condition is
checked. Operations of a transaction (l) are 2 or 4; rows read by an operation (r) are 1, or 2 behind a condition.

Promise: what there is of money and assets is what there was, plus what committed deposits brought.

`TSTREAM` and `MORPHSTREAM` are the settings of the two papers' evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.workloads.cost import burn
from tidegate.workloads.workload import PLENTY, TOO_MUCH, Run, Settings, Tables, Workload, names_column

AMOUNT_MAX = 100


@tg.table(key="id")
class Account:
    """What an owner has in money."""

    id: int
    balance: int = 0  # cents
    seal: int = 0


@tg.table(key="id")
class Asset:
    """What an owner has in assets."""

    id: int
    quantity: int = 0
    seal: int = 0


@tg.transaction
def deposit(account: Account, asset: Asset, amount: int, units: int, rounds: int) -> int:
    """Top up an account and an asset; a correction may be negative, a balance may not."""
    account_seal = burn(account.seal + amount, rounds)
    asset_seal = burn(asset.seal + units, rounds)
    tg.require(account.balance + amount >= 0, "overdrawn")
    tg.require(asset.quantity + units >= 0, "overdrawn")
    account.balance += amount
    account.seal = account_seal
    asset.quantity += units
    asset.seal = asset_seal
    return account.balance


@tg.transaction
def transfer(
    account: Account, asset: Asset, to_account: Account, to_asset: Asset, amount: int, units: int, rounds: int
) -> int:
    """Move money and assets from one owner to another, both or none."""
    account_seal = burn(account.seal + amount, rounds)
    asset_seal = burn(asset.seal + units, rounds)
    to_account_seal = burn(to_account.seal + amount, rounds)
    to_asset_seal = burn(to_asset.seal + units, rounds)
    tg.require(account.balance >= amount, "insufficient funds")
    tg.require(asset.quantity >= units, "insufficient assets")
    account.balance -= amount
    account.seal = account_seal
    asset.quantity -= units
    asset.seal = asset_seal
    to_account.balance += amount
    to_account.seal = to_account_seal
    to_asset.quantity += units
    to_asset.seal = to_asset_seal
    return account.balance


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(Settings):
    """The knobs of the streaming ledger; `keys` are the rows of each of the two tables."""

    transfer_ratio: float = 0.5
    keys: int = 122_880

    def least(self) -> dict[str, int]:
        """A transfer needs two owners."""
        return {"batch_events": 1, "keys": 2}


TSTREAM = LedgerSettings(theta=0.6, abort_ratio=0.0, cost_us=0.0, batch_events=500, keys=10_000)
"""As in TStream's evaluation."""

MORPHSTREAM = LedgerSettings(theta=0.2, abort_ratio=0.01, cost_us=10.0, batch_events=10_240, keys=122_880)
"""As in MorphStream's evaluation."""


class StreamingLedger(Workload):
    """Deposits and transfers over two tables."""

    name: ClassVar[str] = "streaming ledger"
    tables: ClassVar[tuple[type, ...]] = (Account, Asset)
    program = (deposit, transfer)
    settings: LedgerSettings

    def opening(self) -> Tables:
        """Owners 0, 1, 2, ... with plenty of both."""
        ids, plenty = np.arange(self.settings.keys), np.full(self.settings.keys, PLENTY)
        return {Account: pa.table({"id": ids, "balance": plenty}), Asset: pa.table({"id": ids, "quantity": plenty})}

    def batch(self, number: int) -> pa.Table:
        """A batch; `to_account` and `to_asset` are null in deposits."""
        settings, random = self.settings, self.random(number)
        count = settings.batch_events
        transfers = random.random(count) < settings.transfer_ratio
        aborts = random.random(count) < settings.abort_ratio
        of_money = random.random(count) < 0.5  # whether money is what there is too little of
        amount, units = (random.integers(1, AMOUNT_MAX + 1, count) for _ in range(2))
        too_much = np.where(transfers, TOO_MUCH, -TOO_MUCH)
        accounts, assets = (self.zipf.draw_distinct(random, count, 2) for _ in range(2))
        return pa.table(
            {
                "transaction": names_column(transfers.astype(np.int64), ["deposit", "transfer"]),
                "account": accounts[:, 0],
                "asset": assets[:, 0],
                "to_account": pa.array(accounts[:, 1], mask=~transfers),
                "to_asset": pa.array(assets[:, 1], mask=~transfers),
                "amount": np.where(aborts & of_money, too_much, amount),
                "units": np.where(aborts & ~of_money, too_much, units),
                "rounds": np.full(count, self.rounds),
            }
        )

    def broken_promises(self, opening: Tables, events: pa.Table, run: Run) -> list[str]:
        """Money and assets are conserved."""
        committed = pa.concat_tables(run.outcomes)["committed"]
        deposits = events.filter(pc.and_(committed, pc.equal(events["transaction"], "deposit")))
        checks = (("money", Account, "balance", "amount"), ("assets", Asset, "quantity", "units"))
        return [
            f"{what} not conserved: {difference:+d}"
            for what, table, field, given in checks
            for difference in [_sum(run.rows[table], field) - _sum(opening[table], field) - _sum(deposits, given)]
            if difference
        ]


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table[column]).as_py() or 0)
