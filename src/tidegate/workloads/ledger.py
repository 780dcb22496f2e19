"""The streaming ledger: deposits and transfers between accounts, no account ever overdrawn.

The classic of transactional stream processing, small enough to read at a glance:

    deposit    one row written              never aborts
    transfer   two rows read and written    aborts with "insufficient funds"

`EventGenerator` makes batches of events from a seed. The knobs set how hard the workload is:

    accounts          how many accounts hold the opening balance
    transfer_ratio    share of transfers, the rest are deposits
    overdraw_ratio    share of the transfers that ask for more than there is in the whole ledger
    theta             Zipf skew of the accounts drawn: 0 is uniform, 0.99 is a few hot accounts
    arbitrary_keys    account numbers anywhere in the 64-bit range (true), or 0, 1, 2, ... (false)

`Truth` runs the same events one by one through the plain functions, and `verify` compares a run with
it: the state row by row, exactly one outcome for each event, every outcome as the plain function
gives it, and the money: what was there, plus the committed deposits, is what is there.

Invariant: the same settings and seed give the same events, however they are cut into batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.workloads.workload import Integers, Zipf

OVERDRAWN = 10**15
"""An amount that no account can have: more cents than the ledger holds in total."""

SPARK_SCHEMA = "event long, ts long, transaction string, src long, dst long, amount long"
"""The events' columns, as Spark's readers want them."""

ARROW_SCHEMA = pa.schema(
    [
        ("event", pa.int64()),
        ("ts", pa.int64()),
        ("transaction", pa.string()),
        ("src", pa.int64()),
        ("dst", pa.int64()),
        ("amount", pa.int64()),
    ]
)
"""The events' columns, as the engine takes them; `src` is null in a deposit."""


@tg.table(key="id")
class Account:
    """An account and what is in it."""

    id: int
    balance: int = 0  # cents


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    """Move an amount from one account to another, unless the first would be overdrawn."""
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    """Put an amount into an account, which is opened if it was not there."""
    dst.balance += amount
    return dst.balance


PROGRAM = [transfer, deposit]
"""The ledger's transactions, as `tg.Engine` and `transact` take them."""


def engine(opening: pa.Table, **options: Any) -> tg.Engine:
    """An engine with these accounts."""
    made = tg.Engine(PROGRAM, **options)
    made.load(Account, opening)
    return made


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """How large and how hard the workload is; equal settings generate equal events."""

    accounts: int = 10_000
    transfer_ratio: float = 0.5
    overdraw_ratio: float = 0.02
    theta: float = 0.2
    opening_balance: int = 100_000
    amount_max: int = 1_000
    arbitrary_keys: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        if self.accounts < 1:
            raise ValueError(f"the ledger needs at least one account; got accounts={self.accounts}")
        for name in ("transfer_ratio", "overdraw_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share between 0 and 1; got {getattr(self, name)}")
        if self.theta < 0.0:
            raise ValueError(f"theta is a Zipf exponent of 0 or more; got {self.theta}")


class EventGenerator:
    """An endless stream of ledger events, taken batch by batch."""

    # Randomness is drawn in blocks of this many events, so that the size of a batch does not
    # change the events in it.
    _BLOCK = 65_536

    def __init__(self, settings: LedgerSettings | None = None) -> None:
        self.settings = settings if settings is not None else LedgerSettings()
        self.keys = _account_keys(self.settings)
        """The number of every account; the first are the ones that skew makes hot."""
        self._zipf = Zipf(self.settings.accounts, self.settings.theta)
        self._random = np.random.default_rng([self.settings.seed, 1])
        self._pending = ARROW_SCHEMA.empty_table()
        self._events_made = 0

    def opening(self) -> pa.Table:
        """The accounts before the first event."""
        balance = np.full(len(self.keys), self.settings.opening_balance, dtype=np.int64)
        return pa.table({"id": self.keys, "balance": balance})

    def batch(self, events: int) -> pa.Table:
        """The next `events` events, as one table without chunks."""
        blocks = [self._pending]
        missing = events - self._pending.num_rows
        while missing > 0:
            blocks.append(self._block())
            missing -= self._BLOCK
        table = pa.concat_tables(blocks)
        self._pending = table.slice(events)
        return table.slice(0, events).combine_chunks()

    def batches(self, events: int, batch_rows: int) -> Iterator[pa.Table]:
        """The next `events` events in batches of `batch_rows`; the last one may be smaller."""
        for start in range(0, events, batch_rows):
            yield self.batch(min(batch_rows, events - start))

    def _block(self) -> pa.Table:
        count, random, settings = self._BLOCK, self._random, self.settings
        event = np.arange(self._events_made, self._events_made + count, dtype=np.int64)
        self._events_made += count
        is_transfer = random.random(count) < settings.transfer_ratio
        amount = random.integers(1, settings.amount_max + 1, count, dtype=np.int64)
        overdraws = is_transfer & (random.random(count) < settings.overdraw_ratio)
        amount[overdraws] = OVERDRAWN
        names = pa.DictionaryArray.from_arrays(is_transfer.astype(np.int8), pa.array(["deposit", "transfer"]))
        return pa.table(
            [
                pa.array(event),
                pa.array(event * 10),  # milliseconds: a hundred events a second
                names.cast(pa.string()),
                pa.array(self._accounts(count), mask=~is_transfer),
                pa.array(self._accounts(count)),
                pa.array(amount),
            ],
            schema=ARROW_SCHEMA,
        )

    def _accounts(self, count: int) -> Integers:
        return self.keys[self._zipf.draw(self._random, count)]


