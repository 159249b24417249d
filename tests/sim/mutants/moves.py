"""Mutants of reassignments: when one ends, who keeps a place, and what a cancel returns to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.core.control import moves, reassignment
from strandline.core.control.draft import Draft
from strandline.core.control.messages import ReassignmentWait
from strandline.core.control.placement import Placement
from strandline.core.control.reassignment import Reassignments
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.log import move_throttle
from strandline.core.log.effects import Effect, SetLogAside
from strandline.core.log.events import MetadataArrived
from strandline.core.log.follower import FetchState, FollowerReplica
from strandline.core.log.node import NodeCore
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId, Offset


@mutant(PartitionImage, "settled_replicas", "tr31_min_isr_while_adding", profiles="moves")
def _all_replicas(real: Real, partition: PartitionImage) -> Any:
    """94: min ISR of replicas that are still added (C74; TR31).

    Replicas that have nothing yet count for the effective min ISR, so it is higher than the original ones can be.
    """
    return partition.replicas


@mutant(reassignment, "waits_of_running", "tr32_removed_leader", profiles="moves")
def _without_the_added(real: Real, draft: Draft, partition: PartitionImage) -> Any:
    """R95: end without the added replicas (C75; KIP-455).

    A reassignment ends when enough copies are in sync, also if they are not those that it adds.
    """
    return real(draft, replace(partition, adding=()))


@mutant(reassignment, "_put_ended", "tr37_cancel_without_original", pure=False, profiles="moves")
def _members_stay(real: Real, draft: Draft, partition: PartitionImage, *given: Any) -> PartitionImage:
    """R97: a cancel leaves an added replica in the ISR (C77, C78; KAFKA-9672).

    The ISR stays as it was, although some of its members are not replicas any more.
    """
    ended: PartitionImage = real(draft, partition, *given)
    if set(ended.isr) != set(partition.isr):
        real.differs()
    return draft.put_partition(replace(ended, isr=partition.isr), cause=reassignment.REASSIGN)


@mutant(reassignment, "started", "e_t56_second_target", profiles="moves")
def _derived(real: Real, queued: PartitionImage) -> Any:
    """98: original replicas derived, not stored (C70; T56).

    A second target takes what is left over from the first one for original, so a cancel keeps it.
    """
    first = real(queued)
    if not queued.original:
        return first
    adding = {node_id for node_id in first.target if node_id not in queued.original}
    return replace(first, original=tuple(node_id for node_id in first.replicas if node_id not in adding))


_MEMBERS = "tests/core/test_move_throttle.py::test_a_member_of_the_isr_is_never_throttled"


@mutant(move_throttle, "rate_of", tests=_MEMBERS, layers="tests")
def _members_too(real: Real, image: PartitionImage, node_id: NodeId, isr: object) -> Any:
    """46: the throttle applies to members of the ISR (C80).

    A replica that a running reassignment adds waits for its rate in the ISR, too, and acks=all with it. No history
    shows it, because a member is never below the HW, near which nobody waits.
    """
    return real(image, node_id, ())


def _nobody(real: Real, draft: Draft, partition: PartitionImage) -> None:
    return None


def _but_for_a_leader(real: Real, draft: Draft, partition: PartitionImage) -> tuple[ReassignmentWait, ...]:
    waits: tuple[ReassignmentWait, ...] = real(draft, partition)
    return tuple(wait for wait in waits if not wait.why.startswith("cannot lead"))


MUTANTS.append(
    Mutant(
        number="R96",
        name="a removed leader is kept",
        broken="A reassignment ends while a replica that it removes leads, and nobody is elected in its place.",
        source="C75; TR32",
        scenario="tr32_removed_leader",
        swaps=(Swap(reassignment, "_leader_after", _nobody), Swap(reassignment, "waits_of_running", _but_for_a_leader)),
        profiles=("moves",),
    )
)


@mutant(Draft, "put_partition", "tr47_removed_and_back", pure=False, profiles="moves")
def _same_epoch_after_removal(real: Real, draft: Draft, changed: PartitionImage, **why: Any) -> PartitionImage:
    """R99: a removal without a new leader epoch (C75; Kafka's PartitionChangeBuilder, TR47).

    Where the leader stays, its epoch stays, and with it what it knew of a replica that has dropped its log since.
    """
    before = draft.partition(changed.tp)
    stays = why.get("cause") == reassignment.REASSIGN and before is not None and before.leader == changed.leader
    if stays and why.pop("new_reign", False):
        real.differs()
    put: PartitionImage = real(draft, changed, **why)
    return put


# 130 to 139: the edge cases that C81 names, each with its rule off.


def _forgets(real: Real, ongoing: Reassignments, state: ClusterState) -> None:
    real(ongoing, state)
    ongoing._running.clear()


def _follows_its_own(
    real: Real, ongoing: Reassignments, transaction: Transaction, before: ClusterState, *now_ms: int
) -> None:
    known = dict(ongoing._running)
    real(ongoing, transaction, before, *now_ms)
    for tp in [tp for tp in ongoing._running if tp not in known]:
        was = before.partition(tp)
        if was is not None and was.original:
            real.differs()
            del ongoing._running[tp]


MUTANTS.append(
    Mutant(
        number="130",
        name="a running reassignment dies with its reign",
        broken="A controller follows only those reassignments to their end that began while it reigned.",
        source="C73; KAFKA-4214",
        scenario="e_c81_bounced_target",
        swaps=(
            Swap(Reassignments, "begin", _forgets, pure=False),
            Swap(Reassignments, "follow", _follows_its_own, pure=False),
        ),
        profiles=("moves",),
    )
)


@mutant(FollowerReplica, "_restart_from", "e_c81_last_record_deleted", pure=False, profiles="moves")
def _waits_below_the_start(real: Real, follower: FollowerReplica, offset: Offset, reason: str) -> None:
    """131: a replica waits below its leader's log start (M30; the shape of KAFKA-9133).

    A replica whose log ends below the start of a log that became empty waits for records there, and never begins again.
    """
    real.differs()
    follower.state, follower.retry_at_ms = FetchState.FETCHING, 1 << 62


@mutant(reassignment, "waits_of_running", "e_c81_copies_in_sync", profiles="moves")
def _fewer_copies(real: Real, draft: Draft, partition: PartitionImage) -> Any:
    """132: a reassignment ends with fewer copies in sync (C75; KAFKA-15665).

    Replicas in sync are removed, although those that stay are fewer than the original ones in sync.
    """
    return real(draft, replace(partition, original=()))


@mutant(reassignment, "waits_of_running", "e_c81_copies_in_sync", profiles="moves")
def _all_of_the_target(real: Real, draft: Draft, partition: PartitionImage) -> Any:
    """133: a replica that is away holds up a reassignment that leaves it alone (C75; KAFKA-19975).

    All of the target has to be in the ISR, also a replica that is neither added nor removed.
    """
    return real(draft, replace(partition, adding=partition.target))


@mutant(moves, "_cannot_cancel", "e_c81_cancel", profiles="moves")
def _always_forced(real: Real, draft: Draft, partition: PartitionImage, *, force: bool) -> Any:
    """134: a cancel below min ISR is done (C77; KAFKA-14424).

    A cancel leaves too few members for acks=all, although the ISR has enough, and nobody has forced it.
    """
    return real(draft, partition, force=True)


@mutant(moves, "_queue", "e_c81_leader_alone", pure=False, profiles="moves")
def _begins_again(
    real: Real, draft: Draft, partition: PartitionImage, target: tuple[NodeId, ...], number: int, throttle: int | None
) -> None:
    """135: an equal target begins again (C72; Redpanda #8697).

    A request that is sent again cancels what it began, so the copies made so far are set aside.
    """
    if target == partition.target and partition.original and not partition.queued_target:
        real.differs()
        reassignment.cancel(draft, partition)
        partition = draft.partition(partition.tp) or partition
    real(draft, partition, target, number, throttle)


@mutant(Placement, "check_assignment", "e_c81_observer", profiles="moves")
def _any_node(real: Real, placement: Placement, replicas: Any, also: Any = ()) -> Any:
    """136: an observer becomes a replica (C72, M60).

    A target is taken whatever its nodes are: unknown, drained, or observers, which join no ISR.
    """
    return real(placement, replicas, also=replicas)


@mutant(reassignment, "min_isr_with", "e_c81_leader_alone", profiles="moves")
def _of_the_original(real: Real, draft: Draft, partition: PartitionImage, replicas: tuple[NodeId, ...]) -> int:
    """137: min ISR of the original replicas at the end (C74).

    From three replicas to one, more members are asked for than there will be replicas.
    """
    return partition.min_isr


_QUEUED = "tests/core/test_reassignment.py::test_a_queued_reassignment_is_cancelled_or_replaced"
_TAKE_OVERS = "tests/core/test_reassignment.py::test_thousands_of_queued_reassignments_survive_three_take_overs"


@mutant(reassignment, "cancel", tests=_QUEUED, pure=False, layers="tests")
def _only_running(real: Real, draft: Draft, partition: PartitionImage) -> None:
    """138: a queued reassignment is not cancelled (C77).

    A cancel of what waits for its turn is answered as done, and the reassignment runs later all the same.
    """
    if partition.original:
        real(draft, partition)
    else:
        real.differs()


@mutant(Reassignments, "begin", tests=_TAKE_OVERS, pure=False, layers="tests")
def _without_the_queue(real: Real, ongoing: Reassignments, state: ClusterState) -> None:
    """139: queued reassignments die with their reign (C73).

    A controller that takes over knows what runs, and nothing of what waits.
    """
    real(ongoing, state)
    for tp in [tp for tp in ongoing._since_ms if tp not in ongoing._running]:
        real.differs()
        del ongoing._since_ms[tp]


@mutant(NodeCore, "_metadata_arrived", "tr47_removed_and_back", pure=False, profiles="moves")
def _keeps_its_log(real: Real, core: NodeCore, event: MetadataArrived, out: list[Effect]) -> None:
    """140: a removed replica keeps its log (C78; KAFKA-13972).

    A log whose replica was moved to another node stays in its place, and is used again when that one returns.
    """
    real(core, event, out)
    rest = [effect for effect in out if not isinstance(effect, SetLogAside)]
    if len(rest) < len(out):
        real.differs()
        out[:] = rest
