"""Elections when every member of ISR and ELR restarted: logs are reported, compared, waited for (M64 to M69)."""

from __future__ import annotations

from typing import Any

import pytest
from controller_builders import Controller, created, next_reign

# Historic rules, of which one test needs one, come with the simulator.
from strandline.core import types
from strandline.core.control.messages import ElectionKind, ElectLeaders, PartitionsRef, TopicRef
from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode
from strandline.core.state_events import ControllerDecision, LeaderChange, NodeSession
from strandline.core.types import LeaderEpoch, NodeEpoch, Offset, Rules, Truncation


def blackout(*members: int, min_isr: int = 2, **given: Any) -> Controller:
    """Three replicas; those outside ``members`` left the ISR first, then all others died at the same time."""
    controller = Controller(**given)
    controller.start(1, 2, 3)
    controller.create(1, 2, 3, min_insync_replicas=str(min_isr))
    controller.fence(*(node_id for node_id in (1, 2, 3) if node_id not in members))
    controller.fence_together(*members)
    assert controller.partition().leader is None
    return controller


def elections(controller: Controller) -> list[tuple[int | None, str | None, str]]:
    """(leader, election type, reason) of every new leader epoch."""
    changes = (emitted.event._asdict() for emitted in controller.emitted if isinstance(emitted.event, LeaderChange))
    return [(fields["new_leader"], fields["election_type"], fields["reason"]) for fields in changes]


def decisions(controller: Controller, kind: str) -> list[str]:
    """The outcomes of the controller's decisions of one kind."""
    found = (emitted.event._asdict() for emitted in controller.emitted if isinstance(emitted.event, ControllerDecision))
    return [str(fields["outcome"]) for fields in found if fields["decision"] == kind]


def test_a_new_process_is_unproven_where_it_could_be_elected() -> None:
    """M64: it keeps its places, but the transaction that registers it stores that its log has not been counted yet."""
    controller = created(1, 2, 3)
    controller.register(2)

    assert controller.view() == (1, {1, 2, 3}, set())
    assert controller.partition().unproven == (2,)


def test_a_leader_proves_a_member_by_counting_its_process() -> None:
    """M64, M44: a proposal makes a process eligible only if it names the process that was counted."""
    controller = created(1, 2, 3)
    controller.start(2, 3)
    earlier = controller.epochs[3]
    controller.start(3)
    refused = controller.propose(1, 2, 3, epoch_of_3=earlier)
    assert controller.propose(1, 2, 3, epoch_of_3=None, sequence=2) is ErrorCode.NONE
    assert refused is ErrorCode.INELIGIBLE_REPLICA
    assert controller.partition().unproven == (3,)


def test_a_proven_member_is_elected_before_an_earlier_assigned_unproven_one() -> None:
    """M65: while one counted process is left, no logs are requested."""
    controller = created(1, 2, 3)
    controller.start(2)
    controller.fence(1)

    assert controller.view()[0] == 3


def test_unproven_outlives_the_controller() -> None:
    """M64: the next controller epoch reads it from the store, and elects no node by a single log."""
    controller = blackout(1, 2, 3)
    controller.start(1)
    again = next_reign(controller)
    again.heartbeat(1)
    again.report(1, again.log_of((0, 0), leo=5, reconciled=0))

    assert again.partition().leader is None
    assert 1 in again.partition().unproven


@pytest.mark.parametrize(("members", "first", "second"), [((1, 2, 3), 1, 3), ((2, 3), 3, 2)])
def test_min_isr_logs_are_compared(members: tuple[int, ...], first: int, second: int) -> None:
    """One report elects no node; with the second the longer log leads, whichever came first."""
    controller = blackout(*members)
    controller.start(first)
    controller.report(first, controller.log_of((0, 0), leo=5, reconciled=0))
    alone = controller.partition().leader
    controller.start(second)
    controller.report(second, controller.log_of((0, 0), leo=9, reconciled=0))

    assert alone is None
    assert controller.partition().leader == second
    assert elections(controller)[-1] == (second, "reported", "election")


