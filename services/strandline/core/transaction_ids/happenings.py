"""What becomes visible of transactional ids while they change, and why they do.

Invariant: an observer is shown what was decided and written, never what was only asked for; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from strandline.core.coordinator.machine import Context
from strandline.core.errors import Refusal
from strandline.core.transaction_ids.records import TransactionalId
from strandline.core.transaction_messages import TxnMarker


class Cause(StrEnum):
    """Why a transactional id is another than before."""

    INIT = "init"
    """A producer was given its identity."""
    BEGUN = "begun"
    """The first partition was added to a transaction."""
    ADDED = "added"
    """A further partition was added."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Its producer said so."""
    TIMEOUT = "timeout"
    FENCED = "fenced"
    """Another process, or its own after a restart, asked for the identity while a transaction was open."""
    COMPLETED = "completed"
    """The last partition has its marker."""
    EXPIRED = "expired"
    """Nothing was heard of it for so long that it is forgotten."""


class TransactionChange(NamedTuple):
    """A transactional id changed: it is new if there is no ``before``, and forgotten if there is no ``after``."""

    transactional_id: str
    before: TransactionalId | None
    after: TransactionalId | None
    cause: Cause


class TransactionObserver(Protocol):
    """Is shown changes after they were applied."""

    def changed(self, change: TransactionChange, now_ms: int) -> None:
        """A transactional id changed; not shown of a log that is loaded."""
        ...

    def marker_refused(self, marker: TxnMarker, refusal: Refusal, now_ms: int) -> None:
        """A partition says that this transaction is over, while its coordinator waits for it (X11): an alarm."""
        ...

    def ticked(self, ids: Mapping[str, TransactionalId], context: Context) -> None:
        """Time passed; ``ids`` are all that are known."""
        ...
