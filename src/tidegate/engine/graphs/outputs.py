"""Tuples in output streams, as checkpoints store them and as the user takes them, all or some at a time.

They are no rows of tables, so `take_changes` does not tell of them and `apply` does not bring them back.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidegate.engine.graphs.walk import GraphWalk
from tidegate.engine.state.streams import tuple_schema
from tidegate.engine.state.strings import StringPool
from tidegate.foundation.errors import InputError


def outputs_of(flows: GraphWalk, strings: StringPool) -> dict[str, pa.Table]:
    """What waits in output streams, by name."""
    return {stream.layout.name: stream.table(strings) for stream in flows.streams if stream.output}


def output_number(flows: GraphWalk, name: str) -> int:
    """The number of an output stream."""
    number = flows.stream_number(name)
    if number < 0 or not flows.flows.outputs[number]:
        known = ", ".join(stream.layout.name for stream in flows.streams if stream.output) or "none"
        raise InputError(f"stream {name!r} is no output of the program; outputs are: {known}; name one of them")
    return number


def restore_outputs(flows: GraphWalk, tuples: Mapping[str, pa.Table], strings: StringPool) -> None:
    """Let exactly these tuples wait in output streams: nothing changes if some do not fit."""
    found = {output_number(flows, name): table for name, table in tuples.items()}
    for number, table in found.items():
        layout = flows.flows.streams[number]
        wanted = tuple_schema(layout)
        if not table.schema.equals(wanted):
            raise InputError(
                f"tuples of stream {layout.name!r}: required columns: {_in_words(wanted)}; got: "
                f"{_in_words(table.schema)}; declare the stream as it was when they were emitted"
            )
    for number, stream in enumerate(flows.streams):
        if number in found:
            stream.restore(found[number], strings)
        elif stream.output:
            stream.clear()


def _in_words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
