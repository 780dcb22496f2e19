"""What a worker does with one batch, without Spark around it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compiler.program import build_program
from tidegate.durability import ownership
from tidegate.durability.ownership import process_token, stay_alive
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionInfo, VersionStore
from tidegate.foundation.errors import InputError, StateOwned
from tidegate.foundation.jit import uncompiled
from tidegate.foundation.storage import open_storage
from tidegate.spark import task
from tidegate.spark.columns import PARTITION_COLUMN
from tidegate.spark.payload import digest, pack
from tidegate.spark.task import ENGINES_MAX, TaskSettings, in_source_order, make_task

from .ledgers import PROGRAM, Account, deposit

orders = tg.stream("orders", account=int, amount=int)


@tg.transaction(on=orders)
def book(account: Account, amount: int) -> int:
    account.balance += amount
    return account.balance


pairs = tg.dataflow([book], atomic_batch=2)


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """A worker that was just started."""
    task._engines.clear()
    yield
    task._engines.clear()


def settings(path: Path, name: str, program: list[object] | None = None) -> TaskSettings:
    payload = pack(build_program(program or PROGRAM))  # type: ignore[arg-type]
    return TaskSettings(
        payload=payload,
        digest=digest(payload),
        path=str(path),
        columns=("transaction", "src", "dst", "amount", "note"),
        order_by=None,
        late="run",
        keep_versions=100,
        owner=Owner("", "test", process_token()),
        batch_name=name,
        call=0,
        in_stream=False,
        planned_state="",
        planned_version=0,
    )


def owned(path: Path, query: str) -> None:
    """A state that a running query owns."""
    storage = open_storage(str(path))
    stay_alive(storage, process_token())
    owner = Owner(query, "another query", process_token())
    VersionStore(storage).commit(VersionInfo(1, "change", query, 0, 0, 0.0, 0, 0, None, (), {}, 0, owner=owner), {})


def rows(*amounts: int, partition: int = 0) -> pa.RecordBatch:
    count = len(amounts)
    return pa.RecordBatch.from_pydict(
        {
            "transaction": pa.array(["deposit"] * count),
            "src": pa.nulls(count, pa.int64()),
            "dst": pa.array([1] * count),
            "amount": pa.array(amounts),
            "note": pa.array([f"n{amount}" for amount in amounts]),
            PARTITION_COLUMN: pa.array([partition] * count, pa.int32()),
        }
    )


def run(chosen: TaskSettings, *batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(list(make_task(chosen)(iter(batches))))


def balance(path: Path) -> int:
    layout = build_program(PROGRAM).plan.tables[0]
    return rows_at(VersionStore(open_storage(str(path))), layout)["balance"].to_pylist()[0]  # type: ignore[no-any-return]


def test_rows_come_back_with_their_outcomes_in_the_sources_order(tmp_path: Path) -> None:
    found = run(settings(tmp_path, "a"), rows(3, 4, partition=1), rows(1, 2, partition=0))
    assert found.column_names == ["transaction", "src", "dst", "amount", "note", "committed", "reason", "result"]
    assert found["amount"].to_pylist() == [1, 2, 3, 4]
    assert found["note"].to_pylist() == ["n1", "n2", "n3", "n4"]
    assert found["result"].to_pylist() == [1, 3, 6, 10]


def test_partitions_that_arrive_in_any_order_and_in_pieces_are_put_back() -> None:
    rng = random.Random(4)
    for _ in range(200):
        partitions = [[(p, i) for i in range(rng.randint(0, 6))] for p in range(rng.randint(1, 5))]
        waiting, arrived = [list(rows) for rows in partitions], []
        while any(waiting):
            source = rng.choice([rows for rows in waiting if rows])
            for _ in range(rng.randint(1, len(source))):
                arrived.append(source.pop(0))
        table = pa.table(
            {
                PARTITION_COLUMN: pa.array([p for p, _ in arrived], pa.int32()),
                "row": pa.array([list(row) for row in arrived], pa.list_(pa.int64())),
            }
        )
        if table.num_rows:
            expected = [list(row) for rows in partitions for row in rows]
            assert in_source_order(table)["row"].to_pylist() == expected


def test_the_engine_stays_warm_between_batches(tmp_path: Path) -> None:
    run(settings(tmp_path, "a"), rows(1))
    (engine,) = task._engines.values()
    core = engine.core
    run(settings(tmp_path, "b"), rows(2))
    assert list(task._engines.values()) == [engine] and engine.core is core
    assert balance(tmp_path) == 3


def test_a_cold_worker_and_a_warm_one_that_fell_behind_find_the_newest_state(tmp_path: Path) -> None:
    run(settings(tmp_path, "a"), rows(1))
    behind = dict(task._engines)
    task._engines.clear()
    run(settings(tmp_path, "b"), rows(2))
    task._engines.clear()
    task._engines.update(behind)
    assert run(settings(tmp_path, "c"), rows(4))["result"].to_pylist() == [7]


def test_a_batch_that_is_run_again_changes_nothing(tmp_path: Path) -> None:
    first = run(settings(tmp_path, "a"), rows(1, 2))
    for forget in (False, True):
        if forget:
            task._engines.clear()
        assert run(settings(tmp_path, "a"), rows(1, 2)).equals(first)
    assert balance(tmp_path) == 3


def test_another_program_on_the_same_state_replaces_the_warm_one(tmp_path: Path) -> None:
    run(settings(tmp_path, "a"), rows(1))
    run(settings(tmp_path, "b", [deposit]), rows(2))
    assert len(task._engines) == 1
    assert run(settings(tmp_path, "c"), rows(4))["result"].to_pylist() == [7]


@pytest.mark.usefixtures("plainly")
def test_a_task_runs_its_batch_by_the_strategy_that_was_asked_for(tmp_path: Path) -> None:
    for name, strategy in (("a", "serial"), ("b", "lock"), ("c", tg.Decision("bfs", "group", "lazy"))):
        run(replace(settings(tmp_path, name), strategy=strategy), rows(*range(200)))
        (engine,) = task._engines.values()  # one for each state: never the one of another strategy
        assert engine.core.last_batch is not None and engine.core.last_batch.strategy == str(strategy)


def test_a_worker_keeps_few_states_warm(tmp_path: Path) -> None:
    for number in range(ENGINES_MAX + 3):
        run(settings(tmp_path / str(number), "a"), rows(1))
    assert [Path(key[0]).name for key in task._engines] == ["3", "4", "5", "6"]


def test_no_rows_make_no_version(tmp_path: Path) -> None:
    assert list(make_task(settings(tmp_path / "state", "a"))(iter([rows()]))) == []
    assert list(make_task(settings(tmp_path / "state", "a"))(iter([]))) == []
    assert not (tmp_path / "state").exists()


def test_a_batch_waits_a_moment_for_an_owner_that_is_leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(str(tmp_path))
    owned(tmp_path, "ending")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        if seconds != 0.2:  # somebody asks for a lock, or another thread waits
            return
        looks.append(seconds)
        if len(looks) == 3:
            ownership.release(storage, "ending")

    monkeypatch.setattr(task.time, "sleep", sleep)
    assert run(settings(tmp_path, "a"), rows(5))["result"].to_pylist() == [5]
    assert len(looks) == 3
    assert ownership.current(storage) is None, "a batch DataFrame owns nothing"


def test_a_batch_is_refused_when_the_owner_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned(tmp_path, "staying")
    monkeypatch.setattr(task, "OWNER_WAIT_SECONDS", 0.3)
    with pytest.raises(StateOwned, match="'staying'"):
        run(settings(tmp_path, "a"), rows(5))
    assert VersionStore(open_storage(str(tmp_path))).refresh() == [1]


def test_settings_are_plain_values(tmp_path: Path) -> None:
    """Two equal ones name one program: nothing in them depends on the moment."""
    chosen = settings(tmp_path, "a")
    assert replace(chosen) == chosen == settings(tmp_path, "a")


class TestOutcomesOfEventsThatWaited:
    """A query that is started again with other types: what Spark is given is what it was told, or an error says why."""

    def run(self, path: Path, name: str, note: pa.Array) -> pa.Table:
        chosen = settings(path, name, [pairs])
        batch = pa.RecordBatch.from_pydict({"account": [1], "amount": [5], "note": note})
        return run(replace(chosen, columns=("account", "amount", "note")), batch)

    def test_have_the_types_of_now(self, tmp_path: Path) -> None:
        with uncompiled():
            with pytest.raises(ValueError):  # Arrow's: no batches at all
                self.run(tmp_path, "a", pa.array([7], pa.int64()))
            found = self.run(tmp_path, "b", pa.array([8], pa.int32()))
        assert found.schema.field("note").type == pa.int32()
        assert found.select(["note", "result"]).to_pylist() == [{"note": 7, "result": 5}, {"note": 8, "result": 10}]

    def test_or_are_refused_where_a_value_does_not_fit(self, tmp_path: Path) -> None:
        with uncompiled():
            with pytest.raises(ValueError):
                self.run(tmp_path, "a", pa.array(["x"]))
            for _ in range(2):
                with pytest.raises(
                    InputError, match=r"'note' has type int64 now.*The batch is committed.*the type that"
                ):
                    self.run(tmp_path, "b", pa.array([8]))
            found = self.run(tmp_path, "b", pa.array(["8"]))
        assert found["note"].to_pylist() == ["x", "8"]
