"""What durability costs: calls beside the disk itself, and batches beside memory.

One transaction a call (`execute`): the other side is what a disk can do at all for one caller, a bare append:

    append       24 bytes written at the end of a file, and fdatasync, again and again
    one caller   transfers of a ledger, each on the disk when its call returns (sync="group")
    16 callers   the same from 16 threads: calls share syncs

and for comparison `always`, with a sync for each call, `never`, without any, and appends into space that was allocated
before, as the log does it: such a sync need not store the file's new size each time. Batches (`run`): there are two
other sides, and durable batches can be no faster than the slower of them:

    memory       the same batches in an engine without a directory
    disk         as many bytes as the log takes, in as many writes, each synced
    durable      batches that are on the disk when `run` returns

After each run the live rows, and those that come back from what a kill would leave of the directory, must be the rows
of the plain functions. Transfers from many threads run in any order; no account can be overdrawn here, so every order
gives the same rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import tidegate as tg
from tidegate.benchmarks.bars import Bar
from tidegate.benchmarks.harness import Experiment, Report, Variant
from tidegate.benchmarks.state_folders import Template, log_frames, make_template, require_recovered, require_rows
from tidegate.workloads import ledger, streaming_ledger

Sync = Literal["group", "always", "never"]
SYNCS: tuple[Sync, ...] = ("group", "always", "never")

APPEND, ALLOCATED, ONE, MANY = "append", "append, allocated", "one caller", "16 callers"
ALWAYS, NEVER = "one caller, always", "one caller, never"
MEMORY, DISK, DURABLE = "memory", "disk", "durable"

APPENDED = b"\x5a" * 24
CALLERS = 16
ONE_BAR, MANY_BAR = 0.6, 5.0
"""One caller beside a bare append, and 16 callers beside one."""

BYTES_BAR = 40.0
"""Bytes of log for one transaction."""

BATCH_BAR = 0.7
"""Durable batches beside the slower of memory and disk."""

ALLOCATED_BYTES = 4 << 20


# --- one transaction a call ---------------------------------------------------------------------------------------


def execute_experiment(folder: Path, *, calls: int, seed: int) -> Experiment:
    """The declaration: `calls` transfers, from one thread and from several, beside as many appends."""
    settings = ledger.LedgerSettings(
        transfer_ratio=1.0, overdraw_ratio=0.0, theta=0.0, opening_balance=10**9, seed=seed
    )
    generator = ledger.EventGenerator(settings)
    opening, events = generator.opening(), generator.batch(calls)
    truth = ledger.Truth(opening)
    truth.run(events)
    template = make_template(ledger.PROGRAM, {ledger.Account: opening}, folder)
    arguments = events.select(["src", "dst", "amount"]).to_pylist()
    by_thread = [(ONE, 1, "group"), (MANY, CALLERS, "group"), (ALWAYS, 1, "always"), (NEVER, 1, "never")]
    return Experiment(
        name="durable-execute",
        title="One transaction a call, on the disk when it returns",
        items=calls,
        item="call",
        variants=[
            *(
                Variant(
                    name, prepare=partial(_file, folder, size), run=partial(_append, calls), verify=_verify_appended
                )
                for name, size in ((APPEND, 0), (ALLOCATED, ALLOCATED_BYTES))
            ),
            *(
                Variant(
                    name,
                    prepare=partial(template.open_copy, sync=sync),
                    run=partial(_call, arguments, threads),
                    verify=partial(template.require_durable, {ledger.Account: truth.state()}, name),
                )
                for name, threads, sync in by_thread
            ),
        ],
        bars={ONE: ONE_BAR},
        settings={"calls": calls, "accounts": settings.accounts, "callers": CALLERS},
        seed=seed,
    )


def execute_bar(report: Report) -> Bar:
    """How many times as many calls a second 16 callers make."""
    faster = report[ONE].seconds_median / report[MANY].seconds_median
    return Bar(f"{MANY} ÷ {ONE}, calls per second", faster, "≥", MANY_BAR)


def _call(arguments: Sequence[Mapping[str, int]], threads: int, prepared: tuple[tg.Engine, Path]) -> None:
    engine = prepared[0]

    def work(first: int) -> None:
        for given in arguments[first::threads]:
            engine.execute(ledger.transfer, **given)

    if threads == 1:
        work(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def _file(folder: Path, size: int) -> tuple[int, Path]:
    """A new file, with space allocated for `size` bytes."""
    descriptor, name = tempfile.mkstemp(dir=folder)
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    os.fsync(descriptor)
    return descriptor, Path(name)


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _append(count: int, prepared: tuple[int, Path]) -> int:
    descriptor, offset = prepared[0], 0
    for _ in range(count):
        offset += os.pwrite(descriptor, APPENDED, offset)
        _sync(descriptor)
    return offset


def _verify_appended(prepared: tuple[int, Path], size: int) -> None:
    descriptor, path = prepared
    os.close(descriptor)
    if path.read_bytes()[:size] != APPENDED * (size // len(APPENDED)):
        raise AssertionError(f"{path.name}: what was appended is not there")
    path.unlink()


# --- bytes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogSize:
    """What the log took for a workload's transactions, each called alone."""

    workload: str
    sync: Sync
    transactions: int
    size: int

    @property
    def bar(self) -> Bar:
        """Bytes for one transaction."""
        what = f"bytes of log per transaction, {self.workload}, sync={self.sync!r}"
        return Bar(what, self.size / self.transactions, "≤", BYTES_BAR)


