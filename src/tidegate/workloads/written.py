"""Programs that are written out at run time: the compiler reads source, so each becomes a module with a file."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType


def load_source(name: str, text: str) -> ModuleType:
    """The module of that name with that text; made once in a process."""
    if name not in sys.modules:
        file = Path(tempfile.mkdtemp(prefix="tidegate-")) / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
