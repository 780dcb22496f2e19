"""The five queries by name, each with events that give it something to do.

How long a stream lasts in event time follows from its rate: lists of an hour need many sales an hour, ten days of
views need few clicks a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from tidegate.workloads.tpcx_bb import query_1, query_2, query_3, query_4, query_15
from tidegate.workloads.tpcx_bb.events import Click, Sale, clicks, sales


@dataclass(frozen=True, slots=True)
class Query:
    """A query, the records that it takes, and how to make them."""

    title: str
    record: type
    query: Callable[[Any], Any]
    """Takes a pipeline of such records, and adds the query's operators."""
    events: Callable[..., pa.Table]
    """Takes how many, and `seed`."""


QUERIES = {
    "Q1": Query("sold together", Sale, query_1.query, partial(sales, rate=3.0)),
    "Q2": Query("viewed together", Click, query_2.query, partial(clicks, rate=1.0)),
    "Q3": Query("viewed before a purchase", Click, query_3.query, partial(clicks, rate=0.1)),
    "Q4": Query("carts left behind", Click, query_4.query, partial(clicks, rate=0.5)),
    "Q15": Query("falling sales", Sale, query_15.query, partial(sales, rate=0.05)),
}
