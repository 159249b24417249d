"""How this process dials others: one channel per address, limits, keepalive, TLS, and back-off of our own.

Invariant: every call made through here has a deadline, and a failed one comes back as a refusal; retrying is
left to exactly one layer above.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import grpc

from strandline.core.errors import Refused
from strandline.core.messages import Endpoint
from strandline.rpc import forks, limits
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls

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
    keepalive: limits.Keepalive | None = None,
    tls: Tls | None = None,
    client_id: str = "",
) -> grpc.aio.Channel:
    """A channel to one address with both message limits; ``keepalive`` for internal ones only.

    ``client_id``: the first word of the user agent in every call, which says whose call it is.
    """
    forks.note_use()
    options: list[tuple[str, int | str]] = [*limits.message_limits(), *limits.NO_PROXY]
    options += limits.reconnection(dial_ms=None if tls is None else limits.TLS_DIAL_MS)
    options.append(("grpc.use_local_subchannel_pool", 1))
    if client_id:
        options.append(("grpc.primary_user_agent", client_id))
    options += limits.unacknowledged() if keepalive is None else limits.keepalive_pings(keepalive)
    if tls is not None:
        return grpc.aio.secure_channel(target(endpoint), tls.channel_credentials(), options=options)
    return grpc.aio.insecure_channel(target(endpoint), options=options)


def target(endpoint: Endpoint) -> str:
    """``host:port`` as gRPC dials and binds it, IPv6 in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


class Channels:
    """One channel per address, opened when first asked for, closed together.

    With TLS a channel keeps the certificate it was opened with. After the files have changed, the next caller gets
    a new channel; the old one stays for what is under way on it until the files change once more.
    """

    def __init__(
        self, *, keepalive: limits.Keepalive | None = None, tls: Tls | None = None, client_id: str = ""
    ) -> None:
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
"""Hosts that bind every address of a machine, and are nobody's address."""


def advertised(setting: str, bound: Endpoint) -> Endpoint:
    """The address sent to others: the setting, with the bound port if it names none; else the bound address."""
    if not setting:
        return bound
    if ":" in setting and setting.rpartition(":")[2].isdecimal():
        named = parse_endpoint(setting)
        return named if named.port else Endpoint(named.host, bound.port)
    return Endpoint(setting, bound.port)
