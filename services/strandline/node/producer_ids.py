"""Producer ids at a data node: assigned from its blocks, which it requests before they are needed (C65).

Invariant: at most one request for a block is under way; a producer waits for one no longer than `WAIT_MS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from strandline.core.control.messages import AllocateProducerIds, InitProducerId, ProducerIdGiven, ProducerIdsAllocated
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.producer_ids import ProducerIdBlocks
from strandline.rpc.convert.errors import Topics, check_cluster
from strandline.runtime.host import Host
from strandline.runtime.ports import Backoff

WAIT_MS = 2_000


class Allocates(Protocol):
    """The part of `rpc.controller_link.ControllerLink` that is used here."""

    async def allocate_producer_ids(self, request: AllocateProducerIds) -> ProducerIdsAllocated:
        """Reserve a block."""
        ...


class ProducerIds:
    """The producer ids of one registered process."""

    def __init__(self, controller: Allocates, host: Host, *, backoff: Callable[[], Backoff]) -> None:
        self._controller = controller
        self._host = host
        self._topics: Topics = host.topics
        self._backoff = backoff
        self._blocks = ProducerIdBlocks()
        self._wanted = asyncio.Event()
        self._came = asyncio.Event()

    async def keep_forever(self) -> None:
        """Request blocks until cancelled, the first at once: a producer may start while no controller is reachable."""
        backoff = self._backoff()
        while True:
            self._wanted.clear()
            if not self._blocks.wants_more:
                await self._wanted.wait()
                continue
            try:
                answer = await self._controller.allocate_producer_ids(self._request())
            except Refused as error:
                answer = ProducerIdsAllocated(refusal=error.refusal)
            if answer.refusal is not None:
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._blocks.add(answer.start, answer.length)
            self._came.set()

    def next_id(self) -> int | None:
        """The next id, for coordinators of transactions (`ProducerIdSupply`)."""
        found = self._blocks.next_id()
        if found is None:
            self._wanted.set()
        return found

    def take(self, producer_id: int) -> None:
        """Mark the next id as used (`ProducerIdSupply`)."""
        self._blocks.take(producer_id)
        if self._blocks.wants_more:
            self._wanted.set()

    def _request(self) -> AllocateProducerIds:
        assert self._host.node_epoch is not None, "only a registered node asks for blocks"
        return AllocateProducerIds(
            node_id=self._host.node_id, node_epoch=self._host.node_epoch, cluster_id=self._topics.cluster_id
        )

    async def give(self, request: InitProducerId) -> ProducerIdGiven:
        """Assign an identity to a producer.

        Raises:
            Refused: INCONSISTENT_CLUSTER_ID.
        """
        check_cluster(request.cluster_id, self._topics)
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                while (given := self._blocks.give(request)) is None:
                    self._came.clear()
                    self._wanted.set()
                    await self._came.wait()
        except TimeoutError:
            message = "this node has no producer ids left and no controller gives it more; ask again, or another node"
            return ProducerIdGiven(refusal=Refusal(ErrorCode.REQUEST_TIMED_OUT, message))
        if self._blocks.wants_more:
            self._wanted.set()
        return given
