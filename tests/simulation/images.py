"""What a simulated disk keeps of a file: the bytes that programs see, those that a crash starts from, and the changes
between the two.

    seen       what was written, synced or not
    durable    what was synced
    pending    the changes that no sync covers yet: a crash decides about each of them (disk.py)
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Change:
    """One change of a file's content that no sync covers: a write, or a new size (`data` is None)."""

    offset: int
    data: bytes | None
    grows_only: bool = False  # an allocation, which never makes a file shorter


@dataclass(slots=True)
class Node:
    """A file or a folder; `seen` is what programs read, `durable` what a crash starts from."""

    number: int
    is_folder: bool
    modified: float
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class Open:
    node: int
    writable: bool
    lock: str = ""


def apply(image: bytearray, change: Change) -> None:
    if change.data is not None:
        if change.data:
            image.extend(bytes(max(0, change.offset - len(image))))
            image[change.offset : change.offset + len(change.data)] = change.data
    elif change.offset > len(image):
        image.extend(bytes(change.offset - len(image)))
    elif not change.grows_only:
        del image[change.offset :]
