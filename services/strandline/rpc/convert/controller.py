"""Registration, heartbeats and AlterPartition on the wire, for the node and for the controller.

Invariant: an epoch that a request does not carry is never read as epoch 0: a missing node epoch is refused
with STALE_BROKER_EPOCH, as Kafka's -1 is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import EpochEntry, LeaderEpoch, NodeEpoch, PartitionEpoch, Rules, TopicPartition
from strandline.rpc.convert import metadata
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import by_topic, invalid, write_error
from strandline.v1 import controller_service_pb2 as pb

NO_METADATA = -1
"""`Heartbeat.metadata_offset` of a node that has applied none yet."""

_HOST = re.compile(r"[a-zA-Z0-9._:%-]{1,253}")
"""Names, IPv4 and IPv6 with a zone; underscores too, which container networks put into names."""
_MOST_CHARACTERS = 255

_REGISTRATION = ByName(
    messages.RegisterNode,
    pb.RegisterNodeRequest,
    roles=As("roles", metadata.write_roles, metadata.read_roles),
    rules=None,
    client_endpoint=None,
    internal_endpoint=None,
    feature_min=None,
    feature_max=None,
    controller_epoch_seen=None,
    epochs_seen=None,
    known_incarnations="known_incarnation_ids",
    position=metadata.POSITION,
    topics_position=metadata.PLACE,
)
REGISTERED = ByName(messages.NodeRegistered, pb.RegisterNodeResponse, position=metadata.POSITION)
_HEARTBEAT = ByName(
    messages.Heartbeat,
    pb.HeartbeatRequest,
    metadata_offset=None,
    position=metadata.POSITION,
    topics_position=metadata.PLACE,
)
HEARTBEAT_ANSWER = ByName(messages.HeartbeatAnswer, pb.HeartbeatResponse)
_MEMBER = ByName(messages.IsrMember, pb.IsrMember)
_RECOVERY = As("leader_recovery_state", metadata.write_recovery, metadata.read_recovery)
_PROPOSAL = ByName(
    messages.ProposedIsr,
    pb.AlterPartitionProposal,
    tp=None,
    new_isr=As("new_isr_with_epochs", _MEMBER.write_all, _MEMBER.read_all),
    recovering=_RECOVERY,
)
_PROPOSALS = ByName(
    messages.AlterPartitionRequest, pb.AlterPartitionRequest, partitions=None, position=metadata.POSITION
)
_DECISION = ByName(messages.IsrDecision, pb.AlterPartitionResult, tp=None, leader="leader_id", recovering=_RECOVERY)
_DECISIONS = ByName(
    messages.AlterPartitionAnswer,
    pb.AlterPartitionResponse,
    partitions=None,
    last_sequence="last_request_sequence",
    position=metadata.POSITION,
)


def write_registration(request: messages.RegisterNode) -> pb.RegisterNodeRequest:
    """A registration as the node sends it."""
    message = _REGISTRATION.write(
        request,
        endpoints=metadata.write_endpoints(request.client_endpoint, request.internal_endpoint),
        rules=metadata.write_rules(request.rules),
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
    """A registration as the controller reads it; ``rules`` supplies those that the node does not name.

    Raises:
        Refused: INVALID_REQUEST, which names the missing or impossible field.
    """
    _check_registration(message)
    seen = message.epochs_seen
    return _REGISTRATION.read(
        message,
        rules=metadata.read_rules(message.rules, rules),
        client_endpoint=metadata.read_endpoint(message.endpoints.client),
        internal_endpoint=metadata.read_endpoint(message.endpoints.internal),
        feature_min=message.feature_levels.min_level,
        feature_max=message.feature_levels.max_level,
        controller_epoch_seen=seen.controller_epoch if seen.HasField("controller_epoch") else None,
        epochs_seen=tuple(read_epochs_seen(partition) for partition in seen.partitions),
    )


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
                f"endpoints.{name}.host {endpoint.host[:60]!r} is not a host; advertise a name or an address, "
                "at most 253 of [a-zA-Z0-9._:%-]"
            )
    levels = message.feature_levels
    if not 1 <= levels.min_level <= levels.max_level:
        raise invalid(f"feature_levels {levels.min_level}-{levels.max_level} is not a range of levels from 1 on")


def _check_words(name: str, value: str) -> None:
    """Refuse text that cannot be shown: people see what a node says of itself in tables, logs and pages."""
    if len(value) > _MOST_CHARACTERS or not value.isprintable():
        shown = f"{value[:60]!r}, {len(value)} characters"
        raise invalid(f"{name} is {shown}; give at most {_MOST_CHARACTERS} characters that can be printed")


def read_epochs_seen(message: pb.PartitionEpochsSeen) -> messages.EpochsSeen:
    """The epochs in which the sender last saw a partition."""
    tp = TopicPartition(message.topic_id, message.partition)
    return messages.EpochsSeen(tp, LeaderEpoch(message.leader_epoch), PartitionEpoch(message.partition_epoch))


def write_heartbeat(request: messages.Heartbeat) -> pb.HeartbeatRequest:
    """A node's heartbeat."""
    offset = request.metadata_offset if request.metadata_offset != NO_METADATA else None
    return _HEARTBEAT.write(request, current_metadata_offset=offset)


