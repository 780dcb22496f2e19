"""A user's program, whole: an online shop. `test_types.py` runs it, and lets mypy and pyright check it strictly.

Orders take stock and money, or nothing. What was sold goes through a graph: it is counted per category, a trigger
watches for rushes, and what runs low is ordered again. It imports what a user may import, and ignores no complaint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from tidegate.spark import await_outcome, read_state, session, transact
from tidegate.testing import absent, assert_same_as_plain, check_history, collecting, looking_up, remembering

RUSH = 3


@tg.table(key="id")
class Customer:
    id: int
    name: str = "?"
    balance: int = 0
    category: int = -1


@tg.table(key=("shelf", "place"))
class Stock:
    shelf: str
    place: int
    pieces: int = 0
    price: float = 0.0


@tg.table(key="id")
class Category:
    id: int
    sold: int = 0
    best: int = 0
    rushes: int = 0


class Receipt(NamedTuple):
    left: int
    paid: int


# --- plain transactions -------------------------------------------------------------------------------------------


def discounted(amount: int, pieces: int) -> int:
    """A helper: ten pieces cost nine."""
    return amount * 9 // 10 if pieces >= 10 else amount


@tg.transaction(time="ts")
def pay_in(customer: Customer, amount: int, ts: int) -> int:
    tg.require(amount > 0, "nothing paid in")
    customer.balance += amount
    return customer.balance


@tg.transaction(time="ts")
def order(customer: Customer, item: Stock, pieces: int, ts: int) -> Receipt:
    """Sell, unless there is too little of either; who paid in much in the last hour need not have enough."""
    tg.require(tg.exists(item), "no such item")
    if not tg.exists(customer):
        tg.abort("unknown customer")
    amount = discounted(int(item.price * pieces), pieces)
    highest = 0
    for state in tg.history(customer, last=3600):
        if tg.exists(state) and state.balance > highest:
            highest = state.balance
    tg.require(customer.balance >= amount or highest >= 2 * amount, "insufficient funds")
    tg.require(item.pieces >= pieces, "out of stock")
    customer.balance -= amount
    item.pieces -= pieces
    return Receipt(item.pieces, amount)


@tg.transaction(time="ts")
def leave(customer: Customer, ts: int) -> None:
    tg.require(customer.balance >= 0, "in debt")
    tg.delete(customer)


@tg.transaction(compiled=False)
def stock_up(items: list[Stock], pieces: list[int]) -> int:
    """Plain Python, for what cannot be compiled."""
    for item, more in zip(items, pieces, strict=True):
        item.pieces += more
    return len({item.shelf for item in items})


# --- a dataflow graph ---------------------------------------------------------------------------------------------

sales = tg.stream("sales", category=Category, buyer=Customer, amount=int)
counted = tg.stream("counted", category=int, amount=int)
low = tg.stream("low", category=Category, best=int)
latest = tg.window(counted, rows=4, slide=2)


@tg.transaction(on=sales, emits=[counted], time="amount")
def count_sale(category: Category, buyer: Customer, amount: int) -> int:
    category.sold += amount
    buyer.category = category.id
    tg.emit(counted, category=category.id, amount=amount)
    return category.sold


@tg.transaction(on=counted, emits=[low], time="amount")
def rank(category: Category, amount: int, recent: Annotated[tg.WindowRows, latest]) -> None:
    if recent.slid and len(recent) > 0:
        category.best = max(recent.max("amount"), recent[-1].amount)
        for number in recent.top("category", 1):
            favourite = tg.lookup(Category, number)
            tg.emit(low, category=favourite, best=favourite.best)


@tg.trigger(on=latest, time="amount")
def watch(category: Category, amount: int, recent: Annotated[tg.WindowRows, latest]) -> None:
    if recent.distinct("amount") >= RUSH and sum(sale.amount for sale in recent) == recent.sum("amount"):
        category.rushes += 1


flow = tg.dataflow([count_sale, rank, watch], nested=[(count_sale, rank)], atomic_batch=1, name="sales_flow")


# --- using it -----------------------------------------------------------------------------------------------------

SHOP = [pay_in, order, leave]
EVERYTHING = [*SHOP, flow]
MEMBERS: list[tg.Transaction] = [*flow.transactions]


def columns(**values: list[int]) -> pa.Table:
    return pa.table({name: pa.array(found) for name, found in values.items()})


def plain_functions() -> None:
    """Transactions are functions: what a user's unit tests call."""
    customer, item = Customer(1, balance=100), Stock("a", 1, pieces=20, price=5.0)
    with remembering(lambda row, last: []):
        receipt = order(customer, item, 10, ts=7)
    assert receipt.paid + customer.balance == 100 and receipt.left == item.pieces == 10
    left: int = pay_in(customer, amount=1, ts=8)
    assert left == 56
    newcomer = absent(Customer, 2)
    assert not tg.exists(newcomer)
    try:
        with remembering(lambda row, last: []):
            order(newcomer, item, pieces=1, ts=9)
    except tg.Abort as aborted:
        assert aborted.reason == "unknown customer"
    emitted: list[str] = []
    books = Category(3)
    with collecting(lambda stream, fields: emitted.append(stream.name)), looking_up(lambda table, key: books):
        assert count_sale(books, customer, 5) == 5
        rank(books, 5, tg.WindowRows([{"category": 3, "amount": 5}], slid=True))
    assert emitted == ["counted", "low"] and books.best == 5


