"""An engine inside a process with durable commands: a command log, and checkpoints in the background.

    execute, run, load, take ──> rows in memory ──> a record in the log ──> synced ──> the caller gets its answer
                                       │
                       now and then    └──> rows that changed since ──> a checkpoint: one more version of the state

The log holds what was asked for, not the rows that changed (commands.py), so a record takes some twenty bytes. Opening
a state loads the newest checkpoint and runs the commands behind it again (replaying.py). A checkpoint holds the rows
that changed since the one before. It stops callers only while these rows are copied; a thread of its own does the rest.
A checkpoint ends a segment of the log; segments that the kept checkpoints cover are removed.

Commands are replayed only if they give the same rows again, as compiled transactions do. A transaction in plain Python
(`compiled=False`) may ask for the time or a random number; with one, every command is a checkpoint, and nothing is
replayed.

A command that fails before it changed anything (bad arguments, a full disk) changes nothing. One that fails halfway
invalidates the rows in memory, which are then loaded again. When the log cannot be written or synced, it is unknown
what is on the disk: the engine refuses everything until the state has been opened again.

Invariant: the recovered state is that of a prefix of all commands, and this prefix holds every acknowledged command. A
reader sees only what is durable.

Not here: group commit (command_log.py), how checkpoints are written (checkpoints.py), ownership (ownership.py).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pyarrow as pa

from tidegate.durability import log_segments, ownership
from tidegate.durability.calls import Calls
from tidegate.durability.checkpoints import CHECKPOINTS_KEPT, Checkpoints
from tidegate.durability.command_log import CommandLog, Sync
from tidegate.durability.commands import Codec, Execute, Load, Run, Step, Take, Void, signatures
from tidegate.durability.early_log import EarlyLog
from tidegate.durability.evolution import require_no_renaming, require_none_dropped
from tidegate.durability.fingerprint import fingerprint
from tidegate.durability.housekeeping import rows_size
from tidegate.durability.log_reading import CommandReader
from tidegate.durability.once_keys import LAYOUT as KEYS
from tidegate.durability.once_keys import OnceKeys
from tidegate.durability.ownership import EMBEDDED, ENGINE
from tidegate.durability.records import waiting_record, waiting_streams
from tidegate.durability.replaying import Replay
from tidegate.durability.result_types import recorded_type, warn_of_change
from tidegate.durability.scratch import Scratch
from tidegate.durability.stored_rows import fold
from tidegate.durability.tasks import Background, Threads
from tidegate.durability.version_info import Owner
from tidegate.durability.version_reader import VersionReader
from tidegate.durability.versions import VersionInfo
from tidegate.engine.core import EngineCore
from tidegate.engine.faults import OnError
from tidegate.engine.graphs.steps import pack_steps, unpack_steps
from tidegate.engine.report import BatchResult
from tidegate.foundation.errors import InputError, StateOwned, StorageFailed, StorageUncertain
from tidegate.foundation.holds import Hold
from tidegate.foundation.storage import Bytes, Storage, open_storage
from tidegate.operations.decision import Strategy
from tidegate.operations.outcomes import TRANSACTION_COLUMN, Outcome
from tidegate.operations.plan import Program

Recovery = Literal["strong", "weak"]
T = TypeVar("T")

CHECKPOINT_AFTER_BYTES = 64 << 20
"""How long the log grows between checkpoints: replaying this much takes a second where transactions are cheap."""

EARLY_BYTES = 64 << 10
"""Records of batches from this size on are written while the batch runs: below, that takes longer to arrange."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How batches are run; none of it changes answers."""

    strategy: Strategy = "adaptive"
    workers: int = 1
    punctuation: int | None = None
    record: bool = False


