"""A channel, like `grpc.aio.Channel`: one connection at a time to one target, its states, and the calls that wait.

Invariant: a call waits only while a connection is being made, or for a free stream; after a failed dial the state is
TRANSIENT_FAILURE at once, and until the next dial calls fail without a byte being sent.
"""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, partialmethod
from typing import Any, TypeVar

import grpc

from strandline.transport import frames, headers
from strandline.transport.call import AnswerCall, Call, ClientStream, StreamCall
from strandline.transport.connection import Connection
from strandline.transport.frames import Code, Setting
from strandline.transport.headers import Field
from strandline.transport.options import OF_RESET, Argument, Options, Security, options_of
from strandline.transport.stream import Ended, Stream, wait_with, wake_all

_CLOSE_S = 1.0
_NAME_S = 5.0
"""Time limit for resolving a name."""
_NAMES = ThreadPoolExecutor(32, "names")
"""Apart from the loop's own threads: a lookup cannot be interrupted, and takes half a minute if no one answers."""
_GROWTH, _JITTER = 1.6, 0.2
"""Growth and jitter of the waits between dials (gRPC, connection-backoff)."""
_SLACK_STREAMS = 1_000
"""A connection is replaced this many stream ids before the last."""

State = grpc.ChannelConnectivity
_T = TypeVar("_T")


class DialFailed(OSError):
    """A connection was made, but it cannot be used."""


class ClientConnection(Connection):
    """A client's connection."""

    is_client = True

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.options)
        self._channel = weakref.ref(channel)
        self.next_stream = 1
        self.ready: asyncio.Future[str] = self.loop.create_future()
        """Its result is empty once calls may begin, or the reason why they never will."""
        self.takes_calls = True
        self._most_streams = frames.LAST_STREAM

    @property
    def has_room(self) -> bool:
        """Whether one more stream may be opened now."""
        return len(self.streams) < self._most_streams

    def open(self, call: Call) -> None:
        """Begin a call."""
        number = self.next_stream
        self.next_stream += 2
        if self.next_stream > frames.LAST_STREAM - _SLACK_STREAMS:
            self._takes_no_more()
        stream = ClientStream(self, number, call)
        self.streams[number] = stream
        self.outgoing.headers(self.block_of(call.block()), 0, number)
        if call.request is not None:
            self.outgoing.message(stream, call.request, frames.END_STREAM)
        call.begun(stream)

    def _takes_no_more(self) -> None:
        self.takes_calls = False
        channel = self._channel()
        if channel is not None:
            channel.connection_over(self)

    def settled(self) -> None:
        """Let calls begin: the server speaks HTTP/2."""
        if not self.ready.done():
            self.ready.set_result("")

    def _set(self, key: int, value: int) -> None:
        if key == Setting.MAX_CONCURRENT_STREAMS:
            self._most_streams = value
            self._room()
        else:
            super()._set(key, value)

    def _room(self) -> None:
        """Begin waiting calls, because a stream may be free."""
        channel = self._channel()
        if channel is not None:
            channel.room()

    def ended(self) -> None:
        """Note that no call can begin on this connection any more."""
        if not self.ready.done():
            self.ready.set_result(self.why)
        self._takes_no_more()

    def _is_idle(self, number: int) -> bool:
        return number % 2 == 0 or number >= self.next_stream

    def more_headers(self, stream: Any, fields: Sequence[Field], ended: bool) -> None:
        """Process an answer's headers or trailers."""
        stream.fields(fields, ended)

    def _data_ends(self, stream: Stream | None, ends: int) -> None:
        if ends and stream is not None:
            self.peer_ended(stream)
            self.call_ended(stream, Ended(grpc.StatusCode.INTERNAL, "the server ended the call without a status"))

    def call_ended(self, stream: Any, ended: Ended) -> None:
        """End the call because of what arrived."""
        stream.over((ended.code, str(ended), ()), reset=Code.CANCEL)

    def forget(self, stream: Stream, *, by_peer: bool) -> None:
        """Forget a stream that is over; another call may begin."""
        super().forget(stream, by_peer=by_peer)
        self._room()
        if not self.takes_calls and not self.streams and not self.is_ending:
            self.close("the server went away")

    def was_reset(self, stream: Any, code: int) -> None:
        """End the call of a stream that the server reset, or on which it broke a rule."""
        call = stream.call()
        if code == Code.REFUSED_STREAM and not stream.has_headers:
            self._not_processed(stream, "the server refused the stream")
            return
        name = Code(code).name if code in Code._value2member_map_ else str(code)
        status = OF_RESET.get(code, grpc.StatusCode.INTERNAL)
        if status is grpc.StatusCode.CANCELLED and call is not None and call.time_remaining() == 0:
            # The server applies the same deadline, and its timer may fire first.
            status = grpc.StatusCode.DEADLINE_EXCEEDED
        stream.over((status, f"the stream was reset: {name}", ()))

    def _not_processed(self, stream: Any, why: str) -> None:
        """End a stream whose call the server says it has not processed, even if it has sent something."""
        stream.close()
        stream.forget_messages()
        call = stream.call()
        if call is not None:
            call.not_processed(why)

    def stream_lost(self, stream: Any) -> None:
        """End the call of a stream whose connection is over."""
        stream.over((grpc.StatusCode.UNAVAILABLE, self.why, ()))

    def going_away(self, last: int, code: int, why: str) -> None:
        """Open no more streams: the server accepts no more calls, and has not processed those above ``last``."""
        if code != Code.NO_ERROR:
            name = Code(code).name if code in Code._value2member_map_ else str(code)
            self.why = f"the server ended the connection: {why or name} ({name})"
        self._takes_no_more()
        for number in [number for number in self.streams if number > last]:
            self._not_processed(self.streams.pop(number), "the server went away before it looked at the call")
        if not self.streams and not self.is_ending:
            self.close(self.why)


