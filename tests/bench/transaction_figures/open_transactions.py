"""Many transactional ids in one process, all with a transaction open or all without: nothing is sent in between.

They share one connection to each node and no task, so that only what the cluster itself does for them can cost
anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from strandline.client.cluster.metadata import Cluster
from strandline.client.produce.delivery import ProducerIdentity
from strandline.client.produce.transactional_id import TransactionCoordinator
from strandline.core.types import TopicPartition
from strandline.records.batch import with_producer
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import partition_pb2
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

TRANSACTION_TIMEOUT_MS = 900_000
"""Longer than a run, so that no coordinator ends one in the middle of it."""
WAIT_S = 60.0
_AT_A_TIME = 100
_CALL_MS = 10_000
_AGAIN_S = 0.02

T = TypeVar("T")


class OpenTransactions:
    """Transactions of ``names``, each of one record in one of the topic's ``partitions``."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, names: Sequence[str]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._ids = [
            TransactionCoordinator(cluster, name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS) for name in names
        ]
        self._identities: list[ProducerIdentity] = []
        self._record = encode_batch([NewRecord(None, b"open", 1)])

    async def begin(self) -> None:
        """Every id gets its identity; none has a transaction.

        Raises:
            Refused: a coordinator refused, or did not answer in time.
        """
        deadline_ms = int(WAIT_S * 1000)
        self._identities = await _some_at_a_time(
            [partial(one.init, None, deadline_ms=deadline_ms) for one in self._ids]
        )

    async def open(self) -> None:
        """Every id begins a transaction.

        Raises:
            TimeoutError: some leader did not take the record.
        """
        await _some_at_a_time([partial(self._send, number) for number in range(len(self._ids))])
        await self._until_open(len(self._ids))

    async def end(self) -> None:
        """All are committed, and every marker is written.

        Raises:
            Refused: a coordinator refused, or did not answer in time.
            TimeoutError: some partition did not get its marker.
        """
        ending = zip(self._ids, self._identities, strict=True)
        deadline_ms = int(WAIT_S * 1000)
        self._identities = await _some_at_a_time(
            [partial(one.end, by, committed=True, deadline_ms=deadline_ms) for one, by in ending]
        )
        await self._until_open(0)

    async def _send(self, number: int) -> None:
        by = self._identities[number]
        batch = with_producer(
            self._record,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        index = number % self._partitions
        row = pb.ProducePartition(index=index, records=batch)
        request = pb.ProduceRequest(
            topic_data=[pb.ProduceTopic(name=self._topic, partition_data=[row])],
            transactional_id=self._ids[number].transactional_id,
        )
        leader = await self._leader(index)
        async with asyncio.timeout(WAIT_S):
            # Refused as long as the coordinator still ends the transaction before.
            while True:
                answer = await self._cluster.ask(leader.Produce, request, deadline_ms=_CALL_MS)
                if not answer.responses[0].partition_responses[0].error_code:
                    return
                await asyncio.sleep(_AGAIN_S)

    async def _until_open(self, count: int) -> None:
        began = time.monotonic()
        while (found := await self._count_open()) != count:
            if time.monotonic() > began + WAIT_S:
                raise TimeoutError(f"{found} transactions are open after {WAIT_S} s, not {count}")
            await asyncio.sleep(_AGAIN_S)

    async def _count_open(self) -> int:
        """As the leaders of the partitions know it."""
        found = 0
        for index in range(self._partitions):
            request = pb.DescribeProducersRequest(
                topics=[partition_pb2.TopicPartitions(topic=self._topic, partitions=[index])]
            )
            leader = await self._leader(index)
            answer = await self._cluster.ask(leader.DescribeProducers, request, deadline_ms=_CALL_MS)
            producers = answer.topics[0].partitions[0].active_producers
            found += sum(one.HasField("current_txn_start_offset") for one in producers)
        return found

    async def _leader(self, index: int) -> LeaderServiceAsyncStub:
        topic = await self._cluster.topic(self._topic)
        leader = self._cluster.view.leader_of(TopicPartition(topic.topic_id, index))
        assert leader is not None, "no node is killed while transactions begin"
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        return stub


async def _some_at_a_time(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with turns:
            return await call()

    return await asyncio.gather(*(one(call) for call in calls))
