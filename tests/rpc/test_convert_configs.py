"""Settings on the wire, fields that a request leaves out, and how many entries it may have."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from fixed_topics import ID, FixedTopics

from strandline.core.control.messages import (
    ConfigChange,
    ConfigsDescribed,
    DescribedConfigs,
    TopicRef,
    TopicResult,
    TopicsChanged,
)
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import ConfigSource, TopicConfig
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.convert import admin as admin, configs as convert, groups as groups, subscription as subscription
from strandline.rpc.convert.errors import read_replica
from strandline.rpc.interceptors import names_too_much
from strandline.v1 import (
    controller_service_pb2 as controller,
    controller_service_pb2 as pb,
    group_service_pb2 as group,
    leader_service_pb2 as leader,
    metadata_service_pb2 as metadata,
    partition_pb2,
    record_pb2,
)

SET, DELETE = pb.CONFIG_OPERATION_UNSPECIFIED, pb.CONFIG_OPERATION_DELETE
TOPIC = pb.CONFIG_RESOURCE_TYPE_TOPIC


def resource(*configs: pb.AlterableConfig, resource_type: int = TOPIC) -> pb.AlterConfigsResource:
    """Changes of topic t."""
    return pb.AlterConfigsResource(resource_type=resource_type, resource_name="t", configs=configs)  # type: ignore[arg-type]


def change(*configs: pb.AlterableConfig, resource_type: int = TOPIC) -> ConfigChange:
    """The one change of a request."""
    request = pb.IncrementalAlterConfigsRequest(resources=[resource(*configs, resource_type=resource_type)])
    (read,) = convert.read_incremental(request).topics
    return read


def test_values_are_given_and_taken_back() -> None:
    """SET and DELETE of one topic are one change of it."""
    read = change(
        pb.AlterableConfig(name="b", config_operation=SET, value="2"),
        pb.AlterableConfig(name="a", config_operation=SET, value=""),
        pb.AlterableConfig(name="c", config_operation=DELETE),
    )

    assert read == ConfigChange(TopicRef("t", ""), (("a", ""), ("b", "2")), ("c",))


@pytest.mark.parametrize(
    ("configs", "code", "words"),
    [
        ([pb.AlterableConfig(name="a", value="1")] * 2, ErrorCode.INVALID_REQUEST, "named twice"),
        (
            [pb.AlterableConfig(name="a", value="1", config_operation=pb.CONFIG_OPERATION_APPEND)],
            ErrorCode.INVALID_CONFIG,
            "for lists",
        ),
        (
            [pb.AlterableConfig(name="a", value="1", config_operation=pb.CONFIG_OPERATION_SUBTRACT)],
            ErrorCode.INVALID_CONFIG,
            "for lists",
        ),
        ([pb.AlterableConfig(name="a")], ErrorCode.INVALID_CONFIG, "has no value"),
    ],
)
def test_a_change_that_cannot_be_read_is_refused_whole(
    configs: list[pb.AlterableConfig], code: ErrorCode, words: str
) -> None:
    """The refusal names setting, rule and remedy, and nothing of the entry remains."""
    read = change(*configs, pb.AlterableConfig(name="z", value="9"))

    assert read.invalid is not None and read.invalid.code is code
    assert words in read.invalid.message
    assert (read.set_configs, read.delete_configs) == ((), ())


@pytest.mark.parametrize(("number", "words"), [(pb.CONFIG_RESOURCE_TYPE_NODE, "restart"), (0, "TOPIC"), (17, "17")])
def test_only_topics_have_settings_that_change(number: int, words: str) -> None:
    """A node's settings, and whatever is not known, are refused with the remedy."""
    read = change(pb.AlterableConfig(name="a", value="1"), resource_type=number)
    asked = convert.read_describe_configs(
        pb.DescribeConfigsRequest(resources=[pb.DescribeConfigsResource(resource_type=number, resource_name="1")])  # type: ignore[arg-type]
    )

    assert read.invalid is not None
    assert words in read.invalid.message
    assert asked.topics[0].invalid == read.invalid


