"""TransactionService over real nodes: a transaction from its first request to its readers; refusals on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import crc32c
import grpc
import pytest
from controller_stub import CLUSTER_ID, ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, fetch, leader_stub, produce, running_nodes, values_of

from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.errors import ErrorCode
from strandline.node.node import ReplicaNode
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.channels import open_channel
from strandline.rpc.status import refusal_of
from strandline.runtime.clock import wall_ms
from strandline.v1 import (
    group_service_pb2,
    group_service_pb2_grpc,
    partition_pb2,
    transaction_service_pb2 as pb,
    transaction_service_pb2_grpc as pb_grpc,
)

STATE_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a02"
COMMITTED = partition_pb2.ISOLATION_LEVEL_READ_COMMITTED
ID = "payments"


def _controller(*, coordinator: int = 1, leader: int = 1) -> ControllerStub:
    """A topic of two partitions and the state of transactions, on nodes 1 and 2, each led by the one that is named."""
    other = {1: 2, 2: 1}
    ordinary = topic(TOPIC, TOPIC_ID, (leader, other[leader]), partitions=2, min_isr=2)
    state = topic(TRANSACTION_STATE, STATE_ID, (coordinator, other[coordinator]), partitions=4, min_isr=2)
    return ControllerStub(ordinary, state)


@asynccontextmanager
async def _transactions(node: ReplicaNode) -> AsyncIterator[Any]:
    assert node.client is not None
    async with open_channel(node.client) as channel:
        yield pb_grpc.TransactionServiceStub(channel)


def _batch(value: str, by: tuple[int, int], sequence: int = 0) -> bytes:
    """One record as part of a transaction, of now as markers are: a log rolls when times are far apart."""
    record = NewRecord(None, value.encode(), wall_ms())
    changed = bytearray(encode_batch([record], producer_id=by[0], producer_epoch=by[1], base_sequence=sequence))
    changed[22] |= 0x10
    changed[17:21] = crc32c.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


async def _init(stub: Any, **fields: Any) -> tuple[int, int]:
    request = pb.TransactionServiceInitProducerIdRequest(transactional_id=ID, **fields)
    while True:
        answer = await stub.InitProducerId(request, timeout=5)
        if answer.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
    assert answer.error_code == 0, answer.error_message
    return answer.producer_id, answer.producer_epoch


async def _send(stub: Any, value: str, by: tuple[int, int], *, partition: int = 0, sequence: int = 0) -> int:
    """Produce one record, again while the transaction before is being ended; returns the error that is left."""
    request = produce(_batch(value, by, sequence), partition=partition, transactional_id=ID, acks=-1)
    while True:
        answer = (await stub.Produce(request, timeout=5)).responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return int(answer.error_code)


async def _end(stub: Any, by: tuple[int, int], *, commit: bool = True) -> tuple[int, int] | int:
    request = pb.EndTxnRequest(
        transactional_id=ID, producer_id=by[0], producer_epoch=by[1], committed=commit, cluster_id=CLUSTER_ID
    )
    answer = await stub.EndTxn(request, timeout=5)
    return int(answer.error_code) or (answer.producer_id, answer.producer_epoch)


async def _state(stub: Any) -> pb.DescribedTransaction:
    request = pb.DescribeTransactionsRequest(transactional_ids=[ID])
    return (await stub.DescribeTransactions(request, timeout=5)).transaction_states[0]


async def _until(stub: Any, state: str) -> None:
    async with asyncio.timeout(5):
        while (await _state(stub)).transaction_state != state:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0.005)


async def _read(stub: Any, partition: int = 0) -> list[str]:
    """What a reader of committed records is given from the beginning."""
    return values_of(await stub.Fetch(fetch(0, partition=partition, isolation_level=COMMITTED), timeout=5))


@pytest.mark.parametrize(("coordinator", "leader"), [(1, 1), (2, 1)], ids=["one node", "over the wire"])
async def test_a_transaction_from_its_identity_to_its_readers(tmp_path: Path, coordinator: int, leader: int) -> None:
    """Init, two partitions, EndTxn, the next transaction, an abort: readers of committed records see nothing before the
    markers and never what was aborted; where coordinator and leader are one node, and where they are two."""
    controller = _controller(coordinator=coordinator, leader=leader)
    async with (
        running_nodes(controller, tmp_path, (1, 2)) as nodes,
        _transactions(nodes[coordinator - 1]) as stub,
        leader_stub(nodes[leader - 1]) as leads,
    ):
        first = await _init(stub)
        codes = [await _send(leads, "a", first), await _send(leads, "b", first, partition=1)]
        while_open = await _read(leads)
        ongoing = await _state(stub)
        second = await _end(stub, first)
        assert isinstance(second, tuple)
        codes.append(await _send(leads, "c", second))
        third = await _end(stub, second, commit=False)
        assert isinstance(third, tuple)
        await _until(stub, "CompleteAbort")
        codes.append(await _send(leads, "d", third))
        await _end(stub, third)
        await _until(stub, "CompleteCommit")
        found = [await _read(leads), await _read(leads, 1)]
        listed = await stub.ListTransactions(
            pb.ListTransactionsRequest(state_filters=["completecommit", "gone"]), timeout=5
        )

    assert codes == [0, 0, 0, 0]
    assert (while_open, ongoing.transaction_state) == ([], "Ongoing")
    assert [(named.topic, list(named.partitions)) for named in ongoing.topics] == [(TOPIC, [0, 1])]
    assert ongoing.HasField("transaction_start_time_ms")
    assert (second, third) == ((first[0], 1), (first[0], 2))
    assert found == [["a", "d"], ["b"]]
    assert [row.transactional_id for row in listed.transaction_states] == [ID]
    assert list(listed.unknown_state_filters) == ["gone"]


async def test_a_fenced_process_can_do_nothing_more(tmp_path: Path) -> None:
    """A second process takes the id over: the first one's open transaction is aborted, what it still sends is refused,
    and its records are never read."""
    async with (
        running_nodes(_controller(), tmp_path, (1, 2)) as nodes,
        _transactions(nodes[0]) as stub,
        leader_stub(nodes[0]) as leads,
    ):
        old = await _init(stub)
        await _send(leads, "lost", old)
        request = pb.TransactionServiceInitProducerIdRequest(transactional_id=ID)
        answers = [int((await stub.InitProducerId(request, timeout=5)).error_code)]
        await _until(stub, "CompleteAbort")
        new = await _init(stub)
        refused = [await _send(leads, "late", old, sequence=1), await _send(leads, "late", old, partition=1)]
        ended = await _end(stub, old)
        kept = await _send(leads, "kept", new)
        await _end(stub, new)
        await _until(stub, "CompleteCommit")
        found = await _read(leads)

    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert new == (old[0], 2)
    assert refused == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    assert ended == ErrorCode.PRODUCER_FENCED
    assert (kept, found) == (0, ["kept"])


async def test_a_time_out_frees_the_readers(tmp_path: Path) -> None:
    """A transaction whose producer is silent is aborted after its own time-out, and the LSO moves on."""
    async with (
        running_nodes(_controller(), tmp_path, (1, 2)) as nodes,
        _transactions(nodes[0]) as stub,
        leader_stub(nodes[0]) as leads,
    ):
        silent = await _init(stub, transaction_timeout_ms=100)
        await _send(leads, "lost", silent)
        await _until(stub, "CompleteAbort")
        answer = await leads.Fetch(fetch(0, isolation_level=COMMITTED), timeout=5)
        ended = [await _end(stub, silent), await _end(stub, silent, commit=False)]

    part = answer.responses[0].partitions[0]
    assert (values_of(answer), part.last_stable_offset) == ([], 2)
    assert ended == [ErrorCode.INVALID_TXN_STATE, (silent[0], 1)]


async def test_batches_that_are_of_no_transaction_are_refused(tmp_path: Path) -> None:
    """Weak acks, no transactional id, an unknown id, a plain batch of a producer whose transaction is open, an
    old epoch: each by its own number, and none of it is ever read."""
    async with (
        running_nodes(_controller(), tmp_path, (1, 2)) as nodes,
        _transactions(nodes[0]) as stub,
        leader_stub(nodes[0]) as leads,
    ):
        first = await _init(stub)
        second = await _end(stub, first)
        assert isinstance(second, tuple)

        async def code(records: bytes, **fields: Any) -> int:
            answer = await leads.Produce(produce(records, **fields), timeout=5)
            return int(answer.responses[0].partition_responses[0].error_code)

        before = [
            await code(_batch("w", second), transactional_id=ID, acks=1),
            await code(_batch("n", second), acks=-1),
            await code(_batch("s", second), transactional_id="stranger", acks=-1),
            await code(_batch("o", first), transactional_id=ID, acks=-1),
        ]
        opened = await _send(leads, "kept", second)
        record = NewRecord(None, b"plain", wall_ms())
        plain = encode_batch([record], producer_id=second[0], producer_epoch=second[1], base_sequence=1)
        within = [
            await code(plain, transactional_id=ID, acks=-1),
            await code(_batch("o", first, 1), transactional_id=ID, acks=-1),
            await code(_batch("g", second, 5), transactional_id=ID, acks=-1),
        ]
        await _end(stub, second)
        await _until(stub, "CompleteCommit")
        found = await _read(leads)

    assert before == [
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]
    assert opened == 0
    assert within == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    assert found == ["kept"]


async def test_another_node_names_the_coordinator(tmp_path: Path) -> None:
    """NOT_COORDINATOR with its address in each answer, and FindCoordinator of key type 1 says the same."""
    async with running_nodes(_controller(coordinator=2), tmp_path, (1, 2)) as nodes, _transactions(nodes[0]) as stub:
        init = await stub.InitProducerId(pb.TransactionServiceInitProducerIdRequest(transactional_id=ID), timeout=5)
        end = await stub.EndTxn(pb.EndTxnRequest(transactional_id=ID), timeout=5)
        described = await _state(stub)
        added = await stub.AddPartitionsToTxn(_adding(), timeout=5)
        listed = await stub.ListTransactions(pb.ListTransactionsRequest(), timeout=5)
        assert nodes[0].client is not None and nodes[1].client is not None
        async with open_channel(nodes[0].client) as channel:
            request = group_service_pb2.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID, "x" * 256])  # type: ignore[arg-type]
            found, refused = (
                await group_service_pb2_grpc.GroupServiceStub(channel).FindCoordinator(request)  # type: ignore[arg-type]
            ).coordinators
        port = nodes[1].client.port

    for row in (init, end, described, added.results_by_transaction[0]):
        assert row.error_code == ErrorCode.NOT_COORDINATOR
        assert (row.current_coordinator.leader_id, row.current_coordinator.endpoint.port) == (2, port)
    assert (found.node_id, found.port, refused.error_code) == (2, port, ErrorCode.INVALID_REQUEST)
    assert (len(listed.transaction_states), listed.error_code) == (0, 0)


def _adding(**fields: Any) -> pb.AddPartitionsToTxnRequest:
    transaction = {
        "transactional_id": ID,
        "producer_id": 7,
        "producer_epoch": 0,
        "topics": [{"topic": TOPIC, "partitions": [0]}],
    }
    return pb.AddPartitionsToTxnRequest(cluster_id=CLUSTER_ID, transactions=[{**transaction, **fields}])


INIT = pb.TransactionServiceInitProducerIdRequest


@pytest.mark.parametrize(
    ("method", "request_", "words"),
    [
        ("InitProducerId", INIT(), "transactional_id has 0 characters"),
        ("InitProducerId", INIT(transactional_id="x" * 256), "transactional_id has 256 characters"),
        ("InitProducerId", INIT(transactional_id=ID, producer_id=1), "belong together"),
        ("InitProducerId", INIT(transactional_id=ID, producer_id=-2, producer_epoch=0), "must not be negative"),
        ("InitProducerId", INIT(transactional_id=ID, producer_id=1, producer_epoch=40_000), "must be 0 to 32767"),
        ("EndTxn", pb.EndTxnRequest(), "transactional_id has 0 characters"),
        ("EndTxn", pb.EndTxnRequest(transactional_id=ID, producer_epoch=-1), "must be 0 to 32767"),
        ("AddPartitionsToTxn", pb.AddPartitionsToTxnRequest(), "cluster_id is absent"),
        ("AddPartitionsToTxn", pb.AddPartitionsToTxnRequest(cluster_id=CLUSTER_ID), "at least one transactional id"),
        ("DescribeTransactions", pb.DescribeTransactionsRequest(), "name at least one"),
        ("DescribeTransactions", pb.DescribeTransactionsRequest(transactional_ids=[ID, ID]), "each once"),
        ("ListTransactions", pb.ListTransactionsRequest(duration_filter=-1), "must not be negative"),
    ],
)
async def test_what_no_producer_can_mean_is_refused(one_node: Any, method: str, request_: Any, words: str) -> None:
    """INVALID_REQUEST as a failed call that names field, rule and remedy; nothing reaches a coordinator."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await getattr(one_node, method)(request_, timeout=5)

    refusal = refusal_of(error.value)
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert words in refusal.message


