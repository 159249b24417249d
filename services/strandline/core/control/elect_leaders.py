"""Decides elections that are held because somebody or the clock asks, not because a leader was lost.

Invariant: a preferred election moves leadership only to a member of the ISR; an unclean one is held only where
there is no leader, and only if no clean one is possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, elect_preferred
from strandline.core.control.leadership import choose_clean, choose_unclean, install
from strandline.core.control.messages import ElectionKind, ElectionResult, ElectLeaders, LeadersElected, TopicRef
from strandline.core.coordinator.internal_topics import is_internal, not_for_clients
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage
from strandline.core.types import TopicPartition


def elect_leaders(draft: Draft, request: ElectLeaders) -> LeadersElected:
    """Hold the elections asked for; with none named, in every partition that needs one."""
    if not request.partitions:
        results = [_elect(draft, request, partition) for partition in list(draft.partitions())]
        return LeadersElected(results=tuple(result for result in results if not _needless(result)))
    return LeadersElected(results=tuple(_named(draft, request)))


def _needless(result: ElectionResult) -> bool:
    return result.refusal is not None and result.refusal.code is ErrorCode.ELECTION_NOT_NEEDED


def _named(draft: Draft, request: ElectLeaders) -> Iterator[ElectionResult]:
    for ref, indexes in request.partitions:
        topic = draft.topic(ref)
        if isinstance(topic, Refusal):
            for index in indexes or (0,):
                yield ElectionResult(ref, index, topic)
            continue
        for index in indexes or range(len(topic.partitions)):
            partition = draft.partition(TopicPartition(topic.topic_id, index))
            if partition is None:
                unknown = Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic '{topic.name}' has no partition {index}; it has {len(topic.partitions)}",
                )
                yield ElectionResult(TopicRef(topic.name, topic.topic_id), index, unknown)
            else:
                yield _elect(draft, request, partition)


def _elect(draft: Draft, request: ElectLeaders, partition: PartitionImage) -> ElectionResult:
    choose = _preferred if request.kind is ElectionKind.PREFERRED else _unclean
    chosen = _was_held(request, partition) or choose(draft, partition)
    if isinstance(chosen, Elected) and (unheard := draft.waits_for(partition)):
        chosen = Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"nodes {list(unheard)} have not been heard since this controller started; try again once they were, or "
            f"when their sessions have ended",
        )
    name = draft.base.topics[partition.tp.topic_id].name
    ref = TopicRef(name, partition.tp.topic_id)
    refusal = chosen if isinstance(chosen, Refusal) else None
    if isinstance(chosen, Elected):
        partition = install(draft, partition, chosen, "requested")
    return ElectionResult(ref, partition.tp.partition, refusal, partition.leader, partition.leader_epoch)


def _was_held(request: ElectLeaders, partition: PartitionImage) -> Refusal | None:
    """Why no election is held where one was since the caller looked, perhaps by this very request."""
    seen = next((each.leader_epoch for each in request.seen if each.tp == partition.tp), partition.leader_epoch)
    if seen == partition.leader_epoch:
        return None
    return Refusal(
        ErrorCode.ELECTION_NOT_NEEDED,
        f"the leader epoch is {partition.leader_epoch}, not {seen}: an election was held since; look again",
    )


def _preferred(draft: Draft, partition: PartitionImage) -> Elected | Refusal:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} leads already")
    return elect_preferred(partition, draft.is_active, draft.has_room) or Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        f"node {preferred} is not in the ISR {list(partition.isr)}, or not active, or its disk is nearly full, or it "
        f"is being drained; wait until it is there and may lead",
    )


def _unclean(draft: Draft, partition: PartitionImage) -> Elected | Refusal:
    if partition.leader is not None:
        return Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"node {partition.leader} leads; nothing is gained unclean")
    if is_internal(name := draft.base.topics[partition.tp.topic_id].name):
        # Its coordinators may have answered from what a replica outside of the ISR lacks.
        return not_for_clients(name)
    return (
        choose_clean(draft, partition)
        or choose_unclean(draft, partition)
        or Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(partition.replicas)} is active; start one",
        )
    )


def rebalance(draft: Draft, at_most: int) -> int:
    """Give leadership back to preferred replicas, a few partitions at a time (M49b). Returns how many moved."""
    moved = 0
    for partition in list(draft.partitions()):
        if moved == at_most:
            break
        if partition.leader in (None, partition.replicas[0]) or draft.waits_for(partition):
            continue
        chosen = elect_preferred(partition, draft.is_active, draft.has_room)
        if chosen is not None:
            install(draft, partition, chosen, "preferred_leader")
            moved += 1
    return moved
