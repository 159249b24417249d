"""Compressed batches at one real node: what may be stored, and that decompression does not block other callers."""

from __future__ import annotations

import asyncio
import gzip
import random
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import crc32c
import lz4.frame
import pytest
import zstandard
from controller_stub import ControllerStub, topic
from nodes_in_process import (
    TOPIC,
    TOPIC_ID,
    batch,
    fetch,
    follower_stub,
    leader_stub,
    produce,
    produce_message,
    running_nodes,
    values_of,
)

from strandline.core.errors import ErrorCode
from strandline.records import codec, compression
from strandline.records.batch import HEADER_BYTES, UNPACKED_RECORDS
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression
from strandline.v1 import follower_service_pb2, leader_service_pb2 as pb, record_pb2

MIB = 1 << 20
LIMIT = 2_000_000


def _controller(*, limit: int | None = None) -> ControllerStub:
    image = topic(TOPIC, TOPIC_ID, (1,))
    configs = () if limit is None else (("max.decompressed.bytes", str(limit)),)
    return ControllerStub(replace(image, configs=configs))


def _of(body: bytes, codec: int, records: int = 1) -> bytes:
    """A batch with a right CRC around any bytes, of another client's codec or of none."""
    made = bytearray(batch("x")[:HEADER_BYTES]) + body
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">hi", made, 21, codec, records - 1)
    struct.pack_into(">i", made, 57, records)
    struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


def _zstd_stream(size_bytes: int) -> bytes:
    """Zeros as a streaming writer compresses them, in more blocks than are counted; it declares no size."""
    stream = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    block = bytes(30_000)
    blocks = [
        stream.compress(block) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for _ in range(0, size_bytes, len(block))
    ]
    return b"".join(blocks) + stream.flush()


def _zstd_declaring(size_bytes: int) -> bytes:
    return struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x58, size_bytes) + b"\x01\0\0"


def _row(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: _of(gzip.compress(bytes(65 * MIB), 9), Compression.GZIP),
    "snappy that declares it": lambda: _of(b"\x80\x80\x80\x80\x0f" + b"\0" * 20, Compression.SNAPPY),
    "lz4": lambda: _of(lz4.frame.compress(bytes(65 * MIB), store_size=False), Compression.LZ4),
    "lz4 that declares it": lambda: _of(lz4.frame.compress(bytes(65 * MIB)), Compression.LZ4),
    "zstd that declares 10 GiB": lambda: _of(_zstd_declaring(10 << 30), Compression.ZSTD),
    "zstd of one frame after another": lambda: _of(_zstd_stream(65 * MIB), Compression.ZSTD),
}


