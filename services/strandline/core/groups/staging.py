"""Which offsets a transaction may stage, and what is written for them (X16, X18)."""

from __future__ import annotations

from strandline.core.coordinator.machine import Context, Decision, VerifyTransaction
from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.group_messages import CommittedPartition, OffsetsCommitted, TxnOffsetCommit
from strandline.core.groups.commits import refusal_of_committer, refusal_of_offset, refusal_of_owner
from strandline.core.groups.group import Group
from strandline.core.groups.records import OffsetValue, StagedOffsetKey, StagedOffsetValue
from strandline.core.groups.settings import GroupSettings
from strandline.core.groups.staging_producers import StagingProducers
from strandline.core.groups.timers import CommitTaken


def stage(
    group: Group, producers: StagingProducers, request: TxnOffsetCommit, context: Context, settings: GroupSettings
) -> Decision:
    """Decide a commit of a transaction; ``group`` is an empty one if there is none by this name.

    The first of a transaction waits until its coordinator knows that this partition takes part in it.
    """
    refusal = _refusal_of_producer(producers, request) or refusal_of_committer(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    order = group.top_order + 1
    records: list[Record] = []
    results: list[CommittedPartition] = []
    for each in request.offsets:
        refused = refusal_of_offset(each, context, settings) or refusal_of_owner(group, request, each.tp)
        results.append(CommittedPartition(each.tp, refused))
        if refused is None:
            value = OffsetValue(each.offset, each.leader_epoch, each.metadata, context.unix_ms, order)
            key = StagedOffsetKey(request.group_id, *each.tp, request.producer_id)
            records.append(Record(key, StagedOffsetValue(request.producer_epoch, value)))
    takes_part = context.is_verified or producers.has_staged(request.producer_id, request.producer_epoch)
    if records and not takes_part:
        whose = VerifyTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
        return Decision(scope=request.group_id, verify=whose)
    is_member = request.member_epoch is not None
    return Decision(
        batches=(tuple(records),) if records else (),
        answer=OffsetsCommitted(partitions=tuple(results)),
        scope=request.group_id,
        taken=(CommitTaken(request.group_id, request.member_id, None),) if is_member else None,
    )


def _refusal_of_producer(producers: StagingProducers, request: TxnOffsetCommit) -> Refusal | None:
    if not request.transactional_id:
        message = "transactional_id must not be empty; name the transaction's, or use OffsetCommit"
        return Refusal(ErrorCode.INVALID_REQUEST, message, Outcome.NOT_APPENDED, field="transactional_id")
    known = producers.known_epoch(request.producer_id)
    if request.producer_epoch >= known:
        return None
    # Looked at after the verification too: the transaction may have ended meanwhile.
    message = (
        f"producer_epoch {request.producer_epoch} of producer {request.producer_id} is older than {known}, which is "
        "known here: its transaction is over"
    )
    return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, message, Outcome.NOT_APPENDED, field="producer_epoch")
