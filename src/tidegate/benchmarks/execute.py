"""One transaction now (`engine.execute`), between the batches of a stream.

    alone            a ledger, and nothing else
    beside a graph   the leaderboard, with a batch of votes before every hundred requests; a request adds to a row that
                     the graph writes, too

What counts is the median latency of single calls, as a caller sees it. After each run the rows must hold
what all requests and all votes came to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.workloads import leaderboard, ledger

ALONE, BESIDE = "alone", "beside a graph"
BAR_US = 100.0
"""A request between batches takes less, at the median."""

BETWEEN = 100
"""Requests between two batches of votes."""


@tg.transaction
def give_vote(contestant: leaderboard.Contestant) -> int:
    """A vote of the jury: no phone is asked."""
    contestant.votes += 1
    return contestant.votes


def experiment(*, requests: int, votes: int, seed: int) -> Experiment:
    """The declaration: `requests` calls, and `votes` in each batch between them."""
    show = leaderboard.LeaderboardSettings(every=10**9, seed=seed)
    cast = [leaderboard.events(votes, show, start) for start in range(0, votes * (requests // BETWEEN), votes)]
    batches = [batch.append_column("transaction", pa.array(["votes"] * votes)) for batch in cast]

    def alone() -> tg.Engine:
        engine = tg.Engine(ledger.PROGRAM)
        engine.execute(ledger.deposit, dst=1, amount=0)
        return engine

    def run_alone(engine: tg.Engine) -> list[float]:
        return _timed(requests, lambda: engine.execute(ledger.deposit, dst=1, amount=1))

    def verify_alone(engine: tg.Engine, taken: list[float]) -> None:
        _require(engine.scan(ledger.Account), "balance", requests)

    def beside() -> tuple[tg.Engine, list[int]]:
        engine = tg.Engine([leaderboard.leaderboard, give_vote])
        for table, rows in leaderboard.opening(show).items():
            engine.load(table, rows)
        engine.execute(give_vote, contestant=0)
        return engine, [1]

    def run_beside(prepared: tuple[tg.Engine, list[int]]) -> list[float]:
        engine, counted = prepared
        taken: list[float] = []
        for batch in batches:
            counted.append(pc.sum(engine.run(batch)["committed"]).as_py())
            taken += _timed(BETWEEN, lambda: engine.execute(give_vote, contestant=1))
        return taken

    def verify_beside(prepared: tuple[tg.Engine, list[int]], taken: list[float]) -> None:
        _require(prepared[0].scan(leaderboard.Contestant), "votes", sum(prepared[1]) + len(taken))

    def as_if_all(taken: list[float]) -> float:
        return statistics.median(taken) * requests  # the time of a run in which every call takes the median

    return Experiment(
        name="execute",
        title="One transaction now, at the median",
        items=requests,
        item="request",
        variants=[
            Variant(ALONE, prepare=alone, run=run_alone, verify=verify_alone, seconds=as_if_all),
            Variant(BESIDE, prepare=beside, run=run_beside, verify=verify_beside, seconds=as_if_all),
        ],
        settings={"requests": requests, "votes": votes},
        seed=seed,
    )


def _timed(calls: int, call: Callable[[], object]) -> list[float]:
    """The seconds of each of several calls."""
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def _require(rows: pa.Table, column: str, wanted: int) -> None:
    found = pc.sum(rows[column]).as_py()
    if found != wanted:
        raise AssertionError(f"the sum of {column!r} is {found} after all requests, and not {wanted}")


def bars(report: Report) -> list[Bar]:
    """The median of each way, in microseconds."""
    names = [found.variant for found in report.comparisons]
    return [Bar(f"execute, {name}: median in µs", 1e6 / report.items_per_second(name), "≤", BAR_US) for name in names]
