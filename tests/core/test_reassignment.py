"""Reassignment of replicas: the exact cases T50 to T59, what is refused, and what goes on beside it (C70 to C79)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from controller_builders import P0, TOPIC, TOPIC_ID, Controller, next_reign

from strandline.core import types
from strandline.core.control import events, messages
from strandline.core.control.state import ControllerTimings
from strandline.core.control.step_parts import committed_snapshot
from strandline.core.errors import ErrorCode
from strandline.core.messages import PartitionImage
from strandline.core.state_events import Reassignment
from strandline.core.types import NodeId, Role, TopicPartition

_SEQUENCES = count(1)


def moving(*replicas: int, nodes: Iterable[int] = range(6), **configs: str) -> Controller:
    """A controller with live nodes and one partition."""
    controller = Controller()
    controller.start(*nodes)
    controller.create(*replicas, **configs)
    return controller


@pytest.fixture
def controller() -> Controller:
    """Six nodes, and a topic whose replicas are on 0, 1 and 2."""
    return moving(0, 1, 2)


def wanted(target: Iterable[int] | None, **given: Any) -> messages.ReassignPartition:
    topic = messages.TopicRef(given.pop("name", TOPIC))
    nodes = None if target is None else tuple(NodeId(each) for each in target)
    return messages.ReassignPartition(topic, given.pop("partition", 0), nodes, **given)


def ask(controller: Controller, *entries: messages.ReassignPartition, **given: Any) -> messages.PartitionsReassigned:
    return controller.ask(messages.AlterPartitionReassignments(partitions=entries, **given))


def reassign(controller: Controller, *nodes: int, **given: Any) -> ErrorCode:
    (result,) = ask(controller, wanted(given.pop("target", nodes)), **given).results
    return result.refusal.code if result.refusal else ErrorCode.NONE


def cancel(controller: Controller, **given: Any) -> ErrorCode:
    return reassign(controller, target=None, **given)


def proposed(controller: Controller, *isr: int, tp: TopicPartition = P0) -> list[Any]:
    """The leader proposes this ISR; returns the effects of that step."""
    request = controller.proposal(*isr, sequence=next(_SEQUENCES), tp=tp)
    return controller.step(events.RequestArrived(controller.now_ms, 77, request))


def in_sync(controller: Controller, *isr: int) -> None:
    """The leader proposes this ISR, and what the step leaves over is done."""
    effects = proposed(controller, *isr)
    (answer,) = [each.answer for each in effects if isinstance(each, events.Answer)]
    assert answer.partitions[0].refusal is None, answer
    assert set(answer.partitions[0].isr) == set(isr)
    if events.ContinueStep() in effects:
        controller.step(events.StepContinued(controller.now_ms))


def ongoing(controller: Controller) -> list[messages.OngoingReassignment]:
    """What ListPartitionReassignments answers."""
    return list(controller.ask(messages.ListPartitionReassignments()).reassignments)


def waits(controller: Controller) -> dict[int, str]:
    """What the only reassignment waits for."""
    (one,) = ongoing(controller)
    return {wait.node_id: wait.why for wait in one.waits}


def moves(partition: PartitionImage) -> tuple[Any, ...]:
    """Replicas, those added, those removed, the original ones."""
    return partition.replicas, partition.adding, partition.removing, partition.original


def reported(controller: Controller, *tps: TopicPartition) -> list[Reassignment]:
    """What was reported, of some partitions or of all."""
    found = [emit for emit in controller.emitted if isinstance(emit.event, Reassignment)]
    return [emit.event for emit in found if not tps or emit.tp in tps]


def phases(controller: Controller) -> list[str]:
    return [event.phase for event in reported(controller)]


def test_all_replicas_are_replaced(controller: Controller) -> None:
    """T50: three replicas go to three other nodes; one epoch at the start, one election at the end."""
    before = controller.partition()
    assert reassign(controller, 3, 4, 5) is ErrorCode.NONE
    running = controller.partition()

    assert moves(running) == ((3, 4, 5, 0, 1, 2), (3, 4, 5), (0, 1, 2), (0, 1, 2))
    assert running.partition_epoch - before.partition_epoch == 1
    assert (running.leader_epoch, running.leader) == (before.leader_epoch, 0)
    assert (running.isr, running.min_isr) == ((0, 1, 2), 2)

    in_sync(controller, 0, 1, 2, 3, 4)

    assert waits(controller) == {5: "is not in the ISR yet"}
    assert controller.partition().replicas == running.replicas

    in_sync(controller, 0, 1, 2, 3, 4, 5)
    after = controller.partition()

    assert (after.replicas, after.isr, after.elr) == ((3, 4, 5), (3, 4, 5), ())
    assert (after.leader, after.leader_epoch) == (3, before.leader_epoch + 1)
    assert moves(after)[1:] == ((), (), ())
    assert ongoing(controller) == []
    assert phases(controller) == ["started", "started", "completed"]


def test_another_order_is_one_transaction(controller: Controller) -> None:
    """T51: a target that only names another preferred leader is done at once, and the leader stays."""
    before = controller.partition()
    reassign(controller, 2, 1, 0)
    after = controller.partition()

    assert after == replace(before, replicas=(2, 1, 0), isr=(2, 1, 0), partition_epoch=before.partition_epoch + 1)


@pytest.mark.parametrize("isr", [(0, 1, 2), (0, 2)])
def test_a_replica_is_removed_when_the_copies_stay(controller: Controller, isr: tuple[int, ...]) -> None:
    """T52: from three replicas to two at once if both are in sync, else only when the second one is."""
    in_sync(controller, *isr)
    reassign(controller, 0, 1)
    if 1 not in isr:
        assert waits(controller) == {1: "is not in the ISR yet"}
        in_sync(controller, 0, 1, 2)

    assert (controller.partition().replicas, controller.partition().isr) == ((0, 1), (0, 1))


def test_min_isr_is_frozen_while_replicas_are_added() -> None:
    """T53: from one replica to three with min.insync.replicas 2 the effective min ISR is 1 to the end, then 2."""
    controller = moving(0, min_insync_replicas="2")
    seen = []
    reassign(controller, 0, 1, 2)
    for isr in [(0,), (0, 1)]:
        in_sync(controller, *isr) if len(isr) > 1 else None
        seen.append(controller.partition().min_isr)
    controller.alter_config(min_insync_replicas="3")
    seen.append(controller.partition().min_isr)
    in_sync(controller, 0, 1, 2)

    assert (seen, controller.partition().min_isr) == ([1, 1, 1], 3)


@pytest.mark.parametrize(
    ("target", "joined", "isr"), [((0, 1, 3), (0, 1, 3), (0, 1, 3)), ((2, 3, 4), (0, 1, 3, 4), (3, 4))]
)
def test_a_dead_replica_does_not_hold_it_up(
    controller: Controller, target: tuple[int, ...], joined: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    """T54, T55: a dead replica, removed or kept, is not waited for when as many copies are in sync without it."""
    controller.fence(2)
    reassign(controller, *target)
    in_sync(controller, *joined)

    assert (controller.partition().replicas, controller.partition().isr) == (target, isr)


@pytest.mark.parametrize(("target", "isr", "rise"), [((0, 1, 3), (0, 1, 2, 3), 1), ((0, 1, 2, 3), (0, 1, 2, 3), 0)])
def test_a_removal_begins_a_leader_epoch(
    controller: Controller, target: tuple[int, ...], isr: tuple[int, ...], rise: int
) -> None:
    """A replica that is removed loses its log, so its late fetches are fenced, also where the leader stays (C75)."""
    before = controller.partition()
    reassign(controller, *target)
    in_sync(controller, *isr)
    after = controller.partition()

    assert (after.replicas, after.leader) == (target, 0)
    assert after.leader_epoch - before.leader_epoch == rise


@pytest.mark.parametrize("then", ["cancel", "complete"])
def test_a_second_target_keeps_the_original_replicas(then: str) -> None:
    """T56: what the first target added is not original: a cancel returns to the first replicas, not to more."""
    controller = moving(0, 1)
    reassign(controller, 2, 3)
    in_sync(controller, 0, 1, 2)
    controller.ask(messages.ElectLeaders(partitions=(messages.PartitionsRef(messages.TopicRef(TOPIC), (0,)),)))
    assert controller.partition().leader == 2
    reassign(controller, 3, 4)

    assert moves(controller.partition()) == ((3, 4, 2, 0, 1), (3, 4), (2, 0, 1), (0, 1))
    assert controller.partition().leader == 2

    if then == "cancel":
        cancel(controller)
    else:
        in_sync(controller, 0, 1, 2, 3, 4)
    after = controller.partition()

    assert (after.replicas, after.isr) == (((0, 1), (0, 1)) if then == "cancel" else ((3, 4), (3, 4)))
    assert (after.leader, moves(after)[1:]) == (after.replicas[0], ((), (), ()))


def test_a_cancel_takes_leadership_from_an_added_replica(controller: Controller) -> None:
    """T57: a cancel while an added replica leads elects an original one in the same transaction."""
    reassign(controller, 3, 4, 5)
    in_sync(controller, 0, 1, 2, 3)
    controller.ask(messages.ElectLeaders(partitions=(messages.PartitionsRef(messages.TopicRef(TOPIC), (0,)),)))
    before = controller.partition()
    assert before.leader == 3
    cancel(controller)
    after = controller.partition()

    assert (after.leader, after.leader_epoch) == (0, before.leader_epoch + 1)
    assert after.partition_epoch == before.partition_epoch + 1
    assert (after.replicas, after.isr, moves(after)[1:]) == ((0, 1, 2), (0, 1, 2), ((), (), ()))
    assert phases(controller)[-1] == "cancelled"


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_without_original_replicas_is_refused(controller: Controller, force: bool) -> None:
    """T58: while no original replica is in the ISR, a cancel would leave no replica to lead, forced or not."""
    reassign(controller, 3, 4, 5)
    in_sync(controller, 0, 1, 2, 3, 4)
    controller.fence(0, 1, 2)
    before = controller.partition()

    assert set(before.isr) == {3, 4}
    assert cancel(controller, force=force) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert controller.partition() == before


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_below_min_isr_has_to_be_forced(controller: Controller, force: bool) -> None:
    """A cancel that would stop writes with acks=all is refused unless it is forced; then the ELR keeps the rest."""
    reassign(controller, 3, 4, 5)
    in_sync(controller, 0, 1, 2, 3)
    in_sync(controller, 0, 3)

    assert cancel(controller, force=force) is (ErrorCode.NONE if force else ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert set(controller.partition().isr) == ({0} if force else {0, 3})


def queue(controller: Controller, total: int, target: int, **given: Any) -> None:
    """Topics of one replica on nodes 0 to 2 that all move to one node."""
    for index in range(total):
        controller.create(index % 3, name=f"q{index}", topic_id=f"{index:08d}{TOPIC_ID[8:]}")
    ask(controller, *(wanted([target], name=f"q{index}") for index in range(total)), **given)


def states(controller: Controller, name: str | None = None) -> list[str]:
    """The states of all reassignments, running ones first."""
    found = [each for each in ongoing(controller) if name in (None, each.topic.name)]
    return [str(messages.state_of(each.partition)) for each in found]


def test_reassignments_wait_for_their_turn(controller: Controller) -> None:
    """T59: of 12 onto one node 5 run; when one completes, the next one starts in that transaction."""
    queue(controller, 12, 3)
    before = states(controller)
    first = next(each for each in ongoing(controller) if each.topic.name == "q0").partition
    assert ongoing(controller)[-1].waits[0].node_id == 3
    proposed(controller, 0, 3, tp=first.tp)
    effects = controller.step(events.StepContinued(controller.now_ms))
    (commit,) = [each for each in effects if isinstance(each, events.Commit)]
    changed = {each.tp: each for each in commit.transaction.partitions}

    assert before == ["running"] * 5 + ["queued"] * 7
    assert changed.pop(first.tp).replicas == (3,)
    assert [moves(each)[:2] for each in changed.values()] == [((3, 2), (3,))]
    assert states(controller) == ["running"] * 5 + ["queued"] * 6
    assert states(controller, "q5") == ["running"]


def test_a_take_over_goes_on_with_what_runs_and_waits(controller: Controller) -> None:
    """The next reign finds running and queued reassignments in the state, in the order of their submission."""
    queue(controller, 12, 3)
    order = [each.topic.name for each in ongoing(controller)]
    after = next_reign(controller)

    assert [each.topic.name for each in ongoing(after)] == order
    assert states(after) == ["running"] * 5 + ["queued"] * 7
    assert {each.since_ms for each in ongoing(after)} == {None}


def test_a_new_reign_completes_nothing_before_it_heard_the_replicas(controller: Controller) -> None:
    """The ISR of a store that may be older than the cluster removes no replica until every live one has spoken."""
    reassign(controller, 3, 4, 5)
    proposed(controller, 0, 1, 2, 3, 4, 5)
    after = next_reign(controller)
    for node_id in range(5):
        after.heartbeat(node_id)

    assert waits(after) == {5: "has not been heard since this controller started"}

    after.heartbeat(5)

    assert after.partition().replicas == (3, 4, 5)


def test_no_replica_of_the_target_can_lead(controller: Controller) -> None:
    """TR32: while no member of the target can lead the reassignment waits, and the removed leader is kept."""
    reassign(controller, 3, 4, 5)
    proposed(controller, 0, 1, 2, 3, 4, 5)
    controller.fence_together(3, 4, 5)

    assert controller.partition().leader == 0
    assert set(waits(controller)) == {3, 4, 5}


def test_a_leader_gets_the_answer_to_its_own_proposal(controller: Controller) -> None:
    """The ISR that completes a reassignment is answered in its own epoch; the completion has the next one."""
    reassign(controller, 3, 1, 2)
    (answer,) = [each.answer for each in proposed(controller, 0, 1, 2, 3) if isinstance(each, events.Answer)]
    controller.step(events.StepContinued(controller.now_ms))

    assert set(answer.partitions[0].isr) == {0, 1, 2, 3}
    assert answer.partitions[0].partition_epoch + 1 == controller.partition().partition_epoch
    assert controller.partition().replicas == (3, 1, 2)


def test_a_proposal_from_before_the_end_is_refused(controller: Controller) -> None:
    """TR33: an ISR with a removed member that is under way at the completion changes nothing."""
    reassign(controller, 1, 2, 3)
    late = controller.proposal(0, 1, sequence=900, partition_epoch=controller.partition().partition_epoch + 1)
    in_sync(controller, 0, 1, 2, 3)
    answer = controller.ask(late)

    assert answer.partitions[0].refusal.code is ErrorCode.FENCED_LEADER_EPOCH
    assert controller.partition().isr == (1, 2, 3)


def test_an_unproven_member_is_no_copy_to_rely_on(controller: Controller) -> None:
    """A replica that started again is waited for until a leader has counted its log (M64, C75)."""
    controller.start(1)
    assert controller.partition().unproven == (1,)
    reassign(controller, 0, 1)

    assert waits(controller) == {1: "is not in the ISR yet"}
    in_sync(controller, 0, 1, 2)
    assert controller.partition().replicas == (0, 1)


def test_submit_and_cancel_in_one_request_are_refused(controller: Controller) -> None:
    """A partition that one request names twice is changed by neither entry."""
    answer = ask(controller, wanted([3, 4, 5]), wanted(None))

    assert [each.refusal and each.refusal.code for each in answer.results] == [ErrorCode.INVALID_REQUEST] * 2
    assert controller.partition().replicas == (0, 1, 2)


@pytest.mark.parametrize(
    ("entry", "given", "code", "words"),
    [
        (wanted([]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "at least one"),
        (wanted([3, 3]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each replica once"),
        (wanted([0, 9]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not registered"),
        (wanted([0, 8]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "observers"),
        (wanted([0, 5]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "drained"),
        (wanted([0, 7]), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not registered"),
        (wanted([0, 1]), {"allow_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR, "name as many"),
        (wanted([3], planned_from=(NodeId(1),)), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "plan again"),
        (wanted([3], partition=4), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 4"),
        (wanted([3], name="other"), {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "other"),
        (wanted(None), {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "not being changed"),
    ],
)
def test_what_cannot_be_is_refused(
    entry: messages.ReassignPartition, given: dict[str, Any], code: ErrorCode, words: str
) -> None:
    """C72: a target that no reassignment can lead to is refused before anything changes."""
    controller = moving(0, 1, 2, nodes=range(8))
    controller.fence(7)
    controller.ask(messages.UnregisterNode(node_id=NodeId(7)))
    controller.start(8, roles=frozenset({Role.FOLLOWER}))
    controller.ask(messages.DrainNode(node_id=NodeId(5), draining=True))
    before = controller.partition()
    (result,) = ask(controller, entry, **given).results

    assert (result.refusal.code, words in result.refusal.message) == (code, True), result.refusal
    assert controller.partition() == before


def test_a_check_changes_nothing(controller: Controller) -> None:
    """``validate_only`` refuses what would be refused and changes nothing else."""
    before = controller.partition()

    assert reassign(controller, 3, 4, 5, validate_only=True) is ErrorCode.NONE
    assert reassign(controller, 9, validate_only=True) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert controller.partition() == before


@pytest.mark.parametrize("throttle", [0, -1])
def test_a_throttle_that_is_no_rate_is_refused(controller: Controller, throttle: int) -> None:
    """A throttle of nothing is refused before anything changes, with the field's name."""
    refusal = ask(controller, wanted([3, 4, 5]), throttle_bytes_per_s=throttle).refusal

    assert refusal.field == "throttle_bytes_per_s"
    assert moves(controller.partition())[1:] == ((), (), ())


