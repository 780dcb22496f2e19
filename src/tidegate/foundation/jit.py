"""The only module that imports Numba: kernels, generated programs, and where their machine code is kept.

Three kinds of functions become machine code:

    kernel              a loop over arrays written in this package       @kernel
    generated program   the transactions of one user, as Python text     load_program(source)
    entry               one function of a program, for other machine code to call by its address   @entry

All run without the GIL and are cached on disk, so that a process compiles nothing that an earlier one compiled. Many
Spark workers may start at once, and Numba's own cache is not safe for that: two writers can pick the same file name for
different code, and its index is replaced before the code that it points to. `_SharedCacheFile` takes a file lock, gives
every entry a unique name, and writes the code first and the index last; a crash at any moment leaves a usable cache.

Machine code from a file runs with this user's rights, so it is loaded only from private folders, which no other user
can write to (see `private_folder`). The first of these that is writable is used:

    of a kernel               $NUMBA_CACHE_DIR, `__pycache__` beside its source, the cache directory
    of a generated program    $NUMBA_CACHE_DIR, `__pycache__` in the cache directory
    the cache directory       $TIDEGATE_CACHE_DIR or ~/.cache/tidegate, a folder of this user in the system's
                              temporary folder, a new one that this process alone uses

Folders that others can write to are skipped, with a warning. Without any folder, code is compiled in memory.

A generated program can also run as plain Python (`uncompiled`), which needs no compilation: this lets the tests compare
thousands of programs in minutes.

No fast-math and no fused multiply-add anywhere: float results must equal Python's.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import io
import logging
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, InTreeCacheLocator
from numba.core.ccallback import CFunc
from numba.extending import intrinsic, lower_builtin, overload, type_callable
from numba.np.arrayobj import populate_array

from tidegate.foundation import private_folder

__all__ = [
    "Entry",
    "cache_directory",
    "compiled_form",
    "entry",
    "inline",
    "intrinsic",
    "ir",
    "is_uncompiled",
    "kernel",
    "kernel_or_plain",
    "load_program",
    "lower_builtin",
    "populate_array",
    "type_callable",
    "types",
    "uncompiled",
]

_log = logging.getLogger(__name__)
_uncompiled: ContextVar[bool] = ContextVar("tidegate_uncompiled", default=False)
_loaded: dict[tuple[str, bool], ModuleType] = {}
# No reference counts (_nrt): a kernel allocates nothing, and reference counting of the arrays of each call raised
# the cost of a transaction from 18 to 105 ns.
_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}


class _SharedCacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's cache files, made safe against concurrent processes, crashes at any moment, and other users."""

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with open(os.path.join(self._cache_path, "tidegate.lock"), "a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _load_index(self) -> Any:
        data = private_folder.read(Path(self._cache_path), self._index_name)
        if data is None:
            return {}
        stream = io.BytesIO(data)
        try:
            if pickle.load(stream) != self._version:
                return {}
            stamp, overloads = pickle.load(stream)
        except Exception:  # written by another version of this package: its types are not found here
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        data = private_folder.read(Path(self._cache_path), name)
        if data is None:
            raise FileNotFoundError(name)  # the caller treats this as "not cached"
        return pickle.loads(data)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        handle, temporary = tempfile.mkstemp(dir=self._cache_path, suffix=".tmp")  # mode 0600, whatever the umask
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.replace(temporary, filepath)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def save(self, key: Any, data: Any) -> None:
        if _refused(Path(self._cache_path)):
            return
        with contextlib.suppress(OSError), self._lock():  # a full disk: the code still runs
            overloads = self._load_index()
            name = self._index_name.removesuffix(".nbi") + f".{uuid.uuid4().hex[:12]}.nbc"
            self._save_data(name, data)
            overloads[key] = name
            self._save_index(overloads)


class _PrivateLocator(InTreeCacheLocator):  # type: ignore[misc]
    """Caches a function's code in the first private folder among Numba's places and ours."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        super().__init__(function, file)
        self._cache_path = str(folder)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        folder = _code_folder(Path(file), cls.get_suitable_cache_subpath(file)) if os.path.exists(file) else None
        return None if folder is None else cls(function, file, folder)

    def ensure_cache_path(self) -> None:
        """Nothing to do: the folder was made when it was chosen."""


class _PrivateCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_PrivateLocator,)


class _SharedCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _PrivateCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _SharedCacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(self._impl.locator.get_source_stamp(), _neighbours(function.__code__.co_filename)),
        )


@functools.cache
def _sources(folder: Path) -> str:
    """A hash of all Python files of a folder."""
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def _neighbours(file: str) -> str:
    """A hash of the sources that may be inlined into a function: the engine's kernels, and a kernel's own package."""
    folder = Path(file).parent
    here = Path(__file__).parent
    ours = _sources(folder) if here.parent in folder.parents else ""
    return _sources(here) + _sources(here.parent / "engine" / "kernels") + ours


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop over arrays to machine code that runs without the GIL and is cached on disk."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no writable place for a cache: compile every time
        dispatcher._cache = _SharedCache(function)
    compiled: Callable[..., Any] = dispatcher
    return compiled


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that is inlined into the kernels that call it; plain Python under `uncompiled`."""
    compiled: Callable[..., Any] = function if _uncompiled.get() else numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def compiled_form(of: Callable[..., Any], inlined: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the implementation that compiled code uses for `of`, a plain Python function that defines it."""
    options = {"forceinline": True, **_OPTIONS} if inlined else {"error_model": "numpy"}

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        overload(of, strict=False, jit_options=options)(lambda *_arguments: implementation)
        return implementation

    return register


def kernel_or_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the main function of a generated program: a kernel cached on disk; plain Python under `uncompiled`."""
    return function if _uncompiled.get() else kernel(function)


_ENTRY_SIGNATURE = ((types.int64,) * 4, types.int64)
_ENTRY_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)
ENTRY_FAILED = -1


class Entry:
    """A function of four integers that machine code calls by its address; compiled when that is first needed.

    As plain Python it cannot raise through its caller: it returns `ENTRY_FAILED`, and `error` holds what it
    raised, until the caller clears it.
    """

    def __init__(self, function: Callable[[int, int, int, int], int], plain: bool) -> None:
        self.function = function
        self.plain = plain
        self.error: BaseException | None = None

    @functools.cached_property
    def address(self) -> int:
        """The address of the function, in C: int64 f(int64, int64, int64, int64)."""
        if self.plain:
            return ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._compiled.compile()
        return int(self._compiled.address)

    @functools.cached_property
    def _callback(self) -> Any:
        return _ENTRY_CALLBACK(self._call)

    @functools.cached_property
    def _compiled(self) -> Any:
        options = {name: value for name, value in _OPTIONS.items() if name != "nogil"}  # the caller does not hold it
        compiled: Any = CFunc(self.function, _ENTRY_SIGNATURE, {}, options)
        with contextlib.suppress(RuntimeError):  # no writable place for a cache: compile every time
            compiled._cache = _SharedCache(self.function)
        return compiled

    def _call(self, first: int, second: int, third: int, fourth: int) -> int:
        try:
            with np.errstate(all="ignore"):  # machine code gives no warnings for infinities and NaN either
                return int(self.function(first, second, third, fourth))
        except BaseException as error:
            self.error = error
            return ENTRY_FAILED


def entry(function: Callable[[int, int, int, int], int]) -> Entry:
    """Decorate a function of a generated program that machine code calls; plain Python under `uncompiled`."""
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


def cache_directory() -> Path | None:
    """The folder of generated programs: a private folder of this user; None if there is no place for one."""
    chosen = os.environ.get("TIDEGATE_CACHE_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"))
    candidates = [Path(chosen)] if chosen else [home / "tidegate"] if home.is_absolute() else []
    with contextlib.suppress(OSError):  # there may be no temporary folder at all
        candidates.append(Path(tempfile.gettempdir()) / f"tidegate-cache-{os.geteuid()}")
    return next(filter(_usable, candidates), None) or _folder_of_this_process()