def test_answers_are_in_the_order_of_the_request() -> None:
    """Each entry has its own row under the type and name that it was asked by."""
    request = pb.IncrementalAlterConfigsRequest(resources=[resource(), resource(resource_type=4)])
    refusal = Refusal(ErrorCode.INVALID_REQUEST, "a node")
    answer = TopicsChanged(topics=(TopicResult(TopicRef("t", "id")), TopicResult(TopicRef("t"), refusal)))

    rows = convert.write_incremental(request, answer).responses

    assert [(row.resource_type, row.resource_name, row.error_code) for row in rows] == [
        (TOPIC, "t", 0),
        (pb.CONFIG_RESOURCE_TYPE_NODE, "t", ErrorCode.INVALID_REQUEST),
    ]


def test_described_settings_arrive_as_they_left() -> None:
    """Value, source and default come back; the value of each node's own stays absent."""
    configs = (
        TopicConfig("a", "1", ConfigSource.TOPIC, "2"),
        TopicConfig("b", None, ConfigSource.NODE, "3"),
        TopicConfig("c", "4", ConfigSource.DEFAULT, "4"),
    )
    request = pb.DescribeConfigsRequest(
        resources=[pb.DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["a"])]
    )
    answer = ConfigsDescribed(topics=(DescribedConfigs(TopicRef("t"), None, configs),))

    (row,) = convert.write_configs_described(request, answer).results

    assert convert.read_describe_configs(request).topics[0].names == ("a",)
    assert tuple(convert.read_described(row)) == configs


TOPICS = FixedTopics()
OFFSET = {"topic_id": ID, "partitions": [{"partition_index": 0, "committed_offset": 5}]}


def _topic(**given: int) -> dict[str, Any]:
    return {"name": "t", **given}