def rates(controller: Controller) -> list[int | None]:
    return [each.partition.throttle_bytes_per_s for each in ongoing(controller)]


def test_a_throttle_survives_a_take_over(controller: Controller) -> None:
    """C80: the rate is part of the state, so the next reign has it, of what runs and of what waits."""
    queue(controller, 7, 3, throttle_bytes_per_s=1_000)
    after = Controller(state=controller.stored, now_ms=controller.now_ms)

    assert rates(after) == [1_000] * 7


@pytest.mark.parametrize("then", [2_000, None])
def test_a_throttle_changes_while_replicas_are_added(controller: Controller, then: int | None) -> None:
    """The same target with another rate, or none, changes the rate of what runs and nothing else."""
    reassign(controller, 3, 4, 5, throttle_bytes_per_s=1_000)
    before = controller.partition()
    reassign(controller, 3, 4, 5, throttle_bytes_per_s=then)
    after = controller.partition()

    assert (before.throttle_bytes_per_s, after.throttle_bytes_per_s) == (1_000, then)
    assert replace(after, throttle_bytes_per_s=1_000, partition_epoch=before.partition_epoch) == before


@pytest.mark.parametrize("end", ["complete", "cancel", "cancel queued", "at once", "nothing to do"])
def test_nothing_is_left_of_a_throttle(controller: Controller, end: str) -> None:
    """However a reassignment ends, the partition has no rate afterwards (Kafka leaves its throttles behind)."""
    reassign(controller, *((3, 4, 5) if end.startswith("c") else (2, 1, 0)), throttle_bytes_per_s=1_000)
    if end == "complete":
        in_sync(controller, 0, 1, 2, 3, 4, 5)
    elif end == "nothing to do":
        reassign(controller, 2, 1, 0, throttle_bytes_per_s=1_000)
    elif end != "at once":
        if end == "cancel queued":
            reassign(controller, 4, 5, throttle_bytes_per_s=2_000)
        cancel(controller)

    assert ongoing(controller) == []
    assert controller.partition().throttle_bytes_per_s is None


