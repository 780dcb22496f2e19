"""An engine with a command log on a disk that crashes, tears, lies and is full: nothing that was answered is lost.

One seed draws a program, the engine's options, commands, and what goes wrong at which call of the disk. Beside the
engine stands a ledger of plain Python (`ledger`). It keeps all states that the engine may be found in:

    history     s0 ── s1 ── s2 ── s3 ── s4         the states after the commands since the state was opened
    certain           ^                            nothing before this one may be found after a loss of power
    acknowledged                  ^                ... nor before this one when a process has ended
                                        ^          s4 is the state after the command that was under way

However a life of the engine ends (a crash, the power, a refusal, a close), the next one must find one of these states,
and may refuse to open only if the disk failed meanwhile, or a bit was flipped; then it names the file. Checkpoints run
at once instead of in a thread, so everything happens in one thread and depends on the seed alone. One seed again:

    TIDEGATE_SEED=1234 pytest tests/simulation/test_logged_world.py
"""

from __future__ import annotations

import contextlib
import os
import random
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

import tidegate as tg
from tidegate.durability import command_log, logged
from tidegate.durability.logged import LoggedEngine
from tidegate.durability.tasks import Task, done
from tidegate.foundation import appending
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import LocalStorage

from .disk import Faults, SimulatedCrash, SimulatedDisk
from .ledger import Command, Ledger, Refused, draw, perform, program, state_of
from .seeded_ids import seeded_ids

WORLDS, SOAK_WORLDS = 240, 6_000
FOLDER = "/state"
T = TypeVar("T")
CALM = Faults()
WEATHER = (
    Faults(crash=0.02),
    Faults(crash=0.004),
    Faults(crash=0.01, short_write=0.3),
    Faults(crash=0.005, sync_fails=0.04),
    Faults(crash=0.005, folder_sync_fails=0.1, naming_fails=0.05),
    Faults(crash=0.005, disk_full=0.1),
    Faults(crash=0.005, read_error=0.03),
    Faults(crash=0.01, link_repeated=0.3, stale_listing=0.3),
    Faults(0.003, 0.02, 0.02, 0.03, 0.0, 0.01, 0.1, 0.02, 0.1),
)


class _Ended:
    """A task that has ended."""

    def join(self) -> None:
        pass

    def is_alive(self) -> bool:
        return False


