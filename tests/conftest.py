"""Fixtures that tests of several packages share: one local Spark, code that is not compiled, a disk soon full."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from . import numba_interfaces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent

hypothesis.settings.register_profile("tidegate", deadline=None)  # a first call may compile
hypothesis.settings.load_profile("tidegate")

# For every Java that tests start: none runs long enough to be repaid for what its second compiler takes.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

LONGEST_FIRST = (
    "spark/test_exactly_once.py",
    "documentation/test_pages.py",
    "spark/test_identity.py",
    "truth/test_random_programs.py",
    "spark/test_quickstart.py",
    "simulation/test_world.py",
    "truth/test_random_steps.py",
    "spark/test_transact_streaming.py",
    "engine/test_stages.py",
    "truth/test_compiled_programs.py",
    "engine/test_execute.py",
    "durability/test_logged.py",
    "engine/graphs/test_walk.py",
    "golden/test_golden.py",
    "truth/test_random_graphs.py",
    "engine/graphs/test_lookup.py",
    "foundation/test_jit.py",
    "spark/test_session.py",
    "durability/test_version_log.py",
    "durability/test_replayed_calls.py",
    "engine/test_mixed_programs.py",
    "spark/test_random_graphs.py",
    "engine/execution/test_strategies.py",
    "engine/execution/test_stress.py",
    "truth/test_logged_programs.py",
    "benchmarks/test_spark_logging.py",
    "commands/test_bench_durability.py",
    "golden/test_golden_graphs.py",
)
"""A process takes the next file when it has done one: what takes long must not be what is left at the end."""


NOT_QUICK = (
    *LONGEST_FIRST,
    "benchmarks",
    "commands/test_bench.py",
    "commands/test_bench_strategies.py",
    "commands/test_schedule.py",
    "commands/test_state.py",
    "compiler/test_slicing.py",
    "documentation",
    "durability/test_compactor.py",
    "durability/test_crashes.py",
    "durability/test_log_format.py",
    "durability/test_log_reading.py",
    "durability/test_protocol.py",
    "durability/test_s3.py",
    "durability/test_versioned_commands.py",
    "engine/adaptation/test_punctuation.py",
    "engine/graphs/test_history.py",
    "engine/graphs/test_steps.py",
    "engine/kernels/test_execution.py",
    "engine/kernels/test_windows.py",
    "foundation/test_remote_storage.py",
    "simulation",
    "spark",
    "truth",
    "users",
)
"""Files, and folders of them, that `make quick` leaves out: they start processes, or compile or compare for long."""

QUICK_TOO = ("test_generated_code_equals_the_plain_functions[0-59]", "test_generated_code_equals_the_model[0-9]")
"""Of these files, the tests that it runs all the same: the first of many random programs."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the quick tests, and start with the files that take longest."""
    ranks = {FOLDER / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    slow = {FOLDER / name for name in NOT_QUICK}
    for item in items:
        chosen = item.name in QUICK_TOO or slow.isdisjoint((item.path, *item.path.parents))
        if chosen and item.get_closest_marker("soak") is None:
            item.add_marker("quick")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where Numba changed what Tidegate cannot be imported without, say that, and nothing else."""
    if hasattr(session.config, "workerinput"):
        return  # the process that started this one asked
    found = numba_interfaces.changes()
    if found:
        pytest.exit(numba_interfaces.advice(found), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler: a job in the background ignores the signal."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark on two cores for all tests of this process; its UI is off, its shuffles small."""
    from tidegate.spark import session

    warehouse = tmp_path_factory.mktemp("warehouse")
    spark = session(
        "tidegate-tests",
        config={
            "spark.master": "local[2]",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # each plan runs once on few rows: generated Java never pays
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.ui.enabled": "false",
        },
    )
    yield spark
    spark.stop()


@pytest.fixture
def plainly() -> Iterator[None]:
    """Generated code runs as plain Python: compiling a graph takes seconds."""
    from tidegate.foundation.jit import uncompiled

    with uncompiled():
        yield


@pytest.fixture(params=["compiled", "uncompiled"])
def mode(request: pytest.FixtureRequest) -> None:
    """The test runs twice: on machine code, and on the same generated code as plain Python."""
    if request.param == "uncompiled":
        request.getfixturevalue("plainly")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB; mounting one needs privileges that not every machine gives."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tidegate-test", str(mounted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)  # this process may hold a lock there until it ends


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many random programs were compared; tests tell by `record_property`, from any process.

    It stands here because the process that reports collects no tests, and so sees no other conftest.
    """
    totals: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, value in report.user_properties:
                    if str(name).startswith("compared "):
                        totals[name.removeprefix("compared ")] += value
    if totals:
        parts = ", ".join(f"{count:,} {name}" for name, count in totals.items())
        terminalreporter.write_line(f"compared on random input with the oracle or serial execution: {parts}")