def test_every_epoch_of_a_submission_is_reported(controller: Controller) -> None:
    """Another rate, a second target that waits, and one that is dropped: statistics take silent epochs for a hole."""
    queue(controller, 5, 3)
    reassign(controller, 4, 1, 2, throttle_bytes_per_s=1_000)
    reassign(controller, 4, 1, 2, throttle_bytes_per_s=2_000)
    reassign(controller, 3, 1, 2)
    reassign(controller, 4, 1, 2)
    own = reported(controller, P0)
    epoch = controller.partition().partition_epoch

    assert [event.phase for event in own] == ["started", "started", "queued", "started"]
    assert [event.partition_epoch for event in own] == list(range(epoch - 3, epoch + 1))


def test_what_a_move_waits_for_and_began_from_is_reported(controller: Controller) -> None:
    """A queued one names the full nodes, one that starts who is not in sync, with the original replicas; a snapshot of
    the partition names these, too."""
    reassign(controller, 4, 1, 2)
    queue(controller, 6, 3)
    own = reported(controller)
    started = next(event for event in own if event.phase == "started" and event.waiting_for)
    queued = next(event for event in own if event.phase == "queued")
    snapshot = committed_snapshot(controller.partition())

    assert started.waiting_for == tuple(f"{node}: is not in the ISR yet" for node in sorted(started.adding_replicas))
    assert started.original_replicas and not queued.original_replicas
    assert queued.waiting_for == ("3: takes part in 5 running reassignments, as many as may run at a time",)
    assert (snapshot.adding_replicas, snapshot.original_replicas) == moves(controller.partition())[1::2]


