"""The options that every benchmark takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; one more runs first to warm up.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same events.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Small sizes, no bars, no file: does it work at all?")]
Output = Annotated[Path | None, typer.Option(help="Where JSON lines are added.", show_default="results/…")]
