"""What users write passes mypy --strict and strict pyright without one ignore, and their mistakes are found.

Both checkers run once over all programs, as over a user's: in a folder of its own, without this project's settings,
with the package on the path as an installed one. They read its types only because it ships `py.typed`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from ..pages import pages, programs

ROOT = Path(__file__).parents[2]
SHOP, ORDERS, MISTAKES = (Path(__file__).parent / name for name in ("webshop.py", "orders.py", "mistakes.py"))
EXAMPLES = {name: code for page in pages() for name, code in programs(page)}

Found = dict[str, dict[int, list[str]]]
"""What a checker says of each file, by line."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with all programs, and nothing that would make a checker milder."""
    assert metadata.version("pyarrow-stubs"), "Arrow's types, which a user who checks strictly installs, too"
    made = tmp_path_factory.mktemp("user")
    for file in (SHOP, ORDERS, MISTAKES):
        (made / file.name).write_text(file.read_text())
    for name, code in EXAMPLES.items():
        (made / name).write_text(code)
    (made / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["."]}))
    assert not re.search(r"#\s*(?:type:\s*ignore|pyright:)", "".join(file.read_text() for file in made.glob("*.py")))
    return made


def call(folder: Path, *command: str) -> str:
    """What a checker prints, which ends with 1 where it finds something."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mypy(folder: Path) -> Found:
    printed = call(folder, "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context", ".")
    found: Found = {}
    for line in printed.splitlines():
        file, number, severity, message = re.split(r":\s*", line, maxsplit=3)
        if severity == "error":
            found.setdefault(file, {}).setdefault(int(number), []).append(message)
    return found


@pytest.fixture(scope="module")
def pyright(folder: Path) -> Found:
    printed = json.loads(call(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable))
    assert printed["summary"]["filesAnalyzed"] == len(EXAMPLES) + 3
    found: Found = {}
    for told in printed["generalDiagnostics"]:
        lines = found.setdefault(Path(told["file"]).name, {})
        lines.setdefault(told["range"]["start"]["line"] + 1, []).append(told["message"])
    return found


Checked = Callable[[str], dict[int, list[str]]]


@pytest.fixture(params=["mypy", "pyright"])
def checked(request: pytest.FixtureRequest) -> Checked:
    """What one of the checkers says of a file."""
    found: Found = request.getfixturevalue(request.param)
    return lambda name: found.get(name, {})


def test_a_whole_program_has_no_complaint(checked: Checked) -> None:
    assert checked(SHOP.name) == checked(ORDERS.name) == {}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_documentation_have_no_complaint(checked: Checked, name: str) -> None:
    assert checked(name) == {}


def test_mistakes_are_found_and_nothing_else(checked: Checked) -> None:
    lines = MISTAKES.read_text().splitlines()
    assert set(checked(MISTAKES.name)) == {n for n, line in enumerate(lines, start=1) if "# mistake:" in line}


def test_the_whole_program_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SHOP, tmp_path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