def test_each_change_of_what_a_move_waits_for_is_reported_once(controller: Controller) -> None:
    """One that runs is reported as started again, in the present epoch, when a replica joins and when a node is fenced
    or back; where nothing changes it is not, nor when it ends."""
    reassign(controller, 3, 4, 5)
    in_sync(controller, 0, 1, 2, 3)
    controller.fence(4)
    controller.heartbeat(5)
    controller.start(4)
    in_sync(controller, 0, 1, 2, 3, 4, 5)
    own = reported(controller)
    lag = {node: f"{node}: is not in the ISR yet" for node in (3, 4, 5)}
    away = "4: is not in the ISR, and is fenced or shutting down"
    waits = [tuple(lag.values()), (lag[4], lag[5]), (away, lag[5]), (lag[4], lag[5]), ()]

    assert [event.waiting_for for event in own] == waits
    assert [event.phase for event in own] == ["started"] * 4 + ["completed"]
    assert None not in [event.meta_offset for event in own]


def test_what_is_dropped_is_named(controller: Controller) -> None:
    """A target that waits and is taken back is reported as cancelled, with the replicas that it named."""
    queue(controller, 6, 3)
    ask(controller, wanted([2], name="q5"))
    last = controller.emitted[-1].event

    assert (last.phase, last.target_replicas) == ("cancelled", (3,))


