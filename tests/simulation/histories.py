"""What happens in a world, step by step, as its seed decides; and how each world ends.

    step     a query's batch, with twins │ a rival at the same time │ a batch DataFrame │ a tg.Engine
             start, stop, kill, restart elsewhere │ the clock jumps │ a bit flips │ a backup is put back
    end      all damage is mended, the power fails, every query repeats what it has to and goes on

Invariant: at the end everything works again without anybody's help, and every version that can be rebuilt is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.durability.version_log import Log

from ..truth.choices import Choices
from .actors import Job, Query
from .disk import Faults
from .ledgers import Subject, Wrong, subject
from .world import REFUSING, World

STEPS = 12


def live(seed: int, steps: int = STEPS) -> World:
    """One world from its beginning to its end."""
    with (
        subject(seed, random_program=seed % 3 == 0, late="refuse" if seed % 2 else "run") as program,
        World(seed, program).living() as world,
    ):
        if world.choices.chance(40) and program.loads():
            act(world, world.load_job())
        for _ in range(steps):
            step(world)
        finish(world)
        world.counts["worlds"] += 1
        world.counts += world.disk.struck
        return world


def live_shortly(
    program: Subject,
    crash_at: int | None = None,
    *,
    power_failure: bool = True,
    seed: int = 0,
    log: Log = "changes",
) -> World:
    """A short life: two batches of a query with a snapshot and a collection, one of them again, and a second owner.

    The machine stops at one call, if one is given; everything is the simplest that it can be otherwise.
    """
    simplest = Choices(replay=())
    world = World(seed, program, choices=simplest, crash_at=crash_at, power_failure=power_failure, log=log)
    with world.living():
        world.sudden = 0
        first = world.new_query()
        run_until(world, first, 2)
        world.perform(world.late_twin(first))
        if first.running:
            world.stop(first, gently=True)
        run_until(world, world.new_query(), 1)
        world.counts["calls"] = world.disk.calls
        world.disk.crash_at = None
        world.restart(power_failure=True)
        world.recovered(every_version=True)
    return world


def run_until(world: World, query: Query, batch: int) -> None:
    """The query runs, and starts again as often as it has to, until it has committed its batches below this one."""
    for _ in range(30):
        if query.batch >= batch:
            return
        if query.running or world.start(query):
            jobs = world.batch_jobs(query)[:1]
            if jobs:
                world.perform(jobs)
                if world.is_given_up(jobs[0]):
                    query.stuck = True
                    return
    raise Wrong(f"{query.name} does not get on: at batch {query.batch}, wanted {batch}")


def step(world: World) -> None:
    """Something happens."""
    choices = world.choices
    query = choose(world)
    match choices.weighted(
        [(24, "batch"), (6, "rival"), (5, "frame"), (4, "stop"), (3, "kill"), (2, "late"), (2, "cold"),
         (2, "clock"), (2, "damage"), (1, "restart")]
    ):  # fmt: skip
        case "batch":
            if query.running or world.start(query):
                act(world, world.batch_jobs(query), query)
        case "rival":
            other = choose(world)
            if other is not query and query.running and (other.running or world.start(other)):
                act(world, world.batch_jobs(query) + world.batch_jobs(other), query)
            else:
                act(world, (world.batch_jobs(query) if query.running else []) + world.frame_job(), query)
        case "frame":
            act(world, world.frame_job())
        case "stop":
            if query.running:
                world.stop(query, gently=choices.chance(70))
        case "kill":
            if world.workers:
                choices.pick(world.workers).die()
        case "late":
            act(world, world.late_twin(query))
        case "cold":
            for worker in query.workers:
                worker.engines = {}
        case "clock":
            world.now += choices.pick([3600.0, -3600.0, 1e8, -1e8, 0.5])
            world.disk.note(f"the clock jumps to {world.now}")
        case "damage":
            world.damage()
            for _ in range(choices.between(1, 3)):
                act(world, world.batch_jobs(query) if query.running else world.frame_job(), query)
            world.mend()
        case "restart":
            world.restart(power_failure=choices.chance(60))


def choose(world: World) -> Query:
    """One of at most two queries that can go on; a new one when there is none."""
    able = [query for query in world.queries if not query.stuck]
    if len(able) < 2 and (not able or world.choices.chance(25)):
        return world.new_query()
    return world.choices.pick(able)


def act(world: World, jobs: list[Job], query: Query | None = None) -> None:
    """Attempts while something may go wrong; a query that was refused starts again, sooner or later."""
    if not jobs:
        return
    threaten(world, jobs)
    world.perform(jobs)
    calm(world)
    for job in jobs:
        if query is None or job.error is None or job.attempt.query != query.name:
            continue
        if world.is_given_up(job):
            query.stuck = True
        if query.running and world.choices.chance(40):
            world.stop(query, gently=False)


def threaten(world: World, jobs: Sequence[Job]) -> None:
    """Decide what goes wrong during the next attempts; a calm time is the most frequent."""
    choices = world.choices
    world.turns.share = choices.pick([0.25, 0.02, 0.1, 0.5])
    match choices.weighted([(10, "calm"), (5, "faults"), (4, "machine"), (6, "process"), (2, "stale")]):
        case "faults":
            share = choices.pick([0.03, 0.1, 0.3])
            fault = choices.pick([*REFUSING, "short_write", "link_repeated"])
            world.disk.faults = Faults(**{fault: share, choices.pick(REFUSING): share})
        case "machine":
            world.disk.crash_at = world.disk.calls + choices.below(30 * len(jobs))
        case "process":
            worker = choices.pick(jobs).worker
            worker.dies_at = choices.pick(["", "link", "unlink", "sync_folder"])
            worker.dies_in = choices.below(3 if worker.dies_at else 35)
            worker.dies_late = choices.chance(50)
        case "stale":
            world.disk.faults = Faults(stale_listing=0.5)


def calm(world: World) -> None:
    """Nothing goes wrong any more by itworld."""
    world.disk.faults, world.disk.crash_at = Faults(), None
    for worker in world.workers:
        worker.dies_in, worker.dies_at = None, ""
    world.workers = [worker for worker in world.workers if not worker.dead]


def finish(world: World) -> None:
    """Nothing goes wrong any more: all must work."""
    world.mend()
    calm(world)
    world.sudden = 0
    world.recovered(every_version=True)
    world.restart(power_failure=True)
    for query in world.queries:
        if query.stuck:
            continue
        run_until(world, query, query.batch + 2)
        if query.running:
            world.stop(query, gently=True)
            for worker in world.workers:
                worker.die()
    world.recovered(every_version=True)
    world.restart(power_failure=True)
    world.recovered(every_version=True)
