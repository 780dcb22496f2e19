"""`read_state`: tables of a state as DataFrames, at the newest version or at one that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import tidegate as tg
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import DefinitionError, InputError, RecoveryImpossible
from tidegate.foundation.storage import open_storage
from tidegate.spark import read_state, transact

from .ledgers import Account, Inbox, balances, drain, ledger, put


@tg.table(key="name")
class Customer:
    name: str
    active: bool = True
    score: float = 0.5
    visits: int = 0


@tg.transaction
def visit(who: Customer, dst: Account) -> None:
    who.visits += 1
    who.score /= 2
    dst.balance += 1


@pytest.fixture(scope="module")
def state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five versions: account 1 holds 10 more after each."""
    folder = tmp_path_factory.mktemp("read_state")
    inbox = Inbox(folder / "in")
    for number in range(5):
        inbox.add([put(number, 1, 10), put(100 + number, number, 0)])
    drain(ledger(inbox.stream(spark), folder / "state"), folder)
    return folder / "state"


def test_the_newest_version_is_what_is_read_by_default(spark: SparkSession, state: Path) -> None:
    rows = read_state(spark, str(state), Account)
    assert rows.schema.simpleString() == "struct<id:bigint,balance:bigint>"
    assert [tuple(row) for row in rows.orderBy("id").collect()] == [(0, 0), (1, 50), (2, 0), (3, 0), (4, 0)]


def test_any_kept_version_can_be_read(spark: SparkSession, state: Path) -> None:
    assert [balances(spark, state, version)[1] for version in range(1, 6)] == [10, 20, 30, 40, 50]


def test_the_version_is_fixed_when_read_state_is_called(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    inbox.add([put(1, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    before = read_state(spark, tmp_path / "state", Account)
    inbox.add([put(2, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    assert before.collect() == [Row(id=1, balance=10)]
    assert read_state(spark, tmp_path / "state", Account).collect() == [Row(id=1, balance=20)]


def test_rows_are_no_part_of_the_plan(spark: SparkSession, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_state(spark, str(state), Account).explain(mode="extended")
    plan = capsys.readouterr().out
    assert "LocalRelation" not in plan and len(plan) < 4000


def test_a_version_that_is_not_kept_is_refused_naming_those_that_are(spark: SparkSession, state: Path) -> None:
    with pytest.raises(RecoveryImpossible, match=r"no version 17, the newest is 5.*1-5"):
        read_state(spark, str(state), Account, version=17)


def test_a_collected_version_is_refused_naming_those_that_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for number in range(4):
        inbox.add([put(number, 1, 10)])
    drain(ledger(inbox.stream(spark), tmp_path / "state"), tmp_path)
    # What collecting leaves once a snapshot stands at version 3.
    store = VersionStore(open_storage(str(tmp_path / "state")), keep_versions=2)
    rows = read_state(spark, str(tmp_path / "state"), Account, version=3).toArrow()
    store.snapshot(store.info(3), {"Account": rows.cast(store.info(3).layouts[0].arrow_schema)})
    store.collect()
    with pytest.raises(RecoveryImpossible, match="3-4"):
        read_state(spark, str(tmp_path / "state"), Account, version=1)
    assert balances(spark, tmp_path / "state", 4) == {1: 40}


def test_a_path_without_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no state"):
        read_state(spark, str(tmp_path / "nothing"), Account)
    assert not (tmp_path / "nothing").exists(), "reading makes no folder"


def test_a_table_that_the_state_does_not_hold_is_refused(spark: SparkSession, state: Path) -> None:
    with pytest.raises(InputError, match=r"no table 'Customer'.*Account"):
        read_state(spark, str(state), Customer)


def test_something_that_is_no_table_is_refused(spark: SparkSession, state: Path) -> None:
    with pytest.raises(InputError, match=r"tg\.table"):
        read_state(spark, str(state), Path)


def test_a_table_declared_otherwise_is_refused_with_the_difference(spark: SparkSession, state: Path) -> None:
    def declare() -> type:
        @tg.table(key="id")
        class Account:
            id: int
            balance: float = 0.0

        return Account

    with pytest.raises(DefinitionError, match=r"Account\.balance: was int, is float"):
        read_state(spark, str(state), declare())


def test_all_types_and_several_tables_come_back(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([("ä", 1), ("b", 2), ("ä", 1)], "who string, dst long")
    transact(events, [visit], state=tmp_path / "state").count()
    rows = read_state(spark, str(tmp_path / "state"), Customer).orderBy("name").collect()
    assert rows == [
        Row(name="b", active=True, score=0.25, visits=1),
        Row(name="ä", active=True, score=0.125, visits=2),
    ]
    assert balances(spark, tmp_path / "state") == {1: 2, 2: 1}
