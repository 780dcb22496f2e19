"""What MkDocs does to the pages of this folder before it renders them (`make docs`).

- README.md, ARCHITECTURE.md and CHANGELOG.md stay where people look for them, and are pages of the site, too.
- The reference of the command line is what the commands say of themselves.
- Public names that a page of the reference does not place under one of its headings stand at its end.
- A code block's first line may have words for the tests, such as `no-run: needs a cluster`. Readers do not need them.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OF_THE_ROOT = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
COMMANDS = "reference/commands.md"
MODULES = {
    f"reference/{name.rpartition('.')[2]}.md": name for name in ("tidegate", "tidegate.spark", "tidegate.testing")
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in this folder."""
    for name, page in OF_THE_ROOT.items():
        text = re.sub(r"(?<=\]\()docs/", "", (ROOT / name).read_text())
        files.append(File.generated(config, page, content=_linked(text, prefix="")))
    files.append(File.generated(config, COMMANDS, content=_commands()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Take the tests' words out of the code blocks, and let links to the files of the root lead to their pages."""
    depth = page.file.src_uri.count("/")
    plain = re.sub(r'^( *```\w+)(?: (?!title=|hl_lines=)[^"\n]*)?( title="[^"\n]*")?$', r"\1\2", markdown, flags=re.M)
    return _complete(_linked(plain, prefix="../" * (depth + 1), target="../" * depth), page.file.src_uri)


def _linked(markdown: str, prefix: str, target: str = "") -> str:
    for name, page in OF_THE_ROOT.items():
        markdown = markdown.replace(f"]({prefix}{name}", f"]({target}{page}")
    return markdown


def _complete(markdown: str, page: str) -> str:
    """A page of the reference with all public names of its module."""
    if page not in MODULES:
        return markdown
    placed = set(re.findall(r"^::: ([\w.]+)$", markdown, flags=re.M))
    public = [f"{MODULES[page]}.{name}" for name in importlib.import_module(MODULES[page]).__all__]
    left = [name for name in public if name not in placed]
    return markdown + "".join(["\n## More\n"] * bool(left) + [f"\n::: {name}\n" for name in left])


def _commands() -> str:
    import typer
    from typer.cli import get_docs_for_click

    from tidegate.cli import app

    command = typer.main.get_command(app)
    told = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="tidegate"), name="tidegate")
    return told.replace("# `tidegate`", "# The command line", 1)
