"""Exactly once, whatever is killed: the state is the oracle's, and every event has one outcome.

Streams run as programs of their own (`programs/`), because they are killed for real. `Books` says what must
come out. Random moments come from a seed that a failure shows.

    killed at random      the process group of driver and JVM, while batches run; every second time the
                          Python workers live on for a moment, as orphans that may still commit
    accidents             tasks that fail after the commit, lose their worker, run twice, change executor
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage
from tidegate.spark import await_outcome

from .ledgers import Books, Event, Inbox, balances, move, put, written

PROGRAMS = Path(__file__).parent / "programs"
BATCH_EVENTS = 200
START_SECONDS_MAX = 120.0


def random_batch(rng: random.Random, first_event: int) -> list[Event]:
    """Deposits and transfers among few accounts, many overdrawn, out of order, with ties in `ts`."""
    batch = []
    for event in range(first_event, first_event + BATCH_EVENTS):
        ts = first_event + rng.randrange(BATCH_EVENTS)
        amount = rng.randint(1, 100)
        if rng.random() < 0.4:
            batch.append(put(event, rng.randrange(20), amount, ts))
        else:
            batch.append(move(event, rng.randrange(20), rng.randrange(20), amount, ts))
    return batch


class KilledLedger:
    """The program `ledger.py` on a folder: input that grows, runs that are killed, and what must come out."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.inbox = Inbox(folder / "in")
        self.books = Books()
        self.checkpoint = folder / "query.checkpoint"
        self.batches = 0

    def add_batches(self, count: int) -> None:
        for _ in range(count):
            batch = random_batch(self.rng, self.batches * BATCH_EVENTS)
            self.inbox.add(batch)
            self.books.run(batch)
            self.batches += 1

    def count(self, what: str) -> int:
        """How many of a batch's three steps were taken: "offsets" planned, "change" applied, "commits" done."""
        folders = {"change": self.folder / "state", "offsets": self.checkpoint / "offsets"}
        folder = folders.get(what, self.checkpoint / "commits")
        names = [path.name for path in folder.glob("*")] if folder.is_dir() else []
        return sum(name.endswith(".change") if what == "change" else name.isdigit() for name in names)

    def run_and_kill(self, aimed: bool, leave_orphans: bool) -> str:
        """Start the program, kill it at a random moment after a batch took a step; says which and when.

        An aimed kill falls between our commit and Spark's, or misses by little: that is where a batch
        could be applied twice.
        """
        step = "change" if aimed else self.rng.choice(["offsets", "change", "commits"])
        wanted = self.count(step) + self.rng.randint(1, 3)
        delay = self.rng.uniform(0.0, 0.05 if aimed else 0.4)
        with self.started() as process:
            deadline = time.monotonic() + START_SECONDS_MAX
            while self.count(step) < wanted:
                assert process.poll() is None, f"it ended before it was killed\n{self.log()}"
                assert time.monotonic() < deadline, f"no batch came that far in time\n{self.log()}"
                time.sleep(0.005)
            time.sleep(delay)
            workers = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGKILL)
            if not leave_orphans:
                for worker in workers:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.kill()
        steps = " ".join(f"{name}={self.count(name)}" for name in ("offsets", "change", "commits"))
        return f"{delay:.2f} s after {step}={wanted} (then {steps})"

    def run_to_the_end(self) -> None:
        with self.started() as process:
            code = process.wait(timeout=START_SECONDS_MAX + 2 * self.batches)
        assert code == 0, self.log()

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, str(PROGRAMS / "ledger.py"), str(self.folder)]
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def check(self, spark: SparkSession) -> None:
        found = written(spark, self.folder)
        assert found == self.books.outcomes
        assert len(found) == self.batches * BATCH_EVENTS
        assert balances(spark, self.folder / "state") == self.books.balances
        for event, outcome in self.books.outcomes.items():  # and whoever asks for an event by its id finds the same
            assert await_outcome(self.folder / "state", event, timeout=0) == tg.Outcome(*outcome)
        # Spark may put two files into the batch after a crash, never one file into two batches.
        infos = VersionStore(open_storage(str(self.folder / "state"))).infos()
        assert all(earlier.batch < later.batch for earlier, later in itertools.pairwise(infos))
        assert infos[0].version > 1 or sum(info.events for info in infos) == len(found)


