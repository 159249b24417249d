"""Which replica leads: clean elections, ELR, unclean elections, preferred leaders."""

from __future__ import annotations

from controller_builders import Controller, created, started

from strandline.core.control.messages import ElectionKind, ElectLeaders, PartitionsRef, TopicRef
from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode
from strandline.core.types import Role, TopicPartition


def test_elr_follows_kafkas_own_table() -> None:
    """T27: AR {0..3}, min ISR 3: fencing 1, 2, 3 gives ISR {0}, ELR {2,3}; then 2 leads alone, ELR {0,3}."""
    controller = created(0, 1, 2, 3, min_insync_replicas="3")
    controller.fence(1, 2, 3)

    assert controller.view() == (0, {0}, {2, 3})

    controller.heartbeat(2)
    controller.fence(0)

    assert controller.view() == (2, {2}, {0, 3})
    assert not controller.node(2).fenced


def test_sessions_that_end_together_leave_the_isr_together() -> None:
    """Nodes fenced by one tick are all eligible, in one epoch: the HW cannot have moved after the first (M64)."""
    controller = created(0, 1, 2, 3, min_insync_replicas="3")
    before = controller.partition()
    controller.pass_ms(10_000, 0)

    assert controller.view() == (0, {0}, {1, 2, 3})
    assert controller.partition().partition_epoch == before.partition_epoch + 1


def test_first_of_assignment_in_the_isr_is_elected_and_both_epochs_rise() -> None:
    """M49: the election goes by the order of assignment over the ISR; leader and partition epoch rise by one."""
    controller = started(1, 2, 3)
    before = controller.create(2, 3, 1)
    assert before.leader == 2

    controller.fence(2)
    after = controller.partition()
    assert (after.leader, set(after.isr)) == (3, {3, 1})
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_last_member_fenced_leaves_an_offline_partition_with_an_elr() -> None:
    """T40, off: ISR {}, ELR {L}, no leader, visible; the return of L elects it clean, and F only after it rejoined."""
    controller = created(1, 2, min_insync_replicas="1")
    controller.fence(2)
    controller.fence(1)

    assert controller.view() == (None, set(), {1})

    controller.heartbeat(2)

    assert controller.view() == (None, set(), {1})
    assert controller.partition().last_unclean_leader_epoch is None

    controller.heartbeat(1)

    assert controller.view() == (1, {1}, set())
    assert controller.propose(1, 2) is ErrorCode.NONE

    controller.fence(1)

    assert controller.view() == (2, {2}, set())


def test_unclean_election_where_the_topic_allows_it() -> None:
    """T40, on: F leads alone, RECOVERING, and the partition remembers the epoch of its unclean leader (M41, M48)."""
    controller = created(1, 2, min_insync_replicas="1", unclean_leader_election_enable="true")
    controller.fence(2)
    controller.fence(1)
    controller.heartbeat(2)
    controller.report(2)
    after = controller.partition()
    assert controller.view() == (2, {2}, set())
    assert after.recovering
    assert after.last_unclean_leader_epoch == after.leader_epoch
    assert [e for e in controller.emitted if getattr(e.event, "decision", "") == "unclean_election"]

    controller.heartbeat(1)
    assert controller.propose(1, 2, sender=2) is ErrorCode.NONE

    recovered = controller.partition()
    assert not recovered.recovering
    assert recovered.last_unclean_leader_epoch == after.leader_epoch


def test_enabling_unclean_election_elects_at_once() -> None:
    """A partition without a clean candidate gets its leader when the setting changes."""
    controller = created(1, 2)
    controller.fence(2, 1)
    controller.heartbeat(2)
    controller.report(2)
    assert controller.view()[0] is None

    controller.alter_config(unclean_leader_election_enable="true")

    assert controller.view() == (2, {2}, set())