def embedded(folder: Path) -> None:
    """An engine inside the process, in memory and on a state folder."""
    with tg.Engine(SHOP, strategy=tg.Decision("ns", "operation", "eager"), workers=2) as engine:
        engine.load(Stock, pa.table({"shelf": ["a"], "place": [1], "pieces": [2], "price": [5.0]}))
        outcome: tg.Outcome = engine.execute(pay_in, customer=1, amount=50, ts=1)
        assert outcome.committed and outcome.result == 50
        assert engine.execute(order, customer=1, item=("a", 1), pieces=3, ts=2).reason == "out of stock"
        row = engine.read(Stock, ("a", 1))
        assert row is not None and row["pieces"] == 2
    with tg.Engine(EVERYTHING) as engine:
        assert engine.execute(pay_in, customer=1, amount=50, ts=1).result == 50
    with tg.Engine(flow, directory=folder, keep_versions=5, sync="group", record=True) as engine:
        outcomes = engine.run(columns(category=[1, 1, 1, 2], buyer=[1, 2, 1, 2], amount=[10, 20, 30, 40]))
        assert outcomes["result"].to_pylist() == [10, 30, 60, 40]
        assert engine.take(low).num_rows == engine.scan(latest).num_rows // 2 == 2
        report: tg.BatchReport | None = engine.last_batch
        assert report is not None and report.committed == 4
        steps: list[tg.Step] = engine.history
        assert check_history(flow, steps) == [] and len(steps) > 4


def on_spark(spark: SparkSession, folder: Path) -> None:
    """The same functions over a Spark DataFrame."""
    rows = [(1, "pay_in", 1, 500, None, None, "r1"), (2, "order", 1, None, ("a", 1), 2, "r2")]
    schema = "ts long, transaction string, customer long, amount long, "
    schema += "item struct<shelf: string, place: long>, pieces long, request string"
    events: DataFrame = spark.createDataFrame(rows, schema)
    stock = pa.table({"shelf": ["a"], "place": [1], "pieces": [9], "price": [4.5]})
    outcomes = transact(
        events,
        SHOP,
        state=folder / "shop",
        order_by="ts",
        initial={Stock: stock},
        keep_versions=10,
        requests="request",
        strategy="serial",
    )
    assert [row["committed"] for row in outcomes.orderBy("ts").collect()] == [True, True]
    assert await_outcome(folder / "shop", "r2", timeout=10).result["paid"] == 9
    assert read_state(spark, folder / "shop", Stock).collect()[0]["pieces"] == 7


def main(folder: Path) -> None:
    plain_functions()
    delivery = pa.table({"items": [[{"shelf": "a", "place": 1}]], "pieces": [[3]]})
    assert_same_as_plain([stock_up], [delivery], strategies=["serial", tg.Decision("dfs", "group", "lazy")])
    embedded(folder / "flow")
    spark = session("shop")
    on_spark(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
