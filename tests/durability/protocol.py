"""The commit protocol as a model whose every interleaving can be searched: what may happen, and what must never.

Queries run batches by attempts, each a small program of atomic steps. Between any two of them anything else may happen:

    tip       look at the folder: the newest version n      cold: read the note of the head, list, check the chain, sync
                                                            warm: is n still there? take over n + 1, n + 2, ..., sync
    judge     is the batch new to this state?               (`Served.judge`, at once: it asks what was read)
    admit     may its query commit?                         (`ownership.admit`, by locks and marks of this moment)
    create    the name of version n + 1, exclusively        taken: back to `tip`, knowing nothing
    sync      the folder                                    from here on it survives a power failure
    note      the head
    report    Spark commits the batch in its checkpoint     it is acknowledged

or, when the batch was applied before: `repeat` it on the version below, then `report`. A batch is asked for until it is
acknowledged. Beside the attempts there are the drivers of the queries (started, stopped, killed with or without their
workers), a janitor (a snapshot, then a collection, one file after the other), a `tg.Engine`, a call of `transact` with
initial rows, power failures, and a user who deletes files, puts back an older copy, and adopts.

`Rules` are what the protocol consists of. Each can be switched off: then the search must find a violation.

What must never happen (`problem` here and in `Step`):
- a batch is applied twice, out of order, or on a state that lacks a batch of its query that came before;
- an acknowledged batch is not in the history, after a power failure too, unless the user removed it;
- the history cannot be read, or a request is refused as diverged, without the user's doing;
- somebody goes on from files that do not form one chain, or after the user lost a version that the head speaks of;
- a version stands above one of a later epoch, or of another owner of the same epoch, or of one that lives;
- the last batch of a query is asked for again and cannot be repeated, while nobody else committed in between.

Left out: what is in the files (damage is found by checksums), and time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidegate.durability.ownership import EMBEDDED, ENGINE
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import INITIAL

from . import protocol_store as store
from .explorer import Step
from .protocol_decisions import (
    Asking,
    Attempt,
    Decisions,
    Opened,
    Query,
    State,
    is_made_by,
    last_batch,
    names_of,
    wrong_batch,
)
from .protocol_store import Files, Version, Visible, version


class Turn(NamedTuple):
    """An attempt whose turn it is: the state, whose attempt it is, and `now`, which makes a step of its change."""

    state: State
    place: int
    asking: Asking
    attempt: Attempt
    who: str
    now: Callable[..., Step]


class Protocol(Decisions):
    """The model for given bounds and rules."""

    def first(self) -> State:
        """An empty folder, all queries started."""
        bounds = self.bounds
        return State(
            queries=tuple(Query() for _ in bounds.queries),
            attempts=tuple((Attempt(),) * asking.attempts for asking in bounds.queries),
            engine=Opened(opens=bounds.engine_opens, commits=bounds.engine_commits),
            initial="look" if bounds.initial else "",
            crashes=bounds.crashes,
            power_failures=bounds.power_failures,
            stops=bounds.stops,
            collections=bounds.collections,
            adoptions=bounds.adoptions,
            user=1 if bounds.user else 0,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        for place, asking in enumerate(self.bounds.queries):
            yield from self._driver_steps(state, place, asking)
            for number in range(asking.attempts):
                yield from self._attempt_steps(state, place, asking, number)
        yield from self._janitor_steps(state)
        yield from self._engine_steps(state)
        yield from self._initial_steps(state)
        yield from self._user_steps(state)
        if state.power_failures:
            yield from self._power_failures(state)

    def problem(self, state: State) -> str:
        """What is wrong with a state."""
        if state.touched:
            return ""
        found = self._read(state.visible)
        if found.damage:
            return f"the history cannot be read: {found.damage}"
        for asking, query in zip(self.bounds.queries, state.queries, strict=True):
            for name in names_of(asking):
                if query.done and last_batch(found.tip, name) < query.done - 1:
                    return f"batch {query.done - 1} of {name} was acknowledged and is not in the history"
        commits = sum(version(each).query == EMBEDDED for each in store.history(found.tip))
        return "a commit of the engine was acknowledged and is lost" if commits < state.engine.acknowledged else ""

    # --- attempts ---------------------------------------------------------------------------------------------

    def _attempt_steps(self, state: State, place: int, asking: Asking, number: int) -> Iterator[Step]:
        attempt, query = state.attempts[place][number], state.queries[place]
        if number and attempt == state.attempts[place][number - 1]:
            return  # the same as its neighbour: what it may do was done by that one

        def now(words: str, changed: Attempt, problem: str = "", **others: Any) -> Step:
            attempts = sorted((*state.attempts[place][:number], changed, *state.attempts[place][number + 1 :]))
            all_attempts = (*state.attempts[:place], tuple(attempts), *state.attempts[place + 1 :])
            return Step(words, state._replace(attempts=all_attempts, **others), problem)

        who = f"{asking.name}, batch {attempt.batch}"
        turn = Turn(state, place, asking, attempt, who, now)
        if attempt.at == "idle":
            if query.running and query.done < asking.batches:
                begun = attempt._replace(at="tip", batch=query.done, call=0, token=query.token)
                yield now(f"{asking.name}: an attempt starts for batch {query.done}", begun)
            return
        # Before it creates anything, a killed attempt is as one that never started, unless its driver is gone.
        if attempt.at in ("sync", "note", "report") or attempt.token != query.token:
            yield now(f"{who}: the worker is killed, or its disk refuses", Attempt())
        if attempt.at in ("tip", "list", "head"):
            yield from self._look(turn)
        elif attempt.at == "admit":
            epoch = self._admitted(state, attempt.tip, self._owner(asking, attempt))
            if epoch is None:
                yield now(f"{who}: another owner lives, the attempt gives up", Attempt())
            else:
                yield now(f"{who}: may commit, in epoch {epoch}", attempt._replace(at="create", epoch=epoch))
        elif attempt.at == "create":
            yield self._create(turn)
        elif attempt.at == "sync":
            yield now(f"{who}: syncs the folder", attempt._replace(at="note"), files=store.synced(state.files))
        elif attempt.at == "note":
            yield now(f"{who}: notes the head", attempt._replace(at="report", warm=attempt.tip), head=attempt.tip)
        elif attempt.at == "repeat":
            yield self._repeat(turn)
        else:
            yield self._report(turn)

    def _look(self, turn: Turn) -> Iterator[Step]:
        """Find the newest version, and judge the batch by it."""
        state, _, _, attempt, who, now = turn
        visible = state.visible
        if attempt.at == "tip" and attempt.warm:
            if not any(identity == attempt.warm for _, _, identity in visible):
                yield now(f"{who}: its version is gone, it forgets all", attempt._replace(warm=0, since=0))
                return
            tip, damage = self._follow(visible, attempt.warm)
            files = state.files
            if tip != attempt.warm and self.rules.settle_followed:
                files = store.synced(files)
            words = f"{who}: finds version {version(tip).number}, from its own on"
            yield self._judged(turn, words, store.Found(tip, attempt.since, damage), 0, files)
        elif attempt.at == "tip" and self.rules.head_first:
            yield now(f"{who}: reads the head", attempt._replace(at="list", seen=(state.head,)))
        elif attempt.at == "tip":
            yield now(f"{who}: lists the files", attempt._replace(at="head", seen=visible))
        else:
            listed, noted = (visible, attempt.seen[0]) if attempt.at == "list" else (attempt.seen, state.head)
            yield self._opened(turn, listed, noted)
            if self.bounds.stale_listings and visible:
                lagging = self._opened(turn, store.lagging(listed), noted)
                failed = now(f"{who}: the listing lags behind, the attempt is refused", Attempt())
                yield failed if ": refused" in lagging.words else lagging

    def _opened(self, turn: Turn, listed: Visible, noted: int) -> Step:
        """What a cold attempt makes of the files that it listed and the head that it read."""
        state, attempt = turn.state, turn.attempt
        found = self._read(listed)
        if not found.damage and self.rules.head_note and store.is_lost(noted, found.tip):
            found = found._replace(damage="lost")
        words = f"{turn.who}: {'lists the files' if attempt.at == 'list' else 'reads the head'}"
        words += ", and they do not agree" if found.damage else f", finds version {version(found.tip).number}"
        files = store.synced(state.files) if self.rules.settle and found.tip and not found.damage else state.files
        return self._judged(turn, words, found, noted, files)

    def _judged(self, turn: Turn, words: str, found: store.Found, noted: int, files: Files) -> Step:
        state, place, asking, attempt, _, now = turn
        tip, since, damage = found
        if damage:
            return self._refused(turn, words, "lost" if damage == "lost" else "damaged")
        problem = ""
        if tip and not store.fits(state.visible, tip, version(attempt.warm).number):
            problem = "an attempt goes on from files that are no chain"
        if noted and noted == state.lost and version(tip).number < version(noted).number:
            problem = "an attempt opens the state although the newest version was lost and the head spoke of it"
        verdict = self._verdict(tip, since, self._applicant(asking, attempt, state.queries[place].planned))
        if verdict == "refused":
            return self._refused(turn, words, f"adopt {attempt.batch - 1}")
        following = {"new": "admit", "again": "repeat", "earlier": "repeat", "given up": "report"}[verdict]
        went_on = attempt._replace(at=following, tip=tip, since=since, warm=tip, seen=())
        return now(f"{words}: the batch is {verdict}", went_on, problem, files=files)

    def _refused(self, turn: Turn, words: str, why: str) -> Step:
        """The query fails, if it still is the one that asks, and is told why."""
        state, place, _, attempt, _, now = turn
        problem = "" if state.touched else f"a request is refused ({why}), and nobody touched the state"
        query = state.queries[place]
        if query.running and query.token == attempt.token and query.done == attempt.batch:
            query = query._replace(running=False, ending=True, refused=why)
        queries = (*state.queries[:place], query, *state.queries[place + 1 :])
        return now(f"{words}: refused ({why})", Attempt(), problem, queries=queries)

    def _create(self, turn: Turn) -> Step:
        state, _, asking, attempt, who, now = turn
        below = version(attempt.tip)
        number = below.number + 1
        taken = [kind for at, kind, _ in state.visible if at == number]
        if taken and (self.rules.exclusive_create or "snapshot" in taken):
            again = attempt._replace(at="tip", warm=0, since=0, tip=0, epoch=0)
            return now(f"{who}: version {number} is taken, it begins again", again)
        name = self._applicant(asking, attempt, ("", 0)).name
        owner = self._owner(asking, attempt)
        made = Version(
            number,
            below.state or self._new_state(name),
            attempt.tip,
            name,
            attempt.batch,
            attempt.epoch,
            owner.query if owner else "",
            owner.token if owner else "",
        )
        identity = store.identify(made)
        problem = wrong_batch(made) or self._wrong_owner(state, made)
        changed = attempt._replace(at="sync", tip=identity, epoch=0)
        files = store.added(state.files, number, "change", identity)
        return now(f"{who}: creates version {number}", changed, problem, files=files)

    def _repeat(self, turn: Turn) -> Step:
        state, place, asking, attempt, who, now = turn
        name = self._applicant(asking, attempt, ("", 0)).name
        made = [each for each in store.history(attempt.tip) if is_made_by(version(each), name, attempt.batch)]
        number = version(made[-1]).number if made else 0
        names = store.listing(state.visible)
        if names.has_change(number) and (asking.form == "call" or names.can_rebuild(number - 1)):
            return now(f"{who}: runs again on version {number - 1}", attempt._replace(at="report"))
        query = state.queries[place]
        if query.done != attempt.batch or not query.running or query.token != attempt.token:
            return now(f"{who}: cannot be repeated, and nobody waits for it", Attempt())
        alone = version(store.newest(state.visible)).query.split("/")[0] == asking.name
        problem = (
            "the last batch cannot be repeated, and nobody else has committed" if alone and not state.touched else ""
        )
        query = query._replace(running=False, ending=True, refused=f"adopt {attempt.batch}")
        queries = (*state.queries[:place], query, *state.queries[place + 1 :])
        return now(f"{who}: cannot be repeated: refused (adopt {attempt.batch})", Attempt(), problem, queries=queries)

    def _report(self, turn: Turn) -> Step:
        state, place, asking, attempt, who, now = turn
        query = state.queries[place]
        if not query.alive or query.token != attempt.token:
            return now(f"{who}: succeeds, its driver is gone", Attempt())
        if attempt.call + 1 < asking.calls:
            following = Attempt("tip", attempt.batch, attempt.call + 1, attempt.token, attempt.warm, attempt.since)
            return now(f"{who}: call {attempt.call} succeeds", following)
        idle = Attempt(warm=attempt.warm, since=attempt.since)
        if not query.running or query.done != attempt.batch:
            return now(f"{who}: succeeds, and nobody waits for it", idle)
        queries = (*state.queries[:place], query._replace(done=query.done + 1), *state.queries[place + 1 :])
        return now(f"{who}: succeeds, Spark commits the batch", idle, queries=queries)

    # --- drivers ----------------------------------------------------------------------------------------------

    def _driver_steps(self, state: State, place: int, asking: Asking) -> Iterator[Step]:
        query, attempts = state.queries[place], state.attempts[place]
        name = asking.name

        def now(words: str, changed: Query, attempts: tuple[Attempt, ...] = attempts, **others: Any) -> Step:
            queries = (*state.queries[:place], changed, *state.queries[place + 1 :])
            all_attempts = (*state.attempts[:place], tuple(sorted(attempts)), *state.attempts[place + 1 :])
            return Step(words, state._replace(queries=queries, attempts=all_attempts, **others))

        if asking.form == "once":
            return
        if not query.running and query.done < asking.batches:
            found = version(store.newest(state.visible))
            planned = (found.state, found.number) if self.bounds.user else ("", 0)
            yield now(f"{name} is started", query._replace(running=True, alive=True, refused="", planned=planned))
        if query.running and (state.stops or query.done == asking.batches):
            stops = state.stops - (query.done < asking.batches)
            stopped = tuple(Attempt(warm=each.warm, since=each.since) for each in attempts)
            yield now(f"{name} is stopped", query._replace(running=False, ending=True), stopped, stops=stops)
        if query.alive and not query.running and query.done == asking.batches:
            yield now(f"{name} was stopped: its process ends", query._replace(alive=False, ending=False))
        if query.ending:
            found = version(store.newest(state.visible))
            marks = (*state.marks, found.epoch) if found.owner == name else state.marks
            words = f"{name} has ended: the state is released"
            yield now(words, query._replace(ending=False), marks=self._tidied(state, marks))
        if state.crashes and query.alive:
            dead = query._replace(running=False, alive=False, ending=False, token=query.token + 1, refused="")
            fewer = state.crashes - 1
            yield now(f"{name}: driver and workers are killed", dead, tuple(Attempt() for _ in attempts), crashes=fewer)
            if any(each.at != "idle" for each in attempts):
                orphans = tuple(Attempt() if each.at == "idle" else each for each in attempts)
                yield now(f"{name}: the driver is killed, its workers go on", dead, orphans, crashes=fewer)

    def _tidied(self, state: State, marks: tuple[int, ...]) -> tuple[int, ...]:
        """The marks of epochs that somebody may still ask for."""
        least = 0 if self.bounds.user else version(store.newest(state.visible)).epoch
        return tuple(sorted({epoch for epoch in marks if epoch >= least}))

    # --- the janitor ------------------------------------------------------------------------------------------

    def _janitor_steps(self, state: State) -> Iterator[Step]:
        at, plan = state.janitor
        if at == "idle":
            if not state.collections:
                return
            fewer = state._replace(collections=state.collections - 1)
            yield Step("the janitor begins", fewer._replace(janitor=("list", ())))
            found = self._read(state.visible)
            if found.tip and not found.damage:
                words = f"the janitor loads version {version(found.tip).number}"
                loaded = fewer._replace(files=store.synced(state.files), janitor=("snapshot", (found.tip,)))
                yield Step(words, loaded)
            return
        if at in ("sync", "delete"):
            yield Step("the janitor is killed", state._replace(janitor=("idle", ())))
        if at == "snapshot":
            number = version(plan[0]).number
            if store.listing(state.visible).has_snapshot(number) or not any(
                plan[0] == each for _, _, each in state.visible
            ):
                yield Step("the snapshot is there, or no longer of use", state._replace(janitor=("list", ())))
                return
            files = store.added(state.files, number, "snapshot", plan[0])
            yield Step(f"a snapshot of version {number} is written", state._replace(files=files, janitor=("sync", ())))
        elif at == "sync":
            words = "the snapshot is synced"
            yield Step(words, state._replace(files=store.synced(state.files), janitor=("list", ())))
        elif at == "list":
            surplus = self._surplus(state.visible)
            files = store.synced(state.files) if self.rules.settle_collected else state.files
            following = ("delete", surplus) if surplus else ("idle", ())
            yield Step(
                f"the janitor plans to remove {len(surplus)} files", state._replace(files=files, janitor=following)
            )
        else:
            (number, kind), rest = plan[0], plan[1:]
            files = store.removed(state.files, number, kind)
            following = ("delete", rest) if rest else ("idle", ())
            yield Step(f"the {kind} of version {number} is removed", state._replace(files=files, janitor=following))

    def _surplus(self, visible: Visible) -> tuple[tuple[int, str], ...]:
        """What `VersionStore.collect` removes."""
        found, names = self._read(visible), store.listing(visible)
        if not found.tip or found.damage:
            return ()
        oldest = names.oldest_kept(self.bounds.keep_versions)
        if self.rules.pinned_base:
            pinned = store.served(found.tip, found.since).pinned(version(found.tip).query.split("/", 1)[0])
            oldest = min(oldest, max(1, pinned - 1))
        return tuple(names.surplus(names.snapshot_below(oldest), oldest))

    # --- an engine, initial rows --------------------------------------------------------------------------------

    def _engine_steps(self, state: State) -> Iterator[Step]:
        engine = state.engine

        def now(words: str, changed: Opened, problem: str = "", **others: Any) -> Step:
            return Step(f"engine: {words}", state._replace(engine=changed, **others), problem)

        closed = Opened(opens=engine.opens, commits=engine.commits, acknowledged=engine.acknowledged)
        if engine.at == "closed":
            if engine.opens:
                yield now("is opened, has its lock", engine._replace(at="tip", opens=engine.opens - 1))
            return
        owner = Owner(f"{EMBEDDED}-{engine.opens}", "tg.Engine", ENGINE)
        yield now("is closed, or killed", closed)
        if engine.at == "tip":
            found = self._read(state.visible)
            if found.damage or store.is_lost(state.head, found.tip):
                problem = "" if state.touched else "an engine is refused, and nobody touched the state"
                yield now("is refused", closed, problem)
            else:
                files = store.synced(state.files) if found.tip else state.files
                yield now("reads the newest version", engine._replace(at="admit", tip=found.tip), files=files)
        elif engine.at == "admit":
            epoch = self._admitted(state, engine.tip, owner)
            if epoch is None:
                yield now("finds another owner alive", closed)
            else:
                yield now(f"is open, in epoch {epoch}", engine._replace(at="ready", epoch=epoch))
        elif engine.at == "ready" and engine.commits:
            below = version(engine.tip)
            number = below.number + 1
            if any(at == number for at, _, _ in state.visible):
                yield now("finds that the state was taken over", closed)
                return
            name = below.state or self._new_state("engine")
            made = Version(number, name, engine.tip, EMBEDDED, number, engine.epoch, owner.query, ENGINE)
            changed = engine._replace(at="sync", tip=store.identify(made), commits=engine.commits - 1)
            files = store.added(state.files, number, "change", changed.tip)
            yield now(f"creates version {number}", changed, self._wrong_owner(state, made), files=files)
        elif engine.at == "sync":
            yield now("syncs the folder", engine._replace(at="note"), files=store.synced(state.files))
        elif engine.at == "note":
            told = engine._replace(at="ready", acknowledged=engine.acknowledged + 1)
            yield now("notes the head and answers", told, head=engine.tip)

    def _initial_steps(self, state: State) -> Iterator[Step]:
        made = store.identify(Version(1, self._new_state(INITIAL), 0, INITIAL, 0, 1))
        if state.initial == "look":
            following = "" if store.newest(state.visible) else "write"
            yield Step("transact(initial=...) looks for a state", state._replace(initial=following))
        elif state.initial == "write":
            taken = {kind for number, kind, _ in state.visible if number == 1}
            if "snapshot" in taken or (taken and self.rules.one_name):
                yield Step("initial rows: version 1 is taken", state._replace(initial=""))
            else:
                files = store.added(state.files, 1, "snapshot", made)
                yield Step("initial rows are written as version 1", state._replace(initial="sync", files=files))
        elif state.initial == "sync":
            yield Step("initial rows are synced", state._replace(initial="", files=store.synced(state.files)))

    # --- the user, and the power --------------------------------------------------------------------------------

    def _user_steps(self, state: State) -> Iterator[Step]:
        if state.user and store.newest(state.visible):
            touched = state._replace(user=0, touched=True)
            if "delete newest" in self.bounds.user:
                newest = store.newest(state.visible)
                kept = store.put(tuple(file for file in state.visible if file[0] < version(newest).number))
                lost = newest if state.head == newest else 0
                yield Step("the user deletes the newest version", touched._replace(files=kept, lost=lost))
            if "delete all" in self.bounds.user:
                yield Step("the user deletes the state", touched._replace(files=(), head=0, marks=()))
            if "restore" in self.bounds.user and state.copy is not None:
                visible, noted, marks = state.copy
                restored = touched._replace(files=store.put(visible), head=noted, marks=marks, copy=None)
                yield Step("the user puts the copy back", restored)
            if "restore" in self.bounds.user and state.copy is None:
                copy = (store.seen(store.synced(state.files)), state.head, state.marks)
                yield Step("the user copies the state", state._replace(copy=copy))
        if state.adoptions:
            for place, query in enumerate(state.queries):
                if query.refused and not query.refused.startswith("damaged"):
                    yield from self._adopt(state, place, query.refused)

    def _adopt(self, state: State, place: int, refused: str) -> Iterator[Step]:
        """The way out that a refusal names."""
        fewer = state._replace(adoptions=state.adoptions - 1)
        found = self._read(state.visible)
        if found.damage or (refused != "lost" and store.is_lost(state.head, found.tip)):
            return
        if refused == "lost":
            yield Step("the user goes on without what is lost", fewer._replace(head=found.tip, lost=0))
            return
        below, asking = version(found.tip), self.bounds.queries[place]
        batch = int(refused.split()[1])
        adopted = tuple((name, batch) for name in names_of(asking))
        number, name = below.number + 1, below.state or self._new_state("adopt")
        made = store.identify(Version(number, name, found.tip, "", 0, below.epoch + 1, adopted=adopted))
        files = store.synced(store.added(state.files, number, "change", made))
        queries = (*state.queries[:place], state.queries[place]._replace(refused=""), *state.queries[place + 1 :])
        words = f"the user adopts {asking.name} with batch {batch + 1} to come"
        yield Step(words, fewer._replace(files=files, head=made, queries=queries))

    def _power_failures(self, state: State) -> Iterator[Step]:
        dead = tuple(
            each
            if asking.form == "once"
            else each._replace(running=False, alive=False, ending=False, token=each.token + each.alive, refused="")
            for asking, each in zip(self.bounds.queries, state.queries, strict=True)
        )
        engine = state.engine
        off = state._replace(
            queries=dead,
            attempts=tuple((Attempt(),) * len(each) for each in state.attempts),
            janitor=("idle", ()),
            engine=Opened(opens=engine.opens, commits=engine.commits, acknowledged=engine.acknowledged),
            initial="",
            power_failures=state.power_failures - 1,
        )
        for files, noted, marks in itertools.product(
            store.after_power_failure(state.files), {state.head, 0}, {state.marks, ()}
        ):
            left = ", ".join(f"{number}.{kind}" for number, kind, _, _ in files) or "nothing"
            yield Step(f"the power fails; what is left: {left}", off._replace(files=files, head=noted, marks=marks))
