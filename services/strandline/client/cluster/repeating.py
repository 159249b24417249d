"""Asking the controllers again while one of them takes over from another.

Invariant: only a question that may be done twice is asked twice: one that changes nothing, one that gives absolute
values, one with a request id, and one that names the very topic, process or epoch that it is about (C32).
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
    """What asks a controller once: a `Cluster`."""

    timeout_ms: int

    async def ask_controller(
        self, method: Method[_Request, _Answer], request: _Request, *, deadline_ms: int | None = None
    ) -> _Answer:
        """As `Cluster.ask_controller`."""


class Answered(NamedTuple, Generic[_Answer]):
    """The last answer to a question that was asked until it had one."""

    answer: _Answer
    may_repeat: bool
    """Whether an earlier answer was lost: this one may be to a repeat of what was done."""


async def ask_again(
    cluster: AsksControllers,
    method: Method[_Request, _Answer],
    request: _Request,
    *,
    deadline_ms: int | None = None,
    repeats: Callable[[Refusal], bool] | None = None,
) -> _Answer:
    """The answer of `ask_until_answered`, which raises as this does."""
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

    ``repeats``: after which refusals; by default after each that says that another controller may decide.

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
            # Once a question was sent, it must not be reported that nothing was done.
            raise lost or error
        await asyncio.sleep(pause_s)


def _is_taken_over(refusal: Refusal) -> bool:
    return refusal.code is ErrorCode.NOT_CONTROLLER and refusal.hint is not None
