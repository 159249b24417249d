"""What an administrator asks of transactions: coordinators say what they decided, leaders what their logs remember.

Invariant: a list is of the whole cluster, or an error that has what the others answered: never a gap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.client.administer.admin_answers import check
from strandline.client.administer.described_by_coordinators import (
    LISTED_TRANSACTION,
    PRODUCER,
    TRANSACTION,
    UNDER_WAY,
    DescribedTransaction,
    ListedTransaction,
    PartitionProducer,
)
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import TransactionsIncomplete
from strandline.client.groups.coordinator import ask_every_node
from strandline.client.produce.transactional_id import TransactionCoordinator
from strandline.client.records import TopicPartition
from strandline.core import types
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.v1 import leader_service_pb2 as leader_pb, partition_pb2, transaction_service_pb2 as pb
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub
from strandline.v1.transaction_service_pb2_grpc import TransactionServiceStub

if TYPE_CHECKING:
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub


# ---- hanging
# Which open transactions will not end by themselves: their coordinators do not know them, or know them ended (X19).
#
# By X9 to X11 there are none, but for an unclean election or a restored state of coordinators (X20).
#
# Invariant: a transaction whose coordinator was not heard is never called hanging, for to abort one that lives tears
# it.


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in one partition that will not end by itself."""

    producer: PartitionProducer
    transactional_id: str | None
    """The transactional id of the producer according to its coordinator; None if no coordinator knows it."""
    why: str
    """What its coordinator says, as a sentence."""


def is_suspect(producer: PartitionProducer, *, now_ms: int, older_than_ms: int) -> bool:
    """Whether a producer has a transaction open in a partition, and was not heard there for so long.

    The time of its newest batch is its sender's; a clock that is ahead makes it look younger, so that it is found
    later.
    """
    return producer.open_since_offset is not None and now_ms - producer.last_timestamp_ms > older_than_ms


def hanging_of(
    suspects: Iterable[PartitionProducer], known: Mapping[int, DescribedTransaction]
) -> list[HangingTransaction]:
    """Those of the suspects that hang; ``known``: what coordinators say, by producer id, of every id that they have."""
    found = []
    for producer in suspects:
        described = known.get(producer.producer_id)
        why = _why(producer, described)
        if why:
            found.append(HangingTransaction(producer, described.transactional_id if described else None, why))
    return found


def _why(producer: PartitionProducer, described: DescribedTransaction | None) -> str:
    """Why it will not end by itself; empty if it will."""
    if described is None:
        return "no coordinator knows the producer id"
    place = TopicPartition(producer.topic, producer.partition)
    if described.state not in UNDER_WAY:
        return f"its coordinator has no transaction open: {described.state}"
    if place not in described.partitions:
        return f"the transaction that its coordinator has open ({described.state}) does not include the partition"
    # While it is being ended its coordinator has the epoch of the markers, which is one higher.
    epoch = described.producer_epoch - (described.state != "Ongoing")
    if epoch != producer.producer_epoch:
        return f"its coordinator has another transaction open, of epoch {epoch}"
    return ""


