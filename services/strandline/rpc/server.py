"""What all Strandline servers have in common: limits, keepalive, health, reflection and the port.

Invariant: a port belongs to one server. By gRPC's default a second server could share it without notice, so
so_reuseport is off and a taken port is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import grpc
import structlog
from google.protobuf import descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from strandline.core.messages import Endpoint
from strandline.core.permissions import Acls, Tell
from strandline.rpc import channels
from strandline.rpc.audit import AuditInterceptor
from strandline.rpc.authorization import PermissionInterceptor
from strandline.rpc.channels import parse_endpoint, target
from strandline.rpc.interceptors import Handler, RefusalInterceptor, Reported
from strandline.rpc.tls import Tls, TlsWrong
from strandline.rpc.transports import aio

if TYPE_CHECKING:
    from strandline.rpc.tokens import Tokens

# ---- method_table
# Finds the handler of a call: all methods of one server are in one table, with one lookup per call.
#
# Invariant: a server waits for one next call, however many methods it has. Generated code also registers each method
# with gRPC separately; gRPC's asyncio server then waits for the next call of each method, and starts all of these waits
# again after every call. With the 29 methods of a data node that is more than half of the Python calls that an empty
# unary call makes.


class MethodTable(grpc.GenericRpcHandler):
    """The methods of one server, by full name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, service_name: str, handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service; ``handlers`` by the method's short name."""
        self._handlers.update({f"/{service_name}/{name}": handler for name, handler in handlers.items()})

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """The handler of a call; None for a method that is not in the table."""
        return self._handlers.get(handler_call_details.method)


class TabledServer(grpc.aio.Server):
    """A server that registers its methods in ``table``, which must be among the handlers of ``server``."""

    def __init__(self, server: grpc.aio.Server, table: MethodTable) -> None:
        self._server = server
        self._table = table

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add handlers for methods that are not in the table."""
        self._server.add_generic_rpc_handlers(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service; they are registered in the table only."""
        self._table.add(service_name, method_handlers)

    def add_insecure_port(self, address: str) -> int:
        """See `grpc.aio.Server`."""
        return self._server.add_insecure_port(address)

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """See `grpc.aio.Server`."""
        return self._server.add_secure_port(address, server_credentials)

    async def start(self) -> None:
        """See `grpc.aio.Server`."""
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """See `grpc.aio.Server`."""
        await self._server.stop(grace)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - gRPC's own
        """See `grpc.aio.Server`."""
        return await self._server.wait_for_termination(timeout)


# ---- reflecting
# Server reflection: describes a server's contract to any client; methods can be found by their full names too.
#
# Invariant: `grpcurl describe` can describe everything that `grpcurl list` prints, both services and methods.


