"""Registration, heartbeats and AlterPartition on the wire, for the node and for the controller.

Invariant: an epoch that a request does not carry is never read as epoch 0: a missing node epoch is refused
with STALE_BROKER_EPOCH, as Kafka's -1 is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.rpc.convert import metadata
from strandline.rpc.convert.errors import by_topic, invalid, read_error, write_error
from strandline.v1 import controller_service_pb2 as pb

NO_METADATA = -1
"""`Heartbeat.metadata_offset` of a node that has applied none yet."""

_HOST = re.compile(r"[a-zA-Z0-9._:%-]{1,253}")
"""Names, IPv4 and IPv6 with a zone; underscores too, which container networks put into names."""
_MOST_CHARACTERS = 255


def write_registration(request: messages.RegisterNode) -> pb.RegisterNodeRequest:
    """A registration as the node sends it."""
    message = pb.RegisterNodeRequest(
        node_id=request.node_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        directory_id=request.directory_id,
        endpoints=metadata.write_endpoints(request.client_endpoint, request.internal_endpoint),
        rack=request.rack,
        roles=metadata.write_roles(request.roles),
        rules=metadata.write_rules(request.rules),
        unclean=request.unclean,
        known_incarnation_ids=request.known_incarnations,
        position=metadata.write_position(request.position),
        topics_position=metadata.write_place(request.topics_position),
    )
    message.feature_levels.min_level = request.feature_min
    message.feature_levels.max_level = request.feature_max
    if request.controller_epoch_seen is not None:
        message.epochs_seen.controller_epoch = request.controller_epoch_seen
    for seen in request.epochs_seen:
        message.epochs_seen.partitions.add(
            topic_id=seen.tp.topic_id,
            partition=seen.tp.partition,
            leader_epoch=seen.leader_epoch,
            partition_epoch=seen.partition_epoch,
        )
    return message


def read_registration(message: pb.RegisterNodeRequest, rules: Rules) -> messages.RegisterNode:
    """A registration as the controller takes it; ``rules`` replace those the node does not name.

    Raises:
        Refused: INVALID_REQUEST that names the missing or impossible field.
    """
    _check_registration(message)
    seen = message.epochs_seen
    return messages.RegisterNode(
        node_id=NodeId(message.node_id),
        cluster_id=message.cluster_id if message.HasField("cluster_id") else None,
        incarnation_id=message.incarnation_id,
        directory_id=message.directory_id,
        roles=metadata.read_roles(message.roles),
        rules=metadata.read_rules(message.rules, rules),
        client_endpoint=metadata.read_endpoint(message.endpoints.client),
        internal_endpoint=metadata.read_endpoint(message.endpoints.internal),
        rack=message.rack if message.HasField("rack") else None,
        feature_min=message.feature_levels.min_level,
        feature_max=message.feature_levels.max_level,
        unclean=message.unclean,
        controller_epoch_seen=seen.controller_epoch if seen.HasField("controller_epoch") else None,
        epochs_seen=tuple(read_epochs_seen(partition) for partition in seen.partitions),
        known_incarnations=tuple(message.known_incarnation_ids),
        position=_position(message),
        topics_position=_topics_position(message),
    )


def _position(
    message: pb.RegisterNodeRequest | pb.HeartbeatRequest | pb.AlterPartitionRequest | pb.AlterPartitionResponse,
) -> messages.PositionProof | None:
    return metadata.read_position(message.position) if message.HasField("position") else None


def _topics_position(message: pb.RegisterNodeRequest | pb.HeartbeatRequest) -> messages.Position | None:
    return metadata.read_place(message.topics_position) if message.HasField("topics_position") else None


def _check_registration(message: pb.RegisterNodeRequest) -> None:
    if message.node_id < 0:
        raise invalid(f"node_id {message.node_id} is negative; give every node an id of its own, 0 or more")
    for name in ("incarnation_id", "directory_id"):
        value = getattr(message, name)
        if not value:
            raise invalid(f"{name} is empty; a node makes a UUID for it")
        _check_words(name, value)
    _check_words("rack", message.rack)
    if not metadata.read_roles(message.roles):
        raise invalid("roles is empty; give leader and follower, or follower alone for an observer")
    for name in ("client", "internal"):
        endpoint = getattr(message.endpoints, name)
        if not endpoint.host or not 1 <= endpoint.port <= 65_535:
            raise invalid(
                f"endpoints.{name} is {endpoint.host[:60]!r}, port {endpoint.port}; advertise a host and a port 1-65535"
            )
        if not _HOST.fullmatch(endpoint.host):
            raise invalid(
                f"endpoints.{name}.host {endpoint.host[:60]!r} is no host; advertise a name or an address, "
                "at most 253 of [a-zA-Z0-9._:%-]"
            )
    levels = message.feature_levels
    if not 1 <= levels.min_level <= levels.max_level:
        raise invalid(f"feature_levels {levels.min_level}-{levels.max_level} is no range of levels from 1 on")


def _check_words(name: str, value: str) -> None:
    """What a node says of itself is shown to people: in tables, in logs, on pages."""
    if len(value) > _MOST_CHARACTERS or not value.isprintable():
        shown = f"{value[:60]!r}, {len(value)} characters"
        raise invalid(f"{name} is {shown}; give at most {_MOST_CHARACTERS} characters that can be printed")


def read_epochs_seen(message: pb.PartitionEpochsSeen) -> messages.EpochsSeen:
    """In which epochs somebody saw a partition."""
    tp = TopicPartition(message.topic_id, message.partition)
    return messages.EpochsSeen(tp, LeaderEpoch(message.leader_epoch), PartitionEpoch(message.partition_epoch))


def write_registered(answer: messages.NodeRegistered) -> pb.RegisterNodeResponse:
    """What the controller answers to a registration."""
    message = pb.RegisterNodeResponse(
        node_epoch=answer.node_epoch,
        controller_epoch=answer.controller_epoch,
        cluster_id=answer.cluster_id,
        feature_level=answer.feature_level,
        position=metadata.write_position(answer.position),
    )
    write_error(message, answer.refusal)
    return message


def read_registered(message: pb.RegisterNodeResponse) -> messages.NodeRegistered:
    """What the node learns from a registration."""
    return messages.NodeRegistered(
        refusal=read_error(message),
        node_epoch=NodeEpoch(message.node_epoch) if message.HasField("node_epoch") else None,
        controller_epoch=message.controller_epoch,
        cluster_id=message.cluster_id,
        feature_level=message.feature_level,
        position=metadata.read_position(message.position) if message.HasField("position") else None,
    )


def write_heartbeat(request: messages.Heartbeat) -> pb.HeartbeatRequest:
    """A node's sign of life."""
    has_metadata = request.metadata_offset != NO_METADATA
    return pb.HeartbeatRequest(
        node_id=request.node_id,
        node_epoch=request.node_epoch,
        cluster_id=request.cluster_id,
        current_metadata_offset=request.metadata_offset if has_metadata else None,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        clock_offset_us=request.clock_offset_us,
        clock_err_us=request.clock_err_us,
        position=metadata.write_position(request.position),
        topics_position=metadata.write_place(request.topics_position),
        disk_nearly_full=request.disk_nearly_full,
    )


