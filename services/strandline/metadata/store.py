"""What the controller needs of a store, whichever it is.

Invariant: `commit` returns when everything it was given is durable, in order, each transaction whole; if it
raises, the controller stops, because it no longer knows what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from strandline.core.controller_state import ClusterState, Transaction


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
