"""Which partitions of a decided transaction still lack their marker, and when each is asked again (X8).

Invariant: a partition is done when it answered without a refusal, or its topic is deleted, and in no other way; at
most one copy of a marker of it is under way. Nothing of this survives a failover: then all are asked again.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.transaction_ids.records import TransactionalId
from strandline.core.transaction_messages import ProducerIdentity, TxnMarker
from strandline.core.types import TopicPartition


class Markers:
    """The markers of one decided transaction."""

    def __init__(self, transactional_id: str, value: TransactionalId, now_ms: int) -> None:
        self.transactional_id = transactional_id
        self.identity: ProducerIdentity = value.identity
        self._committed = value.commits
        # When each partition without a marker is asked; None while a copy is under way.
        self._due_ms: dict[TopicPartition, int | None] = dict.fromkeys(value.partitions, now_ms)

    @property
    def missing(self) -> tuple[TopicPartition, ...]:
        """The partitions that have no marker yet, sorted."""
        return tuple(self._due_ms)

    def due(self, now_ms: int) -> tuple[TxnMarker, ...]:
        """Those that are to be sent now; they count as under way from here on."""
        found = [tp for tp, due_ms in self._due_ms.items() if due_ms is not None and due_ms <= now_ms]
        self._due_ms.update(dict.fromkeys(found))
        return tuple(TxnMarker(self.transactional_id, self.identity, self._committed, tp) for tp in found)

    def written(self, tp: TopicPartition) -> None:
        """A partition has its marker, and it is committed there."""
        self._due_ms.pop(tp, None)

    def refused(self, tp: TopicPartition, again_ms: int) -> None:
        """A partition has not, and is asked again at ``again_ms``."""
        if tp in self._due_ms:
            self._due_ms[tp] = again_ms

    def deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """These are no more, so nobody will ever read them."""
        for tp in partitions:
            self._due_ms.pop(tp, None)
