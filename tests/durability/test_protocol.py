"""The commit protocol, searched exhaustively: every interleaving of attempts, crashes, power failures and users.

`protocol.py` is the model and lists what must never happen. Here are the bounds within which all of it was tried, the
proof that the search can fail (each rule of the protocol is switched off once, and a violation is found), and the rules
that the model takes for granted, tried on the code that ships.

A failing search prints the shortest way to the violation, step by step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.durability.head import note
from tidegate.durability.versions import VersionStore
from tidegate.foundation.disk import OsDisk
from tidegate.foundation.errors import StateDiverged, StorageUncertain
from tidegate.foundation.storage import LocalStorage, Names

from .explorer import Exploration, Step, explore
from .protocol import Protocol
from .protocol_decisions import Asking, Bounds, Rules

if TYPE_CHECKING:
    from tests.durability.conftest import History

SEMANTICS = Path(__file__).parents[2] / "docs" / "semantics.md"
USER = ("delete newest", "delete all", "restore")

SEARCHED = {
    "attempts": Bounds((Asking("a", 2, attempts=2),), crashes=1, power_failures=1),
    "two queries": Bounds((Asking("a", 1), Asking("b", 1)), crashes=1, power_failures=1),
    "a stopped query": Bounds((Asking("a", 2), Asking("b", 1)), stops=1),
    "collection": Bounds((Asking("a", 3),), keep_versions=1, power_failures=1, collections=2),
    "takeover": Bounds((Asking("a", 1), Asking("b", 1)), keep_versions=1, crashes=1, collections=1, adoptions=1),
    "foreachBatch": Bounds((Asking("a", 2, form="call", calls=2),), keep_versions=1, power_failures=1, collections=1),
    "batch DataFrame": Bounds((Asking("a", 2), Asking("d", 1, attempts=2, form="once"))),
    "engine": Bounds((Asking("a", 1),), engine_opens=2, engine_commits=2, power_failures=1),
    "initial rows": Bounds((Asking("a", 2),), initial=True, crashes=1, power_failures=1),
    "stale listings": Bounds((Asking("a", 2, attempts=2),), power_failures=1, stale_listings=True),
    "user": Bounds((Asking("a", 2),), user=USER, adoptions=2),
    "user, two queries": Bounds((Asking("a", 1), Asking("b", 1)), user=("delete newest",), adoptions=1),
}

SOAKED = {
    "attempts, more": Bounds((Asking("a", 3, attempts=2),), crashes=2, power_failures=1),
    "three attempts": Bounds((Asking("a", 2, attempts=3),), crashes=1, power_failures=1),
    "two queries, more": Bounds((Asking("a", 2), Asking("b", 1)), crashes=1, power_failures=1),
    "collection, more": Bounds((Asking("a", 3, attempts=2),), keep_versions=1, power_failures=1, collections=2),
    "foreachBatch, more": Bounds(
        (Asking("a", 2, form="call", calls=2),), keep_versions=2, crashes=1, power_failures=1, collections=2
    ),
    "batch DataFrame, more": Bounds(
        (Asking("a", 1), Asking("d", 1, attempts=2, form="once")), crashes=1, power_failures=1
    ),
    "engine, more": Bounds((Asking("a", 2),), engine_opens=2, engine_commits=2, crashes=1, power_failures=1),
    "user, more": Bounds((Asking("a", 2, attempts=2),), user=USER, adoptions=2),
}

EXCHANGED = Bounds((Asking("a", 2), Asking("b", 1)), user=("delete all",))
"""A state that is deleted under a running query, and made anew by another one."""


def each(scenarios: dict[str, Bounds], *marks: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(name, bounds, id=name, marks=marks) for name, bounds in scenarios.items()]


@pytest.mark.parametrize(("name", "bounds"), each(SEARCHED) + each(SOAKED, pytest.mark.soak, pytest.mark.timeout(3600)))
def test_no_interleaving_breaks_the_protocol(name: str, bounds: Bounds) -> None:
    model = Protocol(bounds)
    found = explore(model)
    assert not found.violation, found.violation
    for place, asking in enumerate(bounds.queries):
        locked_out = found.stuck(
            lambda state, place=place, asking=asking: state.queries[place].done == asking.batches,
            lambda state: _must_go_on(model, state),
        )
        assert not locked_out, f"{asking.name} is {locked_out}"
    assert f"| {name} |" in SEMANTICS.read_text(), f"docs/semantics.md: required a row for {name!r}"
    told = re.search(rf"^\| {re.escape(name)} \|.*\| ([0-9,]+) \|$", SEMANTICS.read_text(), re.MULTILINE)
    assert told and told[1] == f"{len(found.states):,}", f"docs/semantics.md: {name!r} has {len(found.states):,} states"


def _must_go_on(model: Protocol, state: Any) -> bool:
    """Whether queries must be able to go on from here: always, but where the user broke the chain, or cannot adopt."""
    untouched = not state.touched
    return untouched or (state.adoptions == model.bounds.adoptions and not model._read(state.visible).damage)


@pytest.mark.parametrize(
    ("rule", "bounds", "violation"),
    [
        ("exclusive_create", SEARCHED["two queries"], "batch 0 of a was acknowledged and is not in the history"),
        ("one_name", SEARCHED["initial rows"], "goes on from files that are no chain"),
        ("judge", SEARCHED["attempts"], "batch 0 of a is applied again"),
        ("served_lines", SEARCHED["foreachBatch"], "batch 0 of a/0 is applied again"),
        ("parent_hash", EXCHANGED, "goes on from files that are no chain"),
        ("head_note", SEARCHED["user"], "the newest version was lost and the head spoke of it"),
        ("head_first", SEARCHED["attempts"], r"refused \(lost\), and nobody touched the state"),
        ("settle", SEARCHED["attempts"], "batch 0 of a was acknowledged and is not in the history"),
        ("settle_followed", SEARCHED["attempts"], "batch 1 of a was acknowledged and is not in the history"),
        ("settle_collected", SEARCHED["collection"], "the history cannot be read: version 3"),
        ("pinned_base", SEARCHED["collection"], "the last batch cannot be repeated"),
        ("fencing", SEARCHED["two queries"], "b commits above a"),
    ],
)
def test_a_protocol_that_lacks_a_rule_is_found_out(rule: str, bounds: Bounds, violation: str) -> None:
    found = explore(Protocol(bounds, Rules(**{rule: False})))
    assert re.search(violation, found.violation), found.violation or f"nothing was found without {rule}"
    assert re.search(r"\n +1\. \w", found.violation), "the way to it is told"


def test_every_rule_was_switched_off_once() -> None:
    (tried,) = (
        mark.args[1]
        for mark in test_a_protocol_that_lacks_a_rule_is_found_out.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    )
    assert [rule for rule, _, _ in tried] == [field.name for field in fields(Rules)]


# --- the search ------------------------------------------------------------------------------------------------


class Counter:
    """A number that is doubled or made one more, up to 20; even ones above 16 lead nowhere."""

    def __init__(self, forbidden: int) -> None:
        self.forbidden = forbidden

    def first(self) -> int:
        return 1

    def steps(self, state: int) -> Iterator[Step]:
        if state < 20 and not (state > 16 and state % 2 == 0):
            yield Step("one more", state + 1)
            yield Step("doubled", min(20, 2 * state), "too much" if state == self.forbidden else "")

    def problem(self, state: int) -> str:
        return "forbidden" if state == self.forbidden else ""


def test_a_search_meets_every_state_once_and_tells_the_shortest_way() -> None:
    whole = explore(Counter(0))
    assert sorted(whole.states) == [*range(1, 19), 20] and not whole.violation
    problem, *steps = explore(Counter(11)).violation.splitlines()
    assert problem == "forbidden" and len(steps) == 5 and steps[-1] == "   5. one more"


def test_a_search_tells_states_from_which_a_goal_is_out_of_reach() -> None:
    whole: Exploration = explore(Counter(0))
    assert not whole.stuck(lambda state: state == 20, lambda state: state < 17)
    assert "locked out" in whole.stuck(lambda state: state == 20, lambda state: True)


def test_a_search_that_would_not_end_says_so() -> None:
    class Endless(Counter):
        def steps(self, state: int) -> Iterator[Step]:
            yield Step("one more", state + 1)

    with pytest.raises(AssertionError, match="more than 100 states: choose smaller bounds"):
        explore(Endless(0), states_max=100)


# --- what the model takes for granted, on the code that ships -----------------------------------------------------


class WatchedDisk(OsDisk):
    """The real disk, which notes the calls that make names last or vanish; syncing the folder can fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refuses = False

    def sync_folder(self, path: str) -> None:
        if self.refuses:
            raise OSError(5, "Input/output error")
        self.calls.append("sync")
        super().sync_folder(path)

    def unlink(self, path: str) -> None:
        if path.endswith((".change", ".snapshot")):
            self.calls.append("unlink")
        super().unlink(path)