async def test_what_is_wrong_with_one_transaction_is_its_own_answer(one_node: Any) -> None:
    """A leader asks for many producers at once, so a request that no producer can mean spoils no other's answer."""
    request = _adding()
    for fields in (
        {"transactional_id": "x" * 256},
        {"transactional_id": "b", "topics": []},
        {"transactional_id": "c", "topics": [{"topic": TOPIC, "partitions": [0, 0]}]},
        {"transactional_id": "d", "producer_epoch": -5},
        {"transactional_id": "e", "producer_id": -1},
    ):
        request.transactions.extend(_adding(**fields).transactions)
    answer = await one_node.AddPartitionsToTxn(request, timeout=5)

    first, *others = [row.error_code for row in answer.results_by_transaction]
    assert first == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert others == [ErrorCode.INVALID_REQUEST] * 5


async def test_refusals_of_a_coordinator_are_in_the_answers(one_node: Any) -> None:
    """A time-out above the maximum, an unknown id, a partition of a topic that is not there: each by its own
    number, in the answer."""
    too_long = await one_node.InitProducerId(INIT(transactional_id=ID, transaction_timeout_ms=900_001), timeout=5)
    unknown = await _state(one_node)
    bad_id = (
        await one_node.DescribeTransactions(pb.DescribeTransactionsRequest(transactional_ids=[""]), timeout=5)
    ).transaction_states[0]
    nowhere = (
        await one_node.AddPartitionsToTxn(_adding(topics=[{"topic": "nowhere", "partitions": [0]}]), timeout=5)
    ).results_by_transaction[0]
    stranger = (await one_node.AddPartitionsToTxn(_adding(), timeout=5)).results_by_transaction[0]
    ended = await _end(one_node, (7, 0))

    assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert bad_id.error_code == ErrorCode.INVALID_REQUEST
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stranger.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ended == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_each_end_that_is_none_has_its_own_number(one_node: Any) -> None:
    """X6 in numbers: a copy has the answer again, the other result, a late copy, another producer and a partition that
    is only looked up each have a number of their own."""
    first = await _init(one_node)
    second = await _end(one_node, first)
    assert second == (first[0], first[1] + 1)
    copy = await _end(one_node, first)
    other_result = await _end(one_node, first, commit=False)
    assert isinstance(await _end(one_node, second), tuple)
    late = await _end(one_node, first)
    stranger = await _end(one_node, (first[0] + 1, 0))
    looked_up = _adding(producer_id=first[0], producer_epoch=first[1] + 2, verify_only=True)
    found = (await one_node.AddPartitionsToTxn(looked_up, timeout=5)).results_by_transaction[0]

    assert copy == second
    assert other_result == ErrorCode.INVALID_TXN_STATE
    assert late == ErrorCode.PRODUCER_FENCED
    assert stranger == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert found.error_code == ErrorCode.TRANSACTION_ABORTABLE


@pytest.fixture
async def one_node(tmp_path: Path) -> AsyncIterator[Any]:
    """TransactionService of the only node, which coordinates every id and serves."""
    ordinary, state = topic(TOPIC, TOPIC_ID, (1,)), topic(TRANSACTION_STATE, STATE_ID, (1,), partitions=2)
    async with running_nodes(ControllerStub(ordinary, state), tmp_path) as nodes, _transactions(nodes[0]) as stub:
        async with asyncio.timeout(5):
            while (await _state(stub)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # noqa: ASYNC110 - from outside
                await asyncio.sleep(0.005)
        yield stub
