"""Mutants of reassignments: when one ends, who keeps a place, and what a cancel returns to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.core.control import reassignment
from strandline.core.control.draft import Draft
from strandline.core.control.messages import ReassignmentWait
from strandline.core.log import move_throttle
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


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

    The ISR stays as it was, although some of its members are no replicas any more.
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
