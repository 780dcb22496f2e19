"""What generated code may name is handed to it, and machine code that was kept does not outlive what it calls."""

from __future__ import annotations

import ast
import builtins
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tidegate
from tidegate.compiler.program import build_program
from tidegate.engine.generated import CALLED, PROVIDED
from tidegate.workloads import ledger, mixed
from tidegate.workloads.leaderboard import leaderboard

PROGRAMS = {"ledger": ledger.PROGRAM, "mixed": mixed.PROGRAM, "leaderboard": [leaderboard]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_code_names_nothing_that_it_is_not_given(name: str) -> None:
    tree = ast.parse(build_program(PROGRAMS[name]).plan.source)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    defined |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}  # type: ignore[attr-defined]
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        own = {argument.arg for argument in function.args.args} | {n.id for n in names if isinstance(n.ctx, ast.Store)}
        used = {n.id for n in names} - own - defined - set(dir(builtins))
        assert used <= set(PROVIDED)


def test_no_name_is_provided_twice() -> None:
    offered = [name for module in CALLED for name, found in public(module) if is_function_of(found, module)]
    assert len(offered) > 30 and len(offered) == len(set(offered))
    assert set(offered) <= set(PROVIDED)


def public(module: ModuleType) -> list[tuple[str, object]]:
    return [(name, found) for name, found in vars(module).items() if not name.startswith("_")]


def is_function_of(found: object, module: ModuleType) -> bool:
    return callable(found) and getattr(found, "__module__", "") == module.__name__


def test_machine_code_is_made_anew_when_a_kernel_that_it_calls_has_changed(tmp_path: Path) -> None:
    """As after an upgrade: the program's text is the same, and code that was kept would call what is gone."""
    package = tmp_path / "tidegate"
    shutil.copytree(Path(tidegate.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    script = (
        "import tidegate.engine.generated as generated\n"
        "from tidegate.compiler.program import build_program\n"
        "from tidegate.workloads.ledger import PROGRAM\n"
        "print(generated.load(build_program(PROGRAM).plan).__name__)\n"
    )

    environment = {"PYTHONPATH": str(tmp_path), "TIDEGATE_CACHE_DIR": str(tmp_path / "cache")}

    def name() -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout

    before = name()
    assert name() == before
    kernels = package / "engine" / "kernels" / "windows.py"
    kernels.write_text(kernels.read_text() + "\n# another version\n")
    assert name() != before
