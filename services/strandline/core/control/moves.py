"""Decides which reassignments and drains are accepted, and lists those that have not ended.

Invariant: whatever is refused is refused before anything of that partition changes; the latest target wins, and an
equal one changes nothing, so a request may be repeated (C72).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache

from strandline.core.control import messages
from strandline.core.control.draft import Draft
from strandline.core.control.leadership import DRAINING, shed_leaderships
from strandline.core.control.placement import Placement
from strandline.core.control.reassignment import (
    REASSIGN,
    Load,
    Reassignments,
    cancel,
    elect_among,
    min_isr_with,
    report,
    waits_of_running,
)
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage
from strandline.core.planning.layout import rack_limit
from strandline.core.planning.plan import no_room
from strandline.core.state_events import Reassignment
from strandline.core.types import REASSIGNMENTS, NodeId, TopicPartition


def alter_reassignments(
    draft: Draft, reassignments: Reassignments, request: messages.AlterPartitionReassignments
) -> messages.PartitionsReassigned:
    """Begin, change or cancel each reassignment, or refuse it; a refusal does not affect the others."""
    refusal = draft.below(REASSIGNMENTS, "moves of replicas") or _bad_throttle(request)
    if refusal is not None:
        return messages.PartitionsReassigned(refusal=refusal)
    placement = Placement(draft.nodes(), ())
    # Later ones go on above it; numbers are part of the state, so the order of submission outlives a controller (C73).
    number = max((each.queue_number for each in reassignments.open(draft)), default=0)
    times = Counter((wanted.topic, wanted.partition) for wanted in request.partitions)
    results = []
    for wanted in request.partitions:
        number += 1
        twice = times[wanted.topic, wanted.partition] > 1
        # Both are refused, because nothing says which of the two targets is meant.
        found = _twice(wanted) if twice else _take(draft, placement, request, wanted, number)
        results.append((wanted, found))
    reassignments.settle(draft)
    reported, load = draft.emitted(Reassignment), reassignments.load(draft)
    return messages.PartitionsReassigned(results=tuple(_result(draft, reported, load, *each) for each in results))


def _bad_throttle(request: messages.AlterPartitionReassignments) -> Refusal | None:
    rate = request.throttle_bytes_per_s
    if rate is None or rate > 0:
        return None
    wrong = f"throttle_bytes_per_s is {rate}; give a number above 0, or leave it out to copy without a throttle"
    return Refusal(ErrorCode.INVALID_REQUEST, wrong, field="throttle_bytes_per_s")


def _twice(wanted: messages.ReassignPartition) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, f"partition {wanted.partition} is named twice; name it once")


def _result(
    draft: Draft,
    reported: Collection[TopicPartition],
    load: Load,
    wanted: messages.ReassignPartition,
    found: Refusal | TopicPartition,
) -> messages.ReassignedPartition:
    """``reported``: partitions whose reassignment this step began or ended."""
    if isinstance(found, Refusal):
        return messages.ReassignedPartition(wanted.topic, wanted.partition, found)
    partition = draft.partition(found)
    assert partition is not None
    before = draft.base.partition(found)
    if wanted.target is not None and partition != before:
        # Every epoch of a partition is reported, or statistics find a hole there.
        if partition.queued_target:
            report(draft, partition, "queued", load.waits(partition))
        elif found not in reported:
            if partition.original:
                report(draft, partition, "started", waits_of_running(draft, partition))
            else:
                report(draft, partition, "cancelled", of=before)
    ref = messages.TopicRef(draft.base.topics[found.topic_id].name, found.topic_id)
    return messages.ReassignedPartition(ref, wanted.partition, None, messages.state_of(partition))


def _take(
    draft: Draft,
    placement: Placement,
    request: messages.AlterPartitionReassignments,
    wanted: messages.ReassignPartition,
    number: int,
) -> Refusal | TopicPartition:
    topic = draft.topic(wanted.topic)
    if isinstance(topic, Refusal):
        return topic
    partition = draft.partition(TopicPartition(topic.topic_id, wanted.partition))
    if partition is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic '{topic.name}' has no partition {wanted.partition}; it has {len(topic.partitions)}",
        )
    if wanted.target is None:
        refusal = _cannot_cancel(draft, partition, force=request.force)
    else:
        refusal = _bad_target(draft, placement, partition, wanted, request)
    if refusal is not None or request.validate_only:
        return refusal or partition.tp
    if wanted.target is None:
        cancel(draft, partition)
    else:
        _queue(draft, partition, wanted.target, number, request.throttle_bytes_per_s)
    return partition.tp


def _queue(
    draft: Draft, partition: PartitionImage, target: tuple[NodeId, ...], number: int, throttle: int | None
) -> None:
    """Queue the target, which may start at once; a running reassignment with the same target continues at the rate that
    was given last (C80)."""
    if target == (partition.queued_target or partition.target):
        target, number = partition.queued_target, partition.queue_number
    elif target == partition.target:
        # The running one goes there already; the latest target wins over what was queued behind it (C72).
        target, number = (), 0
    rate = throttle if target or partition.original else None
    after = replace(partition, queued_target=target, queue_number=number, throttle_bytes_per_s=rate)
    if after != partition:
        draft.put_partition(after, cause=REASSIGN)


def _bad_target(
    draft: Draft,
    placement: Placement,
    partition: PartitionImage,
    wanted: messages.ReassignPartition,
    request: messages.AlterPartitionReassignments,
) -> Refusal | None:
    assert wanted.target is not None
    target, future = wanted.target, partition.queued_target or partition.target
    if target == future:
        # Nothing to do, perhaps because this request was sent before.
        return None
    if wanted.planned_from not in (None, future):
        return _bad(
            f"the target was planned from replicas {list(wanted.planned_from or ())}, but they are, or will be, "
            f"{list(future)} by now; plan again"
        )
    if not request.allow_factor_change and len(target) != len(partition.settled_replicas):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"target {list(target)} has {len(target)} replicas and the partition {len(partition.settled_replicas)}; "
            f"name as many, or allow another number",
        )
    # A node that is being drained may keep a replica while others move.
    kept = [node_id for node_id in target if node_id in partition.replicas]
    return placement.check_assignment(target, also=kept)


def _cannot_cancel(draft: Draft, partition: PartitionImage, *, force: bool) -> Refusal | None:
    if messages.state_of(partition) is None:
        return Refusal(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"the replicas {list(partition.replicas)} are not being changed"
        )
    # It is only queued: no replica has changed, so nothing can be lost by dropping it.
    if not partition.original:
        return None
    # The ISR of a store that lost its end may name original replicas that have left it since (C37, TR28).
    if unheard := draft.waits_for(partition):
        return Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"nodes {list(unheard)} have not been heard since this controller started; try again once they were, or "
            f"when their sessions have ended",
        )
    isr = [node_id for node_id in partition.original if node_id in partition.isr]
    original, min_isr = list(partition.original), min_isr_with(draft, partition, partition.original)
    leads = partition.leader in partition.original or elect_among(draft, partition, partition.original) is not None
    if not isr or not leads:
        return _bad(
            f"none of the original replicas {original} is in the ISR {list(partition.isr)} and can lead, so a cancel "
            f"would leave the partition without a leader; start one of them, or let the reassignment end"
        )
    if not force and len(isr) < min_isr <= len(partition.isr):
        return _bad(
            f"of the original replicas {original} only {isr} are in the ISR, fewer than min ISR {min_isr}, so a cancel "
            f"would stop writes with acks=all; start the others, let the reassignment end, or force the cancel"
        )
    return None


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def list_reassignments(
    draft: Draft, reassignments: Reassignments, request: messages.ListPartitionReassignments, now_ms: int
) -> messages.ReassignmentsListed:
    """The reassignments that have not ended, of all partitions that the caller may describe or of those requested,
    running ones first."""
    wanted = set(_wanted(draft, request.partitions))
    if refusal := next((each for each in wanted if isinstance(each, Refusal)), None):
        return messages.ReassignmentsListed(refusal=refusal)
    found = []
    for partition, waits in reassignments.waits(draft):
        ref = messages.TopicRef(draft.base.topics[partition.tp.topic_id].name, partition.tp.topic_id)
        if partition.tp not in wanted if request.partitions else not draft.sees(ref.name):
            continue
        since_ms = reassignments.since_ms(partition.tp)
        age_ms = None if since_ms is None else now_ms - since_ms
        found.append(messages.OngoingReassignment(ref, partition, waits, age_ms))
    found.sort(key=lambda each: (not each.partition.original, each.partition.queue_number, each.partition.tp))
    return messages.ReassignmentsListed(reassignments=tuple(found), moves_per_node=reassignments.per_node)


def _wanted(draft: Draft, asked: Sequence[messages.PartitionsRef]) -> Iterator[TopicPartition | Refusal]:
    for ref, indexes in dict.fromkeys(asked):
        topic = draft.topic(ref)
        if isinstance(topic, Refusal):
            yield topic
        else:
            yield from (TopicPartition(topic.topic_id, i) for i in indexes or range(len(topic.partitions)))


# ---- draining
# Decides when a node may be drained, and what that means for what it leads (C86).
#
# Invariant: while a node is drained nothing is placed on it, and it leads only where no other member of the ISR can.


def drain(draft: Draft, request: messages.DrainNode) -> messages.NodeDrained:
    """Drain a node, or stop draining it; repeating the request changes nothing."""
    node_id = request.node_id
    record = draft.node(node_id)
    if record is None:
        unknown = f"node {node_id} is not registered; `strandline node list` shows those that are"
        return messages.NodeDrained(refusal=Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, unknown))
    refusal = draft.below(REASSIGNMENTS, "drains of nodes")
    if refusal is None and request.draining and not record.image.draining:
        refusal = _cannot_drain(draft, node_id)
    if refusal is not None:
        return messages.NodeDrained(refusal=refusal)
    draft.put_node(replace(record, image=replace(record.image, draining=request.draining)))
    if request.draining:
        shed_leaderships(draft, node_id, DRAINING)
    partitions = list(draft.partitions())
    return messages.NodeDrained(
        remaining_replicas=sum(node_id in (*each.replicas, *each.queued_target) for each in partitions),
        remaining_leaders=sum(each.leader == node_id for each in partitions),
    )


def _cannot_drain(draft: Draft, node_id: NodeId) -> Refusal | None:
    """Why some replica of the node fits on no other node, so that a drain would never end; None if all fit."""
    images = [each.image for each in draft.nodes() if each.image.node_id != node_id and not each.image.is_observer]
    racks: dict[int, str | None] = {image.node_id: image.rack for image in images}
    takers = [image.node_id for image in images if not image.draining]
    count = len({racks[each] for each in takers} - {None})

    def why(wanted: int, *kept: NodeId) -> str:
        return no_room(wanted, kept, takers, racks, rack_limit(wanted, count))

    # If there is room regardless of which replicas a partition keeps, there is room for each.
    tight = cache(why)
    for partition in draft.partitions():
        target = partition.queued_target or partition.target
        if node_id not in target or not tight(len(target)):
            continue
        if no_place := why(len(target), *(each for each in target if each != node_id)):
            name = f"{draft.base.topics[partition.tp.topic_id].name}-{partition.tp.partition}"
            return Refusal(ErrorCode.INVALID_REQUEST, f"node_id: {name}: {no_place}", field="node_id")
    return None
