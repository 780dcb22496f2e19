"""A leaderboard as a dataflow graph inside the engine, beside the same work driven by a client that waits.

    client         each vote: three calls one after the other, the window and the order kept outside
    graph          the three transactions start each other inside the engine, nested, one vote an atomic batch

Both are atomic, ordered and exact: after every round outcomes and all tables of both are the same, bit for bit. The
client is in the same process, so that nothing is measured but the calls; over a network it would be slower still.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.workloads import leaderboard as show

CLIENT, GRAPH = "client", "graph"
BAR = 20.0
"""How many times the client's batches a second the graph must reach."""

SPEED_BAR = 100_000
"""Batches of one vote a second, on one core."""


def experiment(settings: show.LeaderboardSettings, *, votes: int) -> Experiment:
    """The declaration: the same votes through a client and through the graph."""
    events = show.events(votes, settings)
    wanted: list[list[Any]] = []

    def by_client(engine: tg.Engine) -> list[tg.Outcome]:
        client = show.SynchronousClient(engine)
        rows = zip(*(events[name].to_pylist() for name in ("phone", "contestant", "show")), strict=True)
        return [client.vote(*row) for row in rows]

    def by_graph(engine: tg.Engine) -> pa.Table:
        return engine.run(events)

    def check(engine: tg.Engine, outcomes: list[tuple[bool, Any, Any]]) -> None:
        found = [outcomes, *(engine.scan(table).to_pylist() for table in (show.Contestant, show.Show, show.Board))]
        found.append(engine.scan(show.Voter).num_rows)
        if not wanted:
            wanted.append(found)
        if found != wanted[0]:
            raise AssertionError("client and graph differ")

    return Experiment(
        name="leaderboard",
        title=f"Leaderboard: {votes:,} votes, one a batch, somebody leaves every {settings.every:,}",
        items=votes,
        item="batch",
        variants=[
            Variant(
                CLIENT,
                prepare=lambda: show.engine(settings, graph=False),
                run=by_client,
                verify=lambda engine, found: check(engine, [(o.committed, o.reason, o.result) for o in found]),
            ),
            Variant(
                GRAPH,
                prepare=lambda: show.engine(settings),
                run=by_graph,
                verify=lambda engine, found: check(
                    engine, list(zip(*(found[n].to_pylist() for n in ("committed", "reason", "result")), strict=True))
                ),
            ),
        ],
        bars={GRAPH: BAR},
        settings={"votes": votes, **asdict(settings)},
        seed=settings.seed,
    )
