"""The plaintext port for probes: grpc.health.v1 and nothing else, from before the first log is opened.

A kubelet's gRPC probes speak no TLS, so this port never does; any client that reaches it learns whether a process
lives and is ready, by the names `LIVENESS` and `READINESS` of `rpc.server`, and can ask for nothing more.

Invariant: the port answers while the process still recovers, and is the last one to close.
"""

from __future__ import annotations

import grpc
import structlog

from strandline.core.messages import Endpoint
from strandline.rpc.channels import parse_endpoint, target
from strandline.rpc.server import PortTaken, RoleHealth, ServerSettings, build_server

_PROBES_AT_ONCE = 100
_GRACE_S = 0.2

_log = structlog.get_logger("strandline.health")


class HealthPort:
    """The port of one process over the health that its other ports serve too."""

    def __init__(self, name: str, health: RoleHealth) -> None:
        self._name = name
        self._health = health
        self._server: grpc.aio.Server | None = None

    async def open(self, address: str) -> Endpoint | None:
        """Begin the health and, unless ``address`` is empty, serve it there; returns the address with its port.

        Raises:
            PortTaken: the address cannot be bound.
        """
        await self._health.begin()
        if not address:
            return None
        settings = ServerSettings(name=self._name, reflection=False, max_concurrent_rpcs=_PROBES_AT_ONCE)
        self._server = build_server(settings)
        self._health.attach_alone(self._server)
        endpoint = _bind_plain(self._server, parse_endpoint(address))
        await self._server.start()
        _log.info("health is served", address=target(endpoint), tls=False)
        return endpoint

    async def close(self) -> None:
        """Answer no more probes."""
        if self._server is not None:
            await self._server.stop(_GRACE_S)


def _bind_plain(server: grpc.aio.Server, endpoint: Endpoint) -> Endpoint:
    try:
        port = server.add_insecure_port(target(endpoint))
    except RuntimeError as error:
        raise PortTaken(endpoint) from error
    if port == 0:
        raise PortTaken(endpoint)
    return Endpoint(endpoint.host, port)
