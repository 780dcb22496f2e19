"""Chains of small procedures, to measure what starting the next one costs.

    transactions    step_1 commits, which starts step_2, and so on: each is a transaction of its own
    triggers        step_1 runs, and steps 2 to n inside it, as parts of the same transaction
    procedures      the same steps as plain transactions, for a client that calls one after the other

Every step adds one to a row of its own and passes on how far it came. The functions are written out to a module of
their own, because a chain may have any length and the compiler reads source.

Where the steps have tables of their own, too, and functions that take time, a chain is a line of stages: a step can
work on one tuple while the step before it works on the next.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.workloads.written import load_source

_HEAD = '''\
import tidegate as tg


@tg.table(key="id")
class Counter:
    """How often a step ran, and the sum of what it was given."""

    id: int
    count: int = 0
    total: int = 0

'''

_STEP = """
s{n} = tg.stream("s{n}", counter_{n}=int, value=int)
"""

_FLOWING = '''

@tg.{decorator}(on=s{n}{emits})
def step_{n}(counter_{n}: Counter, value: int):
    """Step {n}."""
    counter_{n}.count += 1
    counter_{n}.total += value
{emit}'''

_PLAIN = '''

@tg.transaction
def call_{n}(counter: Counter, value: int) -> int:
    """Step {n}, called from outside."""
    counter.count += 1
    counter.total += value
    return value + 1
'''


def chain_source(length: int, kind: str) -> str:
    """The module of a chain; `kind` is "transactions" or "triggers"."""
    parts = [_HEAD, *(_STEP.format(n=n) for n in range(1, length + 1))]
    for n in range(1, length + 1):
        last = n == length
        parts.append(
            _FLOWING.format(
                n=n,
                decorator="transaction" if n == 1 or kind == "transactions" else "trigger",
                emits="" if last else f", emits=[s{n + 1}]",
                emit="" if last else f"    tg.emit(s{n + 1}, counter_{n + 1}={n + 1}, value=value + 1)\n",
            )
        )
        parts.append(_PLAIN.format(n=n))
    steps = ", ".join(f"step_{n}" for n in range(1, length + 1))
    calls = ", ".join(f"call_{n}" for n in range(1, length + 1))
    parts.append(f'\n\ngraph = tg.dataflow([{steps}], name="chain")\nprocedures = [{calls}]\n')
    return "".join(parts)


def load_chain(length: int, kind: str = "transactions") -> ModuleType:
    """The module of a chain: `graph`, `procedures` and `Counter`."""
    return load_source(f"tidegate_chain_{kind}_{length}", chain_source(length, kind))


def chain_events(count: int, seed: int = 1) -> pa.Table:
    """Tuples for the first step."""
    values = np.random.default_rng(seed).integers(0, 1_000, count)
    return pa.table({"counter_1": np.ones(count, np.int64), "value": values})


def chain_rows(length: int, events: pa.Table) -> pa.Table:
    """The counters of a chain after these tuples went through it."""
    count, total = events.num_rows, pc.sum(events["value"]).as_py()
    steps = range(1, length + 1)
    return pa.table(
        {"id": [*steps], "count": [count] * length, "total": [total + (step - 1) * count for step in steps]}
    )


_STAGES_HEAD = """\
import tidegate as tg
from tidegate.workloads.cost import burn
"""

_STAGE = '''

@tg.table(key="id")
class Tally{n}:
    """What step {n} has seen."""

    id: int
    count: int = 0
    seal: int = 0


t{n} = tg.stream("t{n}", tally=int, rounds=int)
'''

_WORK = '''

@tg.transaction(on=t{n}{emits})
def work_{n}(tally: Tally{n}, rounds: int):
    """Step {n}: some work, and on to the next."""
    tally.count += 1
    tally.seal = burn(tally.seal + {n}, rounds)
{emit}'''


def stages_source(length: int) -> str:
    """The module of a line of stages."""
    parts = [_STAGES_HEAD, *(_STAGE.format(n=n) for n in range(1, length + 1))]
    for n in range(1, length + 1):
        last = n == length
        emit = "" if last else f"    tg.emit(t{n + 1}, tally=tally.id, rounds=rounds)\n"
        parts.append(_WORK.format(n=n, emits="" if last else f", emits=[t{n + 1}]", emit=emit))
    steps = ", ".join(f"work_{n}" for n in range(1, length + 1))
    tables = ", ".join(f"Tally{n}" for n in range(1, length + 1))
    return "".join([*parts, f'\n\ngraph = tg.dataflow([{steps}], name="stages")\ntables = [{tables}]\n'])


def load_stages(length: int) -> ModuleType:
    """The module of a line of stages: `graph` and `tables`."""
    return load_source(f"tidegate_stages_{length}", stages_source(length))


def stages_events(count: int, rounds: int, seed: int = 1) -> pa.Table:
    """Tuples for the first stage, over a thousand rows; each costs `rounds` rounds of work in every step."""
    rows = np.random.default_rng(seed).integers(0, 1_000, count)
    return pa.table({"tally": rows, "rounds": np.full(count, rounds)})
