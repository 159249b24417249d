"""Encoded answers and saved metadata: equal to protobuf's own, and what decoding one may cost."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import crc32c
import pytest
from fixed_topics import FixedTopics
from hypothesis import given, strategies as st
from tests.core.metadata_images import image, node, partition, topic
from tests.fuzz.target_messages import agree

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import FetchResult, LeaderHint, PositionProof, Reign, ServedPartition
from strandline.core.types import AbortedTransaction, EpochEnd, LeaderEpoch, NodeEpoch, NodeId, Offset, TopicPartition
from strandline.records.batch import UNPACKED_RECORDS, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression
from strandline.rpc.convert import metadata
from strandline.rpc.convert.errors import Unresolved
from strandline.rpc.convert.fetch import STREAM_ANSWERS, encode_fetch_answer, fetch_topics
from strandline.rpc.convert.metadata import write_image
from strandline.rpc.convert.produce import STREAM_REQUESTS
from strandline.rpc.convert.records import MOST_BYTES, Decoded, FetchedBatches, decode_records
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes
from strandline.rpc.wire_fields import grouped
from strandline.v1 import controller_service_pb2, leader_service_pb2 as pb, partition_pb2

OFFSETS = st.integers(0, 2**62).map(Offset)
REFUSALS = st.just(Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "ask another"))

results = st.builds(
    FetchResult,
    st.builds(TopicPartition, st.sampled_from(["a" * 36, "b" * 36]), st.integers(0, 2**31 - 1)),
    st.none() | OFFSETS,
    st.none() | OFFSETS,
    diverging=st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1).map(LeaderEpoch), OFFSETS),
    refusal=st.none() | REFUSALS,
    leader_hint=st.none() | st.just(LeaderHint(NodeId(2), LeaderEpoch(3))),
    barrier=st.none() | st.integers(0, 2**63 - 1),
    last_stable_offset=st.none() | OFFSETS,
    aborted=st.lists(
        st.builds(AbortedTransaction, st.integers(0, 2**63 - 1), OFFSETS, OFFSETS, OFFSETS), max_size=3
    ).map(tuple),
)

payloads = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 70_000]).map(lambda size: b"r" * size)
served = st.lists(st.builds(ServedPartition, results, payloads), max_size=4)

unresolved = st.lists(
    st.builds(Unresolved, st.sampled_from(["", "t"]), st.just("c" * 36), st.integers(0, 9), REFUSALS), max_size=2
)


@given(st.integers(0, 2**63 - 1), served, unresolved)
def test_an_encoded_answer_is_the_same_message(
    correlation_id: int, parts: list[ServedPartition], vain: list[Unresolved]
) -> None:
    """Decoded, it has every field and every partition, at all lengths at which a length prefix grows."""
    topics = FixedTopics()
    found = pb.FetchStreamResponse.FromString(b"".join(encode_fetch_answer(correlation_id, parts, vain, topics)))

    wanted = pb.FetchStreamResponse(correlation_id=correlation_id)
    wanted.responses.extend(fetch_topics((), vain, topics))
    wanted.responses.extend(fetch_topics(parts, (), topics))
    assert found == wanted


TP0, TP1 = TopicPartition("id", 0), TopicPartition("id", 1)


def _batch(base_offset: int, *values: bytes, compression: Compression = Compression.NONE) -> bytes:
    plain = bytearray(encode_batch([NewRecord(None, value, 5) for value in values], compression=compression))
    stamp(plain, base_offset, 3)
    return bytes(plain)


def _claiming(base_offset: int, records: int) -> bytes:
    """A batch that declares this many records, in a body that is no zstd data."""
    batch = bytearray(_batch(base_offset, b"x" * 20))
    struct.pack_into(">hi", batch, 21, Compression.ZSTD, records - 1)
    struct.pack_into(">i", batch, 57, records)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def _decoded(payload: bytes, start: int = 0) -> Decoded:
    return decode_records([FetchedBatches(TP0, payload)], {TP0: Offset(start)})[TP0]


def _offsets(decoded: Decoded) -> list[int]:
    return [record.offset for record in decoded.records]


def test_a_batch_of_too_many_records_is_refused_by_its_header() -> None:
    """A batch of too many records is rejected by its header, and its body is never decoded: here it holds none."""
    found = _decoded(_claiming(7, UNPACKED_RECORDS + 1), 7)

    assert found.refusal is not None and not found.records
    assert found.refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    for words in ("offset 7 ", str(UNPACKED_RECORDS), "without decode", f"from offset {UNPACKED_RECORDS + 8} on"):
        assert words in found.refusal.message


def test_what_is_readable_in_front_of_a_bad_batch_is_answered() -> None:
    """The batches before it come without an error; the next fetch begins at the bad batch and gets the error."""
    payload = _batch(0, b"a", b"b") + _claiming(2, 3) + _batch(5, b"c")
    first, second = _decoded(payload), _decoded(payload[len(_batch(0, b"a", b"b")) :], 2)

    assert (_offsets(first), first.refusal) == ([0, 1], None)
    assert second.refusal is not None and second.refusal.code is ErrorCode.CORRUPT_MESSAGE
    assert "offset 2 " in second.refusal.message and "from offset 5 on" in second.refusal.message


def test_records_that_are_too_large_as_messages_are_refused() -> None:
    """A batch that expands beyond what one answer holds is expanded no further."""
    found = _decoded(_batch(0, *[bytes(500_000)] * 2, compression=Compression.ZSTD))
    large = encode_batch([NewRecord(None, bytes(MOST_BYTES), 5)], compression=Compression.ZSTD, max_bytes=8 << 20)
    refused = _decoded(large)

    assert _offsets(found) == [0, 1]
    assert refused.refusal is not None and refused.refusal.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_answer_may_be_filled_to_its_last_byte() -> None:
    """Records that take exactly what one answer holds are given; one byte more is too large."""
    room_bytes = MOST_BYTES - 32

    def refusal_of(size_bytes: int) -> ErrorCode | None:
        record = NewRecord(None, bytes(size_bytes), 5)
        batch = bytearray(encode_batch([record], compression=Compression.ZSTD, max_bytes=8 << 20))
        stamp(batch, 0, 3)
        refusal = _decoded(bytes(batch)).refusal
        return refusal.code if refusal else None

    assert refusal_of(room_bytes) is None
    assert refusal_of(room_bytes + 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_partitions_share_the_room_of_one_answer() -> None:
    """Batches without room are left for the next fetch, without an error."""
    record = NewRecord(None, bytes(3 << 20), 5)
    large = bytearray(encode_batch([record], compression=Compression.ZSTD, max_bytes=8 << 20))
    stamp(large, 0, 3)
    found = decode_records(
        [FetchedBatches(TP0, bytes(large)), FetchedBatches(TP1, bytes(large))], {TP0: Offset(0), TP1: Offset(0)}
    )

    assert _offsets(found[TP0]) == [0]
    assert found[TP1] == Decoded([], next_offset=Offset(0))


def test_an_answer_gives_up_after_several_bad_batches() -> None:
    """Many partitions with a bad batch each cost no more than a few."""
    tps = [TopicPartition("id", index) for index in range(12)]
    found = decode_records([FetchedBatches(tp, _claiming(0, 3)) for tp in tps], dict.fromkeys(tps, Offset(0)))

    assert [found[tp].refusal is not None for tp in tps] == [True] * 8 + [False] * 4


ONE = image(7, topic("a", partition("a", 0)), topic("b"), nodes=(node(1),))
REIGN = Reign("a" * 32, ONE.controller_epoch, 1, "")
OWN = PositionProof(NodeEpoch(3), ONE.controller_epoch, 7, b"m" * 32, REIGN.reign_id)
LATER = OWN._replace(metadata_offset=9)
SAVED = replace(ONE, to_node_epoch=NodeEpoch(3), reigns=(REIGN,), removed_node_ids=(node(4).node_id,))


@pytest.mark.parametrize("position", [None, OWN, LATER])
@pytest.mark.parametrize("registered", [None, LATER])
def test_what_is_saved_is_read_as_it_was(position: PositionProof | None, registered: PositionProof | None) -> None:
    """With each of the positions that go with it, or without."""
    saved = replace(SAVED, position=position, registered=registered)

    assert image_from_bytes(ImageWriter().to_bytes(saved)) == saved


def test_a_byte_that_changed_makes_it_no_metadata() -> None:
    """Wherever the byte is: damaged metadata is never read as other metadata."""
    content = ImageWriter().to_bytes(replace(SAVED, position=OWN))
    flipped = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(len(content))]

    assert [image_from_bytes(one) for one in flipped] == [None] * len(flipped)


@pytest.mark.parametrize("body", [b"no message", b""], ids=["no message", "of a later release"])
def test_what_this_release_cannot_read_is_no_metadata(body: bytes) -> None:
    """A whole file that is no message, or has a rule that this release does not know, stops no node."""
    message = controller_service_pb2.WatchMetadataResponse(metadata=write_image(SAVED), is_snapshot=True)
    message.metadata.rules.truncation = 99  # type: ignore[assignment]
    body = body or message.SerializeToString()

    assert image_from_bytes(b"SLM2" + crc32c.crc32c(body).to_bytes(4, "big") + body) is None


@pytest.mark.parametrize("form", [b"SLM1", b"SLM2"])
def test_a_file_cut_off_behind_its_head_is_damaged(form: bytes) -> None:
    """A head alone is no metadata, though zeros are the checksum of nothing: a node must not read a cluster without
    nodes and topics from it."""
    assert image_from_bytes(form + bytes(4)) is None


def test_a_topic_that_stayed_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second save encodes the topic that changed; a topic that is gone is forgotten, and both read as they are."""
    encoded: list[str] = []
    real = metadata.write_topic
    monkeypatch.setattr(metadata, "write_topic", lambda each: encoded.append(each.name) or real(each))
    writer = ImageWriter()
    writer.to_bytes(SAVED)
    a, b = SAVED.topics
    changed = replace(SAVED, topics=(replace(a, partitions=(partition("a", 0, epoch=2),)), b))
    second = image_from_bytes(writer.to_bytes(changed))
    third = image_from_bytes(writer.to_bytes(replace(changed, topics=(b,))))
    writer.to_bytes(changed)

    assert encoded == ["a", "b", "a", "a"]
    assert second == changed
    assert third == replace(changed, topics=(b,))


