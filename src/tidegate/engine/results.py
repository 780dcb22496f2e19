"""The column `result` as JSON text, for outputs whose type must never change (`result="json"`).

    transactions return     result="auto"                 result="json"
    int                     long                          70
    int, and a NamedTuple   struct<transfer, review>      70, {"score": 0.5, "ok": true}

Inside, results keep their types; they are encoded when outcomes leave an engine. JSON has no types for the rest: a date
or a timestamp is ISO text, a decimal its digits as text, bytes are base64, a duration is in microseconds. NaN and the
infinities are written as Python and Spark read them.
"""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pyarrow as pa

from tidegate.operations.outcomes import RESULT_COLUMN
from tidegate.operations.plan import ProgramPlan


def encoded(plan: ProgramPlan, outcomes: pa.Table) -> pa.Table:
    """Outcomes with the result column that the program's users asked for."""
    if not plan.result_json:
        return outcomes
    place = outcomes.schema.get_field_index(RESULT_COLUMN)
    return outcomes.set_column(place, RESULT_COLUMN, _texts(outcomes.column(place), plan.result_by_transaction))


def _texts(column: pa.ChunkedArray, by_transaction: bool) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    values = column.to_pylist()
    if by_transaction:
        values = [None if value is None else _own(value) for value in values]
    return pa.array([None if value is None else json.dumps(value, default=_plain) for value in values], pa.string())


def _own(fields: dict[str, Any]) -> Any:
    """The result of the transaction that ran: the others have none."""
    return next((value for value in fields.values() if value is not None), None)


def _plain(value: object) -> str | int:
    """What JSON has no type for."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
