"""A log with transactions in a fake cluster: batches of two producers, and the markers that end them."""

from __future__ import annotations

import crc32c
from tests.client.fake_cluster import FakeCluster

from strandline.core.types import Marker
from strandline.records.batch import TRANSACTIONAL_BIT, parse_header, stamp
from strandline.records.codec import NewRecord, encode_batch, encode_marker

A, B = 7, 8


def send(cluster: FakeCluster, producer: int, *values: bytes) -> None:
    batch = bytearray(
        encode_batch([NewRecord(None, v, 1) for v in values], producer_id=producer, producer_epoch=0, base_sequence=0)
    )
    batch[22] |= TRANSACTIONAL_BIT
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    write(cluster, batch)


def end(cluster: FakeCluster, producer: int, *, commit: bool) -> None:
    marker = encode_marker(Marker(commit, 1), producer_id=producer, producer_epoch=1, timestamp_ms=1)
    write(cluster, bytearray(marker.view))


def write(cluster: FakeCluster, batch: bytearray) -> None:
    """A batch at the end of the only partition."""
    log = cluster.log(0)
    stamp(batch, log.leo, 1)
    log.batches.append(bytes(batch))
    log.leo += parse_header(batch).record_count
    log.wake()


def fill_committed(cluster: FakeCluster) -> None:
    """B commits what it sent at 1, A aborts what it sent at 0 and 2; the log ends with A's marker at 4."""
    send(cluster, A, b"a0")
    send(cluster, B, b"b1")
    send(cluster, A, b"a2")
    end(cluster, B, commit=True)
    end(cluster, A, commit=False)
    cluster.log(0).aborted = [(A, 0)]
