"""A folder is private if nobody else can change what it holds, nor the way to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.foundation import private_folder

SOMEBODY = 23456
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "above" / "folder"
    private_folder.make(made)
    return made


def weak_place(folder: Path) -> Path | None:
    found = private_folder.weakness(folder)
    return None if found is None else found.place


def test_a_folder_that_was_made_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_folder.make(tmp_path / "a" / "b")
        private_folder.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o7777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]
    assert private_folder.weakness(tmp_path / "a" / "b") is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o720], ids=oct)
def test_a_folder_that_others_can_write_to_is_not_private_even_if_it_is_sticky(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert weak_place(folder) == folder


def test_reading_is_free_for_all(folder: Path) -> None:
    folder.chmod(0o755)
    assert weak_place(folder) is None


def test_a_folder_above_may_be_writable_only_if_it_is_sticky(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert weak_place(folder) == folder.parent
    folder.parent.chmod(0o1777)
    assert weak_place(folder) is None


@needs_root
def test_a_folder_of_another_user_is_not_private_nor_is_what_lies_below(folder: Path) -> None:
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert weak_place(folder) == folder
    os.chown(folder, 0, 0)
    os.chown(folder.parent, SOMEBODY, 0)
    folder.parent.chmod(0o1777)
    assert weak_place(folder) == folder.parent, "the owner of a sticky folder can move all that lies in it"


def test_links_are_followed_to_where_they_lead(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.parent)
    (tmp_path / "relative").symlink_to("above/../link/folder")
    assert weak_place(tmp_path / "link" / "folder") is None
    assert weak_place(tmp_path / "relative") is None
    folder.chmod(0o777)
    assert weak_place(tmp_path / "link" / "folder") == folder
    assert weak_place(tmp_path / "relative") == folder


def test_the_folder_above_is_the_one_above_where_a_link_leads(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    folder.parent.chmod(0o1777)
    assert weak_place(tmp_path / "link" / "..") == folder.parent


@needs_root
def test_a_link_of_another_user_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    os.chown(tmp_path / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    assert weak_place(tmp_path / "link") == tmp_path / "link"
    assert "is a symbolic link" in str(private_folder.weakness(tmp_path / "link"))


def test_a_circle_of_links_and_a_file_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "file").touch()
    for wrong in ("a", "file", "missing"):
        with pytest.raises(OSError, match=wrong):
            private_folder.weakness(tmp_path / wrong)


def test_a_relative_path_is_seen_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert weak_place(Path("folder")) is None
    folder.chmod(0o777)
    assert weak_place(Path("folder")) == folder


def test_a_weakness_says_where_whose_and_what_is_required(folder: Path) -> None:
    folder.parent.chmod(0o777)
    said = str(private_folder.weakness(folder))
    assert f"{folder.parent} (on the way to {folder})" in said
    assert f"uid {os.geteuid()}" in said and "0777" in said and "Required" in said and "sticky" in said


class TestRead:
    def test_a_file_of_ours_is_read(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"code")
        assert private_folder.read(folder, "file") == b"code"

    def test_what_is_not_there_is_none(self, folder: Path) -> None:
        assert private_folder.read(folder, "file") is None
        assert private_folder.read(folder / "missing", "file") is None

    def test_nothing_is_read_from_a_folder_that_is_not_private(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"code")
        folder.chmod(0o770)
        assert private_folder.read(folder, "file") is None

    @pytest.mark.parametrize("mode", [0o620, 0o602], ids=oct)
    def test_a_file_that_others_can_write_is_not_read(self, folder: Path, mode: int) -> None:
        (folder / "file").write_bytes(b"code")
        (folder / "file").chmod(mode)
        assert private_folder.read(folder, "file") is None

    @needs_root
    def test_a_file_of_another_user_is_not_read(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"code")
        os.chown(folder / "file", SOMEBODY, SOMEBODY)
        assert private_folder.read(folder, "file") is None

    def test_a_link_and_a_pipe_are_not_read(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").write_bytes(b"code")
        (folder / "link").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(folder / "pipe", 0o600)
        assert private_folder.read(folder, "link") is None
        assert private_folder.read(folder, "pipe") is None, "and waits for nobody"
