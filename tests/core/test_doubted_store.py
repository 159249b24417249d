"""A new reign confirms and changes nothing for an administrator before a node has shown its position (C37)."""

from __future__ import annotations

from typing import Any

import pytest
from controller_builders import CLUSTER, TOPIC, TOPIC_ID, Controller, registration
from test_reign_begins import next_reign, position_of, running, stored

from strandline.core.control.events import ControllerTicked, DoorsOpened, RequestArrived, StopServing
from strandline.core.control.messages import (
    AllocateProducerIds,
    AlterTopicConfigs,
    ConfigChange,
    ControllerRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ElectionKind,
    ElectLeaders,
    GetMetadata,
    GrowingTopic,
    InitProducerId,
    ListNodes,
    NewTopic,
    ShutdownNode,
    TopicRef,
    UnregisterNode,
)
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Heartbeat
from strandline.core.types import NodeEpoch, NodeId

T = TopicRef(TOPIC)
WAITING: tuple[ControllerRequest, ...] = (
    CreateTopics(topics=(NewTopic("other", "22222222-0000-4000-8000-000000000000"),)),
    DeleteTopics(topics=(T,)),
    AlterTopicConfigs(topics=(ConfigChange(T, (("retention.ms", "1"),)),)),
    CreatePartitions(topics=(GrowingTopic(T, 4),)),
    ElectLeaders(kind=ElectionKind.PREFERRED),
    ShutdownNode(node_id=NodeId(2)),
    UnregisterNode(node_id=NodeId(2)),
    GetMetadata(linearizable=True),
)
AT_ONCE: tuple[ControllerRequest, ...] = (
    GetMetadata(),
    DescribeTopics(topics=(T,)),
    ListNodes(),
    InitProducerId(),
    AllocateProducerIds(node_id=NodeId(1), node_epoch=NodeEpoch(1)),
)
"""What says how old it may be, and numbers that no store can give twice (C33)."""


def waits(answer: Any) -> bool:
    """Whether a request was refused until a node has spoken, with nothing done."""
    return isinstance(answer, Refusal) and answer.hint is not None and answer.hint.why == "UNHEARD"


@pytest.mark.parametrize("request_", WAITING, ids=lambda each: type(each).__name__)
def test_what_an_administrator_asks_waits_for_a_node(request_: ControllerRequest) -> None:
    """A change, or a linearizable read, is refused as retriable before the first word of a node, and served after."""
    after = next_reign(running(1, 2, 3))
    before = stored(after)

    refused = after.ask(request_)

    assert waits(refused)
    assert (refused.code, refused.retriable) == (ErrorCode.NOT_CONTROLLER, True)
    assert stored(after) == before
    after.heartbeat(1)
    assert not waits(after.ask(request_))


@pytest.mark.parametrize("request_", AT_ONCE, ids=lambda each: type(each).__name__)
def test_what_a_doubted_store_may_say_does_not_wait(request_: ControllerRequest) -> None:
    """A read that is not linearizable, and ids that a reign skips, are served at once."""
    assert not waits(next_reign(running(1, 2, 3)).ask(request_))


def test_the_first_reign_of_a_store_waits_for_nobody() -> None:
    """A new cluster has no history that its store could have lost."""
    assert not waits(Controller().ask(GetMetadata(linearizable=True)))


def test_an_older_store_is_noticed_before_anything_was_decided_from_it() -> None:
    """TR18: the store lost a topic; what comes before the first heartbeat is refused, and then all service ends."""
    controller = running(1, 2, 3)
    older = stored(controller)
    controller.create(1, 2, 3, name="lost", topic_id="33333333-0000-4000-8000-000000000000")
    proof = position_of(controller, 1)
    after = next_reign(controller, older)

    assert all(waits(after.ask(request)) for request in WAITING)
    beat = Heartbeat(
        cluster_id=CLUSTER,
        node_id=NodeId(1),
        node_epoch=controller.epochs[1],
        metadata_offset=proof.metadata_offset,
        position=proof,
    )
    effects = after.step(RequestArrived(after.now_ms, 99, beat))
    assert any(isinstance(effect, StopServing) for effect in effects)
    assert stored(after).topics.keys() == {TOPIC_ID}


def test_a_node_that_was_fenced_shows_too_little() -> None:
    """It may have been away when the others were sent what the store lost; one that the store knows as live counts."""
    controller = running(1, 2, 3)
    controller.fence(3)
    after = next_reign(controller)

    after.heartbeat(3)
    by_fenced = waits(after.ask(GetMetadata(linearizable=True)))
    after.heartbeat(2)

    assert by_fenced
    assert not waits(after.ask(GetMetadata(linearizable=True)))


def test_an_emptied_directory_shows_nothing() -> None:
    """A live node that registers again without a position, and its heartbeats with one of this reign, end no wait."""
    after = next_reign(running(1, 2, 3))

    after.fence(1)
    after.register(1, directory_id="emptied")
    registered = waits(after.ask(GetMetadata(linearizable=True)))
    after.heartbeat(1)

    assert registered
    assert waits(after.ask(GetMetadata(linearizable=True)))


def test_a_store_of_a_stopped_cluster_waits_for_any_node() -> None:
    """Of nodes that were all fenced none knows more than another: the first that shows its position counts."""
    controller = running(1, 2)
    controller.fence_together(1, 2)
    proof = position_of(controller, 2)
    after = next_reign(controller)

    before = waits(after.ask(GetMetadata(linearizable=True)))
    after.ask(registration(2, position=proof))

    assert before
    assert not waits(after.ask(GetMetadata(linearizable=True)))


@pytest.mark.parametrize("nodes", [(1, 2, 3), ()], ids=["silent nodes", "no nodes"])
def test_the_wait_ends_after_one_session(nodes: tuple[int, ...]) -> None:
    """Nobody is waited for longer than a session, whether or not the silent nodes may be fenced by then (M64)."""
    controller = Controller()
    if nodes:
        controller.start(*nodes)
        controller.create(*nodes)
    after = next_reign(controller)
    session_ms = after.timings.session_timeout_ms

    after.pass_ms(session_ms - 100)
    shortly_before = waits(after.ask(GetMetadata(linearizable=True)))
    after.pass_ms(100)

    assert shortly_before
    assert not waits(after.ask(GetMetadata(linearizable=True)))


def test_a_pause_of_the_controller_does_not_end_the_wait() -> None:
    """M59: while the process stood still, or its doors were closed, no node could speak."""
    paused, closed = next_reign(running(1, 2, 3)), next_reign(running(1, 2, 3))
    session_ms = paused.timings.session_timeout_ms

    paused.pass_ms(100)
    paused.step(ControllerTicked(paused.now_ms + session_ms))
    closed.step(DoorsOpened(closed.now_ms + session_ms, session_ms))
    closed.step(ControllerTicked(closed.now_ms + session_ms))

    assert waits(paused.ask(GetMetadata(linearizable=True)))
    assert waits(closed.ask(GetMetadata(linearizable=True)))
