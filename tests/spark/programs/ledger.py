"""A streaming ledger that may be killed at any moment: started again, it goes on from its checkpoint.

    python ledger.py FOLDER

Reads FOLDER/in, one file per micro-batch, until nothing is left; state, outcomes and checkpoint are in the
same folder. Tables and transactions are declared here, in the script, as users do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tidegate as tg
from tidegate.spark import session, transact


@tg.table(key="id")
class Account:
    id: int
    balance: int = 0


@tg.transaction
def transfer(src: Account, dst: Account, amount: int) -> int:
    tg.require(src.balance >= amount, "insufficient funds")
    src.balance -= amount
    dst.balance += amount
    return src.balance


@tg.transaction
def deposit(dst: Account, amount: int) -> int:
    dst.balance += amount
    return dst.balance


def main(folder: Path) -> None:
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = session("killed ledger", config=settings)
    schema = "event long, ts long, transaction string, src long, dst long, amount long"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    outcomes = transact(events, [transfer, deposit], state=folder / "state", order_by="ts", requests="event")
    query = (
        outcomes.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "query.checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "query.out"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
