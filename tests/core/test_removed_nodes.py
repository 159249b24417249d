"""A node that is gone for good: when it may be removed, what is kept of it, and what happens when its id returns."""

from __future__ import annotations

import pytest
from controller_builders import TOPIC_ID, Controller

from strandline.core import types
from strandline.core.control.events import Publish, RequestArrived
from strandline.core.control.messages import GetMetadata, UnregisterNode
from strandline.core.control.positions import why_empty
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.types import NodeId, Role


def remove(controller: Controller, node_id: int) -> Refusal | None:
    """Remove a node; returns the reason of a rejection, or None."""
    refusal: Refusal | None = controller.ask(UnregisterNode(node_id=NodeId(node_id))).refusal
    return refusal


def gone(*alive: int) -> Controller:
    """A controller with the alive nodes, and with node 4 whose session has ended."""
    controller = Controller()
    controller.start(*alive, 4)
    controller.fence(4)
    return controller


def test_a_node_with_a_session_stays() -> None:
    """While its session lives a node cannot be removed, and the error says to stop its process (C85)."""
    controller = Controller()
    controller.start(1, 4)
    refusal = remove(controller, 4)

    assert refusal is not None
    assert (refusal.code, refusal.field) == (ErrorCode.INVALID_REQUEST, "node_id")
    assert "node 4" in refusal.message
    assert "9000 ms" in refusal.message
    assert NodeId(4) in controller.core.state.nodes


def test_a_node_with_partitions_stays() -> None:
    """While replicas name it a node cannot be removed; the error counts and names the partitions (C85)."""
    controller = gone(1)
    controller.create(4, 1)
    controller.create(1, 4, name="other", topic_id=TOPIC_ID.replace("1", "2"))
    refusal = remove(controller, 4)

    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert "2 partitions (t-0, other-0)" in refusal.message
    assert "cannot be moved" in refusal.message
    assert NodeId(4) in controller.core.state.nodes


def test_a_removed_node_leaves_every_image() -> None:
    """A removed node is in no snapshot; the change and every later snapshot name it as removed (C85)."""
    controller = gone(1)
    effects = controller.step(RequestArrived(controller.now_ms, 900, UnregisterNode(node_id=NodeId(4))))
    (change,) = [effect.image for effect in effects if isinstance(effect, Publish)]
    snapshot = controller.ask(GetMetadata()).image

    assert (change.nodes, change.removed_node_ids) == ((), (4,))
    assert ([node.node_id for node in snapshot.nodes], snapshot.removed_node_ids) == ([1], (4,))
    assert [emit.event.phase for emit in controller.emitted if getattr(emit.event, "subject_node_id", None) == 4][
        -1
    ] == ("unregister")


def test_the_feature_level_rises_when_the_last_old_node_is_removed() -> None:
    """No registration has to follow: what all live nodes speak is used as soon as the older one is gone."""
    controller = Controller()
    controller.start(1)
    controller.start(4, feature_min=1, feature_max=1)
    controller.fence(4)
    before = controller.core.state.header.feature_level
    remove(controller, 4)

    assert (before, controller.core.state.header.feature_level) == (1, types.HIGHEST)


def test_another_old_node_that_lives_keeps_the_feature_level() -> None:
    """A removal raises the level no further than every live node speaks."""
    controller = Controller()
    controller.start(1)
    controller.start(3, feature_min=1, feature_max=2)
    controller.start(4, feature_min=1, feature_max=1)
    controller.fence(4)
    remove(controller, 4)

    assert controller.core.state.header.feature_level == 2


def test_a_removed_id_registers_again_as_a_new_node() -> None:
    """The id of a removed node may register again: with a higher node epoch, and no longer named as removed (C85)."""
    controller = gone(1)
    before = controller.epochs[4]
    assert remove(controller, 4) is None
    controller.start(4, directory_id="another")
    snapshot = controller.ask(GetMetadata()).image

    assert controller.epochs[4] > max(before, controller.epochs[1])
    assert ([node.node_id for node in snapshot.nodes], snapshot.removed_node_ids) == ([1, 4], ())
    tombstone = controller.core.state.removed_nodes[NodeId(4)]
    assert (tombstone.node_epoch, tombstone.directory_id) == (before, "directory-4")


def test_an_unknown_or_removed_id_is_not_registered() -> None:
    """Removing a node that never existed, or twice, is rejected as not registered, with different messages."""
    controller = gone(1)
    assert remove(controller, 4) is None
    unknown, twice = remove(controller, 9), remove(controller, 4)

    assert unknown is not None
    assert twice is not None
    assert unknown.code is twice.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "node list" in unknown.message
    assert "was removed" in twice.message


def test_a_process_of_a_removed_node_is_ended() -> None:
    """A process that resumes after its node was removed must stop, instead of sending heartbeats for ever."""
    controller = gone(1)
    assert remove(controller, 4) is None
    answer = controller.heartbeat(4)

    assert answer.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert "removed" in answer.refusal.message


def test_a_removed_observer_leaves_the_partitions() -> None:
    """No partition lists an observer that was removed (M60)."""
    controller = Controller()
    controller.start(1)
    controller.start(4, roles=frozenset({Role.FOLLOWER}))
    controller.create(1)
    assert controller.partition().observers == (4,)
    controller.fence(4)
    assert remove(controller, 4) is None

    assert controller.partition().observers == ()


def test_a_store_whose_nodes_were_all_removed_is_not_empty() -> None:
    """A node of another cluster does not stop a controller whose nodes are all removed: the store knew nodes (TR18)."""
    controller = gone()
    assert remove(controller, 4) is None

    assert why_empty(controller.core.state, NodeId(7), "another-cluster") is None


@pytest.mark.parametrize("with_store", [False, True])
def test_recovery_does_not_bring_a_removed_node_back(with_store: bool) -> None:
    """A node that the newest image names as removed is not in a recovered store, though older ones know it (TR18)."""
    controller = gone(1, 2)
    older, store = controller.core.state.snapshot(), controller.core.state
    assert remove(controller, 4) is None
    newer = controller.core.state.snapshot()
    given = [
        GivenNode(node_id=NodeId(1), directory_id="directory-1", image=newer),
        GivenNode(node_id=NodeId(2), directory_id="directory-2", image=older),
    ]
    recovered = recover(given, store if with_store else None)

    assert sorted(recovered.nodes) == [1, 2]
    assert sorted(recovered.removed_nodes) == [4]
    assert recovered.snapshot().removed_node_ids == (4,)
