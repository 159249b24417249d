"""Which clients pass the handshake: those with a valid certificate of the authority, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from grpc_health.v1 import health_pb2, health_pb2_grpc
from guarded_service import guarded

from strandline.cli.local.authority import new_authority
from strandline.core.messages import Endpoint
from strandline.rpc.channels import target
from strandline.rpc.tls import TlsFiles

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


def _raw(files: TlsFiles, *, ca: bytes | None = None) -> grpc.ChannelCredentials:
    """Credentials as they are in the files: the caller's side checks nothing, like a stranger."""
    return grpc.ssl_channel_credentials(ca or files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    """An authority."""
    return Certificates.at(tmp_path)


@pytest.mark.parametrize("who", ["client/x", "admin/x", "replica/2", "controller/controller"])
async def test_every_role_may_ask_for_health(made: Certificates, who: str) -> None:
    """A certificate of the authority passes, and health is open to all roles."""
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, _raw(made.files(who))) == "OK"


async def test_nobody_without_a_certificate(made: Certificates) -> None:
    """Neither plain text nor TLS without a client certificate reaches a handler: UNAVAILABLE."""
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, None) == "UNAVAILABLE"
        assert await _status(endpoint, grpc.ssl_channel_credentials(made.authority.pem)) == "UNAVAILABLE"


async def test_nobody_of_a_foreign_authority(made: Certificates) -> None:
    """The right names do not help a certificate of another authority: UNAVAILABLE."""
    files = made.files("client/x", signed_by=new_authority("c1", 1))
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, _raw(files)) == "UNAVAILABLE"


async def test_nobody_whose_certificate_expired(made: Certificates) -> None:
    """An expired certificate is rejected: UNAVAILABLE."""
    files = made.files("client/x", now=datetime.now(UTC) - timedelta(days=2))
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, _raw(files)) == "UNAVAILABLE"


async def test_a_clients_certificate_serves_nobody(made: Certificates) -> None:
    """Used as a server's it is rejected by the client: it names no host and has no server's purpose."""
    async with guarded(made.tls("client/x", hosts=())) as endpoint:
        assert await _status(endpoint, _raw(made.files("client/y"))) == "UNAVAILABLE"


async def test_a_server_must_be_named_as_it_is_dialled(made: Certificates) -> None:
    """A client rejects a server with a certificate for another host."""
    async with guarded(made.tls("replica/1", hosts=("node-1.example",))) as endpoint:
        assert await _status(endpoint, _raw(made.files("client/x"))) == "UNAVAILABLE"


async def test_nobody_of_another_cluster(made: Certificates) -> None:
    """A certificate of the same authority for another cluster has no permission: PERMISSION_DENIED."""
    files = made.files("client/x", cluster="c2")
    async with guarded(made.tls("replica/1")) as endpoint:
        assert await _status(endpoint, _raw(files)) == "PERMISSION_DENIED"
