"""Notices that the column `result` changes its type: what was written with the old one may not be readable beside it.

The type follows from what a program's transactions return, so adding a transaction may change it:

    version 7   [deposit] -> int                          result long
    version 8   [deposit, review] -> int, NamedTuple      result struct<deposit: long, review: struct<...>>

A version records the type that its program has, and whoever opens the state with another program compares. A struct
that only gets more fields is no change: Parquet and Delta merge those. Versions of earlier releases recorded none.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pyarrow as pa

from tidegate.durability.version_info import VersionInfo
from tidegate.foundation.errors import TidegateWarning
from tidegate.operations.plan import ProgramPlan

_log = logging.getLogger(__name__)


def recorded_type(plan: ProgramPlan) -> Any:
    """The type of a program's result column, as JSON: a name, or the fields of a struct by name."""
    return _as_json(plan.result_column)


def warn_of_change(path: str, newest: VersionInfo | None, plan: ProgramPlan) -> None:
    """Warn, and log it, if the newest version of a state was made by a program whose results have another type."""
    now = recorded_type(plan)
    if newest is None or not newest.result or _extends(newest.result, now):
        return
    message = (
        f"{path}: the column `result` has the type {_shown(now)} from now on; up to version {newest.version} it had "
        f"{_shown(newest.result)}, because other transactions returned other types. Files or tables that hold both may "
        'not be readable: write the outcomes to a new place, or keep the type stable: result="json" is text for ever, '
        'result="struct" has a field for each transaction, and new transactions only add one.'
    )
    _log.warning("%s", message)
    warnings.warn(message, TidegateWarning, stacklevel=4)


def _as_json(kind: pa.DataType) -> Any:
    return {field.name: _as_json(field.type) for field in kind} if pa.types.is_struct(kind) else str(kind)


def _extends(before: Any, now: Any) -> bool:
    if isinstance(before, dict) and isinstance(now, dict):
        return all(name in now and _extends(kind, now[name]) for name, kind in before.items())
    return bool(before == now)


def _shown(kind: Any) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    return f"struct<{', '.join(f'{name}: {_shown(inner)}' for name, inner in kind.items())}>"
