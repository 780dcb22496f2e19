"""How close the engine comes to a program that was written by hand for one ledger.

The job: ledger events in an Arrow table in, the same table with outcome columns out, the accounts
under arbitrary 64-bit numbers. All variants do it on one core, from the same events:

    hand-written Numba     the reference: what the engine loses against it is the price of being general
    tidegate engine        serial strategy, events in the order of the table
    tidegate, order_by     the same, with the events put in order of their `ts` first
    pre-resolved rows      the bound: rows known before the clock starts, plain arrays for outcomes

Outcomes and final balances of every run are compared with the plain Python functions, which ran once
before the first round.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.benchmarks.hand_written import HandWrittenLedger
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.state_folders import require_rows
from tidegate.workloads import ledger

HAND_WRITTEN = "hand-written Numba"
ENGINE = "tidegate engine"
BAR = 0.5


def experiment(*, events: int, accounts: int, seed: int) -> Experiment:
    """The declaration: four variants of one job over the same events."""
    settings = ledger.LedgerSettings(accounts=accounts, seed=seed)
    generator = ledger.EventGenerator(settings)
    opening, table = generator.opening(), generator.batch(events)
    truth = ledger.Truth(opening)
    wanted = truth.run(table)
    state = truth.state()

    def check(outcomes: pa.Table, balances: pa.Table) -> None:
        require_rows(outcomes, wanted, "outcomes")
        require_rows(balances, state, "accounts")

    def load_hand_written() -> HandWrittenLedger:
        return HandWrittenLedger.load(opening, rows_max=accounts + accounts // 10 + 16)

    def resolve() -> tuple[HandWrittenLedger, tuple[Any, ...]]:
        loaded = load_hand_written()
        return loaded, loaded.resolve(table)

    def check_resolved(prepared: tuple[HandWrittenLedger, Any], result: tuple[Any, Any]) -> None:
        if not np.array_equal(result[0], wanted["committed"].to_numpy()):
            raise AssertionError("pre-resolved rows: outcomes differ from the plain functions")
        require_rows(prepared[0].state(), state, "accounts")

    def engine_variant(name: str, order_by: str | None) -> Variant:
        return Variant(
            name,
            prepare=lambda: ledger.engine(opening, strategy="serial"),
            run=lambda engine: engine.run(table, order_by=order_by),
            verify=lambda engine, outcomes: check(outcomes, engine.scan(ledger.Account)),
        )

    return Experiment(
        name="limit",
        title=f"The limit: {events:,} ledger events over {accounts:,} accounts, Arrow to Arrow, one core",
        items=events,
        item="event",
        variants=[
            Variant(
                HAND_WRITTEN,
                prepare=load_hand_written,
                run=lambda loaded: loaded.run(table),
                verify=lambda loaded, outcomes: check(outcomes, loaded.state()),
            ),
            engine_variant(ENGINE, None),
            engine_variant("tidegate, order_by", "ts"),
            Variant(
                "pre-resolved rows",
                prepare=resolve,
                run=lambda prepared: prepared[0].run_resolved(prepared[1]),
                verify=check_resolved,
            ),
        ],
        bars={ENGINE: BAR},
        settings=asdict(settings),
        seed=seed,
    )