async def test_a_batch_that_no_consumer_could_expand_is_not_stored(tmp_path: Path) -> None:
    """With any codec, declared size or not, it is rejected with the setting that it breaks."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        rows = {name: _row(await stub.Produce(produce(bomb()), timeout=30)) for name, bomb in BOMBS.items()}
        good = _row(await stub.Produce(produce(batch("good")), timeout=5))

    for name, row in rows.items():
        assert (name, row.error_code, row.outcome) == (
            name,
            ErrorCode.MESSAGE_TOO_LARGE,
            pb.PRODUCE_OUTCOME_NOT_APPENDED,
        )
        assert f"max.decompressed.bytes={64 * MIB}; send smaller batches" in row.error_message
    assert "10737418240" in rows["zstd that declares 10 GiB"].error_message
    assert good.base_offset == 0


async def test_a_topic_may_allow_less(tmp_path: Path) -> None:
    """``max.decompressed.bytes`` of the topic is the limit: a batch at the limit is stored, one byte more is not."""
    record = len(encode_batch([NewRecord(None, bytes(LIMIT), 1)], max_bytes=8 * MIB)) - HEADER_BYTES - LIMIT
    fits, too_large = (
        encode_batch([NewRecord(None, bytes(size), 1)], max_bytes=8 * MIB, compression=Compression.ZSTD)
        for size in (LIMIT - record, LIMIT - record + 1)
    )
    async with running_nodes(_controller(limit=LIMIT), tmp_path) as (node,), leader_stub(node) as stub:
        stored = _row(await stub.Produce(produce(fits), timeout=5))
        refused = _row(await stub.Produce(produce(too_large), timeout=5))

    assert (stored.error_code, stored.base_offset) == (0, 0)
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"max.decompressed.bytes={LIMIT}" in refused.error_message


async def test_a_stream_keeps_its_order_around_a_batch_that_is_expanded(tmp_path: Path) -> None:
    """A batch that must be expanded is appended in its order, and a rejected one does not end the stream."""
    value = random.Random(1).randbytes(20_000)
    expanded = encode_batch([NewRecord(None, value * 50, 1)], max_bytes=8 * MIB, compression=Compression.GZIP)
    sent = (batch("a"), expanded, BOMBS["gzip"](), batch("b"))
    async with running_nodes(_controller(limit=LIMIT), tmp_path) as (node,), leader_stub(node) as stub:
        stream = stub.ProduceStream()
        for number, records in enumerate(sent):
            await stream.write(produce_message(number, records))
        answers = {}
        for _ in sent:
            answer = await stream.read()
            answers[answer.correlation_id] = _row(answer)
        await stream.done_writing()

    assert [answers[number].base_offset for number in (0, 1, 3)] == [0, 1, 2]
    assert answers[2].error_code == ErrorCode.MESSAGE_TOO_LARGE


PACKERS: dict[int, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip.compress,
    Compression.SNAPPY: lambda raw: bytes(cramjam.snappy.compress_raw(raw)),
    Compression.LZ4: lambda raw: bytes(lz4.frame.compress(raw, store_size=False)),
    Compression.ZSTD: lambda raw: bytes(zstandard.ZstdCompressor(write_content_size=False).compress(raw)),
}


@pytest.mark.parametrize("codec", PACKERS, ids=lambda codec: Compression(codec).name.lower())
async def test_a_batch_that_counts_more_records_than_it_can_hold_is_refused(tmp_path: Path, codec: int) -> None:
    """The log's end must not jump over offsets that no record has: a record needs seven bytes, whatever its codec."""
    body = PACKERS[codec](bytes(7_000))
    sent = [_of(body, codec, count) for count in (1_001, 2**31 - 1, 1_000)]
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        one_more, most, whole = [_row(await stub.Produce(produce(records), timeout=30)) for records in sent]
        after = _row(await stub.Produce(produce(batch("after")), timeout=30))

    for row in (one_more, most):
        assert (row.error_code, row.outcome) == (ErrorCode.INVALID_RECORD, pb.PRODUCE_OUTCOME_NOT_APPENDED)
        assert "is impossible: 7000 bytes hold at most 1000 records" in row.error_message
    assert (whole.error_code, whole.base_offset, after.base_offset) == (0, 0, 1_000)


async def test_an_honest_batch_is_not_expanded_for_its_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the compressed bytes alone could hold the records, no request waits for a decompression."""
    monkeypatch.setattr(compression, "expanded_bytes", lambda *given: pytest.fail("expanded"))
    rows = [NewRecord(None, random.Random(number).randbytes(100), 1) for number in range(50)]
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        stored = [
            _row(await stub.Produce(produce(encode_batch(rows, compression=Compression(codec))), timeout=5))
            for codec in PACKERS
        ]

    assert [row.base_offset for row in stored] == [0, 50, 100, 150, 200]


async def test_bytes_that_a_node_finds_to_be_no_records_are_refused(tmp_path: Path) -> None:
    """Bytes that are not a valid zstd body must be expanded to get their size, so the damage is detected."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        row = _row(await stub.Produce(produce(_of(b"no zstd data", Compression.ZSTD)), timeout=5))

    assert (row.error_code, row.outcome) == (ErrorCode.INVALID_RECORD, pb.PRODUCE_OUTCOME_NOT_APPENDED)
    assert "zstd" in row.error_message


def _simple(count: int) -> pb.ProduceRequest:
    """A produce of this many records as messages."""
    request = produce(b"")
    request.topic_data[0].partition_data[0].simple_records.extend([record_pb2.SimpleRecord(value=b"x")] * count)
    return request


