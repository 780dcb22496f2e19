"""Random programs: tables, helpers and transactions as source text, all from one stream of choices.

    choices = Choices(seed)  ->  random_program(choices)  ->  Program(source, transactions, columns, ...)

The source is what a user would write: `import tidegate as tg`, table classes, constants, helper
functions, decorated transactions (some made by a factory, so that they close over constants). It stays
inside the compiled subset. Transactions share event columns: a parameter `a` may be a row of one table
in one transaction and of another table with the same kind of key in the next.

Events that fit a program come from `random_events`; nothing here runs a program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .choices import Choices
from .random_bodies import Bodies
from .random_expressions import KINDS, Expressions, HelperSpec, Parameter, RowsOf, Scope, TableSpec

HEADER = """\
import math
from dataclasses import dataclass
from typing import NamedTuple

import tidegate as tg

"""
Returns = str | tuple[str, tuple[str, ...]] | None
KeyKinds = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ColumnSpec:
    """An event column: keys (one kind, or a struct of several) or plain values, single or lists."""

    name: str
    is_key: bool
    is_list: bool
    kinds: KeyKinds

    @property
    def is_struct(self) -> bool:
        return len(self.kinds) > 1


@dataclass(frozen=True)
class TransactionSpec:
    name: str
    parameters: tuple[tuple[ColumnSpec, TableSpec | None], ...]
    returns: Returns


@dataclass
class Program:
    """A generated program; `source` is complete, `interpreted` the same with compiled=False."""

    source: str = ""
    tables: list[TableSpec] = field(default_factory=list)
    structs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    helpers: list[HelperSpec] = field(default_factory=list)
    transactions: list[TransactionSpec] = field(default_factory=list)
    columns: list[ColumnSpec] = field(default_factory=list)
    constants: list[tuple[str, str]] = field(default_factory=list)
    wild: int = 0
    small: bool = False

    @property
    def interpreted(self) -> str:
        text = self.source.replace("@tg.transaction\n", "@tg.transaction(compiled=False)\n")
        return text.replace('@tg.transaction(time="ts")', '@tg.transaction(compiled=False, time="ts")')


def random_program(choices: Choices, small: bool = False, calm: bool = False) -> Program:
    """A program; a small one has one or two transactions and compiles in a second, a calm one few extreme values."""
    wild = choices.weighted([(4, 0), (1, 1)] if calm else [(3, 4), (2, 0), (2, 12), (1, 40)])
    program = Program(wild=wild, small=small)
    program.source = HEADER
    _write_constants(choices, program)
    for number in range(choices.weighted([(3, 1), (3, 2), (1, 3)])):
        _write_table(choices, program, number)
    if choices.chance(25):
        _write_struct(choices, program)
    for number in range(choices.weighted([(3, 0), (2, 1)] if small else [(3, 0), (3, 1), (2, 2), (1, 3)])):
        _write_helper(choices, program, number)
    for number in range(choices.weighted([(2, 1), (1, 2)] if small else [(2, 1), (3, 2), (2, 3), (1, 4)])):
        _write_transaction(choices, program, number)
    return program


def _write_constants(choices: Choices, program: Program) -> None:
    writer = Expressions(choices, [], program.wild)
    for number in range(choices.below(3)):
        kind = choices.pick(KINDS)
        name = f"LIMIT_{number}"
        program.constants.append((name, kind))
        program.source += f"{name} = {writer.constant(kind)}\n"


def _write_table(choices: Choices, program: Program, number: int) -> None:
    """A table; half of them repeat the key of the one before, so that columns are shared."""
    if program.tables and choices.chance(50):
        key_kinds: KeyKinds = program.tables[-1].key_kinds
    else:
        kinds = choices.weighted(
            [(8, ["int"]), (4, ["str"]), (2, ["int", "str"]), (1, ["float"]), (1, ["bool"]), (1, ["int", "int"]),
             (1, ["str", "float", "bool"])]
        )  # fmt: skip
        names = ["id"] if len(kinds) == 1 else ["part", "serial", "side"][: len(kinds)]
        key_kinds = tuple(zip(names, kinds, strict=True))
    writer = Expressions(choices, [], program.wild)
    fields: list[tuple[str, str, str | None]] = [(name, kind, None) for name, kind in key_kinds]
    for _ in range(choices.weighted([(3, 2), (2, 1), (3, 3), (2, 4)])):
        kind = choices.weighted([(8, "int"), (4, "float"), (2, "bool"), (2, "str")])
        default = writer.constant(kind) if choices.chance(50) else None
        fields.append((f"{kind}_{len(fields)}", kind, default))
    if choices.chance(15):  # the key need not come first, nor be declared in its own order
        fields.reverse()
    fields.sort(key=lambda item: item[2] is not None)
    key = tuple(name for name, _ in key_kinds)
    table = TableSpec(f"Table{number}", tuple(fields), key)
    program.tables.append(table)
    key_text = repr(key[0]) if len(key) == 1 else repr(key)
    program.source += f"\n\n@tg.table(key={key_text})\nclass {table.name}:\n"
    for name, kind, default in fields:
        program.source += f"    {name}: {kind}" + (f" = {default}" if default is not None else "") + "\n"


def _write_struct(choices: Choices, program: Program) -> None:
    kinds = tuple(choices.pick(KINDS) for _ in range(choices.between(1, 3)))
    program.structs["Result"] = kinds
    head = choices.pick(["class Result(NamedTuple):", "@dataclass\nclass Result:"])
    members = "".join(f"    member_{number}: {kind}\n" for number, kind in enumerate(kinds))
    program.source += f"\n\n{head}\n{members}"


def _scope(program: Program) -> Scope:
    scope = Scope()
    scope.values.extend(program.constants)
    return scope


def _write_helper(choices: Choices, program: Program, number: int) -> None:
    """A helper over plain values, rows, or both; it may write, delete and abort like any body."""
    scope = _scope(program)
    parameters: list[tuple[str, Parameter]] = []
    texts: list[str] = []
    annotated = choices.chance(60)
    for position in range(choices.between(1, 3)):
        rows = [*program.tables, *program.tables, *(RowsOf(table) for table in program.tables)]
        kind: Parameter = choices.pick(["int", "float", "bool", "str", *rows])
        name = f"p{position}"
        parameters.append((name, kind))
        if isinstance(kind, TableSpec):
            scope.rows.append((name, kind))
        elif isinstance(kind, RowsOf):
            scope.lists.append((name, kind.table))
        else:
            scope.values.append((name, kind))
            scope.targets.append((name, kind))
        texts.append(f"{name}: {_annotation(kind)}" if annotated else name)
    optional = 0
    writer = Expressions(choices, [], program.wild)
    if isinstance(parameters[-1][1], str) and choices.chance(25):
        optional = 1
        texts[-1] += f" = {writer.constant(parameters[-1][1])}"
    tables = list(dict.fromkeys(table for _, table in [*scope.rows, *scope.lists]))
    returns = choices.pick([*KINDS, "int", None, *tables])
    body = Bodies(choices, scope, list(program.helpers), program.wild, returns)
    body.statements_left = choices.weighted([(3, 1), (2, 3), (1, 6)])
    arrow = f" -> {_annotation(returns) if returns else None}" if annotated else ""
    program.source += f"\n\ndef helper_{number}({', '.join(texts)}){arrow}:\n"
    program.source += "\n".join(body.body()) + "\n"
    program.helpers.append(HelperSpec(f"helper_{number}", tuple(parameters), returns, optional))


def _annotation(kind: Parameter) -> str:
    if isinstance(kind, RowsOf):
        return f"list[{kind.table.name}]"
    return kind.name if isinstance(kind, TableSpec) else kind


def _column(
    choices: Choices, program: Program, is_key: bool, is_list: bool, kinds: KeyKinds, used: set[str]
) -> ColumnSpec:
    """An event column of this type that the signature does not use yet: an old one, or a new one."""
    for column in program.columns:
        fits = (column.is_key, column.is_list, column.kinds) == (is_key, is_list, kinds)
        if fits and column.name not in used and not choices.chance(20):
            used.add(column.name)
            return column
    stem = ("rows" if is_list else "row") if is_key else ("values" if is_list else "value")
    name = f"{stem}{len(program.columns)}"
    column = ColumnSpec(name, is_key, is_list, kinds)
    program.columns.append(column)
    used.add(name)
    return column


def _write_transaction(choices: Choices, program: Program, number: int) -> None:
    name = f"transaction_{number}"
    used: set[str] = set()
    scope = _scope(program)
    parameters: list[tuple[ColumnSpec, TableSpec | None]] = []
    for position in range(choices.weighted([(3, 1), (4, 2), (2, 3)])):
        table = program.tables[0] if choices.chance(30) else choices.pick(program.tables)
        is_list = choices.chance(25 if position else 15)
        column = _column(choices, program, True, is_list, table.key_kinds, used)
        parameters.append((column, table))
        (scope.lists if is_list else scope.rows).append((column.name, table))
    for _ in range(choices.weighted([(4, 1), (2, 0), (2, 2), (1, 3)])):
        kind = choices.weighted([(6, "int"), (3, "float"), (1, "bool"), (1, "str")])
        is_list = choices.chance(15)
        column = _column(choices, program, False, is_list, (("", kind),), used)
        parameters.append((column, None))
        if is_list:
            scope.plains.append((column.name, kind))
        else:
            scope.values.append((column.name, kind))
            if choices.chance(30):
                scope.targets.append((column.name, kind))
    if choices.chance(20):
        parameters.reverse()
    returns = _returns(choices, program)
    spec = TransactionSpec(name, tuple(parameters), returns)
    program.transactions.append(spec)
    _write_function(choices, program, spec, scope)


def _returns(choices: Choices, program: Program) -> Returns:
    """A program's transactions mostly agree on what they return, and sometimes do not."""
    if program.transactions and not choices.chance(40):
        return program.transactions[0].returns
    options: list[tuple[int, Returns]] = [(6, "int"), (3, None), (3, "float"), (1, "bool"), (1, "str")]
    options += [(5, ("Result", program.structs["Result"]))] if program.structs else []
    return choices.weighted(options)


