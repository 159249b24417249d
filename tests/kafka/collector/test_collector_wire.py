"""Our requests as kafka-python reads them, and answers that are none."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from strandline_kafka.collector import answers, requests
from strandline_kafka.metadata.wire import Unreadable

with warnings.catch_warnings():
    # It reads its schemas in a way that Python is going to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.admin import (
        DescribeConfigsRequest,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DescribeTopicPartitionsRequest,
    )
    from kafka.protocol.consumer import ListOffsetsRequest
    from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

READERS: list[Callable[[bytes], Any]] = [
    answers.read_versions, answers.read_metadata, answers.read_offsets, answers.read_min_isr, answers.read_elrs,
    answers.read_handshake, answers.read_authenticated, answers.read_quorum_hw,
]  # fmt: skip


def read(kind: Any, api: requests.Api, body: bytes) -> Any:
    """A request as the other codec reads it, whole."""
    frame = requests.framed(api, 77, body)
    (size,) = struct.unpack(">i", frame[:4])
    assert size == len(frame) - 4
    buffer = io.BytesIO(frame[4:])
    found = kind.decode(buffer, version=api.version, header=True)
    header = found.header
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (api.key, api.version, 77)
    assert buffer.read() == b""
    return found


def test_metadata_never_creates_a_topic() -> None:
    """Metadata names its topics, or asks for all, and forbids that one is created."""
    some = read(MetadataRequest, requests.METADATA, requests.metadata(["a", "b"]))
    assert ([one.name for one in some.topics], some.allow_auto_topic_creation) == (["a", "b"], False)
    assert read(MetadataRequest, requests.METADATA, requests.metadata(None)).topics is None


def test_offsets_are_asked_of_partitions_by_name() -> None:
    """ListOffsets has the replica and the time that were given, of every partition."""
    asked = {"a": [0, 3], "b": [1]}
    found = read(ListOffsetsRequest, requests.LIST_OFFSETS, requests.list_offsets(-2, -1, asked))
    assert found.replica_id == -2
    assert {one.name: [p.partition_index for p in one.partitions] for one in found.topics} == asked
    assert {p.timestamp for one in found.topics for p in one.partitions} == {-1}


def test_the_other_requests() -> None:
    """Settings, eligible replicas, versions and both steps of a login."""
    configs = read(DescribeConfigsRequest, requests.DESCRIBE_CONFIGS, requests.describe_min_isr(["a"]))
    (one,) = configs.resources
    assert (one.resource_type, one.resource_name, one.configuration_keys) == (2, "a", ["min.insync.replicas"])
    api = requests.DESCRIBE_TOPIC_PARTITIONS
    first = read(DescribeTopicPartitionsRequest, api, requests.describe_topic_partitions(["a"], None))
    assert ([t.name for t in first.topics], first.cursor) == (["a"], None)
    next_one = read(DescribeTopicPartitionsRequest, api, requests.describe_topic_partitions(["a"], ("a", 9))).cursor
    assert (next_one.topic_name, next_one.partition_index) == ("a", 9)
    hello = read(ApiVersionsRequest, requests.API_VERSIONS, requests.api_versions("1.0"))
    assert (hello.client_software_name, hello.client_software_version) == ("strandline-collect", "1.0")
    step = read(SaslHandshakeRequest, requests.SASL_HANDSHAKE, requests.sasl_handshake("PLAIN"))
    assert step.mechanism == "PLAIN"
    token = read(SaslAuthenticateRequest, requests.SASL_AUTHENTICATE, requests.sasl_authenticate(b"\0" * 200))
    assert bytes(token.auth_bytes) == b"\0" * 200


def quorum(error: int = 0, of_partition: int = 0, hw: int = 77, count: int = 1) -> bytes:
    """An answer to DescribeQuorum with two voters and one observer, written by the other codec."""
    topic = DescribeQuorumResponse.TopicData
    part = topic.PartitionData
    state = part.ReplicaState
    one = part(
        partition_index=0, error_code=of_partition, leader_id=3, leader_epoch=2, high_watermark=hw,
        current_voters=[state(replica_id=node, log_end_offset=hw + node) for node in (1, 2)],
        observers=[state(replica_id=9, log_end_offset=5)],
    )  # fmt: skip
    answer = DescribeQuorumResponse(
        error_code=error, topics=[topic(topic_name="__cluster_metadata", partitions=[one] * count)]
    )
    answer.API_VERSION = requests.DESCRIBE_QUORUM.version
    answer.with_header(5)
    return bytes(answer.encode(header=True))


def test_the_quorum_is_asked_how_far_its_log_is_committed() -> None:
    """DescribeQuorum names the one partition; of the answer only the high watermark is taken, or the error."""
    asked = read(DescribeQuorumRequest, requests.DESCRIBE_QUORUM, requests.describe_quorum())
    (topic,) = asked.topics
    assert (topic.topic_name, [p.partition_index for p in topic.partitions]) == ("__cluster_metadata", [0])
    given = [quorum(), quorum(error=31), quorum(of_partition=3), quorum(hw=-1), quorum(count=0), quorum(count=2)]
    assert [answers.read_quorum_hw(frame) for frame in given] == [
        (0, 77), (31, None), (3, None), (0, None), (0, None), (0, None),
    ]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_answer_or_unreadable(frame: bytes) -> None:
    """No reader fails in any other way, whatever a stranger sends."""
    for reader in READERS:
        try:
            reader(frame)
        except Unreadable:
            continue


def test_a_declared_length_is_not_believed() -> None:
    """An answer of few bytes that declares four thousand million topics is refused at once (W9)."""
    frame = struct.pack(">i", 1) + b"\0" + struct.pack(">i", 0) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(Unreadable, match="an array of 4294967294 elements is declared"):
        answers.read_offsets(frame)


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ({3: (0, 13), 2: (1, 11)}, None),
        (
            {3: (0, 9), 2: (1, 11)},
            "version 12 of Metadata is needed and the broker offers 0 to 9; Apache Kafka 3.3 and",
        ),
        ({3: (0, 13)}, "version 6 of ListOffsets is needed and the broker does not offer it"),
    ],
)
def test_what_a_broker_lacks_is_named(offered: requests.Offered, said: str | None) -> None:
    """A broker without what is needed is refused with the version and the release that has it."""
    found = requests.lacking(offered)
    assert found is None if said is None else str(found).startswith(said)
