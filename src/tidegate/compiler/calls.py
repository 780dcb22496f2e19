"""Turns calls inside a body into generated code: built-ins (`built_ins`), methods of values, and helper functions.

A plain helper function is compiled too, once for each combination of argument types, as a function
of its own that returns `(status, value)`; an abort inside it aborts the transaction.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import enum
import types
from collections.abc import Iterator
from uuid import UUID

from tidegate.api.control import Abort, abort, delete, history, lookup, require
from tidegate.api.outside import MISSING
from tidegate.api.stream import emit
from tidegate.api.transaction import Transaction
from tidegate.compiler import decimals, strings, times, values
from tidegate.compiler.built_ins import KNOWN
from tidegate.compiler.expressions import Expressions, element_type
from tidegate.compiler.names import list_parts
from tidegate.compiler.numbers import INTERPRET
from tidegate.compiler.types import RowList, Term, ValueList, WindowOf, WindowRow, describe
from tidegate.operations.kinds import Carried, Kind

VERBS = (require, abort, delete, emit, Abort)


class Calls(Expressions):
    """Calls of one function."""

    private: list[dict[str, Term]]

    @abc.abstractmethod
    def helper(self, function: types.FunctionType, arguments: list[Term], node: ast.Call) -> Term:
        """Call a helper function of the user's."""

    @abc.abstractmethod
    def look_up(self, node: ast.Call) -> Term:
        """tg.lookup(Table, key)."""

    @abc.abstractmethod
    def remember(self, node: ast.Call) -> Term:
        """tg.history(row, last=...)."""

    @abc.abstractmethod
    def each_state(self, term: Term) -> contextlib.AbstractContextManager[Term]:
        """A loop over the states of a row, the newest first."""

    @abc.abstractmethod
    def window_call(self, term: Term, function: str, node: ast.Call) -> Term:
        """window.sum("field") and its like."""

    @abc.abstractmethod
    def assign(self, name: str, term: Term, node: ast.AST) -> None:
        """Assign to a local variable."""

    def call(self, node: ast.Call) -> Term:
        """The value of a call."""
        if isinstance(node.func, ast.Attribute):
            window = self.window_or_none(node.func.value)
            if window is not None and isinstance(window.type, WindowOf):
                return self.window_call(window, node.func.attr, node)
            found = self.method(node, node.func) if window is None else None
            if found is not None:
                return found
            if window is None and strings.is_text(self, node.func.value):
                return strings.method(self, node)
        target = self.source.resolve(node.func)
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Name) and self.variable(node.func) is not None:
            self.refuse(node, f"{name!r} is a value, not a function")
        if target is lookup:
            return self.look_up(node)
        if target is history:
            return self.remember(node)
        made = times.construct(self, target, node) or decimals.construct(self, target, node)
        if made is None and target is UUID:
            made = values.evaluated(self, target, node)
        if made is not None:
            return made
        known = KNOWN.get(target) if _hashable(target) else None
        if known is not None:
            if node.keywords:
                self.refuse(node, f"{name}() takes no named arguments in a transaction")
            return known(self, node)
        if target in VERBS if _hashable(target) else False:
            self.refuse(node, f"{name}() is a statement of its own and has no value")
        if isinstance(target, Transaction):
            self.refuse(node, "a transaction cannot call another one", "move the shared part into a plain function")
        if isinstance(target, types.FunctionType):
            return self.helper(target, self.arguments(target, node), node)
        if target is MISSING:
            self.refuse(node, f"the function {name!r} cannot be resolved at declaration", INTERPRET)
        choices = ", ".join(sorted(function.__name__ for function in KNOWN))
        self.refuse(
            node,
            f"{name}() cannot be compiled",
            f"known are: {choices}, and plain helper functions, {INTERPRET}",
        )

    def method(self, node: ast.Call, called: ast.Attribute) -> Term | None:
        """A method of a value; None if it is no method of one."""
        if called.attr == "quantize" and self.source.resolve(called) is MISSING:
            return decimals.quantized(self, node)
        if isinstance(called.value, ast.Name) and self.variable(called.value) is None:
            return None
        before = len(self.lines), len(self.accesses)
        owner = self.owner_or_none(called.value)
        if owner is None or not isinstance(owner.type, Carried) or values.is_text(owner.type):
            del self.lines[before[0] :], self.accesses[before[1] :]  # it is evaluated where its method is known
            return None
        owner = values.present(self, owner)
        found = times.method(self, owner, called.attr, node) if isinstance(owner.type, times.TIMES) else None
        if found is None:
            self.refuse(
                node, f".{called.attr}() of {describe(owner.type)} cannot be compiled", f"rewrite it, {INTERPRET}"
            )
        return found

    def arguments(self, function: types.FunctionType, node: ast.Call) -> list[Term]:
        """The arguments of a helper call in the order of its parameters; defaults must be constants."""
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        if code.co_flags & 0x0C or code.co_kwonlyargcount:
            self.refuse(node, f"helper {function.__name__}() must take plain parameters only")
        given: dict[str, Term] = {}
        if len(node.args) > len(names) or any(isinstance(a, ast.Starred) for a in node.args):
            self.refuse(node, f"{function.__name__}() takes {len(names)} arguments, got {len(node.args)}")
        for name, argument in zip(names, node.args, strict=False):
            given[name] = self.value(argument)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in names or keyword.arg in given:
                self.refuse(node, f"{function.__name__}(): argument {keyword.arg!r} does not fit")
            given[keyword.arg] = self.value(keyword.value)
        defaults = function.__defaults__ or ()
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            if name not in given:
                plain = isinstance(value, bool | int | float | str) and not isinstance(value, enum.Enum)
                default = self.constant(value, node) if plain else values.constant(self, value, node)
                if default is None:
                    self.refuse(node, f"{function.__name__}(): the default of {name!r} is not a plain constant")
                given[name] = default
        missing = [name for name in names if name not in given]
        if missing:
            self.refuse(node, f"{function.__name__}(): missing argument {missing[0]!r}")
        return [given[name] for name in names]

    def one_value(self, node: ast.Call) -> Term:
        """The only argument, which is not None."""
        if len(node.args) != 1:
            self.refuse(node, f"{ast.unparse(node.func)}() takes one argument here, got {len(node.args)}")
        return values.plain(self, self.value(node.args[0]))

    def one_number(self, node: ast.Call) -> Term:
        """The only argument, which must be a number."""
        term = self.one_value(node)
        self.require_number(term, node.args[0])
        return term

    # --- loops over lists, ranges and generators --------------------------------------------------

    @contextlib.contextmanager
    def loop(
        self, target: ast.expr, iterable: ast.expr, node: ast.AST, private: dict[str, Term] | None = None
    ) -> Iterator[None]:
        """A for loop: the header, and the assignments to its target at the start of each round.

        With `private`, the target is bound in that dictionary only: a generator's variables are not variables
        of the function.
        """
        called = self.source.resolve(iterable.func) if isinstance(iterable, ast.Call) else None
        if isinstance(iterable, ast.Call) and called is range:
            bounds = [self.integer(self.number(a), a).code for a in iterable.args]
            if not 1 <= len(bounds) <= 3 or iterable.keywords:
                self.refuse(iterable, "range() takes one to three numbers")
            start, stop, step = ["0", *bounds, "1"] if len(bounds) == 1 else [*bounds, "1"][:3]
            if len(bounds) == 3:
                self.escape_if(f"{step} == 0")
            self.escape_if(f"not can_count({start}, {stop}, {step})")
            counter = self.fresh()
            with self.block(f"for {counter} in range({', '.join(bounds)}):"):
                self.assign_target(target, [Term(counter, Kind.INT)], node, private)
                yield
            return
        if isinstance(iterable, ast.Call) and called is history:
            with self.each_state(self.value(iterable)) as state:
                self.assign_target(target, [state], node, private)
                yield
            return
        parts: list[ast.expr] = [iterable]
        first: str | None = None
        strict: bool | None = False
        if isinstance(iterable, ast.Call) and called in (zip, enumerate):
            strict = _is_strict(iterable) if called is zip else None
            if iterable.keywords and strict is None:
                self.refuse(iterable, f"{called.__name__}() takes no such named arguments in a transaction")
            parts = list(iterable.args)
            if called is enumerate:
                first = self.integer(self.number(parts[1]), iterable).code if len(parts) > 1 else "0"
                parts = parts[:1]
        lists = [self.list_value(part) for part in parts]
        if strict:
            for other in lists[1:]:  # plain Python raises after the last full round
                self.escape_if(f"{self.length_of(lists[0])} != {self.length_of(other)}")
        lengths = [self.length_of(term) for term in lists]
        shortest = lengths[0] if len(lengths) == 1 else f"min({', '.join(lengths)})"
        counter, length = self.fresh(), self.keep(shortest)
        with self.block(f"for {counter} in range({length}):"):
            elements = [self.element_at(term, counter) for term in lists]
            if first is not None:
                index = Term(counter, Kind.INT) if first == "0" else self.checked(f"add({counter}, {first})", Kind.INT)
                elements.insert(0, index)
            self.assign_target(target, elements, node, private)
            yield

    def assign_target(
        self, target: ast.expr, elements: list[Term], node: ast.AST, private: dict[str, Term] | None
    ) -> None:
        """Assign the elements of one round to the loop's target."""
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(targets) != len(elements) or not all(isinstance(t, ast.Name) for t in targets):
            self.refuse(
                node,
                f"the loop gives {len(elements)} values a round, {ast.unparse(target)!r} does not take that",
            )
        for name, element in zip(targets, elements, strict=True):
            assert isinstance(name, ast.Name)
            if private is None:
                self.assign(name.id, element, node)
            else:
                private[name.id] = element

    def list_value(self, node: ast.expr) -> Term:
        """The value of an expression that must be a list parameter."""
        term = self.value(node)
        if not isinstance(term.type, RowList | ValueList | WindowOf):
            self.refuse(
                node,
                f"a loop runs over a list parameter, a window, range, zip or enumerate; got {describe(term.type)}",
                INTERPRET,
            )
        return term

    def length_of(self, term: Term) -> str:
        """Code for the length of a list or a window."""
        if isinstance(term.type, WindowOf):
            return self.window_length(term)
        _, start, stop = list_parts(term.code)
        return f"({stop} - {start})"

    def element_at(self, term: Term, counter: str) -> Term:
        """Element number `counter` of a list or a window."""
        if isinstance(term.type, WindowOf):
            return Term(counter, WindowRow(term.type.parameter))
        data, start, _ = list_parts(term.code)
        assert isinstance(term.type, RowList | ValueList)
        return Term(self.keep(f"{data}[{start} + {counter}]"), element_type(term.type))

    @contextlib.contextmanager
    def each(self, node: ast.Call) -> Iterator[Term]:
        """The elements of the only argument: a generator, a list comprehension or a list parameter."""
        if len(node.args) != 1:
            self.refuse(node, f"{ast.unparse(node.func)}() takes one argument here, got {len(node.args)}")
        argument = node.args[0]
        private: dict[str, Term] = {}
        if not isinstance(argument, ast.GeneratorExp | ast.ListComp):
            with self.loop(ast.Name("element", ast.Store()), argument, node, private):
                yield private["element"]
            return
        if len(argument.generators) != 1:
            self.refuse(argument, "one `for` is allowed inside a generator", INTERPRET)
        generator = argument.generators[0]
        with self.loop(generator.target, generator.iter, argument, private), contextlib.ExitStack() as stack:
            self.private.append(private)
            for condition in generator.ifs:
                stack.enter_context(self.guarded(f"if {self.test(condition)}:", condition))
            element = self.value(argument.elt)
            self.private.pop()
            yield element


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_strict(node: ast.Call) -> bool | None:
    """The value of zip's `strict`; None if there are other named arguments, or it is not a literal bool."""
    match node.keywords:
        case []:
            return False
        case [ast.keyword(arg="strict", value=ast.Constant(value=bool() as value))]:
            return value
    return None
