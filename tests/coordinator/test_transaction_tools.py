"""What administrators see of transactions on real nodes, and how they end one that nobody ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes

from strandline.client import Admin, ErrorCode, Producer, ProducerFenced, Refused, TopicPartition
from strandline.core.coordinator.internal_topics import TRANSACTION_STATE

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
    assert seen["again"].code is ErrorCode.INVALID_TXN_STATE
    assert seen["fenced"] == (listed.producer_id, 2)
    assert [each.open_since_offset for each in after] == [None, None]
    causes = [event["cause"] for event in _events(tmp_path / "node-1", "TRANSACTION_CHANGE")]
    assert causes == ["init", "fenced", "completed", "init"]


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
