"""What every server of ours has: its limits, its keepalive, its health and reflection, its port.

Invariant: a port belongs to one server. gRPC's default lets a second server share it in silence, so
so_reuseport is off and a taken port is a clear error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from strandline.core.messages import Endpoint
from strandline.rpc import forks, limits
from strandline.rpc.authorization import PermissionInterceptor
from strandline.rpc.channels import target
from strandline.rpc.interceptors import RefusalInterceptor, Reported
from strandline.rpc.method_table import MethodTable, TabledServer
from strandline.rpc.reflecting import enable_reflection
from strandline.rpc.tls import Tls

LIVENESS = "liveness"
READINESS = "readiness"
"""Names of health beside those of the services, for the operator or supervisor of the process."""


class PortTaken(OSError):
    """The address cannot be bound: another process has it, or it is not ours."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(f"cannot listen on {target(endpoint)}: the port is taken or the address is not local")
        self.endpoint = endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What differs between servers. ``internal_keepalive`` is for ports that only our own processes dial."""

    name: str
    reflection: bool = True
    internal_keepalive: limits.Keepalive | None = None
    max_concurrent_streams: int = limits.MAX_CONCURRENT_STREAMS
    max_concurrent_rpcs: int | None = 10_000
    handshake_ms: int = 20_000
    """How long a connection may take until it speaks HTTP/2, TLS included; gRPC's own patience is two minutes."""
    on_refusal: Reported = lambda _method, _refusal: None


def server_options(settings: ServerSettings) -> limits.Options:
    """The channel arguments of a server with these settings."""
    options = limits.message_limits()
    options += [
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.server_handshake_timeout_ms", settings.handshake_ms),
    ]
    if settings.max_concurrent_rpcs is not None:
        # Above 1,000 calls that it has not handed over yet gRPC cancels some at random, without a word. It shall hand
        # them all over: what exceeds max_concurrent_rpcs is then refused with RESOURCE_EXHAUSTED.
        options += [
            ("grpc.server.max_pending_requests", 2 * settings.max_concurrent_rpcs),
            ("grpc.server.max_pending_requests_hard_limit", 2 * settings.max_concurrent_rpcs),
        ]
    if settings.internal_keepalive is not None:
        options += limits.keepalive_pings(settings.internal_keepalive)
        options += limits.keepalive_tolerance(settings.internal_keepalive)
    return options


def build_server(
    settings: ServerSettings, interceptors: Sequence[grpc.aio.ServerInterceptor] = (), *, tls: Tls | None = None
) -> grpc.aio.Server:
    """A server without services; refusals mapped and everything else hidden before any other interceptor.

    With ``tls``, which `bind` needs too, callers may do what their certificates' identities may.
    """
    if tls is not None:
        interceptors = [PermissionInterceptor(tls.identity.cluster), *interceptors]
    forks.note_use()
    table = MethodTable()
    server = grpc.aio.server(
        handlers=[table],
        interceptors=[RefusalInterceptor(settings.name, reported=settings.on_refusal), *interceptors],
        options=server_options(settings),
        maximum_concurrent_rpcs=settings.max_concurrent_rpcs,
    )
    return TabledServer(server, table)


def bind(server: grpc.aio.Server, endpoint: Endpoint, *, tls: Tls | None = None) -> Endpoint:
    """Bind the address (port 0: the kernel chooses) and return it with the port it really has.

    Raises:
        PortTaken: another server has the port.
    """
    try:
        if tls is None:
            port = server.add_insecure_port(target(endpoint))
        else:
            port = server.add_secure_port(target(endpoint), tls.server_credentials())
    except RuntimeError as error:
        raise PortTaken(endpoint) from error
    if port == 0:
        raise PortTaken(endpoint)
    return Endpoint(endpoint.host, port)


class RoleHealth:
    """Health of one process: of its services under their full names, of all under ``""``, and of two more names.

    ``liveness`` says that the loop answers, and nothing of the cluster: it is SERVING as long as there is a process.
    ``readiness`` says that a rollout may continue with the next process; a process that does not serve is never ready.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._serves = False
        self._is_ready = False
        self._servicer = health.aio.HealthServicer()

    def attach(self, server: grpc.aio.Server, *, with_reflection: bool = True) -> None:
        """Serve health, and reflection over it and the role's services, on this server."""
        self.attach_alone(server)
        if with_reflection:
            enable_reflection(server, (*self._services[1:], health.SERVICE_NAME))

    def attach_alone(self, server: grpc.aio.Server) -> None:
        """Serve health and nothing else on this server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def begin(self) -> None:
        """There is a process; nothing is served yet."""
        await self._servicer.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.set_serving(False)

    async def set_serving(self, serving: bool) -> None:
        """Inform watchers whether calls are accepted."""
        self._serves = serving
        for service in self._services:
            await self._set(service, serving)
        await self._set(READINESS, serving and self._is_ready)

    async def set_service(self, service: str, serving: bool) -> None:
        """Inform watchers of one service, in a process that serves: a standby is ready and decides nothing (C28)."""
        await self._set(service, serving)

    async def set_ready(self, ready: bool) -> None:
        """Inform watchers whether this process, if it serves, is ready: a rollout waits for it."""
        self._is_ready = ready
        await self._set(READINESS, ready and self._serves)

    async def _set(self, name: str, good: bool) -> None:
        kind = health_pb2.HealthCheckResponse.SERVING if good else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._servicer.set(name, kind)
