"""Creates, alters and deletes topics: checks each request and adds its changes to the draft.

Invariants: a topic id is never used twice, topic names match the whitelist, the number of partitions only grows; a
change of min ISR changes every partition that it affects, in the same transaction (M57, TR19).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from strandline.core import state_events
from strandline.core.control import messages
from strandline.core.control.draft import Draft
from strandline.core.control.election import elect, elr_with_min_isr
from strandline.core.control.leadership import elect_if_possible
from strandline.core.control.placement import Placement, internal_topic
from strandline.core.control.state import ControllerTimings, TopicRecord, first_epoch_in, record_of
from strandline.core.control.topic_configs import check_configs, check_name, check_names, effective_min_isr, in_force
from strandline.core.coordinator.internal_topics import is_internal, not_for_clients
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage, TopicImage
from strandline.core.permissions import CLUSTER_NAME, ResourceType
from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition

# ---- repeated_requests
# Recognizes a repeated request to create or grow a topic, which is answered as it was the first time (C32).
#
# Invariant: what a request did is remembered in the record of the topic that it changed, in the same transaction; a
# repeat changes nothing. The id of a topic has nothing to do with the id of the request: a late copy that arrives after
# the topic was deleted creates another topic, with a new id.

KEPT_GROWTHS = 8
"""How many requests that added partitions a topic remembers; a repeat arrives after few others."""

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def bad_request_id(request: Any) -> Refusal | None:
    """The refusal of a request whose id is not a UUID; ids are stored, so their form and length are checked."""
    if not isinstance(request, messages.CreateTopics | messages.CreatePartitions):
        return None
    if request.request_id is None or _UUID.fullmatch(request.request_id):
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"request_id '{request.request_id[:40]}' is no UUID in lower-case hex with dashes; draw one or leave it out",
        field="request_id",
    )


Assignments = tuple[tuple[int, tuple[NodeId, ...]], ...]
"""Partition index and its nodes, the preferred leader first."""


def create_topics(draft: Draft, timings: ControllerTimings, request: messages.CreateTopics) -> messages.TopicsCreated:
    """Create each topic or refuse it, independently of the others."""
    placement = Placement(draft.nodes(), draft.partitions())
    repeated = _created_before(draft, request)
    # Removed once found: a name given twice in one request is refused the second time, in a repeat too.
    created = []
    for topic in request.topics:
        again = repeated.pop(topic.name, None)
        created.append(again or _create(draft, timings, placement, topic, request))
    return messages.TopicsCreated(topics=tuple(created))


def _created_before(draft: Draft, request: messages.CreateTopics) -> dict[str, messages.CreatedTopic]:
    found: dict[str, messages.CreatedTopic] = {}
    if request.request_id is None or request.validate_only:
        return found
    for new in request.topics:
        topic = draft.named.get(new.name)
        # Not every caller who may create a topic by a rule on the cluster may see it by one on topics.
        if topic is not None and topic.created_by == request.request_id and not _may_not_create(draft, new.name):
            total, factor = len(topic.partitions), len(topic.partitions[0].settled_replicas)
            found[new.name] = messages.CreatedTopic(new.name, None, topic, total, factor)
    return found


def _create(
    draft: Draft,
    timings: ControllerTimings,
    placement: Placement,
    new: messages.NewTopic,
    request: messages.CreateTopics,
) -> messages.CreatedTopic:
    refusal = check_name(new.name) or _may_not_create(draft, new.name) or _name_taken(draft, new.name)
    refusal = refusal or check_configs(new.configs)
    if refusal is None and is_internal(new.name):
        shaped = internal_topic(draft, timings, placement, new)
        if isinstance(shaped, Refusal):
            return messages.CreatedTopic(new.name, shaped)
        new = shaped
    replicas = refusal or _replicas_of_new(timings, placement, new)
    if isinstance(replicas, Refusal):
        return messages.CreatedTopic(new.name, replicas)
    total, factor = len(replicas), len(replicas[0])
    if request.validate_only:
        return messages.CreatedTopic(new.name, None, None, total, factor)
    configs = tuple(sorted(new.configs))
    created_by = request.request_id or ""
    draft.put_topic(TopicRecord(name=new.name, topic_id=new.topic_id, configs=configs, created_by=created_by))
    partitions = tuple(
        _new_partition(draft, TopicPartition(new.topic_id, index), nodes, configs)
        for index, nodes in enumerate(replicas)
    )
    for partition in partitions:
        draft.add_partition(partition)
        _config_event(draft, partition, topic_created=True)
    topic = TopicImage(name=new.name, topic_id=new.topic_id, configs=configs, partitions=partitions)
    return messages.CreatedTopic(new.name, None, topic, total, factor)


def _may_not_create(draft: Draft, name: str) -> Refusal | None:
    """The refusal if the caller may create neither topics of the cluster nor this one, as in Kafka."""
    if draft.permit.may(ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return draft.permit.refusal(ResourceType.TOPIC, name)


def _name_taken(draft: Draft, name: str) -> Refusal | None:
    if draft.has_name(name):
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"a topic called '{name}' exists; use it or another name")
    return None


def _replicas_of_new(
    timings: ControllerTimings, placement: Placement, new: messages.NewTopic
) -> list[tuple[NodeId, ...]] | Refusal:
    if new.assignments:
        return _explicit_of_new(placement, new)
    total = timings.default_partitions if new.num_partitions is None else new.num_partitions
    if not 1 <= total <= timings.max_partitions_per_topic:
        most = timings.max_partitions_per_topic
        return _bad_count(f"num_partitions {total} is not between 1 and {most}; ask for a number of these")
    factor = new.replication_factor
    if factor is None:
        factor = max(1, min(timings.default_replication_factor, placement.usable))
    refusal = placement.check_number(total) or placement.check_factor(factor)
    return refusal or [placement.place(factor) for _ in range(total)]


def _explicit_of_new(placement: Placement, new: messages.NewTopic) -> list[tuple[NodeId, ...]] | Refusal:
    if new.num_partitions not in (None, len(new.assignments)):
        return _bad_count(f"num_partitions {new.num_partitions} but {len(new.assignments)} assignments; give one")
    if new.replication_factor is not None and any(len(n) != new.replication_factor for _, n in new.assignments):
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication_factor {new.replication_factor} does not agree with the assignments; give one of them",
        )
    return _explicit(placement, new.assignments, first_index=0)


def _explicit(placement: Placement, given: Assignments, first_index: int) -> list[tuple[NodeId, ...]] | Refusal:
    if (refusal := placement.check_number(len(given))) is not None:
        return refusal
    by_index = dict(given)
    expected = list(range(first_index, first_index + len(given)))
    if sorted(by_index) != expected:
        return _bad_assignment(f"assignments must name the partitions {expected} once each")
    ordered = [by_index[index] for index in expected]
    for replicas in ordered:
        refusal = placement.check_assignment(replicas)
        if refusal is not None:
            return refusal
        if len(replicas) != len(ordered[0]):
            return _bad_assignment("assignments must all have the same number of nodes")
        placement.accept(replicas)
    return ordered


def _new_partition(
    draft: Draft, tp: TopicPartition, replicas: tuple[NodeId, ...], configs: tuple[tuple[str, str], ...]
) -> PartitionImage:
    """A partition at epoch 0. Its first ISR has only active nodes; an empty log is complete in any case."""
    isr = tuple(node_id for node_id in replicas if draft.is_active(node_id))
    min_isr = effective_min_isr(configs, len(replicas))
    partition = PartitionImage(
        tp=tp,
        replicas=replicas,
        isr=isr,
        # Nothing was ever written, so the replicas outside the ISR are complete, too.
        elr=() if len(isr) >= min_isr else tuple(node_id for node_id in replicas if node_id not in isr),
        leader=None,
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        min_isr=min_isr,
        observers=draft.observers(),
    )
    elected = elect(partition, draft.is_active, draft.has_room)
    return replace(partition, leader=elected.leader if elected else None)


def delete_topics(draft: Draft, request: messages.DeleteTopics) -> messages.TopicsChanged:
    """Delete each topic that exists."""
    return messages.TopicsChanged(topics=tuple(_delete(draft, ref) for ref in request.topics))


def _delete(draft: Draft, ref: messages.TopicRef) -> messages.TopicResult:
    found = draft.topic(ref)
    if isinstance(found, Refusal):
        return messages.TopicResult(ref, found)
    if is_internal(found.name):
        return messages.TopicResult(ref, not_for_clients(found.name))
    for partition in found.partitions:
        _config_event(draft, partition, topic_deleted=True)
    draft.delete_topic(found)
    return messages.TopicResult(messages.TopicRef(found.name, found.topic_id))


def describe_topics(draft: Draft, request: messages.DescribeTopics) -> messages.TopicsDescribed:
    """Each topic asked for, or all by name."""
    if not request.topics:
        seen = (topic for topic in draft.base.topics.values() if draft.sees(topic.name))
        everything = sorted(seen, key=lambda topic: topic.name)
        return messages.TopicsDescribed(
            topics=tuple(messages.DescribedTopic(messages.TopicRef(t.name, t.topic_id), None, t) for t in everything)
        )
    # Once each: an answer that holds a large topic as often as a request can name it is larger than any memory.
    return messages.TopicsDescribed(topics=tuple(_describe(draft, ref) for ref in dict.fromkeys(request.topics)))


def _describe(draft: Draft, ref: messages.TopicRef) -> messages.DescribedTopic:
    found = draft.topic(ref)
    if isinstance(found, Refusal):
        return messages.DescribedTopic(ref, found)
    return messages.DescribedTopic(ref, None, found)


def create_partitions(
    draft: Draft, timings: ControllerTimings, request: messages.CreatePartitions
) -> messages.TopicsChanged:
    """Add partitions to each topic, with the topic's own number of replicas."""
    placement = Placement(draft.nodes(), draft.partitions())
    times = Counter(growing.topic for growing in request.topics)
    results = []
    for growing in request.topics:
        if times[growing.topic] > 1:
            twice = Refusal(ErrorCode.INVALID_REQUEST, f"topic '{growing.topic.name}' is named twice; name it once")
            results.append(messages.TopicResult(growing.topic, twice))
        else:
            results.append(_grow(draft, timings, placement, growing, request))
    return messages.TopicsChanged(topics=tuple(results))