def kill_and_check(spark: SparkSession, folder: Path, seed: int, kills: int) -> list[str]:
    ledger = KilledLedger(folder, seed)
    moments = []
    for kill in range(kills):
        # Many more than a run may do before it is killed: it never ends by itself.
        ledger.add_batches(ledger.count("change") + 10 - ledger.batches)
        moments.append(ledger.run_and_kill(aimed=kill % 3 == 0, leave_orphans=kill % 2 == 1))
    ledger.run_to_the_end()
    try:
        ledger.check(spark)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, killed {'; '.join(moments)}") from error
    return moments


def test_a_ledger_killed_at_random_moments_ends_as_if_it_never_was(
    spark: SparkSession, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    moments = kill_and_check(spark, tmp_path, seed, kills=2)
    record_property("kills", len(moments))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_ledger_survives_many_kills(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    moments = kill_and_check(spark, tmp_path, seed, kills=25)
    sys.stdout.write(f"seed {seed}: survived {len(moments)} kills: {'; '.join(moments)}\n")


# --- accidents on two real executors -------------------------------------------------------------------


ACCIDENTS = ("retried", "worker lost", "twice", "moved")


@pytest.fixture(scope="module")
def accidents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Books]]:
    """All accidents happen in one program, since a cluster takes long to start."""
    folder = tmp_path_factory.mktemp("accidents")
    books = {}
    for name in ACCIDENTS:
        inbox, books[name] = Inbox(folder / name / "in"), Books()
        for number in range(6 if name == "moved" else 3):
            first = 100 * number
            batch = [put(first + i, i % 5, 20 + i) for i in range(10)]
            batch += [move(first + 10 + i, i % 5, (i + 1) % 5, 11 * i) for i in range(10)]
            if number == 1 or name == "moved":
                batch.append(put(first + 99, 1, 13))  # what the accidents wait for
            inbox.add(batch)
            books[name].run(batch)
    with open(folder / "log", "wb") as log:
        command = [sys.executable, str(PROGRAMS / "cluster.py"), str(folder)]
        code = subprocess.run(command, stdout=log, stderr=log, timeout=300, check=False).returncode
    assert code == 0, (folder / "log").read_text(errors="replace")[-6000:]
    return folder, books


@pytest.mark.parametrize("name", ACCIDENTS)
def test_after_an_accident_state_and_outcomes_are_the_oracles(
    spark: SparkSession, accidents: tuple[Path, dict[str, Books]], name: str
) -> None:
    folder, books = accidents
    assert written(spark, folder / name) == books[name].outcomes
    assert balances(spark, folder / name / "state") == books[name].balances
    batches = [info.batch for info in VersionStore(open_storage(str(folder / name / "state"))).infos()]
    assert batches == list(range(len(batches)))


def noted(accidents: tuple[Path, dict[str, Books]], name: str, what: str) -> list[dict[str, str]]:
    """What tasks of an accident noted, in time's order: batch, attempt and executor."""
    lines = (accidents[0] / name / "log").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["what"] == what]


def attempts(entries: list[dict[str, str]], batch: int) -> set[str]:
    return {entry["attempt"] for entry in entries if entry["batch"] == str(batch)}


def test_the_retried_task_had_outcomes_twice(accidents: tuple[Path, dict[str, Books]]) -> None:
    assert len(attempts(noted(accidents, "retried", "committed"), batch=0)) >= 2


def test_the_worker_that_was_lost_had_no_outcomes(accidents: tuple[Path, dict[str, Books]]) -> None:
    (died,) = noted(accidents, "worker lost", "died")
    committed = attempts(noted(accidents, "worker lost", "committed"), int(died["batch"]))
    assert committed and died["attempt"] not in committed


def test_the_speculative_task_and_its_twin_both_had_outcomes(accidents: tuple[Path, dict[str, Books]]) -> None:
    assert len(attempts(noted(accidents, "twice", "committed"), batch=1)) >= 2


def test_batches_moved_between_executors(accidents: tuple[Path, dict[str, Books]]) -> None:
    executors = [entry["executor"] for entry in noted(accidents, "moved", "committed")]
    assert len(set(executors)) == 2
    assert sum(earlier != later for earlier, later in itertools.pairwise(executors)) >= 2, executors