class LoggedEngine:
    """A program on a state folder, for the threads of one process."""

    def __init__(
        self,
        program: Program,
        path: str | Storage,
        recovery: Recovery = "weak",
        sync: Sync = "group",
        scheduling: Scheduling | None = None,
        background: Background | None = None,
        keep_versions: int = CHECKPOINTS_KEPT,
        on_error: OnError = "abort",
    ) -> None:
        self.program, self._on_error = program, on_error
        self.lock = threading.RLock()
        self._scheduling = scheduling or Scheduling()
        self._storage = open_storage(path) if isinstance(path, str) else path
        self._codec = Codec(program.plan.transactions)
        self._void = self._codec.encode(Void())
        self._repeatable = all(plan.compiled for plan in program.plan.transactions)
        self._traced = recovery == "strong" and bool(program.plan.flows.members) and self._repeatable
        self._step_by_step = sync == "always"
        self._background = background or Threads()
        self._checkpoints = Checkpoints(self._storage, self._background, keep_versions)
        self._log = CommandLog(self._storage, sync, self._require_owner)
        self._early = EarlyLog(self._log, self._background)
        self._calls = Calls(self.lock, self._log)
        self._core: EngineCore | None = None
        self._keys = OnceKeys()
        self._commands = 0
        self._refusal: Exception | None = None
        self._held: Hold | None = ownership.hold_alone(self._storage)
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise

    # --- commands -------------------------------------------------------------------------------------------

    def execute(self, number: int, arguments: Mapping[str, Any], key: int | str | None = None) -> Outcome:
        """Run one transaction; with a key, once however often it is asked for."""
        outcome: Outcome = self._calls.run(lambda: self._execute(number, arguments, key))
        return outcome

    def _execute(self, number: int, arguments: Mapping[str, Any], key: int | str | None) -> Outcome:
        core = self._ready()
        record, arguments = self._codec.execute(number, arguments, key)
        if key is not None:
            call = next(self._codec.decode(record))
            assert isinstance(call, Execute)
            key, record = call.key, self._codec.encode(call)  # both as a replay has them
            assert key is not None
            known = self._keys.find(key, record, core.plan.transactions[number].result)
            if known is not None:
                return known
        self._log.reserve(len(record))
        try:  # as `_guarded`, without a function more in every call
            outcome = core.execute(number, arguments)
        except InputError:
            raise
        except BaseException:
            self._core = None
            raise
        if key is not None:
            self._keys.add(key, record, outcome, core.plan.transactions[number].result)
        if key is not None or outcome.committed or core.moves_clock(number):
            self._note(record)
        return outcome

    def run(self, events: pa.Table, order_by: str | None) -> pa.Table:
        """Run a batch of events."""
        with self._durable_turn() as core:
            arrival = core.arrange(events, order_by)
            batch = Run(self._needed(events, order_by), order_by)
            record = self._codec.encode_later(batch) if self._repeatable else None
            self._log.reserve((record.size if record is not None else 0) + len(self._void))
            early: list[Future[None]] = []

            def begins() -> None:
                if record is not None and record.size >= EARLY_BYTES and self._storage.appends:
                    early.append(self._early.append(record))

            def run() -> BatchResult:
                result = core.run(events, arrival.order, arrival.refused, arrival.times, self._traced, begins)
                for appended in early:
                    appended.result()
                return result

            try:
                result = self._guarded(run)
            except Exception:
                self._make_void(early)
                raise
            except BaseException:
                with contextlib.suppress(StorageFailed):  # an interrupt says nothing of what became of the batch
                    self._make_void(early)
                raise
            steps = self._step_records(result.steps)
            if not early:
                self._note(record.encode(Scratch()) if record is not None else b"", *steps)
            else:
                self._commands += 1
                self._log.append(*steps, numbered=False)
        return result.outcomes

    def _make_void(self, early: list[Future[None]]) -> None:
        """A batch failed: should it be in the log, it does not count, which is certain before anybody is told."""
        if early and early[0].exception() is None:
            self._commands += 1
            self._note(self._void)
            self._log.flush()

    def load(self, table: str, rows: pa.Table) -> None:
        """Write rows that a user gives."""
        with self._durable_turn() as core:
            record = self._codec.encode(Load(table, rows))
            self._log.reserve(len(record))
            self._guarded(lambda: core.load(table, rows))
            self._note(record)

    def take(self, stream: str) -> pa.Table:
        """The tuples that wait in an output stream; they are forgotten when that is certain to stay."""
        with self._durable_turn() as core:
            count = core.outputs_waiting()[stream].num_rows
            record = self._codec.encode(Take(stream, count))
            self._log.reserve(len(record))
            tuples = self._guarded(lambda: core.take(stream, count))
            if count:
                self._note(record)
        return tuples

    def read(self, look: Callable[[EngineCore], T]) -> T:
        """What a function of the rows gives, when all that it saw is durable."""
        with self._durable_turn() as core:
            found = look(core)
        return found

    @property
    def core(self) -> EngineCore:
        """The rows in memory, for callers that hold the lock."""
        return self._ready()

    def turn(self) -> AbstractContextManager[None]:
        """Have the engine alone; calls that wait for it run afterwards."""
        return self._calls.turn()

    def checkpoint(self) -> None:
        """Write a checkpoint now, and return when it is there."""
        with self._calls.turn():
            self._ready()
            self._begin_checkpoint()
            self._join()
            self._require_usable()

    def close(self) -> None:
        """Write a checkpoint, so that the next engine to open the state replays nothing, and release the state.

        StorageUncertain when the disk could not say that it keeps what was answered, and nobody was told yet; the state
        is released all the same.
        """
        with self._calls.turn():
            try:
                if self._core is not None and not (self._refusal or self._checkpoints.refusal or self._log.has_failed):
                    self._begin_checkpoint()
                self._join()
                ownership.release(self._storage, self._owner.query)
            except StorageUncertain as error:
                self._refusal = error
                raise
            except Exception:  # the log has everything: the next engine replays it
                _log.warning("%s: no checkpoint could be written at the end", self._storage.path, exc_info=True)
            finally:
                self._let_go()

    # --- inside: commands -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _durable_turn(self) -> Iterator[EngineCore]:
        """Have the engine alone; what was done or seen inside is durable when the block is left."""
        with self._calls.turn():
            yield self._ready()
            group = self._log.last()
        self._log.wait(group)

    def _ready(self) -> EngineCore:
        """The rows, loaded again if they were dropped; raises when it is unknown what is on the disk."""
        self._require_usable()
        if self._core is None:
            self._log.flush()
            self._join()
            self._recover()
        if self._log.size > CHECKPOINT_AFTER_BYTES and not self._checkpoints.is_running:
            self._begin_checkpoint()
        assert self._core is not None
        return self._core

    def _require_usable(self) -> None:
        refusal = self._refusal or self._checkpoints.refusal
        if refusal is not None:
            raise type(refusal)(str(refusal)) from refusal

    def _guarded(self, action: Callable[[], T]) -> T:
        """Run something on the rows; if it fails half way they are forgotten. Bad input is found before that."""
        try:
            return action()
        except InputError:
            raise
        except BaseException:
            self._core = None
            raise

    def _note(self, record: Bytes, *steps: bytes) -> None:
        """A command was run: append it to the log, or keep what it changed where it could not be run again."""
        self._commands += 1
        if self._repeatable:
            self._log.append(record, *steps)
            return
        self._begin_checkpoint()
        self._join()
        self._require_usable()
        if self._checkpoints.newest.commands != self._commands:
            self._core = None
            raise StorageFailed(
                f"{self._storage.path}: what this call changed could not be kept (the log says why). Nothing was "
                "committed; what was committed before stands. Run again."
            )

    def _needed(self, events: pa.Table, order_by: str | None) -> pa.Table:
        """The columns of events that matter; events that may wait come back whole, with their outcomes."""
        if self.program.plan.flows.may_wait:
            return events
        wanted = {*self.program.plan.columns, TRANSACTION_COLUMN, order_by}
        return events.select([name for name in events.column_names if name in wanted])

    def _step_records(self, packed: bytes) -> list[bytes]:
        """The records of the steps of a batch: one for each where each is synced by itself, else one for all."""
        parts = [packed] if packed else []
        if self._step_by_step:
            parts = [pack_steps([step]) for step in unpack_steps(packed)]
        return [self._codec.encode(Step(0, 0, 0, part)) for part in parts]

    # --- inside: checkpoints ------------------------------------------------------------------------------------

    def _begin_checkpoint(self) -> None:
        """Collect the rows that changed and start the next segment; the rest happens in a thread of its own."""
        self._join()
        core = self._core
        newest = self._checkpoints.newest
        if core is None or self._commands == newest.commands:
            return
        self._log.flush()
        info = self._info(newest, self._log.hash, tuple(table.layout for table in core.tables.values()))
        try:
            if self._repeatable:
                self._log.begin(self._commands + 1, info.log)
        except StorageUncertain:
            raise
        except StorageFailed:
            _log.warning("%s: no checkpoint could be started; the log keeps growing", self._storage.path, exc_info=True)
            return
        self._guarded(lambda: self._start_checkpoint(core, info))

    def _start_checkpoint(self, core: EngineCore, info: VersionInfo) -> None:
        changes = core.take_changes()
        keys = self._keys.changes()
        if keys is not None:
            changes[KEYS.name] = keys
        records = {waiting_record(name): rows for name, rows in core.outputs_waiting().items()}
        self._checkpoints.begin(info, changes, records, rows_size(core))

    def _require_owner(self) -> None:
        """Raise StateOwned when somebody added a version since ours: the state is no longer ours."""
        newest, reader = self._checkpoints.newest, VersionReader(self._storage)
        found = reader.find_info(newest.version + 1) or reader.find_info(newest.version)
        if found is None or (found.version > newest.version and (found.owner or newest.owner) != self._owner):
            raise ownership.taken_over(self._storage, found)

    def _join(self) -> None:
        """Wait for the checkpoint that is being written."""
        unkept = self._checkpoints.join()
        if unkept is not None:
            self._keys.forget_stored()
            if self._core is not None:
                self._core.touch_again(unkept)

    def _info(self, newest: VersionInfo, log: str, layouts: Any) -> VersionInfo:
        return VersionInfo(
            version=newest.version + 1,
            kind="change",
            query=EMBEDDED,
            batch=self._commands,
            base=newest.version,
            created_at=time.time(),
            events=self._commands - newest.commands,
            committed=self._commands - newest.commands,
            high=newest.high,
            layouts=(*layouts, KEYS),
            epoch=self._epoch,
            owner=self._owner,
            commands=self._commands,
            log=log,
            result=recorded_type(self.program.plan),
        )

    # --- inside: opening ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._owner = Owner(f"{EMBEDDED}-{uuid.uuid4()}", "tg.Engine", ENGINE)
        newest = self._checkpoints.store.tip()
        self._epoch = ownership.admit(self._storage, newest, self._owner)
        if newest is None:
            empty = VersionInfo(1, "change", EMBEDDED, 0, 0, time.time(), epoch=self._epoch, owner=self._owner)
            try:
                newest = self._checkpoints.store.commit(empty, {})
            except FileExistsError:
                raise StateOwned(
                    f"{self._storage.path}: somebody else made the first version of this state at the same moment. "
                    "Only one engine at a time may change a state: open it again when the other one is closed."
                ) from None
        self._checkpoints.newest = newest
        parent = self._recover()
        warn_of_change(self._storage.path, newest, self.program.plan)
        if self._repeatable:
            self._log.begin(
                self._commands + 1,
                parent,
                state=newest.state,
                epoch=self._epoch,
                program=fingerprint(self.program),
                transactions=signatures(self.program.plan.transactions),
            )

    def _recover(self) -> str:
        """Load the newest checkpoint and run the commands behind it again; returns the log's hash at its end."""
        newest, declared = self._checkpoints.newest, self.program.plan.tables
        info, steps = self._checkpoints.store.load(newest.version, declared)
        require_no_renaming(self._storage.path, info.layouts, declared)
        require_none_dropped(self._storage.path, info.dropped, declared)
        core = self._new_core(info)
        keys: list[pa.Table] = []
        for changes in steps:
            if KEYS.name in changes:
                keys.append(changes.pop(KEYS.name))
            core.apply(changes)
        self._keys = OnceKeys.restore(fold(KEYS, keys))
        records = {name: waiting_record(name) for name in waiting_streams(info.records)}
        waiting = {
            name: self._checkpoints.store.read_record(newest.version, record) for name, record in records.items()
        }
        core.restore_outputs({name: rows for name, rows in waiting.items() if rows is not None})
        parent = self._replay(core)
        self._core = core
        return parent

    def _replay(self, core: EngineCore) -> str:
        replay, counted = Replay(core, self._keys, self._codec), dict[str, int]()
        reader = CommandReader(self.program.plan)
        parent, before = self._checkpoints.newest.log, 0
        mine = fingerprint(self.program)
        last: log_segments.OpenSegment | None = None
        for segment in log_segments.following(self._storage, self._checkpoints.newest, counted):
            for piece in segment.pieces():
                if segment.header.segment.program != mine:
                    raise log_segments.other_program(self._storage, segment)
                replay.run(reader.commands(piece))
            counted[segment.name], before = replay.commands - before, replay.commands
            parent, last = segment.hash, segment
        replay.end()
        if last is not None and last.tail is not None and self._storage.appends and self._log.size == 0:
            # What a crash left half is cut off, and what is whole is made certain to stay.
            self._storage.append_to(last.name, last.tail.end.offset).close()
        self._commands = self._checkpoints.newest.commands + replay.commands
        return parent

    def _new_core(self, info: VersionInfo) -> EngineCore:
        options = self._scheduling
        return EngineCore(
            self.program,
            tuple(layout for layout in info.layouts if layout.name != KEYS.name),
            track_changes=True,
            strategy=options.strategy,
            workers=options.workers,
            punctuation=options.punctuation,
            record=options.record,
            on_error=self._on_error,
        )

    def _let_go(self) -> None:
        self._checkpoints.close()
        if self._core is not None:
            self._core.runner.workers.close()
        self._core = None
        self._refusal = (
            self._refusal
            or self._checkpoints.refusal
            or InputError("this engine is closed: make another one, tg.Engine(...), to go on with its state")
        )
        self._log.close()
        self._background.close()
        if self._held is not None:
            self._held.release()