# ---- records that are read apart from their message

SIZES = (100_000, 0, 2_100_000)  # lengths of three and of four bytes, and a row without records


def _request() -> bytes:
    rows = [pb.ProducePartition(index=index, records=bytes(size)) for index, size in enumerate(SIZES)]
    topics = [pb.ProduceTopic(name=name, partition_data=rows) for name in "ab"]
    return pb.ProduceStreamRequest(
        correlation_id=1, acks=-1, topic_data=topics, transactional_id="t"
    ).SerializeToString()


def _answer(*sizes: int) -> bytes:
    rows = [
        partition_pb2.FetchPartitionResponse(
            partition_index=index, high_watermark=1 << 40, records=bytes(size), barrier=7
        )
        for index, size in enumerate(sizes)
    ]
    topics = [partition_pb2.FetchTopicResponse(topic=name, partitions=rows) for name in "ab"]
    return pb.FetchStreamResponse(correlation_id=1, responses=topics).SerializeToString()


@pytest.mark.parametrize(
    ("reader", "content"), [(STREAM_REQUESTS, _request()), (STREAM_ANSWERS, _answer(*SIZES))], ids=["request", "answer"]
)
def test_records_are_views_of_what_arrived(reader: Any, content: bytes) -> None:
    """Each row has its records, which are not copied, and the message has them no more."""
    found = reader.read(content)

    assert [len(one) for one in found.records] == [*SIZES, *SIZES]
    assert all(one.obj is content for one in found.records)
    assert (found.size_bytes, found.message.ByteSize() < 1_000) == (len(content), True)
    agree(type(found.message), content)


def test_small_parts_are_joined_and_none_is_empty() -> None:
    """A large part is not copied, and an empty one is not given to the socket (CPython 155888)."""
    large = bytes(5_000)

    assert grouped([b"", b"a", b"b", large, large, b"", b"c", b""]) == [b"ab", large, large, b"c"]
    assert grouped([large])[0] is large


def test_many_small_rows_are_left_to_protobuf() -> None:
    """Looking at their fields would take longer than copying them, and a hostile message would stop the event loop."""
    content = _answer(*[100] * 1_000)
    found = STREAM_ANSWERS.read(content)

    assert len(found.records) == 2_000
    assert not any(one.obj is content for one in found.records)
