"""Turns the statements of a body into generated code.

Assignments to a row's fields become writes into the table's columns, `require` and `abort` become
exits with a status. Undo is not handled here: the function that wraps the body saves every field that
the body may write, and restores them if it aborts (see `transactions`).
"""

from __future__ import annotations

import abc
import ast

from tidegate.api.control import Abort, abort, delete, require
from tidegate.api.outside import MISSING
from tidegate.api.stream import emit
from tidegate.compiler import strings, values
from tidegate.compiler.emission import INTERRUPTS
from tidegate.compiler.numbers import INTERPRET, ZERO_CODE
from tidegate.compiler.streams import LOOKED_UP, Streaming
from tidegate.compiler.types import MIXED, RecordOf, Row, RowList, Term, Type, ValueList, describe
from tidegate.operations.arrays import column_array, exists_array
from tidegate.operations.kinds import Carried
from tidegate.operations.layout import Column, Kind, encodable

ALWAYS: frozenset[str] = frozenset({"*"})  # "every variable": holds vacuously where control never arrives


class Statements(Streaming):
    """Statements of one function."""

    assigned: frozenset[str]

    @abc.abstractmethod
    def give_back(self, node: ast.Return) -> None:
        """A return statement."""

    # --- control flow: which variables are certainly assigned -------------------------------------

    def is_assigned(self, name: str) -> bool:
        """Whether a variable has a value here on every path."""
        return self.assigned is ALWAYS or name in self.assigned

    def block_of(self, statements: list[ast.stmt]) -> None:
        """Statements in their order; what follows a jump is never reached."""
        for statement in statements:
            self.statement(statement)

    # --- statements -------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Any statement."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Expr(value=ast.Call() as call):
                self.effect(call)
            case ast.Assign():
                self.assignment(node)
            case ast.AnnAssign(value=ast.expr() as value):
                self.store(node.target, self.value(value), node)
            case ast.AnnAssign():
                return
            case ast.AugAssign():
                self.augmented(node)
            case ast.If():
                self.branch(node)
            case ast.For():
                self.repeat(node)
            case ast.While():
                self.loop_while(node)
            case ast.Break() | ast.Continue():
                self.emit("break" if isinstance(node, ast.Break) else "continue")
                self.assigned = ALWAYS
            case ast.Return():
                self.give_back(node)
                self.assigned = ALWAYS
            case ast.Assert():
                plain = node.msg is None or isinstance(node.msg, ast.Constant)  # otherwise computing it may raise
                with self.block(f"if not {self.test(node.test)}:"):
                    self.fail(node, "AssertionError" if plain else None)
                self.conditions.append(ast.unparse(node.test))
            case ast.Raise():
                self.raised(node)
                self.assigned = ALWAYS
            case _:
                what = type(node.value if isinstance(node, ast.Expr) else node).__name__
                self.refuse(node, f"a {what} statement is outside what can be compiled", f"rewrite it, {INTERPRET}")

    def assignment(self, node: ast.Assign) -> None:
        """a = value, a = b = value, and a, b = x, y."""
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(node.targets) == 1:
            if len(target.elts) != len(node.value.elts):
                self.refuse(node, f"{len(target.elts)} targets for {len(node.value.elts)} values")
            terms = [self.value(value) for value in node.value.elts]
            kept = [self.kept(term) for term in terms]
            for element, term in zip(target.elts, kept, strict=True):
                self.store(element, term, node)
            return
        term = self.value(node.value)
        if len(node.targets) > 1:
            term = self.kept(term)
        for element in node.targets:
            self.store(element, term, node)

    def store(self, target: ast.expr, term: Term, node: ast.stmt) -> None:
        """Store a value in a variable or in a row's field."""
        if isinstance(target, ast.Name):
            self.assign(target.id, term, node)
            return
        if not isinstance(target, ast.Attribute):
            self.refuse(node, f"cannot assign to {ast.unparse(target)!r}", "assign to a variable or to a row's field")
        row, column = self.written_field(target)
        self.write(row, column, term, node)

    def written_field(self, target: ast.Attribute) -> tuple[Term, Column]:
        """The row and the column that an assignment writes."""
        row = self.row_or_none(target.value)
        if row is None:
            self.refuse(target, f"{ast.unparse(target)!r} is not a field of a row; a transaction writes rows only")
        assert isinstance(row.type, Row)
        table = row.type.table
        if target.attr in table.key:
            self.refuse(target, f"{table.name}.{target.attr} is the key; a row's key never changes")
        for column in table.value_columns:
            if column.name == target.attr:
                return row, column
        fields = ", ".join(column.name for column in table.value_columns)
        self.refuse(target, f"table {table.name} has no field {target.attr!r} to assign", f"fields are: {fields}")

    def write(self, row: Term, column: Column, term: Term, node: ast.stmt) -> None:
        """Write a field; the row exists from now on."""
        assert isinstance(row.type, Row)
        table = row.type.table
        self.note_write(row.type)
        code = values.stored(self, term, column.type, node, f"{table.name}.{column.name}")
        self.access(row.type, column.name, "write", node)
        self.emit(f"{self.array(column_array(table.name, column.name))}[{row.code}] = {code}")
        self.emit(f"{self.array(exists_array(table.name))}[{row.code}] = True")

    def note_write(self, row: Row) -> None:
        """Note that a looked-up row of this table is written: look-ups in this table must journal their rows."""
        if LOOKED_UP in row.origins:
            self.unit.lookup_writes.add(row.table.name)

    def augmented(self, node: ast.AugAssign) -> None:
        """target op= value."""
        if isinstance(node.target, ast.Attribute):
            row, column = self.written_field(node.target)
            assert isinstance(row.type, Row)
            self.access(row.type, column.name, "read", node)
            array = self.array(column_array(row.type.table.name, column.name))
            before = Term(self.keep(f"{array}[{row.code}]"), self.type_of(row.type.table.name, column, node))
            result = self.operation(before, self.value(node.value), node)
            self.write(row, column, result, node)
            return
        if not isinstance(node.target, ast.Name):
            self.refuse(node, f"cannot assign to {ast.unparse(node.target)!r}")
        name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        result = self.operation(self.value(name), self.value(node.value), node)
        self.assign(node.target.id, result, node)

    def branch(self, node: ast.If) -> None:
        """if, elif, else."""
        before, conditions = self.assigned, len(self.conditions)
        with self.guarded(f"if {self.test(node.test)}:", node.test):
            self.block_of(node.body)
        after_body = self.assigned
        self.assigned = before
        if node.orelse:
            with self.guarded("else:", ast.UnaryOp(ast.Not(), node.test)):
                self.block_of(node.orelse)
        del self.conditions[conditions:]
        if after_body is ALWAYS or self.assigned is ALWAYS:
            self.assigned = self.assigned if after_body is ALWAYS else after_body
        else:
            self.assigned = after_body & self.assigned

    def repeat(self, node: ast.For) -> None:
        """A for loop."""
        if node.orelse:
            self.refuse(node.orelse[0], "for ... else cannot be compiled", INTERPRET)
        before, conditions = self.assigned, len(self.conditions)
        self.conditions.append(f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}")
        with self.loop(node.target, node.iter, node):
            self.block_of(node.body)
        del self.conditions[conditions:]
        self.assigned = before

    def loop_while(self, node: ast.While) -> None:
        """A while loop."""
        if node.orelse:
            self.refuse(node.orelse[0], "while ... else cannot be compiled", INTERPRET)
        conditions = len(self.conditions)
        with self.block("while True:"):
            with self.block(f"if is_interrupted({self.array('signals')}):"):
                self.leave(INTERRUPTS)
            condition = self.test(node.test)
            before = self.assigned
            with self.block(f"if not {condition}:"):
                self.emit("break")
            self.conditions.append(ast.unparse(node.test))
            self.block_of(node.body)
        del self.conditions[conditions:]
        self.assigned = before

    # --- verbs and exceptions -----------------------------------------------------------------------

    def effect(self, node: ast.Call) -> None:
        """A call used as a statement: a verb such as tg.require, or a helper function."""
        target = self.source.resolve(node.func)
        if target is require:
            condition, reason = self.verb_arguments(node, ("condition", "reason"))
            text = self.reason_text(reason)
            if text is not None:
                self.reason(text)
            test = self.test(condition)
            if text is None:
                test = self.keep(test)
                self.reason_value(reason)
            with self.block(f"if not {test}:"):
                self.fail(reason, text)
            self.conditions.append(ast.unparse(condition))
        elif target is abort:
            (reason,) = self.verb_arguments(node, ("reason",))
            self.abort(reason)
            self.assigned = ALWAYS
        elif target is delete:
            (row,) = self.verb_arguments(node, ("row",))
            self.remove(row, node)
        elif target is emit:
            self.send(node)
        else:
            self.call(node)

    def verb_arguments(self, node: ast.Call, names: tuple[str, ...]) -> list[ast.expr]:
        """The arguments of a verb in order."""
        given = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        if set(given) != set(names) or len(node.args) + len(node.keywords) != len(names):
            self.refuse(node, f"{ast.unparse(node.func)}() takes {' and '.join(names)}")
        return [given[name] for name in names]

    def abort(self, reason: ast.expr) -> None:
        """Abort for a reason that is written out or computed."""
        text = self.reason_text(reason)
        if text is None:
            self.reason_value(reason)
        self.fail(reason, text)

    def fail(self, node: ast.AST, reason: str | None) -> None:
        """Abort for a reason; where it is not known at declaration, plain Python computes it."""
        if reason is None:
            self.continue_in_python(node)
        else:
            self.leave(self.reason(reason))

    def reason_text(self, node: ast.expr) -> str | None:
        """The text of a reason if it is known at declaration."""
        if isinstance(node, ast.Name) and self.variable(node) is not None:
            return None
        found = node.value if isinstance(node, ast.Constant) else self.source.resolve(node)
        return found if isinstance(found, str) and encodable(found) else None

    def reason_value(self, node: ast.expr) -> None:
        """Evaluate what a computed reason is made of, as Python does whether it aborts or not."""
        term = strings.postponed(self, node)
        if term.type is not Kind.STR:
            self.refuse(node, f"a reason is a string, got {describe(term.type)}", "write an f-string, or str(...)")

    def remove(self, node: ast.expr, statement: ast.Call) -> None:
        """tg.delete(row)."""
        row = self.value(node)
        if not isinstance(row.type, Row):
            self.refuse(statement, f"delete() takes a row, got {describe(row.type)}")
        table = row.type.table
        self.note_write(row.type)
        self.reset(table, row.code)
        for column in table.value_columns:
            self.access(row.type, column.name, "write", statement)
        self.access(row.type, "exists", "delete", statement)

    def raised(self, node: ast.Raise) -> None:
        """raise: the abort reason is that of an Abort, otherwise the exception's class name."""
        exception = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        found = self.source.resolve(exception) if exception is not None else MISSING
        if not (isinstance(found, type) and issubclass(found, Exception)):
            self.refuse(node, "raise needs an exception class that is known at declaration", INTERPRET)
        if issubclass(found, Abort):
            if not (isinstance(node.exc, ast.Call) and len(node.exc.args) == 1):
                self.refuse(node, "Abort takes one reason", 'write tg.abort("...")')
            self.abort(node.exc.args[0])
            return
        arguments = [*node.exc.args, *node.exc.keywords] if isinstance(node.exc, ast.Call) else []
        plain = all(isinstance(argument, ast.Constant) for argument in arguments) and node.cause is None
        # If constructing the exception runs code, that code may raise something else: plain Python finds out.
        self.fail(node, found.__name__ if plain and _is_plain_exception(found) else None)


def _is_plain_exception(found: type[BaseException]) -> bool:
    """Whether constructing it from constants runs no user code and yields exactly this class."""
    if issubclass(found, OSError | UnicodeError):  # these choose a subclass, or check their arguments
        return False
    users = (cls for cls in found.__mro__ if cls.__module__ != "builtins")
    return not any("__init__" in vars(cls) or "__new__" in vars(cls) for cls in users)


def zeros(found: Type) -> tuple[str, ...]:
    """Code for a placeholder of a type, for each of the variables that carry it."""
    if isinstance(found, RecordOf):
        fields = tuple(zero(each.type) for each in found.layout.fields)
        return ("False", *fields) if found.optional else fields
    return ("0",) * 3 if isinstance(found, RowList | ValueList) else (zero(found),)


def zero(kind: object) -> str:
    """Code for a placeholder value of the kind, which is never used: it is returned together with a failure."""
    return ZERO_CODE[kind.kind] if isinstance(kind, Kind | Carried) else "0.0" if kind is MIXED else "0"