def test_with_an_isr_of_two_the_third_replica_does_not_help() -> None:
    """M65: a replica outside ISR and ELR may lack committed records, so its report is ignored."""
    controller = blackout(2, 3)
    controller.start(1, 2)
    controller.report(1, controller.log_of((0, 0), leo=9, reconciled=0))
    controller.report(2, controller.log_of((0, 0), leo=9, reconciled=0))

    assert controller.partition().leader is None
    assert decisions(controller, "await_reports")[-1].endswith("an election needs 2 of [2, 3]")


def test_a_member_that_registered_as_unclean_is_one_of_the_losses() -> None:
    """A5: of an ISR of two one member is known to have lost records; the other one's log is then enough."""
    controller = blackout(2, 3)
    controller.start(3, unclean=True)
    controller.start(2)
    controller.report(2, controller.log_of((0, 0), leo=9, reconciled=0))

    assert controller.partition().leader == 2


def test_a_single_replica_leads_on_its_own_report() -> None:
    """With one replica and min ISR 1 there is nothing to compare; A5 allows no loss then."""
    controller = created(1, min_insync_replicas="1")
    controller.fence(1)
    controller.start(1)
    before = controller.partition().leader
    controller.report(1, controller.log_of((0, 0), leo=9, reconciled=0))

    assert before is None
    assert controller.partition().leader == 1


@pytest.mark.parametrize("change", ["leader_epoch", "node_epoch", "new_process"])
def test_only_the_present_process_in_the_present_epoch_is_heard(change: str) -> None:
    """M65: a report of an earlier leader epoch, or of a process that is gone, elects no node."""
    controller = blackout(1, 2, 3)
    controller.start(1, 2)
    log = controller.log_of((0, 0), leo=5, reconciled=0)
    if change == "leader_epoch":
        controller.report(1, log._replace(leader_epoch=LeaderEpoch(log.leader_epoch - 1)))
    elif change == "node_epoch":
        current, controller.epochs[1] = controller.epochs[1], NodeEpoch(controller.epochs[1] - 1)
        answer = controller.report(1, log)
        controller.epochs[1] = current
        assert answer.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    else:
        controller.report(1, log)
        controller.start(1)
    controller.report(2, log)

    assert controller.partition().leader is None


def test_of_two_forked_logs_the_one_reconciled_later_leads() -> None:
    """M65: a HW that commits records of older epochs means that the newer last epoch proves nothing."""
    controller = blackout(1, 2, 3)
    controller.start(1, 2)
    controller.report(1, controller.log_of((0, 0), (3, 4), leo=9, reconciled=3))
    controller.report(2, controller.log_of((0, 0), leo=6, reconciled=4))

    assert controller.partition().leader == 2


@pytest.mark.parametrize("where", ["topic", "cluster"])
def test_a_finite_wait_ends_in_an_election_that_says_what_it_is(where: str) -> None:
    """A time limit elects the best reported log, as unclean, with its own reason; P1 ends there."""
    timings = ControllerTimings(unclean_recovery_timeout_ms=5_000 if where == "cluster" else -1)
    controller = blackout(1, 2, 3, timings=timings)
    if where == "topic":
        controller.alter_config(unclean_recovery_timeout_ms="5000")
    controller.start(2, 3)
    controller.fence(3)
    controller.report(2, controller.log_of((0, 0), leo=5, reconciled=0))
    controller.pass_ms(4_000, 2)
    before = controller.partition().leader
    controller.pass_ms(2_000, 2)

    assert before is None
    assert elections(controller)[-1] == (2, "unclean", "unclean_recovery_timeout")
    assert controller.partition().last_unclean_leader_epoch == controller.partition().leader_epoch


@pytest.mark.parametrize("of_topic", [False, True], ids=["by default", "set by the topic, against the cluster's limit"])
def test_a_wait_without_a_limit_has_no_end(of_topic: bool) -> None:
    """P1: without the other log no node is elected, however long it takes."""
    timings = ControllerTimings(unclean_recovery_timeout_ms=2_000) if of_topic else None
    controller = blackout(1, 2, 3, timings=timings)
    if of_topic:
        controller.alter_config(unclean_recovery_timeout_ms="-1")
    controller.start(2)
    controller.report(2, controller.log_of((0, 0), leo=5, reconciled=0))
    controller.pass_ms(600_000, 2)

    assert controller.partition().leader is None


