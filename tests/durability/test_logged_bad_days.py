"""Engines on a directory when something else goes wrong: what each of these tests shows once lost data, or hung."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import logged
from tidegate.durability.logged import LoggedEngine
from tidegate.durability.tasks import Threads
from tidegate.durability.versions import VersionStore
from tidegate.foundation.appending import Appender
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import LocalStorage

from .bank import Account, deposit

orders = tg.stream("orders", account=Account, amount=int)
bills = tg.stream("bills", account=int, amount=int)


@tg.transaction(on=orders, emits=[bills])
def pack(account: Account, amount: int) -> None:
    account.balance += amount
    tg.emit(bills, account=account.id, amount=amount)


@tg.transaction(on=orders, emits=[bills], compiled=False)
def pack_slowly(account: Account, amount: int) -> None:
    account.balance += amount
    tg.emit(bills, account=account.id, amount=amount)


@pytest.fixture(autouse=True)
def plain_python() -> Iterator[None]:
    with uncompiled():
        yield


def engine(path: Path | str, program: Any = deposit, **options: Any) -> tg.Engine:
    return tg.Engine(program, directory=str(path), **options)


def abandoned(opened: tg.Engine) -> None:
    """The end of a process, played: nothing is written any more, the lock is gone."""
    assert opened._kept is not None
    opened._kept._join()
    opened._kept._let_go()


def checkpoint(opened: tg.Engine) -> None:
    assert opened._kept is not None
    opened._kept.checkpoint()


def balances(opened: tg.Engine) -> dict[int, int]:
    rows = opened.scan(Account)
    return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))


def failing(monkeypatch: pytest.MonkeyPatch, error: type[Exception], *, after: bool) -> None:
    """New segments of the log fail: before anything happened, or when nobody knows."""
    write = LocalStorage.write

    def refuse(self: LocalStorage, name: str, parts: Any, *, exclusive: bool) -> None:
        if not name.endswith(".log") or after:
            write(self, name, parts, exclusive=exclusive)
        if name.endswith(".log"):
            raise error("played")

    monkeypatch.setattr(LocalStorage, "write", refuse)


# --- segments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
def test_rows_are_in_a_later_checkpoint_when_one_could_not_start_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[tg.Engine], None]
) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)
    with monkeypatch.context() as patch:
        failing(patch, tg.StorageFailed, after=False)
        checkpoint(opened)
        monkeypatch.setattr(logged, "CHECKPOINT_AFTER_BYTES", 0)
        assert opened.execute(deposit, dst=2, amount=7).committed  # the log has room, so nothing is refused
        assert balances(opened) == {1: 5, 2: 7}
    opened.execute(deposit, dst=3, amount=1)
    checkpoint(opened)
    end(opened)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5, 2: 7, 3: 1}


def test_a_segment_that_may_have_been_started_ends_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)
    with monkeypatch.context() as patch:
        failing(patch, tg.StorageUncertain, after=True)
        with pytest.raises(tg.StorageUncertain, match="played"):
            checkpoint(opened)
    for ask in (lambda: opened.execute(deposit, dst=1, amount=5), lambda: opened.read(Account, 1)):
        with pytest.raises(tg.StorageUncertain, match="open the state again"):
            ask()
    opened.close()
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5}


def test_a_segment_is_synced_before_the_next_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, write = Appender.sync, LocalStorage.write

    def note_sync(self: Appender) -> None:
        done.append("sync")
        sync(self)

    def note_write(self: LocalStorage, name: str, parts: Any, *, exclusive: bool) -> None:
        done.append(name)
        write(self, name, parts, exclusive=exclusive)

    monkeypatch.setattr(Appender, "sync", note_sync)
    monkeypatch.setattr(LocalStorage, "write", note_write)
    with engine(tmp_path, sync="never") as opened:
        opened.execute(deposit, dst=1, amount=5)
        done.clear()
        checkpoint(opened)
        assert done[:2] == ["sync", "000000000002.log"]


def test_a_checkpoint_that_cannot_be_started_loses_no_rows(tmp_path: Path) -> None:
    """Such as when the system has no thread left."""

    class NoThread(Threads):
        def start(self, action: Callable[[], None]) -> Any:
            raise RuntimeError("no thread")

    opened = LoggedEngine(build_program(deposit), str(tmp_path), background=NoThread())
    opened.execute(0, {"dst": 1, "amount": 5})
    with pytest.raises(RuntimeError):
        opened.checkpoint()
    opened._checkpoints._background = Threads()
    opened.execute(0, {"dst": 2, "amount": 7})
    opened.close()
    assert VersionStore(LocalStorage(tmp_path)).refresh() == [1, 2], "the next one has the rows of both"
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5, 2: 7}


def test_an_engine_that_is_no_longer_the_owner_removes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "memory://taken-over"
    first = LoggedEngine(build_program(deposit), path)
    first.execute(0, {"dst": 1, "amount": 5})
    second = LoggedEngine(build_program(deposit), path)
    second.execute(0, {"dst": 1, "amount": 5})
    second.checkpoint()
    removed: list[VersionStore] = []
    monkeypatch.setattr(VersionStore, "collect", lambda self: removed.append(self))
    with pytest.raises(tg.StateOwned, match="taken over"):
        first.checkpoint()
    assert not removed
    second.close()


def test_of_two_engines_that_make_a_state_at_once_one_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "memory://two-at-once"
    tip = VersionStore.tip
    others: list[LoggedEngine] = []

    def meanwhile(self: VersionStore) -> Any:
        found = tip(self)
        if not others:
            others.append(None)  # type: ignore[arg-type]
            others[0] = LoggedEngine(build_program(deposit), path)
        return found

    monkeypatch.setattr(VersionStore, "tip", meanwhile)
    with pytest.raises(tg.StateOwned, match="at the same moment"):
        LoggedEngine(build_program(deposit), path)
    assert others[0].execute(0, {"dst": 1, "amount": 5}).result == 5
    others[0].close()


# --- dataflow graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["group", "always"])
def test_graphs_in_plain_python_have_strong_recovery_too(tmp_path: Path, sync: str) -> None:
    program = tg.dataflow([pack_slowly])
    opened = engine(tmp_path, program, recovery="strong", sync=sync)
    opened.run(pa.table({"account": [1, 2], "amount": [5, 7]}))
    abandoned(opened)
    with engine(tmp_path, program, recovery="strong", sync=sync) as again:
        assert balances(again) == {1: 5, 2: 7}
        assert again.take(bills)["amount"].to_pylist() == [5, 7]


@pytest.mark.parametrize("sync", ["group", "always"])
def test_steps_stay_with_their_batch_where_every_group_is_an_object(sync: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may write the log between any two records."""
    path, program = f"memory://steps-{sync}", build_program(tg.dataflow([pack]))
    opened = LoggedEngine(program, path, "strong", sync)
    records = LoggedEngine._step_records

    def meanwhile(self: LoggedEngine, packed: bytes) -> list[bytes]:
        self._log.flush()
        return records(self, packed)

    monkeypatch.setattr(LoggedEngine, "_step_records", meanwhile)
    for _ in range(3):
        opened.run(pa.table({"account": [1, 2], "amount": [5, 7]}), None)
    again = LoggedEngine(program, path, "strong", sync)
    assert again.read(lambda core: core.rows("Account")["balance"].to_pylist()) == [15, 21]
    again.close()


