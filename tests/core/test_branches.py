"""What a recovery believes of nodes that know different continuations of one history (C38)."""

from __future__ import annotations

from dataclasses import replace

from controller_builders import CLUSTER, P0, TOPIC_ID

from strandline.core.control.recovery import GivenNode, Lineage, branches, recover
from strandline.core.control.state import SKIP
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, PositionProof, Reign, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules

R1 = Reign("R1", 1, 1)
R2 = Reign("R2", 2, 105, "R1")
R3 = Reign("R3", 3, 120, "R2")


def partition(
    isr: tuple[int, ...], *, elr: tuple[int, ...] = (), leader: int | None = None, epoch: int = 7, version: int = 20
) -> PartitionImage:
    """A partition of nodes 1, 2, 3."""
    return PartitionImage(
        tp=P0,
        replicas=(NodeId(1), NodeId(2), NodeId(3)),
        isr=tuple(map(NodeId, isr)),
        elr=tuple(map(NodeId, elr)),
        leader=NodeId(leader or isr[0]) if leader or isr else None,
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(version),
        min_isr=2,
    )


def image(offset: int, *reigns: Reign, **topics: PartitionImage) -> MetadataImage:
    """What a node stored of a topic `t`, or of others by name."""
    found = tuple(TopicImage(name=name, topic_id=each.tp.topic_id, partitions=(each,)) for name, each in topics.items())
    return MetadataImage(
        cluster_id=CLUSTER,
        controller_epoch=reigns[-1].controller_epoch,
        metadata_offset=offset,
        is_snapshot=True,
        rules=Rules(),
        nodes=tuple(NodeImage(node_id=NodeId(n), node_epoch=NodeEpoch(n)) for n in (1, 2, 3)),
        topics=found,
        reigns=reigns,
    )


def given(*images: MetadataImage) -> list[GivenNode]:
    """The directories of nodes 1, 2, 3 with these images."""
    return [GivenNode(node_id=NodeId(n), directory_id=f"directory-{n}", image=each) for n, each in enumerate(images, 1)]


def recovered(lost: PartitionImage, kept: PartitionImage) -> PartitionImage | None:
    """A recovery from a node that knows a change which the store lost, one that knows what came instead, and one that
    knows neither."""
    before = image(104, R1, t=partition((1, 2, 3)))
    return recover(given(image(105, R1, t=lost), image(118, R1, R2, t=kept), before)).partition(P0)


def heads(*images: MetadataImage) -> list[int]:
    """The offsets of the newest image of each branch."""
    return [branch.head.metadata_offset for branch in branches(images, Lineage(images, {}, 0))]


def test_an_image_of_an_earlier_reign_within_its_end_is_older() -> None:
    """R1 ended at 104: who knows 104 of it shares the history of who knows R2, and 105 of it is another branch."""
    assert heads(image(104, R1), image(118, R1, R2)) == [118]
    assert heads(image(105, R1), image(118, R1, R2)) == [118, 105]


def test_a_history_is_followed_over_reigns_that_no_node_ended_in() -> None:
    """Snapshots carry the reigns before: R2 is known to neither as its own."""
    assert heads(image(104, R1), image(125, R1, R2, R3)) == [125]


def test_what_cannot_be_connected_is_a_branch() -> None:
    """Without the reigns in between nothing shows that the later one continues the earlier."""
    assert heads(image(104, R1), image(125, R3)) == [125, 104]


def test_a_position_that_an_answer_named_counts() -> None:
    """The image is older than the fork; an answer about an ISR came from beyond it."""
    proof = PositionProof(NodeEpoch(1), 1, 106, b"", "R1")

    assert heads(replace(image(104, R1), position=proof), image(118, R1, R2)) == [118, 104]


