"""The pages of the documentation, and the code in them, which tests run and check.

The blocks of a page are one session: they run in order, in one process and one folder that was empty. The first line
of a block says what the tests do with it:

    ```python                          run it; the names of earlier blocks are there
    ```python fresh                    run it as a new program, in the same folder
    ```python title="shop.py"          save it as this file, for others to import or run
    ```python raises                   run it; it must raise, and what it prints is the error
    ```python no-run: needs a cluster  only parse it
    ```sh                              run it by bash; `raises` and `no-run: ...` as above
    ```text output                     what the block before printed; `...` stands for anything

All other languages are read by people only.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)```(\w*) *([^\n]*)\n(.*?)^\1``` *$", re.MULTILINE | re.DOTALL)
RUN_BY = ("python", "sh")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, where it stands, and what its first line says."""

    page: str
    line: int
    language: str
    words: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.words)
        return found[1] if found else None

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        found = re.fullmatch(r"no-run: (.+)", self.words)
        return found[1] if found else None

    @property
    def is_output(self) -> bool:
        return self.language == "text" and self.words == "output"

    @property
    def runs(self) -> bool:
        return self.language in RUN_BY and self.reason is None


def pages() -> list[str]:
    """All pages that hold examples, as paths in the repository."""
    return ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2], match[3].strip(), textwrap.dedent(match[4]))
        for match in FENCE.finditer(text)
    ]


def programs(page: str) -> Iterator[tuple[str, str]]:
    """The Python of a page as files, with their names: those with a title, and what runs as one program."""
    parts: list[list[str]] = [[]]
    for block in blocks(page):
        if block.language != "python" or not block.runs or block.words == "raises":
            continue
        if block.title is not None:
            yield block.title, block.code
        elif block.words == "fresh":
            parts.append([block.code])
        else:
            parts[-1].append(block.code)
    stem = re.sub(r"\W+", "_", page.removesuffix(".md").removeprefix("docs/")).lower()
    for number, part in enumerate(parts):
        if part:
            yield f"{stem}_{number}.py", "\n".join(part)
