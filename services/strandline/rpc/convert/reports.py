"""A node's report of its logs on the wire, for the node and for the controller."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from strandline.core.messages import ReplicaLogInfo, ReplicaLogsReported, ReportReplicaLogs
from strandline.core.types import EpochEntry, LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.convert.controller import required_epoch
from strandline.rpc.convert.errors import by_topic, invalid, read_error, write_error
from strandline.v1 import controller_service_pb2 as pb


def write_report(request: ReportReplicaLogs) -> pb.ReportReplicaLogsRequest:
    """A report, grouped by topic."""
    message = pb.ReportReplicaLogsRequest(
        node_id=request.node_id, node_epoch=request.node_epoch, cluster_id=request.cluster_id
    )
    for topic_id, logs in by_topic(request.logs, lambda log: log.tp):
        message.topics.add(topic_id=topic_id, partitions=[_write_log(log) for log in logs])
    return message


def _write_log(log: ReplicaLogInfo) -> pb.ReplicaLogInfo:
    return pb.ReplicaLogInfo(
        partition_index=log.tp.partition,
        leader_epoch=log.leader_epoch,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.leo,
        high_watermark=log.high_watermark,
        epochs=[pb.LogEpoch(leader_epoch=e.epoch, start_offset=e.start_offset) for e in log.epochs],
        reconciled_epoch=log.reconciled_epoch,
        refused_cut_to=log.refused_cut_to,
    )


def read_report(message: pb.ReportReplicaLogsRequest) -> ReportReplicaLogs:
    """A report as the controller takes it.

    Raises:
        Refused: STALE_BROKER_EPOCH without a node epoch, INVALID_REQUEST that names the impossible field.
    """
    return ReportReplicaLogs(
        cluster_id=message.cluster_id,
        node_id=NodeId(message.node_id),
        node_epoch=required_epoch(message),
        logs=tuple(_read_logs(message)),
    )


def _read_logs(message: pb.ReportReplicaLogsRequest) -> Iterator[ReplicaLogInfo]:
    for topic in message.topics:
        for log in topic.partitions:
            yield _read_log(TopicPartition(topic.topic_id, log.partition_index), log)


def _read_log(tp: TopicPartition, message: pb.ReplicaLogInfo) -> ReplicaLogInfo:
    where = f"partition {tp.partition} of topic {tp.topic_id}"
    if not 0 <= message.log_start_offset <= message.log_end_offset:
        raise invalid(
            f"{where}: log_start_offset {message.log_start_offset} and log_end_offset {message.log_end_offset} "
            "must be 0 or more, and in this order"
        )
    epochs = tuple(EpochEntry(LeaderEpoch(e.leader_epoch), Offset(e.start_offset)) for e in message.epochs)
    for earlier, later in pairwise(epochs):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise invalid(f"{where}: epochs {earlier} and {later} must increase in epoch and in start offset")
    return ReplicaLogInfo(
        tp=tp,
        leader_epoch=LeaderEpoch(message.leader_epoch),
        log_start_offset=Offset(message.log_start_offset),
        leo=Offset(message.log_end_offset),
        epochs=epochs,
        reconciled_epoch=LeaderEpoch(message.reconciled_epoch) if message.HasField("reconciled_epoch") else None,
        high_watermark=Offset(message.high_watermark),
        refused_cut_to=Offset(message.refused_cut_to) if message.HasField("refused_cut_to") else None,
    )


def write_reported(answer: ReplicaLogsReported) -> pb.ReportReplicaLogsResponse:
    """The controller's answer to a report."""
    message = pb.ReportReplicaLogsResponse()
    write_error(message, answer.refusal)
    return message


def read_reported(message: pb.ReportReplicaLogsResponse) -> ReplicaLogsReported:
    """The controller's answer to a report."""
    return ReplicaLogsReported(refusal=read_error(message))