def test_a_rate_outlives_what_ends_before_the_queued_target_begins(controller: Controller) -> None:
    """A second target that waits for its nodes keeps the rate that it was given when the first one ends."""
    queue(controller, 5, 3)
    reassign(controller, 4, 1, 2, throttle_bytes_per_s=1_000)
    reassign(controller, 3, 1, 2, throttle_bytes_per_s=2_000)
    in_sync(controller, 0, 1, 2, 4)
    after = controller.partition()

    assert (after.replicas, after.queued_target) == ((4, 1, 2), (3, 1, 2))
    assert after.throttle_bytes_per_s == 2_000


def test_an_older_node_keeps_reassignments_away() -> None:
    """Below their feature level moves and drains are refused, naming the node to upgrade; while one runs, no node of an
    older release registers."""
    old = types.REASSIGNMENTS - 1
    controller = moving(0, 1, 2)
    reassign(controller, 3, 4, 5)
    late = controller.register(9, feature_max=old)
    cancel(controller)
    controller.start(9, feature_max=old)
    move = ask(controller, wanted([3, 4, 5])).refusal
    drained = controller.ask(messages.DrainNode(node_id=NodeId(2), draining=True)).refusal

    assert late.refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert "let them end, or cancel them" in late.refusal.message
    assert [move.code, drained.code] == [ErrorCode.UNSUPPORTED_VERSION] * 2
    assert move.message.endswith("upgrade first nodes of an older release: 9")


