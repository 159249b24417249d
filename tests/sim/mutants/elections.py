"""Mutants of elections: who may lead, in which leader epoch, and who is known to be complete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import election, leadership, nodes
from strandline.core.control.controller import ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, IsActive, in_assignment_order
from strandline.core.control.events import ControllerEffect, ControllerStarted
from strandline.core.control.state import NodeRecord
from strandline.core.log.proposals import LogReporter
from strandline.core.messages import PartitionImage, RegisterNode, ReplicaLogInfo
from strandline.core.types import NodeId, TopicPartition

MUTANTS: tuple[Mutant, ...] = ()


# R5: a new leader in the old epoch.


def _same_epoch(real: Real, draft: Draft, changed: PartitionImage, **why: Any) -> PartitionImage:
    put: PartitionImage = real(draft, changed, **why)
    before = draft.base.partition(changed.tp)
    if before is None or before.leader is None or put.leader_epoch == before.leader_epoch:
        return put
    real.differs()
    unbumped = replace(put, leader_epoch=before.leader_epoch)
    draft._partitions[changed.tp] = unbumped
    return unbumped


MUTANTS += (
    Mutant(
        number="R5",
        name="election without a new epoch",
        broken="A replacement leads in the epoch of that leader; only the partition epoch rises.",
        source="KIP-101, M34",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(Draft, "put_partition", _same_epoch, pure=False),),
    ),
)


# 23: the last member of an ISR, regardless of the state of its disk.


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
        swaps=(
            Swap(election, "elr_after", _nobody),
            Swap(leadership, "_leave", _last_one_stays, pure=False),
        ),
        profiles=("page-cache",),
    ),
)


# 24: a lower min ISR, and an ELR from before.


def _as_it_was(real: Real, partition: PartitionImage, min_isr: int) -> tuple[NodeId, ...]:
    return partition.elr


MUTANTS += (
    Mutant(
        number="24",
        name="ELR kept when min ISR is lowered",
        broken="Min ISR is lowered to the size of the ISR, and the ELR stays as it was while the high watermark moves.",
        source="KIP-966; TR19",
        scenario="tr19_min_isr_lowered",
        swaps=(Swap(election, "elr_with_min_isr", _as_it_was),),
    ),
)


# 26: a leader that restarts and continues in the same epoch.


def _goes_on(real: Real, draft: Draft, node_id: NodeId, cause: str) -> None:
    for partition in list(draft.partitions()):
        if partition.leader == node_id:
            real.differs()
        elif node_id in (*partition.isr, *partition.elr):
            unproven = in_assignment_order(partition, (*partition.unproven, node_id))
            draft.put_partition(replace(partition, unproven=unproven), cause=cause)


MUTANTS += (
    Mutant(
        number="26",
        name="same epoch after a restart",
        broken="A leader that is back within its session goes on in the leader epoch of its earlier process.",
        source="TR21; M56",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(leadership, "begin_unproven", _goes_on, pure=False),),
    ),
)


# 101: the first replica that returns leads.


def _trusts_everybody(real: Real, partition: PartitionImage, is_active: IsActive) -> Elected | None:
    answer: Elected | None = real(replace(partition, unproven=()), is_active)
    return answer


MUTANTS += (
    Mutant(
        number="101",
        name="unproven member elected",
        broken="An election takes a member of the ISR that started again for one that is known to be complete.",
        source="M64; TR42",
        scenario="tr42_lost_tail_unnoticed",
        swaps=(Swap(election, "elect", _trusts_everybody),),
    ),
)


# 102: logs compared by the epoch of their last record and their length.


def _last_epoch_then_length(real: Real, logs: Sequence[ReplicaLogInfo]) -> int:
    return max(range(len(logs)), key=lambda n: (logs[n].epochs[-1].epoch if logs[n].epochs else -1, logs[n].leo))


MUTANTS += (
    Mutant(
        number="102",
        name="logs compared as in Raft",
        broken="Of two reported logs the one whose last record is of the newer epoch leads, then the longer one.",
        source="M65; TR45",
        scenario="tr45_fork_and_reconciled_epoch",
        swaps=(Swap(election, "most_complete", _last_epoch_then_length),),
    ),
)


# 103: an election from too few reported logs.


def _one_less(real: Real, partition: PartitionImage) -> int:
    return max(1, real(partition) - 1)


MUTANTS += (
    Mutant(
        number="103",
        name="one report too few",
        broken="A member leads although the only log that is known may be the one that lost something.",
        source="M65; TR43",
        scenario="tr43_older_copy",
        swaps=(Swap(election, "reports_needed", _one_less),),
    ),
)


# 106: a directory that went back in time.


def _never(real: Real, before: NodeRecord, request: RegisterNode) -> bool:
    return False


MUTANTS += (
    Mutant(
        number="106",
        name="older copy of a directory unnoticed",
        broken="A directory that does not remember the process that ran from it last registers as clean.",
        source="M67; TR44",
        scenario="tr44_copy_of_an_earlier_process",
        swaps=(Swap(nodes, "_is_older_copy", _never),),
    ),
)


# 107a, 107b: sessions that end together are ended one by one.


def _nobody_waits(real: Real, draft: Draft, due: Collection[NodeId], silent: Collection[NodeId]) -> set[NodeId]:
    return set()


def _one_by_one(
    real: Real,
    draft: Draft,
    partition: PartitionImage,
    leaving: frozenset[NodeId],
    cause: str,
    unclean: Collection[NodeId] = (),
) -> None:
    members = [member for member in partition.isr if member in leaving]
    if len(members) > 1:
        real.differs()
    for node_id in members:
        current = draft.partition(partition.tp)
        assert current is not None
        real(draft, current, frozenset([node_id]), cause, unclean)


MUTANTS += (
    Mutant(
        number="107a",
        name="the dead leave one after the other",
        broken="After a blackout the last members to fall silent are the only ones that are known to be complete.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "held_back", _nobody_waits),),
    ),
    Mutant(
        number="107b",
        name="the dead of one tick leave one after the other",
        broken="Sessions that end in one step leave the ISR in an order, and only the last keeps its place.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "_leave", _one_by_one, pure=False),),
    ),
)


# 112a, 112b: unproven members, forgotten with the next change of the partition, or by the next controller epoch.


def _forgets(real: Real, self: Draft, changed: PartitionImage, **how: Any) -> PartitionImage:
    before = self.base.partition(changed.tp)
    kept = before is not None and set(before.unproven) & set(changed.unproven)
    if kept:
        real.differs()
        changed = replace(changed, unproven=tuple(n for n in changed.unproven if n not in kept))
    answer: PartitionImage = real(self, changed, **how)
    return answer


def _begins_proven(real: Real, self: ControllerCore, event: ControllerStarted) -> list[ControllerEffect]:
    if self._state is not None and any(p.unproven for p in self._state.partitions()):
        real.differs()
        topics = {
            topic_id: replace(topic, partitions=tuple(replace(p, unproven=()) for p in topic.partitions))
            for topic_id, topic in self._state.topics.items()
        }
        self._state = replace(self._state, topics=topics)
    effects: list[ControllerEffect] = real(self, event)
    return effects


MUTANTS += (
    Mutant(
        number="112a",
        name="unproven member forgotten",
        broken="With the next change of a partition its unproven members count as proven.",
        source="M64",
        swaps=(Swap(Draft, "put_partition", _forgets, pure=False),),
    ),
    Mutant(
        number="112b",
        name="unproven member forgotten by the next reign",
        broken="A controller that restarts takes every member for proven.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(ControllerCore, "_start", _begins_proven, pure=False),),
    ),
)


# 113a, 113b: a follower that refuses to truncate, and does not report it or the report has no effect.


def _nothing_follows(real: Real, *given: Any) -> None:
    real.differs()


def _keeps_it_to_itself(real: Real, self: LogReporter, tp: TopicPartition) -> Any:
    key = real(self, tp)
    return None if key is not None and key.refused_cut_to is not None else key


MUTANTS += (
    Mutant(
        number="113a",
        name="refused cut without consequence",
        broken="A leader that lacks committed records goes on, although a member that holds them reported it.",
        source="M69; TR46",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "_refuses_to_cut", _nothing_follows, pure=False),),
    ),
    Mutant(
        number="113b",
        name="refused cut not reported",
        broken="A follower that holds more than its leader stops there and does not report it.",
        source="M69; TR46",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(LogReporter, "_key", _keeps_it_to_itself),),
    ),
)