class _WithMethods:
    """The pool of all descriptors, which also finds methods; its own search knows only messages, enums and services."""

    def __init__(self, pool: descriptor_pool.DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - protobuf's own name
        """The file of a symbol; for a method, the file of its service.

        Raises:
            KeyError: nothing has this name.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            return found.file


def enable_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Describe these services, and reflection itself, to any client of this server."""
    names = (*services, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=_WithMethods(descriptor_pool.Default()))  # type: ignore[arg-type]  # asked for by duck typing


LIVENESS = "liveness"
READINESS = "readiness"
"""Names in the health service in addition to the services' names, for the process's operator or supervisor."""


class PortTaken(OSError):
    """The address cannot be bound: another process uses it, or it is not local."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(f"cannot listen on {target(endpoint)}: the port is taken or the address is not local")
        self.endpoint = endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings that differ between servers. ``internal_keepalive`` is for ports that only our processes dial."""

    name: str
    reflection: bool = True
    internal_keepalive: channels.Keepalive | None = None
    max_concurrent_streams: int = channels.MAX_CONCURRENT_STREAMS
    max_concurrent_rpcs: int | None = 10_000
    handshake_ms: int = 20_000
    """How long a connection may take until it speaks HTTP/2, TLS included; gRPC's default is two minutes."""
    on_refusal: Reported = lambda _method, _refusal: None
    audit: Tell = lambda _: None
    """Called with each audit event: a caller's change, or a refusal for lack of permission (C109)."""


def server_options(settings: ServerSettings) -> channels.Options:
    """The channel arguments of a server with these settings."""
    options = channels.message_limits()
    options += [
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.server_handshake_timeout_ms", settings.handshake_ms),
    ]
    if settings.max_concurrent_rpcs is not None:
        # With more than 1,000 calls not yet handed over, gRPC silently cancels some at random. With these limits it
        # hands over all of them, and those above max_concurrent_rpcs are refused with RESOURCE_EXHAUSTED.
        options += [
            ("grpc.server.max_pending_requests", 2 * settings.max_concurrent_rpcs),
            ("grpc.server.max_pending_requests_hard_limit", 2 * settings.max_concurrent_rpcs),
        ]
    if settings.internal_keepalive is not None:
        options += channels.keepalive_pings(settings.internal_keepalive)
        options += channels.keepalive_tolerance(settings.internal_keepalive)
    return options


def build_server(
    settings: ServerSettings,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    *,
    tls: Tls | None = None,
    acls: Callable[[], Acls] | None = None,
    tokens: Tokens | None = None,
) -> grpc.aio.Server:
    """Make a server without services; its outermost interceptor maps refusals and hides all other failures.

    With ``tls``, which `bind` needs too, callers may do what is allowed to their certificates' identities; with
    ``acls`` clients may do what these rules allow; with ``tokens`` a client may send a token instead of a certificate.
    """
    if tls is not None:
        interceptors = [
            PermissionInterceptor(tls.identity.cluster, acls=acls, tell=settings.audit, tokens=tokens),
            *interceptors,
        ]
    channels.note_use()
    table = MethodTable()
    server = aio().server(
        handlers=[table],
        interceptors=[
            RefusalInterceptor(settings.name, reported=settings.on_refusal),
            *interceptors,
            AuditInterceptor(settings.audit),
        ],
        options=server_options(settings),
        maximum_concurrent_rpcs=settings.max_concurrent_rpcs,
    )
    return TabledServer(server, table)


def open_tokens(path: str, tls: Tls | None) -> Tokens | None:
    """A verifier for the setting ``token_issuers``, not started; None if the setting is empty.

    Raises:
        TlsWrong: a file cannot be used, or PyJWT is not installed.
    """
    if not path or tls is None:
        return None
    try:
        from strandline.rpc.token_issuers import read_issuers
        from strandline.rpc.tokens import Tokens
    except ModuleNotFoundError as error:
        if error.name != "jwt":
            raise
        raise TlsWrong("token_issuers needs PyJWT, which is not installed; install the extra 'tokens'") from None
    if aio() is grpc.aio:
        raise TlsWrong("token_issuers needs grpc_transport asyncio: grpcio requires a certificate of every caller")
    return Tokens(read_issuers(path), tls.identity.cluster)


async def start_tokens(path: str, tls: Tls | None, own: Callable[[Coroutine[Any, Any, None]], object]) -> Tokens | None:
    """As `open_tokens`, but with the issuers' keys; ``own`` starts the task that keeps the keys up to date."""
    tokens = open_tokens(path, tls)
    if tokens is not None:
        await tokens.start()
        own(tokens.keep_forever())
    return tokens


def bind(
    server: grpc.aio.Server, endpoint: Endpoint, *, tls: Tls | None = None, takes_tokens: bool = False
) -> Endpoint:
    """Bind the address (port 0: the kernel chooses) and return it with its actual port.

    Raises:
        PortTaken: another process uses the port, or the address is not local.
    """
    try:
        if tls is None:
            port = server.add_insecure_port(target(endpoint))
        else:
            port = server.add_secure_port(
                target(endpoint), cast(Any, tls.server_credentials(takes_tokens=takes_tokens))
            )
    except RuntimeError as error:
        raise PortTaken(endpoint) from error
    if port == 0:
        raise PortTaken(endpoint)
    return Endpoint(endpoint.host, port)


class RoleHealth:
    """The health of one process: each service under its full name, all of them under ``""``, and two more names.

    ``liveness`` says only that the event loop answers, nothing about the cluster: it is SERVING while the process runs.
    ``readiness`` says that a rollout may continue with the next process; a process that does not serve is never ready.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._serves = False
        self._is_ready = False
        self._servicer = health.aio.HealthServicer()

    def attach(self, server: grpc.aio.Server, *, with_reflection: bool = True) -> None:
        """Serve health on this server, and reflection for it and the role's services."""
        self.attach_alone(server)
        if with_reflection:
            enable_reflection(server, (*self._services[1:], health.SERVICE_NAME))

    def attach_alone(self, server: grpc.aio.Server) -> None:
        """Serve health and nothing else on this server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def begin(self) -> None:
        """Report that the process runs and serves nothing yet."""
        await self._servicer.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.set_serving(False)

    async def set_serving(self, serving: bool) -> None:
        """Inform watchers whether calls are accepted."""
        self._serves = serving
        for service in self._services:
            await self._set(service, serving)
        await self._set(READINESS, serving and self._is_ready)

    async def set_service(self, service: str, serving: bool) -> None:
        """Set one service's health, in a process that serves: a standby is ready although it decides nothing (C28)."""
        await self._set(service, serving)

    async def set_ready(self, ready: bool) -> None:
        """Inform watchers whether this process, if it serves, is ready: a rollout waits for it."""
        self._is_ready = ready
        await self._set(READINESS, ready and self._serves)

    async def _set(self, name: str, good: bool) -> None:
        kind = health_pb2.HealthCheckResponse.SERVING if good else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._servicer.set(name, kind)


# ---- health_port
# The plaintext port for probes: grpc.health.v1 and nothing else, open before the first log is opened.
#
# A kubelet's gRPC probes cannot speak TLS, so this port never uses it. Any client that reaches the port can learn if
# the process is alive and ready, by the names `LIVENESS` and `READINESS`, and nothing more.
#
# Invariant: the port answers while the process still recovers its logs, and is the last one to close.

_PROBES_AT_ONCE = 100
_GRACE_S = 0.2

_log = structlog.get_logger("strandline.health")


class HealthPort:
    """The plaintext port of one process; it serves the same health as the process's other ports."""

    def __init__(self, name: str, health: RoleHealth) -> None:
        self._name = name
        self._health = health
        self._server: grpc.aio.Server | None = None

    async def open(self, address: str) -> Endpoint | None:
        """Begin to report health and, unless ``address`` is empty, serve it there; return the address with its port.

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
        """Close the port."""
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
