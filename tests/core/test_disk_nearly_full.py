"""A node that refuses appends for lack of space leads only what no other member of the ISR can."""

from __future__ import annotations

from typing import Any

from controller_builders import TOPIC, Controller
from test_reign_begins import next_reign

from strandline.core.control.messages import CreateTopics, ElectionKind, ElectLeaders, NewTopic, TopicRef
from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode
from strandline.core.messages import PartitionImage
from strandline.core.state_events import LeaderChange, NodeSession


def cluster(*replicas: int, **given: Any) -> Controller:
    """Nodes, and one partition on all of them, led by the first."""
    controller = Controller(**given)
    controller.start(*replicas)
    controller.create(*replicas)
    return controller


def fill(controller: Controller, *node_ids: int) -> None:
    """These nodes send a heartbeat that says that their disks are nearly full."""
    for node_id in node_ids:
        controller.heartbeat(node_id, disk_nearly_full=True)


def test_leadership_leaves_a_node_without_room() -> None:
    """The next member of the ISR leads in a new epoch, the node stays in the ISR, and both leave as state events."""
    controller = cluster(1, 2, 3)
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
    controller = cluster(1, 2, 3)
    fill(controller, 1)
    before = controller.stored

    fill(controller, 1)

    assert controller.stored == before


def test_it_leads_on_where_no_member_of_the_isr_has_room() -> None:
    """A leader that still answers reads is better than none, and two full nodes do not exchange leadership."""
    controller = cluster(1, 2, 3)
    controller.propose(1, 2)

    fill(controller, 2, 1)

    assert controller.partition().leader == 1


def test_leadership_leaves_as_soon_as_a_member_has_room() -> None:
    """Each later heartbeat looks again, whoever got room meanwhile."""
    controller = cluster(1, 2)
    fill(controller, 2, 1)
    full = controller.partition().leader

    controller.heartbeat(2)
    fill(controller, 1)

    assert (full, controller.partition().leader) == (1, 2)


def test_a_full_node_is_elected_last() -> None:
    """After the leader is lost, a member with room comes before the next in order of assignment."""
    controller = cluster(1, 2, 3)
    fill(controller, 2)

    controller.fence(1)
    with_room = controller.partition().leader
    controller.fence(3)

    assert (with_room, controller.partition().leader) == (3, 2)


def test_leadership_returns_only_when_there_is_room() -> None:
    """Neither the preferred election that somebody asks for nor the one of every check takes a full node."""
    controller = cluster(1, 2, 3)
    fill(controller, 1)
    (refused,) = controller.ask(
        ElectLeaders(kind=ElectionKind.PREFERRED, partitions=((TopicRef(TOPIC), (0,)),))
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
    controller = Controller()
    controller.start(1, 2, 3)
    fill(controller, 1)

    topic = NewTopic("u", "44444444-0000-4000-8000-000000000000", num_partitions=6, replication_factor=2)
    controller.ask(CreateTopics(topics=(topic,)))
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
    after = next_reign(cluster(1, 2, 3))

    fill(after, 1)
    before = after.partition().leader
    after.heartbeat(2)
    after.heartbeat(3)
    fill(after, 1)

    assert (before, after.partition().leader) == (1, 2)


def _all(controller: Controller) -> list[PartitionImage]:
    return list(controller.core.state.partitions())