def _account_keys(settings: LedgerSettings) -> Integers:
    if not settings.arbitrary_keys:
        return np.arange(settings.accounts, dtype=np.int64)
    random = np.random.default_rng([settings.seed, 0])
    limits = np.iinfo(np.int64)
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < settings.accounts:  # drawing one number twice is rare, but would lose an account
        missing = settings.accounts - len(keys)
        drawn = random.integers(limits.min, limits.max, missing, dtype=np.int64, endpoint=True)
        keys = np.unique(np.concatenate([keys, drawn]))
    return random.permutation(keys)


class Truth:
    """The plain functions, one event after the other: the right result of every run.

    `tidegate.testing.PlainProgram` gives the same and serves any program. It takes three and a half times as long for
    the ledger (2.3 s instead of 0.65 s for 200,000 events), because its rows check every value. The demo and the
    benchmarks compare millions of events, so the ledger keeps rows without checks, and looks for overflows itself.
    """

    def __init__(self, opening: pa.Table | None = None) -> None:
        self._accounts: dict[int, SimpleNamespace] = {}
        if opening is not None:
            pairs = zip(opening["id"].to_pylist(), opening["balance"].to_pylist(), strict=True)
            self._accounts = {key: SimpleNamespace(id=key, balance=balance) for key, balance in pairs}

    def run(self, events: pa.Table) -> pa.Table:
        """Run events in the order of `ts` (ties: in that of the table); returns event, committed, reason, result."""
        ordered = events.take(pc.sort_indices(events, sort_keys=[("ts", "ascending")]))
        columns = [ordered[name].to_pylist() for name in ("transaction", "src", "dst", "amount")]
        outcomes = [self._run_one(*event) for event in zip(*columns, strict=True)]
        committed, reasons, results = zip(*outcomes, strict=True) if outcomes else ((), (), ())
        return pa.table(
            {
                "event": ordered["event"],
                "committed": pa.array(committed, pa.bool_()),
                "reason": pa.array(reasons, pa.string()),
                "result": pa.array(results, pa.int64()),
            }
        )

    def state(self) -> pa.Table:
        """All accounts that exist, sorted by number."""
        rows = sorted((row.id, row.balance) for row in self._accounts.values())
        ids, balances = zip(*rows, strict=True) if rows else ((), ())
        return pa.table({"id": pa.array(ids, pa.int64()), "balance": pa.array(balances, pa.int64())})

    def _run_one(
        self, transaction: str, source: int | None, target: int, amount: int
    ) -> tuple[bool, str | None, int | None]:
        dst = self._accounts.get(target) or SimpleNamespace(id=target, balance=0)
        src = dst if source is None or source == target else self._accounts.get(source)
        src = src or SimpleNamespace(id=source, balance=0)
        before = src.balance, dst.balance
        try:
            if transaction == "transfer":
                result = transfer(cast(Account, src), cast(Account, dst), amount)
            else:
                result = deposit(cast(Account, dst), amount)
            fits = min(src.balance, dst.balance) >= -(2**63) and max(src.balance, dst.balance) < 2**63
            tg.require(fits, "overflow")
        except tg.Abort as abort:
            src.balance, dst.balance = before
            return False, abort.reason, None
        self._accounts[src.id] = src
        self._accounts[dst.id] = dst
        return True, None, result


