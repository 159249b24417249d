"""What servicers over coordinators share: which coordinator a key has, and asking the one that is here.

Invariant: nothing is decided here; which partition coordinates a key, and what its coordinator answers, is the core's.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast

import grpc

from strandline.coordinator.state_topic import Create, StateTopic
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.events import CoordinatorAsked
from strandline.core.messages import LeaderHint
from strandline.core.types import TopicPartition
from strandline.rpc.convert_errors import write_leader
from strandline.runtime.host import Host
from strandline.v1 import partition_pb2

MAX_WAIT_MS = 30_000
"""How long a request waits at most; less where the caller's own deadline comes first."""
_MARGIN_MS = 50
"""What is left of the caller's time for the answer's way back."""

Context = grpc.aio.ServicerContext[Any, Any]
_Answer = TypeVar("_Answer")


class HasCoordinator(Protocol):
    """A message that names the coordinator beside NOT_COORDINATOR."""

    @property
    def current_coordinator(self) -> partition_pb2.CurrentLeader:
        """The coordinator this node knows."""
        ...


class ShardCalls:
    """Calls to the coordinators in one internal topic."""

    def __init__(self, host: Host, topic: str, create_topic: Create) -> None:
        self._host = host
        self._driver = host.driver
        self._topic = topic
        self.state_topic = StateTopic(topic, create_topic, host.driver.clock)

    def coordinator_of(self, key: str) -> LeaderHint | Refusal:
        """The coordinator of a key as this node knows it, or why there is none; the topic is then asked for."""
        tp = self._driver.core.coordinator_partition(self._topic, key)
        return self.state_topic.want() if tp is None else self.leader_of(tp)

    def leader_of(self, tp: TopicPartition) -> LeaderHint:
        """The leader of a partition of the topic."""
        image = self._host.topics.partition(tp)
        assert image is not None, "the directory of names has every topic that the core knows"
        return LeaderHint(image.leader, image.leader_epoch)

    async def ask(self, key: str, request: object, wait_ms: int, answer_type: type[_Answer]) -> _Answer:
        """Ask the coordinator of a key, if it is here.

        Raises:
            Refused: the request as a whole.
        """
        tp = self._driver.core.coordinator_partition(self._topic, key)
        if tp is None:
            raise Refused.of(self.state_topic.want())
        return await self.ask_at(tp, request, wait_ms, answer_type)

    async def ask_at(self, tp: TopicPartition, request: object, wait_ms: int, answer_type: type[_Answer]) -> _Answer:
        """Ask one coordinator, as `ask`."""
        return await self._driver.ask(lambda now, call: CoordinatorAsked(now, call, tp, wait_ms, request), answer_type)

    def here(self) -> list[TopicPartition]:
        """The partitions whose coordinators this node is."""
        return list(self._driver.core.coordinated(self._topic))

    def whereto(self, key: str, refusal: Refusal) -> LeaderHint | None:
        """The coordinator of a key, if that is what the refusal is about."""
        if refusal.code is not ErrorCode.NOT_COORDINATOR:
            return None
        tp = self._driver.core.coordinator_partition(self._topic, key)
        return None if tp is None else self.leader_of(tp)

    def point(self, row: HasCoordinator, key: str, refusal: Refusal) -> None:
        """Name the coordinator beside NOT_COORDINATOR."""
        hint = self.whereto(key, refusal)
        if hint is not None:
            write_leader(row.current_coordinator, hint, self._host.topics)


def wait_ms(context: Context) -> int:
    """How long a caller's request may wait for its coordinator."""
    left_s = cast("float | None", context.time_remaining())
    if left_s is None:
        return MAX_WAIT_MS
    return max(1, min(MAX_WAIT_MS, int(left_s * 1000) - _MARGIN_MS))