def _grow(
    draft: Draft,
    timings: ControllerTimings,
    placement: Placement,
    growing: messages.GrowingTopic,
    request: messages.CreatePartitions,
) -> messages.TopicResult:
    topic = draft.topic(growing.topic)
    if isinstance(topic, Refusal):
        return messages.TopicResult(growing.topic, topic)
    if is_internal(topic.name):
        return messages.TopicResult(growing.topic, not_for_clients(topic.name))
    # Before the number is checked: a repeat finds its partitions there and would be refused (C32).
    if not request.validate_only and request.request_id in topic.grown_by:
        return messages.TopicResult(messages.TopicRef(topic.name, topic.topic_id))
    replicas = _replicas_of_growth(timings, placement, topic, growing)
    if isinstance(replicas, Refusal):
        return messages.TopicResult(growing.topic, replicas)
    if not request.validate_only:
        if request.request_id is not None:
            grown_by = (*topic.grown_by, request.request_id)[-KEPT_GROWTHS:]
            draft.put_topic(replace(record_of(topic), grown_by=grown_by))
        first = first_epoch_in(draft.header.controller_epoch)
        for index, nodes in enumerate(replicas, len(topic.partitions)):
            partition = _new_partition(draft, TopicPartition(topic.topic_id, index), nodes, topic.configs)
            partition = replace(partition, leader_epoch=LeaderEpoch(first), partition_epoch=PartitionEpoch(first))
            draft.add_partition(partition)
    return messages.TopicResult(messages.TopicRef(topic.name, topic.topic_id))


