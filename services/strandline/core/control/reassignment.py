"""Decides when replicas are added to a partition and others removed from it, and when that is over (KIP-455, KIP-860).

Invariant (I25): a reassignment ends only with a target that holds every committed record at least as often as the
original replicas did, or as often as it has members, and with a leader among it or none; until then min ISR is of the
original replicas (C74). Everything about it is state, so it survives every take-over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, elect, elr_after, in_assignment_order
from strandline.core.control.leadership import install
from strandline.core.control.messages import ReassignmentWait
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.control.topic_configs import effective_min_isr
from strandline.core.messages import PartitionImage
from strandline.core.state_events import Number, Reassignment
from strandline.core.types import NodeId, TopicPartition

REASSIGN = "reassign"
"""The cause in ISR_CHANGE and LEADER_CHANGE events."""

_STARTS_PER_STEP = 100
"""Reassignments that only change the order need no room, so without a limit a whole plan would run in one step."""


class Reassignments:
    """The partitions with a reassignment that has not ended: found once in a reign, then followed."""

    def __init__(self, per_node: int) -> None:
        """``per_node``: how many that run may add a replica to one node, and how many may take one from it (C73)."""
        self.per_node = per_node
        # Since when each runs or waits in this reign; None: since before it.
        self._since_ms: dict[TopicPartition, int | None] = {}
        # Looked at in every step, with what was last reported that each waits for, None: nothing in this reign; those
        # that wait for their turn, only when there may be room.
        self._running: dict[TopicPartition, tuple[ReassignmentWait, ...] | None] = {}
        self._is_queue_stale = True

    def begin(self, state: ClusterState) -> None:
        """A reign begins."""
        self._since_ms = {each.tp: None for each in state.partitions() if _is_open(each)}
        self._running = dict.fromkeys(each.tp for each in state.partitions() if each.original)

    def follow(self, transaction: Transaction, before: ClusterState, now_ms: int) -> None:
        """Take over what was just decided."""
        for partition in transaction.partitions:
            was = before.partition(partition.tp)
            if partition.original:
                self._running.setdefault(partition.tp)
            else:
                self._running.pop(partition.tp, None)
            if not _is_open(partition):
                self._since_ms.pop(partition.tp, None)
            elif was is None or was.original != partition.original or was.target != partition.target:
                self._since_ms[partition.tp] = now_ms
            else:
                self._since_ms.setdefault(partition.tp, now_ms)
        gone = frozenset(transaction.deleted_topic_ids)
        for tp in [tp for tp in self._since_ms if tp.topic_id in gone]:
            del self._since_ms[tp]
            self._running.pop(tp, None)
            self._is_queue_stale = True

    def since_ms(self, tp: TopicPartition) -> int | None:
        """The time since which the reassignment runs or waits; None if that is before this reign."""
        return self._since_ms.get(tp)

    def open(self, draft: Draft) -> Iterator[PartitionImage]:
        """Every partition with a reassignment that runs or waits, including this step's."""
        known = dict.fromkeys((*self._since_ms, *(each.tp for each in draft.changed() if _is_open(each))))
        found = (draft.partition(tp) for tp in known)
        return (each for each in found if each is not None and _is_open(each))

    def settle(self, draft: Draft) -> None:
        """Complete the reassignments that can end, and start those that now have room, in this step (C73, C75)."""
        if not self._since_ms and not any(map(_is_open, draft.changed())):
            return
        may_start = self._is_queue_stale
        for changed in draft.changed():
            before = draft.base.partition(changed.tp)
            may_start |= bool(
                changed.queued_target or (before is not None and before.original and not changed.original)
            )
        for tp, reported in self._running.items():
            partition = draft.partition(tp)
            if partition is not None and partition.original:
                waits = maybe_complete(draft, partition)
                may_start |= not waits
                if waits and waits != reported:
                    self._report_started(draft, partition, waits)
        if may_start:
            self._is_queue_stale = self._start_queued(draft)

    def _start_queued(self, draft: Draft) -> bool:
        """Start the reassignments that have room; returns whether a later step must continue."""
        everything = list(self.open(draft))
        load = Load(self.per_node, everything)
        starts = 0
        queued = (each for each in everything if each.queued_target)
        for partition in sorted(queued, key=lambda each: (each.queue_number, each.tp)):
            is_full = bool(load.full_nodes(partition))
            # Counted even if it must wait, so that a later reassignment does not overtake it at the same node.
            load.count(*_demand(partition))
            if is_full:
                continue
            begun = draft.put_partition(started(partition), cause=REASSIGN)
            self._report_started(draft, begun, waits_of_running(draft, begun))
            maybe_complete(draft, begun)
            starts += 1
            if starts == _STARTS_PER_STEP:
                return True
        return False

    def _report_started(self, draft: Draft, partition: PartitionImage, waits: tuple[ReassignmentWait, ...]) -> None:
        """Report that it starts, or that it now waits for something else."""
        self._running[partition.tp] = waits
        report(draft, partition, "started", waits)

    def waits(self, draft: Draft) -> Iterator[tuple[PartitionImage, tuple[ReassignmentWait, ...]]]:
        """What every reassignment waits for, by node."""
        load = self.load(draft)
        for partition in self.open(draft):
            yield partition, waits_of_running(draft, partition) if partition.original else load.waits(partition)

    def load(self, draft: Draft) -> Load:
        """What runs on each node."""
        return Load(self.per_node, self.open(draft))


