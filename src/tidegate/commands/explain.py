"""`tidegate explain`: shows how a transaction is split into operations, and what they wait for.

The compiler splits a function into one operation for each row that it writes, where that is possible.
Operations are what several cores share; three kinds of dependencies keep their result the one of the
functions run one by one:

    temporal      an operation that writes a row waits for the previous write of the same key
    parametric    one that reads a row which it does not write waits for the previous write of that key
    logical       the operations of one transaction commit together or abort together

No transaction runs and no state is needed: all of it is known from the source. Of a file only the declarations are
executed (`declarations`), so a script that also starts a job can be explained. A dataflow graph is drawn group by
group, in the order in which they run.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tidegate.commands.declarations import read_declarations
from tidegate.commands.literal import literal, visible
from tidegate.foundation.errors import DefinitionError

if TYPE_CHECKING:
    from tidegate.api.dataflow import Dataflow
    from tidegate.api.transaction import Transaction
    from tidegate.operations.plan import Access, TransactionPlan


@dataclass(frozen=True, slots=True)
class Touch:
    """A field of a row that an operation touches, how, and under which conditions."""

    row: str
    field: str
    action: str
    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationView:
    """One operation: the rows it reads and writes, field by field, and its part of the function."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    touches: tuple[Touch, ...]
    can_fail: bool
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A transaction as its operations; `unsplit` says why there is only one.

    `in_python` are the parts of a compiled function that run as plain Python, each with its line.
    """

    transaction: str
    place: str
    operations: tuple[OperationView, ...]
    unsplit: str
    in_python: tuple[str, ...]
    temporal: tuple[str, ...]
    parametric: tuple[str, ...]
    logical: tuple[str, ...]


def explain(
    target: Annotated[str, typer.Argument(help="module:function or file.py:function; without a function all of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of panels.")] = False,
) -> None:
    """Show how a transaction is split into operations, and what they wait for.

    Of a file.py only imports and declarations are executed, so a job that the file starts does not run; a module is
    imported.

    Where a function makes a new string, or fails with a message that it computes, it runs as plain Python from its
    start, more slowly: such places are listed.

    For each operation: the part of the function that it runs, the rows that it reads and writes, and under which
    conditions. Then the dependencies between operations, or why the transaction runs as one operation.

    Examples:

    * `tidegate explain tidegate.workloads.ledger:transfer`

    * `tidegate explain jobs/ledger.py:transfer`

    * `tidegate explain jobs/ledger.py --json`

    * `tidegate explain tidegate.workloads.leaderboard:leaderboard` draws a dataflow graph
    """
    place, name = _split(target)
    module = _load(place, name)
    graphs = find_dataflows(module, name)
    named_graph = len(graphs) == 1 and bool(name)
    found = [] if named_graph else [describe(transaction) for transaction in find_transactions(module, place, name)]
    if as_json:
        typer.echo(json.dumps([*(asdict(e) for e in found), *(graph_as_data(g) for g in graphs)], indent=2))
        return
    console = Console()
    for explanation in found:
        console.print(_shown(explanation))
    for graph in graphs:
        console.print(_drawn(graph))


# --- finding --------------------------------------------------------------------------------------


def find_dataflows(module: ModuleType, name: str) -> list[Dataflow]:
    """The dataflow graph of this name, or all of a module."""
    from tidegate.api.dataflow import Dataflow

    there = {key: value for key, value in vars(module).items() if isinstance(value, Dataflow)}
    return [graph for key, graph in there.items() if name in ("", key)]


def find_transactions(module: ModuleType, place: str, name: str) -> list[Transaction]:
    """The transaction of this name, or all of a module; `place` is what the user called the module."""
    from tidegate.api.transaction import Transaction

    all_of_them = {key: value for key, value in vars(module).items() if isinstance(value, Transaction)}
    choices = ", ".join(all_of_them) or "none"
    if name and name not in all_of_them:
        wrong = "is not declared with @tg.transaction" if hasattr(module, name) else "is not there"
        raise DefinitionError(f"{place}: {name!r} {wrong}; its transactions are: {choices}")
    if not all_of_them:
        raise DefinitionError(f"{place}: no transactions; declare a function with @tg.transaction")
    return [all_of_them[name]] if name else list(all_of_them.values())


def _split(target: str) -> tuple[str, str]:
    """The module or file of a target, and the name in it; empty where all are meant."""
    place, separator, name = target.rpartition(":")
    return (place, name) if separator else (target, "")


def _load(place: str, name: str) -> ModuleType:
    """A module by its path or by its dotted name, seen from the current folder."""
    folder = os.path.dirname(os.path.abspath(place)) if place.endswith(".py") else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise DefinitionError(
                f"there is no module {place!r}; name one as module:function or a file as path/to/file.py:function"
            ) from error
    if not os.path.isfile(place):
        raise DefinitionError(f"there is no file {place!r}; name one as path/to/file.py:function")
    return read_declarations(place, name)


# --- explaining -----------------------------------------------------------------------------------


def describe(transaction: Transaction) -> Explanation:
    """What there is to know about a transaction before it runs."""
    plan = transaction.plan
    operations = tuple(_operations(transaction))
    named = {each.name: f"{each.name} ({each.table.name})" for each in plan.parameters if hasattr(each, "table")}
    temporal, parametric = [], []
    for number, operation in enumerate(operations, start=1):
        for row in operation.writes:
            temporal.append(f"operation {number} waits for the previous write of {named[row]}")
        for row in operation.reads:
            if row not in operation.writes:
                parametric.append(f"operation {number} needs {named[row]} as it was before the transaction")
    return Explanation(
        transaction=plan.name,
        place=f"{plan.place.file}:{plan.place.line}",
        operations=operations,
        unsplit=plan.unsplit,
        in_python=tuple(f"line {line}: {text}" for line, text in plan.in_python),
        temporal=tuple(temporal),
        parametric=tuple(parametric),
        logical=tuple(_logical(operations)),
    )


def _operations(transaction: Transaction) -> Iterable[OperationView]:
    from tidegate.operations.plan import NEVER

    plan = transaction.plan
    for part in plan.slices:
        yield OperationView(
            reads=_rows_read(part.rows, part.accesses),
            writes=part.writes,
            touches=_touches(part.accesses),
            can_fail=part.first_failure != NEVER,
            text=part.text,
        )
    if not plan.slices:
        rows = tuple(parameter.name for parameter in plan.parameters if hasattr(parameter, "table"))
        yield OperationView(
            reads=_rows_read(rows, plan.accesses) if plan.compiled else rows,
            writes=tuple(row for row in rows if row in plan.written),
            touches=_touches(plan.accesses),
            can_fail=True,
            text=_source(transaction, plan),
        )


def _rows_read(rows: tuple[str, ...], accesses: tuple[Access, ...]) -> tuple[str, ...]:
    """The rows that are read; one that is neither read nor written by field is needed for its key."""
    read = {access.parameter for access in accesses if access.action == "read"}
    written = {access.parameter for access in accesses if access.action != "read"}
    return tuple(row for row in rows if row in read or row not in written)


def _touches(accesses: tuple[Access, ...]) -> tuple[Touch, ...]:
    deleted = {(access.parameter, access.line) for access in accesses if access.action == "delete"}
    found = [
        Touch(access.parameter, "" if access.action == "delete" else access.field, access.action, access.conditions)
        for access in accesses
        if access.action != "write" or (access.parameter, access.line) not in deleted
    ]
    return tuple(dict.fromkeys(found))


def _source(transaction: Transaction, plan: TransactionPlan) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(transaction.__wrapped__))
    except OSError:
        return f"def {plan.name}(...): ..."
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("def ")), 0)
    return "\n".join(lines[first:])


def _logical(operations: tuple[OperationView, ...]) -> Iterable[str]:
    if len(operations) < 2:
        return
    everyone = ", ".join(str(number) for number in range(1, len(operations))) + f" and {len(operations)}"
    for number, operation in enumerate(operations, start=1):
        if operation.can_fail:
            yield f"operations {everyone} abort together if operation {number} fails"


def graph_as_data(graph: Dataflow) -> dict[str, Any]:
    """A dataflow graph as plain JSON values."""
    return {
        "dataflow": graph.name,
        "atomic_batch": graph.atomic_batch,
        "borders": [stream.name for stream in graph.borders],
        "groups": [list(group) for group in graph.groups],
        "edges": sorted(graph.edges),
        "stages": [sorted(stage) for stage in stages_of(graph)],
    }


# --- showing --------------------------------------------------------------------------------------


def _shown(explanation: Explanation) -> RenderableType:
    count = len(explanation.operations)
    heading = Text.assemble((explanation.transaction, "bold"), "  ", literal(explanation.place, "dim"), overflow="fold")
    told = f"{count} operations, which several cores can share" if count > 1 else "one operation"
    parts: list[RenderableType] = [heading, Text(told)]
    if explanation.unsplit:
        parts.append(literal(f"not split: {explanation.unsplit}", keep="\n"))
    for part in explanation.in_python:
        parts.append(literal(f"plain Python, where it gets there: {part}"))
    parts += [_operation(number, operation) for number, operation in enumerate(explanation.operations, start=1)]
    parts.append(_dependencies(explanation))
    return Group(*parts, "")


def _drawn(graph: Dataflow) -> RenderableType:
    """A dataflow graph: one panel for each group, in the order in which they run, with the streams between."""
    batch = graph.atomic_batch
    taken = f"{batch} tuple{'s' if batch != 1 else ''}" if isinstance(batch, int) else f"tuples with equal {batch}"
    heading = Text.assemble(("dataflow ", "dim"), literal(graph.name, "bold"), f"  an atomic batch is {taken}")
    parts: list[RenderableType] = [heading]
    borders = {stream.name for stream in graph.borders}
    for number, group in enumerate(graph.members, start=1):
        table = Table(box=None, padding=(0, 1), show_header=False)
        for member in group:
            source = getattr(member.on, "name", f"{member.on!r}")
            emitted = ", ".join(stream.name for stream in member.emits)
            onward = literal(f"──> {emitted}" if emitted else "")
            kind = "trigger" if member.trigger else "border" if source in borders else "interior"
            windows = ", ".join(f"{name}: {window!r}" for name, window in member.windows.items())
            table.add_row(literal(source, "cyan"), "──>", Text(member.__name__, "bold"), onward, kind)
            if windows:
                table.add_row("", "", literal(windows, "dim"), "", "")
        nested = "commit together" if len(group) > 1 else "a transaction of its own"
        parts.append(Panel(table, title=f"{number}. {nested}", title_align="left", box=box.ROUNDED, expand=False))
    consumed = {getattr(member.on, "name", "") for member in graph.transactions}
    outputs = sorted({stream.name for member in graph.transactions for stream in member.emits} - consumed)
    if outputs:
        parts.append(literal(f"outputs, taken with engine.take(): {', '.join(outputs)}"))
    parts.append(_stages(graph))
    return Group(*parts, "")


def stages_of(graph: Dataflow) -> list[list[str]]:
    """The transactions of each stage: what shares no table can run side by side."""
    from tidegate.compiler.program import build_program

    plan = build_program([graph]).plan
    groups = [[plan.flows.group(number) for number in stage.groups] for stage in plan.flows.stages]
    members = [[plan.flows.members[m].transaction for group in own for m in group.members] for own in groups]
    return [[plan.transactions[number].name for number in own] for own in members]


def _stages(graph: Dataflow) -> Text:
    stages = stages_of(graph)
    if len(stages) == 1:
        return Text("one stage: by shared tables or streams, all of it runs in one order")
    shown = "  |  ".join(", ".join(stage) for stage in stages)
    return Text(f"{len(stages)} stages that share no table, so that workers can run them side by side: {shown}")


def _operation(number: int, operation: OperationView) -> Panel:
    writes = ", ".join(operation.writes) or "nothing"
    reads = ", ".join(operation.reads) or "nothing"
    code = Syntax(visible(operation.text, keep="\n\t"), "python", background_color="default", word_wrap=True)
    inner: list[RenderableType] = [code]
    if operation.touches:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for column in ("row", "field", "what", "under the conditions"):
            table.add_column(column, overflow="fold")
        for touch in operation.touches:
            conditions = literal("\n".join(touch.conditions), keep="\n")
            table.add_row(literal(touch.row), literal(touch.field), touch.action, conditions)
        inner += ["", table]
    title = literal(f"operation {number}: writes {writes}; reads {reads}")
    return Panel(Group(*inner), title=title, title_align="left")


def _dependencies(explanation: Explanation) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for kind in ("temporal", "parametric", "logical"):
        table.add_row(kind, literal("\n".join(getattr(explanation, kind)) or "none", keep="\n"))
    return table
