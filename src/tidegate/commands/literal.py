r"""Prints data as it is: no markup, and no character that does something to a terminal.

Names, keys, fields and reasons come from users and their events. Rich would take `[bold]` in them as a
style and `[/]` as a mistake, and a terminal would obey their escape sequences. So whatever was not written
in this package goes through `literal` on its way to a table or a line:

    data                    shown
    [bold]x[/] :smile:      [bold]x[/] :smile:
    ESC [31mred             \x1b[31mred
    a line feed, a bell     \n  \x07
    right-to-left override  \u202e
    ü, 漢字, 👩‍🚀             the same

Characters that move the cursor, begin a sequence, reorder the text around them or cannot be seen are
shown as Python writes them. The joiners stay: emoji and Persian are written with them. A backslash is a
backslash, so text that itself holds `\x1b` looks the same as the character; JSON (`--json`) tells them apart.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

# Controls (C0, C1), formats (bidirectional ones among them), halves of pairs, separators of lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"


def visible(value: object, keep: str = "") -> str:
    """A value as text in which each character can be seen; those of `keep` stay as they are."""
    stay = _JOINERS + keep
    return "".join(
        character if character in stay or unicodedata.category(character) not in _HIDDEN else _escaped(character)
        for character in f"{value}"
    )


def literal(value: object, style: str = "", keep: str = "") -> Text:
    """The same as something that rich prints without looking for markup in it."""
    return Text(visible(value, keep), style)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