def read_heartbeat(message: pb.HeartbeatRequest) -> messages.Heartbeat:
    """A node's sign of life.

    Raises:
        Refused: STALE_BROKER_EPOCH when the node epoch is absent.
    """
    return messages.Heartbeat(
        cluster_id=message.cluster_id,
        node_id=NodeId(message.node_id),
        node_epoch=required_epoch(message),
        metadata_offset=(
            message.current_metadata_offset if message.HasField("current_metadata_offset") else NO_METADATA
        ),
        want_fence=message.want_fence,
        want_shut_down=message.want_shut_down,
        clock_offset_us=message.clock_offset_us if message.HasField("clock_offset_us") else None,
        clock_err_us=message.clock_err_us if message.HasField("clock_err_us") else None,
        position=_position(message),
        topics_position=_topics_position(message),
        disk_nearly_full=message.disk_nearly_full,
    )


def required_epoch(
    message: pb.HeartbeatRequest
    | pb.AlterPartitionRequest
    | pb.ReportReplicaLogsRequest
    | pb.AllocateProducerIdsRequest,
) -> NodeEpoch:
    """The node epoch of a request that must carry one.

    Raises:
        Refused: STALE_BROKER_EPOCH when it is absent.
    """
    if not message.HasField("node_epoch"):
        raise Refused(ErrorCode.STALE_BROKER_EPOCH, "node_epoch is absent; send the one the registration gave")
    return NodeEpoch(message.node_epoch)


def write_heartbeat_answer(answer: messages.HeartbeatAnswer) -> pb.HeartbeatResponse:
    """The controller's view of the node."""
    message = pb.HeartbeatResponse(
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
        controller_epoch=answer.controller_epoch,
        session_timeout_ms=answer.session_timeout_ms,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        controller_wall_us=answer.controller_wall_us,
    )
    write_error(message, answer.refusal)
    return message


def read_heartbeat_answer(message: pb.HeartbeatResponse) -> messages.HeartbeatAnswer:
    """The controller's view of the node; fenced unless it says otherwise."""
    return messages.HeartbeatAnswer(
        refusal=read_error(message),
        controller_epoch=message.controller_epoch,
        is_caught_up=message.is_caught_up,
        is_fenced=message.is_fenced if message.HasField("is_fenced") else True,
        should_shut_down=message.should_shut_down,
        session_timeout_ms=message.session_timeout_ms,
        heartbeat_interval_ms=message.heartbeat_interval_ms,
        controller_wall_us=message.controller_wall_us if message.HasField("controller_wall_us") else None,
    )


