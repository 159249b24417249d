"""What the controller needs of a store, whichever it is.

Invariant: `commit` returns when everything it was given is durable, in order, each transaction whole; if it
raises, the controller stops, because it no longer knows what is stored.
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
    """The store cannot be opened, read or written; one sentence says which file and why."""


class StoreInUse(StoreFailed):
    """Another process holds the store; two controllers on one store would hand out the same epochs."""


class StoreAway(StoreFailed):
    """The store does not answer, or no longer does what it was asked for; whether an append was done is unknown."""


class StoreDeposed(StoreFailed):
    """The reign that wrote is over: the transactions are not stored, and never will be."""


class StoreFull(StoreFailed):
    """The store has no space; nothing was written."""


class StoreWentBack(StoreFailed):
    """The store is older than it was: it was restored from a snapshot, and nothing may be decided from it (C40)."""


class StoreDamaged(StoreFailed):
    """The store holds what no controller wrote."""


class MetadataStore(Protocol):
    """A controller's durable memory. One process has it open at a time."""

    async def open(self) -> ClusterState | None:
        """Open the store and read it; None when nothing was ever committed.

        Raises:
            StoreInUse: another process holds it.
            StoreFailed: when it is damaged or of a later release.
        """
        ...

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable, in order and together.

        Raises:
            StoreFailed: when that is not certain.
        """
        ...

    async def replace(self, state: ClusterState) -> None:
        """Make ``state`` all that is stored (recovery, TR18).

        Raises:
            StoreFailed: when that is not certain; the old content is then untouched.
        """
        ...

    async def copy_to(self, path: Path) -> None:
        """Write a whole and consistent copy of what is committed, in place of ``path``.

        Raises:
            StoreFailed: when it cannot be written; what was at ``path`` is then untouched.
        """
        ...

    async def reopened(self) -> ClusterState | None:
        """Close the store, wait until another process has replaced its content, and open it again.

        What was left is not opened again: it is known to be too old (TR18). Content that cannot be opened is logged
        and waited out, as if it were not there yet.
        """
        ...

    async def close(self) -> None:
        """Close the store; a closed one stays closed."""
        ...


# ---- marks
# The mark of a store that must not serve: one that is being written by a migration, or one whose content has left.
#
# Invariant: a store without a mark is the only one of its cluster that serves. A migration marks its target before it
# writes there, and its source before it takes the mark from the target (C44).


class Marked(StrEnum):
    """Why a store does not serve."""

    PENDING = "pending"
    MOVED = "moved"


class Mark(NamedTuple):
    """What is written in a store that does not serve."""

    marked: Marked
    migration_id: str
    """The same in both stores of one migration."""
    elsewhere: str
    """The other store of it, in the words of `controller migrate`."""

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
    """The store is half migrated, or was moved; the sentence names the other one."""


def mark_value(mark: Mark) -> str:
    """A mark as a store keeps it."""
    return json.dumps(mark._asdict())


def read_mark(value: str | bytes) -> Mark:
    """The mark that `mark_value` wrote.

    Raises:
        DamagedDocument: it is none.
    """
    try:
        content = json.loads(value)
        return Mark(Marked(content["marked"]), str(content["migration_id"]), str(content["elsewhere"]))
    except WRONG_JSON as error:
        raise DamagedDocument(f"the mark of a migration is damaged, or of a later release: {error!r}") from error