def _replicas_of_growth(
    timings: ControllerTimings, placement: Placement, topic: TopicImage, growing: messages.GrowingTopic
) -> list[tuple[NodeId, ...]] | Refusal:
    now, factor = len(topic.partitions), len(topic.partitions[0].settled_replicas)
    if not now < growing.total <= timings.max_partitions_per_topic:
        return _bad_count(
            f"count {growing.total}: topic '{topic.name}' has {now} partitions; "
            f"ask for more, up to {timings.max_partitions_per_topic}"
        )
    if not growing.assignments:
        refusal = placement.check_number(growing.total - now) or placement.check_factor(factor)
        return refusal or [placement.place(factor) for _ in range(growing.total - now)]
    if len(growing.assignments) != growing.total - now:
        return _bad_assignment(f"{len(growing.assignments)} assignments for {growing.total - now} new partitions")
    replicas = _explicit(placement, growing.assignments, first_index=now)
    if not isinstance(replicas, Refusal) and len(replicas[0]) != factor:
        return _bad_assignment(f"assignments must have {factor} nodes, as the topic's other partitions")
    return replicas


def alter_configs(draft: Draft, request: messages.AlterTopicConfigs) -> messages.TopicsChanged:
    """Change the settings of each topic, all of one topic's or none."""
    return messages.TopicsChanged(
        topics=tuple(_alter(draft, change, request.validate_only) for change in request.topics)
    )


