"""Folders whose files may be run as code, because no other user can have put them there.

A user who can write the files of compiled code decides what this process runs. A folder may be shared, such as the
system's temporary folder, so it is checked before it is used:

    the temporary folder         root, mode 1777        sticky: only the owner of an entry can move it away
      tidegate-cache-1000        uid 1000, mode 0700    ours, and no other user can write to it
        run-7.py311.nbi          uid 1000, mode 0600    the same for each file, checked after it was opened

Invariant: a folder is private if it and all folders above it belong to this user or to root, and are writable neither
for a group nor for all; folders above may be writable if they are sticky. Symbolic links are followed one by one, and
each must belong to this user or to root too. So no other user can replace anything between the check and the use.

An access control list that lets others write shows in the group's bits, and is refused. Root and other processes of
this user are trusted.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

_LINKS_MAX = 40  # as many as Linux follows
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Weakness:
    """The reason why another user could change what a folder holds."""

    folder: Path
    place: Path
    owner: int
    mode: int

    def __str__(self) -> str:
        on_the_way = "" if self.place == self.folder else f" (on the way to {self.folder})"
        got = "is a symbolic link" if stat.S_ISLNK(self.mode) else f"has mode {stat.S_IMODE(self.mode):04o}"
        return (
            f"{self.place}{on_the_way} belongs to {_user(self.owner)} and {got}. Required, so that nobody else can "
            f"plant code there: that it and all folders above it belong to {_user(os.geteuid())} or to root, and that "
            "neither a group nor all can write to them (mode 0700; folders above may be sticky instead)"
        )


def make(folder: Path, mode: int = 0o700) -> None:
    """Create a folder and the missing ones above it; existing folders are not changed."""
    if not folder.parent.exists():
        make(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)


def weakness(folder: Path) -> Weakness | None:
    """Why a folder is not private; None if it is. Raises OSError if it does not exist or is not a folder."""
    place = Path("/")
    left = [*reversed(os.path.join(os.getcwd(), folder).split("/"))]  # not abspath: it gets `..` after a link wrong
    links = 0
    while left:
        part = left.pop()
        if part == "..":
            place = place.parent
            left = left or ["."]  # so that the folder in which the path ends is checked as the last one
            continue
        found = place if part in ("", ".") else place / part
        status = os.lstat(found)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _LINKS_MAX:
                raise OSError(f"{folder}: more than {_LINKS_MAX} symbolic links on the way")
            if not _is_trusted(status.st_uid):
                return Weakness(folder, found, status.st_uid, status.st_mode)
            target = os.readlink(found)
            place = Path("/") if target.startswith("/") else place
            left += reversed(target.split("/"))
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"{found} is not a folder")
        sticky_parent = bool(left) and bool(status.st_mode & stat.S_ISVTX)
        if not _is_trusted(status.st_uid) or (status.st_mode & _WRITABLE_BY_OTHERS and not sticky_parent):
            return Weakness(folder, found, status.st_uid, status.st_mode)
        place = found
    return None


def read(folder: Path, name: str) -> bytes | None:
    """The content of a file of a private folder; None if it is missing, or if another user could have written it."""
    try:
        if weakness(folder) is not None:
            return None
        # Non-blocking, because the file may be a pipe without a writer.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_trusted(status.st_uid) or status.st_mode & _WRITABLE_BY_OTHERS:
            return None
        return file.read()


def _is_trusted(owner: int) -> bool:
    return owner in (0, os.geteuid())


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"