def write_alter_partition(request: messages.AlterPartitionRequest) -> pb.AlterPartitionRequest:
    """A leader's proposals, grouped by topic."""
    message = pb.AlterPartitionRequest(
        node_id=request.node_id,
        node_epoch=request.node_epoch,
        cluster_id=request.cluster_id,
        controller_epoch=request.controller_epoch,
        request_sequence=request.request_sequence,
        position=metadata.write_position(request.position),
    )
    for topic_id, proposals in by_topic(request.partitions, lambda proposal: proposal.tp):
        topic = message.topics.add(topic_id=topic_id)
        topic.partitions.extend(_write_proposal(proposal) for proposal in proposals)
    return message


def _write_proposal(proposal: messages.ProposedIsr) -> pb.AlterPartitionProposal:
    members = [pb.IsrMember(node_id=member.node_id, node_epoch=member.node_epoch) for member in proposal.new_isr]
    return pb.AlterPartitionProposal(
        partition_index=proposal.tp.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=members,
        leader_recovery_state=metadata.write_recovery(proposal.recovering),
        partition_epoch=proposal.partition_epoch,
    )


def read_alter_partition(message: pb.AlterPartitionRequest) -> messages.AlterPartitionRequest:
    """A leader's proposals.

    Raises:
        Refused: STALE_BROKER_EPOCH when the sender's node epoch is absent, INVALID_REQUEST when a partition
            is named twice, which could not be answered once each.
    """
    proposals = tuple(_read_proposals(message))
    if len({proposal.tp for proposal in proposals}) < len(proposals):
        raise invalid("topics names a partition twice; propose one ISR for each")
    return messages.AlterPartitionRequest(
        cluster_id=message.cluster_id,
        controller_epoch=message.controller_epoch,
        node_id=NodeId(message.node_id),
        node_epoch=required_epoch(message),
        request_sequence=message.request_sequence,
        partitions=proposals,
        position=_position(message),
    )


def _read_proposals(message: pb.AlterPartitionRequest) -> Iterator[messages.ProposedIsr]:
    for topic in message.topics:
        for proposal in topic.partitions:
            yield messages.ProposedIsr(
                tp=TopicPartition(topic.topic_id, proposal.partition_index),
                leader_epoch=LeaderEpoch(proposal.leader_epoch),
                partition_epoch=PartitionEpoch(proposal.partition_epoch),
                new_isr=tuple(_read_member(member) for member in proposal.new_isr_with_epochs),
                recovering=metadata.read_recovery(proposal.leader_recovery_state),
            )


def _read_member(message: pb.IsrMember) -> messages.IsrMember:
    return messages.IsrMember(
        NodeId(message.node_id), NodeEpoch(message.node_epoch) if message.HasField("node_epoch") else None
    )


def write_alter_partition_answer(answer: messages.AlterPartitionAnswer) -> pb.AlterPartitionResponse:
    """The controller's decisions, grouped by topic."""
    message = pb.AlterPartitionResponse(
        last_request_sequence=answer.last_sequence, position=metadata.write_position(answer.position)
    )
    write_error(message, answer.refusal)
    for topic_id, decisions in by_topic(answer.partitions, lambda decision: decision.tp):
        topic = message.topics.add(topic_id=topic_id)
        topic.partitions.extend(_write_decision(decision) for decision in decisions)
    return message


def _write_decision(decision: messages.IsrDecision) -> pb.AlterPartitionResult:
    message = pb.AlterPartitionResult(partition_index=decision.tp.partition)
    if decision.refusal is not None:
        write_error(message, decision.refusal)
        return message
    if decision.leader is not None:
        message.leader_id = decision.leader
    message.leader_epoch = decision.leader_epoch
    message.isr.extend(decision.isr)
    message.unproven.extend(decision.unproven)
    message.leader_recovery_state = metadata.write_recovery(decision.recovering)
    message.partition_epoch = decision.partition_epoch
    return message


def read_alter_partition_answer(message: pb.AlterPartitionResponse) -> messages.AlterPartitionAnswer:
    """The controller's decisions."""
    return messages.AlterPartitionAnswer(
        refusal=read_error(message),
        partitions=tuple(
            _read_decision(topic.topic_id, result) for topic in message.topics for result in topic.partitions
        ),
        last_sequence=message.last_request_sequence if message.HasField("last_request_sequence") else None,
        position=_position(message),
    )


def _read_decision(topic_id: str, message: pb.AlterPartitionResult) -> messages.IsrDecision:
    return messages.IsrDecision(
        tp=TopicPartition(topic_id, message.partition_index),
        refusal=read_error(message),
        leader=NodeId(message.leader_id) if message.HasField("leader_id") else None,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        isr=tuple(NodeId(node_id) for node_id in message.isr),
        partition_epoch=PartitionEpoch(message.partition_epoch),
        recovering=metadata.read_recovery(message.leader_recovery_state),
        unproven=tuple(NodeId(node_id) for node_id in message.unproven),
    )
