"""The contract keeps Kafka's meaning, and changes that would break a caller are found."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor

from strandline.core.errors import ErrorCode
from strandline.v1 import error_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos" / "strandline" / "v1"


# Kafka's message definitions give these the default -1 (clients/src/main/resources/common/message/*.json).
KAFKA_DEFAULT_MINUS_ONE = """
    ReplicaState.replica_id ReplicaState.replica_epoch
    CurrentLeader.leader_id CurrentLeader.leader_epoch
    EpochEndOffset.epoch EpochEndOffset.end_offset
    FetchPartition.current_leader_epoch FetchPartition.last_fetched_epoch FetchPartition.log_start_offset
    FetchPartitionResponse.last_stable_offset FetchPartitionResponse.log_start_offset
    FetchPartitionResponse.preferred_read_replica
    OffsetForLeaderPartition.current_leader_epoch
    OffsetForLeaderPartitionResult.leader_epoch OffsetForLeaderPartitionResult.end_offset
    AlterPartitionRequest.node_epoch IsrMember.node_epoch
    ProducePartitionResponse.log_append_time_ms ProducePartitionResponse.log_start_offset
    ListOffsetsPartition.current_leader_epoch
    ListOffsetsPartitionResponse.timestamp ListOffsetsPartitionResponse.offset
    ListOffsetsPartitionResponse.leader_epoch
    RegisterNodeResponse.node_epoch HeartbeatRequest.node_epoch ShutdownNodeRequest.node_epoch
    PartitionMetadata.leader_id
    CreatableTopic.num_partitions CreatableTopic.replication_factor
    CreatedTopic.num_partitions CreatedTopic.replication_factor
    InitProducerIdRequest.producer_id InitProducerIdRequest.producer_epoch InitProducerIdResponse.producer_id
""".split()


# Not -1 in Kafka, but 0 is not the meaning of their absence here either.
ABSENCE_HAS_A_MEANING = """
    ProduceRequest.acks ProduceRequest.timeout_ms ProduceStreamRequest.acks ProduceStreamRequest.timeout_ms
    FetchRequest.max_wait_ms FetchRequest.min_bytes FetchRequest.max_bytes
    FetchStreamRequest.max_wait_ms FetchStreamRequest.min_bytes FetchStreamRequest.max_bytes
    FollowerServiceFetchRequest.max_wait_ms FollowerServiceFetchRequest.min_bytes
    FollowerServiceFetchRequest.max_bytes
    FetchPartition.partition_max_bytes ListOffsetsPartition.timestamp ListOffsetsRequest.timeout_ms
    ProducePartitionResponse.base_offset FetchPartitionResponse.high_watermark
    DeleteRecordsRequest.timeout_ms DeleteRecordsPartitionResult.low_watermark
    HeartbeatResponse.is_fenced WatchMetadataRequest.node_epoch WatchMetadataResponse.node_epoch
    FetchProducerSnapshotRequest.current_leader_epoch FetchProducerSnapshotResponse.log_start_offset
    RegisterNodeRequest.cluster_id PartitionMetadata.last_unclean_leader_epoch
""".split()


# A replica or a node sends these, so one of another cluster must be recognised (`cluster_id` is a field, not metadata).
INTERNAL_REQUESTS = """
    FetchRequest FetchStreamRequest OffsetForLeaderEpochRequest ListOffsetsRequest FetchProducerSnapshotRequest
    WriteTxnMarkersRequest RegisterNodeRequest HeartbeatRequest WatchMetadataRequest AlterPartitionRequest
