"""Runs the blocks of pages, for `test_pages`: a process of its own, whose folder is empty when a page begins.

It reads the names of pages from its input, one a line, and answers each with a line of JSON: what went wrong, as a
list. One process serves all pages, because they share what takes seconds: imports, and one Spark. Spark finds relative
paths in the folder in which it was started, and so all pages run in that folder, one after the other. A line of a shell
block that runs a Python file to its end, `python stream.py --once`, runs it here as well; in the background, where it
may be killed, it is a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

FOLDER = Path.cwd()
SHELL_SECONDS_MAX = 300
PYTHON_LINE = re.compile(r"^(python \S+\.py\b[^&|;<>\n]*)(?: 2> \S+)?\n", re.MULTILINE)


def main() -> None:
    sys.path[0] = ""  # as for a user in the folder; pages may import what they saved there
    from tests.pages import blocks  # type: ignore[import-not-found]

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints must not be taken for an answer
    with tempfile.TemporaryDirectory() as sources:
        for line in sys.stdin:
            _empty(FOLDER)
            failures = Page(blocks(line.strip()), Path(sources)).failures
            answers.write(json.dumps(failures) + "\n")
            answers.flush()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _forget_modules(folder)


def _forget_modules(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").parent == folder:
            del sys.modules[name]


class Page:
    """One run of a page's blocks; `failures` says which did what they should not."""

    def __init__(self, blocks: list[Any], sources: Path) -> None:
        self.failures: list[str] = []
        self._sources = sources
        self._begin_program()
        printed: str | None = None
        if any("tidegate.spark" in block.code for block in blocks):
            _start_spark()
        for block in blocks:
            if block.is_output:
                self._compare(block, printed)
            elif block.runs and not self.failures:
                printed = self._run(block)
        _stop_streams()

    def _begin_program(self) -> None:
        self._program = types.ModuleType("__main__")
        sys.modules["__main__"] = self._program

    def _run(self, block: Any) -> str | None:
        """What it printed."""
        if block.title is not None:
            (FOLDER / block.title).write_text(block.code)
            return None
        if block.words == "fresh":
            self._begin_program()
        failed, printed = (self._run_python if block.language == "python" else self._run_shell)(block)
        if bool(failed) != (block.words == "raises"):
            self.failures.append(f"{block.place}: {failed or 'required an error, got none'}\n{printed}")
        return printed

    def _run_python(self, block: Any) -> tuple[str, str]:
        source = self._sources / f"{re.sub(r'[^a-z]+', '_', block.page.lower())}_{block.line}.py"
        source.write_text(block.code)
        into = io.StringIO()
        try:
            with contextlib.redirect_stdout(into):
                exec(compile(block.code, str(source), "exec"), self._program.__dict__)
        except Exception as error:
            return traceback.format_exc(), f"{into.getvalue()}{type(error).__name__}: {error}"
        return "", into.getvalue()

    def _run_shell(self, block: Any) -> tuple[str, str]:
        printed = ""
        for number, part in enumerate(PYTHON_LINE.split(block.code)):
            failed, more = self._run_file(*shlex.split(part)[1:]) if number % 2 else self._run_bash(part)
            printed += more
            if failed:
                return failed, printed
        return "", printed

    def _run_file(self, file: str, *arguments: str) -> tuple[str, str]:
        """Run a Python file as a program, in this process."""
        _forget_modules(FOLDER)
        into, before = io.StringIO(), sys.argv
        sys.argv = [file, *arguments]
        try:
            with contextlib.redirect_stdout(into):
                runpy.run_path(file, run_name="__main__")
        except Exception:
            return traceback.format_exc(), into.getvalue()
        finally:
            sys.argv = before
        return "", into.getvalue()

    def _run_bash(self, code: str) -> tuple[str, str]:
        place = os.path.dirname(sys.executable)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=SHELL_SECONDS_MAX,
            env=os.environ | {"PATH": f"{place}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"},
        )
        failed = f"exit code {done.returncode}" if done.returncode else ""
        return failed, done.stdout + done.stderr if failed else done.stdout

    def _compare(self, block: Any, printed: str | None) -> None:
        if not self.failures and (printed is None or not same(block.code, printed)):
            self.failures.append(f"{block.place}: required\n{block.code}\ngot\n{printed}")


def same(told: str, printed: str) -> bool:
    """Whether a page tells what was printed: `...` may stand for anything, on a line of its own for lines."""
    pattern = ""
    for line in _lines(told):
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line).replace(r"\.\.\.", "[^\n]*") + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    """Its lines, without what cannot be seen: blanks at their ends, and empty lines around."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


def _start_spark() -> None:
    """The session that `session(...)` in a page returns: one for all pages, small and quiet."""
    from tidegate.spark import session

    quick = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": False}
    small = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2, "spark.ui.enabled": False}
    session("documentation", config={**quick, **small, "spark.sql.adaptive.enabled": False})


def _stop_streams() -> None:
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        for query in spark.streams.active if spark else ():
            query.stop()


if __name__ == "__main__":
    main()
