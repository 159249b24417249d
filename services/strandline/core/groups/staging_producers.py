"""What one coordinator partition knows of transactional producers: what they have staged, and from where on they may.

Invariant: changed by `apply` alone, and the same for every order of rows that keeps the order of each key's own (G9).
"""

from __future__ import annotations

from strandline.core.coordinator.records import Record
from strandline.core.groups.records import (
    ProducerFenceKey,
    ProducerFenceValue,
    StagedOffsetKey,
    StagedOffsetValue,
)


class StagingProducers:
    """The producers of one shard, over all its groups: a marker names a producer and no group."""

    def __init__(self) -> None:
        self.fences: dict[int, ProducerFenceValue] = {}
        """By producer id."""
        self.staged: dict[int, dict[StagedOffsetKey, StagedOffsetValue]] = {}
        """By producer id; there is no entry without a row."""

    def known_epoch(self, producer_id: int) -> int:
        """The newest epoch that is remembered of a producer, -1 if none is."""
        fence = self.fences.get(producer_id)
        epochs = [value.producer_epoch for value in self.staged.get(producer_id, {}).values()]
        return max([-1 if fence is None else fence.producer_epoch, *epochs])

    def has_staged(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the transaction of this epoch has staged offsets here, so that this partition takes part in it."""
        rows = self.staged.get(producer_id, {}).values()
        return any(value.producer_epoch == producer_epoch for value in rows)

    def apply(self, record: Record) -> None:
        """Take one row into the state; rows of other kinds are none of these."""
        key, value = record
        if isinstance(key, ProducerFenceKey):
            assert value is None or isinstance(value, ProducerFenceValue)
            if value is None:
                self.fences.pop(key.producer_id, None)
            else:
                self.fences[key.producer_id] = value
        elif isinstance(key, StagedOffsetKey):
            assert value is None or isinstance(value, StagedOffsetValue)
            self._stage(key, value)

    def _stage(self, key: StagedOffsetKey, value: StagedOffsetValue | None) -> None:
        if value is not None:
            self.staged.setdefault(key.producer_id, {})[key] = value
            return
        rows = self.staged.get(key.producer_id, {})
        rows.pop(key, None)
        if not rows:
            self.staged.pop(key.producer_id, None)
