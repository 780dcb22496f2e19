"""The ledger generates what its knobs say, and its verification finds every kind of mistake."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.testing import PlainProgram
from tidegate.workloads import ledger
from tidegate.workloads.ledger import (
    Account,
    EventGenerator,
    LedgerSettings,
    Truth,
    deposit,
    transfer,
    verify,
)


def events(*rows: tuple[str, int | None, int, int]) -> pa.Table:
    """Events in the order given, numbered from 0."""
    names, sources, targets, amounts = zip(*rows, strict=True)
    numbers = list(range(len(rows)))
    columns = [numbers, numbers, names, sources, targets, amounts]
    return pa.table(dict(zip(ledger.ARROW_SCHEMA.names, columns, strict=True)), schema=ledger.ARROW_SCHEMA)


def a_run(seed: int = 3) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Opening, events, outcomes and state of a run that is right."""
    generator = EventGenerator(LedgerSettings(accounts=50, seed=seed))
    opening, batch = generator.opening(), generator.batch(500)
    truth = Truth(opening)
    return opening, batch, truth.run(batch), truth.state()


def changed(table: pa.Table, row: int, **values: object) -> pa.Table:
    rows = table.to_pylist()
    rows[row] |= values
    return pa.Table.from_pylist(rows, schema=table.schema)


