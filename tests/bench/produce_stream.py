"""A client of ProduceStream, which Strandline and the stripped pipeline serve: acks=all, from outside.

Run as `produce_stream.py ADDRESS TOPIC PIDS SIZE WINDOW WARM RUN`; ADDRESS is the leader's, PIDS is `role:pid,...`. The
client is the contract and nothing more, so that only the services are measured; STRANDLINE_GRPC_TRANSPORT says what
carries it, and STRANDLINE_TLS_CERT, _KEY and _CA are its files with TLS.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import uvloop
from closed_loop import Send, pids_of, show_loop

from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.channels import open_channel, parse_endpoint
from strandline.rpc.tls import Tls, TlsFiles
from strandline.runtime.malloc import keep_large_buffers
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

TIMEOUT_MS = 30_000


def own_tls() -> Tls | None:
    """What the environment gives; None without TLS."""
    cert, key, ca = (os.environ.get(f"STRANDLINE_TLS_{name}") for name in ("CERT", "KEY", "CA"))
    return Tls(TlsFiles(cert=Path(cert), key=Path(key), ca=Path(ca))) if cert and key and ca else None


def stream_sender(channel: grpc.aio.Channel, topic: str, batch: bytes) -> Send:
    """Sends one batch on a long-lived ProduceStream. A measurement with any rejected request is invalid."""
    call = LeaderServiceStub(channel).ProduceStream()
    waiting: dict[int, asyncio.Future[None]] = {}
    sending = asyncio.Lock()
    last_id = 0

    async def read() -> None:
        async for answer in call:
            for partition in (partition for topic in answer.responses for partition in topic.partition_responses):
                if partition.error_code:
                    raise SystemExit(f"refused: {partition.error_message}")
            waiting.pop(answer.correlation_id).set_result(None)

    reading = asyncio.create_task(read())

    async def send() -> None:
        nonlocal last_id
        last_id += 1
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[last_id] = answered
        data = [pb.ProduceTopic(name=topic, partition_data=[pb.ProducePartition(index=0, records=batch)])]
        request = pb.ProduceStreamRequest(correlation_id=last_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)
        async with sending:
            await call.write(request)
        await asyncio.wait([answered, reading], return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            reading.result()
            raise SystemExit("the stream ended")

    return send


async def run(address: str, topic: str, pids: dict[str, int], size: int, numbers: Sequence[str]) -> None:
    """Measure one batch of about ``size`` bytes, not compressible; print one JSON line."""
    keep_large_buffers()
    batch = encode_batch([NewRecord(None, os.urandom(size - 100), 0)])
    async with open_channel(parse_endpoint(address), tls=own_tls()) as channel:
        await show_loop(stream_sender(channel, topic, batch), len(batch), numbers, pids)


if __name__ == "__main__":
    uvloop.run(run(*sys.argv[1:3], pids_of(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
