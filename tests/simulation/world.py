"""A small world around one state: queries, workers, a disk and everything that goes wrong, all from one seed.

    query a    batch 0 ✓   batch 1 ✓   batch 2 planned        Spark's checkpoint: planned, then committed
       workers 3, 5        process 3 runs batch 2, process 5 its twin        at once, call by call
    frame f    one batch DataFrame, asked for again and again
    versions   keep rows, or events, as each start of a query wants it
    disk       full, failing syncs, stale listings, flipped bits, power failures

Each step picks who acts and what goes wrong meanwhile. A process may die at any of its disk calls, the machine at any
call at all; then queries start again, here or elsewhere, and repeat the batch that their checkpoint does not have as
committed. The ledger (ledgers.py) says what must come out:

- after every crash the state holds a prefix of what was applied, with everything in it that somebody was told of;
- a batch that is asked for again gives the outcomes of its first time;
- a refusal needs a reason that the world caused, and then nothing was changed;
- damage is noticed by whoever reads it.

Spark's own checkpoint is taken to be durable. Clocks, process ids and random ids come from the seed as well, so a seed
tells the same story every time; `story()` is that of a failure.

Not here: Spark itself, object stores (tests/durability/test_s3.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from tidegate.durability import housekeeping, ownership, version_reader, versioned, versions
from tidegate.durability.batch_facts import facts_of
from tidegate.durability.compactor import Compactor
from tidegate.durability.served import call_applicant, once_applicant, stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation import holds, leftovers
from tidegate.foundation.errors import (
    RecoveryImpossible,
    StateDiverged,
    StateOwned,
    StorageFailed,
    StorageUncertain,
    TidegateError,
)
from tidegate.foundation.storage import LocalStorage

from ..truth.choices import Choices
from .actors import FOLDER, Job, Query, Worker
from .disk import Faults, SimulatedCrash, SimulatedDisk
from .ledgers import Attempt, Ledger, Subject, Wrong, named, shuffled
from .processes import Process, Turns
from .seeded_ids import seeded_ids

REFUSING = ("sync_fails", "folder_sync_fails", "disk_full", "read_error", "naming_fails")
STORY_CALLS = 120


class World:
    """One state and all that happens to it."""

    def __init__(
        self,
        seed: object,
        subject: Subject,
        *,
        choices: Choices | None = None,
        crash_at: int | None = None,
        power_failure: bool | None = None,
        log: Log | None = None,
    ) -> None:
        self.seed, self.subject = seed, subject
        self.choices = choices or Choices(random.Random(f"choices {seed}").randrange(2**60))
        self._contents = Choices(random.Random(f"events {seed}").randrange(2**60))
        self._power_failure = power_failure  # whether a crash is one; None: the seed decides
        self._log = log  # what versions keep; None: the seed decides
        self.disk = SimulatedDisk(seed if crash_at is None else (seed, crash_at), crash_at=crash_at)
        self.turns = Turns(random.Random(f"turns {seed}"))
        self.ledger = Ledger(subject)
        self.counts: Counter[str] = Counter()
        self.workers: list[Worker] = []
        self.queries: list[Query] = []
        self.frames: list[Attempt] = []
        self.sudden = 6  # how often, in a hundred, the power fails when an attempt has just ended
        self.now, self.clock = 1.7e9, 10
        self.pid = self._last_pid = 100
        self._ids = random.Random(f"ids {seed}")
        self._released: int | None = None
        self._maybe_released: int | None = None
        self._damaged: dict[int, bytes] = {}  # what the damaged files held
        self._wrong: list[Exception] = []
        self._keeps = [100]

    @contextlib.contextmanager
    def living(self) -> Iterator[World]:
        """Inside, clocks, ids and the sizes that make a snapshot due are the world's; a failure tells the story."""
        alive = types.SimpleNamespace(
            started=lambda _pid: 1.0,
            is_running=lambda pid, _started: any(w.pid == pid and not w.dead for w in self.workers),
            host=lambda: "simulated",
        )
        with contextlib.ExitStack() as patches:
            patches.enter_context(seeded_ids(self._ids))
            for owner, name, value in (
                (time, "time", lambda: self.now),
                (os, "getpid", lambda: self.pid),
                (ownership, "_holds", {}),
                (holds, "_turn", contextlib.nullcontext()),  # each process has one, and threads are processes here
                (holds, "time", types.SimpleNamespace(sleep=self._sleep)),
                (leftovers, "processes", alive),
                (versions, "SNAPSHOT_AFTER_BYTES", self.choices.pick([1, 2000, 6000, 8 << 20])),
                (versions, "CHANGE_BYTES_MIN", 1000),
                (housekeeping, "COLLECT_EVERY", self.choices.pick([1, 2, 20])),
                (housekeeping, "SWEEP_EVERY", self.choices.pick([3, 7, 1000])),
                (housekeeping, "SMALL_BYTES", self.choices.pick([1 << 20, 0])),
                (Compactor, "request", lambda compactor, version, _: work_at_once(compactor, (version, 0), None)),
                (Compactor, "sweep", lambda compactor, epoch: work_at_once(compactor, None, epoch)),
                (versioned, "CATCH_UP_MAX", 2),
                (versioned, "facts_of", lambda report: facts_of(replace(report, seconds={}, why=""))),  # measured
                (version_reader, "HEADERS_MAX", 3),
            ):
                patches.enter_context(mock.patch.object(owner, name, value))
            try:
                yield self
            except (AssertionError, TidegateError) as error:
                error.add_note(self.story())
                raise

    def story(self) -> str:
        """What happened, and the last calls of the disk."""
        lines = self.disk.describe().splitlines()
        told = [line for line in lines[:-STORY_CALLS] if line.startswith(("====", "----"))]
        program = f"\n{self.subject.case.program.source}"
        return "\n".join([f"seed {self.seed}", program, *told, "the last calls:", *lines[-STORY_CALLS:]])

    # What processes tell

    def before_call(self, worker: Process) -> None:
        """The turn may change before each call of the disk."""
        self.turns.may_change()
        self.pid = worker.pid

    def after_link(self, worker: Process, path: str) -> None:
        """A file got its name: if it is a version, the worker's attempt was applied."""
        assert isinstance(worker, Worker)
        match = re.fullmatch(r"([0-9]{12})\.(change|snapshot)", os.path.basename(path))
        if not match or (match[2] == "snapshot" and int(match[1]) <= self.ledger.newest):
            return
        assert worker.attempt is not None
        worker.linked.append(int(match[1]))
        worker.made += 1
        self.disk.note(f"{worker.name} made version {int(match[1])}: {worker.attempt.key}")
        try:
            self.ledger.applied(worker.attempt, int(match[1]))
        except Wrong as error:
            self._wrong.append(error)

    def _sleep(self, _seconds: float) -> None:
        pid = self.pid
        self.turns.wait()
        self.pid = pid

    # Attempts

    def perform(self, jobs: Sequence[Job]) -> None:
        """Runs attempts at once, and judges what came of them."""
        struck = Counter(self.disk.struck)
        for job in jobs:
            job.worker.attempt, job.worker.linked, job.worker.made = job.attempt, [], 0
            job.blocked = self._is_blocked(job.attempt)
            job.repeated = self.ledger.version_of(job.attempt) is not None
            self.disk.note(f"{job.worker.name}: {job.attempt.key}{' again' if job.repeated else ''}")
            self.counts["attempts"] += 1
            self.counts["repeats"] += job.repeated
        self.turns.run([lambda job=job: self._act(job) for job in jobs])  # type: ignore[misc]
        faults = Counter(self.disk.struck) - struck
        for job in jobs:
            if faults["stale_listing"]:
                job.worker.saw_stale = True
            if job.bug is not None:
                raise job.bug
        if self._wrong:
            raise self._wrong[0]
        for job in jobs:
            self._judge(job, jobs, faults)
        if self.disk.crashed:
            fails = self.choices.chance(75) if self._power_failure is None else self._power_failure
            self.restart(power_failure=fails)
        elif self.choices.chance(self.sudden * (4 if any(job.worker.dead for job in jobs) else 1)):
            self.restart(power_failure=True)
        for job in jobs:
            job.then(job.outcomes is not None)

    def _act(self, job: Job) -> None:
        self.pid = job.worker.pid
        try:
            (job.run or self._process)(job)
        except SimulatedCrash:
            job.worker.engines = {}
        except TidegateError as error:
            self.disk.note(f"{job.worker.name} was refused: {type(error).__name__} {str(error)[:300]}")
            job.error = error
        except BaseException as error:
            job.bug = error
        job.worker.attempt = None

    def _process(self, job: Job) -> None:
        attempt, worker = job.attempt, job.worker
        assert attempt.applicant is not None
        if attempt.owner is not None:
            ownership.stay_alive(worker.storage, attempt.owner.token)
            worker.tokens.add(attempt.owner.token)
        events = self.subject.table(attempt.events)
        job.outcomes = worker.engine(self.subject, job.keep_versions, job.log).process(
            attempt.applicant,
            events,
            order_by=self.subject.order_by if events.num_rows else None,
            late=self.subject.late,  # type: ignore[arg-type]
            owner=attempt.owner,
        )
        self.disk.note(f"{worker.name} is told the outcomes of {attempt.key}")
        self.ledger.acknowledge(attempt, job.outcomes)

    def _is_blocked(self, attempt: Attempt) -> bool:
        """Whether another owner is alive and has not let go."""
        if self.ledger.newest == 0 or self.ledger.version_of(attempt) is not None:
            return False
        tip = self.ledger.entries[-1].attempt
        holder = None if tip is None else tip.owner
        if holder is None or self._released == self.ledger.newest:
            return False
        if attempt.owner is not None and attempt.owner.query == holder.query:
            return False
        return any(holder.token in worker.tokens and not worker.dead for worker in self.workers)

    def _judge(self, job: Job, jobs: Sequence[Job], faults: Counter[str]) -> None:
        error = job.error
        alone = len(jobs) == 1
        if error is None:
            if alone and job.blocked and job.worker.made and self._maybe_released != self.ledger.newest - 1:
                raise Wrong(f"{job.attempt.key} was applied while another owner was alive")
            return
        self.counts["refusals"] += 1
        if job.worker.linked and not isinstance(error, StorageUncertain):
            raise Wrong(f"{job.attempt.key} was refused, but made version {job.worker.linked}") from error
        if self._damaged:
            return
        reasons: list[type[TidegateError]] = []
        if any(faults[name] for name in REFUSING):
            reasons.append(StorageFailed)
        if job.worker.saw_stale:
            reasons += [RecoveryImpossible, StateDiverged]
        # Of several at once, one may meet a lock that another one holds for an instant, to ask for it.
        if job.blocked or not alone or self._maybe_released == self.ledger.newest:
            reasons.append(StateOwned)
        if self._is_collected(job.attempt):
            reasons.append(RecoveryImpossible)
        if not isinstance(error, tuple(reasons)):
            raise error

    def _is_collected(self, attempt: Attempt) -> bool:
        """Whether what a repetition needs may be gone: others went on since, for more versions than are kept."""
        version, newest = self.ledger.version_of(attempt), self.ledger.newest
        if version is None:
            return False
        later = [entry.attempt for entry in self.ledger.entries[version:] if entry.attempt is not None]
        goes_on = any((other.query, other.key[1]) != (attempt.query, attempt.key[1]) for other in later)
        return goes_on and version - 1 < newest - min(self._keeps) + 1

    def is_given_up(self, job: Job) -> bool:
        """Whether a batch can never be repeated: the query needs somebody's help."""
        certain = not self._damaged and not job.worker.saw_stale
        return certain and isinstance(job.error, RecoveryImpossible) and self._is_collected(job.attempt)

    # Crashes

    def restart(self, *, power_failure: bool) -> None:
        """The machine starts again; what it holds is compared."""
        self.counts["power failures" if power_failure else "restarts"] += 1
        for worker in self.workers:
            worker.dead = True
        self.workers = []
        for query in self.queries:
            query.ended()
        self.disk.faults = Faults()
        self.disk.restart(power_failure=power_failure)
        if power_failure:
            names = [name for name in self.disk.names(FOLDER) if name.endswith((".change", ".snapshot"))]
            self.ledger.cut(max((int(name[:12]) for name in names), default=0))
            if self._released == self.ledger.newest:  # the mark was never synced: the power may have taken it
                self._maybe_released = self._released
            self._released = None
        self.recovered()

    def recovered(self, *, every_version: bool = False) -> None:
        """That the state on the disk is the ledger's; damage may keep it from being read, not more."""
        reader = VersionReader(LocalStorage(FOLDER, disk=self.disk))
        self.disk.caller = "(compare) "
        try:
            newest = reader.newest()
            found = 0 if newest is None else newest.version
            if found != self.ledger.newest:
                raise Wrong(f"the newest version is {found}, expected {self.ledger.newest}")
            for version in reader.refresh() if every_version else filter(None, [found]):
                self.ledger.compare(reader, version)
                self.counts["versions compared"] += 1
        except TidegateError:
            if not self._damaged:
                raise

    # Who acts

    def new_worker(self) -> Worker:
        """A process that has just started."""
        self._last_pid += 1
        self.workers.append(Worker(self.disk, self._last_pid, self.before_call, self.after_link))
        return self.workers[-1]

    def new_query(self) -> Query:
        """A query with an empty checkpoint."""
        keep = self.choices.pick([1, 2, 3, 5, 100])
        self._keeps.append(keep)
        query = Query(f"query-{len(self.queries)}", self.choices.chance(30), keep)
        self.queries.append(query)
        return query

    def start(self, query: Query) -> bool:
        """The query starts, with a driver and workers; what it finds there goes into its plan."""
        token = f"{self._ids.getrandbits(64):016x}"
        query.workers = [self.new_worker() for _ in range(self.choices.between(1, 3))]
        query.log = self._log or self.choices.pick(["changes", "commands"])
        driver, owner = query.workers[0], Owner(query.name, "simulated", token)

        def plan(job: Job) -> None:
            newest = VersionReader(driver.storage).newest()
            query.planned_on = ("", 0) if newest is None else (newest.state, newest.version)
            ownership.stay_alive(driver.storage, token)
            driver.tokens.add(token)
            query.owner, query.made = owner, 0
            job.outcomes = pa.table({})

        self.disk.note(f"{query.name} starts with {', '.join(worker.name for worker in query.workers)}")
        self.perform([Job(driver, Attempt(None, (), owner), query.keep_versions, run=plan)])
        return query.running

    def stop(self, query: Query, *, gently: bool) -> None:
        """The query ends: it lets go of the state, or its processes are killed; some may be left over."""
        self.disk.note(f"{query.name} {'stops' if gently else 'is killed'}")
        if gently and query.workers and not query.workers[0].dead:
            self._release(query)
        for worker in query.workers:
            if gently or self.choices.chance(70):
                worker.die()
        query.ended()

    def _release(self, query: Query) -> None:
        driver, newest = query.workers[0], self.ledger.newest
        self._maybe_released = newest

        def release(job: Job) -> None:
            released = ownership.release(driver.storage, query.name)
            if released:
                self._released = newest
            self._maybe_released = None
            job.outcomes = pa.table({})

        self.perform([Job(driver, Attempt(None, (), query.owner), query.keep_versions, run=release)])

    def batch_jobs(self, query: Query) -> list[Job]:
        """The query's next attempt, or several of the same batch at once."""
        query.workers = [worker for worker in query.workers if not worker.dead]
        if not query.workers:
            query.workers = [self.new_worker()]
        if query.planned is None:
            calls = self.choices.between(0 if query.batch else 1, 3) if query.calls else 1
            query.planned = [self._new_events() for _ in range(calls)]
            query.tried = False
        if query.made >= len(query.planned):  # a foreachBatch that does not call transact this time
            self._commit(query)
            return []
        assert query.owner is not None
        events = query.planned[query.made]
        where = (query.name, query.batch)
        applicant = (
            call_applicant(*where, query.made, *query.planned_on)
            if query.calls
            else stream_applicant(*where, *query.planned_on)
        )
        attempt = Attempt(applicant, events, query.owner)
        if query.calls and query.tried and self.choices.chance(50):  # computed anew, and come out differently
            attempt = replace(attempt, events=self._new_events())
        count = self.choices.weighted([(5, 1), (2, 2), (1, 3)])
        first = self.choices.below(len(query.workers))
        ready = query.workers[first:] + query.workers[:first]
        twins = [*ready, *(self.new_worker() for _ in range(count - len(ready)))][:count]
        answered: list[bool] = []

        def then(returned: bool) -> None:
            if returned and not answered and query.owner is attempt.owner:
                answered.append(True)
                query.made, query.previous = query.made + 1, attempt
                if query.planned is not None and query.made >= len(query.planned):
                    self._returned(query)

        query.tried = True
        return [
            Job(
                worker,
                shuffled(attempt, self.choices) if self.choices.chance(40) else attempt,
                query.keep_versions,
                query.log,
                then,
            )
            for worker in twins
        ]

    def _returned(self, query: Query) -> None:
        """All of a batch came back: Spark commits it, unless it is stopped just now."""
        if self.choices.chance(15):
            self.stop(query, gently=False)
        else:
            self._commit(query)

    def _commit(self, query: Query) -> None:
        self.disk.note(f"{query.name} commits its batch {query.batch}")
        query.batch, query.planned, query.made = query.batch + 1, None, 0

    def _new_events(self) -> tuple[Any, ...]:
        self.clock += 2
        size = self.choices.weighted([(4, 3), (3, 1), (2, 6), (1, 0)])
        return named(self.subject.events(self._contents, size, self.clock))

    def late_twin(self, query: Query) -> list[Job]:
        """A zombie of the batch before: it must change nothing."""
        if query.previous is None or query.previous.applicant is None:
            return []
        left_over = [worker for worker in self.workers if not worker.dead and worker.tokens]
        worker = self.choices.pick(left_over) if left_over and self.choices.chance(60) else self.new_worker()
        return [Job(worker, shuffled(query.previous, self.choices), query.keep_versions, query.log)]

    def frame_job(self) -> list[Job]:
        """A batch DataFrame, a new one or an action on an old one."""
        keep, log = self.choices.pick([1, 3, 100]), self.choices.pick(["changes", "commands"])
        self._keeps.append(keep)
        if self.frames and self.choices.chance(40):
            again = shuffled(self.choices.pick(self.frames), self.choices)
            return [Job(self.new_worker(), again, keep, log)]
        events = self._new_events() or self._new_events()
        if not events:
            return []
        self.frames.append(Attempt(once_applicant(f"frame-{len(self.frames)}"), events, None))
        return [Job(self.new_worker(), self.frames[-1], keep, log)]

    def load_job(self) -> list[Job]:
        """Rows to begin with."""
        attempt = Attempt(None, (), None, self.subject.loads())

        def load(job: Job) -> None:
            if job.worker.engine(self.subject, 100).initialise(self.subject.loaded()):
                self.ledger.certain = max(self.ledger.certain, 1)

        return [Job(self.new_worker(), attempt, 100, run=load)]

    # What goes wrong

    def damage(self) -> None:
        """A bit of some file flips."""
        names = [name for name in self.disk.names(FOLDER) if not name.startswith(".") and not name.endswith(".lock")]
        files = [path for path in (f"{FOLDER}/{name}" for name in names) if self.disk.content(path)]
        if files:
            path = self.choices.pick(files)
            inode, content = self.disk.inode(path), self.disk.content(path)
            assert inode is not None and content is not None
            self._damaged.setdefault(inode, content)
            self.disk.flip_bit(path)
            self.counts["flipped bits"] += 1

    def mend(self) -> None:
        """What was damaged comes back from a backup."""
        for inode, content in self._damaged.items():
            self.disk.put_back(inode, content)
        self._damaged = {}


def work_at_once(compactor: Compactor, wanted: tuple[int, int] | None, epoch: int | None) -> None:
    """What a compactor's thread does, here and now: a simulated process has no threads of its own."""
    compactor._wanted, compactor._epoch = wanted, epoch
    compactor._work()
