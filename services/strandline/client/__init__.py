"""What a user imports: `Producer`, `Consumer`, `Admin`, what they take and return, and the errors they raise."""

from __future__ import annotations

from strandline.client.admin import Admin
from strandline.client.admin_answers import CreatedTopic, Election, ListedNode
from strandline.client.consumer import Consumer
from strandline.client.deletion import DeletedRecords
from strandline.client.delivery import BatchOutcome, Delivery, RecordMetadata
from strandline.client.describing import DescribedReplica
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    ClusterUnreachable,
    ControllersAway,
    LogTruncated,
    NotAController,
    OffsetOutOfRange,
    SendFailed,
    SendToDeletedTopic,
    TopicDeleted,
    UnreadableBatch,
)
from strandline.client.fetched import ConsumerRecord, FetchedRecords
from strandline.client.interceptor import Interceptor, OutgoingRecord
from strandline.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from strandline.client.producer import Producer
from strandline.client.serialization import DeserializationFailed, SerializationFailed
from strandline.client.stats import ConsumerStats, PartitionStats, ProducerStats
from strandline.client.topic_partition import TopicPartition
from strandline.core.errors import ControllerHint, ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import (
    ConfigSource,
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
    PartitionView,
    Position,
    PositionProof,
    Reign,
    ReplicaStateView,
    ReplicaView,
    TopicConfig,
    TopicImage,
)
from strandline.core.types import Acks, Durability, FetchHw, IsrJoin, Role, Rules, Truncation
from strandline.records.codec import NewRecord, Record
from strandline.records.compression import Compression
from strandline.rpc.convert_controllers import ControllerDescribed
from strandline.rpc.forks import ForkedAfterUse
from strandline.rpc.tls_files import TlsWrong

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Acks",
    "Admin",
    "BatchOutcome",
    "BufferFull",
    "ClientClosed",
    "ClusterUnreachable",
    "Compression",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "ConsumerStats",
    "ControllersAway",
    "CreatedTopic",
    "DeletedRecords",
    "Delivery",
    "DeserializationFailed",
    "Durability",
    "ControllerDescribed",
    "ControllerHint",
    "DescribedReplica",
    "Election",
    "Endpoint",
    "ErrorCode",
    "FetchHw",
    "FetchedRecords",
    "ForkedAfterUse",
    "FoundOffset",
    "Interceptor",
    "IsrJoin",
    "ListedNode",
    "LogTruncated",
    "MetadataImage",
    "NewRecord",
    "NodeImage",
    "NotAController",
    "OffsetOutOfRange",
    "Outcome",
    "OutgoingRecord",
    "PartitionImage",
    "Position",
    "PositionProof",
    "Reign",
    "PartitionStats",
    "PartitionView",
    "Producer",
    "ProducerStats",
    "Record",
    "RecordMetadata",
    "Refusal",
    "Refused",
    "ReplicaStateView",
    "ReplicaView",
    "Role",
    "Rules",
    "SendFailed",
    "SendToDeletedTopic",
    "SerializationFailed",
    "UnreadableBatch",
    "TlsWrong",
    "TopicConfig",
    "TopicDeleted",
    "TopicImage",
    "TopicPartition",
    "Truncation",
]