def test_an_equal_target_changes_nothing(controller: Controller) -> None:
    """C72: the target that a partition has, or goes to, or waits for, may be sent again."""
    reassign(controller, 0, 1, 2)
    first = controller.partition()
    reassign(controller, 3, 4, 5)
    running = controller.partition()
    reassign(controller, 3, 4, 5)

    assert moves(first)[1:] == ((), (), ())
    assert controller.partition() == running


def test_a_queued_reassignment_is_cancelled_or_replaced(controller: Controller) -> None:
    """The latest target of a queued reassignment wins; a cancel leaves the partition as it was."""
    queue(controller, 7, 3)
    ask(controller, wanted([4], name="q6"), wanted(None, name="q5"))
    running = {each.topic.name: each.partition.target for each in ongoing(controller)}

    assert running["q6"] == (4,)
    assert "q5" not in running


def test_deleted_topics_and_new_partitions_go_their_way(controller: Controller) -> None:
    """C79: new partitions get the topic's own number of replicas, and a deleted topic's reassignment is gone."""
    reassign(controller, 3, 4)
    grown = messages.GrowingTopic(messages.TopicRef(TOPIC), 2)
    (result,) = controller.ask(messages.CreatePartitions(topics=(grown,))).topics
    assert result.refusal is None
    added = controller.partition(1)
    controller.ask(messages.DeleteTopics(topics=(messages.TopicRef(TOPIC),)))

    assert (len(added.replicas), added.queued_target, added.adding) == (3, (), ())
    assert ongoing(controller) == []


