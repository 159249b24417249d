"""Single records as messages, in both directions."""

from __future__ import annotations

from strandline.core.types import Offset, TopicPartition
from strandline.records.batch import parse_header, stamp
from strandline.rpc.convert.records import FetchedBatches, decode_records, encode_records
from strandline.v1 import record_pb2


def test_records_go_in_as_messages_and_come_out_as_messages() -> None:
    """Records are returned as messages from the requested offset on, with the epoch of their batch."""
    messages = [record_pb2.SimpleRecord(value=value, timestamp_ms=7) for value in (b"a", b"b", b"c")]
    stored = bytearray(encode_records(messages, 0))
    stamp(stored, 20, 4)
    tp = TopicPartition("id", 0)
    found = decode_records([FetchedBatches(tp, bytes(stored))], {tp: Offset(21)})[tp]

    assert found.refusal is None
    assert [(row.value, row.offset, row.leader_epoch, row.timestamp_ms) for row in found.records] == [
        (b"b", 21, 4, 7),
        (b"c", 22, 4, 7),
    ]


def test_a_record_without_a_time_gets_the_time_it_came_at() -> None:
    """A record without a timestamp gets the current time."""
    batch = encode_records([record_pb2.SimpleRecord(value=b"a")], 12_345)

    assert parse_header(batch).max_timestamp_ms == 12_345
