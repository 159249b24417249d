"""Different continuations of one history, and which of several logs has everything committed (C38, M65)."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from controller_builders import CLUSTER, P0, TOPIC_ID
from core_builders import TP, entries
from hypothesis import given as given_comparison, strategies as st

from strandline.core import messages
from strandline.core.control.election import extends, most_complete
from strandline.core.control.recovery import GivenNode, Lineage, branches, recover
from strandline.core.control.state import SKIP
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, Rules

R1 = messages.Reign("R1", 1, 1)
R2 = messages.Reign("R2", 2, 105, "R1")
R3 = messages.Reign("R3", 3, 120, "R2")


def partition(
    isr: tuple[int, ...], *, elr: tuple[int, ...] = (), leader: int | None = None, epoch: int = 7, version: int = 20
) -> messages.PartitionImage:
    """A partition of nodes 1, 2, 3."""
    return messages.PartitionImage(
        tp=P0,
        replicas=(NodeId(1), NodeId(2), NodeId(3)),
        isr=tuple(map(NodeId, isr)),
        elr=tuple(map(NodeId, elr)),
        leader=NodeId(leader or isr[0]) if leader or isr else None,
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(version),
        min_isr=2,
    )


def image(offset: int, *reigns: messages.Reign, **topics: messages.PartitionImage) -> messages.MetadataImage:
    """What a node stored of a topic `t`, or of others by name."""
    found = tuple(
        messages.TopicImage(name=name, topic_id=each.tp.topic_id, partitions=(each,)) for name, each in topics.items()
    )
    return messages.MetadataImage(
        cluster_id=CLUSTER,
        controller_epoch=reigns[-1].controller_epoch,
        metadata_offset=offset,
        is_snapshot=True,
        rules=Rules(),
        nodes=tuple(messages.NodeImage(node_id=NodeId(n), node_epoch=NodeEpoch(n)) for n in (1, 2, 3)),
        topics=found,
        reigns=reigns,
    )


def given(*images: messages.MetadataImage) -> list[GivenNode]:
    """The directories of nodes 1, 2, 3 with these images."""
    return [GivenNode(node_id=NodeId(n), directory_id=f"directory-{n}", image=each) for n, each in enumerate(images, 1)]


def recovered(lost: messages.PartitionImage, kept: messages.PartitionImage) -> messages.PartitionImage | None:
    """A recovery from a node that knows a change which the store lost, one that knows what came instead, and one that
    knows neither."""
    before = image(104, R1, t=partition((1, 2, 3)))
    return recover(given(image(105, R1, t=lost), image(118, R1, R2, t=kept), before)).partition(P0)


def heads(*images: messages.MetadataImage) -> list[int]:
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
    proof = messages.PositionProof(NodeEpoch(1), 1, 106, b"", "R1")

    assert heads(replace(image(104, R1), position=proof), image(118, R1, R2)) == [118, 104]


def test_an_isr_that_branches_disagree_upon_is_what_they_share() -> None:
    """TR28: the lost transaction shrank the ISR to 1 and 2; the store that forgot it went on with 1, 2 and 3."""
    lost, kept = partition((1, 2), version=21), partition((1, 2, 3), leader=3, epoch=1_032, version=1_045)
    found = recovered(lost, kept)

    assert (found.isr, found.elr, found.leader) == ((1, 2), (), None)
    assert found.unproven == (1, 2)
    assert found.leader_epoch == 1_032 + 1 + SKIP
    assert found.partition_epoch == 1_045 + 1 + SKIP


def test_no_member_in_common_leaves_the_partition_without_a_leader() -> None:
    """Each branch may have committed what the other lacks; only an operator may choose."""
    lost, kept = partition((1,), version=21), partition((3,), epoch=1_032, version=1_045)
    found = recovered(lost, kept)

    assert (found.isr, found.elr, found.leader) == ((), (), None)


def test_members_that_are_eligible_in_every_branch_stay_eligible() -> None:
    """Below min ISR the members of ISR and ELR together have all that a branch committed (KIP-966)."""
    lost, kept = partition((1,), elr=(2,), version=21), partition((), elr=(1, 2), epoch=1_032, version=1_045)
    found = recovered(lost, kept)

    assert (found.isr, found.elr, found.unproven) == ((), (1, 2), (1, 2))


def test_a_partition_that_no_branch_changed_keeps_its_leader() -> None:
    """A fork in the history of nodes alone changes nothing for partitions."""
    same = partition((1, 2, 3))
    found = recovered(same, same)

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
    found = {r.reign_id: (r.last_offset, r.recovered) for r in state.reigns.values()}

    assert found == {"R1": (105, True), "R2": (118, True)}


def test_a_directory_without_metadata_counts_only_if_the_store_knows_it() -> None:
    """An unknown one may stand in the place of another, which knew more."""
    whole = image(104, R1, t=partition((1, 2, 3)))
    known = recover(given(whole, whole, whole))
    empty = GivenNode(node_id=NodeId(3), directory_id="directory-3", image=None)
    fresh = replace(empty, directory_id="a new one")
    with_it = recover([*given(whole, whole), empty], known).partition(P0)
    without = recover([*given(whole, whole), fresh], known).partition(P0)

    assert with_it.leader == 1
    assert without.leader is None


# Which of several logs certainly holds everything committed: prefixes, forks, log starts, older releases (M65).


def log(*spans: tuple[int, int], leo: int, reconciled: int | None = None, start: int = 0) -> messages.ReplicaLogInfo:
    """A log of (epoch, start offset) spans."""
    known = None if reconciled is None else LeaderEpoch(reconciled)
    return messages.ReplicaLogInfo(TP, LeaderEpoch(9), Offset(start), Offset(leo), entries(*spans), known)


def test_the_longer_of_two_equal_histories_wins() -> None:
    """A log that lost its tail is a prefix of one that did not, whichever log it was reconciled with."""
    whole, cut = log((0, 0), (2, 5), leo=9, reconciled=2), log((0, 0), leo=4, reconciled=7)

    assert extends(whole, cut)
    assert not extends(cut, whole)
    assert [most_complete(pair) for pair in ((whole, cut), (cut, whole))] == [0, 1]


def test_of_equal_logs_the_one_that_deleted_more_wins() -> None:
    """A restored directory may hold records again that were deleted for good (I27)."""
    trimmed, put_back = log((0, 3), start=3, leo=9, reconciled=2), log((0, 0), leo=9, reconciled=2)

    assert [most_complete(pair) for pair in ((trimmed, put_back), (put_back, trimmed))] == [0, 1]


def test_of_two_forked_logs_the_later_reconciled_one_wins() -> None:
    """The shorter log's last record is of a newer epoch, so neither log proves what was committed."""
    committed = log((0, 0), leo=2, reconciled=2)
    forked = log((0, 0), (1, 1), leo=5, reconciled=1)

    assert not extends(forked, committed)
    assert not extends(committed, forked)
    assert [most_complete(pair) for pair in ((committed, forked), (forked, committed))] == [0, 1]


