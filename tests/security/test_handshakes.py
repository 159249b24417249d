"""Which clients pass the handshake, and that it may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from certificates import Certificates, unchecked
from grpc_health.v1 import health_pb2, health_pb2_grpc
from guarded_service import guarded, stub
from proxy import Proxy

from strandline.cli.local.authority import new_authority
from strandline.core.messages import Endpoint
from strandline.rpc.channels import reconnection, target
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


@pytest.mark.parametrize("who", ["client/x", "admin/x", "replica/2", "controller/controller"])
async def test_every_role_may_ask_for_health(made: Certificates, who: str) -> None:
    """A certificate of the authority passes, and health is open to all roles."""
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, unchecked(made.files(who))) == "OK"


@pytest.mark.parametrize("stranger", ["in plain text", "without a certificate", "foreign", "expired"])
async def test_a_stranger_reaches_no_handler(made: Certificates, stranger: str) -> None:
    """Plain text, no certificate, one of another authority or an expired one, the right names besides: UNAVAILABLE."""
    foreign = made.files("client/foreign", signed_by=new_authority("c1", 1))
    expired = made.files("client/expired", now=datetime.now(UTC) - timedelta(days=2))
    credentials = {
        "in plain text": None,
        "without a certificate": grpc.ssl_channel_credentials(made.authority.pem),
        "foreign": unchecked(foreign),
        "expired": unchecked(expired),
    }
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, credentials[stranger]) == "UNAVAILABLE"


@pytest.mark.parametrize(("who", "hosts"), [("client/x", ()), ("replica/1", ("node-1.example",))])
async def test_a_client_rejects_what_is_no_such_server(made: Certificates, who: str, hosts: tuple[str, ...]) -> None:
    """A client's certificate has no host and no server's purpose; a server's must be for the host that is dialled."""
    async with guarded(made.tls(who, hosts=hosts)) as endpoint:
        assert await _status(endpoint, unchecked(made.files("client/y"))) == "UNAVAILABLE"


async def test_handshakes_that_do_not_go_on_hold_up_no_others(made: Certificates) -> None:
    """Peers without a certificate send the first byte of a handshake and no more; a client is served beside them."""
    async with guarded(made.tls("replica/1")) as endpoint:
        begun = [await asyncio.open_connection(endpoint.host, endpoint.port) for _ in range(100)]
        for _, writer in begun:
            writer.write(b"\x16")
        status = await _status(endpoint, unchecked(made.files("client/x")))
        for _, writer in begun:
            writer.close()

    assert status == "OK"


# A handshake may be slow: distant peers and busy machines are reached at the first attempt.


DEADLINE_S_SLOW = 10
_DELAY_MS = 60
"""Each way: a round trip takes more than the first back-off, which gRPC takes for the time that a connection needs."""


async def _produce(request: Any, context: Any) -> pb.ProduceResponse:
    return pb.ProduceResponse()


@pytest.fixture
async def far_away(made: Certificates) -> AsyncIterator[Proxy]:
    """An address whose connections go to a server, with every byte late."""
    async with guarded(made.tls("replica/1"), Produce=_produce) as server:
        proxy = Proxy(*server)
        proxy.start()
        proxy.slow(_DELAY_MS, None)
        yield proxy
        proxy.stop()


async def test_a_slow_handshake_is_waited_for(made: Certificates, far_away: Proxy) -> None:
    """A call that does not wait for the connection succeeds, by one connection."""
    async with stub(Endpoint("127.0.0.1", far_away.listen), made.tls("client/x")) as client:
        await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S_SLOW)

    assert far_away.connections == 1


async def test_without_that_patience_it_would_fail(made: Certificates, far_away: Proxy) -> None:
    """The same connection is aborted when an attempt may take no longer than the first back-off."""
    address, credentials = f"127.0.0.1:{far_away.listen}", unchecked(made.files("client/x"))
    async with grpc.aio.secure_channel(address, credentials, options=reconnection()) as channel:
        method = channel.unary_unary("/strandline.v1.LeaderService/Produce")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", timeout=DEADLINE_S_SLOW)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
