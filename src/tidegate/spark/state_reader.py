"""`read_state`: a table of a state, or what was emitted into an output stream, as a DataFrame.

The version is fixed when `read_state` is called, whatever a running query commits afterwards. A task reads the rows
when an action runs: it turns a one-row DataFrame into the table's rows, so the plan holds no data.

Each version stores the tuples that its own batch emitted into output streams (`durability.records`). A stream is read
from all kept versions up to the chosen one, one after the other.

If versions hold events instead of rows (`durability.version_log`), the task runs them, with the program given as
`transactions`, or the one that this process passed to `transact` for the same path.

What cannot be read is refused at the call: no state, no such table or stream, a version that is not kept, a table or
stream not declared as it is stored, events whose program is unknown. Reading needs no ownership and writes no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.api.stream import Stream
from tidegate.api.table import layout_of
from tidegate.api.transaction import ProgramPart
from tidegate.compiler.program import build_program
from tidegate.durability.evolution import require_fit
from tidegate.durability.fingerprint import fingerprint
from tidegate.durability.records import output_record, output_streams
from tidegate.durability.stored_rows import rows_at
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.version_log import rows_by_running
from tidegate.durability.versions import VersionStore
from tidegate.engine.state.streams import tuple_schema
from tidegate.foundation.arguments import path as folder
from tidegate.foundation.arguments import refusal, shown, whole
from tidegate.foundation.errors import DefinitionError, InputError, RecoveryImpossible
from tidegate.foundation.storage import open_storage
from tidegate.foundation.tracebacks import briefly
from tidegate.operations.layout import TableLayout
from tidegate.operations.plan import Program
from tidegate.spark.known_programs import known
from tidegate.spark.payload import pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 1 << 16

Read = Callable[[], Iterator[pa.Table]]


@briefly
def read_state(
    spark: SparkSession,
    path: str | os.PathLike[str],
    table: type | Stream,
    version: int | None = None,
    *,
    transactions: Sequence[ProgramPart] | ProgramPart | None = None,
) -> DataFrame:
    """The rows of a table of a state, or the tuples of a stream that no transaction is on.

    Args:
        spark: the session that reads them.
        path: the state folder: the `state` of `transact`, or the `directory` of a `tg.Engine`.
        table: a class declared with `@tg.table`; fields added since the version was written read as their defaults. Or
            a stream: its tuples in the order in which they were emitted, with the number of the round as `batch`. The
            tuples of at least the newest `keep_versions` batches are kept.
        version: a version as `tidegate state ls` lists them; None is the newest.
        transactions: those passed to `transact`, for a state with log="commands", whose rows come from running its
            events again. Not needed if this process has called `transact` with them; ignored if rows are stored.
    """
    require_session(spark, "read_state")
    if version is not None:
        whole("read_state: version", version, error=InputError)
    layout = None if isinstance(table, Stream) else layout_of(table)
    if layout is None and not isinstance(table, Stream):
        raise InputError(f"read_state: required a class declared with @tg.table or a tg.stream, got {shown(table)}")
    storage = open_storage(folder("read_state: path", path, InputError))
    store = VersionStore(storage)
    if store.newest() is None:
        raise InputError(
            f"read_state: there is no state at {storage.path}: no batch was committed there yet, or the path "
            "is another one than transact(..., state=...) got."
        )
    if isinstance(table, Stream):
        schema, read = _stream_reader(store, table, version)
    else:
        assert layout is not None
        program = None if transactions is None else build_program(transactions)
        schema, read = layout.arrow_schema, _table_reader(store, layout, version, program)
    return spark.range(0, 1, 1, 1).mapInArrow(make_reader(read), from_arrow_schema(schema, prefer_timestamp_ntz=True))


def require_session(spark: object, what: str) -> None:
    """Raise InputError unless it is a SparkSession."""
    if isinstance(spark, type) or not hasattr(spark, "createDataFrame"):
        raise refusal(what, "a SparkSession first", spark, InputError)


def make_reader(read: Read) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: one row in, the rows of `read` out."""

    def reader(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if any([batch.num_rows for batch in batches]):  # a list, so that the input is read to its end
            for rows in read():
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    return reader


def _table_reader(store: VersionStore, layout: TableLayout, version: int | None, given: Program | None) -> Read:
    info = store.locate(version)
    require_fit(store.storage.path, info.layouts, [layout])
    held = {stored.name for stored in info.layouts}
    if layout.name not in held:
        raise InputError(
            f"read_state: the state at {store.storage.path} holds no table {layout.name!r} in version "
            f"{info.version}; its tables are {', '.join(sorted(held))}"
        )
    path, number = store.storage.path, info.version
    program = _program(store, info, given)
    if program is not None:
        return _running_reader(path, number, layout, program)

    def read() -> Iterator[pa.Table]:
        yield rows_at(VersionStore(open_storage(path)), layout, number)

    return read


def _program(store: VersionStore, info: VersionInfo, given: Program | None) -> Program | None:
    """The program for the events that must be run to obtain a version; None if the version consists of rows alone."""
    wanted = store.program_of(info)
    if not wanted:
        return None
    program = given or known(store.storage.path, wanted)
    store.require_program(info, "" if program is None else fingerprint(program))
    return program


def _running_reader(path: str, version: int, layout: TableLayout, program: Program) -> Read:
    payload = pack(program)

    def read() -> Iterator[pa.Table]:
        yield rows_by_running(VersionStore(open_storage(path)), unpack(payload), layout, version)

    return read


def _stream_reader(store: VersionStore, stream: Stream, version: int | None) -> tuple[pa.Schema, Read]:
    newest = store.locate(version)
    infos = [info for info in store.infos() if info.version <= newest.version]
    name, where = output_record(stream.name), f"read_state: the state at {store.storage.path}"
    if not any(name in info.records for info in infos):
        known = {known for info in infos for known in output_streams(info.records)}
        raise InputError(
            f"{where} keeps no tuples of the stream {stream.name!r}: required a stream that a transaction emits into "
            f"and none is on; those are {', '.join(sorted(known)) or 'none'}"
        )
    schema, path = tuple_schema(stream.layout), store.storage.path
    versions = [info.version for info in infos if info.records.get(name)]
    for stored in (store.read_record(number, name) for number in {*versions[:1], *versions[-1:]}):
        if stored is not None and stored.schema != schema:
            raise DefinitionError(
                f"{where} has other fields in the stream {stream.name!r} than are declared: it was "
                f"{_fields(stored.schema)}, is {_fields(schema)}; declare it as it was"
            )

    def read() -> Iterator[pa.Table]:
        kept = VersionStore(open_storage(path))
        for number in versions:
            tuples = kept.read_record(number, name)
            if tuples is None:
                raise RecoveryImpossible(f"{where}: the tuples of version {number} are gone; call read_state again")
            yield tuples

    return schema, read


def _fields(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema if field.name != "batch")