def test_what_waits_is_not_overtaken_on_its_node() -> None:
    """A reassignment between two busy nodes starts before what was submitted later for one of them."""
    controller = Controller(timings=ControllerTimings(moves_per_node=1))
    controller.start(*range(5))
    queue(controller, 3, 3)
    ask(controller, wanted([4], name="q2"))

    assert controller.ask(messages.ListPartitionReassignments()).moves_per_node == 1
    assert states(controller, "q0") == ["running"]
    assert states(controller, "q2") == ["running"]
    assert states(controller, "q1") == ["queued"]


def test_an_unclean_election_takes_no_replica_that_is_added() -> None:
    """C76: where records may be lost, only an original replica leads, unless an added one is a member."""
    controller = moving(0, 1, unclean_leader_election_enable="true")
    reassign(controller, 2, 3)
    controller.fence_together(0, 1)

    assert controller.partition().leader is None

    controller.heartbeat(1)
    controller.report(1, controller.log_of())
    controller.pass_ms(10_000, 1, 2, 3)

    assert controller.partition().leader == 1


# ---- draining


def drain(controller: Controller, node_id: int, *, draining: bool = True) -> messages.NodeDrained:
    return controller.ask(messages.DrainNode(node_id=NodeId(node_id), draining=draining))


def test_leaders_leave_a_drained_node(controller: Controller) -> None:
    """C86: a drained node hands over what it leads, gets nothing new, is not preferred; all that ends with it."""
    answer = drain(controller, 0)
    left = controller.partition().leader
    controller.pass_ms(31_000, *range(6))
    kept = controller.partition().leader
    new = messages.NewTopic(name="new", topic_id=TOPIC_ID.replace("1", "2"), num_partitions=12, replication_factor=3)
    (created,) = controller.ask(messages.CreateTopics(topics=(new,))).topics
    drain(controller, 0, draining=False)
    controller.pass_ms(31_000, *range(6))

    assert (answer.refusal, answer.remaining_replicas, answer.remaining_leaders) == (None, 1, 0)
    assert (left, kept) == (1, 1)
    assert all(0 not in partition.replicas for partition in created.topic.partitions)
    assert controller.partition().leader == 0