def test_a_log_that_ends_below_another_ones_start_is_its_prefix() -> None:
    """Records below a log start were committed, so a log that ends there lacks records that the other has."""
    trimmed, old = log((3, 10), leo=12, reconciled=3, start=10), log((0, 0), leo=8, reconciled=9)

    assert extends(trimmed, old)
    assert most_complete((old, trimmed)) == 1


def test_an_epoch_without_records_decides_nothing() -> None:
    """A leader's own epoch that begins at its log end (M35) does not make its log a different one."""
    led, followed = log((0, 0), (4, 6), leo=6, reconciled=4), log((0, 0), leo=7, reconciled=3)

    assert extends(followed, led)
    assert most_complete((led, followed)) == 1


def test_an_empty_log_is_a_prefix_of_every_other() -> None:
    """A log without records loses to one with a record, and two of them are equal."""
    empty = log(leo=0, reconciled=8)

    assert most_complete((empty, log((0, 0), leo=1, reconciled=0))) == 1
    assert not extends(empty, empty)


def test_a_log_that_does_not_know_where_it_was_reconciled_comes_last() -> None:
    """Directories of older releases carry no such data; of two such, the newer last epoch counts, then the length."""
    unknown = [log((0, 0), leo=9), log((0, 0), (2, 3), leo=4), log((0, 0), (2, 3), leo=5)]

    assert most_complete([*unknown, log((0, 0), (1, 2), leo=3, reconciled=1)]) == 3
    assert most_complete(unknown) == 2


