from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.workloads.streaming_ledger import (
    MORPHSTREAM,
    TSTREAM,
    Account,
    Asset,
    LedgerSettings,
    StreamingLedger,
    deposit,
    transfer,
)
from tidegate.workloads.workload import PLENTY, Run

SMALL = replace(MORPHSTREAM, keys=100, batch_events=2_000, cost_us=0.0, abort_ratio=0.1)


def test_a_transfer_moves_money_and_assets_from_source_to_target() -> None:
    rows = Account(1, 100), Asset(1, 10), Account(2, 7), Asset(2, 3)
    assert transfer(*rows, 30, 4, 0) == 70
    assert [rows[0].balance, rows[1].quantity, rows[2].balance, rows[3].quantity] == [70, 6, 37, 7]


@pytest.mark.parametrize(
    ("amount", "units", "reason"), [(101, 1, "insufficient funds"), (1, 11, "insufficient assets")]
)
def test_either_source_can_refuse_a_transfer(amount: int, units: int, reason: str) -> None:
    with pytest.raises(tg.Abort, match=reason):
        transfer(Account(1, 100), Asset(1, 10), Account(2), Asset(2), amount, units, 0)


def test_a_deposit_never_leaves_a_debt() -> None:
    assert deposit(Account(1, 5), Asset(1, 5), -5, -5, 0) == 0
    with pytest.raises(tg.Abort, match="overdrawn"):
        deposit(Account(1, 5), Asset(1, 5), 5, -6, 0)


def test_the_papers_settings() -> None:
    assert (TSTREAM.keys, TSTREAM.theta, TSTREAM.batch_events, TSTREAM.transfer_ratio) == (10_000, 0.6, 500, 0.5)
    assert (MORPHSTREAM.keys, MORPHSTREAM.theta, MORPHSTREAM.batch_events) == (122_880, 0.2, 10_240)
    assert (MORPHSTREAM.cost_us, MORPHSTREAM.abort_ratio) == (10.0, 0.01)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_transfers_come_as_often_as_asked_and_only_they_have_a_target(ratio: float) -> None:
    batch = StreamingLedger(replace(SMALL, transfer_ratio=ratio)).batch(0)
    is_transfer = pc.equal(batch["transaction"], "transfer")
    assert pc.mean(is_transfer.cast(pa.int8())).as_py() == pytest.approx(ratio, abs=0.04)
    assert pc.is_valid(batch["to_account"]).equals(is_transfer) and pc.is_valid(batch["to_asset"]).equals(is_transfer)


def test_source_and_target_are_different_rows_even_among_two() -> None:
    batch = StreamingLedger(replace(SMALL, keys=2, theta=1.0, transfer_ratio=1.0)).batch(0)
    assert not pc.any(pc.equal(batch["account"], batch["to_account"])).as_py()


def test_lost_money_and_lost_assets_are_told_apart() -> None:
    workload = StreamingLedger(SMALL)
    events = workload.batch(0)
    run, opening = workload.run([events]), workload.opening()
    assert workload.broken_promises(opening, events, run) == []
    richer = run.rows[Account].set_column(1, "balance", pc.add(run.rows[Account]["balance"], 1))
    poorer = run.rows[Asset].set_column(1, "quantity", pc.subtract(run.rows[Asset]["quantity"], 2))
    wrong = Run(run.outcomes, {Account: richer, Asset: poorer})
    assert workload.broken_promises(opening, events, wrong) == [
        "money not conserved: +100",
        "assets not conserved: -200",
    ]


def test_every_way_to_abort_occurs_and_no_row_goes_below_zero() -> None:
    workload = StreamingLedger(SMALL)
    run = workload.run([workload.batch(0)])
    reasons = set(run.outcomes[0]["reason"].drop_null().to_pylist())
    assert reasons == {"overdrawn", "insufficient funds", "insufficient assets"}
    assert pc.min(run.rows[Account]["balance"]).as_py() > PLENTY // 2


def test_one_owner_is_too_few() -> None:
    with pytest.raises(ValueError, match="keys is at least 2"):
        LedgerSettings(keys=1)
