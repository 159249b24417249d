"""The one log of a searched state: its records, each named by its epoch and its writer.

Whatever a state of the model does not hold (checkpoints, producers, metadata) is not kept here either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.core.log.effects import Append, AppendReplicated
from strandline.core.types import NodeId, Offset, ProducerBatch, TopicPartition, TransactionState
from strandline.runtime.ports import Cut, Opened
from strandline.sim.exhaust.local import Rec


class RecordLogs:
    """What the performers of effects on logs need of `runtime.ports.Logs`; ``records`` are those of ``node_id``."""

    def __init__(self) -> None:
        self.node_id = NodeId(0)
        self.records: list[Rec] = []

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """A new log: a state that has one brings it along."""
        return Opened(Offset(0), Offset(0), Offset(0), (), ())

    def append(self, effect: Append) -> bool:
        """Write a record as leader."""
        self.records.append(Rec(effect.leader_epoch, self.node_id))
        return False

    def append_replicated(self, effect: AppendReplicated) -> bool:
        """Write the leader's records."""
        records: Any = effect.payload
        self.records.extend(records)
        return False

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Cut the log."""
        del self.records[offset:]
        return Cut(offset, ())

    def restart(
        self, tp: TopicPartition, offset: Offset, producers: Sequence[ProducerBatch], transactions: TransactionState
    ) -> None:
        """Throw the records away; producers are not modelled."""
        self.records.clear()

    def _kept_nowhere(self, *_: object, **__: object) -> None:
        return None

    delete = advance_log_start = save_epochs = save_high_watermarks = save_reconciled_epochs = _kept_nowhere
    save_producers = save_metadata = note_durable = expired = _kept_nowhere
