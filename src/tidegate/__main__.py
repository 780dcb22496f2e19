"""`python -m tidegate` is the `tidegate` command."""

from tidegate.cli import app

app(prog_name="tidegate")