def _code_folder(file: Path, below: str) -> Path | None:
    """The cache folder for the functions of a source file; candidates are tried in Numba's order."""
    chosen = numba.config.CACHE_DIR
    if chosen and _usable(Path(chosen) / below):
        return Path(chosen) / below
    # Numba also skips it silently when it is not writable. Python creates it with this mode.
    if _usable(file.parent / "__pycache__", mode=0o755, told=False):
        return file.parent / "__pycache__"
    ours = cache_directory()
    return ours / below if ours is not None and _usable(ours / below) else None


_of_this_process: list[Path] = []
_warned: set[Path] = set()


def _folder_of_this_process() -> Path | None:
    """A new folder that is removed when this process ends; its forks use it too."""
    if not _of_this_process or not _of_this_process[0].is_dir():
        try:
            made = Path(tempfile.mkdtemp(prefix="tidegate-cache-"))  # mode 0700
        except OSError:
            return None
        _of_this_process[:] = [made]
        atexit.register(_remove, made, os.getpid())
    return None if _refused(_of_this_process[0]) else _of_this_process[0]


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _usable(folder: Path, mode: int = 0o700, told: bool = True) -> bool:
    """Whether code can be cached in a folder, which is created if missing."""
    with contextlib.suppress(OSError):
        private_folder.make(folder, mode)
    return not _refused(folder, told)


