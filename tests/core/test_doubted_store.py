"""A reign before a node has shown its position, positions of registrations, and a first release (C34, C37)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from controller_builders import (
    CLUSTER,
    TOPIC,
    TOPIC_ID,
    Controller,
    created,
    next_reign,
    proof_of,
    registration,
    stored,
)
from core_builders import metadata, node_epoch, node_image, partition_image

from strandline.core.control import messages
from strandline.core.control.events import ControllerTicked, DoorsOpened, RequestArrived, StopServing
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import SKIP
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.log.effects import SaveMetadata
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import Heartbeat, HeartbeatAnswer, MetadataImage, NodeRegistered, PositionProof
from strandline.core.positions import is_proof, newest_in
from strandline.core.types import NodeEpoch, NodeId, Rules, TopicPartition, Truncation

T = messages.TopicRef(TOPIC)


WAITING: tuple[messages.ControllerRequest, ...] = (
    messages.CreateTopics(topics=(messages.NewTopic("other", "22222222-0000-4000-8000-000000000000"),)),
    messages.DeleteTopics(topics=(T,)),
    messages.AlterTopicConfigs(topics=(messages.ConfigChange(T, (("retention.ms", "1"),)),)),
    messages.CreatePartitions(topics=(messages.GrowingTopic(T, 4),)),
    messages.ElectLeaders(kind=messages.ElectionKind.PREFERRED),
    messages.ShutdownNode(node_id=NodeId(2)),
    messages.UnregisterNode(node_id=NodeId(2)),
    messages.AlterAcls(entries=()),
    messages.AlterClientQuotas(entries=()),
    messages.GetMetadata(linearizable=True),
)


AT_ONCE: tuple[messages.ControllerRequest, ...] = (
    messages.GetMetadata(),
    messages.DescribeTopics(topics=(T,)),
    messages.ListNodes(),
    messages.InitProducerId(),
    messages.AllocateProducerIds(node_id=NodeId(1), node_epoch=NodeEpoch(1)),
)
"""What says how old it may be, and numbers that no store can give twice (C33)."""


def waits(answer: Any) -> bool:
    """Whether a request was refused until a node has spoken, with nothing done."""
    return isinstance(answer, Refusal) and answer.hint is not None and answer.hint.why == "UNHEARD"


@pytest.mark.parametrize("request_", WAITING, ids=lambda each: type(each).__name__)
def test_what_an_administrator_asks_waits_for_a_node(request_: messages.ControllerRequest) -> None:
    """A change, or a linearizable read, is refused as retriable before the first word of a node, and served after."""
    after = next_reign(created(1, 2, 3))
    before = stored(after)
    refused = after.ask(request_)

    assert waits(refused)
    assert (refused.code, refused.retriable) == (ErrorCode.NOT_CONTROLLER, True)
    assert stored(after) == before
    after.heartbeat(1)
    assert not waits(after.ask(request_))


@pytest.mark.parametrize("request_", AT_ONCE, ids=lambda each: type(each).__name__)
def test_what_a_doubted_store_may_say_does_not_wait(request_: messages.ControllerRequest) -> None:
    """A read that is not linearizable, and ids that a reign skips, are served at once."""
    assert not waits(next_reign(created(1, 2, 3)).ask(request_))


def test_the_first_reign_of_a_store_waits_for_no_node() -> None:
    """A new cluster has no history that its store could have lost."""
    assert not waits(Controller().ask(messages.GetMetadata(linearizable=True)))


def test_an_older_store_is_noticed_before_anything_was_decided_from_it() -> None:
    """TR18: the store lost a topic; what comes before the first heartbeat is refused, and then all service ends."""
    controller = created(1, 2, 3)
    older = stored(controller)
    controller.create(1, 2, 3, name="lost", topic_id="33333333-0000-4000-8000-000000000000")
    proof = proof_of(controller, 1)
    after = next_reign(controller, older)

    assert all(waits(after.ask(request)) for request in WAITING)
    beat = Heartbeat(
        cluster_id=CLUSTER,
        node_id=NodeId(1),
        node_epoch=controller.epochs[1],
        metadata_offset=proof.metadata_offset,
        position=proof,
    )
    assert any(isinstance(effect, StopServing) for effect in after.step(RequestArrived(after.now_ms, 99, beat)))
    assert stored(after).topics.keys() == {TOPIC_ID}


def test_a_node_that_was_fenced_shows_too_little() -> None:
    """It may have been away when the others were sent what the store lost; one that the store knows as live counts."""
    controller = created(1, 2, 3)
    controller.fence(3)
    after = next_reign(controller)
    after.heartbeat(3)
    by_fenced = waits(after.ask(messages.GetMetadata(linearizable=True)))
    after.heartbeat(2)

    assert by_fenced
    assert not waits(after.ask(messages.GetMetadata(linearizable=True)))


def test_an_emptied_directory_shows_nothing() -> None:
    """A live node that registers again without a position, and its heartbeats with one of this reign, end no wait."""
    after = next_reign(created(1, 2, 3))
    after.fence(1)
    after.register(1, directory_id="emptied")
    registered = waits(after.ask(messages.GetMetadata(linearizable=True)))
    after.heartbeat(1)

    assert registered
    assert waits(after.ask(messages.GetMetadata(linearizable=True)))


def test_a_store_of_a_stopped_cluster_waits_for_any_node() -> None:
    """If all nodes were fenced, none knows more than another: the first that shows its position counts."""
    controller = created(1, 2)
    controller.fence_together(1, 2)
    proof = proof_of(controller, 2)
    after = next_reign(controller)
    before = waits(after.ask(messages.GetMetadata(linearizable=True)))
    after.ask(registration(2, position=proof))

    assert before
    assert not waits(after.ask(messages.GetMetadata(linearizable=True)))


@pytest.mark.parametrize("nodes", [(1, 2, 3), ()], ids=["silent nodes", "no nodes"])
def test_the_wait_ends_after_one_session(nodes: tuple[int, ...]) -> None:
    """No node is waited for longer than a session, whether or not the silent nodes may be fenced by then (M64)."""
    after = next_reign(created(*nodes) if nodes else Controller())
    session_ms = after.timings.session_timeout_ms
    after.pass_ms(session_ms - 100)
    shortly_before = waits(after.ask(messages.GetMetadata(linearizable=True)))
    after.pass_ms(100)

    assert shortly_before
    assert not waits(after.ask(messages.GetMetadata(linearizable=True)))


def test_a_pause_of_the_controller_does_not_end_the_wait() -> None:
    """M59: while the process stood still, or its doors were closed, no node could speak."""
    paused, closed = next_reign(created(1, 2, 3)), next_reign(created(1, 2, 3))
    session_ms = paused.timings.session_timeout_ms
    paused.pass_ms(100)
    paused.step(ControllerTicked(paused.now_ms + session_ms))
    closed.step(DoorsOpened(closed.now_ms + session_ms, session_ms))
    closed.step(ControllerTicked(closed.now_ms + session_ms))

    assert waits(paused.ask(messages.GetMetadata(linearizable=True)))
    assert waits(closed.ask(messages.GetMetadata(linearizable=True)))


# The position in the answer to a registration, and the first epochs of partitions that are added (C34, C37, C39).


def image_for(controller: Controller, node_id: int) -> MetadataImage:
    """What a node's disk holds after it was sent everything."""
    return replace(controller.core.state.snapshot(), to_node_epoch=controller.epochs[node_id])


