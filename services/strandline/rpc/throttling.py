"""Holds the clients of one node to their quotas: who waits, what counts, and what answers tell (C103, KIP-219).

Invariant: a muted caller's requests wait in the order of their stream, for no longer than the mute, and hold a bounded
number of bytes; answers go out meanwhile. Until there is a quota, a request costs one test of that.
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
from strandline.rpc.permitted import principal_of_call
from strandline.rpc.wrapping import Handler, Wrapping, before

MOST_WAITING_BYTES = 64 << 20
"""Of requests that wait for the end of a mute; beyond that they are refused."""

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
"""What a method's callers may be muted for. One that is not named here counts as a request."""
_UNCOUNTED = "/grpc."
"""Health and reflection."""


class Throttle:
    """The quotas of one process, and who waits because of them."""

    def __init__(self, meters: Meters, clock: Callable[[], int]) -> None:
        self.meters = meters
        self.clock = clock
        self.waiting_bytes = 0
        # Only the first of those who wait for the same is woken by time; all others by it, in their order.
        self._turns: WeakValueDictionary[tuple[str, _Keys], asyncio.Lock] = WeakValueDictionary()
        self._changed = asyncio.Event()
        self._is_closed = False

    def know(self, quotas: tuple[Quota, ...]) -> None:
        """Take the quotas of now; who was muted for one that is another now goes on."""
        if self.meters.know(quotas):
            self._wake()

    def close(self) -> None:
        """No call waits any more: the process stops."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def until_unmuted(self, principal: str, keys: _Keys, request: Any) -> None:
        """Wait for the end of a mute.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: too many bytes wait already.
        """
        size_bytes = request.ByteSize() if isinstance(request, Message) else 0
        if self.waiting_bytes + size_bytes > MOST_WAITING_BYTES:
            wait_ms = self.meters.muted_ms(principal, keys, self.clock())
            said = f"{principal} is over its quota and more of its kind wait than fit; send again in {wait_ms} ms"
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
    """One call, as far as quotas go."""

    def __init__(self, throttle: Throttle, principal: str, keys: _Keys) -> None:
        self._throttle = throttle
        self._meters, self._clock = throttle.meters, throttle.clock
        self._principal, self._keys = principal, keys

    @property
    def is_on(self) -> bool:
        """Whether there is any quota."""
        return bool(self._meters.quotas)

    @property
    def wait_ms(self) -> int:
        """How long the caller is asked to pause before its next request of this kind."""
        return self._meters.muted_ms(self._principal, self._keys, self._clock()) if self.is_on else 0

    async def admit(self, request: Any) -> None:
        """Count a request that has come, and begin with it when its caller is not muted.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: too many bytes wait already.
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
        """What was read for the caller, counted; without its records while the caller has too many."""
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
"""The call that is being served; set before its handler runs."""


class QuotaInterceptor(Wrapping):
    """Counts requests, and has those of muted callers wait. Messages of a stream are counted by who reads them."""

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
