"""Numba's private interfaces are as `jit` uses them; where they are not, the first thing that a run says is what to do.

Beside the check itself: the bound in pyproject.toml holds for the Numba that is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numba
import pytest
from packaging.requirements import Requirement

from ..numba_interfaces import FUNCTIONS, advice, changes

ROOT = Path(__file__).resolve().parents[2]


def bound() -> Requirement:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return next(found for found in map(Requirement, declared) if found.name == "numba")


def test_the_private_interfaces_are_as_they_are_used() -> None:
    found = changes()
    assert not found, advice(found)


def test_numba_has_an_upper_bound_that_the_installed_one_keeps() -> None:
    assert any(part.operator == "<" for part in bound().specifier), "private interfaces change in any version"
    assert numba.__version__ in bound().specifier, f"installed: {numba.__version__}, declared: {bound()}"


def test_a_changed_interface_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", lambda self, key: None)
    monkeypatch.delattr(numba.core.ccallback, "CFunc")
    told = advice(changes())
    assert "IndexDataCacheFile.save: required the parameters (self key data), got (self key)" in told
    assert "ccallback:CFunc.compile: required" in told and "got (nothing there)" in told
    assert "upper bound of numba in pyproject.toml" in told and numba.__version__ in told
    assert sum("CFunc" in line for line in told.splitlines()) == 1 + sum("CFunc." in name for name in FUNCTIONS)


def test_a_run_of_the_tests_says_so_before_it_collects_any(tmp_path: Path) -> None:
    """Else each of hundreds of files fails to import, and says only that a name is missing."""
    plugin = tmp_path / "older.py"
    plugin.write_text("import numba.core.ccallback\ndel numba.core.ccallback.CFunc\n")
    command = [sys.executable, "-m", "pytest", "-p", "older", "-q", "tests/test_tidy.py"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "upper bound of numba in pyproject.toml" in done.stdout + done.stderr
    assert "passed" not in done.stdout and "ERROR tests" not in done.stdout
