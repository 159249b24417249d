"""The public client API: `Producer`, `Consumer`, `Admin`, their argument and result types, and their errors."""

from __future__ import annotations

from strandline.client.admin import Admin
from strandline.client.administer.admin_answers import (
    CreatedTopic,
    DrainedNode,
    Election,
    ListedNode,
    OngoingReassignment,
    Reassigned,
)
from strandline.client.administer.described import (
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
from strandline.client.administer.described_by_coordinators import (
    DescribedGroup,
    DescribedMember,
    DescribedTransaction,
    ListedGroup,
    ListedTransaction,
    PartitionProducer,
)
from strandline.client.administer.transaction_admin import HangingTransaction
from strandline.client.consume.positions import Lag
from strandline.client.consumer import Consumer
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
from strandline.client.groups.committed_offsets import OffsetAndMetadata, Offsets
from strandline.client.groups.membership import GroupMetadata
from strandline.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, DeletedRecords, FoundOffset
from strandline.client.produce.delivery import BatchOutcome, Delivery, RecordMetadata
from strandline.client.produce.transaction import Transaction
from strandline.client.producer import Producer, run_in_transaction
from strandline.client.records import ConsumerRecord, FetchedRecords, RebalanceListener, TopicPartition
from strandline.client.serialization import DeserializationFailed, Interceptor, OutgoingRecord, SerializationFailed
from strandline.client.stats import ConsumerStats, PartitionStats, ProducerStats
from strandline.client.token import NoToken
from strandline.core.errors import ControllerHint, ErrorCode, Outcome, Refusal, Refused
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaChange, QuotaKey
from strandline.core.types import Acks, LeaderEpoch, Offset
from strandline.records.codec import NewRecord, Record, encode_batch
from strandline.records.compression import Compression
from strandline.rpc.channels import ForkedAfterUse
from strandline.rpc.tls import TlsWrong
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
    "DrainedNode",
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
    "NoToken",
    "NothingCommitted",
    "Offset",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "Offsets",
    "OngoingReassignment",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "OutgoingRecord",
    "PartitionProducer",
    "PartitionStats",
    "Pattern",
    "Permission",
    "Producer",
    "ProducerFenced",
    "ProducerStats",
    "Reassigned",
    "Quota",
    "QuotaChange",
    "QuotaKey",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Refusal",
    "Refused",
    "ReplicaState",
    "ResourceType",
    "Rule",
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
