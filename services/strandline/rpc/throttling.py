"""Enforces the quotas of one node's clients: counts what they use, and mutes callers that exceed it (C103, KIP-219).

Invariant: a muted caller's requests wait in the order of their stream, no longer than the mute, and hold a bounded
number of bytes; answers are still sent meanwhile. While no quota is set, a request costs a single check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from google.protobuf.message import Message

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import ServedPartition
from strandline.core.quotas import Meters, Quota, QuotaKey
from strandline.rpc.interceptors import Handler, Wrapping, before
from strandline.rpc.permitted import principal_of_call
from strandline.rpc.wire_fields import WithRecords

MOST_WAITING_BYTES = 64 << 20
"""Most bytes of all requests that wait for the end of a mute; further ones are refused."""

_Keys = tuple[QuotaKey, ...]
_REQUESTS: _Keys = (QuotaKey.REQUEST_RATE,)
_PRODUCING: _Keys = (*_REQUESTS, QuotaKey.PRODUCER_BYTE_RATE)
_CONSUMING: _Keys = (*_REQUESTS, QuotaKey.CONSUMER_BYTE_RATE)
_KEYS: dict[str, _Keys] = {
    "/strandline.v1.LeaderService/Produce": _PRODUCING,
    "/strandline.v1.LeaderService/ProduceStream": _PRODUCING,
    "/strandline.v1.LeaderService/Fetch": _CONSUMING,
    "/strandline.v1.LeaderService/FetchStream": _CONSUMING,
    "/strandline.v1.FollowerService/Fetch": _CONSUMING,
}
"""The quotas that can mute a method's callers. A method that is not named here only counts as a request."""
_UNCOUNTED = "/grpc."
"""Health and reflection."""


class Throttle:
    """The quotas of one process, and the requests that wait because of them."""

    def __init__(self, meters: Meters, clock: Callable[[], int]) -> None:
        self.meters = meters
        self.clock = clock
        self.waiting_bytes = 0
        # Of requests with the same key, only the first waits for the time; the others wait for their turn, in order.
        self._turns: WeakValueDictionary[tuple[str, _Keys], asyncio.Lock] = WeakValueDictionary()
        self._changed = asyncio.Event()
        self._is_closed = False

    def know(self, quotas: tuple[Quota, ...]) -> None:
        """Apply new quotas; callers that were muted by a quota that has changed continue."""
        if self.meters.know(quotas):
            self._wake()

    def close(self) -> None:
        """End all waits, because the process stops."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def until_unmuted(self, principal: str, keys: _Keys, request: Any) -> None:
        """Wait until the principal is no longer muted for these quotas.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: too many bytes of requests wait already.
        """
        size_bytes = 0
        if isinstance(request, WithRecords):
            size_bytes = request.size_bytes
        elif isinstance(request, Message):
            size_bytes = request.ByteSize()
        if self.waiting_bytes + size_bytes > MOST_WAITING_BYTES:
            wait_ms = self.meters.muted_ms(principal, keys, self.clock())
            said = f"{principal} is over its quota, and too many requests wait already; send again in {wait_ms} ms"
            refusal = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, said, Outcome.NOT_APPENDED, throttle_time_ms=wait_ms)
            raise Refused.of(refusal)
        turn = self._turns.setdefault((principal, keys), asyncio.Lock())
        self.waiting_bytes += size_bytes
        try:
            async with turn:
                while (wait_ms := self.meters.muted_ms(principal, keys, self.clock())) and not self._is_closed:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait_ms / 1_000):
                            await self._changed.wait()
        finally:
            self.waiting_bytes -= size_bytes


class Metered:
    """Counts one call towards its caller's quotas."""

    def __init__(self, throttle: Throttle, principal: str, keys: _Keys) -> None:
        self._throttle = throttle
        self._meters, self._clock = throttle.meters, throttle.clock
        self._principal, self._keys = principal, keys

    @property
    def is_on(self) -> bool:
        """Whether any quota is set."""
        return bool(self._meters.quotas)

    @property
    def wait_ms(self) -> int:
        """How long, in ms, the caller should pause before its next request of this kind."""
        return self._meters.muted_ms(self._principal, self._keys, self._clock()) if self.is_on else 0

    async def admit(self, request: Any) -> None:
        """Wait until the caller is not muted, then count the request.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: too many bytes of requests wait already.
        """
        now_ms = self._clock()
        if self._meters.muted_ms(self._principal, self._keys, now_ms):
            await self._throttle.until_unmuted(self._principal, self._keys, request)
            now_ms = self._clock()
        self._meters.take(self._principal, QuotaKey.REQUEST_RATE, 1, now_ms)

    def take(self, key: QuotaKey, count: int) -> None:
        """Count what the call uses."""
        self._meters.take(self._principal, key, count, self._clock())

    def fetched(self, served: Sequence[ServedPartition]) -> Sequence[ServedPartition]:
        """Count what was read for the caller and return it, without records while the caller is over its byte quota."""
        size_bytes = sum(len(part.payload) for part in served) if self.is_on else 0
        if not size_bytes:
            return served
        key = QuotaKey.CONSUMER_BYTE_RATE
        if self._meters.muted_ms(self._principal, (key,), self._clock()):
            return [ServedPartition(part.result._replace(aborted=()), b"") for part in served]
        self.take(key, size_bytes)
        return served


_UNMETERED = Metered(Throttle(Meters(), lambda: 0), "", ())
METERED: ContextVar[Metered] = ContextVar("metered", default=_UNMETERED)
"""The current call's meter; set before its handler runs."""


class QuotaInterceptor(Wrapping):
    """Counts requests and makes those of muted callers wait. The messages of a stream are counted by its handler."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__()
        self._throttle = throttle

    def wrap(self, method: str, handler: Handler) -> Handler:
        """See `Wrapping`."""
        if method.startswith(_UNCOUNTED):
            return handler
        keys = _KEYS.get(method, _REQUESTS)
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=self._unary(keys, handler.unary_unary))
        if handler.stream_stream is not None:
            return handler._replace(stream_stream=before(handler.stream_stream, partial(self._begin, keys)))
        return handler

    def _metered(self, keys: _Keys) -> Metered:
        principal = principal_of_call()
        return _UNMETERED if principal is None else Metered(self._throttle, principal, keys)

    def _begin(self, keys: _Keys, requests: Any, context: Any) -> tuple[Any, Any]:
        METERED.set(self._metered(keys))
        return requests, context

    def _unary(self, keys: _Keys, inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(request: Any, context: Any) -> Any:
            if not self._throttle.meters.quotas:
                return await inner(request, context)
            metered = self._metered(keys)
            METERED.set(metered)
            await metered.admit(request)
            answer = await inner(request, context)
            wait_ms = metered.wait_ms
            if wait_ms and isinstance(answer, Message) and "throttle_time_ms" in answer.DESCRIPTOR.fields_by_name:
                answer.throttle_time_ms = wait_ms  # type: ignore[attr-defined]  # of those messages that have it
            return answer

        return counted
