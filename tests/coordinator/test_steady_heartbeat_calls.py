"""What a heartbeat that changes nothing costs a node between gRPC and the answer it waits for, counted in calls."""

from __future__ import annotations

import sys
import types
from collections.abc import Coroutine, Generator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.v1 import group_service_pb2 as pb

STATE_ID = "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01"
THREE = (1, 2, 3)
FEW = 80
"""Calls of Python functions from the handler's begin until it waits for the read barrier, which it begins itself. It
was 129 when each heartbeat was decided and decoded as one that may change something."""


@types.coroutine
def _counting_until_it_waits(handler: Coroutine[Any, Any, Any], calls: list[str]) -> Generator[Any, Any, Any]:
    """Runs ``handler``; notes its calls of functions up to the first time that it waits."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        awaited = handler.send(None)
    finally:
        sys.setprofile(before)
    try:
        while True:
            yield awaited
            awaited = handler.send(None)
    except StopIteration as ended:
        return ended.value


async def test_a_steady_heartbeat_makes_few_calls_until_it_waits(tmp_path: Path) -> None:
    """The member has what it is to have and says nothing else; what gRPC calls by itself is not in the count."""
    controller = ControllerStub(
        topic(TOPIC, TOPIC_ID, THREE, partitions=2, min_isr=2),
        topic(GROUP_STATE, STATE_ID, THREE, partitions=4, min_isr=2),
    )
    context: Any = SimpleNamespace(time_remaining=lambda: 5.0, peer=lambda: "ipv4:127.0.0.1:1")
    async with running_nodes(controller, tmp_path, THREE) as nodes:
        groups = nodes[0].groups
        join = pb.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            sequence=1,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names={"names": [TOPIC]},
            topic_partitions={},
        )
        joined = await groups.ConsumerGroupHeartbeat(join, context)
        counts: list[int] = []
        for sequence in (2, 3, 4):
            beat = pb.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=joined.member_epoch,
                sequence=sequence,
                coordinator_epoch=joined.coordinator_epoch,
            )
            calls: list[str] = []
            answer = await _counting_until_it_waits(groups.ConsumerGroupHeartbeat(beat, context), calls)
            counts.append(len(calls))

    assert (answer.member_epoch, answer.HasField("assignment")) == (joined.member_epoch, False)
    # The first may show what the join has changed, if no tick has come before it.
    assert min(counts) <= FEW, (counts, calls)