def read_heartbeat(message: pb.HeartbeatRequest) -> messages.Heartbeat:
    """A node's heartbeat.

    Raises:
        Refused: STALE_BROKER_EPOCH when the node epoch is absent.
    """
    has_metadata = message.HasField("current_metadata_offset")
    return _HEARTBEAT.read(
        message,
        node_epoch=required_epoch(message),
        metadata_offset=message.current_metadata_offset if has_metadata else NO_METADATA,
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


def read_heartbeat_answer(message: pb.HeartbeatResponse) -> messages.HeartbeatAnswer:
    """The controller's view of the node; fenced unless it says otherwise."""
    return HEARTBEAT_ANSWER.read(message, is_fenced=message.is_fenced if message.HasField("is_fenced") else True)


def write_alter_partition(request: messages.AlterPartitionRequest) -> pb.AlterPartitionRequest:
    """A leader's proposals, grouped by topic."""
    message = _PROPOSALS.write(request)
    for topic_id, proposals in by_topic(request.partitions, lambda proposal: proposal.tp):
        topic = message.topics.add(topic_id=topic_id)
        topic.partitions.extend(_PROPOSAL.write(each, partition_index=each.tp.partition) for each in proposals)
    return message


def read_alter_partition(message: pb.AlterPartitionRequest) -> messages.AlterPartitionRequest:
    """A leader's proposals.

    Raises:
        Refused: STALE_BROKER_EPOCH when the sender's node epoch is absent, INVALID_REQUEST when a partition is named
            twice, because each partition gets exactly one answer.
    """
    proposals = tuple(_read_proposals(message))
    if len({proposal.tp for proposal in proposals}) < len(proposals):
        raise invalid("topics names a partition twice; propose one ISR for each")
    return _PROPOSALS.read(message, node_epoch=required_epoch(message), partitions=proposals)


def _read_proposals(message: pb.AlterPartitionRequest) -> Iterator[messages.ProposedIsr]:
    for topic in message.topics:
        for proposal in topic.partitions:
            yield _PROPOSAL.read(proposal, tp=TopicPartition(topic.topic_id, proposal.partition_index))


def write_alter_partition_answer(answer: messages.AlterPartitionAnswer) -> pb.AlterPartitionResponse:
    """The controller's decisions, grouped by topic."""
    message = _DECISIONS.write(answer)
    for topic_id, decisions in by_topic(answer.partitions, lambda decision: decision.tp):
        topic = message.topics.add(topic_id=topic_id)
        topic.partitions.extend(_write_decision(decision) for decision in decisions)
    return message


def _write_decision(decision: messages.IsrDecision) -> pb.AlterPartitionResult:
    index = decision.tp.partition
    if decision.refusal is None:
        return _DECISION.write(decision, partition_index=index)
    message = pb.AlterPartitionResult(partition_index=index)
    write_error(message, decision.refusal)
    return message


def read_alter_partition_answer(message: pb.AlterPartitionResponse) -> messages.AlterPartitionAnswer:
    """The controller's decisions."""
    decisions = (
        _DECISION.read(result, tp=TopicPartition(topic.topic_id, result.partition_index))
        for topic in message.topics
        for result in topic.partitions
    )
    return _DECISIONS.read(message, partitions=tuple(decisions))


# ---- reports
# A node's report of its logs.

_EPOCH = ByName(EpochEntry, pb.LogEpoch, epoch="leader_epoch")
_LOG = ByName(
    messages.ReplicaLogInfo,
    pb.ReplicaLogInfo,
    tp=None,
    leo="log_end_offset",
    epochs=As("epochs", _EPOCH.write_all, _EPOCH.read_all),
)
_REPORT = ByName(messages.ReportReplicaLogs, pb.ReportReplicaLogsRequest, logs=None)
REPORTED = ByName(messages.ReplicaLogsReported, pb.ReportReplicaLogsResponse)


def write_report(request: messages.ReportReplicaLogs) -> pb.ReportReplicaLogsRequest:
    """A report, grouped by topic."""
    message = _REPORT.write(request)
    for topic_id, logs in by_topic(request.logs, lambda log: log.tp):
        partitions = [_LOG.write(log, partition_index=log.tp.partition) for log in logs]
        message.topics.add(topic_id=topic_id, partitions=partitions)
    return message


def read_report(message: pb.ReportReplicaLogsRequest) -> messages.ReportReplicaLogs:
    """A report as the controller reads it.

    Raises:
        Refused: STALE_BROKER_EPOCH without a node epoch, INVALID_REQUEST, which names the impossible field.
    """
    epoch, logs = required_epoch(message), tuple(_read_logs(message))
    return _REPORT.read(message, node_epoch=epoch, logs=logs)


def _read_logs(message: pb.ReportReplicaLogsRequest) -> Iterator[messages.ReplicaLogInfo]:
    for topic in message.topics:
        for row in topic.partitions:
            log = _LOG.read(row, tp=TopicPartition(topic.topic_id, row.partition_index))
            _check_log(log)
            yield log


def _check_log(log: messages.ReplicaLogInfo) -> None:
    where = f"partition {log.tp.partition} of topic {log.tp.topic_id}"
    if not 0 <= log.log_start_offset <= log.leo:
        raise invalid(
            f"{where}: log_start_offset {log.log_start_offset} and log_end_offset {log.leo} "
            "must be 0 or more, and in this order"
        )
    for earlier, later in pairwise(log.epochs):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise invalid(f"{where}: epochs {earlier} and {later} must increase in epoch and in start offset")
