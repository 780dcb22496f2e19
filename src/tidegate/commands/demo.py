"""`tidegate demo`: a streaming ledger on Spark, from event files to verified outcomes.

    generator thread ── parquet files ──> readStream ── transact ──> parquet sink
                                                           │
                                                         state

A generator writes one file after the other while the query runs, one file in each micro-batch. The
live table shows what Spark reports for each batch and what arrived in the sink. When all events are
through, the stream stops, and outcomes and state are compared with the plain Python functions, which
run over the same events one by one. The exit code says whether they agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlparse

import typer
from rich.console import Console
from rich.live import Live

from tidegate.commands.demo_view import DemoProgress, live_table, verdict_panel
from tidegate.commands.literal import literal
from tidegate.foundation.errors import InputError, TidegateError

if TYPE_CHECKING:
    from tidegate.workloads.ledger import LedgerSettings, Verdict

_LOOKS_PER_SECOND = 5


def demo(
    events: Annotated[int, typer.Option(min=1, help="Events to run through the ledger.")] = 1_000_000,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts that share them.")] = 10_000,
    batch_rows: Annotated[int, typer.Option(min=1, help="Events in each micro-batch.")] = 50_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 1,
    keep: Annotated[
        Path | None, typer.Option(help="Keep events, outcomes and state in this (new or empty) folder.")
    ] = None,
) -> None:
    """Run a streaming ledger on Spark: deposits, transfers, some of them overdrawn.

    Shows events per second, batch latency, and what committed and aborted, live. At the end it checks
    that money was conserved, that every event has exactly one outcome, and that outcomes and state
    equal what the plain Python functions give. It stops by itself.

    Examples:

    * `tidegate demo`

    * `tidegate demo --events 5000000 --batch-rows 200000`

    * `tidegate demo --keep ledger` and then `tidegate state ls ledger/state`
    """
    from tidegate.workloads.ledger import LedgerSettings

    console = Console()
    settings = LedgerSettings(accounts=accounts, seed=seed)
    with _folder(keep) as folder:
        run = _Demo(console, folder, settings, events, batch_rows)
        verdict = run.run()
        console.print(verdict_panel(verdict, run.progress))
        if keep is not None:
            console.print(literal(f"kept in {folder}; look at it with: tidegate state ls {folder / 'state'}"))
    if not verdict.holds:
        raise typer.Exit(1)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tidegate-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(
            f"{keep}: required a new or an empty folder for the demo's files, found something there. "
            "Choose another folder or remove this one."
        )
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


@dataclass(slots=True)
class _SinkLog:
    """Counts what the parquet sink received, by the sink's own log of the files that belong to it."""

    folder: Path
    seen: set[str]

    def new_files(self) -> list[str]:
        """Files that the sink committed since the last call."""
        log = self.folder / "_spark_metadata"
        entries = sorted(log.iterdir()) if log.is_dir() else []
        found = []
        for entry in entries:
            if entry.name in self.seen or not entry.name.split(".")[0].isdigit():
                continue
            self.seen.add(entry.name)
            for line in entry.read_text().splitlines()[1:]:
                path = unquote(urlparse(json.loads(line)["path"]).path)
                if path not in self.seen:
                    self.seen.add(path)
                    found.append(path)
        return found