class Method:
    """One method of a channel; calling it begins a call."""

    def __init__(
        self,
        channel: Channel,
        kinds: tuple[bool, bool],
        path: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.channel = channel
        self.encode = request_serializer
        self.decode = response_deserializer
        self._is_request_stream, self._is_answer_stream = kinds
        self.path = path

    def __call__(
        self,
        request: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: object = None,
        wait_for_ready: bool | None = None,
        compression: object = None,
    ) -> Any:
        """Begin a call. ``request`` is the request, or an iterable of them, or None if they are written; timeout in s.

        Raises:
            grpc.aio.UsageError: the channel is closed.
            ValueError: wrong metadata, or credentials or compression, which are not supported.
        """
        if credentials is not None or compression is not None:
            raise ValueError("this transport has no credentials of single calls, and sends no compressed messages")
        kind = StreamCall if self._is_answer_stream else AnswerCall
        self.channel.check_open()
        call = kind(self, metadata, bool(wait_for_ready))
        call.start(request, self._is_request_stream, timeout)
        return call


class Channel(grpc.aio.Channel):
    """See `grpc.aio.Channel`."""

    def __init__(self, target: str, options: Options, security: Security | None) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.options = options
        self._host, self._port, self._authority = _read_target(target)
        self._security = security
        self._state = State.IDLE
        self._watching: list[asyncio.Future[None]] = []
        self._connection: ClientConnection | None = None
        self._old: set[ClientConnection] = set()
        # As a stream, each refers to its call weakly and to those who wait for it.
        self._waiting: deque[tuple[weakref.ref[Call], list[asyncio.Future[None]]]] = deque()
        self._blocks: dict[str, bytes] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._next_dial_s = 0.0
        self._backoff_s = options.first_backoff_s
        self._failure = ""
        self._addresses: list[Any] = []
        self._asked_s = float("-inf")
        self._asking: asyncio.Future[list[Any]] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which the channel is first used; the channel may be made outside a loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def block_of(self, path: str) -> bytes:
        """The header block with which all calls of a method begin."""
        found = self._blocks.get(path)
        if found is not None:
            return found
        agent = f"{self.options.user_agent} grpc-python-strandline/1".strip().encode("ascii", "replace")
        scheme = headers.SCHEME_HTTP if self._security is None else headers.SCHEME_HTTPS
        block = headers.request_block(path.encode(), self._authority.encode(), agent, scheme)
        self._blocks[path] = block
        return block

    def call_metadata(self) -> bytes:
        """The header block that the credentials add to each call."""
        return b"" if self._security is None else headers.metadata_block(self._security.call_metadata())

    # ---- calls

    def check_open(self) -> None:
        """Raise `grpc.aio.UsageError` if the channel is closed."""
        if self._state is State.SHUTDOWN:
            raise grpc.aio.UsageError("Channel is closed.")

    def begin(self, call: Call) -> None:
        """Give a call a stream, now or as soon as one is free."""
        if self._state is State.SHUTDOWN:
            call.finish((grpc.StatusCode.CANCELLED, "Channel closed.", ()))
            return
        connection = self._connection
        if connection is not None and connection.has_room and not self._waiting:
            connection.open(call)
            return
        if connection is None and not call.wait_for_ready and self._is_backing_off():
            call.finish((grpc.StatusCode.UNAVAILABLE, self._failure, ()))
            return
        self._waiting.append((weakref.ref(call), call.awaited))
        if connection is None:
            self._dial_when_due()

    def leave(self, call: Call) -> None:
        """Forget a call that may be waiting, because it is over."""
        with suppress(ValueError):
            self._waiting.remove((weakref.ref(call), call.awaited))

    def room(self) -> None:
        """Begin waiting calls, as many as the server allows."""
        while self._waiting:
            connection = self._connection
            if connection is None or not connection.has_room:
                return
            call = self._waiting.popleft()[0]()
            if call is not None and not call.done():
                connection.open(call)

    # ---- connections

    def _is_backing_off(self) -> bool:
        return self._state is State.TRANSIENT_FAILURE and self.loop.time() < self._next_dial_s

    def _dial_when_due(self) -> None:
        if self._dialling is not None or self._connection is not None or self._due is not None:
            return
        wait_s = self._next_dial_s - self.loop.time()
        if wait_s <= 0:
            self._dial_now()
        else:
            self._due = self.loop.call_later(wait_s, self._dial_now)

    def _dial_now(self) -> None:
        self._due = None
        if self._state is not State.SHUTDOWN:
            self._set(State.CONNECTING)
            self._dialling = self.loop.create_task(self._dial())

    async def _dial(self) -> None:
        begun_s, backoff_s, options = self.loop.time(), self._backoff_s, self.options
        connection, failure = None, "no answer in time"
        try:
            connection = await self._connect(max(options.dial_s, backoff_s))
        except (OSError, ValueError, RuntimeError) as error:
            # ValueError: not a valid name; RuntimeError: the loop is ending. TimeoutError is an OSError.
            failure = str(error) or failure
        finally:
            # Whatever else went wrong, the next call must be able to dial.
            self._dialling = None
        if connection is not None and connection.takes_calls:
            self._backoff_s, self._next_dial_s = options.first_backoff_s, 0.0
            self._connection = connection
            self._set(State.READY)
            self.room()
            return
        if connection is not None:
            # The server stopped as it accepted: its GOAWAY came before this task ran again.
            failure = connection.why
        self._backoff_s = min(backoff_s * _GROWTH, options.most_backoff_s)
        self._next_dial_s = begun_s + backoff_s * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._dial_failed(failure)

    def _dial_failed(self, why: str) -> None:
        self._failure = f"failed to connect to {self._authority}: {why}"
        self._set(State.TRANSIENT_FAILURE)
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            call = one[0]()
            if call is None or call.done():
                continue
            if call.wait_for_ready:
                self._waiting.append(one)
            else:
                call.finish((grpc.StatusCode.UNAVAILABLE, self._failure, ()))
        if self._waiting:
            self._dial_when_due()

    async def _connect(self, limit_s: float) -> ClientConnection:
        """A connection to the first address that accepts one; each may take ``limit_s``, without name resolution."""
        failure: OSError = DialFailed(f"no address is known for {self._host}")
        async with asyncio.timeout(_NAME_S):
            addresses = await self._resolved()
        for family, kind, protocol, _, address in addresses:
            dialled = socket.socket(family, kind, protocol)
            try:
                return await _within(limit_s, self._connect_to(dialled, address))
            except OSError as error:
                dialled.close()
                failure = error
            except BaseException:
                dialled.close()
                raise
        raise failure

    async def _connect_to(self, dialled: socket.socket, address: Any) -> ClientConnection:
        dialled.setblocking(False)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.options.tcp_user_timeout_ms is not None:
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.options.tcp_user_timeout_ms)
        await self.loop.sock_connect(dialled, address)
        secured: dict[str, Any] = {}
        if self._security is not None:
            secured = {"ssl": self._security.context(), "server_hostname": self._host}
        connection = ClientConnection(self)
        try:
            transport, _ = await self.loop.create_connection(lambda: connection, sock=dialled, **secured)
            if secured and transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                raise DialFailed("the server does not speak HTTP/2 over TLS: ALPN did not choose h2")
            why = await connection.ready
            if why:
                raise DialFailed(why)
        except BaseException:
            connection.drop()
            raise
        return connection

    async def _resolved(self) -> list[Any]:
        now_s = self.loop.time()
        if not self._addresses or now_s - self._asked_s >= self.options.ask_name_s:
            self._asked_s = now_s
            # One at a time: the next dial waits for the lookup that the last one has given up.
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(_addresses(self.loop, self._host, self._port))
                # Retrieve its exception even if no dial waits for it any more.
                self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
            self._addresses = list(dict.fromkeys(await asyncio.shield(self._asking)))
        return self._addresses

    def connection_over(self, connection: ClientConnection) -> None:
        """Use this connection for no more calls; its open calls may end on it."""
        if connection.streams and not connection.is_ending:
            self._old.add(connection)
            connection.lost.add_done_callback(lambda _: self._old.discard(connection))
        if connection is self._connection:
            self._connection = None
            self._set(State.IDLE)
            if self._waiting:
                self._dial_when_due()

    # ---- states

    def _set(self, state: State) -> None:
        if self._state not in (state, State.SHUTDOWN):
            self._state = state
            wake_all(self._watching)

    def get_state(self, try_to_connect: bool = False) -> State:
        """The state; ``try_to_connect``: make a connection if there is none."""
        if try_to_connect and self._state in (State.IDLE, State.TRANSIENT_FAILURE):
            state = self._state
            self._dial_when_due()
            return state
        return self._state

    async def wait_for_state_change(self, last_observed_state: State) -> None:
        """Wait until the state is another one."""
        while self._state is last_observed_state:
            await wait_with(self._watching)

    async def channel_ready(self) -> None:
        """Wait until there is a connection."""
        while (state := self.get_state(try_to_connect=True)) is not State.READY:
            self.check_open()
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel; open calls have ``grace`` seconds to end."""
        if self._state is State.SHUTDOWN:
            return
        self._set(State.SHUTDOWN)
        if self._due is not None:
            self._due.cancel()
        if grace:
            await self._wait_for_calls(grace)
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        for call in self._calls():
            call._end_locally(grpc.StatusCode.CANCELLED, "Channel closed.")
        connections = self._connections()
        self._connection = None
        for connection in connections:
            connection.close("the channel is closed")
        if connections:
            await asyncio.wait([connection.lost for connection in connections], timeout=_CLOSE_S)

    def __del__(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            for connection in self._connections():
                # The garbage collector may run in any thread.
                self._loop.call_soon_threadsafe(connection.close, "the channel was dropped")

    def _connections(self) -> set[ClientConnection]:
        return self._old | ({self._connection} if self._connection is not None else set())

    def _calls(self) -> list[Call]:
        """The calls that are not over."""
        streams = (stream for connection in self._connections() for stream in connection.streams.values())
        references = [stream.call for stream in streams if isinstance(stream, ClientStream)]
        references += [reference for reference, _ in self._waiting]
        return [call for reference in references if (call := reference()) is not None]

    async def _wait_for_calls(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                for call in self._calls():
                    await call.code()
        except TimeoutError:
            return

    async def __aenter__(self) -> Channel:
        """The channel."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel."""
        await self.close()

    # ---- methods

    def _method(self, kinds: tuple[bool, bool], path: str, *given: Any, **more: Any) -> Method:
        more.pop("_registered_method", None)
        return Method(self, kinds, path, *given, **more)

    # Whether requests and answers are streams.
    unary_unary: Any = partialmethod(_method, (False, False))
    unary_stream: Any = partialmethod(_method, (False, True))
    stream_unary: Any = partialmethod(_method, (True, False))
    stream_stream: Any = partialmethod(_method, (True, True))