def test_an_operator_need_not_wait_and_gets_the_best_log() -> None:
    """`elect --unclean` with one report too few elects that log, not the first living replica."""
    controller = blackout(2, 3)
    controller.start(1, 3)
    controller.report(3, controller.log_of((0, 0), leo=5, reconciled=0))
    controller.ask(ElectLeaders(kind=ElectionKind.UNCLEAN, partitions=(PartitionsRef(TopicRef("t"), (0,)),)))

    assert elections(controller)[-1] == (3, "unclean", "unclean_election")


def test_nodes_that_are_silent_alike_leave_together() -> None:
    """A session that ends waits for others that are equally silent: all of them stay eligible, as they had the same."""
    controller = created(1, 2, 3)
    controller.pass_ms(2_000, 1, 2, 3)
    controller.heartbeat(1)
    controller.now_ms += 300
    controller.heartbeat(2)
    controller.now_ms += 300
    controller.heartbeat(3)
    controller.pass_ms(60_000)
    partition = controller.partition()

    assert partition.leader is None
    assert {*partition.isr, *partition.elr} == {1, 2, 3}


def test_a_node_that_died_earlier_does_not_stay_because_others_die_later() -> None:
    """A node that left long before the others may lack records that they acknowledged since."""
    controller = created(1, 2, 3)
    controller.pass_ms(30_000, 2, 3)
    controller.pass_ms(60_000)
    partition = controller.partition()

    assert {*partition.isr, *partition.elr} == {2, 3}


def test_a_member_that_refuses_to_cut_takes_over() -> None:
    """M69: the follower that holds what its leader lost leads; a replica that agreed with that leader is out."""
    controller = created(1, 2, 3)
    log = controller.log_of((0, 0), leo=9, reconciled=0, high_watermark=Offset(9), refused_cut_to=Offset(5))
    controller.report(2, log)

    assert controller.view() == (2, {2}, set())
    assert decisions(controller, "refused_cut") == ["node 2 leads: it holds committed records that node 1 lacks"]
    assert elections(controller)[-1] == (2, "reported", "refused_cut")


def test_a_replica_outside_that_refuses_to_cut_changes_nothing() -> None:
    """M69: it may hold records of another cluster's history; the decision reports that an operator must look."""
    controller = created(1, 2, 3)
    controller.propose(1, 2)
    before = controller.partition()
    controller.report(3, controller.log_of((0, 0), leo=9, high_watermark=Offset(9), refused_cut_to=Offset(5)))

    assert controller.partition() == before
    assert "until an operator decides" in decisions(controller, "refused_cut")[0]


@pytest.mark.parametrize("epochs", [-1, 1])
def test_a_refused_cut_of_another_leader_epoch_is_ignored(epochs: int) -> None:
    """A report in flight when the leader changed does not count for the new one."""
    controller = created(1, 2, 3)
    controller.fence(1)
    before = controller.partition()
    log = controller.log_of((0, 0), leo=9, refused_cut_to=Offset(5))
    controller.report(3, log._replace(leader_epoch=LeaderEpoch(log.leader_epoch + epochs)))

    assert controller.partition() == before


@pytest.mark.parametrize("why", ["level", "rule"])
def test_a_cluster_whose_nodes_send_no_reports_elects_as_before(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a node of level 1, or under a historic rule, the first living member of the ISR leads at once."""
    rules = Rules(truncation=Truncation.KIP_101) if why == "rule" else Rules()
    if why == "level":
        monkeypatch.setattr(types, "HIGHEST", 1)
    controller = Controller(rules=rules)
    controller.start(1, 2, 3, rules=rules)
    controller.create(1, 2, 3)
    controller.fence_together(1, 2, 3)
    controller.start(2, rules=rules)

    assert controller.partition().leader == 2


def test_a_directory_that_went_back_is_unclean() -> None:
    """M67: a node that does not name the incarnation on record ran from an older copy of its directory."""
    controller = created(1, 2, 3)
    controller.start(2, incarnation_id="b", known_incarnations=("a", "b"))
    controller.start(2, incarnation_id="c", known_incarnations=("a", "c"))
    causes = [e.event.cause for e in controller.emitted if isinstance(e.event, NodeSession)]

    assert controller.view() == (1, {1, 3}, set())
    assert "directory_restored" in causes
