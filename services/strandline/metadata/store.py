"""The interface of every store of the controller.

Invariant: `commit` returns when all its transactions are durable, in order and each as a whole; if it raises, the
controller stops, because it no longer knows what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from strandline.core.control.state import ClusterState, Transaction
from strandline.metadata.documents import WRONG_JSON, DamagedDocument


class StoreFailed(Exception):
    """The store cannot be opened, read or written; the message names the file and the reason."""


class StoreInUse(StoreFailed):
    """Another process holds the store; two controllers on one store would hand out the same epochs."""


class StoreAway(StoreFailed):
    """The store does not answer or does not finish a request; whether an append was stored is unknown."""


class StoreDeposed(StoreFailed):
    """The reign that wrote is over: the transactions are not stored, and never will be."""


class StoreFull(StoreFailed):
    """The store has no space; nothing was written."""


class StoreWentBack(StoreFailed):
    """The store is older than before: it was restored from a snapshot, and nothing may be decided from it (C40)."""


class StoreDamaged(StoreFailed):
    """The store holds data that no controller has written."""


class MetadataStore(Protocol):
    """A controller's durable memory. One process has it open at a time."""

    async def open(self) -> ClusterState | None:
        """Open the store and read its state; None if nothing was ever committed.

        Raises:
            StoreInUse: another process holds it.
            StoreFailed: it is damaged or of a later release.
        """
        ...

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable, in order, all of them or none.

        Raises:
            StoreFailed: it is not certain that they are durable.
        """
        ...

    async def replace(self, state: ClusterState) -> None:
        """Replace the whole content by ``state`` (recovery, TR18).

        Raises:
            StoreFailed: it could not be replaced; the old content is then untouched.
        """
        ...

    async def copy_to(self, path: Path) -> None:
        """Write a complete and consistent copy of the committed state to ``path``, and replace a file there.

        Raises:
            StoreFailed: it cannot be written; a file at ``path`` is then untouched.
        """
        ...

    async def reopened(self) -> ClusterState | None:
        """Close the store, wait until another process has replaced its content, and open it again.

        The old content is never opened again, because it is known to be too old (TR18). New content that cannot be
        opened is logged, and the wait goes on.
        """
        ...

    async def close(self) -> None:
        """Close the store; closing it again has no effect."""
        ...


# ---- marks
# The mark of a store that must not serve: a migration is writing it, or its content was moved to another store.
#
# Invariant: a store without a mark is the only one of its cluster that serves. A migration marks its target before it
# writes to it, and its source before it removes the target's mark (C44).


class Marked(StrEnum):
    """Why a store does not serve."""

    PENDING = "pending"
    MOVED = "moved"


class Mark(NamedTuple):
    """The mark in a store that does not serve."""

    marked: Marked
    migration_id: str
    """The id of the migration, the same in both of its stores."""
    elsewhere: str
    """The other store of the migration, in the form of `controller migrate`."""

    def sentence(self, where: str) -> str:
        """Why the store at ``where`` does not serve, and what to do."""
        if self.marked is Marked.PENDING:
            return (
                f"the store {where} is half migrated from {self.elsewhere}; run again: "
                f"strandline controller migrate --from {self.elsewhere} --to {where}"
            )
        return (
            f"the store {where} was moved to {self.elsewhere}; start the controllers with that store, or move it back: "
            f"strandline controller migrate --from {self.elsewhere} --to {where}"
        )


class StoreMarked(StoreFailed):
    """The store is half migrated, or was moved; the message names the other store."""


def mark_value(mark: Mark) -> str:
    """A mark in its stored form."""
    return json.dumps(mark._asdict())


def read_mark(value: str | bytes) -> Mark:
    """The mark that `mark_value` wrote.

    Raises:
        DamagedDocument: it is no mark.
    """
    try:
        content = json.loads(value)
        return Mark(Marked(content["marked"]), str(content["migration_id"]), str(content["elsewhere"]))
    except WRONG_JSON as error:
        raise DamagedDocument(f"the mark of a migration is damaged, or of a later release: {error!r}") from error