def test_an_isr_that_branches_disagree_upon_is_what_they_share() -> None:
    """TR28: the lost transaction shrank the ISR to 1 and 2; the store that forgot it went on with 1, 2 and 3."""
    lost, kept = partition((1, 2), version=21), partition((1, 2, 3), leader=3, epoch=1_032, version=1_045)

    found = recover(
        given(image(105, R1, t=lost), image(118, R1, R2, t=kept), image(104, R1, t=partition((1, 2, 3))))
    ).partition(P0)

    assert found is not None
    assert (found.isr, found.elr, found.leader) == ((1, 2), (), None)
    assert found.unproven == (1, 2)
    assert found.leader_epoch == 1_032 + 1 + SKIP
    assert found.partition_epoch == 1_045 + 1 + SKIP


def test_no_member_in_common_leaves_the_partition_without_a_leader() -> None:
    """Each branch may have committed what the other lacks; only an operator may choose."""
    lost, kept = partition((1,), version=21), partition((3,), epoch=1_032, version=1_045)

    found = recover(
        given(image(105, R1, t=lost), image(118, R1, R2, t=kept), image(104, R1, t=partition((1, 2, 3))))
    ).partition(P0)

    assert found is not None
    assert (found.isr, found.elr, found.leader) == ((), (), None)


def test_members_that_are_eligible_in_every_branch_stay_eligible() -> None:
    """Below min ISR the members of ISR and ELR together have all that a branch committed (KIP-966)."""
    lost, kept = partition((1,), elr=(2,), version=21), partition((), elr=(1, 2), epoch=1_032, version=1_045)

    found = recover(
        given(image(105, R1, t=lost), image(118, R1, R2, t=kept), image(104, R1, t=partition((1, 2, 3))))
    ).partition(P0)

    assert found is not None
    assert (found.isr, found.elr, found.unproven) == ((), (1, 2), (1, 2))


def test_a_partition_that_no_branch_changed_keeps_its_leader() -> None:
    """A fork in the history of nodes alone changes nothing for partitions."""
    same = partition((1, 2, 3))

    found = recover(given(image(105, R1, t=same), image(118, R1, R2, t=same), image(104, R1, t=same))).partition(P0)

    assert found is not None
    assert (found.leader, found.isr) == (1, (1, 2, 3))


def test_a_topic_that_one_branch_never_knew_is_kept() -> None:
    """TR29: the lost transaction made it, and nodes hold its records."""
    state = recover(given(image(105, R1, t=partition((1, 2, 3))), image(118, R1, R2), image(118, R1, R2)))

    assert TOPIC_ID in state.topics
    assert state.deleted_topic_ids == frozenset()


def test_a_topic_that_a_branch_deleted_stays_deleted() -> None:
    """It was there before the fork, and one branch knows that it is gone."""
    old = image(104, R1, t=partition((1, 2, 3)))

    state = recover(given(old, image(105, R1, t=partition((1, 2, 3))), image(118, R1, R2)))

    assert state.topics == {}
    assert state.deleted_topic_ids == {TOPIC_ID}


def test_a_recovery_closes_every_reign_as_far_as_the_nodes_know_it() -> None:
    """C38: what lies beyond differs from what the store forgot later."""
    state = recover(given(image(105, R1, t=partition((1, 2, 3))), image(118, R1, R2), image(104, R1)))

    assert {r.reign_id: (r.last_offset, r.recovered) for r in state.reigns.values()} == {
        "R1": (105, True),
        "R2": (118, True),
    }


def test_a_directory_without_metadata_counts_only_if_the_store_knows_it() -> None:
    """An unknown one may stand in the place of another, which knew more."""
    whole = image(104, R1, t=partition((1, 2, 3)))
    known = recover(given(whole, whole, whole))
    empty = GivenNode(node_id=NodeId(3), directory_id="directory-3", image=None)
    fresh = replace(empty, directory_id="a new one")

    with_it = recover([*given(whole, whole), empty], known).partition(P0)
    without = recover([*given(whole, whole), fresh], known).partition(P0)

    assert with_it is not None and without is not None
    assert with_it.leader == 1
    assert without.leader is None