def log_sizes(folder: Path, *, calls: int, seed: int) -> list[LogSize]:
    """The log of both ledgers for each `sync`: one caller, so that every call is a write of its own."""
    generator = ledger.EventGenerator(ledger.LedgerSettings(seed=seed))
    streaming = streaming_ledger.StreamingLedger(
        streaming_ledger.LedgerSettings(cost_us=0.0, abort_ratio=0.0, theta=0.2, batch_events=calls, seed=seed)
    )
    opening: Mapping[type, pa.Table] = {ledger.Account: generator.opening()}
    return [
        _log_size(name, folder, sync, program, tables, events)
        for name, program, tables, events in (
            ("ledger", ledger.PROGRAM, opening, generator.batch(calls)),
            (streaming.name, streaming.program, streaming.opening(), streaming.batch(0)),
        )
        for sync in SYNCS
    ]


def _log_size(
    name: str, folder: Path, sync: Sync, program: Sequence[Any], tables: Mapping[type, pa.Table], events: pa.Table
) -> LogSize:
    template = make_template(program, tables, folder)
    by_name = {each.__name__: each for each in program}
    path = template.copy()
    beside = tg.Engine(program)  # the same calls in memory: what the directory must come back as
    for table, rows in tables.items():
        beside.load(table, rows)
    committed = 0
    with template.open(path, sync=sync) as engine:
        for event in events.to_pylist():
            transaction = by_name[event["transaction"]]
            arguments = {each.name: event[each.name] for each in transaction.plan.parameters}
            outcome = engine.execute(transaction, **arguments)
            if outcome != beside.execute(transaction, **arguments):
                raise AssertionError(f"{name}: an outcome differs from that of an engine in memory")
            committed += outcome.committed
        sizes = log_frames(path)
        require_recovered(template, path, {table: beside.scan(table) for table in tables}, name)
    return LogSize(name, sync, committed, sum(sizes))


# --- batches --------------------------------------------------------------------------------------------------------


def batch_experiment(folder: Path, *, batches: int, events: int, seed: int) -> Experiment:
    """The declaration: `batches` of `events` ledger events each, in memory, durable, and as bytes for the disk."""
    generator = ledger.EventGenerator(ledger.LedgerSettings(seed=seed))
    opening = generator.opening()
    fed = [generator.batch(events) for _ in range(batches)]
    truth = ledger.Truth(opening)
    wanted = [truth.run(batch) for batch in fed]
    rows: Mapping[type, pa.Table] = {ledger.Account: truth.state()}
    template = make_template(ledger.PROGRAM, {ledger.Account: opening}, folder)
    sizes = _frames_of(template, fed[0]) * batches  # batches of one size take the same, but for some bytes

    def run(prepared: tuple[tg.Engine, Path | None]) -> list[pa.Table]:
        return [prepared[0].run(batch, order_by="ts") for batch in fed]

    def verify_memory(prepared: tuple[tg.Engine, None], outcomes: list[pa.Table]) -> None:
        _verify_outcomes(outcomes, wanted, MEMORY)
        require_rows(prepared[0].scan(ledger.Account), rows[ledger.Account], MEMORY)

    def verify_durable(prepared: tuple[tg.Engine, Path], outcomes: list[pa.Table]) -> None:
        _verify_outcomes(outcomes, wanted, DURABLE)
        template.require_durable(rows, DURABLE, prepared, outcomes)

    return Experiment(
        name="durable-batches",
        title=f"Batches of {events:,} ledger events, on the disk when they return",
        items=batches,
        item="batch",
        variants=[
            Variant(MEMORY, prepare=lambda: (ledger.engine(opening), None), run=run, verify=verify_memory),
            Variant(DISK, prepare=partial(_file, folder, sum(sizes)), run=partial(_write, sizes), verify=_verify_file),
            Variant(DURABLE, prepare=template.open_copy, run=run, verify=verify_durable),
        ],
        settings={"batches": batches, "events": events, "log_bytes": sum(sizes), "syncs": len(sizes)},
        seed=seed,
    )


def batch_bar(report: Report) -> Bar:
    """Durable batches beside the slower of the two that they cannot beat."""
    slower = max(report[MEMORY].seconds_median, report[DISK].seconds_median)
    share = slower / report[DURABLE].seconds_median
    return Bar("durable batches ÷ the slower of memory and disk", share, "≥", BATCH_BAR)


def _frames_of(template: Template, batch: pa.Table) -> list[int]:
    """What the log of one batch is made of."""
    engine, path = template.open_copy(sync="never")
    with engine:
        engine.run(batch, order_by="ts")
        sizes = log_frames(path)
    shutil.rmtree(path)
    return sizes


def _verify_outcomes(outcomes: Sequence[pa.Table], wanted: Sequence[pa.Table], what: str) -> None:
    for found, expected in zip(outcomes, wanted, strict=True):
        require_rows(found, expected, what)


def _write(sizes: Sequence[int], prepared: tuple[int, Path]) -> int:
    descriptor, offset = prepared[0], 0
    data = memoryview(bytes(range(256)) * (max(sizes) // 256 + 1))
    for size in sizes:
        rest = data[:size]
        while len(rest):
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        _sync(descriptor)
    return offset


def _verify_file(prepared: tuple[int, Path], size: int) -> None:
    descriptor, path = prepared
    os.close(descriptor)
    if path.stat().st_size < size:
        raise AssertionError(f"{path.name}: what was written is not there")
    path.unlink()
