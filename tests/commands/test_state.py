"""`tidegate state` shows what a state holds to the letter, whatever its strings hold."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.durability.version_info import Owner
from tidegate.durability.versions import VersionStore
from tidegate.foundation.storage import open_storage

NASTY = {
    "[bold]x[/]": "[bold]x[/]",
    "[/]": "[/]",
    "\x1b[31mred": r"\x1b[31mred",
    "two\nlines": r"two\nlines",
    "\u202eleft": r"\u202eleft",
    "\x9b5m": r"\x9b5m",
    ":smile: 🚀": ":smile: 🚀",
}
OBEYED = ("\x1b", "\x9b", "\u202e")


@tg.table(key="name")
class Guest:
    name: str
    says: str = ""


@tg.transaction
def say(who: Guest, words: str) -> None:
    who.says = words


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state whose folder, rows and owner are all hard to print."""
    state = tmp_path_factory.mktemp("states") / "[red]state[/] \x1b[31m"
    words = list(NASTY)
    with tg.Engine([say], directory=str(state)) as engine:
        engine.run(pa.table({"who": words, "words": words}))
    storage = open_storage(str(state))
    store = VersionStore(storage)
    newest = store.tip()
    assert newest is not None
    owner = Owner("[/]q\x1b[0m", "[bold]name[/bold] \u202e", "gone")
    store.commit(replace(newest, version=3, base=2, query=owner.query, batch=0, epoch=2, owner=owner), {})
    return state


def tidegate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", "state", *map(str, arguments)]
    environment = {"COLUMNS": "400", "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, env=os.environ | environment
    )


def shown(*arguments: str | Path, code: int = 0) -> str:
    done = tidegate(*arguments)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    for character in OBEYED:
        assert character not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rows_are_shown_to_the_letter(path: Path) -> None:
    lines = [" ".join(line.split()) for line in shown("show", path, "--version", "2").splitlines()]
    for text in NASTY.values():
        assert f"{text} {text}" in lines


def test_json_is_exact(path: Path) -> None:
    rows = json.loads(tidegate("show", path, "--version", "2", "--json").stdout)
    assert {row["name"]: row["says"] for row in rows} == {text: text for text in NASTY}


def test_differences_are_shown_to_the_letter(path: Path) -> None:
    found = shown("diff", path, "1", "2")
    for text in NASTY.values():
        assert f"says={text}" in found


def test_versions_and_the_owner_are_shown_to_the_letter(path: Path) -> None:
    found = shown("ls", path)
    assert r"[red]state[/] \x1b[31m" in found
    assert r"owned by query [/]q\x1b[0m ([bold]name[/bold] \u202e) in epoch 2; it is not running" in found
    assert r"[/]q\x1b[0m" in shown("served", path)


def test_a_sound_and_a_damaged_state_are_verified_to_the_letter(path: Path, tmp_path: Path) -> None:
    assert r"[red]state[/] \x1b[31m" in shown("verify", path).replace("\n", "")  # a title wraps
    damaged = tmp_path / "[/]\x1b[31m"
    shutil.copytree(path, damaged)
    (damaged / "000000000001.change").unlink()
    (damaged / "000000000002.change").write_bytes(b"nothing")
    found = shown("verify", damaged, code=1)
    assert r"[/]\x1b[31m/000000000002.change" in found and "✗" in found


def test_what_is_done_to_a_state_is_told_to_the_letter(path: Path, tmp_path: Path) -> None:
    copy, backup = tmp_path / "[/]copy\x1b[31m", tmp_path / "[b]backup\x1b[31m"
    assert r"[b]backup\x1b[31m: version 3" in shown("backup", path, backup)
    assert r"[/]copy\x1b[31m: version 3" in shown("restore", backup, copy)
    query = "[b]query\x1b[31m"
    assert r"query [b]query\x1b[31m goes on with batch 4" in shown("adopt", copy, "--query", query, "--batch", "4")
    assert r"[/]copy\x1b[31m: version 5 has the rows of version 1" in shown("rollback", copy, "--to", "1")
    assert r"no table '[/]\x1b[31m'" in shown("adopt", copy, "--rename", "[/]\x1b[31m=Visitor", code=1)
    (copy / "000000000002.change").write_bytes(b"nothing")
    assert r"[/]copy\x1b[31m/000000000002.change" in shown("scrub", copy, "--passes", "1", code=1)


def test_errors_and_release_are_shown_to_the_letter(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "[/]copy\x1b[31m"
    shutil.copytree(path, copy)
    assert r"[/]copy\x1b[31m" in shown("release", copy)
    assert r"[/]nothing\x1b[31m" in shown("ls", tmp_path / "[/]nothing\x1b[31m", code=1)


def test_a_table_whose_rows_expire_is_shown_with_its_time_to_live(tmp_path: Path) -> None:
    @tg.table(key="id", ttl=10, by="seen")
    class Lease:
        id: int
        seen: int = 0

    @tg.transaction(compiled=False, time="ts")
    def renew(lease: Lease, ts: int) -> None:
        lease.seen = ts

    with tg.Engine([renew], directory=tmp_path) as engine:
        engine.execute(renew, lease=1, ts=4)
    assert "Lease: 1 rows, each until 10 after seen" in " ".join(shown("show", tmp_path).split())
    tables = json.loads(tidegate("ls", tmp_path, "--json").stdout)["versions"][-1]["tables"]
    assert [(t["ttl"], t["by"]) for t in tables if t["name"] == "Lease"] == [(10, "seen")]
