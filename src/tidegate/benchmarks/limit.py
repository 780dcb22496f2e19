"""How close the engine comes to a program that was written by hand for one ledger.

The job: ledger events in an Arrow table in, the same table with outcome columns out, the accounts
under arbitrary 64-bit numbers. All variants do it on one core, from the same events:

    hand-written Numba     the reference: what the engine's generality may cost is measured from here
    tidegate engine        serial strategy, events in the order in which they stand
    tidegate, order_by     the same, with the events put in order of their `ts` first
    pre-resolved rows      the bound: rows known before the clock starts, plain arrays for outcomes

Outcomes and final balances of every run are compared with the plain Python functions, which ran once
before the first round.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.hand_written import HandWrittenLedger
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.workloads import ledger

HAND_WRITTEN = "hand-written Numba"
ENGINE = "tidegate engine"
BAR = 0.5


def experiment(*, events: int, accounts: int, seed: int, rounds: int, bar: float | None = BAR) -> Experiment:
    """The declaration: four variants of one job over the same events."""
    settings = ledger.LedgerSettings(accounts=accounts, seed=seed)
    generator = ledger.EventGenerator(settings)
    opening, table = generator.opening(), generator.batch(events)
    truth = ledger.Truth(opening)
    wanted = truth.run(table)
    state = truth.state()

    def check_outcomes(outcomes: pa.Table, balances: pa.Table) -> None:
        _same("outcomes", wanted, outcomes.select(wanted.column_names))
        _same("accounts", state, balances.select(state.column_names))

    def load_hand_written() -> HandWrittenLedger:
        return HandWrittenLedger.load(opening, rows_max=accounts + accounts // 10 + 16)

    def load_engine() -> tg.Engine:
        engine = tg.Engine(ledger.PROGRAM, strategy="serial")
        engine.load(ledger.Account, opening)
        return engine

    def resolve() -> tuple[HandWrittenLedger, tuple[Any, ...]]:
        loaded = load_hand_written()
        return loaded, loaded.resolve(table)

    def check_resolved(prepared: tuple[HandWrittenLedger, Any], result: tuple[Any, Any]) -> None:
        if not np.array_equal(result[0], wanted["committed"].to_numpy()):
            raise AssertionError("pre-resolved rows: outcomes differ from the plain functions")
        _same("accounts", state, prepared[0].state())

    run_engine = partial(_run_engine, table)
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
                verify=lambda loaded, outcomes: check_outcomes(outcomes, loaded.state()),
            ),
            Variant(
                ENGINE,
                prepare=load_engine,
                run=partial(run_engine, None),
                verify=lambda engine, outcomes: check_outcomes(outcomes, engine.scan(ledger.Account)),
            ),
            Variant(
                "tidegate, order_by",
                prepare=load_engine,
                run=partial(run_engine, "ts"),
                verify=lambda engine, outcomes: check_outcomes(outcomes, engine.scan(ledger.Account)),
            ),
            Variant(
                "pre-resolved rows",
                prepare=resolve,
                run=lambda prepared: prepared[0].run_resolved(prepared[1]),
                verify=check_resolved,
            ),
        ],
        bars={} if bar is None else {ENGINE: bar},
        settings=asdict(settings),
        seed=seed,
        rounds=rounds,
    )


def _run_engine(table: pa.Table, order_by: str | None, engine: tg.Engine) -> pa.Table:
    return engine.run(table, order_by=order_by)


def _same(what: str, wanted: pa.Table, found: pa.Table) -> None:
    if not found.combine_chunks().cast(wanted.schema).equals(wanted.combine_chunks()):
        raise AssertionError(f"{what} differ from the plain functions")