CASES: dict[str, tuple[Callable[[Any], Any], Any, Any, tuple[str, ...]]] = {
    "CreateTopics": (
        lambda message: admin.read_create_topics(message, lambda: "id"),
        controller.CreateTopicsRequest(topics=[_topic()]),
        controller.CreateTopicsRequest(
            topics=[_topic(num_partitions=0, replication_factor=0)], cluster_id="", request_id=""
        ),
        ("cluster_id", "request_id"),
    ),
    "CreateTopics, a topic": (
        lambda message: admin.read_create_topics(message, lambda: "id").topics[0],
        controller.CreateTopicsRequest(topics=[_topic()]),
        controller.CreateTopicsRequest(topics=[_topic(num_partitions=0, replication_factor=0)]),
        ("num_partitions", "replication_factor"),
    ),
    "CreatePartitions": (
        admin.CREATE_PARTITIONS.read,
        controller.CreatePartitionsRequest(),
        controller.CreatePartitionsRequest(cluster_id="", request_id=""),
        ("cluster_id", "request_id"),
    ),
    "InitProducerId": (
        admin.INIT_PRODUCER_ID.read,
        controller.InitProducerIdRequest(),
        controller.InitProducerIdRequest(producer_id=0, producer_epoch=0),
        ("producer_id", "producer_epoch"),
    ),
    "ShutdownNode": (
        admin.SHUTDOWN_NODE.read,
        controller.ShutdownNodeRequest(),
        controller.ShutdownNodeRequest(node_epoch=0),
        ("node_epoch",),
    ),
    "WatchMetadata": (
        admin.WATCH_METADATA.read,
        controller.WatchMetadataRequest(),
        controller.WatchMetadataRequest(node_id=0, node_epoch=0, position={}),
        ("node_id", "node_epoch", "position"),
    ),
    "OffsetCommit": (
        lambda message: groups.read_commit(message, TOPICS).request,
        group.OffsetCommitRequest(group_id="g", topics=[OFFSET]),
        group.OffsetCommitRequest(
            group_id="g", topics=[OFFSET], generation_id_or_member_epoch=0, group_instance_id="", coordinator_epoch=0,
            sequence=0,
        ),
        ("member_epoch", "instance_id", "coordinator_epoch", "sequence"),
    ),
    "TxnOffsetCommit": (
        lambda message: groups.read_txn_commit(message, TOPICS).request,
        group.TxnOffsetCommitRequest(group_id="g", topics=[OFFSET]),
        group.TxnOffsetCommitRequest(group_id="g", topics=[OFFSET], generation_id=0, group_instance_id=""),
        ("member_epoch", "instance_id"),
    ),
    "OffsetFetch": (
        lambda message: groups.read_offset_fetch(message, TOPICS)[0].request,
        group.OffsetFetchRequest(groups=[{"group_id": "g"}]),
        group.OffsetFetchRequest(groups=[{"group_id": "g", "topics": {}, "member_id": "", "member_epoch": 0}]),
        ("partitions", "member_id", "member_epoch"),
    ),
    "Subscribe": (
        subscription.read_wanted,
        metadata.SubscribeRequest(),
        metadata.SubscribeRequest(since={}),
        ("since",),
    ),
    "as_of": (
        subscription.read_as_of,
        metadata.AsOf(),
        metadata.AsOf(node_id=0),
        ("node_id",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_absent_field_is_none(case: str) -> None:
    """Each by itself, while the same field with its default value is read as what it says."""
    read, absent, given, fields = CASES[case]
    missing = {name: attrgetter(name)(read(absent)) for name in fields}
    present = {name: attrgetter(name)(read(given)) for name in fields}

    assert missing == dict.fromkeys(fields)
    assert None not in present.values()


def test_the_epoch_of_a_committed_offset_is_its_own_field() -> None:
    """An offset that was committed without its leader epoch is of no epoch, and not of epoch 0."""
    epochs = []
    for fields in ({}, {"committed_leader_epoch": 0}):
        message = group.OffsetCommitRequest(group_id="g")
        message.topics.add(topic_id=ID).partitions.add(partition_index=0, committed_offset=5, **fields)
        (offset,) = groups.read_commit(message, TOPICS).request.offsets
        epochs.append(offset.leader_epoch)

    assert epochs == [None, 0]


PARTITIONS = [partition_pb2.FetchPartition() for _ in range(50)]
HEADERS = [record_pb2.SimpleRecord(headers=[record_pb2.RecordHeader()] * 9) for _ in range(10)]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (leader.FetchRequest(topics=[partition_pb2.FetchTopic(partitions=PARTITIONS)] * 2), 102),
        (leader.DescribePartitionsRequest(topics=[partition_pb2.TopicPartitions(partitions=[1] * 99)]), 100),
        (
            leader.ProduceRequest(
                topic_data=[leader.ProduceTopic(partition_data=[leader.ProducePartition(simple_records=HEADERS)])]
            ),
            102,
        ),
        (controller.CreateTopicsRequest(topics=[controller.CreatableTopic(configs={"a": "1", "b": "2"})] * 3), 9),
        (controller.ListNodesRequest(), 0),
    ],
    ids=["fetch", "packed numbers", "records and their headers", "maps", "nothing"],
)
def test_entries_are_counted_at_every_depth(message: Any, named: int) -> None:
    """A request is rejected exactly when all its repeated fields together have more entries than the limit."""
    assert not names_too_much(message, named)
    assert named == 0 or names_too_much(message, named - 1)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (partition_pb2.ReplicaState(replica_epoch=1), "replica_id and replica_epoch"),
        (partition_pb2.ReplicaState(replica_id=1), "replica_id and replica_epoch"),
        (partition_pb2.ReplicaState(replica_id=-1, replica_epoch=1), "replica_id -1 must be a node's id"),
    ],
    ids=["no id", "no epoch", "Kafka's id of a client"],
)
def test_a_replica_names_its_id_and_its_epoch(state: partition_pb2.ReplicaState, words: str) -> None:
    """An absent one is never node 0 or epoch 0, whose acknowledgement would count for another."""
    with pytest.raises(Refused, match=words) as refused:
        read_replica(state)

    assert refused.value.refusal.code is ErrorCode.INVALID_REQUEST


def test_node_0_in_epoch_0_is_a_replica_too() -> None:
    """What is given is read as it is."""
    given = partition_pb2.ReplicaState(replica_id=0, replica_epoch=0)

    assert read_replica(given) == (NodeId(0), NodeEpoch(0))