def test_a_drained_node_stays_drained_over_a_restart() -> None:
    """A new process of a drained node is drained; a node that was removed and comes back is not."""
    controller = moving(1, 2)
    drain(controller, 3)
    controller.start(3)
    again = controller.node(3).draining
    controller.fence(3)
    controller.ask(messages.UnregisterNode(node_id=NodeId(3)))
    controller.start(3)

    assert (again, controller.node(3).draining) == (True, False)


@pytest.mark.parametrize(("node_id", "code"), [(0, ErrorCode.INVALID_REQUEST), (7, ErrorCode.BROKER_ID_NOT_REGISTERED)])
def test_a_node_that_cannot_be_emptied_is_not_drained(node_id: int, code: ErrorCode) -> None:
    """A node whose replicas have no other place is not drained; the error names the partition and the numbers."""
    controller = moving(0, 1, 2, nodes=range(3))
    refusal = drain(controller, node_id).refusal

    assert refusal.code is code
    if node_id == 0:
        assert "t-0: 3 replicas need as many nodes, and 2 can hold them (1, 2)" in refusal.message
        assert not controller.node(0).draining


@pytest.mark.parametrize(("racks", "is_drained"), [("aaabbb", True), ("aabbbb", False)])
def test_a_drained_node_leaves_its_rack_room(racks: str, is_drained: bool) -> None:
    """C86: a node is not drained if its replica could only go to a rack that holds as many as it may (C90)."""
    controller = Controller()
    for node_id, rack in enumerate(racks):
        controller.start(node_id, rack=rack)
    controller.create(0, 1, 2, 3)
    refusal = drain(controller, 1).refusal

    assert controller.node(1).draining is is_drained
    if not is_drained:
        assert "t-0: 4 replicas in 2 racks are at most 2 in each, and the racks have nodes for 3" in refusal.message


def test_a_node_of_a_queued_target_is_not_removed(controller: Controller) -> None:
    """C85: a node that a queued reassignment names is not removed, nor may it become an observer."""
    queue(controller, 6, 3)
    ask(controller, wanted([4], name="q5"), wanted([5, 3], name="q5"))
    controller.fence(3)
    refusal = controller.ask(messages.UnregisterNode(node_id=NodeId(3))).refusal
    observer = controller.register(3, roles=frozenset({Role.FOLLOWER})).refusal

    assert "6 partitions" in refusal.message
    assert "`strandline node drain 3 --remove` or `strandline node replace 3 NEW`" in refusal.message
    assert observer.code is ErrorCode.INVALID_REQUEST


# ---- edge cases


@pytest.mark.parametrize(("replicas", "target"), [((0,), (0, 1, 2)), ((0, 1, 2), (0,)), ((0, 1, 2), (3,))])
def test_any_number_of_replicas_becomes_any_other(replicas: tuple[int, ...], target: tuple[int, ...]) -> None:
    """From one replica to three, from three to the leader alone, and to a single other node."""
    controller = moving(*replicas)
    reassign(controller, *target)
    if not set(target) <= set(replicas):
        in_sync(controller, *sorted({*replicas, *target}))
    after = controller.partition()

    assert (after.replicas, after.isr, after.leader) == (target, target, target[0])
    assert after.min_isr == (2 if len(target) >= 3 else 1)


def test_thousands_of_queued_reassignments_survive_three_take_overs() -> None:
    """What runs and what waits, in its order, is the same in every reign that follows."""
    controller = Controller()
    controller.start(0, 1)
    total = 2_000
    placed = tuple((index, (NodeId(0),)) for index in range(total))
    topic = messages.NewTopic(name=TOPIC, topic_id=TOPIC_ID, assignments=placed)
    controller.ask(messages.CreateTopics(topics=(topic,)))
    ask(controller, *(wanted([1], partition=index) for index in reversed(range(total))))
    order = [each.partition.tp.partition for each in ongoing(controller)]
    orders = []
    for _ in range(3):
        controller = Controller(state=controller.stored, now_ms=controller.now_ms)
        orders.append([each.partition.tp.partition for each in ongoing(controller)])

    assert orders == [order] * 3
    assert order[5:] == list(reversed(range(total - 5)))
    assert states(controller)[:6] == ["running"] * 5 + ["queued"]
