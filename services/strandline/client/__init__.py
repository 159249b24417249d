"""What a user imports: `Producer`, `Consumer`, `Admin`, and the errors they raise."""

from __future__ import annotations

from strandline.client.admin import Admin
from strandline.client.admin_answers import CreatedTopic, Election, ListedNode
from strandline.client.consumer import Consumer
from strandline.client.delivery import BatchOutcome, Delivery, RecordMetadata
from strandline.client.describing import DescribedReplica
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    ClusterUnreachable,
    LogTruncated,
    OffsetOutOfRange,
    SendFailed,
)
from strandline.client.fetched import ConsumerRecord, FetchedRecords
from strandline.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from strandline.client.producer import Producer

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "CreatedTopic",
    "DescribedReplica",
    "Election",
    "FoundOffset",
    "ListedNode",
    "BatchOutcome",
    "BufferFull",
    "ClientClosed",
    "ClusterUnreachable",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "FetchedRecords",
    "LogTruncated",
    "OffsetOutOfRange",
    "Producer",
    "RecordMetadata",
    "SendFailed",
]
