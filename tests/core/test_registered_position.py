"""The position in the answer to a registration, and the first epochs of partitions that are added (C34, C37, C39)."""

from __future__ import annotations

from dataclasses import replace

from controller_builders import CLUSTER, TOPIC, TOPIC_ID, Controller, registration
from core_builders import metadata, node_epoch, node_image, partition_image

from strandline.core.control.events import RequestArrived, StopServing
from strandline.core.control.messages import CreatePartitions, GrowingTopic, TopicRef
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import SKIP, ClusterState
from strandline.core.log import events
from strandline.core.log.effects import SaveMetadata
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import MetadataImage, NodeRegistered, PositionProof
from strandline.core.positions import is_proof, newest_in
from strandline.core.types import NodeEpoch, NodeId, Rules, TopicPartition, Truncation


def running(*nodes: int) -> Controller:
    """A controller, its nodes, and one partition on all of them."""
    controller = Controller()
    controller.start(*nodes)
    controller.create(*nodes)
    return controller


def stored(controller: Controller) -> ClusterState:
    """What the store holds now."""
    assert controller.stored is not None
    return controller.stored


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
    controller = running(1, 2)
    answer = registered(controller, 1)
    header = controller.core.state.header

    assert answer.position is not None
    assert answer.position.metadata_offset == header.metadata_offset
    assert answer.position.node_epoch == answer.node_epoch
    assert is_proof(header.secret, NodeId(1), answer.position)


def test_a_refused_registration_proves_nothing() -> None:
    """M72: it has no process that a proof could be for."""
    refused = registered(running(1, 2), 1, rules=Rules(truncation=Truncation.FETCH))

    assert refused.refusal is not None
    assert refused.position is None


def test_a_store_that_lost_exactly_the_registration_stops_serving() -> None:
    """C35: the node has cleared its mark, and the store would believe that its log is whole."""
    controller = running(1, 2)
    before = stored(controller)
    image = image_for(controller, 1)
    answer = registered(controller, 1, unclean=True)
    later = Controller(state=before, now_ms=controller.now_ms)
    again = registration(1, position=answer.position, topics_position=image.place)

    effects = later.core.step(RequestArrived(later.now_ms, 1, again))

    assert any(isinstance(effect, StopServing) for effect in effects)


def test_a_recovery_that_was_given_the_directory_knows_the_position() -> None:
    """C39: the registration is no reason to doubt the recovered store."""
    controller = running(1, 2)
    image = image_for(controller, 1)
    answer = registered(controller, 1)
    mine = replace(image, registered=answer.position)
    given = [GivenNode(node_id=NodeId(n), directory_id=f"directory-{n}", image=of) for n, of in ((1, mine), (2, image))]
    after = Controller(state=recover(given, stored(running(1, 2))), now_ms=controller.now_ms)
    again = after.ask(registration(1, position=newest_in(mine), topics_position=mine.place))

    assert isinstance(again, NodeRegistered)
    assert again.refusal is None


def test_after_a_recovery_without_its_directory_a_process_can_start_again() -> None:
    """C39: it holds a registration that the recovery did not know of, and would be refused for ever."""
    controller = running(1, 2)
    image = image_for(controller, 2)
    answer = registered(controller, 1)
    given = [GivenNode(node_id=NodeId(2), directory_id="directory-2", image=image)]
    after = Controller(state=recover(given), now_ms=controller.now_ms)
    # No directory was given for node 1, so its place is another's until the session of the old one is over.
    after.pass_ms(after.timings.session_timeout_ms + 1_000)
    again = after.ask(registration(1, position=answer.position, topics_position=image.place))

    assert isinstance(again, NodeRegistered)
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
    growing = GrowingTopic(TopicRef(TOPIC, ""), 2, ())
    controller.ask(CreatePartitions(topics=(growing,)))
    added = controller.core.state.partition(TopicPartition(TOPIC_ID, 1))
    assert added is not None
    return added.leader_epoch, added.partition_epoch


def test_partitions_added_in_later_reigns_begin_above_those_of_a_lost_end() -> None:
    """C37: the lost end of a reign may have added the same partition, and a node may hold its records."""
    controller = running(1, 2)
    before = stored(controller)
    lost = grown(controller)
    after = Controller(state=before, now_ms=controller.now_ms)
    after.epochs = dict(controller.epochs)
    after.heartbeat(1)

    assert lost == (0, 0)
    assert grown(after) == (SKIP, SKIP)
