"""A process of many subscribers, each with a connection of its own, that count bytes and read positions only.

`metadata_subscribers.py FIRST COUNT TOPICS ADDRESS...`: subscriber n is at address n, in turn, and wants topic n.
Prints `ready` when each has its state, and after a line on its standard input what each has reached, as JSON. A
subscriber whose server is gone goes to the next address with the position that it has.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc

from strandline.v1 import metadata_service_pb2 as pb, partition_pb2

METHOD = "/strandline.v1.MetadataService/Subscribe"
TOPIC = "gate-"
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.min_reconnect_backoff_ms", 50)]
_AS_OF = 0x0A
"""The tag of as_of, which is the first field of every message."""


class Subscriber:
    """One subscriber of one topic: the bytes that it was sent, and when it reached which offset, as (monotonic s,
    offset)."""

    def __init__(self, number: int, topics: int, addresses: Sequence[str]) -> None:
        self._topic = f"{TOPIC}{number % topics}"
        self._addresses = addresses
        self._at = number % len(addresses)
        self._as_of = b""
        self.bytes_in = 0
        self.times: list[tuple[float, int]] = []
        self.begun = asyncio.Event()

    async def follow_forever(self) -> None:
        """Subscribe, at one address after the other."""
        while True:
            channel = grpc.aio.insecure_channel(self._addresses[self._at], _OPTIONS)
            try:
                await self._follow(channel)
            except grpc.aio.AioRpcError:
                self._at = (self._at + 1) % len(self._addresses)
            finally:
                await channel.close()

    async def _follow(self, channel: grpc.aio.Channel) -> None:
        call: Any = channel.stream_stream(METHOD)()
        request = pb.SubscribeRequest(add_topics=[partition_pb2.TopicReference(name=self._topic)])
        if self._as_of:
            request.since.ParseFromString(self._as_of)
        await call.write(request.SerializeToString())
        while (message := await call.read()) is not grpc.aio.EOF:
            self.take(message, time.monotonic())
            self.begun.set()

    def take(self, message: bytes, now_s: float) -> None:
        """Count a message, and keep its position as it came."""
        assert message[0] == _AS_OF, "a message of a subscription begins with its position"
        # A position is below 128 bytes, so its length is one byte.
        self._as_of = message[2 : 2 + message[1]]
        self.bytes_in += len(message)
        offset = pb.AsOf.FromString(self._as_of).metadata_offset
        if not self.times or offset > self.times[-1][1]:
            self.times.append((now_s, offset))


async def run(first: int, count: int, topics: int, addresses: Sequence[str]) -> None:
    """Follow until a line comes, then say what was reached."""
    subscribers = [Subscriber(number, topics, addresses) for number in range(first, first + count)]
    following = [asyncio.create_task(subscriber.follow_forever()) for subscriber in subscribers]
    for subscriber in subscribers:
        await subscriber.begun.wait()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    print(json.dumps([(subscriber.bytes_in, subscriber.times) for subscriber in subscribers]), flush=True)


if __name__ == "__main__":
    asyncio.run(run(*map(int, sys.argv[1:4]), sys.argv[4:]))  # type: ignore[arg-type]  # three numbers
