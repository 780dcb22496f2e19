"""`tidegate.read`: one committed row of a state, from its files; neither Spark nor an engine is needed."""

from __future__ import annotations

import os
from typing import Any

from tidegate.api.table import layout_of
from tidegate.durability.row_reading import find_row
from tidegate.engine.arguments import key_values
from tidegate.foundation import arguments
from tidegate.foundation.arguments import refusal
from tidegate.foundation.errors import InputError
from tidegate.foundation.storage import open_storage
from tidegate.foundation.tracebacks import briefly


@briefly
def read(path: str | os.PathLike[str], table: type, key: Any, version: int | None = None) -> dict[str, Any] | None:
    """One committed row as a dict, or None; works beside a running query, and on states that lie behind a URL.

    The newest version is looked up at each call, and files are read up to the first one that knows the key: for many
    rows use `tidegate.spark.read_state`, or keep an engine open.

    Args:
        path: the state's path: the `state` of `transact`, or the `directory` of a `tg.Engine` that is closed. What an
            open engine did is in its log until the next checkpoint, and reading the newest rows is refused meanwhile.
        table: a class declared with `@tg.table`; fields added since the version was written read as their defaults.
        key: the row's key, as `engine.read` takes it: a composite key is a tuple or a dict.
        version: a version as `tidegate state ls` lists them; None is the newest.
    """
    layout = layout_of(table)
    if layout is None:
        raise refusal("table", "a class declared with @tg.table", table, InputError)
    storage = open_storage(arguments.path("path", path, InputError))
    number = None if version is None else arguments.whole("version", version, error=InputError)
    return find_row(storage, layout, key_values(layout, key), number)
