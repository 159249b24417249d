"""How this process dials others: one channel per address, limits, keepalive, TLS, and back-off of our own.

Invariant: every call made through here has a deadline, and a failed one comes back as a refusal; retrying is
left to exactly one layer above.
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

from strandline.core.errors import Refused
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
"""For every channel: gRPC would follow http_proxy and its like in the environment, which are for other connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """How soon a silent peer is given up. All three are needed: a stopped process still acks TCP."""

    ping_every_ms: int = 2_000
    ping_timeout_ms: int = 2_000


def message_limits() -> Options:
    """Both limits, for servers and channels alike."""
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ]


def keepalive_pings(keepalive: Keepalive) -> Options:
    """Pings as both ends of an internal connection send them."""
    return [
        ("grpc.keepalive_time_ms", keepalive.ping_every_ms),
        ("grpc.keepalive_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.http2.ping_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def unacknowledged(give_up_ms: int = 5_000) -> Options:
    """When a client gives up a connection whose peer acknowledges no TCP data: it dials again instead.

    Without it a connection that was cut is tried again by TCP's doubling timer only, tens of seconds after the
    cut has healed. gRPC takes the keepalive time-out for TCP_USER_TIMEOUT; its pings, which a server allows
    every five minutes at most, stay rarer than that.
    """
    return [("grpc.keepalive_time_ms", 600_000), ("grpc.keepalive_timeout_ms", give_up_ms)]


PING_STRIKES = 1_000
"""Pings in a row that come too soon, with no answer in between, before a connection is ended with too_many_pings. A
peer that keeps to `keepalive_pings` has none; gRPC's own probes of the bandwidth come with answers."""


def keepalive_tolerance(keepalive: Keepalive) -> Options:
    """What a server must allow so that `keepalive_pings` are welcome; half the interval leaves slack."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.max_ping_strikes", PING_STRIKES),
    ]


TLS_DIAL_MS = 2_000
"""How long a connection with TLS may take to be made: three round trips, and signatures on a machine that is busy."""


def reconnection(
    first_ms: int = 50, most_ms: int = 1_000, ask_name_ms: int = 250, *, dial_ms: int | None = None
) -> Options:
    """How soon a channel dials again; gRPC's own default of up to two minutes would be an outage.

    ``ask_name_ms`` is the least time between two questions for the address of a name: a peer that is started elsewhere
    keeps its name and gets another address, and gRPC's own 30 s would keep all callers at the old one for so long.
    ``dial_ms`` is how long one attempt may take, ``first_ms`` if it is not given: gRPC takes its least back-off for
    that, and says nothing of it when an attempt that would have succeeded is broken off. It does not delay the next.
    """
    return [
        ("grpc.dns_min_time_between_resolutions_ms", ask_name_ms),
        ("grpc.initial_reconnect_backoff_ms", first_ms),
        ("grpc.min_reconnect_backoff_ms", dial_ms or first_ms),
        ("grpc.max_reconnect_backoff_ms", most_ms),
    ]


# ---- forks
# What a forked process may do with gRPC: everything if its parent had not used it yet, otherwise nothing.
#
# Invariant: no client waits for threads that stayed behind in the parent. gRPC's threads do not exist in a forked
# child, and nothing starts them there again, so that a call would wait for its whole deadline and end as "no answer".

_user_pid: int | None = None


class ForkedAfterUse(RuntimeError):
    """This process was forked from one that had already used gRPC, and therefore cannot use it."""


def note_use() -> None:
    """This process is about to use gRPC.

    Raises:
        ForkedAfterUse: its parent did so before the fork.
    """
    global _user_pid
    if _user_pid is None:
        _user_pid = os.getpid()
    check()


def check() -> None:
    """Raise if gRPC was used before this process was forked.

    Raises:
        ForkedAfterUse: it was.
    """
    if _user_pid is not None and _user_pid != os.getpid():
        raise ForkedAfterUse(
            f"process {os.getpid()} was forked after its parent {_user_pid} had used gRPC, which cannot work here; "
            f"start the first client after the fork (in gunicorn: in the worker), or start processes by "
            f"multiprocessing.get_context('spawn')"
        )


def _keep_the_parents() -> None:
    # The end of a channel waits for gRPC's threads, even that of a client which the parent had closed. They are not
    # here, so the first collection of garbage would never return; now it leaves alone what was there at the fork.
    if _user_pid is not None:
        gc.freeze()


os.register_at_fork(after_in_child=_keep_the_parents)


_Answer = TypeVar("_Answer", covariant=True)
_Request = TypeVar("_Request", contravariant=True)


class UnaryMethod(Protocol[_Request, _Answer]):
    """A stub's unary method, as far as `call` needs it."""

    def __call__(self, request: _Request, /, *, timeout: float | None = None) -> Awaitable[_Answer]:
        """Start the call."""
        ...


async def call(method: UnaryMethod[_Request, _Answer], request: _Request, *, deadline_ms: int) -> _Answer:
    """Make one unary call with a deadline.

    Raises:
        Refused: with the server's own refusal, or NETWORK_EXCEPTION / REQUEST_TIMED_OUT when there is none.
            After either of these the request may have been carried out: a deadline is an indefinite outcome.
    """
    try:
        return await method(request, timeout=deadline_ms / 1000)
    except grpc.aio.AioRpcError as error:
        refusal = refusal_of(error)
        raise Refused.of(refusal) from error


def open_channel(
    endpoint: Endpoint,
    *,
    keepalive: Keepalive | None = None,
    tls: Tls | None = None,
    client_id: str = "",
) -> grpc.aio.Channel:
    """A channel to one address with both message limits; ``keepalive`` for internal ones only.

    ``client_id``: the first word of the user agent in every call, which says whose call it is.
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
    """``host:port`` as gRPC dials and binds it, IPv6 in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


class Channels:
    """One channel per address, opened when first asked for, closed together.

    With TLS a channel keeps the certificate it was opened with. After the files have changed, the next caller gets
    a new channel; the old one stays for what is under way on it until the files change once more.
    """

    def __init__(self, *, keepalive: Keepalive | None = None, tls: Tls | None = None, client_id: str = "") -> None:
        # A variable that names no transport is refused here, not when the first call is made.
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
        """Redial an address when it is next asked for; what is under way may end on the old channel until then."""
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
        """Close them all."""
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
    """Waits that double from ``first_ms`` to ``most_ms``, each jittered to 50-100 % of itself.

    A channel that lost its peer fails at once; without these waits a retry loop spins.
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
        """Something worked: start small again."""
        self._next_ms = self._first_ms


def parse_endpoint(text: str) -> Endpoint:
    """``host:port`` or ``[v6]:port`` as an endpoint.

    Raises:
        ValueError: with one sentence that quotes the text.
    """
    host, colon, port = text.rpartition(":")
    is_host = bool(host) and "/" not in host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if not colon or not is_host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"'{text}' is not an address; write host:port, for example 127.0.0.1:9092")
    return Endpoint(host.strip("[]"), int(port))


WILDCARDS = frozenset({"0.0.0.0", "::", "*"})
"""Hosts that bind every address of a machine, and can be dialled at none."""


def advertised(setting: str, bound: Endpoint) -> Endpoint:
    """The address sent to others: the setting, with the bound port if it names none; else the bound address."""
    if not setting:
        return bound
    if ":" in setting and setting.rpartition(":")[2].isdecimal():
        named = parse_endpoint(setting)
        return named if named.port else Endpoint(named.host, bound.port)
    return Endpoint(setting, bound.port)
