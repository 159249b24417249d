"""Nodes that leave: gone for good, or short of disk space."""

from __future__ import annotations

import pytest
from controller_builders import TOPIC, TOPIC_ID, Controller, created, next_reign, started

from strandline.core import types
from strandline.core.control import messages
from strandline.core.control.events import Publish, RequestArrived
from strandline.core.control.positions import why_empty
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage
from strandline.core.state_events import LeaderChange, NodeSession
from strandline.core.types import NodeId, Role


def remove(controller: Controller, node_id: int) -> Refusal | None:
    return controller.ask(messages.UnregisterNode(node_id=NodeId(node_id))).refusal


def gone(*alive: int) -> Controller:
    """A controller with the alive nodes, and with node 4 whose session has ended."""
    controller = Controller()
    controller.start(*alive, 4)
    controller.fence(4)
    return controller


def test_a_node_with_a_session_stays() -> None:
    """While its session lives a node cannot be removed, and the error says to stop its process (C85)."""
    controller = started(1, 4)
    refusal = remove(controller, 4)

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

    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert "2 partitions (t-0, other-0)" in refusal.message
    assert "`strandline node drain 4 --remove`" in refusal.message
    assert NodeId(4) in controller.core.state.nodes


def test_a_removed_node_leaves_every_image() -> None:
    """A removed node is in no snapshot; the change and every later snapshot name it as removed (C85)."""
    controller = gone(1)
    effects = controller.step(RequestArrived(controller.now_ms, 900, messages.UnregisterNode(node_id=NodeId(4))))
    (change,) = [effect.image for effect in effects if isinstance(effect, Publish)]
    snapshot = controller.ask(messages.GetMetadata()).image

    assert (change.nodes, change.removed_node_ids) == ((), (4,))
    assert ([node.node_id for node in snapshot.nodes], snapshot.removed_node_ids) == ([1], (4,))
    assert [emit.event.phase for emit in controller.emitted if getattr(emit.event, "subject_node_id", None) == 4][
        -1
    ] == ("unregister")


def test_the_feature_level_rises_when_the_last_old_node_is_removed() -> None:
    """No registration has to follow: what all live nodes speak is used as soon as the older one is gone."""
    controller = started(1)
    controller.start(4, feature_min=1, feature_max=1)
    controller.fence(4)
    before = controller.core.state.header.feature_level
    remove(controller, 4)

    assert (before, controller.core.state.header.feature_level) == (1, types.HIGHEST)


def test_another_old_node_that_lives_keeps_the_feature_level() -> None:
    """A removal raises the level no further than every live node speaks."""
    controller = started(1)
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
    snapshot = controller.ask(messages.GetMetadata()).image

    assert controller.epochs[4] > max(before, controller.epochs[1])
    assert ([node.node_id for node in snapshot.nodes], snapshot.removed_node_ids) == ([1, 4], ())
    tombstone = controller.core.state.removed_nodes[NodeId(4)]
    assert (tombstone.node_epoch, tombstone.directory_id) == (before, "directory-4")


def test_an_unknown_or_removed_id_is_not_registered() -> None:
    """Removing a node that never existed, or twice, is rejected as not registered, with different messages."""
    controller = gone(1)
    assert remove(controller, 4) is None
    unknown, twice = remove(controller, 9), remove(controller, 4)

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
    controller = started(1)
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


# A node that refuses appends for lack of space leads only what no other member of the ISR can.


def fill(controller: Controller, *node_ids: int) -> None:
    """These nodes send a heartbeat that says that their disks are nearly full."""
    for node_id in node_ids:
        controller.heartbeat(node_id, disk_nearly_full=True)


def test_leadership_leaves_a_node_without_room() -> None:
    """The next member of the ISR leads in a new epoch, the node stays in the ISR, and both leave as state events."""
    controller = created(1, 2, 3)
    before = controller.partition()
    fill(controller, 1)
    after = controller.partition()
    assert (after.leader, after.isr) == (2, before.isr)
    assert after.leader_epoch == before.leader_epoch + 1
    events = [each.event for each in controller.emitted]
    assert any(isinstance(e, NodeSession) and (e.subject_node_id, e.phase) == (1, "disk_nearly_full") for e in events)
    assert [e.reason for e in events if isinstance(e, LeaderChange)][-1] == "disk_nearly_full"
    assert controller.node(1).disk_nearly_full


