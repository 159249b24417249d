"""The records of a transaction coordinator's log: one key for each transactional id, with its state (X1).

Invariants: an epoch is at most 32,767, and that one is only used for fencing and markers (X5); a transaction that is
being ended keeps its partitions until all have answered; a request from `TransactionalId.previous` can only get the
identity that its sender was, or should have been, answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.types import TopicPartition


class TxnState(StrEnum):
    """The state of a transactional id's transaction, by Kafka's names."""

    EMPTY = "Empty"
    """The producer has an identity and has sent nothing with it."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """It is decided, and markers are on their way."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has its marker."""
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
COMPLETED = frozenset({TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
COMMITS = frozenset({TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT})
"""States of a transaction that is, or is being, committed."""


@dataclass(frozen=True, slots=True)
class TransactionalIdKey:
    """A transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalId:
    """What a coordinator knows of one transactional id."""

    identity: ProducerIdentity
    """While a transaction is being ended, the epoch after its own: markers and the next transaction have it."""
    previous: ProducerIdentity | None = None
    """The identity in the last request, so that a copy of it gets the same answer; None if no request had one."""
    next_producer_id: int | None = None
    """The producer id that follows, at epoch 0, once the transaction has ended; None if it stays the same (X5)."""
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of the transaction that is open or being ended, sorted."""
    start_ms: int | None = None
    """When that one began, in ms since the Unix epoch."""
    update_ms: int
    """When this was written, in ms since the Unix epoch."""

    @property
    def next_identity(self) -> ProducerIdentity:
        """The identity of the next transaction, once this one is ended."""
        if self.next_producer_id is None:
            return self.identity
        return ProducerIdentity(self.next_producer_id, 0)

    @property
    def commits(self) -> bool:
        """Whether the transaction that is being ended, or ended last, is committed."""
        return self.state in COMMITS


# ---- settings
# The bounds of transactions, with Kafka's defaults where Kafka has the setting.


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """All times in ms."""

    timeout_ms: int = 60_000
    """For producers that do not choose one: a transaction that is open for longer is aborted."""
    max_timeout_ms: int = 900_000
    """The longest that a producer may choose (`transaction.max.timeout.ms`)."""
    timeout_check_ms: int = 1_000
    """How often open transactions are looked at."""
    marker_retry_ms: int = 200
    """How long after a marker was refused it is sent again."""
    id_expiration_ms: int = 7 * 86_400_000
    """How long a transactional id without a transaction is remembered (`transactional.id.expiration.ms`)."""
    id_expiration_check_ms: int = 600_000
    expiration_step: int = 2_000
    """How many ids one tick looks at, so that a check of many does not hold the event loop."""
