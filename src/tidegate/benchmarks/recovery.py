"""Recovery time of dataflow graphs: weak recovery runs them again from their inputs, strong recovery step by step.

Chains of one to ten procedures, the same number of rounds each, logged by single calls of `run` and never closed:

    weak      a round is one record; replayed, it starts its procedures inside the engine
    strong    a round is one record and one for each step; every step is taken from the log

What is timed is `tg.Engine(..., directory=...)`: from the checkpoint, which is empty, and the log to an engine that can
be used. All lengths take turns, so that they can be compared with each other. Each engine must have the counters that
the chain comes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.logging_cost import RECOVERIES, Recovery
from tidegate.benchmarks.state_folders import Template, left_behind, log_frames, make_template
from tidegate.workloads.chains import chain_events, chain_rows, load_chain

LENGTHS: tuple[int, ...] = (1, 2, 4, 7, 10)
BAR = 1.5
"""How many times as long weak recovery may take for the longest chain as for the shortest."""


def variant_name(recovery: Recovery, length: int) -> str:
    """What the recovery of a chain is called."""
    return f"{recovery}, {length} procedure{'s' if length > 1 else ''}"


def experiment(folder: Path, *, lengths: Sequence[int], tuples: int, seed: int) -> Experiment:
    """The declaration: `tuples` rounds of each length, to be recovered in both ways."""
    events = chain_events(tuples, seed)
    return Experiment(
        name="recovery",
        title=f"Recovery of {tuples:,} rounds",
        items=tuples,
        item="round",
        variants=[
            _variant(recovery, length, events, folder) for length in lengths for recovery in reversed(RECOVERIES)
        ],
        settings={"tuples": tuples, "lengths": list(lengths)},
        seed=seed,
    )


def bar(report: Report, lengths: Sequence[int]) -> Bar:
    """Whether weak recovery takes longer when graphs are larger."""
    short, long = (report[variant_name("weak", length)].seconds_median for length in (min(lengths), max(lengths)))
    what = f"weak recovery: {max(lengths)} procedures ÷ {min(lengths)}, seconds"
    return Bar(what, long / short, "≤", BAR)


def _variant(recovery: Recovery, length: int, events: pa.Table, folder: Path) -> Variant:
    module = load_chain(length)
    template = make_template([module.graph], {}, folder)
    logged: list[Path] = []

    def prepare() -> Path:
        if not logged:
            logged.append(_log(template, recovery, events))
        return left_behind(logged[0])

    return template.reopened(variant_name(recovery, length), prepare, {module.Counter: chain_rows(length, events)})


def _log(template: Template, recovery: Recovery, events: pa.Table) -> Path:
    """The folder of an engine that was killed when these tuples had gone through its chain, one by one."""
    path = template.copy()
    with template.open(path, recovery=recovery, sync="never") as engine:
        for place in range(events.num_rows):
            engine.run(events.slice(place, 1))
        killed = left_behind(path)
    if len(log_frames(killed)) != events.num_rows:
        raise AssertionError(f"a log of {events.num_rows} rounds was asked for; a checkpoint has ended it: log fewer")
    return killed
