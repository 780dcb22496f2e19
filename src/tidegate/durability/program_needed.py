"""What is said when a version can be rebuilt only by running events again, and the right program is not at hand.

    version     3 snapshot   4 rows   5 events of A   6 rows   7 events of A
    without A   can          can      cannot          cannot   cannot

One place writes this message, for all who read a state: `transact` with another program, `read_state`, `tidegate state
show`, and everything else that asks for rows. It says which versions stand in the way, which ones can be read, and what
to do.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.durability.listing import runs, spans
from tidegate.foundation.errors import RecoveryImpossible


def program_needed(
    path: str, version: int, holding: Iterable[int], readable: Iterable[int], has_program: bool
) -> RecoveryImpossible:
    """The refusal to rebuild a version.

    Args:
        path: where the state is.
        version: what was asked for.
        holding: the versions that hold events of another program than the one at hand.
        readable: the versions that need no program.
        has_program: whether there is a program at hand at all.
    """
    versions = list(holding)
    many = f"versions {runs(spans(versions))} hold" if len(versions) > 1 else f"version {runs(spans(versions))} holds"
    whose = "another program than this one ran them" if has_program else "no program is at hand to run them"
    which = list(readable)
    ways = ["to read, give that program: read_state(..., transactions=[...])"]
    if not which or which[-1] < versions[-1]:
        ways.insert(
            0,
            'run one batch with the program that wrote them and transact(..., log="changes"), which keeps the whole '
            "state, so that any program can go on from it and any tool can read it",
        )
        if which:
            ways.append(f"go back to a version that can be read: tidegate state rollback {path} --to {which[-1]}")
    else:
        ways.append("ask for a version that can be read without it")
    return RecoveryImpossible(
        f"{path}: version {version} cannot be rebuilt here: {many} the events of a batch, not its rows "
        f'(transact(..., log="commands")), and {whose}; only the program that ran them gives the same rows. '
        f"Versions that can be read without it: {runs(spans(which)) or 'none'}. What to do, one of: "
        + "; ".join(f"({number}) {way}" for number, way in enumerate(ways, 1))
        + "."
    )
