"""Transactions on real processes, call by call: a coordinator that is killed between a decision and its markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from raw_records import batch, patched, produce_request
from running_cluster import CALL_S, Probe, until

from strandline.core.coordinator.internal_topics import TRANSACTION_STATE, partition_of
from strandline.core.errors import ErrorCode
from strandline.v1 import (
    group_service_pb2 as group_pb,
    leader_service_pb2 as leader_pb,
    partition_pb2,
    transaction_service_pb2 as pb,
)
from strandline.v1.group_service_pb2_grpc import GroupServiceStub
from strandline.v1.transaction_service_pb2_grpc import TransactionServiceStub

CLUSTER = {"nodes": 3}

_PARTITIONS = 12
_ATTRIBUTES_AT = 21
_TRANSACTIONAL = 0x10


@dataclass
class Id:
    """A transactional id, asked about at whichever node coordinates it."""

    probe: Probe
    name: str

    async def coordinator(self, *, other_than: int | None = None) -> int:
        """Wait until a node coordinates the id."""
        return await self.probe.leader(TRANSACTION_STATE, partition_of(self.name, _PARTITIONS), other_than=other_than)

    async def _stub(self) -> Any:
        return TransactionServiceStub(self.probe.channel(await self.coordinator()))

    async def init(self) -> tuple[int, int] | None:
        """The next identity, None while the coordinator cannot give one."""
        request = pb.TransactionServiceInitProducerIdRequest(transactional_id=self.name)
        answer = await (await self._stub()).InitProducerId(request, timeout=CALL_S)
        return None if answer.error_code else (answer.producer_id, answer.producer_epoch)

    async def end(self, by: tuple[int, int], *, commit: bool = True) -> pb.EndTxnResponse:
        """Ask for the end of a transaction."""
        request = pb.EndTxnRequest(
            transactional_id=self.name, producer_id=by[0], producer_epoch=by[1], committed=commit
        )
        answer = await (await self._stub()).EndTxn(request, timeout=CALL_S)
        assert isinstance(answer, pb.EndTxnResponse)
        return answer

    async def state(self) -> str:
        """As its coordinator describes it."""
        request = pb.DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = await (await self._stub()).DescribeTransactions(request, timeout=CALL_S)
        return str(answer.transaction_states[0].transaction_state)

    async def send(self, topic: str, leader: int, value: bytes, by: tuple[int, int]) -> None:
        """Produce the first record of a transaction."""
        whole = batch(value, producer=by, sequence=0)
        request = produce_request(
            topic, patched(whole, _ATTRIBUTES_AT, ">h", int.from_bytes(whole[21:23], "big") | _TRANSACTIONAL)
        )
        request.transactional_id = self.name

        async def sent() -> bool:
            answer = (await self.probe.leader_service(leader).Produce(request, timeout=CALL_S)).responses[0]
            return not answer.partition_responses[0].error_code

        await until(sent, f"{value!r} is part of its transaction")


async def _created(probe: Probe) -> None:
    """Wait until the topic of coordinators exists: the first who looks for one has it created."""

    async def found() -> bool:
        request = group_pb.FindCoordinatorRequest(key_type=group_pb.COORDINATOR_KEY_TYPE_TRANSACTION)
        request.coordinator_keys.append("any")
        stub: Any = GroupServiceStub(probe.channel(1))
        answer = await stub.FindCoordinator(request, timeout=CALL_S)
        return not answer.coordinators[0].error_code

    await until(found, "__transaction_state exists")
    await probe.in_sync(TRANSACTION_STATE)


async def _id_coordinated_by(probe: Probe, node_id: int) -> Id:
    for number in range(10_000):
        name = f"id-{number}"
        index = partition_of(name, _PARTITIONS)
        if (await probe.partition(TRANSACTION_STATE, index)).leader_id == node_id:
            return Id(probe, name)
    raise AssertionError(f"node {node_id} coordinates nothing")


async def _committed(probe: Probe, topic: str, leader: int) -> leader_pb.FetchResponse:
    row = partition_pb2.FetchPartition(partition=0, fetch_offset=0)
    request = leader_pb.FetchRequest(
        topics=[partition_pb2.FetchTopic(topic=topic, partitions=[row])],
        isolation_level=partition_pb2.ISOLATION_LEVEL_READ_COMMITTED,
        decode=True,
    )
    return await probe.leader_service(leader).Fetch(request, timeout=CALL_S)


def _values(answer: leader_pb.FetchResponse) -> list[bytes]:
    return [record.value for record in answer.responses[0].partitions[0].simple_records]


@pytest.mark.timeout(120)
async def test_a_coordinator_that_dies_before_the_markers_leaves_a_decision(probe: Probe, topic: str) -> None:
    """The only replica of the data is down when the transaction is committed, so no marker can be written; then its
    coordinator is killed. The next one sends the marker when the data is back, the reader gets the record once, and
    the producer's repeated EndTxn has the same answer."""
    # Raw batches are of 2023: a node that starts again would apply retention before the marker, or after it.
    await probe.create_topic(topic, assignment=[3], retention_ms="-1")
    await _created(probe)
    mine = await _id_coordinated_by(probe, 1)
    by = await until(mine.init, "an identity is given")
    await mine.send(topic, 3, b"kept", by)
    probe.local.kill_node(3)

    async def decided() -> bool:
        return (await mine.end(by)).error_code in (0, ErrorCode.CONCURRENT_TRANSACTIONS)

    await until(decided, "the transaction is decided while the data is away")
    assert await mine.state() == "PrepareCommit"
    probe.local.kill_node(1)
    await probe.restart(3)
    assert await mine.coordinator(other_than=1) != 1
    await probe.restart(1)

    async def complete() -> bool:
        return await mine.state() == "CompleteCommit"

    await until(complete, "the next coordinator had the marker written")
    again = await mine.end(by)
    found = await _committed(probe, topic, await probe.leader(topic))

    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, by[0], by[1] + 1)
    assert _values(found) == [b"kept"]
    assert found.responses[0].partitions[0].last_stable_offset == 2
