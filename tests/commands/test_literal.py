"""Data is shown as it is: nothing in it is taken as a style, and nothing in it reaches the terminal as a command."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from tidegate.commands.literal import literal, visible


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("[bold]x[/] :smile: [/]", "[bold]x[/] :smile: [/]"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x7f\x9b31m\x85", r"\x7f\x9b31m\x85"),
        ("\u202eabc\u2066\u2069\u200f\u061c", r"\u202eabc\u2066\u2069\u200f\u061c"),
        ("\u2028\u2029\ufeff\u200b\u00ad", r"\u2028\u2029\ufeff\u200b\xad"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("ü 漢字 مرحبا 👩‍🚀 می‌خواهم", "ü 漢字 مرحبا 👩‍🚀 می‌خواهم"),
        (r"C:\new", r"C:\new"),
        (12, "12"),
        (None, "None"),
    ],
)
def test_each_character_is_shown_and_none_is_obeyed(data: object, shown: str) -> None:
    assert visible(data) == shown
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    table = Table.grid()
    table.add_row(literal(data))
    console.print(table)
    assert console.file.getvalue().strip() == shown  # type: ignore[attr-defined]


def test_what_is_kept_stays() -> None:
    assert visible("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"
    assert literal("a\nb", keep="\n").plain == "a\nb"