def _refused(folder: Path, told: bool = True) -> bool:
    """Whether another user could have put code into a folder (logged once), or this user cannot write to it."""
    try:
        found = private_folder.weakness(folder)
    except OSError:
        return True
    if found is None:
        return not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
    if told and found.place not in _warned:
        _warned.add(found.place)
        _log.warning(
            "compiled code in %s is not used, and none is kept there: %s. Tidegate now looks for another place, which "
            "may be one that lasts only as long as this process: the next one compiles all of it again. Remove what is "
            "not yours, take the permission from others with chmod go-w, or set TIDEGATE_CACHE_DIR to a folder of "
            "your own.",
            folder,
            found,
        )
    return True


def load_program(
    source: str, provided: Mapping[str, object] | None = None, depends: Iterable[ModuleType] = ()
) -> ModuleType:
    """The module made from `source`; the same text gives the same module and the same machine code.

    The text may use the names in `provided`. Cached machine code is tied to the present content of the modules that it
    `depends` on.
    """
    plain = _uncompiled.get()
    identity = f"{_compiler_identity()} {_files_identity(frozenset(str(module.__file__) for module in depends))}"
    key = hashlib.sha256(f"{identity}\n{source}".encode()).hexdigest()[:20]
    found = _loaded.get((key, plain))
    if found is not None:
        return found
    name = f"tidegate_program_{key}"
    module = ModuleType(name)
    module.__dict__.update(provided or {})
    file = None if plain else _program_file(name, source)
    if not plain:
        sys.modules[name] = module  # cached machine code finds its module here
    # Run the text, never the file: the file serves Numba, which caches code beside it, and tracebacks.
    exec(compile(source, str(file or f"<{name}>"), "exec"), module.__dict__)
    _loaded[key, plain] = module
    return module


@functools.cache
def _compiler_identity() -> str:
    """The compiler and its options, on which machine code depends besides the program's text and what it calls."""
    return f"{numba.__version__} {sys.version_info[:2]} {_files_identity(frozenset([__file__]))}"


@functools.cache
def _files_identity(files: frozenset[str]) -> str:
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in sorted(files))).hexdigest()


def _program_file(name: str, source: str) -> Path | None:
    """The file that holds a program's text; None if there is no place for it."""
    folder = cache_directory()
    if folder is None:
        return None
    path = folder / f"{name}.py"
    text = source.encode()
    if private_folder.read(folder, path.name) == text:
        return path
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(text)
            try:
                os.link(temporary, path)  # the first writer wins, so the file's time stamp never changes
            except OSError:  # there is one already, or there are no hard links here
                if private_folder.read(folder, path.name) != text:
                    os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError:  # a full disk: the program runs, its machine code is not cached
        return None
    return path
