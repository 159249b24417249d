"""How this process dials others: one channel per address, with limits, keepalive, TLS and our own back-off.

Invariant: every call made here has a deadline, and a failed call raises a refusal; exactly one layer above retries.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc

from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls
from strandline.rpc.transports import aio

# ---- limits
# What one peer may ask of another: message limits, backlogs of streams, keepalive, reconnection.
#
# Invariant: limits and keepalive are set on both ends together; a client that pings faster than its server
# allows is cut off with too_many_pings, and a limit on one side alone is gRPC's 4 MB on the other.

MAX_MESSAGE_BYTES = (8 << 20) + (64 << 10)
"""Largest gRPC message, in both directions on both ports (RELIABILITY.md#limits)."""

MAX_METADATA_BYTES = 16 << 10
MAX_CONCURRENT_STREAMS = 100
"""Open calls per connection (RELIABILITY.md#limits)."""

STREAM_BACKLOG_ANSWERS = 1_000
"""Answers that one stream may have waiting for its reader; beyond it the stream is not read further."""
PRODUCE_STREAM_OUTSTANDING = 1_000
"""Unanswered messages of one ProduceStream; beyond it the stream is not read further."""

Options = list[tuple[str, int]]

NO_PROXY: Options = [("grpc.enable_http_proxy", 0)]
"""For every channel: otherwise gRPC obeys http_proxy and similar variables, which are for other connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """How soon a silent peer is given up. TCP alone does not notice: the kernel still acks for a stopped process."""

    ping_every_ms: int = 2_000
    ping_timeout_ms: int = 2_000


def message_limits() -> Options:
    """Size limits of messages and metadata, the same for servers and channels."""
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ]


def keepalive_pings(keepalive: Keepalive) -> Options:
    """Options for the pings that both ends of an internal connection send."""
    return [
        ("grpc.keepalive_time_ms", keepalive.ping_every_ms),
        ("grpc.keepalive_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.http2.ping_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def unacknowledged(give_up_ms: int = 5_000) -> Options:
    """Options that make a client redial after ``give_up_ms`` in which its peer acknowledges no TCP data.

    Without them only TCP's doubling timer retries on a connection that was cut, up to tens of seconds after the network
    has healed. gRPC uses the keepalive time-out as TCP_USER_TIMEOUT; the ping interval stays above five minutes, the
    shortest that a server accepts.
    """
    return [("grpc.keepalive_time_ms", 600_000), ("grpc.keepalive_timeout_ms", give_up_ms)]


PING_STRIKES = 1_000
"""Consecutive pings that come too soon, with no answer in between, after which a connection ends with too_many_pings.
A peer with `keepalive_pings` sends none too soon; gRPC's bandwidth probes come together with answers."""


def keepalive_tolerance(keepalive: Keepalive) -> Options:
    """Options with which a server accepts `keepalive_pings`; half the interval leaves slack."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.max_ping_strikes", PING_STRIKES),
    ]


TLS_DIAL_MS = 2_000
"""Time limit for making a TLS connection: three round trips, and signatures on a busy machine."""


def reconnection(
    first_ms: int = 50, most_ms: int = 1_000, ask_name_ms: int = 250, *, dial_ms: int | None = None
) -> Options:
    """Options for how soon a channel redials; gRPC's default of up to two minutes would be an outage.

    ``ask_name_ms`` is the shortest time between two DNS lookups of a name: a peer that restarts elsewhere keeps its
    name and gets another address, and with gRPC's default of 30 s all callers would keep dialling the old one.
    ``dial_ms`` limits one attempt; the default is ``first_ms``. gRPC uses its minimum back-off as this limit, and says
    nothing when it breaks off an attempt that would have succeeded. The limit does not delay the next attempt.
    """
    return [
        ("grpc.dns_min_time_between_resolutions_ms", ask_name_ms),
        ("grpc.initial_reconnect_backoff_ms", first_ms),
        ("grpc.min_reconnect_backoff_ms", dial_ms or first_ms),
        ("grpc.max_reconnect_backoff_ms", most_ms),
    ]


# ---- forks
# A forked process may use gRPC only if its parent had not used it before the fork.
#
# Invariant: no client waits for threads that exist only in the parent. A forked child has none of gRPC's threads and
# nothing restarts them, so a call would wait for its whole deadline and then fail with "no answer".

_user_pid: int | None = None


class ForkedAfterUse(RuntimeError):
    """This process cannot use gRPC: it was forked from one that had already used it."""


def note_use() -> None:
    """Note that this process is about to use gRPC.

    Raises:
        ForkedAfterUse: its parent used gRPC before the fork.
    """
    global _user_pid
    if _user_pid is None:
        _user_pid = os.getpid()
    check()


def check() -> None:
    """Check that gRPC was not used before this process was forked.

    Raises:
        ForkedAfterUse: it was used.
    """
    if _user_pid is not None and _user_pid != os.getpid():
        raise ForkedAfterUse(
            f"process {os.getpid()} was forked after its parent {_user_pid} had used gRPC, which cannot work here; "
            f"start the first client after the fork (in gunicorn: in the worker), or start processes by "
            f"multiprocessing.get_context('spawn')"
        )


def _keep_the_parents() -> None:
    # A channel's finalizer waits for gRPC's threads, even if the parent had closed the client. A child has none, so its
    # first garbage collection would hang; freezing exempts all objects that existed at the fork.
    if _user_pid is not None:
        gc.freeze()


os.register_at_fork(after_in_child=_keep_the_parents)


_Answer = TypeVar("_Answer", covariant=True)
_Request = TypeVar("_Request", contravariant=True)


class UnaryMethod(Protocol[_Request, _Answer]):
    """The part of a stub's unary method that `call` needs."""

    def __call__(self, request: _Request, /, *, timeout: float | None = None) -> Awaitable[_Answer]:
        """Start the call."""
        ...


async def call(method: UnaryMethod[_Request, _Answer], request: _Request, *, deadline_ms: int) -> _Answer:
    """Make one unary call with a deadline.

    Raises:
        Refused: with the server's refusal, or NETWORK_EXCEPTION or REQUEST_TIMED_OUT if none came. After either of
            these two the request may have been carried out.
    """
    try:
        return await method(request, timeout=deadline_ms / 1000)
    except grpc.aio.AioRpcError as error:
        raise Refused.of(refusal_of(error)) from error
    except asyncio.CancelledError as cancelled:
        raise channel_closed() from cancelled


def channel_closed() -> Refused:
    """The refusal of a call that gRPC's C core has cancelled, as it does when the call's channel is closed.

    Raises:
        CancelledError: the calling task itself is cancelled.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise asyncio.CancelledError
    return Refused(ErrorCode.NETWORK_EXCEPTION, "the channel was closed during the call")


def open_channel(
    endpoint: Endpoint, *, keepalive: Keepalive | None = None, tls: Tls | None = None, client_id: str = ""
) -> grpc.aio.Channel:
    """Open a channel to one address; ``keepalive`` is for internal connections only.

    ``client_id`` becomes the first word of the user agent in every call, so that a server knows who calls.
    """
    note_use()
    options: list[tuple[str, int | str]] = [*message_limits(), *NO_PROXY]
    options += reconnection(dial_ms=None if tls is None else TLS_DIAL_MS)
    options.append(("grpc.use_local_subchannel_pool", 1))
    if client_id:
        options.append(("grpc.primary_user_agent", client_id))
    options += unacknowledged() if keepalive is None else keepalive_pings(keepalive)
    if tls is not None:
        return aio().secure_channel(target(endpoint), tls.channel_credentials(), options=options)  # type: ignore[no-any-return]  # either's
    return aio().insecure_channel(target(endpoint), options=options)  # type: ignore[no-any-return]


def target(endpoint: Endpoint) -> str:
    """``host:port`` as gRPC dials and binds it, with IPv6 in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


class Channels:
    """One channel per address, opened at the first use; `close` closes them all.

    With TLS a channel keeps the certificate that it was opened with. After the files have changed, the next caller
    gets a new channel; the old one stays open for its ongoing calls until the files change once more.
    """

    def __init__(self, *, keepalive: Keepalive | None = None, tls: Tls | None = None, client_id: str = "") -> None:
        # So that an environment variable that names no transport is refused here, not at the first call.
        aio()
        self._keepalive = keepalive
        self._tls = tls
        self._client_id = client_id
        self._generation = tls.generation if tls is not None else 0
        self._open: dict[Endpoint, grpc.aio.Channel] = {}
        self._old: list[grpc.aio.Channel] = []
        self._closing: set[asyncio.Task[None]] = set()

    def to(self, endpoint: Endpoint) -> grpc.aio.Channel:
        """The channel to this address."""
        if self._tls is not None and self._tls.generation != self._generation:
            self._retire_all(self._tls.generation)
        channel = self._open.get(endpoint)
        if channel is None:
            channel = self._open[endpoint] = open_channel(
                endpoint, keepalive=self._keepalive, tls=self._tls, client_id=self._client_id
            )
        return channel

    @property
    def endpoints(self) -> frozenset[Endpoint]:
        """The addresses with an open channel."""
        return frozenset(self._open)

    def renew(self, endpoint: Endpoint, *, grace_s: float) -> None:
        """Redial an address at its next use; calls under way have ``grace_s`` to end on the old channel."""
        channel = self._open.pop(endpoint, None)
        if channel is not None:
            self._close_aside(channel, grace_s)

    async def drop(self, endpoints: frozenset[Endpoint]) -> None:
        """Close the channels to these addresses."""
        for endpoint in endpoints:
            channel = self._open.pop(endpoint, None)
            if channel is not None:
                await channel.close()

    async def close(self) -> None:
        """Close all channels."""
        await self.drop(self.endpoints)
        for channel in self._old:
            await channel.close()
        self._old.clear()
        await asyncio.gather(*self._closing)

    def _retire_all(self, generation: int) -> None:
        for channel in self._old:
            self._close_aside(channel)
        self._old = list(self._open.values())
        self._open.clear()
        self._generation = generation

    def _close_aside(self, channel: grpc.aio.Channel, grace_s: float | None = None) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(grace_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class Backoff:
    """Waits that double from ``first_ms`` to ``most_ms``, each jittered to 50-100 % of its length.

    A channel that lost its peer fails calls at once; without these waits a retry loop would spin.
    """

    def __init__(self, first_ms: int = 50, most_ms: int = 1_000, *, draw: random.Random | None = None) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._next_ms = first_ms
        self._draw = draw or random.Random()

    def next_s(self) -> float:
        """The next wait in seconds."""
        wait_ms = self._next_ms * (0.5 + self._draw.random() / 2)
        self._next_ms = min(self._next_ms * 2, self._most_ms)
        return wait_ms / 1000

    def reset(self) -> None:
        """Start again at ``first_ms``, after a success."""
        self._next_ms = self._first_ms


def parse_endpoint(text: str) -> Endpoint:
    """``host:port`` or ``[v6]:port`` as an endpoint.

    Raises:
        ValueError: it is neither; the message quotes the text.
    """
    host, colon, port = text.rpartition(":")
    is_host = bool(host) and "/" not in host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if not colon or not is_host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"'{text}' is not an address; write host:port, for example 127.0.0.1:9092")
    return Endpoint(host.strip("[]"), int(port))


WILDCARDS = frozenset({"0.0.0.0", "::", "*"})
"""Hosts that bind every address of a machine and cannot be dialled."""


def advertised(setting: str, bound: Endpoint) -> Endpoint:
    """The address to advertise: the setting, with the bound port if it names none; without it the bound address."""
    if not setting:
        return bound
    if ":" in setting and setting.rpartition(":")[2].isdecimal():
        named = parse_endpoint(setting)
        return named if named.port else Endpoint(named.host, bound.port)
    return Endpoint(setting, bound.port)
