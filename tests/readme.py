"""The programs in README and docs/, with what the text around them says is there: tests run and check them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TEXTS = [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))]
BLOCKS = [block for text in TEXTS for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
QUICKSTART = BLOCKS[0]

TABLES = """\
import tidegate as tg

""" + QUICKSTART[QUICKSTART.index("@tg.table") : QUICKSTART.index('Path("in")')]

# What the text around a block says is there: nothing that the block itself is about.
NEEDED = {
    "from pathlib import Path": "",
    "engine = tg.Engine([transfer, deposit])": f"import pyarrow as pa\n{TABLES}",
    "engine = tg.Engine([transfer, deposit], directory=": TABLES,
    "from tidegate.testing import CRASH": f"""\
import pyarrow as pa
{TABLES}
batch_1 = pa.table({{"transaction": ["transfer"], "src": [1], "dst": [2], "amount": [30]}})
batch_2 = pa.table({{"transaction": ["transfer"], "src": [2], "dst": [1], "amount": [40]}})
rows = pa.table({{"id": [1], "balance": [100]}})
""",
    "from typing import Annotated": """\
import pyarrow as pa
import tidegate as tg

@tg.table(key="phone")
class Voter:
    phone: int
    contestant: int = 0

@tg.table(key="id")
class Contestant:
    id: int
    votes: int = 0
    trend: int = 0
""",
    "outcomes = transact(events.unionByName(requests)": f"""\
from pyspark.sql import DataFrame
from tidegate.spark import session, transact
{TABLES}
spark = session("ledger")
events: DataFrame = spark.read.json("in/")
requests: DataFrame = spark.read.json("requests/")
""",
    "from tidegate.workloads.streaming_ledger": "",
    "for part in parts:": f"""\
import pyarrow as pa
{TABLES}
engine = tg.Engine([transfer, deposit])
parts = [pa.table({{"transaction": ["deposit"], "src": [0], "dst": [2], "amount": [30]}})]
""",
}


def program(start: str) -> str:
    """The block that begins so, behind what it needs."""
    (block,) = [block for block in BLOCKS if block.startswith(start)]
    return NEEDED[start] + block