class History:
    """A partition under the protocol: leaders that hold all committed records, followers that agree before they count.

    A log is a tuple of the epochs that wrote its records; a replica that is restored goes back to an earlier state.
    """

    def __init__(self, replicas: int) -> None:
        self.logs: list[tuple[int, ...]] = [()] * replicas
        self.reconciled = [0] * replicas
        self.committed: tuple[int, ...] = ()
        self.past = [[((), 0)] for _ in range(replicas)]
        self.epoch = 0
        self.leader = 0

    def elect(self, leader: int) -> None:
        """A replica that holds all committed records begins an epoch."""
        if self.logs[leader][: len(self.committed)] == self.committed:
            self.epoch += 1
            self.leader = leader
            self._reconcile(leader)

    def write(self) -> None:
        """The leader appends a record."""
        self.logs[self.leader] = (*self.logs[self.leader], self.epoch)
        self._keep(self.leader)

    def follow(self, replica: int, count: int) -> None:
        """A replica agrees with the leader, then takes some of its records."""
        if replica == self.leader:
            return
        own, theirs = self.logs[replica], self.logs[self.leader]
        same = next(
            (i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs))
        )
        self.logs[replica] = own[:same]
        self._reconcile(replica)
        self.logs[replica] = theirs[: min(len(theirs), same + count)]
        self._keep(replica)

    def commit(self) -> None:
        """Commit the records of every replica that agreed with this epoch's leader; all of them must have agreed."""
        if all(epoch == self.epoch for epoch in self.reconciled):
            length = min(map(len, self.logs))
            self.committed = self.logs[self.leader][:length] if length > len(self.committed) else self.committed

    def _reconcile(self, replica: int) -> None:
        self.reconciled[replica] = self.epoch
        self._keep(replica)

    def _keep(self, replica: int) -> None:
        self.past[replica].append((self.logs[replica], self.reconciled[replica]))

    def info(self, records: tuple[int, ...], reconciled: int) -> messages.ReplicaLogInfo:
        """The report of a replica in that state."""
        spans = [(epoch, i) for i, epoch in enumerate(records) if not i or records[i - 1] != epoch]
        return log(*spans, leo=len(records), reconciled=reconciled)


STEPS = st.one_of(
    st.tuples(st.just("elect"), st.integers(0, 2)),
    st.tuples(st.just("write"), st.just(0)),
    st.tuples(st.just("follow"), st.integers(0, 2)),
    st.tuples(st.just("commit"), st.just(0)),
)


@given_comparison(st.lists(STEPS, max_size=40), st.integers(0, 2), st.data())
def test_nothing_committed_is_lost_with_one_loss(
    steps: list[tuple[str, int]], victim: int, data: st.DataObject
) -> None:
    """Whichever earlier state one of three replicas goes back to, the elected log holds all committed records."""
    history = History(3)
    for name, replica in steps:
        if name == "elect":
            history.elect(replica)
        elif name == "write":
            history.write()
        elif name == "follow":
            history.follow(replica, data.draw(st.integers(0, 3)))
        else:
            history.commit()
    past, reconciled = data.draw(st.sampled_from(history.past[victim]))
    length = data.draw(st.integers(0, len(past)))
    for other in [n for n in range(3) if n != victim]:
        for order in permutations([(history.logs[other], history.reconciled[other]), (past[:length], reconciled)]):
            chosen, _ = order[most_complete([history.info(*state) for state in order])]

            assert chosen[: len(history.committed)] == history.committed
