"""What starting the next procedure costs: inside the engine, inside the transaction, or from a client that waits.

For chains of one to ten steps:

    client          one call for each step; the next one is made from the answer of the last
    transactions    every step is a transaction, and its commit starts the next (a trigger of the partition engine)
    triggers        all steps run inside the first transaction (triggers of the execution engine)

After each round the counters of all three are compared with those that follow from the tuples.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.state_folders import require_rows
from tidegate.workloads.chains import chain_events, chain_rows, load_chain

CLIENT, TRANSACTIONS, TRIGGERS = "client", "transactions", "triggers"
LENGTHS = tuple(range(1, 11))
BAR = 10.0
"""How many times faster than a client the engine's own triggers must be, at the longest chain."""


def experiment(length: int, *, batches: int, seed: int, bar: float | None = None) -> Experiment:
    """The declaration: one chain length, three ways to go through it."""
    events = chain_events(batches, seed)
    wanted = chain_rows(length, events)

    def engine_with(kind: str, procedures: bool) -> tuple[tg.Engine, Any]:
        module = load_chain(length, kind)
        return tg.Engine(module.procedures if procedures else [module.graph]), module

    def by_client(prepared: tuple[tg.Engine, Any]) -> None:
        engine, module = prepared
        for value in events["value"].to_pylist():
            for number, procedure in enumerate(module.procedures, 1):
                value = engine.execute(procedure, counter=number, value=value).result

    def by_graph(prepared: tuple[tg.Engine, Any]) -> pa.Table:
        return prepared[0].run(events)

    def verify(prepared: tuple[tg.Engine, Any], _: Any) -> None:
        require_rows(prepared[0].scan(prepared[1].Counter), wanted, f"a chain of {length}")

    return Experiment(
        name="triggers",
        title=f"A chain of {length} procedures, {batches:,} batches of one tuple",
        items=batches,
        item="batch",
        variants=[
            Variant(CLIENT, prepare=partial(engine_with, TRANSACTIONS, True), run=by_client, verify=verify),
            Variant(TRANSACTIONS, prepare=partial(engine_with, TRANSACTIONS, False), run=by_graph, verify=verify),
            Variant(TRIGGERS, prepare=partial(engine_with, TRIGGERS, False), run=by_graph, verify=verify),
        ],
        bars={} if bar is None else {TRANSACTIONS: bar},
        settings={"length": length, "batches": batches},
        seed=seed,
    )
