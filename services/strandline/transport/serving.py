"""A server: its ports, the connections on them, and its stop. A replacement for `grpc.aio.server`.

Invariant: a port belongs to one server. Connections, unfinished handshakes, streams and calls are bounded before
anything is read from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc

from strandline.transport import frames, headers
from strandline.transport.connection import Connection
from strandline.transport.frames import Code, ConnectionFailed, StreamFailed
from strandline.transport.headers import BadHeaders, Field
from strandline.transport.options import NO_AUTH, Argument, AuthContext, Options, Security, options_of
from strandline.transport.server_call import Context, Handler, ServerStream
from strandline.transport.stream import Ended, Stream

MOST_CONNECTIONS = 10_000
"""Most connections of a port; fewer if this is more than half of the process's descriptors."""
MOST_HANDSHAKES = 256
"""Connections of a port that do not speak HTTP/2 yet; the oldest is closed to make room, once it had `_PATIENCE_S`."""
_PATIENCE_S = 5.0
_FULL_S = 0.05
"""How long a full port pauses before it accepts again."""
_SIGNED_AT_ONCE = 32
"""Concurrent TLS handshakes; each signs for some milliseconds in one turn of the event loop."""
_SIGNING_S = 0.2
"""How long a handshake counts among them, so that peers that begin one and say no more do not hold up all others."""
_ACCEPTED_AT_ONCE = 16
"""Connections accepted in one turn of the event loop, because their handshakes take time."""
_DRAIN_S = 1.0
"""How long streams that were under way when the server stops may take to arrive."""
_CANCEL_S = 5.0
_REFUSED_AFTER_S = 1.0
"""How long to wait for the end of a request that is not gRPC before it is answered; its content is discarded."""
_TOO_SOON_WITHOUT_CALLS_S = 7_200.0
"""gRPC's shortest time between pings on a connection without calls, if such pings are not permitted."""
_REFUSED_COST = 2
"""Cost, in useless frames, of each stream above the limit (CVE-2023-44487)."""