def test_checkpoints_are_made_where_every_group_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "CHECKPOINT_AFTER_BYTES", 8192)
    opened = LoggedEngine(build_program(deposit), "memory://growing")
    for _ in range(40):
        opened.execute(0, {"dst": 1, "amount": 1})
    opened._join()
    newest = VersionStore(opened._storage).newest()
    assert newest is not None and 0 < newest.commands < 40
    opened.close()


# --- keys ---------------------------------------------------------------------------------------------------------


def test_a_key_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    for _ in range(2):
        with engine(tmp_path) as opened:
            assert opened.execute(deposit, idempotency_key=np.int64(7), dst=1, amount=5).result == 5
            checkpoint(opened)
            assert opened.execute(deposit, idempotency_key=7, dst=1, amount=5).result == 5


# --- threads ------------------------------------------------------------------------------------------------------


def waiting_call(opened: tg.Engine, holding: Callable[[], Any]) -> Any:
    """Let a thread call while this one has the engine, which then ends as `holding` does; what the call gave."""
    kept = opened._kept
    assert kept is not None
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(kept.execute(0, {"dst": 9, "amount": 1}).result)
        except tg.TidegateError as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    ready = LoggedEngine._ready

    def slow(self: LoggedEngine) -> Any:
        if threading.current_thread() is not thread and not thread.ident and kept.lock._is_owned():  # type: ignore[attr-defined]
            thread.start()
            deadline = time.monotonic() + 10
            while not kept._calls._queue and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.05)  # it has asked for the lock, and sleeps
        return ready(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoggedEngine, "_ready", slow)
        holding()
    thread.join(10)
    assert not thread.is_alive(), "the call waits for ever"
    return found[0]


def test_a_call_that_waits_goes_on_when_another_is_refused(tmp_path: Path) -> None:
    with engine(tmp_path) as opened:

        def refused() -> None:
            with pytest.raises(tg.InputError):
                opened.load(Account, pa.table({"id": [1, 1]}))

        assert waiting_call(opened, refused) == 1


@pytest.mark.parametrize("ask", ["history", "last_batch", "decisions"])
def test_a_call_that_waits_goes_on_when_another_has_looked(tmp_path: Path, ask: str) -> None:
    with engine(tmp_path) as opened:
        assert waiting_call(opened, lambda: getattr(opened, ask)) == 1


def test_a_call_that_waits_is_refused_when_the_engine_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=1)
    begin = LoggedEngine._begin_checkpoint

    def begin_slowly(self: LoggedEngine) -> None:
        self._ready()
        begin(self)

    monkeypatch.setattr(LoggedEngine, "_begin_checkpoint", begin_slowly)
    assert "closed" in str(waiting_call(opened, opened.close))


def test_asking_for_a_table_starts_no_checkpoint_beside_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are looked at by whoever has the engine: a checkpoint beside a transaction would hold half of it."""
    opened = engine(tmp_path)
    owners: list[bool] = []
    ready = LoggedEngine._ready

    def owned(self: LoggedEngine) -> Any:
        owners.append(self.lock._is_owned())  # type: ignore[attr-defined]
        return ready(self)

    monkeypatch.setattr(LoggedEngine, "_ready", owned)
    opened.load(Account, pa.table({"id": [1]}))
    opened.read(Account, 1)
    opened.scan(Account)
    opened.execute(deposit, dst=1, amount=1)
    assert opened.last_batch is not None and opened.decisions == [] and opened.history == []
    assert owners and all(owners)
    opened.close()
