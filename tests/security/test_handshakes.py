"""A handshake may be slow: distant peers and busy machines are reached at the first attempt."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from guarded_service import guarded, stub

from strandline.core.messages import Endpoint
from strandline.rpc.channels import reconnection
from strandline.v1 import leader_service_pb2 as pb

DEADLINE_S = 10
_DELAY_S = 0.12
"""More than the first back-off, which gRPC takes for the time that a connection may need."""


async def _produce(request: Any, context: Any) -> pb.ProduceResponse:
    return pb.ProduceResponse()


class FarAway:
    """Forwards bytes, those of the server late."""

    def __init__(self, server: Endpoint) -> None:
        self._server = server
        self.connections = 0
        self._forwarding: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> Endpoint:
        """Listen on a port that the kernel chooses."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return Endpoint("127.0.0.1", self._listening.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting connections, and close those that are open."""
        self._listening.close()
        # What the loop has accepted becomes a connection of ours in its next rounds.
        for _ in range(5):
            await asyncio.sleep(0)
        for task in self._forwarding:
            task.cancel()
        await asyncio.gather(*self._forwarding, return_exceptions=True)
        for writer in self._writers:
            # Without waiting for a peer to take what is still to be sent.
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        self._forwarding.add(asyncio.get_running_loop().create_task(self._forward(reader, writer)))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._server.host, self._server.port)
        self._writers.append(up_writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_hand_on(reader, up_writer, 0.0))
                tasks.create_task(_hand_on(up_reader, writer, _DELAY_S))
        finally:
            for one in (writer, up_writer):
                one.close()
            for one in (writer, up_writer):
                with contextlib.suppress(OSError):
                    await one.wait_closed()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(1 << 16):
            await asyncio.sleep(delay_s)
            writer.write(content)
            await writer.drain()
        writer.write_eof()


async def test_a_slow_handshake_is_waited_for(tmp_path: Path) -> None:
    """A call that does not wait for the connection succeeds, by one connection."""
    made = Certificates.at(tmp_path)
    async with guarded(made.tls("replica/1"), Produce=_produce) as server:
        far = FarAway(server)
        endpoint = await far.start()
        async with stub(endpoint, made.tls("client/x")) as client:
            await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
        await far.stop()

    assert far.connections == 1


async def test_without_that_patience_it_would_fail(tmp_path: Path) -> None:
    """The same connection is aborted when an attempt may take no longer than the first back-off."""
    made = Certificates.at(tmp_path)
    files = made.files("client/x")
    credentials = grpc.ssl_channel_credentials(*(path.read_bytes() for path in (files.ca, files.key, files.cert)))
    async with guarded(made.tls("replica/1"), Produce=_produce) as server:
        far = FarAway(server)
        endpoint = await far.start()
        address = f"{endpoint.host}:{endpoint.port}"
        async with grpc.aio.secure_channel(address, credentials, options=reconnection()) as channel:
            method = channel.unary_unary("/strandline.v1.LeaderService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(b"", timeout=DEADLINE_S)
        await far.stop()

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
