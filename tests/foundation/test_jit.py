"""Programs are kept on disk, shared by processes, and run uncompiled on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.foundation import jit

SOURCE = """\
from tidegate.foundation.jit import generated, kernel_or_plain

@generated
def double(x):
    return 2 * x

@kernel_or_plain
def run(x):
    return double(x) + 1
"""

SCRIPT = f"""\
from tidegate.foundation.jit import load_program
module = load_program({SOURCE!r})
assert module.run(20) == 41
print(module.run.stats.cache_hits[next(iter(module.run.stats.cache_hits))] if module.run.stats.cache_hits else 0)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    return tmp_path


def start() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def test_processes_that_compile_at_once_do_not_disturb_each_other(cache: Path) -> None:
    """All get the right code, and a later process finds it compiled."""
    for process in [start() for _ in range(3)]:
        assert process.communicate()[0] is not None
        assert process.returncode == 0
    assert list(cache.glob("**/*.nbi"))
    later = start()
    hits = later.communicate()[0].strip()
    assert (later.returncode, hits) == (0, "1")


def test_an_index_that_names_missing_code_is_compiled_anew(cache: Path) -> None:
    for _ in range(2):
        process = start()
        assert process.communicate()[0].strip() == "0"
        assert process.returncode == 0
        for code in cache.glob("**/*.nbc"):
            code.unlink()


def test_the_same_text_is_the_same_module_and_uncompiled_runs_python(cache: Path) -> None:
    with jit.uncompiled():
        plain = jit.load_program(SOURCE)
        assert jit.load_program(SOURCE) is plain
        assert not hasattr(plain.run, "py_func")
        assert plain.run(2) == 5
    assert not jit.is_uncompiled()


def test_an_unwritable_cache_folder_is_replaced_by_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(file / "below"))
    found = jit.cache_directory()
    assert found.is_dir()
    assert file not in found.parents