class Overtaken(LocalStorage):
    """A folder in which something happens right after it was listed."""

    meanwhile: Callable[[], None] | None = None

    def list(self) -> Names:
        names = super().list()
        action, self.meanwhile = self.meanwhile, None
        if action is not None:
            action()
        return names


def test_whoever_opens_a_state_makes_certain_what_it_finds(tmp_path: Path, history: History) -> None:
    history.commit(VersionStore(LocalStorage(str(tmp_path))), 1, 2)
    disk = WatchedDisk()
    VersionStore(LocalStorage(str(tmp_path), disk)).tip()
    assert "sync" in disk.calls


def test_whoever_takes_over_anothers_version_makes_it_certain(tmp_path: Path, history: History) -> None:
    """Without it, a twin acknowledges a version whose name is not on the disk, and a power failure takes it away."""
    disk, broken = WatchedDisk(), WatchedDisk()
    follower, writer = (VersionStore(LocalStorage(str(tmp_path), each)) for each in (disk, broken))
    history.commit(writer, 1, 1)
    follower.tip()
    disk.calls.clear()
    broken.refuses = True
    with pytest.raises(StorageUncertain):
        history.commit(writer, 2, 2)
    newest = follower.tip()
    assert newest is not None and newest.version == 2
    assert "sync" in disk.calls, "its name would be lost with the power"


