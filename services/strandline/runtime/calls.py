"""Delivers answers: the table from the driver's request ids to the callers that wait.

Invariant: a request id is used once in a process's life; a call leaves the table when it is complete or its caller is
gone, so the table holds only calls that wait, and their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refused

Sink = Callable[[Any], bool]
"""Takes an answer and returns whether the call is complete. It runs inside a step, so it must only hand over."""

Room = Callable[[], int]
"""Returns how many bytes the caller's queue can still take; a slow reader gets empty answers instead of more memory."""


class _Call(NamedTuple):
    sink: Sink
    room: Room | None
    named: int


class Calls:
    """Calls that wait for the core's answer: at most ``limit``, and together at most ``named_limit`` partitions."""

    def __init__(self, limit: int = 50_000, named_limit: int = 200_000) -> None:
        self._limit = limit
        self._named_limit = named_limit
        self._named = 0
        self._waiting: dict[int, _Call] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def new_id(self) -> int:
        """A request id that was never used in this process."""
        self._last_id += 1
        return self._last_id

    def wait(self, request_id: int, sink: Sink, room: Room | None = None, named: int = 1) -> None:
        """Register a caller before its event is stepped. ``named`` is the number of partitions in the call.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED, too many calls wait already; nothing was done for this one.
        """
        if len(self._waiting) >= self._limit or (self._waiting and self._named + named > self._named_limit):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{len(self._waiting)} calls for {self._named} partitions wait on this node; back off and send again",
                Outcome.NOT_APPENDED,
            )
        self._waiting[request_id] = _Call(sink, room, named)
        self._named += named

    def room_bytes(self, request_id: int, wanted: int) -> int | None:
        """The number of bytes that the caller can take, at most ``wanted``; None if no caller waits for this answer."""
        call = self._waiting.get(request_id)
        if call is None:
            return None
        return wanted if call.room is None else min(wanted, call.room())

    def is_waiting(self, request_id: int) -> bool:
        """Whether a caller waits for this answer."""
        return request_id in self._waiting

    def answer(self, request_id: int, answer: Any) -> None:
        """Deliver an answer; drop it if no caller waits for it."""
        call = self._waiting.get(request_id)
        if call is not None and call.sink(answer):
            self.drop(request_id)

    def answer_all(self, answer: Any) -> None:
        """Deliver the same answer to every caller that waits."""
        for request_id in list(self._waiting):
            self.answer(request_id, answer)

    def drop(self, request_id: int) -> bool:
        """Forget a caller that is gone; return whether it was still waiting."""
        call = self._waiting.pop(request_id, None)
        if call is not None:
            self._named -= call.named
        return call is not None
