"""Shared by servicers that use coordinators: finds the coordinator of a key, and asks one on this node.

Invariant: only the core decides which partition coordinates a key, and what its coordinator answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import grpc

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.log.events import CoordinatorAsked
from strandline.core.messages import LeaderHint
from strandline.core.types import TopicPartition
from strandline.rpc.convert.errors import write_leader
from strandline.runtime.clock import Clock
from strandline.runtime.host import Host
from strandline.v1 import partition_pb2

# ---- state_topic
# Asks the controller to create an internal topic, which does not exist before its first use (G1).
#
# Invariant: at most one request is under way, and after a refusal there is none for `PAUSE_MS`; meanwhile callers get
# the same refusal.

PAUSE_MS = 1_000

Create = Callable[[str], Awaitable[Refusal | None]]
"""Asks the controller to create an internal topic; returns why it was not created, or None."""


class StateTopic:
    """Has the internal topic ``name`` created when it is needed."""

    def __init__(self, name: str, create: Create, clock: Clock) -> None:
        self._name = name
        self._create = create
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._next_ms = 0
        self._refusal: Refusal | None = None

    def want(self) -> Refusal:
        """Have the topic created, because a caller needs it and it is unknown; return why the caller must wait."""
        if self._asking is None and self._clock() >= self._next_ms:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        message = f"topic '{self._name}', which holds the state of coordinators, is being created; ask again"
        return self._refusal or Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

    async def _ask(self) -> None:
        try:
            self._refusal = await self._create(self._name)
        except Refused as error:
            message = f"the controller was asked to create topic '{self._name}': {error.refusal}"
            self._refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        finally:
            self._next_ms = self._clock() + PAUSE_MS
            self._asking = None

    async def close(self) -> None:
        """Cancel the request under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


MAX_WAIT_MS = 30_000
"""The longest time that a request waits; less if the caller's deadline comes first."""
_MARGIN_MS = 50
"""The part of the caller's time that is left for sending the answer back."""

Context = grpc.aio.ServicerContext[Any, Any]
_Answer = TypeVar("_Answer")


class HasCoordinator(Protocol):
    """A message that can name the coordinator in addition to NOT_COORDINATOR."""

    @property
    def current_coordinator(self) -> partition_pb2.CurrentLeader:
        """The coordinator that this node knows."""
        ...


class ShardCalls:
    """Makes calls to the coordinators of one internal topic."""

    def __init__(self, host: Host, topic: str, create_topic: Create) -> None:
        self._host = host
        self._driver = host.driver
        self._topic = topic
        self.state_topic = StateTopic(topic, create_topic, host.driver.clock)

    def coordinator_of(self, key: str) -> LeaderHint | Refusal:
        """The coordinator of a key, as far as this node knows; a refusal while its topic does not exist."""
        tp = self._driver.core.coordinator_partition(self._topic, key)
        return self.state_topic.want() if tp is None else self.leader_of(tp)

    def leader_of(self, tp: TopicPartition) -> LeaderHint:
        """The leader of a partition of the topic."""
        image = self._host.topics.partition(tp)
        assert image is not None, "the directory of names has every topic that the core knows"
        return LeaderHint(image.leader, image.leader_epoch)

    async def ask(self, key: str, request: object, wait_ms: int, answer_type: type[_Answer]) -> _Answer:
        """Ask the coordinator of a key, if it is on this node.

        Raises:
            Refused: the request was refused as a whole.
        """
        return await self.ask_at(self.partition_of(key), request, wait_ms, answer_type)

    def partition_of(self, key: str) -> TopicPartition:
        """The partition whose leader is the coordinator of a key.

        Raises:
            Refused: the topic does not exist yet; it is being created.
        """
        tp = self._driver.core.coordinator_partition(self._topic, key)
        if tp is None:
            raise Refused.of(self.state_topic.want())
        return tp

    async def ask_at(self, tp: TopicPartition, request: object, wait_ms: int, answer_type: type[_Answer]) -> _Answer:
        """As `ask`, for the coordinator of this partition."""
        return await self._driver.ask(lambda now, call: CoordinatorAsked(now, call, tp, wait_ms, request), answer_type)

    def here(self) -> list[TopicPartition]:
        """The partitions whose coordinators this node is."""
        return list(self._driver.core.coordinated(self._topic))

    def whereto(self, key: str, refusal: Refusal) -> LeaderHint | None:
        """The coordinator of a key, if the refusal is NOT_COORDINATOR; else None."""
        if refusal.code is not ErrorCode.NOT_COORDINATOR:
            return None
        tp = self._driver.core.coordinator_partition(self._topic, key)
        return None if tp is None else self.leader_of(tp)

    def point(self, row: HasCoordinator, key: str, refusal: Refusal) -> None:
        """Name the coordinator in ``row``, if the refusal is NOT_COORDINATOR."""
        hint = self.whereto(key, refusal)
        if hint is not None:
            write_leader(row.current_coordinator, hint, self._host.topics)


def wait_ms(context: Context) -> int:
    """How long, in ms, a caller's request may wait for its coordinator."""
    left_s = cast("float | None", context.time_remaining())
    if left_s is None:
        return MAX_WAIT_MS
    return max(1, min(MAX_WAIT_MS, int(left_s * 1000) - _MARGIN_MS))