def test_operator_may_elect_unclean_only_without_a_leader() -> None:
    """ElectLeaders UNCLEAN: ELECTION_NOT_NEEDED with a leader, without a candidate ELIGIBLE_LEADERS_NOT_AVAILABLE."""
    controller = created(1, 2)
    request = ElectLeaders(kind=ElectionKind.UNCLEAN, partitions=(PartitionsRef(TopicRef("t"), (0,)),))

    assert controller.ask(request).results[0].refusal.code is ErrorCode.ELECTION_NOT_NEEDED

    controller.fence(2, 1)
    assert controller.ask(request).results[0].refusal.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    controller.heartbeat(2)
    (result,) = controller.ask(request).results

    assert (result.refusal, result.leader) == (None, 2)
    assert controller.partition().last_unclean_leader_epoch == controller.partition().leader_epoch


def test_unclean_election_prefers_a_clean_one() -> None:
    """ElectLeaders UNCLEAN takes a living member of the ELR first, and that is not an unclean election."""
    controller = created(1, 2)
    controller.fence(2, 1)
    controller.heartbeat(2)
    controller.heartbeat(1)

    assert controller.partition().last_unclean_leader_epoch is None
    assert controller.view()[0] == 1


def test_unknown_partitions_are_refused_one_by_one() -> None:
    """ElectLeaders returns an error for each requested partition separately."""
    controller = created(1)
    refs = (PartitionsRef(TopicRef("t"), (0, 7)), PartitionsRef(TopicRef("nobody"), (0,)))

    assert [r.refusal.code for r in controller.ask(ElectLeaders(partitions=refs)).results] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_preferred_leader_comes_back_by_itself() -> None:
    """M49b: once the first replica is in the ISR again, the check that runs every 30 s moves leadership back to it."""
    controller = created(1, 2)
    controller.fence(1)
    controller.heartbeat(1)
    assert controller.propose(1, 2, sender=2) is ErrorCode.NONE
    assert controller.partition().leader == 2

    controller.pass_ms(31_000, 1, 2)

    assert controller.partition().leader == 1
    assert controller.emitted[-1].event.election_type == "preferred"


def test_automatic_preferred_leader_can_be_switched_off() -> None:
    """M49b: with the setting off the leader stays, until ElectLeaders requests the preferred one."""
    controller = Controller(timings=ControllerTimings(auto_leader_rebalance=False))
    controller.start(1, 2)
    controller.create(1, 2)
    controller.fence(1)
    request = ElectLeaders(kind=ElectionKind.PREFERRED)
    assert controller.ask(request).results[0].refusal.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    controller.heartbeat(1)
    controller.propose(1, 2, sender=2)
    controller.pass_ms(31_000, 1, 2)
    assert controller.partition().leader == 2
    (result,) = controller.ask(request).results

    assert result.leader == 1
    assert controller.ask(request).results == ()


def test_only_a_few_leaders_move_per_check() -> None:
    """M49b: one check moves at most as many partitions as the setting allows."""
    controller = Controller(timings=ControllerTimings(preferred_elections_per_check=2))
    controller.start(1, 2)
    ids = [f"22222222-0000-4000-8000-00000000000{n}" for n in range(5)]
    for n, topic_id in enumerate(ids):
        controller.create(1, 2, name=f"many-{n}", topic_id=topic_id)
    controller.fence(1)
    controller.heartbeat(1)
    for sequence, topic_id in enumerate(ids, 1):
        assert controller.propose(1, 2, sequence=sequence, tp=TopicPartition(topic_id, 0)) is ErrorCode.NONE

    controller.pass_ms(30_000, 1, 2)

    assert sum(controller.partition(topic_id=i).leader == 1 for i in ids) == 2


def test_observer_is_never_elected() -> None:
    """M60: an observer is never elected, not even unclean, and is in no ISR; every partition lists it."""
    controller = created(1, unclean_leader_election_enable="true")
    before = controller.partition()
    controller.start(9, roles=frozenset({Role.FOLLOWER}))
    after = controller.partition()
    assert after.observers == (9,)
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch

    controller.fence(1)

    assert controller.view() == (None, set(), {1})