class ServerConnection(Connection):
    """A server's connection."""

    def __init__(self, port: Port) -> None:
        super().__init__(port.options)
        self._port = port
        self.peer = ""
        self.auth_context: AuthContext = NO_AUTH
        self.given_up = 0
        """The number of calls that were reset or are late, but whose handlers still run; they count as open."""
        self._last_ping_s = float("-inf")
        self._strikes = self._sent_then = 0
        self._last_allowed = frames.LAST_STREAM

    @property
    def stops(self) -> bool:
        """Whether the server is stopping."""
        return self._port.server.stops

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send SETTINGS, and start the time limit of the handshake."""
        super().connection_made(transport)
        self._port.connections.add(self)
        address = transport.get_extra_info("peername")
        if address:
            self.peer = f"ipv6:[{address[0]}]:{address[1]}" if ":" in address[0] else f"ipv4:{address[0]}:{address[1]}"
        self.after("handshake", self.options.handshake_s, self.fail, Code.NO_ERROR, "handshake timeout")
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and self._port.security is not None:
            if secured.selected_alpn_protocol() != "h2":
                self.fail(Code.INADEQUATE_SECURITY, "ALPN did not choose h2", at_once=True)
                return
            shown = secured.getpeercert(binary_form=True)
            # There may be none only if the port's TLS does not require one.
            self.auth_context = NO_AUTH if shown is None else self._port.security.identify(shown)

    def settled(self) -> None:
        """End the handshake, because the client speaks HTTP/2."""
        self.cancel_timer("handshake")
        self._port.unfinished.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, and free the connection's place at its port."""
        super().connection_lost(exc)
        self._port.connections.discard(self)
        self._port.unfinished.pop(self, None)

    def ping_arrived(self) -> None:
        """Count a strike if a ping came too soon, as gRPC does."""
        if self.outgoing.sent != self._sent_then:
            self._sent_then, self._strikes, self._last_ping_s = self.outgoing.sent, 0, float("-inf")
        now_s, options = self.loop.time(), self.options
        welcome = self.streams or options.ping_without_calls
        if now_s - self._last_ping_s < (options.least_ping_interval_s if welcome else _TOO_SOON_WITHOUT_CALLS_S):
            self._strikes += 1
            if self._strikes > options.ping_strikes > 0:
                raise ConnectionFailed(Code.ENHANCE_YOUR_CALM, "too_many_pings")
        self._last_ping_s = now_s

    # ---- calls

    def new_headers(self, number: int, fields: Sequence[Field], ended: bool) -> None:
        """Begin a call."""
        if number % 2 == 0:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, f"stream {number} is not a client's")
        self.last_peer_stream = number
        most = self.options.max_streams
        if number > self._last_allowed or len(self.streams) >= most or self.given_up >= most:
            self.outgoing.control(frames.reset(number, Code.REFUSED_STREAM))
            self._remember(number, ended)
            self.calm.count("streams beyond those that are allowed", _REFUSED_COST)
            return
        pseudo, others = headers.split(fields)
        if not pseudo.keys() <= _PSEUDO or _NEEDED - pseudo.keys() or not pseudo[b":path"]:
            raise BadHeaders("a request needs :method, :scheme and :path, and has no others but :authority")
        stream = ServerStream(self, number)
        self.streams[number] = stream
        given = dict(others)
        stream.declared = _length_of(given)
        stream.encoding = given.get(b"grpc-encoding", b"")
        if ended:
            stream.peer_ended = True
            if stream.declared:
                raise StreamFailed(Code.PROTOCOL_ERROR, "no DATA where content-length says some")
        self._begin(stream, pseudo, others, given, headers.size_of(fields))

    def _begin(
        self,
        stream: ServerStream,
        pseudo: dict[bytes, bytes],
        others: list[Field],
        given: dict[bytes, bytes],
        size: int,
    ) -> None:
        """Refuse a wrong call at once, or run its handler."""
        timeout = given.get(b"grpc-timeout")
        timeout_s = None if timeout is None else headers.read_timeout(timeout)
        if not given.get(b"content-type", b"").startswith(headers.TYPE):
            self._refuse(stream, 415, b"this port speaks gRPC: the content-type is application/grpc")
        elif pseudo[b":method"] != b"POST":
            self._refuse(stream, 405, b"this port speaks gRPC: the method is POST")
        elif size > self.options.max_metadata_bytes:
            most = self.options.max_metadata_bytes
            _end(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, f"received metadata larger than max ({size} vs. {most})")
        elif stream.encoding not in (b"", b"identity", b"gzip"):
            name = stream.encoding.decode("utf-8", "replace")
            _end(stream, grpc.StatusCode.UNIMPLEMENTED, f"the encoding {name} is not supported; use gzip or identity")
        elif timeout is not None and timeout_s is None:
            _end(stream, grpc.StatusCode.INTERNAL, "grpc-timeout is not up to eight digits and a unit of HMSmun")
        elif not self._port.server.admits():
            _end(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
        else:
            method = pseudo[b":path"].decode("utf-8", "replace")
            context = stream.context = Context(stream, method, headers.read_metadata(others), timeout_s)
            self._port.server.run(context, partial(self._task_over, stream))

    def _refuse(self, stream: ServerStream, status: int, body: bytes) -> None:
        stream.is_deaf, stream.refusal = True, (status, body)
        if stream.peer_ended:
            stream.refuse()
        else:
            self.loop.call_later(_REFUSED_AFTER_S, stream.refuse)

    def more_headers(self, stream: Stream, fields: Sequence[Field], ended: bool) -> None:
        """Process the client's trailers, which have no meaning in gRPC."""
        pseudo, _ = headers.split(fields)
        if pseudo or not ended:
            raise StreamFailed(Code.PROTOCOL_ERROR, "headers inside a stream that do not end it")
        self.peer_ended(stream)

    def call_ended(self, stream: Any, ended: Ended) -> None:
        """End the call because of what arrived."""
        if stream.context is not None:
            stream.context.broken(ended.code, str(ended))

    def forget(self, stream: Stream, *, by_peer: bool) -> None:
        """Forget a stream that is over; its call may still run."""
        super().forget(stream, by_peer=by_peer)
        if not self.streams and self._last_allowed != frames.LAST_STREAM:
            self.close("the server stopped")

    def was_reset(self, stream: Stream, code: int) -> None:
        """End the call, because its caller cancelled it or broke a rule."""
        self.stream_lost(stream)

    def stream_lost(self, stream: Any) -> None:
        """End the call, because there is no caller to answer."""
        stream.close()
        if stream.context is not None:
            self.given_up += not stream.is_given_up
            stream.is_given_up = True
            stream.context.peer_gone()

    def _task_over(self, stream: ServerStream) -> None:
        stream.context = None
        self.given_up -= stream.is_given_up

    # ---- the end

    def drain(self) -> None:
        """Accept no more calls except those already under way; end after the last one."""
        if not self.is_ending and "drain" not in self._timers:
            self.outgoing.control(frames.goaway(frames.LAST_STREAM, Code.NO_ERROR))
            self.ping(b"draining")
            self.after("drain", _DRAIN_S, self._drained)

    def ping_answered(self, payload: bytes) -> None:
        """End the wait for streams that were under way: the client has seen GOAWAY."""
        if "drain" in self._timers:
            self.cancel_timer("drain")
            self._drained()

    def _drained(self) -> None:
        if self._last_allowed == frames.LAST_STREAM and not self.is_ending:
            self._last_allowed = self.last_peer_stream
            self.outgoing.control(frames.goaway(self._last_allowed, Code.NO_ERROR))
            if not self.streams:
                self.close("the server stopped")


_NEEDED = {b":method", b":scheme", b":path"}
_PSEUDO = _NEEDED | {b":authority"}


def _length_of(given: Mapping[bytes, bytes]) -> int | None:
    length = given.get(b"content-length")
    if length is None:
        return None
    # int() reads at most some thousand digits.
    if not length.isdigit() or len(length) > 20:
        raise BadHeaders("content-length is not a number of at most 20 digits")
    return int(length)


def _end(stream: ServerStream, code: grpc.StatusCode, details: str) -> None:
    stream.is_deaf = True
    stream.end(code, details)


class Port:
    """One listening socket."""

    def __init__(self, server: Server, listening: socket.socket, security: Security | None) -> None:
        self.server = server
        self.options = server.options
        self.security = security
        self.connections: set[ServerConnection] = set()
        self.unfinished: dict[object, tuple[float, Callable[[], object]]] = {}
        """For each unfinished handshake, the oldest first: when it began, and a function that ends it."""
        self._signing = asyncio.Semaphore(_SIGNED_AT_ONCE)
        self._listening = listening
        self._accepting: set[asyncio.Task[None]] = set()
        self._limit = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    def start(self) -> None:
        """Accept connections."""
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        if self._listening.fileno() >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
        for task in self._accepting:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self.unfinished) >= MOST_HANDSHAKES and not self._make_room():
                self._pause(_FULL_S)
                return
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause(1.0)
                return
            self._take(accepted)

    def _make_room(self) -> bool:
        oldest = next(iter(self.unfinished))
        since_s, end = self.unfinished[oldest]
        if asyncio.get_running_loop().time() - since_s < _PATIENCE_S:
            return False
        del self.unfinished[oldest]
        end()
        return True

    def _pause(self, seconds: float) -> None:
        """Stop accepting for a while: the socket stays readable, so polling it would keep the loop busy."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        loop.call_later(seconds, self.start)

    def _take(self, accepted: socket.socket) -> None:
        if len(self.connections) + len(self._accepting) >= self._limit:
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.options.tcp_user_timeout_ms is not None:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.options.tcp_user_timeout_ms)
        task = asyncio.get_running_loop().create_task(self._connect(accepted))
        self._accepting.add(task)

        def ended(_: object) -> None:
            self._accepting.discard(task)
            if task.cancelled():
                # It may have been cancelled before its first step, in which case nothing else closes the socket.
                accepted.close()

        task.add_done_callback(ended)

    async def _connect(self, accepted: socket.socket) -> None:
        loop, connection, task = asyncio.get_running_loop(), ServerConnection(self), asyncio.current_task()
        assert task is not None, "this runs in a task"
        self.unfinished[connection] = loop.time(), task.cancel
        try:
            if self.security is None:
                await loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                async with asyncio.timeout(self.options.handshake_s):
                    await _readable(accepted)
                    await self._secure(self.security, connection, accepted)
            if connection in self.unfinished:
                self.unfinished[connection] = loop.time(), partial(connection.fail, Code.NO_ERROR, "handshake timeout")
        except (OSError, asyncio.CancelledError):
            # No TLS, a wrong certificate, or the peer is gone: there is no one to inform.
            self.unfinished.pop(connection, None)
            accepted.close()
            connection.drop()

    async def _secure(self, security: Security, connection: ServerConnection, accepted: socket.socket) -> None:
        loop, limit_s = asyncio.get_running_loop(), self.options.handshake_s
        async with self._signing:
            handshake = loop.create_task(
                loop.connect_accepted_socket(
                    lambda: connection, accepted, ssl=security.context(), ssl_handshake_timeout=limit_s
                )
            )
            try:
                await asyncio.wait([handshake], timeout=_SIGNING_S)
            except asyncio.CancelledError:
                handshake.cancel()
                raise
        await handshake


async def _readable(peer: socket.socket) -> None:
    """Wait until the peer has sent something, so that silent peers do not take up handshakes."""
    loop = asyncio.get_running_loop()
    said = loop.create_future()
    loop.add_reader(peer.fileno(), _said, said)
    try:
        await said
    finally:
        loop.remove_reader(peer.fileno())


def _said(said: asyncio.Future[None]) -> None:
    if not said.done():
        said.set_result(None)


class Server(grpc.aio.Server):
    """See `grpc.aio.Server`."""

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        options: Options,
        maximum_concurrent_rpcs: int | None,
    ) -> None:
        self.options = options
        self.stops = False
        """Whether the server is stopping and accepts no more calls."""
        self._handlers = list(handlers)
        self._most_calls = maximum_concurrent_rpcs
        self._ports: list[Port] = []
        self._contexts: set[Context] = set()
        self._stopping: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._stopped = asyncio.Event()
        self.find: Callable[[grpc.HandlerCallDetails], Any] = self._find
        for interceptor in reversed(interceptors):
            self.find = partial(interceptor.intercept_service, self.find)

    async def _find(self, details: grpc.HandlerCallDetails) -> Handler:
        for handlers in self._handlers:
            found = handlers.service(details)
            if found is not None:
                return found
        return None

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Look up the handlers of calls in these too."""
        self._handlers += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service."""
        self._handlers.append(grpc.method_handlers_generic_handler(service_name, dict(method_handlers)))

    def add_insecure_port(self, address: str) -> int:
        """Listen at ``host:port`` without TLS; return the port.

        Raises:
            RuntimeError: the address cannot be bound.
        """
        return self._listen(address, None)

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Listen at ``host:port`` with TLS, as `add_insecure_port`; the credentials are a `Security`."""
        if not isinstance(server_credentials, Security):
            raise TypeError(
                "grpc's credentials cannot be read; give a transport.Security, or use grpc_transport=grpcio"
            )
        return self._listen(address, server_credentials)

    def _listen(self, address: str, security: Security | None) -> int:
        try:
            sockets = listening_sockets(address)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to bind to address {address}: {error}") from error
        self._ports += [Port(self, one, security) for one in sockets]
        return int(sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Accept connections."""
        for port in self._ports:
            port.start()

    def admits(self) -> bool:
        """Whether one more call may run."""
        return self._most_calls is None or len(self._contexts) < self._most_calls

    def run(self, context: Context, over: Callable[[], None]) -> None:
        """Run a call's handler in its own task; ``over`` is called afterwards."""
        self._contexts.add(context)
        task = context.task = asyncio.get_running_loop().create_task(context.run(self.find))

        def ended(_: object) -> None:
            self._contexts.discard(context)
            if not task.cancelled():
                # Retrieve the exception; only those that end the process escape from a call.
                task.exception()
            over()
            context.ended()

        task.add_done_callback(ended)

    async def stop(self, grace: float | None) -> None:
        """Accept no more connections and calls, wait ``grace`` seconds for open calls, then end the rest."""
        if not grace:
            self._hurry.set()
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(grace or 0.0))
        await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> None:
        self.stops = True
        for port in self._ports:
            port.close()
        connections = [connection for port in self._ports for connection in port.connections]
        if not self._hurry.is_set():
            for connection in connections:
                connection.drain()
            await self._wait_for(connections, grace_s)
        tasks = [context.task for context in self._contexts if context.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_S)
        connections = [connection for port in self._ports for connection in port.connections]
        for connection in connections:
            connection.close("the server stopped")
        if connections:
            await asyncio.wait([connection.lost for connection in connections], timeout=_DRAIN_S)
        self._stopped.set()

    async def _wait_for(self, connections: Sequence[ServerConnection], grace_s: float) -> None:
        """Wait until these are over, the time is over, or `stop` is called again without grace."""
        if connections:
            waits = (asyncio.wait([one.lost for one in connections]), self._hurry.wait())
            tasks = [asyncio.ensure_future(one) for one in waits]
            await asyncio.wait(tasks, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - gRPC's own
        """Wait until the server has stopped; return True if ``timeout`` seconds were not enough."""
        try:
            async with asyncio.timeout(timeout):
                await self._stopped.wait()
        except TimeoutError:
            return True
        return False


def listening_sockets(address: str) -> list[socket.socket]:
    """Sockets that listen at every address of ``host:port``, all on one port.

    Raises:
        OSError, ValueError: the address cannot be bound, or the text has another form.
    """
    host, colon, text = address.rpartition(":")
    if not colon or not text.isdigit():
        raise ValueError("write host:port")
    port, made = int(text), []
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            made.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
            one.bind((where[0], port, *where[2:]))
            one.listen(1024)
            port = one.getsockname()[1]
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL and len(made) > 1:
            # A name such as localhost may have an address of a family that this machine does not use.
            made.pop().close()
            return made
        for one in made:
            one.close()
        raise
    return made


def server(
    migration_thread_pool: object = None,
    handlers: Sequence[grpc.GenericRpcHandler] | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] | None = None,
    options: Sequence[Argument] | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: object = None,
) -> Server:
    """See `grpc.aio.server`; every handler is a coroutine function or an asynchronous generator.

    Raises:
        ValueError: a channel argument that is not supported.
    """
    if migration_thread_pool is not None or compression is not None:
        raise ValueError("this transport has no threads for handlers, and sends no compressed messages")
    return Server(handlers or (), interceptors or (), options_of(options), maximum_concurrent_rpcs)