class TransactionAdmin:
    """Asks coordinators of transactions, and leaders of the partitions that take part in them."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def list_all(
        self, states: Iterable[str], producer_ids: Iterable[int], longer_than_ms: int | None
    ) -> list[ListedTransaction]:
        """The transactional ids of every living node, by id.

        Raises:
            TransactionsIncomplete: a node did not answer, or does not know its ids yet.
        """
        request = pb.ListTransactionsRequest(
            cluster_id=self._cluster.cluster_id,
            state_filters=states,
            producer_id_filters=producer_ids,
            duration_filter=longer_than_ms,
        )
        answers, missing = await ask_every_node(
            self._cluster,
            lambda channel: TransactionServiceStub(channel).ListTransactions,
            request,
            deadline_ms=self._timeout_ms,
        )
        rows = (row for answer in answers for row in answer.transaction_states)
        found = {row.transactional_id: LISTED_TRANSACTION.read(row) for row in rows}
        transactions = [found[transactional_id] for transactional_id in sorted(found)]
        if missing:
            raise TransactionsIncomplete(transactions, missing)
        return transactions

    async def describe(self, transactional_ids: Iterable[str]) -> list[DescribedTransaction]:
        """Transactional ids in the order asked for."""
        asked = (
            TransactionCoordinator(self._cluster, each).describe(deadline_ms=self._timeout_ms)
            for each in transactional_ids
        )
        return [TRANSACTION.read(row, coordinator=node_id) for row, node_id in await asyncio.gather(*asked)]

    async def producers(self, topic: str, partitions: Sequence[types.TopicPartition]) -> list[PartitionProducer]:
        """What the logs of one topic's partitions remember of producers, by partition and producer id.

        Raises:
            Refused: the first leader that does not answer, with why.
        """
        asked: dict[Endpoint, list[types.TopicPartition]] = {}
        for tp in partitions:
            asked.setdefault(self._leader(tp), []).append(tp)
        found = await asyncio.gather(*(self._producers_at(topic, at, led) for at, led in asked.items()))
        rows = [producer for producers in found for producer in producers]
        return sorted(rows, key=lambda producer: (producer.partition, producer.producer_id))

    async def _producers_at(
        self, topic: str, endpoint: Endpoint, led: Sequence[types.TopicPartition]
    ) -> list[PartitionProducer]:
        request = leader_pb.DescribeProducersRequest(cluster_id=self._cluster.cluster_id, topics=[_named(*led)])
        answer = await self._cluster.ask(self._at(endpoint).DescribeProducers, request, deadline_ms=self._timeout_ms)
        rows = [row for found in answer.topics for row in found.partitions]
        for row in rows:
            check(row)
        return [
            PRODUCER.read(one, topic=topic, partition=row.partition_index)
            for row in rows
            for one in row.active_producers
        ]

    async def find_hanging(
        self, suspects: Sequence[PartitionProducer], *, older_than_ms: int
    ) -> list[HangingTransaction]:
        """Those of ``suspects`` that will not end by themselves.

        Raises:
            TransactionsIncomplete: a node does not say what it coordinates, so that nothing can be called hanging.
        """
        now_ms = int(time.time() * 1_000)
        old = [each for each in suspects if is_suspect(each, now_ms=now_ms, older_than_ms=older_than_ms)]
        if not old:
            return []
        # It raises if a node does not answer, whose ids would otherwise count as unknown to every coordinator.
        listed = await self.list_all((), {each.producer_id for each in old}, None)
        described = await self.describe(each.transactional_id for each in listed)
        return hanging_of(old, {each.producer_id: each for each in described})

    async def abort(self, tp: types.TopicPartition, producer: PartitionProducer) -> None:
        """Write the marker that aborts a producer's open transaction in one partition, whatever its coordinator says.

        Raises:
            Refused: INVALID_PRODUCER_EPOCH: it has ended meanwhile; or the leader did not answer.
        """
        marker = leader_pb.WritableTxnMarker(
            producer_id=producer.producer_id,
            # Its own epoch would make the marker a late copy of an earlier one; markers have the next (X11).
            producer_epoch=producer.producer_epoch + 1,
            transaction_result=False,
            topics=[_named(tp)],
            # No higher than what is known there, so that the coordinator is not fenced for its own next markers.
            coordinator_epoch=producer.coordinator_epoch or 0,
        )
        request = leader_pb.WriteTxnMarkersRequest(cluster_id=self._cluster.cluster_id, markers=[marker])
        answer = await self._cluster.ask(
            self._at(self._leader(tp)).WriteTxnMarkers, request, deadline_ms=self._timeout_ms
        )
        check(answer.markers[0].topics[0].partitions[0])

    async def fence(self, transactional_id: str) -> tuple[int, int]:
        """Take the identity of a transactional id, which aborts its open transaction and fences its producer; the
        producer id and epoch that it has then.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator did not answer in time.
        """
        (described,) = await self.describe([transactional_id])
        # InitProducerId sets the time-out as well, and the id should keep its own.
        coordinator = TransactionCoordinator(
            self._cluster, transactional_id, transaction_timeout_ms=described.timeout_ms
        )
        # Without an identity, as a new process would ask: that fences the producer, whichever it is (X4).
        identity = await coordinator.init(None, deadline_ms=self._timeout_ms)
        return identity.producer_id, identity.producer_epoch

    def _leader(self, tp: types.TopicPartition) -> Endpoint:
        leader = self._cluster.view.leader_of(tp)
        if leader is None:
            self._cluster.refresh()
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp.partition} has no leader; ask again")
        return leader.endpoint

    def _at(self, endpoint: Endpoint) -> LeaderServiceAsyncStub:
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(endpoint))
        return stub


def _named(*tps: types.TopicPartition) -> partition_pb2.TopicPartitions:
    return partition_pb2.TopicPartitions(topic_id=tps[0].topic_id, partitions=[tp.partition for tp in tps])