class Gate:
    """A function that waits in its thread until the test, on the event loop, releases it."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self._open = threading.Event()
        self.entered = threading.Event()
        self.was_let_go = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.entered.set()
        # On the event loop it could not be released, and the test would fail below.
        self.was_let_go = self._open.wait(5)
        return self._real(*given, **named)

    def let_go(self) -> None:
        """Release the waiting function."""
        self._open.set()


async def _meanwhile(gate: Gate, slow: Any, stub: Any) -> Any:
    """Start ``slow``, let another caller produce while it is running, and return its answer."""
    waiting = asyncio.ensure_future(slow)
    await asyncio.to_thread(gate.entered.wait, 5)
    await stub.Produce(produce(batch("meanwhile")), timeout=5)
    gate.let_go()
    return await waiting


@pytest.mark.parametrize("role", ["leader", "leader by stream", "follower"])
async def test_others_are_served_while_records_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """A fetch with decode decodes batches outside the event loop, at the leader and at a follower."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2), min_isr=2))
    async with (
        running_nodes(controller, tmp_path, (1, 2)) as nodes,
        leader_stub(nodes[0]) as leader,
        follower_stub(nodes[1]) as follower,
    ):
        await leader.Produce(produce(batch("a")), timeout=5)
        asked = fetch(0).topics
        # Parked until the follower knows that the record is committed.
        await follower.Fetch(follower_service_pb2.FollowerServiceFetchRequest(topics=asked, max_wait_ms=5_000))
        gate = Gate(codec.iterate_batch)
        monkeypatch.setattr(codec, "iterate_batch", gate)
        if role == "leader":
            fetching = leader.Fetch(fetch(0), timeout=20)
        elif role == "follower":
            fetching = follower.Fetch(follower_service_pb2.FollowerServiceFetchRequest(topics=asked, decode=True))
        else:
            stream = leader.FetchStream()
            await stream.write(pb.FetchStreamRequest(correlation_id=3, topics=asked, decode=True))
            fetching = stream.read()
        answer = await _meanwhile(gate, fetching, leader)

    assert gate.was_let_go
    assert values_of(answer) == ["a"]


async def test_others_are_served_while_records_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A produce with records as messages encodes its batch outside the event loop."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        gate = Gate(codec.encode_batch)
        monkeypatch.setattr(codec, "encode_batch", gate)
        answer = await _meanwhile(gate, stub.Produce(_simple(2), timeout=20), stub)

    assert gate.was_let_go
    assert _row(answer).base_offset == 1


async def test_others_are_served_while_a_time_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ListOffsets by time decodes the batch outside the event loop."""
    request = pb.ListOffsetsRequest()
    request.topics.add(name=TOPIC).partitions.add(partition_index=0, timestamp=1_700_000_000_001)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        await stub.Produce(produce(batch("a", "b")), timeout=5)
        gate = Gate(codec.iterate_batch)
        monkeypatch.setattr(codec, "iterate_batch", gate)
        answer = await _meanwhile(gate, stub.ListOffsets(request, timeout=20), stub)

    assert gate.was_let_go
    assert answer.topics[0].partitions[0].offset == 1


async def test_others_are_served_while_a_batch_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose size is found only by expanding it is expanded outside the event loop."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        gate = Gate(compression.expanded_bytes)
        monkeypatch.setattr(compression, "expanded_bytes", gate)
        answer = await _meanwhile(gate, stub.Produce(produce(BOMBS["gzip"]()), timeout=20), stub)

    assert gate.was_let_go
    assert _row(answer).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_batch_of_too_many_records_answers_a_time_itself(tmp_path: Path) -> None:
    """Its header is trusted and its body is not unpacked: here it holds no records, and the answer does not show it."""
    count = UNPACKED_RECORDS + 1
    packed = _of(gzip.compress(b"no records" * count), Compression.GZIP, count)
    request = pb.ListOffsetsRequest()
    request.topics.add(name=TOPIC).partitions.add(partition_index=0, timestamp=1)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        await stub.Produce(produce(batch("a", timestamp_ms=0)), timeout=5)
        await stub.Produce(produce(packed), timeout=5)
        found = (await stub.ListOffsets(request, timeout=5)).topics[0].partitions[0]

    assert (found.error_code, found.offset) == (0, 1)
