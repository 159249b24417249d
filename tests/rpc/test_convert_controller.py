"""Registration, heartbeats, AlterPartition, metadata and reports survive the wire; absence stays absence."""

from __future__ import annotations

from dataclasses import make_dataclass

import pytest
from hypothesis import given, strategies as st

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import (
    Durability,
    EpochEntry,
    FetchHw,
    IsrJoin,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
    Truncation,
)
from strandline.rpc.convert import controller as convert, metadata
from strandline.rpc.convert.by_name import ByName
from strandline.v1 import controller_service_pb2 as pb, metadata_pb2

ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
node_epochs = st.integers(0, 2**63 - 1).map(NodeEpoch)
several = st.lists(ids.map(NodeId), max_size=4, unique=True).map(tuple)
words = st.text(max_size=12)
hosts = st.text("abz09.-_:%", min_size=1, max_size=12)
shown = st.text(st.characters(exclude_categories=("C", "Zl", "Zp", "Zs"), include_characters=" "), max_size=12)
endpoints = st.builds(messages.Endpoint, hosts, st.integers(1, 65_535))
roles = st.frozensets(st.sampled_from(Role), min_size=1)
tps = st.builds(TopicPartition, st.uuids().map(str), st.integers(0, 9_999))

rules = st.builds(
    Rules,
    truncation=st.sampled_from(Truncation),
    fetch_hw=st.sampled_from(FetchHw),
    isr_join=st.sampled_from(IsrJoin),
    durability=st.sampled_from(Durability),
)

positions = st.builds(
    messages.PositionProof, node_epochs, epochs, st.integers(0, 2**62), st.binary(min_size=32, max_size=32)
)

registrations = st.builds(
    messages.RegisterNode,
    node_id=ids.map(NodeId),
    cluster_id=st.none() | words,
    incarnation_id=shown.filter(bool),
    directory_id=shown.filter(bool),
    roles=roles,
    rules=rules,
    client_endpoint=endpoints,
    internal_endpoint=endpoints,
    rack=st.none() | shown,
    feature_min=st.just(1),
    feature_max=st.integers(1, 9),
    unclean=st.booleans(),
    controller_epoch_seen=st.none() | epochs,
    epochs_seen=st.lists(
        st.builds(messages.EpochsSeen, tps, epochs.map(LeaderEpoch), epochs.map(PartitionEpoch)), max_size=3
    ).map(tuple),
    known_incarnations=st.lists(shown.filter(bool), max_size=3).map(tuple),
    position=st.none() | positions,
)

nodes = st.builds(
    messages.NodeImage,
    node_id=ids.map(NodeId),
    node_epoch=node_epochs,
    roles=roles,
    client_endpoint=st.none() | endpoints,
    internal_endpoint=st.none() | endpoints,
    rack=st.none() | words,
    fenced=st.booleans(),
    shutting_down=st.booleans(),
    disk_nearly_full=st.booleans(),
)


def partition(topic_id: str, index: int, leader: int | None, unclean: int | None, isr: tuple[NodeId, ...]) -> object:
    """A partition whose optional parts are drawn."""
    return messages.PartitionImage(
        tp=TopicPartition(topic_id, index),
        replicas=isr,
        isr=isr,
        elr=isr[:1],
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(3),
        partition_epoch=PartitionEpoch(0),
        min_isr=2,
        recovering=leader == 0,
        last_unclean_leader_epoch=None if unclean is None else LeaderEpoch(unclean),
        observers=isr[1:],
        unproven=isr[1:],
        adding=isr[:1],
        throttle_bytes_per_s=None if unclean is None else unclean + 1,
    )


@st.composite
def topics(draw: st.DrawFn) -> messages.TopicImage:
    """A topic with up to three partitions in order."""
    topic_id = str(draw(st.uuids()))
    optional = st.none() | epochs
    drawn = [partition(topic_id, i, draw(optional), draw(optional), draw(several)) for i in range(draw(ids) % 4)]
    configs = draw(st.dictionaries(words, words, max_size=2))
    return messages.TopicImage(
        name=draw(words), topic_id=topic_id, configs=tuple(sorted(configs.items())), partitions=tuple(drawn)
    )


