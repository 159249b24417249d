"""Strandline's ProduceStream, from outside: acks=all, RF 3, against a running cluster.

Run as `party_strandline.py stream BOOTSTRAP TOPIC PIDS SIZE WINDOW WARM RUN`; PIDS is `node:pid,...`. The client
is the contract and nothing more, so that only the services are measured; STRANDLINE_GRPC_TRANSPORT says what carries
it, and STRANDLINE_TLS_CERT, _KEY and _CA are its files with TLS. `party_strandline.py leader BOOTSTRAP TOPIC` prints
the node id of the leader.
"""

from __future__ import annotations

import asyncio
import json
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
from strandline.v1 import (
    controller_service_pb2,
    controller_service_pb2_grpc,
    leader_service_pb2,
    leader_service_pb2_grpc,
)

TIMEOUT_MS = 30_000


def own_tls() -> Tls | None:
    """What the environment gives; None without TLS."""
    cert, key, ca = (os.environ.get(f"STRANDLINE_TLS_{name}") for name in ("CERT", "KEY", "CA"))
    return Tls(TlsFiles(cert=Path(cert), key=Path(key), ca=Path(ca))) if cert and key and ca else None


async def leader_of(bootstrap: str, topic: str) -> tuple[int, str]:
    """Node id and client address of the leader of partition 0."""
    async with open_channel(parse_endpoint(bootstrap), tls=own_tls()) as channel:
        stub = controller_service_pb2_grpc.ControllerServiceStub(channel)
        answer = await stub.GetMetadata(controller_service_pb2.GetMetadataRequest(), timeout=10)
    metadata = answer.metadata
    found = next(t for t in metadata.topics if t.name == topic)
    leader = found.partitions[0].leader_id
    node = next(n for n in metadata.nodes if n.node_id == leader)
    return leader, f"{node.endpoints.client.host}:{node.endpoints.client.port}"


def batch_of(size_bytes: int) -> bytes:
    """One record batch of about ``size_bytes``, not compressible."""
    return encode_batch([NewRecord(None, os.urandom(size_bytes - 100), 0)])


def topic_data(topic: str, batch: bytes) -> list[leader_service_pb2.ProduceTopic]:
    """One batch for partition 0."""
    partition = leader_service_pb2.ProducePartition(index=0, records=batch)
    return [leader_service_pb2.ProduceTopic(name=topic, partition_data=[partition])]


def check(responses: object) -> None:
    """A measurement with any rejected request is invalid."""
    for response in responses:  # type: ignore[attr-defined]  # a protobuf repeated field of either response
        for partition in response.partition_responses:
            if partition.error_code:
                raise SystemExit(f"refused: {partition.error_message}")


async def stream_sender(channel: grpc.aio.Channel, topic: str, batch: bytes) -> Send:
    """Sends one batch on a long-lived ProduceStream."""
    stub = leader_service_pb2_grpc.LeaderServiceStub(channel)
    call = stub.ProduceStream()
    waiting: dict[int, asyncio.Future[None]] = {}
    sending = asyncio.Lock()
    last_id = 0

    async def read() -> None:
        async for answer in call:
            check(answer.responses)
            waiting.pop(answer.correlation_id).set_result(None)

    reading = asyncio.create_task(read())

    async def send() -> None:
        nonlocal last_id
        last_id += 1
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[last_id] = answered
        request = leader_service_pb2.ProduceStreamRequest(
            correlation_id=last_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topic_data(topic, batch)
        )
        async with sending:
            await call.write(request)
        await asyncio.wait([answered, reading], return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            reading.result()
            raise SystemExit("the stream ended")

    return send


async def run(bootstrap: str, topic: str, pids: dict[str, int], size: int, numbers: Sequence[str]) -> None:
    """Measure and print one JSON line."""
    keep_large_buffers()
    leader, address = await leader_of(bootstrap, topic)
    batch = batch_of(size)
    async with open_channel(parse_endpoint(address), tls=own_tls()) as channel:
        send = await stream_sender(channel, topic, batch)
        parties = {"leader": pids.pop(str(leader)), **{f"follower{i}": pid for i, pid in enumerate(pids.values())}}
        await show_loop(send, len(batch), numbers, parties)


async def show_leader(bootstrap: str, topic: str) -> None:
    """Print the node id of the leader of partition 0."""
    print(json.dumps({"leader": (await leader_of(bootstrap, topic))[0]}))


if __name__ == "__main__":
    if sys.argv[1] == "leader":
        sys.exit(uvloop.run(show_leader(sys.argv[2], sys.argv[3])))
    uvloop.run(run(*sys.argv[2:4], pids_of(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]))
