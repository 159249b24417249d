"""The port for probes: it is open before anything is served, and ready includes serving."""

from __future__ import annotations

from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel, target
from strandline.rpc.server import LIVENESS, READINESS, HealthPort, PortTaken, RoleHealth

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _said(endpoint: Endpoint | None) -> list[int]:
    """Liveness, readiness and the empty name."""
    assert endpoint is not None
    async with open_channel(endpoint) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answers = [
            await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            for name in (LIVENESS, READINESS, "")
        ]
    return [answer.status for answer in answers]


async def test_what_does_not_serve_is_never_ready() -> None:
    """Readiness ends with the services at a stop, and begins only once they are there."""
    health = RoleHealth([])
    port = HealthPort("test", health)
    endpoint = await port.open("127.0.0.1:0")

    begun = await _said(endpoint)
    await health.set_ready(True)
    ready_alone = await _said(endpoint)
    await health.set_serving(True)
    serving = await _said(endpoint)
    await health.set_serving(False)
    stopping = await _said(endpoint)
    await port.close()

    assert begun == [SERVING, NOT_SERVING, NOT_SERVING]
    assert ready_alone == [SERVING, NOT_SERVING, NOT_SERVING]
    assert serving == [SERVING, SERVING, SERVING]
    assert stopping == [SERVING, NOT_SERVING, NOT_SERVING]


async def test_no_address_means_no_port() -> None:
    """An empty setting opens nothing, and closing is harmless."""
    port = HealthPort("test", RoleHealth([]))

    assert await port.open("") is None
    await port.close()


async def test_a_taken_port_is_said() -> None:
    """Two processes never share the port silently."""
    first, second = HealthPort("first", RoleHealth([])), HealthPort("second", RoleHealth([]))
    endpoint = await first.open("127.0.0.1:0")
    assert endpoint is not None

    with pytest.raises(PortTaken, match=str(endpoint.port)):
        await second.open(target(endpoint))

    await first.close()
    await second.close()
