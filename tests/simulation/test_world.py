"""Worlds around a state, one per seed: crashes, torn writes, rivals and damage, compared with the oracle.

A failure prints its seed and the story. The same seed again:

    TIDEGATE_SEED=17 pytest tests/simulation/test_world.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.version_log import Log
from tidegate.durability.version_reader import VersionReader
from tidegate.foundation.errors import StorageCorrupted
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import LocalStorage

from ..truth.choices import Choices
from ..truth.running import Record, chunks, name_of
from .actors import FOLDER, Job
from .histories import STEPS, live, live_shortly
from .ledgers import Attempt, Subject, ledger_events, named, subject
from .world import World

WORLDS, SOAK_WORLDS = 140, 4_000
FIRST_SOAK_SEED = 1_000_000
SOAK_SEEDS_OF_A_CRASH = 8


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with uncompiled():
        yield


@pytest.fixture
def ledger() -> Iterator[Subject]:
    with subject(0, random_program=False) as found:
        yield found


def tell(counts: Counter[str], record: Record) -> None:
    """What was met, for the line at the end of the test run."""
    record("compared simulated worlds", counts["worlds"])
    record("compared simulated crashes", counts["power failures"] + counts["restarts"])
    record("compared torn or lost writes", counts["torn"] + counts["lost"])
    record("compared repeated batches", counts["repeats"])


def run_worlds(seeds: range, record: Record, steps: int = STEPS) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += live(seed, steps).counts
    tell(counts, record)
    if len(seeds) > 1:
        assert counts["repeats"] and counts["power failures"] and counts["torn"] and counts["refusals"]


@pytest.mark.parametrize("seeds", chunks(0, WORLDS, 20), ids=name_of)
def test_whatever_happens_the_state_is_a_prefix_of_what_was_applied(seeds: range, record_property: Record) -> None:
    run_worlds(seeds, record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(FIRST_SOAK_SEED, SOAK_WORLDS, 250), ids=name_of)
def test_whatever_happens_in_thousands_of_longer_worlds(seeds: range, record_property: Record) -> None:
    run_worlds(seeds, record_property, 3 * STEPS)


def test_a_seed_tells_the_same_story_every_time() -> None:
    for seed in (3, 4):
        assert live(seed).disk.describe() == live(seed).disk.describe()


def crash_everywhere(program: Subject, power_failure: bool, seed: int, record: Record, log: Log = "changes") -> None:
    calls = live_shortly(program, seed=seed, log=log).counts["calls"]
    assert calls > 100
    counts: Counter[str] = Counter()
    for call in range(calls):
        world = live_shortly(program, call, power_failure=power_failure, seed=seed, log=log)
        assert world.counts["power failures"] + world.counts["restarts"] == 2  # at the call, and at the end
        counts += world.counts + world.disk.struck
    tell(counts, record)


@pytest.mark.parametrize("log", ["changes", "commands"])
@pytest.mark.parametrize("power_failure", [True, False], ids=["power fails", "processes die"])
def test_a_crash_at_any_call_of_a_short_life_loses_nothing_that_was_acknowledged(
    ledger: Subject, record_property: Record, power_failure: bool, log: Log
) -> None:
    crash_everywhere(ledger, power_failure, 0, record_property, log)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, SOAK_SEEDS_OF_A_CRASH + 1))
def test_a_crash_at_any_call_of_a_short_life_with_other_losses(
    ledger: Subject, record_property: Record, seed: int
) -> None:
    crash_everywhere(ledger, True, seed, record_property)


def stream_job(world: World, worker: int, batch: int) -> Job:
    events = named(ledger_events(Choices(batch), 3, 10 + batch))
    attempt = Attempt(stream_applicant("q", batch), events, Owner("q", "simulated", "token"))
    return Job(world.workers[worker], attempt, 2)


@pytest.mark.parametrize("late", [False, True], ids=["before the call", "after the call"])
def test_what_a_warm_twin_says_of_a_batch_whose_maker_died_survives_the_power(ledger: Subject, late: bool) -> None:
    """The first attempt dies at any of its calls, a warm twin gives the outcomes, and then the power fails."""
    dead = True
    for call in range(100):
        world = World(("twin", call), ledger, choices=Choices(replay=()))
        with world.living():
            world.sudden = 0
            maker, twin = world.new_worker(), world.new_worker()
            for job in (stream_job(world, 0, 0), stream_job(world, 1, 0)):
                world.perform([job])
            maker.dies_in, maker.dies_late = call, late
            world.perform([stream_job(world, 0, 1)])
            dead = maker.dead
            told = stream_job(world, 1, 1)
            world.perform([told])
            assert told.outcomes is not None and not twin.dead
            world.restart(power_failure=True)
            assert world.ledger.newest == 2
        if not dead:
            break
    assert not dead


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_a_flipped_bit_anywhere_in_what_is_read_is_noticed(
    ledger: Subject, stride: int, record_property: Record
) -> None:
    world = live_shortly(ledger)
    files = [f"{FOLDER}/{name}" for name in world.disk.names(FOLDER) if name.endswith((".change", ".snapshot"))]
    noticed: Counter[str] = Counter()
    for path in files:
        inode, content = world.disk.inode(path), world.disk.content(path)
        assert inode is not None and content is not None
        version = int(path.rsplit("/", 1)[1][:12])
        for offset in range(0, len(content), stride):
            world.disk.flip_bit(path, offset)
            reader = VersionReader(LocalStorage(FOLDER, disk=world.disk))
            try:
                world.ledger.compare(reader, version)
            except StorageCorrupted as error:
                noticed[path] += path in str(error)
            world.disk.put_back(inode, content)
        if path.endswith(".snapshot") or f"{path[:-6]}snapshot" not in files:  # else the snapshot is read instead
            assert noticed[path] == len(range(0, len(content), stride)), path
    record_property("compared flipped bits", sum(noticed.values()))
    assert noticed