class Load:
    """How many running reassignments add a replica to each node, and how many remove one from it."""

    def __init__(self, per_node: int, partitions: Iterable[PartitionImage]) -> None:
        self._per_node = per_node
        self._in: Counter[NodeId] = Counter()
        self._out: Counter[NodeId] = Counter()
        for partition in partitions:
            if partition.original:
                self.count(partition.adding, partition.removing)

    def count(self, adding: Iterable[NodeId], removing: Iterable[NodeId]) -> None:
        """Count one that runs."""
        for node_id in adding:
            self._in[node_id] += 1
        for node_id in removing:
            self._out[node_id] += 1

    def waits(self, queued: PartitionImage) -> tuple[ReassignmentWait, ...]:
        """What a queued one waits for."""
        why = f"takes part in {self._per_node} running reassignments, as many as may run at a time"
        return tuple(ReassignmentWait(node_id, why) for node_id in self.full_nodes(queued))

    def full_nodes(self, queued: PartitionImage) -> list[NodeId]:
        """The nodes that this one has to wait for. A reassignment that replaces a running one reuses its room."""
        adding, removing = _demand(queued)
        full = {n for n in adding if self._in[n] >= self._per_node and n not in queued.adding}
        return sorted(full | {n for n in removing if self._out[n] >= self._per_node and n not in queued.removing})


def _is_open(partition: PartitionImage) -> bool:
    return bool(partition.original or partition.queued_target)


def _demand(queued: PartitionImage) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
    """The replicas that a queued reassignment will add and remove."""
    target, original = queued.queued_target, queued.settled_replicas
    adding = tuple(node_id for node_id in target if node_id not in original)
    return adding, tuple(node_id for node_id in queued.replicas if node_id not in target)


def started(queued: PartitionImage) -> PartitionImage:
    """The partition once its queued reassignment runs: the target first, then all others (C70).

    ``original`` stays that of a running one, so that what that one has added is not taken for original.
    """
    target = queued.queued_target
    replicas = (*target, *(node_id for node_id in queued.replicas if node_id not in target))
    adding, removing = _demand(queued)
    running = replace(queued, replicas=replicas, original=queued.settled_replicas, adding=adding, removing=removing)
    isr, elr = (in_assignment_order(running, members) for members in (queued.isr, queued.elr))
    return replace(running, isr=isr, elr=elr, queued_target=(), queue_number=0)


def maybe_complete(draft: Draft, partition: PartitionImage) -> tuple[ReassignmentWait, ...]:
    """End a reassignment if it waits for nothing any more (C75). Returns what it waits for."""
    if waits := waits_of_running(draft, partition):
        return waits
    ended = _put_ended(draft, partition, partition.target, _leader_after(draft, partition))
    report(draft, ended, "completed", of=partition)
    return ()


def waits_of_running(draft: Draft, partition: PartitionImage) -> tuple[ReassignmentWait, ...]:
    """What a running reassignment waits for, in the order of C75; if empty it can end now."""
    if not partition.adding and not partition.removing:
        return ()
    if unheard := draft.waits_for(partition):
        # A store that lost its tail may hold an outdated ISR (TR28).
        return tuple(ReassignmentWait(n, "has not been heard since this controller started") for n in sorted(unheard))
    # An unproven member may have lost what it held (M64), so it is not a copy to rely on.
    proven = set(partition.isr) - set(partition.unproven)
    target = partition.target
    if missing := [node_id for node_id in partition.adding if node_id not in proven]:
        return _waits_to_join(draft, missing)
    staying = [node_id for node_id in target if node_id in proven]
    original = [node_id for node_id in partition.original if node_id in partition.isr]
    # The move must not end with fewer copies in sync than the original replicas have, as in KAFKA-15665.
    needed = max(min(len(original), len(target)), min_isr_with(draft, partition, target))
    if len(staying) < needed:
        return _waits_to_join(draft, [node_id for node_id in target if node_id not in staying])
    if partition.leader in target or _leader_after(draft, partition) is not None:
        return ()
    return tuple(ReassignmentWait(n, "cannot lead now, and the leader is to be removed") for n in sorted(target))