async def _within(limit_s: float, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work`` within a time limit of four short waits. Between them a busy loop handles its sockets, so
    that its own delay alone does not make the limit expire."""
    task = asyncio.ensure_future(work)
    try:
        for _ in range(4):
            if (await asyncio.wait([task], timeout=limit_s / 4))[0]:
                return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        # Retrieve its exception, so that asyncio does not report it as lost.
        task.cancelled() or task.exception()


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    """The result of `socket.getaddrinfo`, called in a thread unless the host is an address."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    try:
        return await loop.run_in_executor(_NAMES, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    except RuntimeError:
        # The interpreter is ending and starts no more threads; block, so that the last calls are still sent.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _read_target(target: str) -> tuple[str, int, str]:
    """Host, port and authority of ``[scheme:][///]host:port``.

    Raises:
        ValueError: a scheme other than dns, ipv4 and ipv6, or no such address.
    """
    text = target
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        if text.startswith(scheme):
            text = text.removeprefix(scheme)
            break
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or "/" in text or not host:
        raise ValueError(f"'{target}' is not a target of this transport; write host:port")
    return host.strip("[]"), int(port), text


def insecure_channel(
    target: str, options: Sequence[Argument] | None = None, compression: object = None, interceptors: object = None
) -> Channel:
    """See `grpc.aio.insecure_channel`.

    Raises:
        ValueError: a channel argument that is not supported, compression, interceptors, or another kind of target.
    """
    return _channel(target, None, options, compression or interceptors)


def secure_channel(
    target: str,
    credentials: Security,
    options: Sequence[Argument] | None = None,
    compression: object = None,
    interceptors: object = None,
) -> Channel:
    """See `grpc.aio.secure_channel`; the credentials are a `Security`. Raises as `insecure_channel`."""
    if not isinstance(credentials, Security):
        raise TypeError("grpc's credentials cannot be read; give a transport.Security, or use grpc_transport=grpcio")
    return _channel(target, credentials, options, compression or interceptors)


def _channel(target: str, security: Security | None, options: Sequence[Argument] | None, other: object) -> Channel:
    if other:
        raise ValueError("this transport has no interceptors of clients, and sends no compressed messages")
    return Channel(target, options_of(options), security)
