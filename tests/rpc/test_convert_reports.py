"""Reports of logs survive the wire; impossible ones are rejected with the field named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import ReplicaLogInfo, ReplicaLogsReported, ReportReplicaLogs
from strandline.core.types import EpochEntry, LeaderEpoch, NodeEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.convert import reports as convert
from strandline.v1 import controller_service_pb2 as pb

TOPICS = ("11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000")
offsets = st.integers(0, 2**62).map(Offset)
epochs = st.integers(0, 2**31 - 1).map(LeaderEpoch)


@st.composite
def logs(draw: st.DrawFn) -> list[ReplicaLogInfo]:
    """Logs of some partitions, those of one topic together."""
    places = draw(st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9)), max_size=4, unique=True))
    found = []
    for topic_id, index in sorted(places):
        start, end = sorted(draw(st.tuples(offsets, offsets)))
        spans = draw(st.lists(st.tuples(epochs, offsets), max_size=3))
        columns = zip(sorted({epoch for epoch, _ in spans}), sorted({at for _, at in spans}), strict=False)
        found.append(
            ReplicaLogInfo(
                tp=TopicPartition(topic_id, index),
                leader_epoch=draw(epochs),
                log_start_offset=start,
                leo=end,
                epochs=tuple(EpochEntry(epoch, at) for epoch, at in columns),
                reconciled_epoch=draw(st.none() | epochs),
                high_watermark=draw(offsets),
                refused_cut_to=draw(st.none() | offsets),
            )
        )
    return found


@given(logs=logs(), node_id=st.integers(0, 2**31 - 1), node_epoch=st.integers(0, 2**63 - 1))
def test_a_report_round_trips(logs: list[ReplicaLogInfo], node_id: int, node_epoch: int) -> None:
    """Every field reads back equal; 0 and "not known" stay apart."""
    request = ReportReplicaLogs(
        cluster_id="c", node_id=NodeId(node_id), node_epoch=NodeEpoch(node_epoch), logs=tuple(logs)
    )
    wire = convert.write_report(request).SerializeToString()

    assert convert.read_report(pb.ReportReplicaLogsRequest.FromString(wire)) == request


@pytest.mark.parametrize(
    ("log", "named"),
    [
        (pb.ReplicaLogInfo(log_start_offset=5, log_end_offset=4), "log_start_offset 5 and log_end_offset 4"),
        (pb.ReplicaLogInfo(log_start_offset=-1), "log_start_offset -1"),
        (pb.ReplicaLogInfo(epochs=[pb.LogEpoch(leader_epoch=2), pb.LogEpoch(leader_epoch=1)]), "must increase"),
        (
            pb.ReplicaLogInfo(epochs=[pb.LogEpoch(leader_epoch=1), pb.LogEpoch(leader_epoch=2)], log_end_offset=1),
            "must increase",
        ),
    ],
)
def test_an_impossible_log_is_refused(log: pb.ReplicaLogInfo, named: str) -> None:
    """An impossible log is never compared with others: the error names partition, topic and field."""
    message = pb.ReportReplicaLogsRequest(node_epoch=1, topics=[pb.ReplicaLogsOfTopic(topic_id="t", partitions=[log])])
    with pytest.raises(Refused, match=f"partition 0 of topic t.*{named}") as caught:
        convert.read_report(message)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


def test_a_report_of_no_process_is_stale() -> None:
    """Without a node epoch the owner of the logs is unknown."""
    with pytest.raises(Refused) as caught:
        convert.read_report(pb.ReportReplicaLogsRequest(node_id=1))

    assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("refusal", [None, Refusal(ErrorCode.STALE_BROKER_EPOCH, "stop")])
def test_answers_round_trip(refusal: Refusal | None) -> None:
    """An error stays one, and success stays success."""
    answer = ReplicaLogsReported(refusal=refusal)

    assert convert.read_reported(convert.write_reported(answer)) == answer
