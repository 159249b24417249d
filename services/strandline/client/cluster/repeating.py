"""Repeats requests to the controllers while one of them takes over from another.

Invariant: only an idempotent request is repeated: one that changes nothing, that has absolute values, that has a
request id, or that names the exact topic, process or epoch (C32).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from strandline.client.background import countdown
from strandline.client.errors import ClusterUnreachable, ControllersAway
from strandline.client.log import RetryLog
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.rpc.channels import Backoff

if TYPE_CHECKING:
    from strandline.client.cluster.subscribing import Method

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def new_request_id() -> str:
    """The id of one request and of its repeats."""
    return str(uuid.uuid4())


class AsksControllers(Protocol):
    """Sends one request to a controller: a `Cluster`."""

    timeout_ms: int

    async def ask_controller(
        self, method: Method[_Request, _Answer], request: _Request, *, deadline_ms: int | None = None
    ) -> _Answer:
        """As `Cluster.ask_controller`."""


class Answered(NamedTuple, Generic[_Answer]):
    """The answer to a request that was repeated until it had one."""

    answer: _Answer
    may_repeat: bool
    """Whether an earlier answer was lost, so that this one may be to a repeat of a request that was applied."""


async def ask_again(
    cluster: AsksControllers,
    method: Method[_Request, _Answer],
    request: _Request,
    *,
    deadline_ms: int | None = None,
    repeats: Callable[[Refusal], bool] | None = None,
) -> _Answer:
    """The answer of `ask_until_answered`; raises the same errors."""
    return (await ask_until_answered(cluster, method, request, deadline_ms=deadline_ms, repeats=repeats)).answer


async def ask_until_answered(
    cluster: AsksControllers,
    method: Method[_Request, _Answer],
    request: _Request,
    *,
    deadline_ms: int | None = None,
    repeats: Callable[[Refusal], bool] | None = None,
) -> Answered[_Answer]:
    """As `Cluster.ask_controller`, repeated until the deadline while an answer is lost or no controller decides.

    ``repeats``: the refusals to repeat after; by default those which say that another controller may be active.

    Raises:
        Refused: the answer's refusal.
        ControllersAway: none accepts a connection; nothing was asked.
        ClusterUnreachable: no answer in time; the work may have been done.
    """
    left = countdown(deadline_ms or cluster.timeout_ms)
    backoff = Backoff()
    retry = RetryLog("asking a controller")
    lost: ClusterUnreachable | None = None
    while True:
        error: Exception
        try:
            answer = await cluster.ask_controller(method, request, deadline_ms=left())
        except ControllersAway as away:
            # No attempt has sent anything, so the caller need not wait for the deadline to hear it.
            if lost is None:
                raise
            error = away
        except ClusterUnreachable as unreachable:
            error = lost = lost or unreachable
        except Refused as refused:
            if not (repeats or _is_taken_over)(refused.refusal):
                raise
            error = refused
        else:
            retry.worked()
            return Answered(answer, may_repeat=lost is not None)
        retry.failed(time.monotonic() * 1000, str(error))
        pause_s = backoff.next_s()
        if pause_s * 1000 >= left():
            # After a request was sent, it must not be reported that nothing was done.
            raise lost or error
        await asyncio.sleep(pause_s)


def _is_taken_over(refusal: Refusal) -> bool:
    return refusal.code is ErrorCode.NOT_CONTROLLER and refusal.hint is not None