def test_a_commit_during_the_opening_of_a_state_is_no_loss(tmp_path: Path, history: History) -> None:
    """The head is read before the files are listed: else a version that comes in between seems to be lost."""
    storage = Overtaken(str(tmp_path))
    other = VersionStore(LocalStorage(str(tmp_path)))
    history.commit(other, 1, 1)
    storage.meanwhile = lambda: history.commit(other, 2, 2)
    newest = VersionStore(storage).tip()
    assert newest is not None and newest.version in (1, 2)


def test_initial_rows_and_a_first_batch_exclude_each_other(tmp_path: Path, history: History) -> None:
    """They have two names, and each of them alone is created exclusively."""
    loading, running = VersionStore(LocalStorage(str(tmp_path))), VersionStore(LocalStorage(str(tmp_path)))
    assert loading.tip() is None
    history.commit(running, 1, 1)
    with pytest.raises(FileExistsError):
        loading.snapshot(history.info(1, kind="snapshot"), history.whole(1))


def test_a_collection_makes_the_snapshot_certain_that_it_relies_on(tmp_path: Path, history: History) -> None:
    """Else a power failure may keep the removals and lose the snapshot: nothing could be rebuilt any more."""
    disk, broken = WatchedDisk(), WatchedDisk()
    janitor, writer = (VersionStore(LocalStorage(str(tmp_path), each), keep_versions=1) for each in (disk, broken))
    history.commit(writer, 1, 2)
    late = VersionStore(writer.storage)
    second = late.tip()
    assert second is not None
    history.commit(writer, 3, 3)
    janitor.tip()
    broken.refuses = True
    with pytest.raises(StorageUncertain):
        late.snapshot(second, history.whole(2))
    disk.calls.clear()
    assert janitor.collect()
    assert disk.calls[0] == "sync", "the removals may reach the disk before the snapshot's name does"


def test_a_lost_version_that_the_head_speaks_of_is_noticed(tmp_path: Path, history: History) -> None:
    storage = LocalStorage(str(tmp_path))
    store = VersionStore(storage)
    history.commit(store, 1, 2)
    newest = store.tip()
    assert newest is not None
    storage.delete("000000000002.change")
    note(storage, newest)
    with pytest.raises(StateDiverged, match="tidegate state adopt"):
        VersionStore(storage).tip()
