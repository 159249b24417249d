"""The mark of a store that must not serve: one that is being written by a migration, or one whose content has left.

Invariant: a store without a mark is the only one of its cluster that serves. A migration marks its target before it
writes there, and its source before it takes the mark from the target (C44).
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from strandline.metadata.documents import WRONG_JSON, DamagedDocument
from strandline.metadata.store import StoreFailed


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