class TestEventGenerator:
    def test_a_seed_gives_the_same_events(self) -> None:
        settings = LedgerSettings(accounts=100, seed=7)
        assert EventGenerator(settings).batch(1000).equals(EventGenerator(settings).batch(1000))

    def test_another_seed_gives_other_events(self) -> None:
        one, other = (EventGenerator(LedgerSettings(accounts=100, seed=seed)).batch(1000) for seed in (1, 2))
        assert not one.equals(other)

    @pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
    def test_how_events_are_cut_into_batches_changes_none_of_them(self, batch_rows: int) -> None:
        settings = LedgerSettings(accounts=100, seed=7)
        batches = list(EventGenerator(settings).batches(1000, batch_rows))
        assert sum(batch.num_rows for batch in batches) == 1000
        assert pa.concat_tables(batches).combine_chunks().equals(EventGenerator(settings).batch(1000))

    def test_events_go_on_beyond_one_block(self) -> None:
        batch = EventGenerator(LedgerSettings(accounts=10)).batch(150_000)
        assert batch["event"].to_pylist() == list(range(150_000))
        assert batch["ts"].chunk(0).equals(pc.multiply(batch["event"], 10).chunk(0))

    def test_only_deposits_have_no_source(self) -> None:
        batch = EventGenerator(LedgerSettings(accounts=100)).batch(1000)
        assert pc.is_null(batch["src"]).equals(pc.equal(batch["transaction"], "deposit"))

    def test_the_columns_are_those_that_spark_is_told(self) -> None:
        batch = EventGenerator(LedgerSettings(accounts=100)).batch(10)
        assert batch.schema == ledger.ARROW_SCHEMA
        told = ledger.SPARK_SCHEMA.replace(" long", " int64").replace(" string", " string").split(", ")
        assert [f"{field.name} {field.type}" for field in batch.schema] == told

    def test_ratios_are_kept(self) -> None:
        settings = LedgerSettings(accounts=100, transfer_ratio=0.8, overdraw_ratio=0.25)
        batch = EventGenerator(settings).batch(60_000)
        transfers = pc.sum(pc.equal(batch["transaction"], "transfer")).as_py()
        overdrawn = pc.sum(pc.equal(batch["amount"], ledger.OVERDRAWN)).as_py()
        assert transfers / 60_000 == pytest.approx(0.8, abs=0.02)
        assert overdrawn / transfers == pytest.approx(0.25, abs=0.02)

    def test_arbitrary_keys_are_distinct_and_of_both_signs(self) -> None:
        keys = EventGenerator(LedgerSettings(accounts=5000)).keys
        assert len(np.unique(keys)) == 5000
        assert keys.min() < -(2**62) and keys.max() > 2**62

    def test_plain_keys_count_from_zero(self) -> None:
        keys = EventGenerator(LedgerSettings(accounts=5, arbitrary_keys=False)).keys
        assert keys.tolist() == [0, 1, 2, 3, 4]

    def test_skew_makes_the_first_accounts_hot(self) -> None:
        def share_of_first(theta: float) -> float:
            generator = EventGenerator(LedgerSettings(accounts=1000, theta=theta))
            return float(np.mean(generator.batch(20_000)["dst"].to_numpy() == generator.keys[0]))

        assert share_of_first(0.0) == pytest.approx(0.001, abs=0.001)
        assert share_of_first(0.0) < share_of_first(0.6) < share_of_first(1.2)

    @pytest.mark.parametrize(
        "wrong", [{"accounts": 0}, {"transfer_ratio": 1.5}, {"overdraw_ratio": -0.1}, {"theta": -1.0}]
    )
    def test_impossible_settings_are_refused_by_name(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LedgerSettings(**wrong)  # type: ignore[arg-type]


class TestTruth:
    def test_the_plain_functions_are_plain(self) -> None:
        one, two = Account(1, 100), Account(2)
        assert transfer(one, two, 30) == 70
        assert deposit(two, 5) == 35
        with pytest.raises(tg.Abort, match="insufficient funds"):
            transfer(one, two, 71)

    def test_a_transfer_that_would_overdraw_leaves_everything_as_it_was(self) -> None:
        truth = Truth(pa.table({"id": [1, 2], "balance": [100, 0]}))
        outcomes = truth.run(events(("transfer", 1, 2, 150), ("deposit", None, 1, 50), ("transfer", 1, 2, 150)))
        assert outcomes["committed"].to_pylist() == [False, True, True]
        assert outcomes["reason"].to_pylist() == ["insufficient funds", None, None]
        assert outcomes["result"].to_pylist() == [None, 150, 0]
        assert truth.state().to_pylist() == [{"id": 1, "balance": 0}, {"id": 2, "balance": 150}]

    def test_a_transfer_to_oneself_changes_nothing(self) -> None:
        truth = Truth(pa.table({"id": [1], "balance": [100]}))
        assert truth.run(events(("transfer", 1, 1, 60)))["result"].to_pylist() == [100]
        assert truth.state().to_pylist() == [{"id": 1, "balance": 100}]

    def test_an_account_exists_only_after_a_commit(self) -> None:
        truth = Truth()
        truth.run(events(("transfer", 1, 2, 5), ("deposit", None, 3, 5), ("transfer", 4, 5, 0)))
        assert truth.state()["id"].to_pylist() == [3, 4, 5]

    def test_an_overflow_aborts_and_is_undone(self) -> None:
        truth = Truth(pa.table({"id": [1, 2], "balance": [100, 2**63 - 10]}))
        outcomes = truth.run(events(("transfer", 1, 2, 50), ("deposit", None, 2, 9)))
        assert outcomes["reason"].to_pylist() == ["overflow", None]
        assert truth.state()["balance"].to_pylist() == [100, 2**63 - 1]

    def test_events_run_in_the_order_of_their_time(self) -> None:
        batch = events(("transfer", 1, 2, 10), ("deposit", None, 1, 10))
        late_first = batch.set_column(1, "ts", pa.array([5, 4]))
        assert Truth().run(late_first)["event"].to_pylist() == [1, 0]
        assert Truth().run(late_first)["committed"].to_pylist() == [True, True]

    @pytest.mark.parametrize("theta", [0.0, 0.99])
    def test_it_gives_what_plain_program_gives(self, theta: float) -> None:
        generator = EventGenerator(LedgerSettings(accounts=20, overdraw_ratio=0.2, theta=theta, opening_balance=50))
        opening = pa.concat_tables([generator.opening().slice(5), pa.table({"id": [7], "balance": [2**63 - 900]})])
        truth, plain = Truth(opening), PlainProgram(ledger.PROGRAM, {Account: opening})
        for _ in range(3):
            batch = generator.batch(400)
            batch = batch.set_column(4, "dst", pc.if_else(pc.less(batch["amount"], 100), 7, batch["dst"]))
            wanted = plain.run(batch, "ts")
            found = truth.run(batch).select(["committed", "reason", "result"]).to_pylist()
            assert found == [{"committed": o.committed, "reason": o.reason, "result": o.result} for o in wanted]
        assert truth.state().to_pylist() == plain.rows(Account)


class TestVerify:
    def test_a_run_that_is_right_holds(self) -> None:
        opening, batch, outcomes, state = a_run()
        verdict = verify(opening, [batch.slice(0, 200), batch.slice(200)], outcomes, state).require()
        assert verdict.holds and verdict.money_conserved
        assert (verdict.events, verdict.accounts) == (500, 50)
        assert verdict.committed + sum(verdict.aborted.values()) == 500
        assert verdict.aborted.keys() == {"insufficient funds"}

    def test_the_order_of_outcomes_and_rows_does_not_matter(self) -> None:
        opening, batch, outcomes, state = a_run()
        assert verify(opening, [batch], outcomes[::-1], state[::-1]).holds

    def test_no_events_at_all_hold(self) -> None:
        opening, _, outcomes, _ = a_run()
        assert verify(opening, [], outcomes.slice(0, 0), opening).holds

    @pytest.mark.parametrize(
        ("damage", "problem"),
        [
            (lambda outcomes, state: (outcomes.slice(1), state), "1 events have no outcome, first: event 0"),
            (
                lambda outcomes, state: (pa.concat_tables([outcomes, outcomes.slice(4, 1)]), state),
                "1 events have more than one outcome, first: event 4",
            ),
            (
                lambda outcomes, state: (
                    pa.concat_tables([outcomes, changed(outcomes, 0, event=10**6).slice(0, 1)]),
                    state,
                ),
                "1 outcomes belong to no event, first: event 1000000",
            ),
            (
                lambda outcomes, state: (changed(outcomes, 9, result=-1), state),
                "1 differ in result, first: event 9 must have",
            ),
            (
                lambda outcomes, state: (changed(outcomes, 9, reason="no"), state),
                "1 differ in reason, first: event 9 must have None, got 'no'",
            ),
            (lambda outcomes, state: (outcomes, state.slice(1)), "the accounts differ: 1 missing"),
            (
                lambda outcomes, state: (outcomes, pa.concat_tables([state, state.slice(0, 1)])),
                "1 rows repeat an account",
            ),
            (
                lambda outcomes, state: (outcomes, changed(state, 3, balance=1)),
                "1 differ in balance, first: id",
            ),
            (lambda outcomes, state: (outcomes, changed(state, 3, balance=1)), "money is not conserved: -"),
        ],
    )
    def test_damage_is_found_and_named(self, damage, problem: str) -> None:  # type: ignore[no-untyped-def]
        opening, batch, outcomes, state = a_run()
        verdict = verify(opening, [batch], *damage(outcomes, state))
        assert not verdict.holds
        assert any(problem in found for found in verdict.problems), verdict.problems
        with pytest.raises(AssertionError, match="differs from the plain functions"):
            verdict.require()