@dataclass(slots=True)
class Verdict:
    """What a comparison with the truth found; it holds when nothing is wrong."""

    events: int
    accounts: int
    committed: int
    aborted: dict[str, int]
    money: int
    money_expected: int
    counting_problems: list[str]
    """Events without an outcome or with several, and outcomes without an event."""
    outcome_problems: list[str]
    state_problems: list[str]

    @property
    def money_conserved(self) -> bool:
        """Whether the opening balances and the committed deposits are all there, and nothing more."""
        return self.money == self.money_expected

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, one line each."""
        difference = self.money - self.money_expected
        lost = [] if self.money_conserved else [f"money is not conserved: {difference:+d} cents"]
        return [*self.counting_problems, *self.outcome_problems, *self.state_problems, *lost]

    @property
    def holds(self) -> bool:
        """Whether the run was exactly what the plain functions give."""
        return not self.problems

    def require(self) -> Verdict:
        """The verdict itself when it holds, else an AssertionError that lists the problems."""
        if not self.holds:
            raise AssertionError("the run differs from the plain functions:\n" + "\n".join(self.problems))
        return self


def verify(opening: pa.Table | None, batches: Iterable[pa.Table], outcomes: pa.Table, state: pa.Table) -> Verdict:
    """Compare a run with the truth.

    `batches` are the events in the order in which they were fed, `outcomes` holds at least the
    columns event, committed, reason and result in any order, `state` the accounts afterwards.
    """
    truth = Truth(opening)
    fed = [ARROW_SCHEMA.empty_table(), *batches]
    wanted = pa.concat_tables(truth.run(events) for events in fed)
    counting = _counting_problems(wanted, outcomes)
    reasons = Counter(outcomes["reason"].drop_null().to_pylist())
    return Verdict(
        events=wanted.num_rows,
        accounts=state.num_rows,
        committed=pc.sum(outcomes["committed"]).as_py() or 0,
        aborted=dict(reasons.most_common()),
        money=pc.sum(state["balance"]).as_py() or 0,
        money_expected=_money_expected(opening, fed, outcomes),
        counting_problems=counting,
        outcome_problems=[] if counting else _outcome_problems(wanted, outcomes),
        state_problems=_state_problems(truth.state(), state),
    )


def _money_expected(opening: pa.Table | None, fed: list[pa.Table], outcomes: pa.Table) -> int:
    """The opening balances plus the deposits that the run itself says it committed."""
    start = 0 if opening is None else pc.sum(opening["balance"]).as_py() or 0
    committed = outcomes.filter(outcomes["committed"])["event"].combine_chunks()
    events = pa.concat_tables(fed)
    deposits = events.filter(pc.equal(events["transaction"], "deposit"))
    deposited = deposits.filter(pc.is_in(deposits["event"], value_set=committed))
    return int(start + (pc.sum(deposited["amount"]).as_py() or 0))


def _counting_problems(wanted: pa.Table, outcomes: pa.Table) -> list[str]:
    counts = Counter(outcomes["event"].to_pylist())
    events = set(wanted["event"].to_pylist())
    found = {
        "events have more than one outcome": {event for event, count in counts.items() if count > 1},
        "events have no outcome": events - counts.keys(),
        "outcomes belong to no event": counts.keys() - events,
    }
    return [f"{len(which)} {what}, first: event {min(which)}" for what, which in found.items() if which]


def _outcome_problems(wanted: pa.Table, outcomes: pa.Table) -> list[str]:
    left = wanted.sort_by("event")
    right = outcomes.select(wanted.column_names).sort_by("event").cast(left.schema)
    return [
        problem
        for name in ("committed", "reason", "result")
        for problem in _column_problems(name, left, right, "event")
    ]


def _state_problems(wanted: pa.Table, state: pa.Table) -> list[str]:
    found = state.select(["id", "balance"]).cast(wanted.schema).sort_by("id")
    if wanted["id"].combine_chunks().equals(found["id"].combine_chunks()):
        return _column_problems("balance", wanted, found, "id")
    expected, there = set(wanted["id"].to_pylist()), set(found["id"].to_pylist())
    return [
        f"the accounts differ: {len(expected - there)} missing, {len(there - expected)} that should not "
        f"exist, {found.num_rows - len(there)} rows repeat an account"
    ]


def _column_problems(name: str, wanted: pa.Table, found: pa.Table, key: str) -> list[str]:
    left, right = wanted[name].combine_chunks(), found[name].combine_chunks()
    if left.equals(right):
        return []
    same = pc.fill_null(pc.equal(left, right), False)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    wrong = np.flatnonzero(~np.asarray(pc.or_(same, both_null)))
    first = int(wrong[0])
    return [
        f"{len(wrong)} differ in {name}, first: {key} {wanted[key][first].as_py()} "
        f"must have {left[first].as_py()!r}, got {right[first].as_py()!r}"
    ]
