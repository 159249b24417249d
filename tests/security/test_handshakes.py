"""Which clients pass the handshake, and that it may be slow."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from grpc_health.v1 import health_pb2, health_pb2_grpc
from guarded_service import guarded, stub

from strandline.cli.local.authority import new_authority
from strandline.core.messages import Endpoint
from strandline.rpc.channels import reconnection, target
from strandline.rpc.tls import TlsFiles
from strandline.v1 import leader_service_pb2 as pb

pytestmark = pytest.mark.usefixtures("carried_by")

DEADLINE_S = 5


async def _status(endpoint: Endpoint, credentials: grpc.ChannelCredentials | None) -> str:
    """The result of a health check of the server."""
    address = target(endpoint)
    opened = grpc.aio.secure_channel(address, credentials) if credentials else grpc.aio.insecure_channel(address)
    async with opened as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


def _raw(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials as they are in the files: the caller's side checks nothing, like a stranger."""
    return grpc.ssl_channel_credentials(*(path.read_bytes() for path in (files.ca, files.key, files.cert)))


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    """An authority."""
    return Certificates.at(tmp_path)


@pytest.mark.parametrize("who", ["client/x", "admin/x", "replica/2", "controller/controller"])
async def test_every_role_may_ask_for_health(made: Certificates, who: str) -> None:
    """A certificate of the authority passes, and health is open to all roles."""
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, _raw(made.files(who))) == "OK"


@pytest.mark.parametrize("stranger", ["in plain text", "without a certificate", "foreign", "expired"])
async def test_a_stranger_reaches_no_handler(made: Certificates, stranger: str) -> None:
    """Plain text, no certificate, one of another authority or an expired one, the right names besides: UNAVAILABLE."""
    foreign = made.files("client/foreign", signed_by=new_authority("c1", 1))
    expired = made.files("client/expired", now=datetime.now(UTC) - timedelta(days=2))
    credentials = {
        "in plain text": None,
        "without a certificate": grpc.ssl_channel_credentials(made.authority.pem),
        "foreign": _raw(foreign),
        "expired": _raw(expired),
    }
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, credentials[stranger]) == "UNAVAILABLE"


@pytest.mark.parametrize(("who", "hosts"), [("client/x", ()), ("replica/1", ("node-1.example",))])
async def test_a_client_rejects_what_is_no_such_server(made: Certificates, who: str, hosts: tuple[str, ...]) -> None:
    """A client's certificate has no host and no server's purpose; a server's must be for the host that is dialled."""
    async with guarded(made.tls(who, hosts=hosts)) as endpoint:
        assert await _status(endpoint, _raw(made.files("client/y"))) == "UNAVAILABLE"


async def test_handshakes_that_do_not_go_on_hold_up_no_others(made: Certificates) -> None:
    """Peers without a certificate send the first byte of a handshake and no more; a client is served beside them."""
    async with guarded(made.tls("replica/1")) as endpoint:
        begun = [await asyncio.open_connection(endpoint.host, endpoint.port) for _ in range(100)]
        for _, writer in begun:
            writer.write(b"\x16")
        status = await _status(endpoint, _raw(made.files("client/x")))
        for _, writer in begun:
            writer.close()

    assert status == "OK"


# A handshake may be slow: distant peers and busy machines are reached at the first attempt.


DEADLINE_S_SLOW = 10
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


async def test_a_slow_handshake_is_waited_for(made: Certificates) -> None:
    """A call that does not wait for the connection succeeds, by one connection."""
    async with guarded(made.tls("replica/1"), Produce=_produce) as server:
        far = FarAway(server)
        endpoint = await far.start()
        async with stub(endpoint, made.tls("client/x")) as client:
            await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S_SLOW)
        await far.stop()

    assert far.connections == 1


async def test_without_that_patience_it_would_fail(made: Certificates) -> None:
    """The same connection is aborted when an attempt may take no longer than the first back-off."""
    async with guarded(made.tls("replica/1"), Produce=_produce) as server:
        far = FarAway(server)
        endpoint = await far.start()
        address = f"{endpoint.host}:{endpoint.port}"
        async with grpc.aio.secure_channel(address, _raw(made.files("client/x")), options=reconnection()) as channel:
            method = channel.unary_unary("/strandline.v1.LeaderService/Produce")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(b"", timeout=DEADLINE_S_SLOW)
        await far.stop()

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
