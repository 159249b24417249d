"""What a user imports: `Producer`, `Consumer`, `Admin`, what they take and return, and the errors they raise."""

from __future__ import annotations

from strandline.client.admin import Admin
from strandline.client.admin_answers import CreatedTopic, Election, ListedNode
from strandline.client.committed_offsets import OffsetAndMetadata, Offsets
from strandline.client.consumer import Consumer
from strandline.client.deletion import DeletedRecords
from strandline.client.delivery import BatchOutcome, Delivery, RecordMetadata
from strandline.client.described import (
    ConfigSource,
    DescribedCluster,
    DescribedController,
    DescribedFollower,
    DescribedLeader,
    DescribedNode,
    DescribedPartition,
    DescribedReplica,
    DescribedTopic,
    Endpoint,
    ReplicaState,
    TopicConfig,
)
from strandline.client.described_groups import DescribedGroup, DescribedMember, ListedGroup
from strandline.client.described_transactions import DescribedTransaction, ListedTransaction, PartitionProducer
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    ClusterUnreachable,
    CommitFailed,
    ControllersAway,
    GroupsIncomplete,
    LogTruncated,
    NotAController,
    NothingCommitted,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    SendFailed,
    SendToDeletedTopic,
    TopicDeleted,
    TransactionAborted,
    TransactionsIncomplete,
    UnreadableBatch,
    WrongLoop,
)
from strandline.client.fetched import ConsumerRecord, FetchedRecords
from strandline.client.hanging import HangingTransaction
from strandline.client.interceptor import Interceptor, OutgoingRecord
from strandline.client.lag import Lag
from strandline.client.membership import GroupMetadata
from strandline.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from strandline.client.producer import Producer
from strandline.client.rebalance_listener import RebalanceListener
from strandline.client.serialization import DeserializationFailed, SerializationFailed
from strandline.client.stats import ConsumerStats, PartitionStats, ProducerStats
from strandline.client.topic_partition import TopicPartition
from strandline.client.transaction import Transaction, run_in_transaction
from strandline.core.errors import ControllerHint, ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import Acks, LeaderEpoch, Offset
from strandline.records.codec import NewRecord, Record, encode_batch
from strandline.records.compression import Compression
from strandline.rpc.forks import ForkedAfterUse
from strandline.rpc.tls_files import TlsWrong
from strandline.runtime.malloc import keep_large_buffers

__all__ = [
    "Acks",
    "Admin",
    "BatchOutcome",
    "BufferFull",
    "ClientClosed",
    "ClusterUnreachable",
    "CommitFailed",
    "Compression",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "ConsumerStats",
    "ControllerHint",
    "ControllersAway",
    "CreatedTopic",
    "DeletedRecords",
    "Delivery",
    "DescribedCluster",
    "DescribedController",
    "DescribedFollower",
    "DescribedGroup",
    "DescribedLeader",
    "DescribedMember",
    "DescribedNode",
    "DescribedPartition",
    "DescribedReplica",
    "DescribedTopic",
    "DescribedTransaction",
    "DeserializationFailed",
    "EARLIEST",
    "Election",
    "Endpoint",
    "ErrorCode",
    "FetchedRecords",
    "ForkedAfterUse",
    "FoundOffset",
    "GroupMetadata",
    "GroupsIncomplete",
    "HangingTransaction",
    "Interceptor",
    "LATEST",
    "Lag",
    "LeaderEpoch",
    "ListedGroup",
    "ListedNode",
    "ListedTransaction",
    "LogTruncated",
    "MAX_TIMESTAMP",
    "NewRecord",
    "NotAController",
    "NothingCommitted",
    "Offset",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "Offsets",
    "Outcome",
    "OutcomeUnknown",
    "OutgoingRecord",
    "PartitionProducer",
    "PartitionStats",
    "Producer",
    "ProducerFenced",
    "ProducerStats",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Refusal",
    "Refused",
    "ReplicaState",
    "SendFailed",
    "SendToDeletedTopic",
    "SerializationFailed",
    "TlsWrong",
    "TopicConfig",
    "TopicDeleted",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionsIncomplete",
    "UnreadableBatch",
    "WrongLoop",
    "encode_batch",
    "keep_large_buffers",
    "run_in_transaction",
]