class _Demo:
    """One run of the demo in one folder."""

    def __init__(self, console: Console, folder: Path, settings: LedgerSettings, events: int, batch_rows: int) -> None:
        self.console = console
        self.folder = folder
        self.settings = settings
        self.events = events
        self.batch_rows = batch_rows
        self.progress = DemoProgress(events)
        self._sink = _SinkLog(folder / "out", set())
        self._stopping = threading.Event()
        self._writer_error: BaseException | None = None

    def run(self) -> Verdict:
        """Everything from the first event file to the verdict."""
        import psutil

        from tidegate.workloads.ledger import EventGenerator

        started = psutil.Process().create_time()
        opening = EventGenerator(self.settings).opening()
        (self.folder / "in").mkdir()
        writer = threading.Thread(target=self._write_events, name="event-generator", daemon=True)
        writer.start()
        try:
            self.console.print("starting Spark", style="dim")  # no spinner: the JVM may print, too
            from tidegate.spark import session

            config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
            spark = session("tidegate demo", config=config)
            query = self._start(spark, opening)
            self._watch(query, started)
        finally:
            self._stopping.set()
            writer.join()
        with self.console.status("comparing with the plain Python functions, one event after the other"):
            return self._verify(spark, opening)

    def _start(self, spark: Any, opening: Any) -> Any:
        from tidegate.spark import transact
        from tidegate.workloads import ledger

        reader = spark.readStream.schema(ledger.SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        outcomes = transact(
            reader.parquet(str(self.folder / "in")),
            ledger.PROGRAM,
            state=str(self.folder / "state"),
            order_by="ts",
            initial={ledger.Account: opening},
        )
        writer = outcomes.writeStream.format("parquet").queryName("ledger")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.start(str(self.folder / "out"))

    def _write_events(self) -> None:
        """Write one file of events after the other; runs in a thread of its own."""
        import pyarrow.parquet as pq

        from tidegate.workloads.ledger import EventGenerator

        try:
            generator = EventGenerator(self.settings)
            base = time.time() - self.events / self.batch_rows
            for index, table in enumerate(generator.batches(self.events, self.batch_rows)):
                if self._stopping.is_set():
                    return
                hidden = self.folder / "in" / f"_{index:06d}.parquet"
                pq.write_table(table, hidden)
                # Spark takes files in the order of their time stamps, which it reads in whole seconds.
                os.utime(hidden, (base + index, base + index))
                hidden.rename(hidden.with_name(hidden.name[1:]))
        except BaseException as error:
            self._writer_error = error

    def _watch(self, query: Any, started: float) -> None:
        """Redraw the live table until all events are through, then stop the query."""
        with Live(console=self.console, auto_refresh=False) as live:
            try:
                while self.progress.events < self.events:
                    failed = query.exception()
                    if failed is not None or self._writer_error is not None or not query.isActive:
                        raise TidegateError(f"the demo's query stopped: {failed or self._writer_error}")
                    self._look(query, started)
                    live.update(live_table(self.progress, "running"), refresh=True)
                    time.sleep(1 / _LOOKS_PER_SECOND)
                query.processAllAvailable()
            finally:
                query.stop()
            self._look(query, started)
            live.update(live_table(self.progress, "done"), refresh=True)
        if not self.console.is_terminal:
            self.console.print()

    def _look(self, query: Any, started: float) -> None:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        for report in query.recentProgress:
            if report["numInputRows"] > 0:
                seconds = report["durationMs"]["triggerExecution"] / 1000
                self.progress.add_batch(report["batchId"], report["numInputRows"], seconds)
        if self.progress.rows and self.progress.first_batch_after is None:
            self.progress.first_batch_after = time.time() - started
        for file in self._sink.new_files():
            table = pq.read_table(file, columns=["committed", "reason"])
            self.progress.committed += pc.sum(table["committed"]).as_py() or 0
            for reason in pc.value_counts(table["reason"].drop_null()).to_pylist():
                self.progress.aborted[reason["values"]] += reason["counts"]

    def _verify(self, spark: Any, opening: Any) -> Verdict:
        from tidegate.spark import read_state
        from tidegate.workloads import ledger

        batches = ledger.EventGenerator(self.settings).batches(self.events, self.batch_rows)
        columns = ("event", "committed", "reason", "result")
        outcomes = spark.read.parquet(str(self.folder / "out")).select(*columns).toArrow()
        state = read_state(spark, str(self.folder / "state"), ledger.Account).toArrow()
        return ledger.verify(opening, batches, outcomes, state)
