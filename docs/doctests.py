"""Shows the doctests in docstrings as code: Markdown would take their `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


class Doctests(Extension):
    """Put each run of doctest lines into a code block."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for every object that was read."""
        if obj.docstring is not None:
            shown = re.sub(r"  # doctest:.*", "", obj.docstring.value)
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", shown)
