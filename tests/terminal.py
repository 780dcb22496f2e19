"""A wide terminal without colours that shows every character, as an environment for the commands."""

from __future__ import annotations

TERMINAL = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
