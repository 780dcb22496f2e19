"""Engines on a directory: what was acknowledged is there after anything, what was refused changed nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.commands.log_records import read_commands
from tidegate.compiler.program import build_program
from tidegate.durability import log_segments, logged
from tidegate.durability.commands import Run, Void
from tidegate.durability.log_format import frames
from tidegate.durability.logged import LoggedEngine
from tidegate.durability.ownership import process_token
from tidegate.durability.served import stream_applicant
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.versioned import VersionedEngine
from tidegate.durability.versions import VersionStore
from tidegate.engine.core import EngineCore
from tidegate.foundation.appending import Appender
from tidegate.foundation.storage import open_storage

from .bank import Account, deposit


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


orders = tg.stream("orders", account=Account, amount=int)
packed = tg.stream("packed", account=Account, amount=int)
bills = tg.stream("bills", account=int, amount=int)


@tg.transaction(on=orders, emits=[packed])
def pack(account: Account, amount: int) -> int:
    tg.require(amount > 0, "nothing ordered")
    account.balance += amount
    tg.emit(packed, account=account.id, amount=amount)
    return account.balance


@tg.transaction(on=packed, emits=[bills])
def bill(account: Account, amount: int) -> None:
    account.balance += 1000 * amount
    tg.emit(bills, account=account.id, amount=amount)


SHOP = tg.dataflow([pack, bill])
PROGRAM = [deposit, transfer]


def engine(path: Path, program: Any = None, **options: Any) -> tg.Engine:
    return tg.Engine(PROGRAM if program is None else program, directory=str(path), **options)


def abandoned(opened: tg.Engine) -> None:
    """The end of a process, played: nothing is written any more, the lock is gone."""
    kept = opened._kept
    assert kept is not None
    kept._join()
    kept._let_go()


def balances(opened: tg.Engine) -> dict[int, int]:
    rows = opened.scan(Account)
    return dict(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))


def events(*rows: tuple[int, int]) -> pa.Table:
    return pa.table(
        {
            "transaction": ["deposit"] * len(rows),
            "dst": [r[0] for r in rows],
            "amount": [r[1] for r in rows],
            "src": pa.nulls(len(rows), pa.int64()),
        }
    )


@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
@pytest.mark.parametrize("sync", ["group", "always", "never"])
def test_an_engine_goes_on_where_it_stopped(tmp_path: Path, end: Any, sync: str) -> None:
    first = engine(tmp_path, sync=sync)
    first.load(Account, pa.table({"id": [1], "balance": [10]}))
    first.run(events((1, 90), (2, 5)))
    assert first.execute(transfer, src=1, dst=2, amount=30) == tg.Outcome(True, None, 70)
    assert first.execute(transfer, src=1, dst=2, amount=300) == tg.Outcome(False, "insufficient funds", None)
    with pytest.raises(tg.StateOwned, match="another tg"):
        engine(tmp_path)
    end(first)
    for _ in range(2):
        with engine(tmp_path) as again:
            assert balances(again) == {1: 70, 2: 35}
    with engine(tmp_path) as again:
        again.execute(deposit, dst=2, amount=1)
        abandoned(again)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 70, 2: 36}


def test_a_closed_engine_refuses_everything_and_its_successor_is_not_disturbed(tmp_path: Path) -> None:
    first = engine(tmp_path)
    first.execute(deposit, dst=1, amount=5)
    first.close()
    first.close()
    with engine(tmp_path) as second:
        for ask in (
            lambda: first.execute(deposit, dst=1, amount=5),
            lambda: first.run(events((1, 1))),
            lambda: first.load(Account, pa.table({"id": [1]})),
            lambda: first.read(Account, 1),
            lambda: first.scan(Account),
            lambda: first.last_batch,
        ):
            with pytest.raises(tg.InputError, match="closed"):
                ask()
        assert second.execute(deposit, dst=1, amount=1).result == 6


def test_a_bad_argument_keeps_the_rows_warm_and_changes_nothing(tmp_path: Path) -> None:
    with engine(tmp_path) as opened:
        opened.execute(deposit, dst=1, amount=5)
        core = opened._core
        with pytest.raises(tg.InputError):
            opened.execute(deposit, dst=1, amount="five")
        with pytest.raises(tg.InputError):
            opened.run(pa.table({"transaction": ["deposit"], "dst": [1]}))
        with pytest.raises(tg.InputError):
            opened.load(Account, pa.table({"id": [1, 1]}))
        assert opened._core is core
        assert opened.execute(deposit, dst=1, amount=1).result == 6
        abandoned(opened)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 6}


def test_a_full_disk_refuses_before_anything_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(tmp_path) as opened:
        opened.execute(deposit, dst=1, amount=5)

        def full(self: Appender, size: int) -> None:
            raise tg.StorageFailed("no space")

        with monkeypatch.context() as patch:
            patch.setattr(Appender, "reserve", full)
            for ask in (lambda: opened.execute(deposit, dst=1, amount=5), lambda: opened.run(events((1, 5)))):
                with pytest.raises(tg.StorageFailed, match="no space"):
                    ask()
        assert balances(opened) == {1: 5}
        assert opened.execute(deposit, dst=1, amount=1).result == 6


def test_a_failed_sync_poisons_the_engine_until_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)

    def fail(self: Appender) -> None:
        raise self._die("syncing it failed", OSError(5, "Input/output error"))

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "sync", fail)
        with pytest.raises(tg.StorageUncertain, match="open the state again"):
            opened.execute(deposit, dst=1, amount=5)
    for ask in (lambda: opened.execute(deposit, dst=2, amount=1), lambda: opened.read(Account, 1)):
        with pytest.raises(tg.StorageUncertain, match="may or may not be in the log"):
            ask()
    opened.close()
    with engine(tmp_path) as again:
        assert balances(again) in ({1: 5}, {1: 10})
        before = balances(again)[1]
        assert again.execute(deposit, dst=1, amount=1).result == before + 1


def test_a_sync_that_fails_when_an_engine_is_closed_is_told_and_the_state_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = engine(tmp_path, sync="never")
    opened.execute(deposit, dst=1, amount=5)

    def fail(self: Appender) -> None:
        raise self._die("syncing it failed", OSError(5, "Input/output error"))

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "sync", fail)
        with pytest.raises(tg.StorageUncertain, match="syncing it failed"):
            opened.close()
    opened.close()
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5}


def deposits(*amounts: int) -> pa.Table:
    count = len(amounts)
    return pa.table({"transaction": ["deposit"] * count, "src": [1] * count, "dst": [1] * count, "amount": amounts})


def test_a_batch_that_was_logged_before_it_failed_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "EARLY_BYTES", 1)
    opened = engine(tmp_path)
    opened.run(deposits(5))

    def fail(self: EngineCore, *arguments: Any, **options: Any) -> pa.Table:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(EngineCore, "_leave", fail)
        with pytest.raises(MemoryError):
            opened.run(deposits(11))
    assert balances(opened) == {1: 5}
    opened.run(deposits(1))
    assert [type(each.record) for each in read_commands(open_storage(str(tmp_path)))] == [Run, Run, Void, Run]
    crashed = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name} crashed"))
    opened.close()
    for path in (tmp_path, crashed):
        with engine(path) as again:
            assert balances(again) == {1: 6}


def test_where_no_thread_is_left_a_batch_is_written_when_it_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "EARLY_BYTES", 1)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    opened = engine(tmp_path / "live")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        opened.run(deposits(5))
    shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    opened.close()
    for name in ("live", "crashed"):
        with engine(tmp_path / name) as again:
            assert balances(again) == {1: 5}


def test_batches_of_many_threads_that_are_logged_while_they_run_share_no_memory(tmp_path: Path) -> None:
    """Each is large enough to be logged early, and for the next one to want the memory while it is being written."""
    count, threads = 8_000, 4
    path, rounds = tmp_path / "live", 12

    def work(first: int) -> None:
        for turn in range(rounds):
            keys = np.arange(count) + (first * rounds + turn) * count
            opened.run(pa.table({"dst": keys, "amount": keys + 1}))
            opened.execute(deposit, dst=-1, amount=1)

    with tg.Engine(deposit, directory=str(path)) as opened:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        shutil.copytree(path, tmp_path / "crashed")
    total = count * threads * rounds
    for name in ("live", "crashed"):
        with tg.Engine(deposit, directory=str(tmp_path / name)) as again:
            rows = again.scan(Account)
            assert rows["id"].to_pylist() == [-1, *range(total)]
            assert rows["balance"].to_pylist() == [threads * rounds, *range(1, total + 1)]


def test_a_batch_is_not_logged_before_it_is_known_to_be_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "EARLY_BYTES", 1)
    opened = engine(tmp_path)
    opened.run(deposits(5))
    written = log_bytes(tmp_path)
    for bad in (deposits(7).append_column("committed", pa.array([True])), deposits(7).drop_columns(["amount"])):
        with pytest.raises(tg.InputError):
            opened.run(bad)
    assert log_bytes(tmp_path) == written
    abandoned(opened)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5}


def log_bytes(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.glob("*.log"))]


def test_a_checkpoint_that_fails_makes_nothing_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)

    def full(*_arguments: Any, **_named: Any) -> Any:
        raise tg.StorageFailed("no space")

    with monkeypatch.context() as patch:
        patch.setattr(VersionStore, "commit", full)
        assert opened._kept is not None
        opened._kept.checkpoint()
        opened.execute(deposit, dst=2, amount=7)
    assert "a checkpoint failed" in caplog.text
    opened.execute(deposit, dst=3, amount=1)
    opened.close()  # writes one that holds everything
    storage = open_storage(str(tmp_path))
    log_segments.require_covered(storage, VersionStore(storage).newest())
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5, 2: 7, 3: 1}


def test_checkpoints_follow_each_other_and_what_they_cover_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "CHECKPOINT_AFTER_BYTES", 4096)
    opened = engine(tmp_path)
    for number in range(3000):
        opened.execute(deposit, dst=number % 50, amount=1)
    abandoned(opened)
    names = os.listdir(tmp_path)
    assert 2 <= sum(name.endswith(".log") for name in names) <= 4
    with engine(tmp_path) as again:
        assert balances(again) == {key: 60 for key in range(50)}


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
def test_a_call_with_a_key_is_made_once_across_restarts(tmp_path: Path, end: Any) -> None:
    opened = engine(tmp_path)
    for key in ("order-7", 7):
        for _ in range(3):
            assert opened.execute(deposit, idempotency_key=key, dst=1, amount=5).result in (5, 10)
    refused = opened.execute(transfer, idempotency_key="never", src=9, dst=1, amount=5)
    assert refused.reason == "insufficient funds"
    end(opened)
    for _ in range(2):
        with engine(tmp_path) as again:
            assert again.execute(deposit, idempotency_key="order-7", dst=1, amount=5) == tg.Outcome(True, None, 5)
            assert again.execute(deposit, idempotency_key=7, dst=1, amount=5) == tg.Outcome(True, None, 10)
            again.execute(deposit, dst=9, amount=100)
            assert again.execute(transfer, idempotency_key="never", src=9, dst=1, amount=5) == refused
            with pytest.raises(tg.InputError, match="was used for another call"):
                again.execute(deposit, idempotency_key="order-7", dst=1, amount=6)
            assert again.read(Account, 1) == {"id": 1, "balance": 10}


def test_keys_work_in_memory_too() -> None:
    opened = tg.Engine(PROGRAM)
    assert [opened.execute(deposit, idempotency_key="a", dst=1, amount=5).result for _ in range(2)] == [5, 5]
    assert opened.execute(deposit, dst=1, amount=5).result == 10


def test_old_keys_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.durability.once_keys.KEYS_MAX", 3)
    for _ in range(2):
        with engine(tmp_path) as opened:
            for key in range(6):
                opened.execute(deposit, idempotency_key=key, dst=key, amount=1)
    with engine(tmp_path) as opened:
        assert balances(opened) == {key: 2 for key in range(6)}
        opened.execute(deposit, idempotency_key=5, dst=5, amount=1)
        assert balances(opened)[5] == 2


# --- dataflow graphs ------------------------------------------------------------------------------------------------


def shop_events(*amounts: int) -> pa.Table:
    return pa.table({"account": [1] * len(amounts), "amount": list(amounts)})


@pytest.mark.parametrize("recovery", ["weak", "strong"])
@pytest.mark.parametrize("sync", ["group", "always"])
@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
def test_graphs_are_recovered_with_their_outputs(tmp_path: Path, recovery: str, sync: str, end: Any) -> None:
    opened = engine(tmp_path, SHOP, recovery=recovery, sync=sync)
    opened.run(shop_events(5, 0, 7))
    assert opened.take(bills)["amount"].to_pylist() == [5, 7]
    opened.run(shop_events(1, 2))
    with pytest.raises(tg.InputError):
        opened.run(pa.table({"account": [1]}))
    end(opened)
    with engine(tmp_path, SHOP, recovery=recovery, sync=sync) as again:
        assert again.read(Account, 1) == {"id": 1, "balance": 15 * 1001}
        again.run(shop_events(3))
        assert again.take(bills).to_pydict() == {"account": [1, 1, 1], "amount": [1, 2, 3], "batch": [4, 5, 6]}
        assert again.take(bills).num_rows == 0
    with engine(tmp_path, SHOP) as again:
        assert again.take(bills).num_rows == 0


def test_a_strong_log_that_ends_in_the_middle_of_a_round_is_finished(tmp_path: Path) -> None:
    """Every cut of the log behind the batch's own record gives the state of the whole batch."""
    opened = engine(tmp_path / "whole", SHOP, recovery="strong", sync="always")
    opened.run(shop_events(5, 0, 7))
    abandoned(opened)
    (first,) = log_segments.numbers(open_storage(str(tmp_path / "whole")))
    segment = log_segments.open_segment(open_storage(str(tmp_path / "whole")), first)
    ends = [segment.header.end]
    for part in frames(segment.file, segment.data):
        if hasattr(part, "payload"):
            ends.append(part.end.offset)
    assert len(ends) > 5
    for count, cut in enumerate(ends):
        place = tmp_path / str(count)
        place.mkdir()
        for name in os.listdir(tmp_path / "whole"):
            data = (tmp_path / "whole" / name).read_bytes()
            (place / name).write_bytes(data[:cut] if name.endswith(".log") else data)
        with engine(place, SHOP, recovery="strong") as again:
            expected = {"id": 1, "balance": 12 * 1001} if count else None
            assert again.read(Account, 1) == expected
            assert again.take(bills)["amount"].to_pylist() == ([5, 7] if count else [])