def _write_function(choices: Choices, program: Program, spec: TransactionSpec, scope: Scope) -> None:
    """The transaction itself, at module level or made by a factory that it closes over."""
    closure = choices.chance(12)
    if closure:
        scope.values.append(("captured", "int"))
    writer = Bodies(choices, scope, list(program.helpers), program.wild, spec.returns)
    writer.may_fall_off = True
    if program.small:
        writer.statements_left = min(writer.statements_left, 8)
    body = writer.body()
    texts = []
    for column, table in spec.parameters:
        inner = table.name if table is not None else column.kinds[0][1]
        texts.append(f"{column.name}: " + (f"list[{inner}]" if column.is_list else inner))
    if spec.returns is None:
        arrow = choices.pick([" -> None", ""])
    else:
        arrow = f" -> {spec.returns if isinstance(spec.returns, str) else spec.returns[0]}"
        arrow += choices.pick(["", "", "", "", "", " | None"])
    lines = ["@tg.transaction", f"def {spec.name}({', '.join(texts)}){arrow}:", *body]
    if closure:
        lines = [
            f"def make_{spec.name}(captured):",
            *("    " + line for line in lines),
            f"    return {spec.name}",
        ]
        lines += ["", "", f"{spec.name} = make_{spec.name}({choices.pick(['3', '0', '-7', '100'])})"]
    program.source += "\n\n" + "\n".join(lines) + "\n"