@given(registrations)
def test_registration_round_trips(request: messages.RegisterNode) -> None:
    """A registration reads back equal, whatever the controller's own rules are."""
    other = Rules(durability=Durability.PAGE_CACHE)

    assert convert.read_registration(convert.write_registration(request), other) == request


@given(rules)
def test_rules_that_are_not_given_are_the_controllers(ours: Rules) -> None:
    """An unspecified rule has the controller's value; an unknown number is rejected, not guessed."""
    assert metadata.read_rules(metadata_pb2.Rules(), ours) == ours
    with pytest.raises(Refused) as caught:
        metadata.read_rules(metadata_pb2.Rules(truncation=77), ours)
    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


@given(
    image=st.builds(
        messages.MetadataImage,
        cluster_id=words,
        controller_epoch=epochs,
        metadata_offset=st.integers(0, 2**62),
        is_snapshot=st.booleans(),
        rules=rules,
        feature_level=st.integers(1, 9),
        nodes=st.lists(nodes, max_size=3).map(tuple),
        topics=st.lists(topics(), max_size=3).map(tuple),
        deleted_topic_ids=st.lists(st.uuids().map(str), max_size=2).map(tuple),
        removed_node_ids=st.lists(st.integers(0, 2**31 - 1).map(NodeId), max_size=2).map(tuple),
        to_node_epoch=st.none() | node_epochs,
    )
)
def test_metadata_round_trips(image: messages.MetadataImage) -> None:
    """A snapshot or change reads back equal, with its address and its deletions; no leader stays no leader."""
    message = metadata.write_watch_answer(image, image.to_node_epoch)
    parsed = pb.WatchMetadataResponse.FromString(message.SerializeToString())

    assert metadata.read_watch_answer(parsed) == image


def test_sign_of_life_carries_no_image() -> None:
    """A watch message without metadata is None, never an empty cluster."""
    assert metadata.read_watch_answer(metadata.write_watch_answer(None, NodeEpoch(1))) is None


@given(
    st.builds(
        messages.Heartbeat,
        cluster_id=words,
        node_id=ids.map(NodeId),
        node_epoch=node_epochs,
        metadata_offset=st.integers(-1, 2**62),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        disk_nearly_full=st.booleans(),
        position=st.none() | positions,
    )
)
def test_heartbeat_round_trips(request: messages.Heartbeat) -> None:
    """-1, for "no metadata yet", is absence on the wire."""
    message = convert.write_heartbeat(request)

    assert convert.read_heartbeat(message) == request
    assert message.HasField("current_metadata_offset") is (request.metadata_offset >= 0)


def test_answers_round_trip() -> None:
    """Answers keep their errors, and an empty heartbeat answer means fenced."""
    refusal = Refusal(ErrorCode.STALE_BROKER_EPOCH, "stop")
    beat = messages.HeartbeatAnswer(refusal=refusal, controller_epoch=3, is_fenced=False, session_timeout_ms=7)
    position = messages.PositionProof(NodeEpoch(0), 2, 77, b"mac", "r" * 32)
    registered = messages.NodeRegistered(
        node_epoch=NodeEpoch(0), controller_epoch=2, cluster_id="c", feature_level=1, position=position
    )

    assert convert.read_heartbeat_answer(convert.HEARTBEAT_ANSWER.write(beat)) == beat
    assert convert.read_heartbeat_answer(pb.HeartbeatResponse()).is_fenced
    assert convert.REGISTERED.read(convert.REGISTERED.write(registered)) == registered
    for reported in (messages.ReplicaLogsReported(), messages.ReplicaLogsReported(refusal=refusal)):
        assert convert.REPORTED.read(convert.REPORTED.write(reported)) == reported
    assert (
        convert.REGISTERED.read(convert.REGISTERED.write(messages.NodeRegistered(refusal=refusal))).node_epoch is None
    )