def test_a_repeated_heartbeat_changes_nothing() -> None:
    """One that says the same again moves no leader and commits nothing."""
    controller = created(1, 2, 3)
    fill(controller, 1)
    before = controller.stored
    fill(controller, 1)

    assert controller.stored == before


def test_it_leads_on_where_no_member_of_the_isr_has_room() -> None:
    """A leader that still answers reads is better than none, and two full nodes do not exchange leadership."""
    controller = created(1, 2, 3)
    controller.propose(1, 2)
    fill(controller, 2, 1)

    assert controller.partition().leader == 1


def test_leadership_leaves_as_soon_as_a_member_has_room() -> None:
    """Each later heartbeat looks for members that got room meanwhile."""
    controller = created(1, 2)
    fill(controller, 2, 1)
    full = controller.partition().leader
    controller.heartbeat(2)
    fill(controller, 1)

    assert (full, controller.partition().leader) == (1, 2)


def test_a_full_node_is_elected_last() -> None:
    """After the leader is lost, a member with room comes before the next in order of assignment."""
    controller = created(1, 2, 3)
    fill(controller, 2)
    controller.fence(1)
    with_room = controller.partition().leader
    controller.fence(3)

    assert (with_room, controller.partition().leader) == (3, 2)


def test_leadership_returns_only_when_there_is_room() -> None:
    """Neither a requested preferred election nor that of every check takes a full node."""
    controller = created(1, 2, 3)
    fill(controller, 1)
    (refused,) = controller.ask(
        messages.ElectLeaders(kind=messages.ElectionKind.PREFERRED, partitions=((messages.TopicRef(TOPIC), (0,)),))
    ).results
    for _ in range(controller.timings.leader_imbalance_check_interval_ms // 1_000 + 1):
        fill(controller, 1)
        controller.pass_ms(1_000, 2, 3)
    while_full = controller.partition().leader
    controller.pass_ms(controller.timings.leader_imbalance_check_interval_ms, 1, 2, 3)

    assert refused.refusal.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "disk is nearly full" in refused.refusal.message
    assert (while_full, controller.partition().leader) == (2, 1)


def test_new_partitions_go_elsewhere_first() -> None:
    """A topic with fewer replicas than nodes is placed on those that have room, and led there."""
    controller = started(1, 2, 3)
    fill(controller, 1)
    topic = messages.NewTopic("u", "44444444-0000-4000-8000-000000000000", num_partitions=6, replication_factor=2)
    controller.ask(messages.CreateTopics(topics=(topic,)))
    made = list(controller.core.state.partitions())

    assert len(made) == 6
    assert all(set(partition.replicas) == {2, 3} for partition in made)


def test_the_moves_of_many_partitions_are_spread_over_heartbeats() -> None:
    """One step moves no more than it may; the next heartbeats move the rest."""
    controller = Controller(timings=ControllerTimings(partitions_per_step=8))
    controller.start(1, 2)
    for number in range(12):
        controller.create(1, 2, name=f"t{number}", topic_id=f"{number:08x}-0000-4000-8000-000000000000")
    moved = []
    for _ in range(12):
        fill(controller, 1)
        moved.append(sum(partition.leader == 2 for partition in _all(controller)))

    assert 0 < moved[0] < 12
    assert moved[-1] == 12


def test_a_new_reign_moves_nothing_before_the_others_have_spoken() -> None:
    """C37: an election for want of room waits for every live replica, as all elections do."""
    after = next_reign(created(1, 2, 3))
    fill(after, 1)
    before = after.partition().leader
    after.heartbeat(2)
    after.heartbeat(3)
    fill(after, 1)

    assert (before, after.partition().leader) == (1, 2)


def _all(controller: Controller) -> list[PartitionImage]:
    return list(controller.core.state.partitions())
