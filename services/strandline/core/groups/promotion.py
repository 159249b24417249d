"""What a marker makes of the offsets that its transaction has staged: committed, or dropped (X16).

Invariant: a marker ends what was staged in epochs below its own, and nothing else; afterwards its epoch is a fence.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.coordinator.records import Record
from strandline.core.group_messages import TransactionMarked
from strandline.core.groups.changes import Changes
from strandline.core.groups.group import Group
from strandline.core.groups.records import (
    OffsetKey,
    OffsetValue,
    ProducerFenceKey,
    ProducerFenceValue,
    StagedOffsetKey,
    StagedOffsetValue,
)
from strandline.core.groups.staging_producers import StagingProducers
from strandline.core.transactions import MarkerVerdict, judge_marker, marker_refusal


def end_transaction(
    producers: StagingProducers, group_of: Callable[[str], Group], request: TransactionMarked, context: Context
) -> Decision:
    """Decide a marker. The fence is the last row, so that a repeated marker finishes what a failover cut in two."""
    sent, marker = request.producer, request.marker
    fence, staged = producers.fences.get(sent.producer_id), producers.staged.get(sent.producer_id, {})
    verdict = judge_marker(
        sent.producer_epoch,
        marker,
        known_epoch=producers.known_epoch(sent.producer_id),
        marked=None if fence is None else (fence.producer_epoch, fence.coordinator_epoch),
        is_open=bool(staged),
    )
    if verdict is MarkerVerdict.KNOWN:
        return Decision()
    if verdict is not MarkerVerdict.APPEND:
        return Decision(answer=marker_refusal(verdict, sent, marker))
    records: list[Record] = []
    group_ids = sorted({key.group_id for key in staged})
    for group_id in group_ids:
        changes = Changes(group_of(group_id), context.unix_ms)
        for key, value in staged.items():
            if key.group_id == group_id:
                _end(changes, key, value, committed=marker.committed)
        records += changes.batch()
    raised = ProducerFenceValue(sent.producer_epoch, marker.coordinator_epoch, context.unix_ms)
    records.append(Record(ProducerFenceKey(sent.producer_id), raised))
    return Decision(batches=(tuple(records),), writes=tuple(group_ids))


def _end(changes: Changes, key: StagedOffsetKey, value: StagedOffsetValue, *, committed: bool) -> None:
    known = changes.group.offsets.get(key.topic_id, {}).get(key.partition)
    if committed and counts(value.offset, known):
        changes.put(key, None)
        changes.put(OffsetKey(key.group_id, *key.tp), value.offset)
    else:
        # Aborted, or a commit that came later has gone further already.
        changes.delete_staged(key)


def counts(staged: OffsetValue, known: OffsetValue | None) -> bool:
    """Whether a staged offset replaces the committed one: what was sent later counts, not what was decided later."""
    return known is None or known.order < staged.order
