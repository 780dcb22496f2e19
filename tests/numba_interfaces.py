"""What `tidegate.foundation.jit` uses of Numba that Numba promises nobody, checked against the Numba that is installed.

It imports nothing of Tidegate: where a private interface went away, Tidegate cannot be imported, and hundreds of tests
would say so in words that help nobody. `tests/conftest.py` therefore asks here before anything is collected.
"""

from __future__ import annotations

import importlib
import inspect

FUNCTIONS = {
    "numba.core.caching:IndexDataCacheFile.__init__": "self cache_path filename_base source_stamp",
    "numba.core.caching:IndexDataCacheFile.save": "self key data",
    "numba.core.caching:IndexDataCacheFile.load": "self key",
    "numba.core.caching:IndexDataCacheFile._load_index": "self",
    "numba.core.caching:IndexDataCacheFile._save_index": "self overloads",
    "numba.core.caching:IndexDataCacheFile._load_data": "self name",
    "numba.core.caching:IndexDataCacheFile._save_data": "self name data",
    "numba.core.caching:IndexDataCacheFile._open_for_write": "self filepath",
    "numba.core.caching:FunctionCache.__init__": "self py_func",
    "numba.core.caching:FunctionCache.load_overload": "self sig target_context",
    "numba.core.caching:FunctionCache.save_overload": "self sig data",
    "numba.core.caching:CompileResultCacheImpl.__init__": "self py_func",
    "numba.core.caching:InTreeCacheLocator.__init__": "self py_func py_file",
    "numba.core.caching:InTreeCacheLocator.from_function": "py_func py_file",
    "numba.core.caching:InTreeCacheLocator.get_suitable_cache_subpath": "py_file",
    "numba.core.caching:InTreeCacheLocator.get_cache_path": "self",
    "numba.core.caching:InTreeCacheLocator.get_source_stamp": "self",
    "numba.core.caching:InTreeCacheLocator.ensure_cache_path": "self",
    "numba.core.ccallback:CFunc.__init__": "self pyfunc sig locals options pipeline_class",
    "numba.core.ccallback:CFunc.compile": "self",
    "numba.np.arrayobj:populate_array": "array data shape strides itemsize meminfo parent",
}
"""Functions that are called, or replaced, with exactly these parameters."""

VALUES = (
    "numba.core.caching:FunctionCache._impl_class",
    "numba.core.caching:CompileResultCacheImpl._locator_classes",
    "numba.core.caching:CompileResultCacheImpl.filename_base",
    "numba.core.caching:CompileResultCacheImpl.locator",
    "numba.core.ccallback:CFunc.address",
    "numba.core.config:CACHE_DIR",
    "numba.extending:intrinsic",
    "numba.extending:lower_builtin",
    "numba.extending:overload",
    "numba.extending:type_callable",
)


def changes() -> list[str]:
    """What is not as Tidegate uses it; empty where all is well."""
    found = []
    for name, wanted in FUNCTIONS.items():
        value = _find(name)
        got = " ".join(inspect.signature(value).parameters) if callable(value) else "nothing there"
        if got != wanted:
            found.append(f"{name}: required the parameters ({wanted}), got ({got})")
    found += [f"{name}: required, and not there" for name in VALUES if _find(name) is _NOTHING]
    return found + _changes_of_objects()


def advice(found: list[str]) -> str:
    """What to do about it."""
    import numba

    listed = "\n".join(f"  {line}" for line in found)
    return (
        f"Numba {numba.__version__} changed private interfaces that src/tidegate/foundation/jit.py uses:\n{listed}\n"
        "Either set the upper bound of numba in pyproject.toml to the last version without these changes, and install "
        "again; or adapt jit.py to the new ones, and after that tests/numba_interfaces.py, and raise the bound."
    )


_NOTHING = object()


def _find(name: str) -> object:
    module, _, path = name.partition(":")
    try:
        value: object = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return _NOTHING
    return value


def _changes_of_objects() -> list[str]:
    """Attributes that objects have only when they are made, and options that only a compilation knows."""
    import numba

    found = []
    try:
        file = numba.core.caching.IndexDataCacheFile("folder", "base", "stamp")
        if (file._cache_path, file._index_name, file._source_stamp) != ("folder", "base.nbi", "stamp"):
            found.append("IndexDataCacheFile keeps its folder, the name of its index or its stamp in another way")
        if file._version != numba.__version__:
            found.append("IndexDataCacheFile._version is not Numba's version")
        options = {"nogil": True, "error_model": "numpy", "fastmath": False, "_nrt": False}
        dispatcher = numba.njit(forceinline=True, **options)(lambda x: x)
        for name in ("load_overload", "save_overload"):
            getattr(dispatcher._cache, name)  # ours takes its place
        dispatcher.compile((numba.int64,))
    except Exception as error:
        found.append(f"making a cache file, or compiling without reference counts: {type(error).__name__}: {error}")
    return found
