"""Mutants of elections: who may lead, in which leader epoch, and who is known to be complete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.core.control import election, leadership, nodes
from strandline.core.control.controller import ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, in_assignment_order
from strandline.core.control.events import ControllerEffect, ControllerStarted
from strandline.core.control.state import NodeRecord
from strandline.core.log.proposals import LogReporter
from strandline.core.messages import PartitionImage, RegisterNode, ReplicaLogInfo
from strandline.core.types import NodeId, TopicPartition


@mutant(Draft, "put_partition", "tr21_same_epoch_after_restart", pure=False)
def _same_epoch(real: Real, draft: Draft, changed: PartitionImage, **why: Any) -> PartitionImage:
    """R5: election without a new epoch (KIP-101, M34).

    A replacement leads in the epoch of that leader; only the partition epoch rises.
    """
    put: PartitionImage = real(draft, changed, **why)
    before = draft.base.partition(changed.tp)
    if before is None or before.leader is None or put.leader_epoch == before.leader_epoch:
        return put
    real.differs()
    unbumped = replace(put, leader_epoch=before.leader_epoch)
    draft._partitions[changed.tp] = unbumped
    return unbumped


def _nobody(real: Real, *_: Any, **__: Any) -> tuple[NodeId, ...]:
    return ()


def _last_one_stays(
    real: Real,
    draft: Draft,
    partition: PartitionImage,
    leaving: frozenset[NodeId],
    cause: str,
    unclean: Collection[NodeId] = (),
) -> None:
    if not partition.isr or set(partition.isr) - leaving:
        real(draft, partition, leaving, cause, unclean)
        return
    real.differs()
    if partition.leader is not None:
        draft.put_partition(replace(partition, leader=None), cause=cause, new_reign=True)


MUTANTS += (
    Mutant(
        number="23",
        name="page-cache acknowledgements without an ELR",
        broken="Nobody out of the ISR is remembered as complete, and its last member is elected, clean or not.",
        source="KIP-966; TR11",
        scenario="tr11_last_replica_standing",
        swaps=(Swap(election, "elr_after", _nobody), Swap(leadership, "_leave", _last_one_stays, pure=False)),
        profiles=("page-cache",),
    ),
)


@mutant(election, "elr_with_min_isr", "tr19_min_isr_lowered")
def _as_it_was(real: Real, partition: PartitionImage, min_isr: int) -> tuple[NodeId, ...]:
    """24: ELR kept when min ISR is lowered (KIP-966; TR19).

    Min ISR is lowered to the size of the ISR, and the ELR stays as it was while the high watermark moves.
    """
    return partition.elr


@mutant(leadership, "begin_unproven", "tr21_same_epoch_after_restart", pure=False)
def _goes_on(real: Real, draft: Draft, node_id: NodeId, cause: str) -> None:
    """26: same epoch after a restart (TR21; M56).

    A leader that is back within its session goes on in the leader epoch of its earlier process.
    """
    for partition in list(draft.partitions()):
        if partition.leader == node_id:
            real.differs()
        elif node_id in (*partition.isr, *partition.elr):
            unproven = in_assignment_order(partition, (*partition.unproven, node_id))
            draft.put_partition(replace(partition, unproven=unproven), cause=cause)


@mutant(election, "elect", "tr42_lost_tail_unnoticed")
def _trusts_everybody(real: Real, partition: PartitionImage, *who: Any) -> Elected | None:
    """101: unproven member elected (M64; TR42).

    An election takes a member of the ISR that started again for one that is known to be complete.
    """
    return real(replace(partition, unproven=()), *who)


@mutant(election, "most_complete", "tr45_fork_and_reconciled_epoch")
def _last_epoch_then_length(real: Real, logs: Sequence[ReplicaLogInfo]) -> int:
    """102: logs compared as in Raft (M65; TR45).

    Of two reported logs the one whose last record is of the newer epoch leads, then the longer one.
    """
    return max(range(len(logs)), key=lambda n: (logs[n].epochs[-1].epoch if logs[n].epochs else -1, logs[n].leo))


@mutant(election, "reports_needed", "tr43_older_copy")
def _one_less(real: Real, partition: PartitionImage) -> int:
    """103: one report too few (M65; TR43).

    A member leads although the only log that is known may be the one that lost something.
    """
    return max(1, real(partition) - 1)


@mutant(nodes, "_is_older_copy", "tr44_copy_of_an_earlier_process")
def _never(real: Real, before: NodeRecord, request: RegisterNode) -> bool:
    """106: older copy of a directory unnoticed (M67; TR44).

    A directory that does not remember the process that ran from it last registers as clean.
    """
    return False


# 107a, 107b: sessions that end together are ended one by one.


@mutant(leadership, "held_back", tests="tests/core/test_reported_elections.py")
def _nobody_waits(real: Real, draft: Draft, due: Collection[NodeId], silent: Collection[NodeId]) -> set[NodeId]:
    """107a: the dead leave one after the other (M64).

    After a blackout the last members to fall silent are the only ones that are known to be complete.
    """
    return set()


@mutant(leadership, "_leave", tests="tests/core/test_reported_elections.py", pure=False)
def _one_by_one(
    real: Real,
    draft: Draft,
    partition: PartitionImage,
    leaving: frozenset[NodeId],
    cause: str,
    unclean: Collection[NodeId] = (),
) -> None:
    """107b: the dead of one tick leave one after the other (M64).

    Sessions that end in one step leave the ISR in an order, and only the last keeps its place.
    """
    members = [member for member in partition.isr if member in leaving]
    if len(members) > 1:
        real.differs()
    for node_id in members:
        current = draft.partition(partition.tp)
        assert current is not None
        real(draft, current, frozenset([node_id]), cause, unclean)


# 112a, 112b: unproven members, forgotten with the next change of the partition, or by the next controller epoch.


@mutant(Draft, "put_partition", pure=False)
def _forgets(real: Real, self: Draft, changed: PartitionImage, **how: Any) -> PartitionImage:
    """112a: unproven member forgotten (M64).

    With the next change of a partition its unproven members count as proven.
    """
    before = self.base.partition(changed.tp)
    kept = before is not None and set(before.unproven) & set(changed.unproven)
    if kept:
        real.differs()
        changed = replace(changed, unproven=tuple(n for n in changed.unproven if n not in kept))
    return real(self, changed, **how)


@mutant(ControllerCore, "_start", tests="tests/core/test_reported_elections.py", pure=False)
def _begins_proven(real: Real, self: ControllerCore, event: ControllerStarted) -> list[ControllerEffect]:
    """112b: unproven member forgotten by the next reign (M64).

    A controller that restarts takes every member for proven.
    """
    if self._state is not None and any(p.unproven for p in self._state.partitions()):
        real.differs()
        topics = {
            topic_id: replace(topic, partitions=tuple(replace(p, unproven=()) for p in topic.partitions))
            for topic_id, topic in self._state.topics.items()
        }
        self._state = replace(self._state, topics=topics)
    return real(self, event)


# 113a, 113b: a follower that refuses to truncate, and does not report it or the report has no effect.


@mutant(leadership, "_refuses_to_cut", tests="tests/core/test_reported_elections.py", pure=False)
def _nothing_follows(real: Real, *given: Any) -> None:
    """113a: refused cut without consequence (M69; TR46).

    A leader that lacks committed records goes on, although a member that holds them reported it.
    """
    real.differs()


@mutant(LogReporter, "_key", tests="tests/core/test_replica_log_reports.py")
def _keeps_it_to_itself(real: Real, self: LogReporter, tp: TopicPartition) -> Any:
    """113b: refused cut not reported (M69; TR46).

    A follower that holds more than its leader stops there and does not report it.
    """
    key = real(self, tp)
    return None if key is not None and key.refused_cut_to is not None else key
