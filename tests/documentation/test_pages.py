"""Every code block of the README and of docs/ runs as it is printed, and prints what stands below it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..pages import ROOT, blocks, pages, programs
from .page_runner import same

WITH_EXAMPLES = [page for page in pages() if any(block.runs for block in blocks(page)) and page != "README.md"]
"""The README's quickstart is run by `tests/spark/test_quickstart.py`, as a program of its own."""
NOT_RUN_MAX = 25
"""Examples that nothing checks grow stale: think twice before you raise this."""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    """Runs a page in a process that all pages share, and says what went wrong."""
    folder = tmp_path_factory.mktemp("reader")
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    runner = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("page_runner.py")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert runner.stdin is not None and runner.stdout is not None

    def run(page: str) -> list[str]:
        runner.stdin.write(f"{page}\n")
        runner.stdin.flush()
        answer = runner.stdout.readline()
        assert answer, f"{page}: the process that runs pages ended"
        return json.loads(answer)

    yield run
    runner.stdin.close()
    runner.wait(timeout=60)
    runner.stdout.close()


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_run(failures: Callable[[str], list[str]], page: str) -> None:
    found = failures(page)
    assert not found, "\n".join(found)


def test_what_is_not_run_is_little_says_why_and_can_be_parsed() -> None:
    kept_out = [block for page in pages() for block in blocks(page) if block.reason is not None]
    assert len(kept_out) <= NOT_RUN_MAX
    for block in kept_out:
        if block.language == "python":
            ast.parse(block.code, filename=block.place)


def test_every_block_says_what_it_is() -> None:
    known = {"", "fresh", "raises", "output"}
    wrong = [
        block.place
        for page in pages()
        for block in blocks(page)
        if not block.language or not (block.words in known or block.title or block.reason)
    ]
    assert wrong == []


def test_files_of_the_pages_have_different_names() -> None:
    """They are checked by type checkers in one folder."""
    names = Counter(name for page in pages() for name, _ in programs(page))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("told", "printed", "expected"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\n", False),
        ("id ... of\n", "id 7f of\n", True),
        ("first\n...\nlast", "first\n1\n2\nlast\n", True),
        ("first\n...\nlast", "first\n1\n2\n", False),
        ("(1.5)", "(1x5)", False),
    ],
)
def test_what_a_page_tells_is_compared_with_what_was_printed(told: str, printed: str, expected: bool) -> None:
    assert same(told, printed) is expected
