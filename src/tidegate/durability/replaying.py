"""Replays commands on the state that they ran on the first time: recovery from a log.

    checkpoint ── Execute ── Execute ── Run ── Load ── Take ──>  the state after the last command

Calls that follow each other in the log are run as one batch, by the engine's strategy and on all of its workers. A
batch of events is replayed in one of two ways (S-Store's weak and strong recovery):

    weak      Run                          the events are run as the first time: border transactions start the others
    strong    Run, Step, Step, Step        the events are taken in with triggers off, every step is run on its logged
                                           input, and then what has no logged step is started

So after a crash in the middle of a strong log, logged steps are what they were, and the rest of the round is run. A
batch that was logged and then failed is followed by `Void` and is not run.

Invariant: after every record the state is what it was after that record the first time, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.durability.commands import Codec, Execute, Load, Record, Run, Step, Take, Void
from tidegate.durability.log_reading import ExecuteBatch
from tidegate.durability.once_keys import OnceKeys
from tidegate.engine.arrival import arrange
from tidegate.engine.core import EngineCore
from tidegate.engine.graphs.steps import unpack_steps
from tidegate.foundation.errors import RecoveryImpossible


class Replay:
    """Runs the records of a log, one after the other, on a core and the keys that belong to it."""

    def __init__(self, core: EngineCore, keys: OnceKeys, codec: Codec) -> None:
        self._core, self._keys, self._codec = core, keys, codec
        self._names = [[parameter.name for parameter in plan.parameters] for plan in core.plan.transactions]
        self._waiting: Run | None = None
        self._with_steps = False
        self.commands = 0
        """How many commands were replayed: steps belong to the command before them."""

    def run(self, records: Iterable[ExecuteBatch | Record]) -> None:
        """Replay records, calls that follow each other as one batch; `end` must follow the last of them."""
        for record in records:
            if isinstance(record, Step):
                self._step(record)
                continue
            if isinstance(record, Void):
                self._require_batch("a void batch")
                self._waiting = None
            self.end()
            if isinstance(record, ExecuteBatch):
                self.commands += len(record)
                self._core.run(record.events)
                continue
            self.commands += 1
            if isinstance(record, Execute):
                self._execute(record)
            elif isinstance(record, Run):
                self._waiting = record  # how it is replayed is known when the next record is
            elif isinstance(record, Load):
                self._core.load(record.table, record.rows)
            elif isinstance(record, Take):
                self._core.take(record.stream, record.count)

    def end(self) -> None:
        """Finish the current batch: run what no step was logged of."""
        batch, self._waiting = self._waiting, None
        if batch is None:
            return
        if self._with_steps:
            self._with_steps = False
            self._core.end_replay()
        else:
            arrival = arrange(batch.events, batch.order_by)
            self._core.run(batch.events, arrival.order, arrival.refused, arrival.times)

    def _execute(self, record: Execute) -> None:
        arguments = dict(zip(self._names[record.transaction], record.arguments, strict=True))
        outcome = self._core.execute(record.transaction, arguments)
        if record.key is not None:
            result = self._core.plan.transactions[record.transaction].result
            self._keys.add(record.key, self._codec.encode(record), outcome, result)

    def _step(self, record: Step) -> None:
        batch = self._require_batch("a step")
        if not self._with_steps:
            self._with_steps = True
            arrival = arrange(batch.events, batch.order_by)
            self._core.begin_replay(batch.events, arrival.order, arrival.refused, arrival.times)
        self._core.replay_steps(unpack_steps(record.payload))

    def _require_batch(self, what: str) -> Run:
        if self._waiting is None:
            raise RecoveryImpossible(f"a log with {what} that belongs to no batch: it was not written by this Tidegate")
        return self._waiting
