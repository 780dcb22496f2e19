"""The one door to Numba: kernels, generated programs, and where their machine code is kept.

Three kinds of functions become machine code:

    kernel              a loop over arrays written in this package       @kernel
    generated program   the transactions of one user, as Python text     load_program(source)
    entry               one function of a program, for other machine code to call by its address   @entry

All run without the GIL and are kept on disk, so a process compiles nothing that an earlier one
compiled. Many Spark workers may start at once and Numba's own cache is not safe for that: two
writers can pick the same file name for different code, and its index is replaced before the code
that it points to. `_SharedCacheFile` therefore takes a file lock, gives every entry a name of its
own, and writes code first and index last; a crash at any moment leaves a usable cache.

A generated program can also run as the plain Python that it is (`uncompiled`): slower, but it
needs no compilation, which lets the tests compare thousands of programs in minutes.

Nothing here knows what a transaction is. No fast-math and no fused multiply-add anywhere: floats
must come out as Python computes them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.extending import intrinsic, lower_builtin, overload, type_callable
from numba.np.arrayobj import populate_array

__all__ = [
    "Entry",
    "cache_directory",
    "entry",
    "generated",
    "intrinsic",
    "ir",
    "is_uncompiled",
    "kernel",
    "kernel_or_plain",
    "load_program",
    "lower_builtin",
    "overload",
    "populate_array",
    "type_callable",
    "types",
    "uncompiled",
]

_uncompiled: ContextVar[bool] = ContextVar("tidegate_uncompiled", default=False)
_loaded: dict[tuple[str, bool], ModuleType] = {}
# Without reference counts (_nrt): a kernel allocates nothing, and counting the arrays of each call took
# 105 ns a transaction where 18 ns suffice.
_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}


class _SharedCacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's cache files, safe for many processes and for a crash at any moment."""

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        os.makedirs(self._cache_path, exist_ok=True)
        with open(os.path.join(self._cache_path, "tidegate.lock"), "a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # written by another version of this package: its types are not found here
            return {}

    def save(self, key: Any, data: Any) -> None:
        with self._lock():
            overloads = self._load_index()
            name = self._index_name.removesuffix(".nbi") + f".{uuid.uuid4().hex[:12]}.nbc"
            self._save_data(name, data)
            overloads[key] = name
            self._save_index(overloads)


class _SharedCache(FunctionCache):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _SharedCacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(self._impl.locator.get_source_stamp(), _neighbours(function.__code__.co_filename)),
        )


@functools.cache
def _sources(folder: Path) -> str:
    """What the Python files of a folder say, as one number."""
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def _neighbours(file: str) -> str:
    """What a function may have taken into itself: a kernel those of modules beside it, a program all kernels."""
    folder = Path(file).parent
    here = Path(__file__).parent
    ours = here.parent in folder.parents
    return _sources(here) + _sources(folder if ours else here.parent / "engine" / "kernels")


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop over arrays to machine code that runs without the GIL, kept on disk."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no writable place for a cache: compile every time
        dispatcher._cache = _SharedCache(function)
    compiled: Callable[..., Any] = dispatcher
    return compiled


def generated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate an inner function of a generated program: compiled into `run`, or plain under `uncompiled`."""
    compiled: Callable[..., Any] = function if _uncompiled.get() else numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def kernel_or_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the entry of a generated program: a kernel kept on disk, or plain under `uncompiled`."""
    return function if _uncompiled.get() else kernel(function)


_ENTRY_SIGNATURE = ((types.int64,) * 4, types.int64)
_ENTRY_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)
ENTRY_FAILED = -1


class Entry:
    """A function of four integers that machine code calls by its address; made when first asked for.

    As plain Python it cannot raise through its caller: it returns `ENTRY_FAILED`, and `error` is what it
    raised, until whoever looks takes it away.
    """

    def __init__(self, function: Callable[[int, int, int, int], int], plain: bool) -> None:
        self.function = function
        self.plain = plain
        self.error: BaseException | None = None

    @functools.cached_property
    def address(self) -> int:
        """Where the function begins, as C sees it: int64 of four int64."""
        if self.plain:
            return ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._compiled.compile()
        return int(self._compiled.address)

    @functools.cached_property
    def _callback(self) -> Any:
        return _ENTRY_CALLBACK(self._call)

    @functools.cached_property
    def _compiled(self) -> Any:
        options = {name: value for name, value in _OPTIONS.items() if name != "nogil"}  # the caller has none
        compiled: Any = CFunc(self.function, _ENTRY_SIGNATURE, {}, options)
        with contextlib.suppress(RuntimeError):  # no writable place for a cache: compile every time
            compiled._cache = _SharedCache(self.function)
        return compiled

    def _call(self, first: int, second: int, third: int, fourth: int) -> int:
        try:
            with np.errstate(all="ignore"):  # machine code computes infinities and NaN without a word, too
                return int(self.function(first, second, third, fourth))
        except BaseException as error:
            self.error = error
            return ENTRY_FAILED


def entry(function: Callable[[int, int, int, int], int]) -> Entry:
    """Decorate a function of a generated program that machine code calls; plain under `uncompiled`."""
    return Entry(function, _uncompiled.get())


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Inside this block newly loaded programs run as plain Python."""
    token = _uncompiled.set(True)
    try:
        yield
    finally:
        _uncompiled.reset(token)


def is_uncompiled() -> bool:
    """Whether programs that are loaded now run as plain Python."""
    return _uncompiled.get()


def cache_directory() -> Path:
    """Where generated programs are kept: $TIDEGATE_CACHE_DIR, else the user's cache, else a temp folder."""
    chosen = os.environ.get("TIDEGATE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    candidates = [Path(chosen)] if chosen else [Path(home) / "tidegate"]
    candidates.append(Path(tempfile.gettempdir()) / f"tidegate-cache-{os.getuid()}")
    for candidate in candidates:
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(candidate, os.W_OK):
            return candidate
    return Path(tempfile.mkdtemp(prefix="tidegate-cache-"))


def load_program(source: str) -> ModuleType:
    """The module that `source` makes; the same text gives the same module and the same machine code."""
    plain = _uncompiled.get()
    key = hashlib.sha256(f"{_compiler_identity()}\n{source}".encode()).hexdigest()[:20]
    found = _loaded.get((key, plain))
    if found is not None:
        return found
    name = f"tidegate_program_{key}"
    if plain:
        module = ModuleType(name)
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    else:
        module = _import_file(name, _program_file(name, source))
    _loaded[key, plain] = module
    return module


@functools.cache
def _compiler_identity() -> str:
    """What machine code depends on besides a program's text: compiler, options, and what it calls."""
    here = Path(__file__)
    own = b"".join(here.with_name(name).read_bytes() for name in ("jit.py", "arithmetic.py", "memory.py"))
    return f"{numba.__version__} {sys.version_info[:2]} {hashlib.sha256(own).hexdigest()}"


def _program_file(name: str, source: str) -> Path:
    path = cache_directory() / f"{name}.py"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as stream:
            stream.write(source)
        try:
            os.link(temporary, path)  # the first writer wins, so the file's time stamp never changes
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
    return path


def _import_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # cached machine code finds its module here
    spec.loader.exec_module(module)
    return module