def registered(controller: Controller, node_id: int, **given: object) -> NodeRegistered:
    """The next process of a node registers."""
    answer = controller.ask(registration(node_id, **given))
    assert isinstance(answer, NodeRegistered)
    return answer


def test_the_answer_proves_the_position_of_the_registration() -> None:
    """C34: the process can show that it was registered, whatever the store still knows."""
    controller = created(1, 2)
    answer = registered(controller, 1)
    header = controller.core.state.header

    assert answer.position.metadata_offset == header.metadata_offset
    assert answer.position.node_epoch == answer.node_epoch
    assert is_proof(header.secret, NodeId(1), answer.position)


def test_a_refused_registration_proves_nothing() -> None:
    """M72: it has no process that a proof could be for."""
    refused = registered(created(1, 2), 1, rules=Rules(truncation=Truncation.FETCH))

    assert refused.refusal is not None
    assert refused.position is None


def test_a_store_that_lost_exactly_the_registration_stops_serving() -> None:
    """C35: the node has cleared its mark, and the store would believe that its log is whole."""
    controller = created(1, 2)
    before = stored(controller)
    image = image_for(controller, 1)
    answer = registered(controller, 1, unclean=True)
    later = Controller(state=before, now_ms=controller.now_ms)
    again = registration(1, position=answer.position, topics_position=image.place)

    assert any(isinstance(effect, StopServing) for effect in later.core.step(RequestArrived(later.now_ms, 1, again)))