""".split()


def _files() -> list[FileDescriptor]:
    modules = [importlib.import_module(f"strandline.v1.{path.stem}_pb2") for path in sorted(PROTOS.glob("*.proto"))]
    return [module.DESCRIPTOR for module in modules]


def _messages() -> dict[str, Descriptor]:
    return {name: message for file in _files() for name, message in file.message_types_by_name.items()}


def _services() -> list[ServiceDescriptor]:
    return [service for file in _files() for service in file.services_by_name.values()]


def _field(name: str) -> FieldDescriptor:
    message, field = name.split(".")
    return _messages()[message].fields_by_name[field]


def _fields_that_speak_of_absence() -> Iterator[str]:
    """Names of singular fields whose comment gives the meaning of absence, read from the proto files."""
    declaration = re.compile(
        r"((?:^ *//.*\n)+)^ *(repeated |map<.*?> )?(?:optional )?[\w.]+ (\w+) = \d+;", re.MULTILINE
    )
    for path in [*sorted(PROTOS.glob("*_service.proto")), PROTOS / "partition.proto", PROTOS / "metadata.proto"]:
        for block in re.finditer(r"^message (\w+) \{\n(.*?)^\}", path.read_text(), re.MULTILINE | re.DOTALL):
            for comment, repeated, field in declaration.findall(block[2]):
                if re.search(r"\babs(ent|ence)\b", comment) and not repeated:
                    yield f"{block[1]}.{field}"


@pytest.mark.parametrize("name", KAFKA_DEFAULT_MINUS_ONE + ABSENCE_HAS_A_MEANING)
def test_a_default_that_is_not_zero_is_optional(name: str) -> None:
    """proto3's 0 would turn a consumer into replica 0 and an unknown epoch into epoch 0."""
    assert _field(name).has_presence


def test_a_comment_about_absence_means_that_absence_can_be_seen() -> None:
    """Every singular field whose comment gives the meaning of absence has presence on the wire."""
    spoken_of = list(_fields_that_speak_of_absence())

    assert len(spoken_of) > 100
    assert [name for name in spoken_of if not _field(name).has_presence] == []


def test_error_numbers_are_kafkas() -> None:
    """The contract's ErrorCode and the core's have the same members; Kafka's NONE is named UNSPECIFIED here."""
    on_the_wire = {value.name: value.number for value in error_pb2.ErrorCode.DESCRIPTOR.values}
    in_the_core = {f"ERROR_CODE_{code.name if code else 'UNSPECIFIED'}": int(code) for code in ErrorCode}

    assert on_the_wire == in_the_core


def test_every_rpc_has_its_own_messages() -> None:
    """No request or response message serves two RPCs, so one can change without the other."""
    used = Counter(
        message.name
        for service in _services()
        for method in service.methods
        for message in (method.input_type, method.output_type)
    )

    assert used
    assert [name for name, times in used.items() if times > 1] == []
    assert [name for name in used if not name.endswith(("Request", "Response"))] == []


def test_every_error_has_a_sentence() -> None:
    """Every message with an error code can also carry the field, the rule and the remedy."""
    answers = [message for message in _messages().values() if message.name != "StateEvent"]
    with_code = [message for message in answers if "error_code" in message.fields_by_name]

    assert with_code
    assert [message.name for message in with_code if "error_message" not in message.fields_by_name] == []


@pytest.mark.parametrize("name", INTERNAL_REQUESTS)
def test_an_internal_request_names_its_cluster(name: str) -> None:
    """A request from a node of another cluster can always be rejected."""
    assert "cluster_id" in _messages()[name].fields_by_name


# `make check` compares the contract with the released one: buf finds changes that would break a caller.


ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).parent / "buf"


def _breaking(protos: Path) -> subprocess.CompletedProcess[str]:
    released = ROOT / "protos" / "released" / "v1.binpb"
    return subprocess.run(
        [str(BUF), "breaking", str(protos), "--against", str(released)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  bytes records = 2;\n", ""),
        ("bytes records = 2;", "bytes records = 12;"),
        ("bytes records = 2;", "bytes batches = 2;"),
        ("bytes records = 2;", "string records = 2;"),
    ],
)
def test_a_change_that_breaks_callers_is_found(before: str, after: str, tmp_path: Path) -> None:
    """A field that is renumbered, renamed, of another type or removed is rejected."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos", ignore=shutil.ignore_patterns("released"))
    contract = tmp_path / "protos" / "strandline" / "v1" / "leader_service.proto"
    text = contract.read_text()
    assert before in text
    contract.write_text(text.replace(before, after, 1))

    assert _breaking(tmp_path / "protos").returncode == 100
