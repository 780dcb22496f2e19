"""The documentation builds as a site, strictly: every link and anchor leads somewhere, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tidegate
import tidegate.ordering
import tidegate.spark
import tidegate.testing

from ..pages import ROOT


class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if "src" in given:
            self.loaded.add(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def internal(page: Page) -> Iterator[tuple[str, str]]:
    """The path and the anchor of each link inside the site."""
    for link in page.links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            yield unquote(parts.path), unquote(parts.fragment)


def test_every_link_and_anchor_is_there(built: dict[Path, Page]) -> None:
    assert len(built) > 15
    missing = [
        f"{path.name}: {target}#{anchor}"
        for path, page in built.items()
        for target, anchor in internal(page)
        for found in [built.get((path.parent / target).resolve() if target else path)]
        if found is None or (anchor and anchor not in found.anchors)
        if target != "."
    ]
    assert missing == []


def test_nothing_is_loaded_from_other_hosts(built: dict[Path, Page], site: Path) -> None:
    assert {loaded for page in built.values() for loaded in page.loaded if urlsplit(loaded).netloc} == set()
    assert "@import" not in "".join(path.read_text() for path in site.rglob("*.css"))


@pytest.mark.parametrize(
    "module", [tidegate, tidegate.spark, tidegate.ordering, tidegate.testing], ids=lambda module: module.__name__
)
def test_the_reference_has_every_public_name(built: dict[Path, Page], site: Path, module: object) -> None:
    name = module.__name__
    page = built[site / "reference" / f"{name.rpartition('.')[2]}.html"]
    assert [each for each in module.__all__ if f"{name}.{each}" not in page.anchors] == []


def test_the_reference_has_every_command(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    assert all(
        f"<code>tidegate {command}</code>" in text for command in ("demo", "state adopt", "log show", "bench limit")
    )