# --- programs -------------------------------------------------------------------------------------------------------


@tg.transaction(compiled=False)
def spend(dst: Account, amount: int) -> int:
    dst.balance += amount + random.randrange(1_000_000)
    return dst.balance


@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
def test_what_plain_python_did_is_kept_and_not_repeated(tmp_path: Path, end: Any) -> None:
    opened = engine(tmp_path, [spend])
    results = [opened.execute(spend, dst=number, amount=1).result for number in range(3)]
    results += opened.run(pa.table({"dst": [3, 4], "amount": [1, 1]}))["result"].to_pylist()
    opened.execute(spend, idempotency_key="k", dst=5, amount=0)
    end(opened)
    with engine(tmp_path, [spend]) as again:
        kept = balances(again)
        assert [kept[number] for number in range(5)] == results
        assert again.execute(spend, idempotency_key="k", dst=5, amount=0).result == kept[5]


def test_another_program_does_not_replay_a_log_but_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)
    abandoned(opened)
    with pytest.raises(tg.RecoveryImpossible, match="another program"):
        engine(tmp_path, [deposit])
    engine(tmp_path).close()
    with engine(tmp_path, [deposit]) as again:
        assert balances(again) == {1: 5}


def test_a_stream_does_not_go_on_without_the_commands_of_an_engine_that_died(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=5)
    abandoned(opened)

    def stream(batch: int) -> pa.Table:
        owner = Owner("q", "test", process_token())
        versioned = VersionedEngine(build_program(PROGRAM), str(tmp_path))
        return versioned.process(stream_applicant("q", batch), events((1, 1)), order_by=None, late="run", owner=owner)

    with pytest.raises(tg.RecoveryImpossible, match="was not closed"):
        stream(0)
    engine(tmp_path).close()
    assert stream(0)["result"].to_pylist() == [6]
    assert stream(1)["result"].to_pylist() == [7]
    with engine(tmp_path) as again:  # and an engine goes on from there, without its own old log
        assert again.execute(deposit, dst=1, amount=1).result == 8
        abandoned(again)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 8}


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_in_the_log_is_named(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    for number in range(5):
        opened.execute(deposit, dst=number, amount=1)
    abandoned(opened)
    (file,) = tmp_path.glob("*.log")
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    for place in range(0, used, 7):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        file.write_bytes(damaged)
        with pytest.raises((tg.StorageCorrupted, tg.RecoveryImpossible), match=file.name):
            engine(tmp_path)
    file.write_bytes(data)
    with engine(tmp_path) as again:
        assert balances(again) == {number: 1 for number in range(5)}


def test_a_torn_tail_is_cut_off_and_nothing_before_it_is_lost(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    for number in range(5):
        opened.execute(deposit, dst=number, amount=1)
    abandoned(opened)
    (file,) = tmp_path.glob("*.log")
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    file.write_bytes(data[: used - 3] + bytes(len(data) - used + 3))
    for _ in range(2):
        with engine(tmp_path) as again:
            assert balances(again) == {number: 1 for number in range(4)}
            abandoned(again)


def test_a_lost_segment_is_noticed(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    opened.execute(deposit, dst=1, amount=1)
    abandoned(opened)
    opened = engine(tmp_path)
    opened.execute(deposit, dst=2, amount=1)
    abandoned(opened)
    first, second = sorted(tmp_path.glob("*.log"))
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(tg.StateDiverged, match=f"{first.name} is missing"):
        engine(tmp_path)
    first.write_bytes(kept)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 1, 2: 1}
    assert second.name


# --- threads, and real deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["group", "always", "never"])
def test_calls_of_many_threads_each_count_once(tmp_path: Path, sync: str) -> None:
    opened = engine(tmp_path, sync=sync)
    opened.load(Account, pa.table({"id": [0], "balance": [0]}))
    seen: list[list[int]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        for _ in range(50):
            seen[number].append(opened.execute(deposit, dst=0, amount=1).result)
            if number % 4 == 0:
                row = opened.read(Account, 0)
                assert row is not None and row["balance"] >= seen[number][-1]
            if number % 4 == 1:
                opened.run(events((number, 1)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result for results in seen for result in results) == list(range(1, 401))
    assert all(results == sorted(results) for results in seen)
    abandoned(opened)
    with engine(tmp_path) as again:
        assert balances(again) == {0: 400, 1: 50, 5: 50}


def test_one_threads_bad_call_is_its_own_matter(tmp_path: Path) -> None:
    opened = engine(tmp_path)
    failed: list[int] = []

    def work(number: int) -> None:
        for turn in range(40):
            try:
                opened.execute(deposit, dst=0, amount=1 if number % 2 else "one")
            except tg.InputError:
                failed.append(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 120 and balances(opened) == {0: 120}
    opened.close()


WRITER = textwrap.dedent(
    """
    import sys, threading
    sys.path.insert(0, sys.argv[2])
    import ledger_of_writer as ledger
    import tidegate as tg
    from tidegate.durability import logged
    logged.CHECKPOINT_AFTER_BYTES = 2048
    engine = tg.Engine([ledger.count], directory=sys.argv[1], sync=sys.argv[3])

    def work(number):
        while True:
            outcome = engine.execute(ledger.count, counter=number)
            sys.stdout.write(f"{number} {outcome.result}\\n")
            sys.stdout.flush()

    for number in range(4):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    threading.Event().wait()
    """
)

LEDGER = textwrap.dedent(
    """
    import tidegate as tg

    @tg.table(key="id")
    class Counter:
        id: int
        count: int = 0

    @tg.transaction
    def count(counter: Counter) -> int:
        counter.count += 1
        return counter.count
    """
)


def kill_writers(tmp_path: Path, kills: int, seed: int) -> int:
    """Kill a writing process again and again; every answer that it gave must be there afterwards."""
    (tmp_path / "ledger_of_writer.py").write_text(LEDGER)
    sys.path.insert(0, str(tmp_path))
    import ledger_of_writer as ledger  # type: ignore[import-not-found]

    moments, answered = random.Random(seed), dict.fromkeys(range(4), 0)
    state = tmp_path / "state"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for kill in range(kills):
        command = [sys.executable, "-c", WRITER, str(state), str(tmp_path), ("group", "always", "never")[kill % 3]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline()]
            time.sleep(moments.uniform(0, 0.3))
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.read().splitlines()
        for line in lines:
            parts = line.split()
            if len(parts) == 2 and line.strip():
                answered[int(parts[0])] = max(answered[int(parts[0])], int(parts[1]))
        with tg.Engine([ledger.count], directory=str(state)) as opened:
            for number, count in answered.items():
                row = opened.read(ledger.Counter, number)
                found = 0 if row is None else row["count"]
                assert count <= found <= count + 1, f"seed {seed}, kill {kill}: {number}"
                answered[number] = found
    return sum(answered.values())


def test_killed_engines_lose_nothing_that_they_answered(tmp_path: Path, record_property: Any) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    assert kill_writers(tmp_path, 4, seed) > 100
    record_property("compared real kills", 4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_engines_survive_many_kills(tmp_path: Path, record_property: Any) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    assert kill_writers(tmp_path, 200, seed) > 1000
    record_property("compared real kills", 200)


def test_a_closed_engine_lets_go_of_a_state_where_there_are_no_locks() -> None:
    path = "memory://let-go"
    engine = LoggedEngine(build_program(PROGRAM), path)
    engine.execute(0, {"dst": 1, "amount": 5})
    engine.close()
    versioned, owner = VersionedEngine(build_program(PROGRAM), path), Owner("q", "test", process_token())
    found = versioned.process(stream_applicant("q", 0), events((1, 1)), order_by=None, late="run", owner=owner)
    assert found["result"].to_pylist() == [6]


def test_an_engine_on_an_object_store_is_fenced_by_one_that_has_been_past_it() -> None:
    """The number of its next command is free again: its successor made checkpoints and removed what they cover."""
    path = "memory://been-past"
    first = LoggedEngine(build_program(PROGRAM), path)
    first.execute(0, {"dst": 1, "amount": 5})
    second = LoggedEngine(build_program(PROGRAM), path)
    for _ in range(4):
        second.execute(0, {"dst": 1, "amount": 1})
        second.checkpoint()
    assert "000000000002.log" not in open_storage(path).list()
    with pytest.raises(tg.StateOwned, match="taken over"):
        first.execute(0, {"dst": 1, "amount": 5})
    second.close()
    third = LoggedEngine(build_program(PROGRAM), path)
    assert third.execute(0, {"dst": 1, "amount": 0}).result == 9
    third.close()


def test_an_engine_on_an_object_store_is_fenced_by_its_successor() -> None:
    path = "memory://fenced"
    first = LoggedEngine(build_program(PROGRAM), path)
    first.execute(0, {"dst": 1, "amount": 5})
    second = LoggedEngine(build_program(PROGRAM), path)
    assert second.execute(0, {"dst": 1, "amount": 1}).result == 6
    with pytest.raises(tg.StateOwned, match="taken over"):
        first.execute(0, {"dst": 1, "amount": 5})
    second.close()
    third = LoggedEngine(build_program(PROGRAM), path)
    assert third.execute(0, {"dst": 1, "amount": 0}).result == 6
    third.close()


@pytest.mark.parametrize("end", [tg.Engine.close, abandoned])
@pytest.mark.parametrize("keep_versions", [1, 2, 5, None])
def test_keep_versions_says_how_many_checkpoints_can_be_gone_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Any, keep_versions: int | None
) -> None:
    """The rows are the same however many are kept; older versions, and the log that they would need, are removed."""
    monkeypatch.setattr("tidegate.durability.versions.SNAPSHOT_AFTER_BYTES", 1)  # a snapshot for every checkpoint
    opened = engine(tmp_path, keep_versions=keep_versions)
    kept = opened._kept
    assert kept is not None
    for amount in range(1, 9):
        opened.execute(deposit, dst=1, amount=amount)
        kept.checkpoint()
        kept._checkpoints._compactor.wait()
    opened.execute(deposit, dst=1, amount=100)
    storage, wanted = open_storage(str(tmp_path)), keep_versions or 2
    commands = [info.commands for info in kept._checkpoints.store.infos()]
    assert commands[-wanted:] == list(range(9 - wanted, 9))
    assert log_segments.numbers(storage) == list(range(10 - wanted, 10)), "the log behind the oldest that is kept"
    end(opened)
    store = VersionStore(storage, wanted)
    for info in store.infos()[-wanted:]:
        rows = rows_at(store, kept.program.plan.tables[0], info.version)
        assert rows["balance"].to_pylist() == [sum(range(1, min(info.commands, 8) + 1)) + 100 * (info.commands == 9)]
    with engine(tmp_path, keep_versions=keep_versions) as again:
        assert balances(again) == {1: 136}


def test_keep_versions_without_a_state_folder_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        tg.DefinitionError, match=r"keep_versions=3: an engine without a state folder.*directory=\.\.\."
    ):
        tg.Engine(PROGRAM, keep_versions=3)


def test_a_strategy_that_is_wrong_by_design_is_refused_where_its_rows_would_be_kept(tmp_path: Path) -> None:
    with pytest.raises(tg.DefinitionError, match="'unsafe-nolock' gives wrong rows by design"):
        engine(tmp_path / "state", strategy="unsafe-nolock")
    assert not (tmp_path / "state").exists()
    tg.Engine(PROGRAM, strategy="unsafe-nolock")


def test_a_directory_may_be_a_path(tmp_path: Path) -> None:
    with tg.Engine(PROGRAM, directory=tmp_path) as opened:
        opened.execute(deposit, dst=1, amount=5)
    with engine(tmp_path) as again:
        assert balances(again) == {1: 5}