def _alter(draft: Draft, change: messages.ConfigChange, validate_only: bool) -> messages.TopicResult:
    topic = change.invalid or draft.topic(change.topic)
    if isinstance(topic, Refusal):
        return messages.TopicResult(change.topic, topic)
    refusal = check_configs(change.set_configs) or check_names(change.delete_configs)
    if refusal is None and is_internal(topic.name):
        refusal = not_for_clients(topic.name)
    if refusal is not None:
        return messages.TopicResult(change.topic, refusal)
    configs = dict(draft.configs(topic.topic_id)) | dict(change.set_configs)
    kept = tuple(sorted((name, value) for name, value in configs.items() if name not in change.delete_configs))
    if not validate_only:
        _apply_configs(draft, topic, kept)
    return messages.TopicResult(messages.TopicRef(topic.name, topic.topic_id))


def describe_configs(
    draft: Draft, timings: ControllerTimings, request: messages.DescribeConfigs
) -> messages.ConfigsDescribed:
    """The settings in force of each topic, with where each comes from (C101)."""
    return messages.ConfigsDescribed(topics=tuple(_describe_configs(draft, timings, ref) for ref in request.topics))


def _describe_configs(draft: Draft, timings: ControllerTimings, ref: messages.ConfigsRef) -> messages.DescribedConfigs:
    topic = ref.invalid or check_names(ref.names) or draft.topic(ref.topic)
    if isinstance(topic, Refusal):
        return messages.DescribedConfigs(ref.topic, topic)
    factor = len(topic.partitions[0].settled_replicas)
    found = in_force(draft.configs(topic.topic_id), factor, timings.unclean_recovery_timeout_ms)
    return messages.DescribedConfigs(ref.topic, None, tuple(c for c in found if not ref.names or c.name in ref.names))


def _apply_configs(draft: Draft, topic: TopicImage, configs: tuple[tuple[str, str], ...]) -> None:
    draft.put_topic(replace(record_of(topic), configs=configs))
    for index in range(len(topic.partitions)):
        partition = draft.partition(TopicPartition(topic.topic_id, index))
        assert partition is not None
        min_isr = effective_min_isr(configs, len(partition.settled_replicas))
        # With the ELR in one transaction: below the old min ISR, records are committed that its members lack (TR19).
        if min_isr != partition.min_isr:
            elr = elr_with_min_isr(partition, min_isr)
            partition = draft.put_partition(replace(partition, min_isr=min_isr, elr=elr), cause="min_isr_change")
            _config_event(draft, partition)
        # The new settings may allow an unclean election, or let fewer reports suffice.
        if partition.leader is None:
            elect_if_possible(draft, partition)


def _config_event(
    draft: Draft, partition: PartitionImage, *, topic_created: bool = False, topic_deleted: bool = False
) -> None:
    change = state_events.ConfigChange(
        min_isr=state_events.Number(partition.min_isr),
        replicas=partition.replicas,
        topic_created=topic_created,
        topic_deleted=topic_deleted,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    draft.emit(partition.tp, change)


def _bad_count(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_PARTITIONS, message)


def _bad_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