def test_alter_partition_round_trips() -> None:
    """Proposals and decisions keep partition, epochs, members with and without epoch, and recovery state."""
    a, b = TopicPartition("a", 0), TopicPartition("b", 3)
    request = messages.AlterPartitionRequest(
        cluster_id="c",
        controller_epoch=2,
        node_id=NodeId(0),
        node_epoch=NodeEpoch(5),
        request_sequence=9,
        partitions=(
            messages.ProposedIsr(
                a, LeaderEpoch(1), PartitionEpoch(2), (messages.IsrMember(NodeId(0), NodeEpoch(5)),), True
            ),
            messages.ProposedIsr(b, LeaderEpoch(0), PartitionEpoch(0), (messages.IsrMember(NodeId(1), None),)),
        ),
    )
    answer = messages.AlterPartitionAnswer(
        partitions=(
            messages.IsrDecision(
                a, None, NodeId(0), LeaderEpoch(1), (NodeId(0),), PartitionEpoch(3), True, (NodeId(0),)
            ),
            messages.IsrDecision(b, Refusal(ErrorCode.FENCED_LEADER_EPOCH, "older")),
        ),
        last_sequence=9,
    )

    assert convert.read_alter_partition(convert.write_alter_partition(request)) == request
    assert convert.read_alter_partition_answer(convert.write_alter_partition_answer(answer)) == answer


def test_missing_node_epoch_is_stale() -> None:
    """Kafka's -1 as node epoch is rejected, for heartbeats, proposals and reports of logs alike."""
    for read, message in (
        (convert.read_heartbeat, pb.HeartbeatRequest(node_id=1)),
        (convert.read_alter_partition, pb.AlterPartitionRequest(node_id=1)),
        (convert.read_report, pb.ReportReplicaLogsRequest(node_id=1)),
    ):
        with pytest.raises(Refused) as caught:
            read(message)  # type: ignore[operator]

        assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH, read


def test_partition_named_twice_is_refused() -> None:
    """Two proposals for one partition could not be answered once each."""
    twice = pb.AlterPartitionProposal(partition_index=0)
    message = pb.AlterPartitionRequest(
        node_id=1, node_epoch=1, topics=[pb.AlterPartitionTopic(topic_id="t", partitions=[twice, twice])]
    )

    with pytest.raises(Refused) as caught:
        convert.read_alter_partition(message)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


TOPICS = ("11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000")
offsets = st.integers(0, 2**62).map(Offset)
leader_epochs = st.integers(0, 2**31 - 1).map(LeaderEpoch)


@st.composite
def logs(draw: st.DrawFn) -> list[messages.ReplicaLogInfo]:
    """Logs of some partitions, those of one topic together."""
    places = draw(st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9)), max_size=4, unique=True))
    found = []
    for topic_id, index in sorted(places):
        start, end = sorted(draw(st.tuples(offsets, offsets)))
        spans = draw(st.lists(st.tuples(leader_epochs, offsets), max_size=3))
        columns = zip(sorted({epoch for epoch, _ in spans}), sorted({at for _, at in spans}), strict=False)
        found.append(
            messages.ReplicaLogInfo(
                tp=TopicPartition(topic_id, index),
                leader_epoch=draw(leader_epochs),
                log_start_offset=start,
                leo=end,
                epochs=tuple(EpochEntry(epoch, at) for epoch, at in columns),
                reconciled_epoch=draw(st.none() | leader_epochs),
                high_watermark=draw(offsets),
                refused_cut_to=draw(st.none() | offsets),
            )
        )
    return found


@given(logs=logs(), node_id=st.integers(0, 2**31 - 1), node_epoch=st.integers(0, 2**63 - 1))
def test_a_report_round_trips(logs: list[messages.ReplicaLogInfo], node_id: int, node_epoch: int) -> None:
    """Every field reads back equal; 0 and "not known" stay apart."""
    request = messages.ReportReplicaLogs(
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


def test_a_field_without_counterpart_makes_no_pair() -> None:
    """One of a name that the message lacks, and one that may be None where the message cannot say so."""
    with pytest.raises(KeyError, match="lost"):
        ByName(make_dataclass("Unknown", [("lost", int)]), pb.HeartbeatRequest)
    with pytest.raises(AssertionError, match="node_id cannot be absent"):
        ByName(make_dataclass("MayLack", [("node_id", int | None)]), pb.HeartbeatRequest)
