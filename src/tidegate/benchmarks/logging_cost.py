"""What logging costs a dataflow graph: every transaction, or only those at its border.

A round of a chain is one tuple that enters it and n procedures that it starts (`workloads.chains`). What is logged of a
round, and how often it is synced:

                          strong                                  weak
    record                the tuple, and every step's input       the tuple
    sync="always"         n + 1 syncs                             1 sync
    sync="group"          1 sync, shared by all that wait         1 sync, shared by all that wait

Several clients call `run` with one tuple each, so that there is something to share. After each run the counters, and
those that come back from what a kill would leave of the directory, must be what the chain comes to.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import tidegate as tg
from tidegate.benchmarks.harness import Experiment, Variant
from tidegate.benchmarks.state_folders import make_template
from tidegate.workloads.chains import chain_events, chain_rows, load_chain

Recovery = Literal["strong", "weak"]
Sync = Literal["always", "group"]

RECOVERIES: tuple[Recovery, ...] = ("strong", "weak")
LENGTHS = tuple(range(1, 11))
BAR = 2.0
"""How many times faster weak must be than strong, without group commit, for the longest chain."""


def variant_name(recovery: Recovery, sync: Sync) -> str:
    """What a way of logging is called: "strong, group"."""
    return f"{recovery}, {sync}"


def experiment(
    length: int, folder: Path, *, tuples: int, clients: int, seed: int, bar: float | None = None
) -> Experiment:
    """The declaration: one length, two recoveries, with and without group commit; `tuples` go through the chain."""
    events, module = chain_events(tuples, seed), load_chain(length)
    singles = [events.slice(place, 1) for place in range(tuples)]
    template = make_template([module.graph], {}, folder)
    wanted = {module.Counter: chain_rows(length, events)}

    def run(prepared: tuple[tg.Engine, Path]) -> None:
        def feed(first: int) -> None:
            for single in singles[first::clients]:
                prepared[0].run(single)

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(feed, range(clients)))

    return Experiment(
        name="logging",
        title=f"A chain of {length} procedures, {clients} clients",
        items=tuples,
        item="round",
        variants=[
            Variant(
                variant_name(recovery, sync),
                prepare=partial(template.open_copy, recovery=recovery, sync=sync),
                run=run,
                verify=partial(template.require_durable, wanted, variant_name(recovery, sync)),
            )
            for sync in ("always", "group")
            for recovery in RECOVERIES
        ],
        bars={} if bar is None else {variant_name("weak", "always"): bar},
        settings={"length": length, "tuples": tuples, "clients": clients},
        seed=seed,
    )
