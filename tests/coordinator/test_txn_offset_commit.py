"""TxnOffsetCommit over real nodes: offsets that count with their transaction, and refusals on the wire (X16, X17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes

from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.errors import ErrorCode
from strandline.rpc.channels import open_channel
from strandline.rpc.status import refusal_of
from strandline.v1 import group_service_pb2 as pb
from strandline.v1 import transaction_service_pb2 as txn
from strandline.v1.group_service_pb2_grpc import GroupServiceStub
from strandline.v1.transaction_service_pb2_grpc import TransactionServiceStub

GROUPS_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01"
TRANSACTIONS_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a02"
NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _Stubs(NamedTuple):
    groups: Any
    transactions: Any


@asynccontextmanager
async def _serving(tmp_path: Path, *, transactions_on: int) -> AsyncIterator[_Stubs]:
    """Groups are coordinated on node 1, transactional ids on the one that is named; both serve."""
    other = {1: 2, 2: 1}
    controller = ControllerStub(
        topic(TOPIC, TOPIC_ID, (1, 2), partitions=2, min_isr=2),
        topic(GROUP_STATE, GROUPS_ID, (1, 2), min_isr=2),
        topic(TRANSACTION_STATE, TRANSACTIONS_ID, (transactions_on, other[transactions_on]), min_isr=2),
    )
    async with running_nodes(controller, tmp_path, (1, 2)) as nodes:
        groups, transactions = nodes[0].client, nodes[transactions_on - 1].client
        assert groups is not None and transactions is not None
        async with open_channel(groups) as to_groups, open_channel(transactions) as to_transactions:
            yield _Stubs(GroupServiceStub(to_groups), TransactionServiceStub(to_transactions))


async def _init(stubs: _Stubs) -> tuple[int, int]:
    request = txn.TransactionServiceInitProducerIdRequest(transactional_id="t")
    while True:
        answer = await stubs.transactions.InitProducerId(request, timeout=5)
        if answer.error_code not in NOT_YET:
            return answer.producer_id, answer.producer_epoch


def _request(by: tuple[int, int], offset: int = 7, **fields: Any) -> pb.TxnOffsetCommitRequest:
    given = {"transactional_id": "t", "group_id": "g", "producer_id": by[0], "producer_epoch": by[1]}
    request = pb.TxnOffsetCommitRequest(**{**given, **fields})
    request.topics.add(name=TOPIC).partitions.add(partition_index=0, committed_offset=offset)
    return request


async def _stage(stubs: _Stubs, by: tuple[int, int], offset: int = 7, **fields: Any) -> int:
    """Commit in a transaction, again while a coordinator is not ready or ends the one before; the last error."""
    while True:
        answer = await stubs.groups.TxnOffsetCommit(_request(by, offset, **fields), timeout=5)
        code = answer.topics[0].partitions[0].error_code
        if code not in (*NOT_YET, ErrorCode.CONCURRENT_TRANSACTIONS):
            return int(code)


async def _end(stubs: _Stubs, by: tuple[int, int], *, commit: bool) -> tuple[int, int]:
    request = txn.EndTxnRequest(transactional_id="t", producer_id=by[0], producer_epoch=by[1], committed=commit)
    answer = await stubs.transactions.EndTxn(request, timeout=5)
    assert answer.error_code == 0, answer.error_message
    return answer.producer_id, answer.producer_epoch


async def _committed(stubs: _Stubs, *, require_stable: bool) -> int | str | None:
    wanted = {"topics": [{"topic": TOPIC, "partitions": [0]}]}
    request = pb.OffsetFetchRequest(groups=[{"group_id": "g", "topics": wanted}], require_stable=require_stable)
    (row,) = (await stubs.groups.OffsetFetch(request, timeout=5)).groups[0].topics[0].partitions
    if row.error_code:
        return ErrorCode(row.error_code).name
    return row.committed_offset if row.HasField("committed_offset") else None


async def _until_stable(stubs: _Stubs) -> int | str | None:
    async with asyncio.timeout(5):
        while (found := await _committed(stubs, require_stable=True)) == "UNSTABLE_OFFSET_COMMIT":
            pass
        return found


@pytest.mark.parametrize("transactions_on", [1, 2], ids=["one node", "over the wire"])
async def test_offsets_count_with_their_transaction(tmp_path: Path, transactions_on: int) -> None:
    """Unstable while it is open, the group's after its commit, dropped after an abort; a late request of the first
    transaction is refused in the next one."""
    async with _serving(tmp_path, transactions_on=transactions_on) as stubs:
        first = await _init(stubs)
        codes = [await _stage(stubs, first, 7)]
        open_ones = [await _committed(stubs, require_stable=stable) for stable in (True, False)]
        second = await _end(stubs, first, commit=True)
        after_commit = await _until_stable(stubs)
        codes.append(await _stage(stubs, second, 9))
        late = await _stage(stubs, first, 1)
        third = await _end(stubs, second, commit=False)
        after_abort = await _until_stable(stubs)
        described = await stubs.transactions.DescribeTransactions(
            txn.DescribeTransactionsRequest(transactional_ids=["t"]), timeout=5
        )

    assert (codes, open_ones) == ([0, 0], ["UNSTABLE_OFFSET_COMMIT", None])
    assert (after_commit, after_abort) == (7, 7)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert third == (first[0], 2)
    assert described.transaction_states[0].transaction_state in ("PrepareAbort", "CompleteAbort")


async def test_a_stranger_stages_nothing(tmp_path: Path) -> None:
    """What the coordinator of the transaction refuses, and what the group's does, each by its number; NOT_APPENDED."""
    async with _serving(tmp_path, transactions_on=1) as stubs:
        producer_id, _ = await _init(stubs)
        another_id = await _stage(stubs, (producer_id + 1, 0))
        another_epoch = await _stage(stubs, (producer_id, 3))
        member = await _stage(stubs, (producer_id, 0), member_id="m", generation_id=4)
        below_0 = await _stage(stubs, (producer_id, 0), -1)
        found = await _committed(stubs, require_stable=True)

    assert another_id == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert another_epoch == ErrorCode.INVALID_PRODUCER_EPOCH
    assert member == ErrorCode.UNKNOWN_MEMBER_ID
    assert below_0 == ErrorCode.INVALID_REQUEST
    assert found is None


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_GROUP_ID, "group_id"),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "another"),
        ({"producer_id": -1}, ErrorCode.INVALID_REQUEST, "producer_id -1 must not be negative"),
        ({"producer_epoch": 40_000}, ErrorCode.INVALID_REQUEST, "producer_epoch must be 0 to 32767"),
    ],
)
async def test_what_no_producer_can_mean_is_refused_here(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    """As a failed call that names the field; no coordinator is asked."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)), topic(GROUP_STATE, GROUPS_ID, (1,)))
    async with running_nodes(controller, tmp_path) as nodes:
        assert nodes[0].client is not None
        async with open_channel(nodes[0].client) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await GroupServiceStub(channel).TxnOffsetCommit(_request((7, 0), **fields), timeout=5)  # type: ignore[misc]

    refusal = refusal_of(error.value)
    assert refusal.code is code
    assert words in refusal.message
