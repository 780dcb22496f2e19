"""Packs a program into bytes that any Python worker can open.

A worker often cannot import what the driver imported: a test module, a module next to a script, a notebook. So the
functions and classes of a program are pickled by value, with what they use:

    transaction --> its helpers, constants, tables            found through the names in its code
                --> a module of the user, used as `module.f`  cut down to the attributes used
                --> numpy, tidegate, the standard library     by name: workers have them

`_Reach` walks those references. Only what the program reaches is packed: a module that also holds a SparkSession, a
lock or a large table is packed without them. `transact` packs once per call;
a worker unpacks once for each engine that it makes.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from tidegate.foundation.errors import DefinitionError
from tidegate.operations.plan import Program


def pack(program: Program) -> bytes:
    """The program as bytes, user code by value."""
    named = f"the program ({', '.join(program.plan.names)})"
    return pack_by_value(program, (program.functions, program.classes), named, "A transaction")


def pack_by_value(value: Any, roots: tuple[Any, ...], named: str, user: str) -> bytes:
    """Any value as bytes; `roots` are the functions and classes of the user in it, which go by value.

    Args:
        value: what is packed.
        roots: the functions and classes, in any containers.
        named: what the value is, for the message.
        user: what of it may use only what can be pickled, for the message.
    """
    used = _reach(roots)
    taken = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    names = {*used.modules, *used.attributes} - taken
    registered = [sys.modules[name] for name in names if name in sys.modules]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        buffer = io.BytesIO()
        _Pickler(buffer, used.attributes).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise DefinitionError(
            f"{named} cannot be sent to Spark's workers: {error}. "
            f"{user} may use functions, classes and constants; take anything else (a session, a lock, "
            "an open file) out of the functions that it calls."
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()


def unpack(payload: bytes) -> Any:
    """What was packed: a `Program`, or a value."""
    return pickle.loads(payload)


def digest(payload: bytes) -> str:
    """A name for the payload: equal payloads are equal programs."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, except that a user's module carries only the attributes that the program uses."""

    def __init__(self, file: io.BytesIO, attributes: dict[str, set[str]]) -> None:
        super().__init__(file)
        self._attributes = attributes

    def reducer_override(self, value: Any) -> Any:
        """How one object is packed."""
        if isinstance(value, ModuleType) and value.__name__ in self._attributes:
            names = sorted(self._attributes[value.__name__])
            return _make_module, (value.__name__, {name: getattr(value, name) for name in names})
        return super().reducer_override(value)


def _make_module(name: str, attributes: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(attributes)
    return module


class _Reach:
    """Collects what a program refers to: the user's modules, and the attributes of each module that it names."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self._seen: set[int] = set()

    def visit(self, value: Any) -> None:
        """Follow the references of one object that the program can reach."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, dict):
            for item in value.values():
                self.visit(item)
        elif isinstance(value, list | tuple | set | frozenset):
            for item in value:
                self.visit(item)
        elif not isinstance(value, ModuleType) and _is_users(type(value).__module__):
            self.visit(type(value))
            self.visit(getattr(value, "__dict__", {}))
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            self.visit(wrapped)

    def _function(self, function: FunctionType) -> None:
        if not self._owns(function.__module__):
            return
        for cell in function.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:
                continue  # a name that is not bound yet
        self.visit((function.__defaults__, function.__kwdefaults__, function.__annotations__))
        names = set(_names(function.__code__))
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            if isinstance(value, ModuleType):
                self._module(value, names)
            else:
                self.visit(value)

    def _class(self, declared: type) -> None:
        if not self._owns(declared.__module__):
            return
        self.visit(declared.__bases__)
        for value in list(declared.__dict__.values()):
            self.visit(getattr(value, "__func__", getattr(value, "fget", value)))

    def _module(self, module: ModuleType, names: set[str]) -> None:
        """A module that code refers to by name: keep every attribute whose name occurs in that code."""
        if not _is_users(module.__name__):
            return
        used = self.attributes.setdefault(module.__name__, set())
        for name in names & module.__dict__.keys():
            used.add(name)
            value = module.__dict__[name]
            if isinstance(value, ModuleType):
                self._module(value, names)
            else:
                self.visit(value)

    def _owns(self, module: str | None) -> bool:
        if module is None or not _is_users(module):
            return False
        self.modules.add(module)
        return True


def _reach(roots: tuple[Any, ...]) -> _Reach:
    reach = _Reach()
    reach.visit(roots)
    return reach


def _names(code: CodeType) -> Iterator[str]:
    """The global names and attributes in a function's code, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(Path(folder).resolve() for folder in folders)


def _is_users(name: str) -> bool:
    """Whether a loaded module is the user's own: not installed, not Python's, and not this package."""
    root = name.partition(".")[0]
    if root == "__main__":
        return True
    if root in sys.stdlib_module_names or root == "tidegate":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return True  # made at run time: by a notebook, by exec
    place = Path(file).resolve()
    return not any(place.is_relative_to(folder) for folder in _installed_folders())
