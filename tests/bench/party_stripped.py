"""The stripped pipeline: a leader, two followers and a client on the same stack, with nothing of a product in it.

The contract's messages, encoded and read around their records as Strandline's are, on gRPC streams under uvloop,
carried by what STRANDLINE_GRPC_TRANSPORT names; a batch is checked by its CRC, appended with pwrite, read with pread by
two followers that append it too, and acknowledged when both have it. No epochs, no ISR, no recovery, no limits, no
second partition. What Strandline costs beyond it is Strandline's own (`make bench WHAT=anatomy`).

Run as `party_stripped.py lead DIR`, which prints its port, and `party_stripped.py follow PORT DIR`.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import crc32c
import grpc
import uvloop

from strandline.records.batch import Buffer
from strandline.rpc import transports
from strandline.rpc.channels import message_limits
from strandline.rpc.convert.fetch import open_fetch_stream
from strandline.rpc.convert.produce import STREAM_REQUESTS
from strandline.rpc.wire_fields import tag, varint
from strandline.runtime.malloc import keep_large_buffers
from strandline.v1 import leader_service_pb2 as pb, partition_pb2

TOPIC = "stripped"
MAX_ANSWER_BYTES = 1 << 20
FOLLOWERS = 2
_RESPONSES = tag(pb.FetchStreamResponse, "responses")
_PARTITIONS = tag(partition_pb2.FetchTopicResponse, "partitions")
_RECORDS = tag(partition_pb2.FetchPartitionResponse, "records")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CHECKED_FROM = 21


class Log:
    """One file; offset n is the n-th batch."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / "log", os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o644)
        self.ends = [0]

    @property
    def leo(self) -> int:
        """The offset of the next batch."""
        return len(self.ends) - 1

    def append(self, records: Buffer, batches: Iterable[int]) -> None:
        """Append bytes that hold batches of these sizes."""
        os.pwrite(self._fd, records, self.ends[-1])
        for size_bytes in batches:
            self.ends.append(self.ends[-1] + size_bytes)

    def read(self, offset: int) -> tuple[bytes, list[int]]:
        """The batches from ``offset`` on, at most `MAX_ANSWER_BYTES`, at least one; and their sizes."""
        end = offset + 1
        while end < self.leo and self.ends[end + 1] - self.ends[offset] <= MAX_ANSWER_BYTES:
            end += 1
        sizes = [self.ends[n + 1] - self.ends[n] for n in range(offset, end)]
        return os.pread(self._fd, sum(sizes), self.ends[offset]), sizes


def check(records: Buffer) -> None:
    """The CRC of one batch must hold."""
    view = memoryview(records)
    if _CRC.unpack_from(view, _CRC_AT)[0] != crc32c.crc32c(view[_CHECKED_FROM:]):
        raise SystemExit("a batch is damaged")


class Writer:
    """The answers of one stream, written in order by one task."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._waiting: deque[Any] = deque()
        self._wake: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(self._write())

    def put(self, message: Any) -> None:
        """Queue a message."""
        self._waiting.append(message)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _write(self) -> None:
        while True:
            while self._waiting:
                await self._context.write(self._waiting.popleft())
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake


class Leader:
    """Both stream methods of the leader."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._leos: dict[Writer, int] = {}
        self._parked: dict[Writer, tuple[int, int]] = {}
        self._unacknowledged: deque[tuple[int, int, Writer]] = deque()
        self._hw = 0

    async def produce(self, _: object, context: Any) -> None:
        """Append what comes and answer it when both followers have it."""
        writer = Writer(context)
        while (message := await context.read()) is not grpc.aio.EOF:
            records = message.records[0]
            check(records)
            self._unacknowledged.append((self._log.leo, message.message.correlation_id, writer))
            self._log.append(records, [len(records)])
            for parked, (correlation_id, offset) in tuple(self._parked.items()):
                self._answer(parked, correlation_id, offset)
        writer.task.cancel()

    async def fetch(self, _: object, context: Any) -> None:
        """Count a fetch as the acknowledgement of what lies below it; answer it now or when records come."""
        writer = Writer(context)
        while (message := await context.read()) is not grpc.aio.EOF:
            offset = message.topics[0].partitions[0].fetch_offset
            self._leos[writer] = offset
            if offset < self._log.leo:
                self._answer(writer, message.correlation_id, offset)
            else:
                self._parked[writer] = message.correlation_id, offset
            if len(self._leos) == FOLLOWERS:
                self._commit(min(self._leos.values()))
        del self._leos[writer]
        writer.task.cancel()

    def _answer(self, writer: Writer, correlation_id: int, offset: int) -> None:
        self._parked.pop(writer, None)
        records, _ = self._log.read(offset)
        row = partition_pb2.FetchPartitionResponse(partition_index=0, high_watermark=self._hw).SerializeToString()
        row += _RECORDS + varint(len(records))
        topic = partition_pb2.FetchTopicResponse(topic=TOPIC).SerializeToString()
        topic += _PARTITIONS + varint(len(row) + len(records))
        answer = pb.FetchStreamResponse(correlation_id=correlation_id).SerializeToString()
        answer += _RESPONSES + varint(len(topic) + len(row) + len(records))
        writer.put([answer + topic + row, records])

    def _commit(self, offset: int) -> None:
        self._hw = max(self._hw, offset)
        while self._unacknowledged and self._unacknowledged[0][0] < self._hw:
            base_offset, correlation_id, writer = self._unacknowledged.popleft()
            row = pb.ProducePartitionResponse(index=0, base_offset=base_offset)
            topics = [pb.ProduceTopicResponse(name=TOPIC, partition_responses=[row])]
            writer.put(pb.ProduceStreamResponse(correlation_id=correlation_id, responses=topics))


async def lead(directory: Path) -> None:
    """Serve until killed."""
    keep_large_buffers()
    server = transports.aio().server(options=[*message_limits(), ("grpc.so_reuseport", 0)])
    leader = Leader(Log(directory))
    handlers = {
        "ProduceStream": grpc.stream_stream_rpc_method_handler(
            leader.produce, STREAM_REQUESTS.read, pb.ProduceStreamResponse.SerializeToString
        ),
        "FetchStream": grpc.stream_stream_rpc_method_handler(leader.fetch, pb.FetchStreamRequest.FromString, b"".join),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("strandline.v1.LeaderService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def follow(port: int, directory: Path) -> None:
    """Copy the leader's log until killed."""
    keep_large_buffers()
    log = Log(directory)
    async with transports.aio().insecure_channel(f"127.0.0.1:{port}", options=message_limits()) as channel:
        call: Any = open_fetch_stream(channel)
        correlation_id = 0
        while True:
            correlation_id += 1
            partition = partition_pb2.FetchPartition(partition=0, fetch_offset=log.leo)
            topics = [partition_pb2.FetchTopic(topic=TOPIC, partitions=[partition])]
            await call.write(pb.FetchStreamRequest(correlation_id=correlation_id, topics=topics))
            answer = await call.read()
            if answer is grpc.aio.EOF:
                return
            records = answer.records[0]
            log.append(records, _checked_sizes(records))


def _checked_sizes(records: Buffer) -> Iterable[int]:
    at = 0
    while at < len(records):
        size_bytes = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        check(memoryview(records)[at : at + size_bytes])
        yield size_bytes
        at += size_bytes


if __name__ == "__main__":
    if sys.argv[1] == "lead":
        uvloop.run(lead(Path(sys.argv[2])))
    else:
        uvloop.run(follow(int(sys.argv[2]), Path(sys.argv[3])))
