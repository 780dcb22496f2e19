"""Who acts in a world: processes with engines, streaming queries with checkpoints, and what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log
from tidegate.durability.versioned import VersionedEngine
from tidegate.foundation.errors import TidegateError
from tidegate.foundation.storage import LocalStorage

from .disk import SimulatedDisk
from .ledgers import Attempt, Subject
from .processes import Process

FOLDER = "/data/state"


class Worker(Process):
    """A process with its engines and what it is busy with."""

    def __init__(
        self,
        disk: SimulatedDisk,
        pid: int,
        on_call: Callable[[Process], None],
        on_link: Callable[[Process, str], None],
    ) -> None:
        super().__init__(disk, pid, on_call, on_link)
        self.storage = LocalStorage(FOLDER, disk=self)
        self.engines: dict[tuple[int, Log], VersionedEngine] = {}
        self.tokens: set[str] = set()
        self.attempt: Attempt | None = None
        self.linked: list[int] = []  # versions that this attempt made
        self.made = 0  # and all attempts of the job
        self.saw_stale = False

    def engine(self, subject: Subject, keep_versions: int, log: Log = "changes") -> VersionedEngine:
        """The warm engine, or a new one."""
        key = (keep_versions, log)
        if key not in self.engines:
            self.engines[key] = VersionedEngine(subject.program, self.storage, keep_versions, workers=1, log=log)
        return self.engines[key]


@dataclass
class Query:
    """A streaming query and its checkpoint: `batch` is the first one that is not committed there."""

    name: str
    calls: bool  # a foreachBatch with calls of transact, else one transact in the plan
    keep_versions: int
    log: Log = "changes"  # what the versions of this start of it keep
    owner: Owner | None = None
    workers: list[Worker] = field(default_factory=list)
    planned_on: tuple[str, int] = ("", 0)
    batch: int = 0
    planned: list[tuple[Any, ...]] | None = None  # the events of each call
    tried: bool = False
    made: int = 0  # calls of this batch that returned since the query was started
    previous: Attempt | None = None
    stuck: bool = False

    @property
    def running(self) -> bool:
        return self.owner is not None

    def ended(self) -> None:
        """No driver any more: what it had in memory is gone."""
        self.owner, self.workers, self.made = None, [], 0


@dataclass
class Job:
    """An attempt, by a worker, and what becomes of it."""

    worker: Worker
    attempt: Attempt
    keep_versions: int
    log: Log = "changes"
    then: Callable[[bool], None] = lambda _: None
    run: Callable[[Job], None] | None = None
    outcomes: pa.Table | None = None
    error: TidegateError | None = None
    bug: BaseException | None = None
    blocked: bool = False
    repeated: bool = False
