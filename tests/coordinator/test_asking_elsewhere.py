"""What a coordinator's node asks of others: the controller for a topic, and nodes about transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.core.transactions.messages import AddPartitions, ProducerIdentity
from strandline.core.types import NodeId, TopicPartition
from strandline.node.shard_calls import MAX_WAIT_MS, PAUSE_MS, StateTopic, wait_ms
from strandline.node.transaction_peers import DialledTransactionPeers
from strandline.rpc.channels import Channels
from strandline.runtime.host import TopicDirectory
from strandline.v1 import transaction_service_pb2 as pb

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


def _peers(answer: pb.AddPartitionsToTxnResponse | None = None) -> DialledTransactionPeers:
    async def add_here(_: pb.AddPartitionsToTxnRequest, within_ms: int) -> pb.AddPartitionsToTxnResponse:
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
        transactional_id="t", identity=ProducerIdentity(7, 0), partitions=(TopicPartition("id", 0),)
    )
    answer = pb.AddPartitionsToTxnResponse()
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