def test_a_recovery_that_was_given_the_directory_knows_the_position() -> None:
    """C39: the registration is no reason to doubt the recovered store."""
    controller = created(1, 2)
    image = image_for(controller, 1)
    mine = replace(image, registered=registered(controller, 1).position)
    given = [GivenNode(node_id=NodeId(n), directory_id=f"directory-{n}", image=of) for n, of in ((1, mine), (2, image))]
    after = Controller(state=recover(given, stored(created(1, 2))), now_ms=controller.now_ms)
    again = after.ask(registration(1, position=newest_in(mine), topics_position=mine.place))

    assert again.refusal is None


def test_after_a_recovery_without_its_directory_a_process_can_start_again() -> None:
    """C39: it holds a registration that the recovery did not know of, and would be refused for ever."""
    controller = created(1, 2)
    image = image_for(controller, 2)
    answer = registered(controller, 1)
    given = [GivenNode(node_id=NodeId(2), directory_id="directory-2", image=image)]
    after = Controller(state=recover(given), now_ms=controller.now_ms)
    # No directory was given for node 1, so its place is another's until the session of the old one is over.
    after.pass_ms(after.timings.session_timeout_ms + 1_000)
    again = after.ask(registration(1, position=answer.position, topics_position=image.place))

    assert again.refusal is None
    assert after.partition().isr == ()


def core(seen: MetadataImage | None) -> NodeCore:
    """A data node that was started over what its disk holds."""
    return NodeCore(node_id=NodeId(1), rules=Rules(), timings=NodeTimings(), seen=seen)


PROOF = PositionProof(NodeEpoch(9), 1, 77, b"mac", "r" * 32)


def test_a_node_keeps_the_position_before_it_does_anything_else() -> None:
    """C34: beside the image's own position, of which it says nothing."""
    seen = metadata(node_epoch(1), partition_image(), nodes=[node_image(1)], snapshot=True)
    effects = core(seen).step(events.Registered(0, CLUSTER, NodeEpoch(9), 1, PROOF))

    assert effects == [SaveMetadata(replace(seen, registered=PROOF))]


def test_a_directory_without_metadata_keeps_nothing() -> None:
    """It had no places that the registration could take from it."""
    assert core(None).step(events.Registered(0, CLUSTER, NodeEpoch(9), 1, PROOF)) == []


def grown(controller: Controller) -> tuple[int, int]:
    """Add a partition; its epochs."""
    growing = messages.GrowingTopic(messages.TopicRef(TOPIC, ""), 2, ())
    controller.ask(messages.CreatePartitions(topics=(growing,)))
    added = controller.core.state.partition(TopicPartition(TOPIC_ID, 1))
    return added.leader_epoch, added.partition_epoch


def test_partitions_added_in_later_reigns_begin_above_those_of_a_lost_end() -> None:
    """C37: the lost end of a reign may have added the same partition, and a node may hold its records."""
    controller = created(1, 2)
    before = stored(controller)
    lost = grown(controller)
    after = next_reign(controller, before)
    after.heartbeat(1)

    assert lost == (0, 0)
    assert grown(after) == (SKIP, SKIP)


# A cluster of the first release is taken over: a store without reigns, and nodes that name no position.


def _of_the_first_release() -> Controller:
    """A reign of this release on a store that names no reign, with three nodes and one partition on all of them."""
    before = created(1, 2, 3)
    return next_reign(before, replace(stored(before), reigns={}))


def test_a_node_that_names_no_position_is_served() -> None:
    """An absent position is not checked: no node is refused, and the reign goes on."""
    after = _of_the_first_release()
    answers = [after.heartbeat(node_id) for node_id in (1, 2, 3)]

    assert all(isinstance(answer, HeartbeatAnswer) and answer.refusal is None for answer in answers)
    assert after.core.serves


def test_the_first_reign_on_an_old_store_waits_one_session_at_most() -> None:
    """An election waits for a live replica that has not spoken, and no longer than that replica's session."""
    after = _of_the_first_release()
    after.heartbeat(3)
    after.fence(1)
    after.pass_ms(after.timings.session_timeout_ms - 1_000, 3)
    before = after.partition().leader
    after.pass_ms(2_000, 3)

    assert (before, after.partition().leader) == (None, 3)


def test_the_store_names_reigns_from_then_on() -> None:
    """What this reign decides has a position that a later one knows."""
    after = _of_the_first_release()
    after.heartbeat(2)
    after.heartbeat(3)
    after.fence(1)

    (reign,) = after.stored.reigns.values()
    assert reign.first_offset <= after.stored.header.metadata_offset