def _waits_to_join(draft: Draft, missing: Iterable[NodeId]) -> tuple[ReassignmentWait, ...]:
    lags, is_away = "is not in the ISR yet", "is not in the ISR, and is fenced or shutting down"
    return tuple(ReassignmentWait(n, lags if draft.is_active(n) else is_away) for n in sorted(missing))


def _leader_after(draft: Draft, partition: PartitionImage) -> Elected | None:
    """The member of the target to elect; None if the leader stays, or if no replica can be elected now."""
    return None if partition.leader in partition.target else elect_among(draft, partition, partition.target)


def elect_among(draft: Draft, partition: PartitionImage, nodes: Iterable[NodeId]) -> Elected | None:
    """A proven active member of the ISR among these nodes, in their order."""
    members = tuple(node_id for node_id in nodes if node_id in partition.isr)
    return elect(replace(partition, replicas=members, isr=members, elr=()), draft.is_active, draft.has_room)


def cancel(draft: Draft, partition: PartitionImage) -> None:
    """Drop what is queued, and return a running reassignment to its original replicas (C77). The caller has checked
    that one of these can lead."""
    dropped = replace(partition, queued_target=(), queue_number=0, throttle_bytes_per_s=None)
    if partition.original:
        leader = None if partition.leader in partition.original else elect_among(draft, partition, partition.original)
        ended = _put_ended(draft, dropped, partition.original, leader)
    else:
        ended = draft.put_partition(dropped, cause=REASSIGN)
    report(draft, ended, "cancelled", of=partition)


def _put_ended(
    draft: Draft, partition: PartitionImage, replicas: tuple[NodeId, ...], leader: Elected | None
) -> PartitionImage:
    """The partition with exactly these replicas; below its min ISR it keeps an ELR, as after any other shrink.

    A removed replica loses its log, and may come back with an empty one in the same process. So a removal begins a new
    leader epoch, also for a leader that stays: nothing that a removed replica was known to hold counts any more, and
    its late fetches are fenced (as in Kafka's PartitionChangeBuilder).
    """
    min_isr = min_isr_with(draft, partition, replicas)
    rate = partition.throttle_bytes_per_s if partition.queued_target else None
    ended = replace(
        partition, replicas=replicas, min_isr=min_isr, adding=(), removing=(), original=(), throttle_bytes_per_s=rate
    )
    isr = in_assignment_order(ended, partition.isr)
    ended = replace(ended, isr=isr, elr=elr_after(ended, isr))
    if leader is not None:
        return install(draft, ended, leader, REASSIGN)
    begins = ended.leader is not None and not set(partition.replicas) <= set(replicas)
    return draft.put_partition(ended, cause=REASSIGN, new_reign=begins)


def min_isr_with(draft: Draft, partition: PartitionImage, replicas: tuple[NodeId, ...]) -> int:
    """The effective min ISR that the partition has with these replicas."""
    return effective_min_isr(draft.configs(partition.tp.topic_id), len(replicas))


def report(
    draft: Draft,
    partition: PartitionImage,
    phase: str,
    waits: Iterable[ReassignmentWait] = (),
    of: PartitionImage | None = None,
) -> None:
    """Report a phase; ``of``: the partition before it ended, which names what was added and removed. One that runs is
    reported as started again, in the epoch that it has, when it waits for something else."""
    move = of or partition
    is_queued = phase == "queued" or not move.original
    event = Reassignment(
        phase=phase,
        replicas=partition.replicas,
        adding_replicas=move.adding,
        removing_replicas=move.removing,
        target_replicas=(move.queued_target if is_queued else ()) or move.target,
        min_isr=Number(partition.min_isr),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        meta_offset=draft.base.header.metadata_offset,
        original_replicas=partition.original,
        waiting_for=tuple(f"{wait.node_id}: {wait.why}" for wait in waits),
    )
    draft.emit(partition.tp, event)
