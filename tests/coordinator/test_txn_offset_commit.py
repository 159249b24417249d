"""Transactions over real nodes: TxnOffsetCommit, tools of administrators, and what is asked elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes

from strandline.client import Admin, ErrorCode as ErrorCodeTools, Producer, ProducerFenced, Refused, TopicPartition
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.core.transactions.messages import AddPartitions, ProducerIdentity
from strandline.core.types import NodeId, TopicPartition as TopicPartitionAsking
from strandline.node.shard_calls import MAX_WAIT_MS, PAUSE_MS, StateTopic, wait_ms
from strandline.node.transactions import DialledTransactionPeers
from strandline.rpc.channels import Channels, open_channel
from strandline.rpc.status import refusal_of
from strandline.runtime.host import TopicDirectory
from strandline.v1 import group_service_pb2 as pb, transaction_service_pb2 as pb_asking, transaction_service_pb2 as txn
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


# What administrators see of transactions on real nodes, and how they end one that stays open.


STATE_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a02"
ID = "payments"


async def test_an_open_transaction_is_seen_aborted_and_fenced(tmp_path: Path) -> None:
    """Coordinator on one node, leader on the other: listed, described, with its producer in both partitions; it does
    not hang. Aborted in one partition it is still open in the other, which the fence ends, and events tell why."""
    ordinary = topic(TOPIC, TOPIC_ID, (2, 1), partitions=2)
    state = topic(TRANSACTION_STATE, STATE_ID, (1, 2), partitions=2)
    async with running_nodes(ControllerStub(ordinary, state), tmp_path, (1, 2)) as (first, _):
        assert first.client is not None
        bootstrap = f"{first.client.host}:{first.client.port}"
        seen: dict[str, Any] = {}
        async with Admin(bootstrap) as admin, Producer(bootstrap, transactional_id=ID) as producer:
            with pytest.raises(ProducerFenced):
                await _write_while_somebody_ends_it(admin, producer, seen)
            after = await admin.describe_producers(TOPIC)

    listed, described = seen["listed"], seen["described"]
    assert (listed.transactional_id, listed.state) == (ID, "Ongoing")
    assert (described.state, described.coordinator) == ("Ongoing", 1)
    assert described.partitions == (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
    assert [(each.partition, each.producer_id, each.open_since_offset) for each in seen["producers"]] == [
        (0, listed.producer_id, 0),
        (1, listed.producer_id, 0),
    ]
    assert seen["hanging"] == []
    assert (seen["aborted"].partition, seen["aborted"].producer_epoch) == (0, 0)
    assert [each.open_since_offset for each in seen["left"]] == [None, 0]
    assert seen["again"].code is ErrorCodeTools.INVALID_TXN_STATE
    assert seen["fenced"] == (listed.producer_id, 2)
    assert [each.open_since_offset for each in after] == [None, None]
    causes = [event["cause"] for event in _events(tmp_path / "node-1", "TRANSACTION_CHANGE")]
    # A request whose answer is late is sent again, and is an event each time.
    assert [cause for cause, _ in groupby(causes)] == ["init", "fenced", "completed", "init"]


async def _write_while_somebody_ends_it(admin: Admin, producer: Producer[Any, Any], seen: dict[str, Any]) -> None:
    """A record in each partition; then an administrator looks, aborts the first, tries it again, and fences."""
    async with producer.transaction():
        for partition in (0, 1):
            await (await producer.send(TOPIC, b"a", partition=partition))
        (seen["listed"],) = await admin.list_transactions(states=["Ongoing"], longer_than_ms=0)
        (seen["described"],) = await admin.describe_transactions([ID])
        seen["producers"] = await admin.describe_producers(TOPIC)
        seen["hanging"] = await admin.find_hanging_transactions(TOPIC, older_than_ms=-1)
        seen["aborted"] = await admin.abort_transaction(TOPIC, 0, start_offset=0)
        seen["left"] = await admin.describe_producers(TOPIC)
        try:
            await admin.abort_transaction(TOPIC, 0, start_offset=0)
        except Refused as refused:
            seen["again"] = refused.refusal
        seen["fenced"] = await admin.fence_transactional_id(ID)


def _events(directory: Path, kind: str) -> list[dict[str, str]]:
    """What a node reported, by its file."""
    rows = [json.loads(line) for line in (directory / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["event_type"] == kind]


# What a coordinator's node asks of others: the controller for a topic, and nodes about transactions.


ELSEWHERE = Endpoint("node", 2)


async def test_the_controller_is_asked_once_at_a_time_and_not_within_the_pause() -> None:
    """However many callers need the topic: while one request is under way no other begins, nor soon after it."""
    now_ms, asked = 0, 0
    answers: asyncio.Queue[Refusal | None] = asyncio.Queue()

    async def create(_: str) -> Refusal | None:
        nonlocal asked
        asked += 1
        return await answers.get()

    async def want(at_ms: int) -> int:
        nonlocal now_ms
        now_ms = at_ms
        for _ in range(3):
            state.want()
            await asyncio.sleep(0)
        return asked

    state = StateTopic("state", create, lambda: now_ms)
    counts = [await want(0), await want(10 * PAUSE_MS)]
    answers.put_nowait(Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no"))
    counts += [await want(10 * PAUSE_MS), await want(11 * PAUSE_MS - 1), await want(11 * PAUSE_MS)]
    await asyncio.wait_for(state.close(), 10)

    assert counts == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("left_s", "waits_ms"), [(None, MAX_WAIT_MS), (3_600.0, MAX_WAIT_MS), (1.0, 950), (0.02, 1), (-1.0, 1)]
)
def test_a_request_waits_within_its_callers_time(left_s: float | None, waits_ms: int) -> None:
    """Never longer than the maximum, and a little shorter than the caller waits, so that the answer is heard."""
    context: Any = SimpleNamespace(time_remaining=lambda: left_s)

    assert wait_ms(context) == waits_ms


def _peers(answer: pb_asking.AddPartitionsToTxnResponse | None = None) -> DialledTransactionPeers:
    async def add_here(_: pb_asking.AddPartitionsToTxnRequest, within_ms: int) -> pb_asking.AddPartitionsToTxnResponse:
        assert answer is not None
        return answer

    topics = TopicDirectory()
    topics.cluster_id = "c"
    host: Any = SimpleNamespace(node_id=NodeId(1), topics=topics)
    unused: Any = None
    return DialledTransactionPeers(host, add_here=add_here, write_here=unused)


async def test_this_node_is_asked_without_a_wire() -> None:
    """Its own address need not be known, nor reachable."""
    question = AddPartitions(
        transactional_id="t", identity=ProducerIdentity(7, 0), partitions=(TopicPartitionAsking("id", 0),)
    )
    answer = pb_asking.AddPartitionsToTxnResponse()
    answer.results_by_transaction.add(transactional_id="t")
    peers = _peers(answer)
    found = await peers.add_partitions(NodeId(1), [question])
    await peers.close()

    assert list(found) == [None]


@pytest.mark.parametrize(
    ("answers", "is_dialled"),
    [
        ([None, Refusal(ErrorCode.NOT_COORDINATOR)], True),
        ([Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)], True),
        ([None, Refusal(ErrorCode.PRODUCER_FENCED)], False),
    ],
)
async def test_a_node_that_is_not_who_it_should_be_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[Refusal | None], is_dialled: bool
) -> None:
    """Another process may have its address by now, over a connection that works."""
    renewed: list[Endpoint] = []
    monkeypatch.setattr(Channels, "renew", lambda _, endpoint, grace_s: renewed.append(endpoint))
    monkeypatch.setattr(TopicDirectory, "internal_endpoint_of", lambda _, node: ELSEWHERE)
    peers = _peers()
    found = peers._seen(NodeId(2), answers)
    await peers.close()

    assert found is answers
    assert renewed == [ELSEWHERE] * is_dialled
