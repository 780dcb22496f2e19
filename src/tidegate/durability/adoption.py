"""Manual corrections for a state that rightly refuses a query, when a person knows better.

    refused because                                    the person says            what is written
    the state has not applied batches 0 to 6           "go on with batch 7"       version: query applied up to 6
    the outcomes of batch 6 cannot be given again      "go on with batch 7"       the same
    version 9 was committed and is not there           "it is lost"               the head names version 8
    table Konto looks like Account, which is gone      "it is another table"      version: there is a table Konto

A correction is a version of its own in the chain (administration.py), so it can be seen later. Nothing is deleted.

Invariant: no correction lets a batch be applied twice.

Not here: tables that were renamed (reshaping.py); a history with a hole in its middle, recovery.py makes a new state
of what is sound in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.durability import head, ownership
from tidegate.durability.administration import HIDDEN, Administration
from tidegate.durability.head import Head
from tidegate.durability.ownership import EMBEDDED
from tidegate.durability.served import Line
from tidegate.durability.version_info import VersionInfo
from tidegate.durability.version_reader import VersionReader
from tidegate.durability.versioned import INITIAL
from tidegate.durability.versions import VersionStore
from tidegate.foundation.errors import InputError, RecoveryImpossible
from tidegate.foundation.storage import Storage
from tidegate.operations.layout import TableLayout


@dataclass(frozen=True, slots=True)
class Adopted:
    """A query that goes on with a batch; `version` says so (None: it did already, nothing was written).

    `before` is what the state had applied for the query until then, by applicant; `is_new` that there was no state.
    """

    query: str
    batch: int
    version: VersionInfo | None
    before: dict[str, Line]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """Versions that were accepted as lost: which one was noted, and which one is the newest now (None: none is left).

    `noted` is None when nothing was lost.
    """

    noted: Head | None
    newest: VersionInfo | None


def adopt_query(storage: Storage, query: str, batch: int) -> Adopted:
    """Lets a query go on here with `batch`: all below counts as applied, with unknown outcomes."""
    _require_query(storage, query)
    if batch < 1:
        raise InputError(
            f"{storage.path}: required a batch of at least 1, got {batch}. Every query begins with batch 0, for which "
            "there is nothing to do: start it. What is told here is where a query goes on that ran before."
        )
    administration = Administration(VersionStore(storage))
    lines = administration.store.served.lines()
    before = {name: line for name, line in lines.items() if name.split("/", 1)[0] == query}
    last = max((line.batch for line in before.values()), default=-1)
    if batch <= last:
        raise InputError(
            f"{storage.path}: query {query} cannot go on with batch {batch}: this state has applied its batches up to "
            f"{last}, and they would be applied twice. Required a batch of at least {last + 1}. If the checkpoint is "
            "older than the state, start the query with a new checkpoint; its events must then not come again."
        )
    calls = [name for name in before if "/" in name] or [f"{query}/0"]
    adopted = dict.fromkeys([query, *calls], batch - 1)
    is_new = administration.newest is None
    if all(before.get(name) == Line(batch - 1, 0) for name in adopted):
        return Adopted(query, batch, None, before, is_new)
    return Adopted(query, batch, administration.commit({}, adopted=adopted), before, is_new)


def accept_loss(storage: Storage) -> Loss:
    """Goes on from the newest version that is there, though a newer one was committed once."""
    noted = head.read(storage)
    try:
        newest = VersionReader(storage).newest()
    except RecoveryImpossible as error:
        raise RecoveryImpossible(
            f"{error} To go on with the newest version that can be rebuilt, make a new state of it: tidegate recover "
            f"{storage.path} --into NEW"
        ) from error
    ownership.admit(storage, newest, None)
    if noted is None or (newest is not None and noted.state == newest.state and noted.version <= newest.version):
        return Loss(None, newest)
    if newest is None:
        storage.hint(head.NAME, b"{}")  # a note that says nothing
    else:
        head.note(storage, newest)
    return Loss(noted, newest)


def add_table(storage: Storage, new: str, like: str) -> VersionInfo:
    """Makes an empty table `new` with the columns of `like`: it is another one, though it looks the same."""
    administration, layouts = _opened(storage, like, new)
    if new in layouts:
        raise InputError(f"{storage.path}: there is a table {new} already: nothing to do. Start the query.")
    return administration.commit({}, layouts=(*layouts.values(), replace(layouts[like], name=new)))


def _opened(storage: Storage, old: str, new: str) -> tuple[Administration, dict[str, TableLayout]]:
    if not new.isidentifier() or new.startswith(HIDDEN) or new == old:
        raise InputError(f"{storage.path}: required the name of another table, as the program declares it, got {new!r}")
    administration = Administration(VersionStore(storage))
    layouts = {layout.name: layout for layout in administration.newest.layouts} if administration.newest else {}
    if old not in layouts or old.startswith(HIDDEN):
        names = ", ".join(sorted(name for name in layouts if not name.startswith(HIDDEN)))
        raise InputError(f"{storage.path}: there is no table {old!r}. This state has: {names or 'no tables'}")
    return administration, layouts


def _require_query(storage: Storage, query: str) -> None:
    if not query or "/" in query or query in (EMBEDDED, INITIAL) or query.startswith("batch-"):
        raise InputError(
            f"{storage.path}: required the id of a streaming query, got {query!r}. It stands in the message that "
            "refused the query, and in the file `metadata` of its checkpoint."
        )
