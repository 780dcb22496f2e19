"""Batches on a state in an object store: a real S3 server on loopback, no locks, and answers that get lost.

What differs from a local folder: a version is one conditional put, nobody can see who is alive, and a put may have
happened although its answer never came. The engine finds out by reading.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import ownership
from tidegate.durability.head import read as read_head
from tidegate.durability.served import stream_applicant
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage

from .bank import deposit

if TYPE_CHECKING:
    from ..s3 import S3Server

Outcomes = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with uncompiled():
        yield


@pytest.fixture
def url(s3: S3Server) -> str:
    return s3.new_bucket() + "/state"


def batch(number: int, size: int = 3) -> pa.Table:
    return pa.table({"dst": [number % 2] * size, "amount": list(range(1, size + 1))})


def engine(url: str) -> VersionedEngine:
    """An engine that knows nothing."""
    return VersionedEngine(build_program([deposit]), open_storage(url), keep_versions=3)


def ask(on: VersionedEngine, number: int, query: str = "q", events: pa.Table | None = None) -> Outcomes:
    owner = Owner(query, "test", f"token of {query}")
    table = batch(number) if events is None else events
    found = on.process(stream_applicant(query, number), table, order_by=None, late="run", owner=owner)
    return list(zip(*(found[name].to_pylist() for name in ("committed", "reason", "result")), strict=True))


def balances(url: str) -> dict[int, int]:
    rows = engine(url).core.rows("Account")
    return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))


def versions(url: str) -> list[tuple[int, str, int]]:
    return [(info.version, info.query, info.batch) for info in VersionStore(open_storage(url)).infos()]


def test_batches_are_applied_and_repeated_by_an_engine_that_knows_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 1)
    monkeypatch.setattr("tidegate.durability.versions.CHANGE_BYTES_MIN", 1000)
    first = engine(url)
    given = [ask(first, number) for number in range(6)]
    assert given[4][-1] == (True, None, 18)
    assert ask(engine(url), 5) == given[5]
    assert ask(engine(url), 4) == given[4]
    assert balances(url) == {0: 18, 1: 18}
    kept = versions(url)
    assert kept[-1] == (6, "q", 5) and len(kept) < 6
    head = read_head(open_storage(url))
    assert head is not None and head.version == 6


def test_of_two_engines_that_race_for_each_version_one_wins_and_the_other_repeats_it(url: str) -> None:
    engines = [engine(url), engine(url)]
    start = threading.Barrier(2)
    given: list[list[Outcomes]] = [[], []]
    failures: list[BaseException] = []

    def run(which: int) -> None:
        try:
            with uncompiled():
                for number in range(5):
                    start.wait(30)
                    given[which].append(ask(engines[which], number))
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert given[0] == given[1]
    assert versions(url) == [(number + 1, "q", number) for number in range(5)]
    assert balances(url) == {0: 18, 1: 12}


def before_the_next_put(on: VersionedEngine, action: Callable[[], object]) -> None:
    """Runs an action right before the engine's next version is put."""
    write = on._storage.write

    def write_late(name: str, parts: Any, *, exclusive: bool) -> None:
        if name.endswith(".change"):
            on._storage.write = write  # type: ignore[method-assign]
            action()
        write(name, parts, exclusive=exclusive)

    on._storage.write = write_late  # type: ignore[method-assign]


def test_the_loser_of_a_race_gives_the_outcomes_of_the_winner(url: str) -> None:
    slow, fast = engine(url), engine(url)
    ask(slow, 0)
    given: list[Outcomes] = []
    before_the_next_put(slow, lambda: given.append(ask(fast, 1)))
    assert ask(slow, 1) == given[0]
    assert versions(url) == [(1, "q", 0), (2, "q", 1)]


def test_without_locks_an_owner_is_believed_until_it_is_released_and_is_fenced_out_afterwards(url: str) -> None:
    old, new = engine(url), engine(url)
    ask(old, 0)
    with pytest.raises(tg.StateOwned, match="cannot be seen here: this file system has no locks"):
        ask(new, 0, query="other")
    before_the_next_put(old, lambda: (ownership.release(open_storage(url), "q"), ask(new, 0, query="other")))
    with pytest.raises(tg.StateOwned, match="owned by query 'other'"):
        ask(old, 1)
    assert versions(url) == [(1, "q", 0), (2, "other", 0)]
    assert balances(url) == {0: 12}
    assert ask(new, 1, query="other")[-1] == (True, None, 6)


def test_of_two_open_engines_the_later_one_fences_the_earlier_out(url: str) -> None:
    first = tg.Engine([deposit], directory=url)
    first.execute(deposit, dst=1, amount=5)
    second = tg.Engine([deposit], directory=url)
    assert second.execute(deposit, dst=1, amount=1).result == 6
    with pytest.raises(tg.StateOwned, match="taken over"):
        first.execute(deposit, dst=1, amount=100)
    assert second.execute(deposit, dst=1, amount=1).result == 7


def test_a_put_that_was_stored_but_not_answered_is_found_to_be_committed(
    s3: S3Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client repeats the put; the store says that the name is taken, by these very bytes."""
    on = engine(url)
    ask(on, 0)
    s3.loses = 1
    assert ask(on, 1)[-1] == (True, None, 6)
    assert s3.loses == 0 and "it is there, and nothing is wrong" in caplog.text
    assert ask(on, 2)[-1] == (True, None, 12)
    assert versions(url) == [(1, "q", 0), (2, "q", 1), (3, "q", 2)]


def test_a_put_that_times_out_after_it_was_stored_is_found_to_be_committed(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gives up waiting and does not repeat: nothing but reading can tell."""
    on = engine(url)
    ask(on, 0)
    files = on._storage._file_system  # type: ignore[attr-defined]
    put = files.pipe_file

    def put_and_time_out(path: str, data: bytes, **options: Any) -> None:
        put(path, data, **options)
        if path.endswith(".change"):
            raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(files, "pipe_file", put_and_time_out)
        assert ask(on, 1)[-1] == (True, None, 6)
    assert "it is there, and nothing is wrong" in caplog.text
    assert ask(engine(url), 1)[-1] == (True, None, 6)
    assert balances(url) == {0: 6, 1: 6}


def test_a_put_that_never_arrived_commits_nothing_and_the_batch_can_be_repeated(s3: S3Server, url: str) -> None:
    on = engine(url)
    ask(on, 0)
    s3.refuses = 1000
    with pytest.raises(tg.StorageFailed, match="nothing was committed"):
        ask(on, 1)
    s3.refuses = 0
    assert balances(url) == {0: 6}
    assert ask(on, 1)[-1] == (True, None, 6)
    assert versions(url) == [(1, "q", 0), (2, "q", 1)]


def test_a_put_whose_fate_cannot_be_found_out_is_in_doubt_and_asking_again_settles_it(url: str) -> None:
    on = engine(url)
    ask(on, 0)
    files = on._storage._file_system  # type: ignore[attr-defined]
    put = files.pipe_file

    def unreachable(*_arguments: Any, **_options: Any) -> Any:
        raise ConnectionError("no route")

    with pytest.MonkeyPatch.context() as patch:

        def put_and_vanish(path: str, data: bytes, **options: Any) -> None:
            put(path, data, **options)
            patch.setattr(files, "cat_file", unreachable)
            patch.setattr(files, "info", unreachable)
            raise TimeoutError("no answer")

        patch.setattr(files, "pipe_file", put_and_vanish)
        with pytest.raises(tg.StorageUncertain):
            ask(on, 1)
    assert ask(on, 1)[-1] == (True, None, 6)
    assert versions(url) == [(1, "q", 0), (2, "q", 1)]