class AtOnce:
    """Work beside an engine's calls that is done before they go on; a crash in it is one of the engine."""

    def start(self, action: Callable[[], None]) -> Task:
        action()
        return _Ended()

    def submit(self, action: Callable[[], T]) -> Future[T]:
        return done(action)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def small_and_alike(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files grow by little, and what is random or the time outside of the simulation is the same each time."""
    monkeypatch.setattr(appending, "STEP_SIZE", 2048)
    monkeypatch.setattr(logged, "EARLY_BYTES", logged.EARLY_BYTES)  # worlds set it, and this undoes it
    for module in (logged, command_log):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(time=lambda: 1_700_000_000.0))
    with uncompiled(), seeded_ids(random.Random(0)):
        yield


class World:
    """A disk, an engine that lives on it again and again, and the states in which it may be found."""

    def __init__(self, seed: int, faults: Faults, crash_at: int | None = None) -> None:
        self.choices = random.Random(seed)
        self.disk = SimulatedDisk(seed, faults, crash_at=crash_at, by_sectors=True)
        self.faults = faults
        self.history, self.certain, self.acknowledged = [Ledger()], 0, 0
        self.compiled = self.choices.random() < 0.8
        logged.EARLY_BYTES = self.choices.choice([1, 1 << 20])  # batches are logged before they run, or behind that
        self.engine: LoggedEngine | None = None
        self.options: tuple[str, str] | None = None
        self.sync: Any = "group"
        self.lives = 0

    # --- lives of the engine

    def open(self) -> LoggedEngine:
        """Open the state, and require that it is one of those that it may be."""
        drawn = self.choices.choice(["group", "always", "never"]), self.choices.choice(["weak", "strong"])
        recovery: Any
        self.sync, recovery = self.options or drawn
        storage = LocalStorage(FOLDER, self.disk)
        kept = self.choices.choice([1, 2, 5])
        engine = LoggedEngine(
            program(self.compiled), storage, recovery, self.sync, background=AtOnce(), keep_versions=kept
        )
        found = state_of(engine)
        known = [state.plain() for state in self.history]
        may_be = known[self.acknowledged :]
        problem = "what was acknowledged is lost" if found in known else "that never was"
        assert found in may_be, f"found {found}: {problem}; may be {may_be}"
        self.history = [self.history[len(known) - 1 - known[::-1].index(found)]]
        self.certain = self.acknowledged = 0
        self.engine, self.lives = engine, self.lives + 1
        return engine

    def command(self, command: Command) -> None:
        """Let the engine do something; an error that is raised has its cause, and has changed nothing or may have."""
        assert self.engine is not None
        try:
            after, wanted = self.history[-1].apply(command)
        except Refused:
            with pytest.raises(tg.InputError):
                perform(self.engine, command)
            return
        self.history.append(after)
        try:
            got = perform(self.engine, command)
        except tg.StorageUncertain:
            raise
        except tg.StorageFailed:
            self.history.pop()
            assert state_of(self.engine) == self.history[-1].plain(), "a command that was refused changed something"
            raise
        assert got == wanted, f"{command}: {got} instead of {wanted}"
        self.acknowledged = len(self.history) - 1
        if self.sync != "never" or not self.compiled:
            self.certain = self.acknowledged

    def look(self) -> None:
        assert self.engine is not None
        assert state_of(self.engine) == self.history[-1].plain()

    def checkpoint(self) -> None:
        assert self.engine is not None
        self.engine.checkpoint()

    def live(self, commands: int) -> None:
        """One life: from opening to some end."""
        engine = self.open()
        try:
            for _ in range(commands):
                drawn = self.choices.random()
                try:
                    if drawn < 0.8:
                        self.command(draw(self.choices))
                    else:
                        self.look() if drawn < 0.9 else self.checkpoint()
                except tg.StorageUncertain:
                    raise
                except tg.StorageFailed:
                    self.require_cause()
            if self.choices.random() < 0.5:
                engine.close()
        except (tg.StorageUncertain, tg.StateOwned) as error:
            self.require_cause(taken=isinstance(error, tg.StateOwned))
            with pytest.raises((tg.StorageUncertain, tg.StateOwned)):
                state_of(engine)
            if self.choices.random() < 0.5:
                engine.close()
            raise

    def require_cause(self, taken: bool = False) -> None:
        """That the disk did refuse something since the last restart; or hid a name, for a state that seems taken."""
        lines = self.disk._history
        since = max((n for n, line in enumerate(lines) if line.startswith("---- restart")), default=0)
        assert any(line.endswith(("OSError 5", "OSError 28")) for line in lines[since:]) or (
            taken and self.faults.stale_listing
        ), "refused without a cause"

    def end(self, *, power_failure: bool) -> None:
        """All that runs ends, and perhaps what is not on the disk is lost."""
        self.engine = None
        self.disk.restart(power_failure=power_failure)
        if power_failure:  # what a process wrote stays as long as the power does
            self.acknowledged = self.certain

    def go_on(self, commands: int) -> None:
        """A life, and its end."""
        uncertain = False
        try:
            self.live(commands)
        except SimulatedCrash:
            pass
        except tg.StorageUncertain:
            uncertain = True  # after a sync that failed, only a restart shows what is on the disk
            self.require_cause()
        except (tg.StorageFailed, tg.StateOwned) as error:
            self.require_cause(taken=isinstance(error, tg.StateOwned))
        # A write in several pieces, of which the power leaves some, is what the log's format calls damage.
        may_fail = not self.faults.short_write
        self.end(power_failure=may_fail and (uncertain or self.choices.random() < 0.5))

    def damage(self) -> None:
        """Flip a bit: what is opened afterwards is right all the same, or the file is named."""
        storage = LocalStorage(FOLDER, self.disk)
        name = self.choices.choice([name for name in storage.list() if storage.size(name)])
        file, offset = self.disk.flip_bit(f"{FOLDER}/{name}")
        try:
            self.open()
        except (tg.StorageCorrupted, tg.RecoveryImpossible, tg.StateDiverged) as error:
            assert name in str(error), f"{file} is damaged at {offset}, and not named: {error}"


def run_world(seed: int) -> int:
    """One world: lives in bad weather, the last one in calm; returns how many there were."""
    choices = random.Random(f"world {seed}")
    world = World(seed, choices.choice(WEATHER))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logged, "CHECKPOINT_AFTER_BYTES", choices.choice([700, 1200, 3000, 1 << 20]))
            for _ in range(choices.randrange(2, 5)):
                world.go_on(choices.randrange(1, 14))
            world.disk.faults = CALM
            engine = world.open()
            for _ in range(3):
                world.command(draw(choices))
            if choices.random() < 0.5:
                engine.close()
            world.end(power_failure=choices.random() < 0.5)
            world.open()
            if choices.random() < 0.5:
                world.end(power_failure=False)
                world.damage()
    except BaseException as error:
        error.add_note(f"seed {seed}\n{world.disk.describe()}")
        raise
    return world.lives


SCRIPT = (
    Command("load", "", [(1, 10)]),
    Command("execute", "deposit", {"dst": 2, "amount": 5}, "order 7"),
    Command("run", "", [("orders", 1, 3), ("orders", 2, 4), ("orders", 3, 1)]),
    Command("checkpoint"),
    Command("execute", "transfer", {"src": 1, "dst": 3, "amount": 7}),
    Command("take"),
    Command("execute", "leave", {"dst": 2}, 7),
    Command("close"),
    Command("run", "", [("orders", 2, 2), ("deposit", 2, 2)]),
    Command("execute", "deposit", {"dst": 2, "amount": 5}, "order 7"),
)


def play(world: World) -> None:
    engine = world.open()
    for command in SCRIPT:
        if command.kind == "checkpoint":
            engine.checkpoint()
        elif command.kind == "close":
            engine.close()
            engine = world.open()
        else:
            world.command(command)


def soak(*values: Any) -> Any:
    return pytest.param(*values, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.parametrize(
    "sync, recovery, compiled, power_failure",
    [
        ("group", "weak", True, False),
        ("group", "strong", True, True),
        *(soak(sync, "strong", True, failure) for sync in ("always", "never") for failure in (False, True)),
        *(soak("group", "weak", False, failure) for failure in (False, True)),
    ],
)
def test_a_crash_at_any_call_of_the_disk_and_another_while_recovering(
    sync: str, recovery: str, compiled: bool, power_failure: bool, record_property: Any
) -> None:
    points = 0
    while True:
        world = World(points, CALM, crash_at=points)
        world.options, world.compiled = (sync, recovery), compiled
        try:
            play(world)
            break
        except SimulatedCrash:
            points += 1
        world.end(power_failure=power_failure)
        world.disk.crash_at = world.disk.calls + points % 37
        with contextlib.suppress(SimulatedCrash):
            world.open()
        world.end(power_failure=power_failure)
        world.open()
        world.command(Command("execute", "deposit", {"dst": 9, "amount": 1}))
        world.end(power_failure=power_failure)
        world.open()
    assert points > 100
    record_property("compared crash points of the log", points)


def seeds(first: int, count: int, size: int) -> list[range]:
    if "TIDEGATE_SEED" in os.environ:
        seed = int(os.environ["TIDEGATE_SEED"])
        return [range(seed, seed + 1)]
    return [range(start, min(start + size, first + count)) for start in range(first, first + count, size)]


@pytest.mark.parametrize("chosen", seeds(0, WORLDS, 60), ids=str)
def test_whatever_the_disk_does_nothing_that_was_answered_is_lost(chosen: range, record_property: Any) -> None:
    lives = sum(map(run_world, chosen))
    record_property("compared simulated worlds of the log", len(chosen))
    assert len(chosen) == 1 or lives > 2.5 * len(chosen)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chosen", seeds(1_000_000, SOAK_WORLDS, 500), ids=str)
def test_whatever_the_disk_does_for_an_hour(chosen: range, record_property: Any) -> None:
    for seed in chosen:
        run_world(seed)
    record_property("compared simulated worlds of the log", len(chosen))
