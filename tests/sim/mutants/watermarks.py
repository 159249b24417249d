"""Mutants of the HW and the log start: what is committed, acknowledged, shown to readers, or deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.errors import Refusal
from strandline.core.log import follower, high_watermark
from strandline.core.log.effects import AdvanceLogStart, Effect
from strandline.core.log.isr import FollowerProgress
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.log.producers import SequenceCheck, SequenceVerdict
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import DeletePartition, FetchResult, ProducePartition, ProduceResult
from strandline.core.serving.deletion import DeleteServing
from strandline.core.serving.fetch import FetchServing
from strandline.core.serving.produce import ProduceServing
from strandline.core.types import Acks, Offset, TopicPartition

MUTANTS: tuple[Mutant, ...] = ()


# R3: a majority instead of the in-sync replicas.


def _raise_by_majority(real: Real, leader: LeaderReplica, now_ms: int) -> bool:
    if len(leader.isr.committed) < leader.image.min_isr:
        return False
    others = [node_id for node_id in leader.image.replicas if node_id != leader.node_id]
    known = {node_id: leader.progress[node_id].remote_leo or Offset(0) for node_id in others}
    by_majority = sorted([leader.log.vote, *known.values()], reverse=True)[len(leader.image.replicas) // 2]
    if any(known[node_id] < by_majority for node_id in others if node_id in leader.isr.maximal):
        real.differs()
    return leader.log.raise_hw(by_majority)


MUTANTS += (
    Mutant(
        number="R3",
        name="majority of replicas",
        broken="The high watermark follows the majority of the assigned replicas, whether or not they are in the ISR.",
        source="Raft's commit rule under Kafka's elections; M6",
        scenario="tr09_pending_removal",
        swaps=(Swap(LeaderReplica, "maybe_raise_hw", _raise_by_majority, pure=False),),
    ),
)


# R4: min.insync.replicas as advice.


def _whatever_the_size(
    real: Real, own_vote: Offset, remote_leos: Iterable[Offset | None], *, committed_isr_size: int, min_isr: int
) -> Offset | None:
    found: Offset | None = real(own_vote, remote_leos, committed_isr_size=min_isr, min_isr=min_isr)
    return found


def _never(real: Real, leader: LeaderReplica) -> bool:
    return False


MUTANTS += (
    Mutant(
        number="R4",
        name="commit and acknowledge below min ISR",
        broken="The high watermark moves, and acks=all is answered, while the ISR has fewer than min.insync.replicas.",
        source="KIP-966, KAFKA-15583; M18, M47, TR11",
        scenario="tr11_last_replica_standing",
        swaps=(
            Swap(high_watermark, "candidate", _whatever_the_size),
            Swap(LeaderReplica, "is_under_min_isr", _never),
        ),
    ),
)


# R6: a new leader that assumes it knows everything committed before it.


def _commits_its_log(real: Real, core: NodeCore, tp: TopicPartition, *given: Any) -> None:
    real(core, tp, *given)
    log = core.state.logs[tp]
    if log.raise_hw(log.leo):
        real.differs()


def _always(real: Real, leader: LeaderReplica) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="R6a",
        name="a new leader commits its whole log",
        broken="A new leader sets its high watermark to its own log end.",
        source="Raft, section 5.4.2, in Kafka's terms; M6",
        scenario="tr03_leader_epoch",
        swaps=(Swap(NodeCore, "_lead", _commits_its_log, pure=False),),
    ),
    Mutant(
        number="R6b",
        name="a new leader tells an end it does not know",
        broken="A new leader answers the latest offset before its high watermark reached the start of its epoch.",
        source="KIP-207; I13, TR6",
        scenario="tr06_isr_grows_too_early",
        swaps=(Swap(LeaderReplica, "knows_true_hw", _always),),
    ),
)


# R12: records in the page cache count as written.


def _log_end(real: Real, log: ReplicaLog) -> Offset:
    return log.leo


def _unless_cutting(real: Real, log: ReplicaLog) -> bool:
    return not log.cutting


MUTANTS += (
    Mutant(
        number="R12a",
        name="the leader votes before its fsync",
        broken="With durability=fsync a leader counts records of its own that a loss of power takes away.",
        source="M55",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(ReplicaLog, "vote", _log_end),),
    ),
    Mutant(
        number="R12b",
        name="a follower reports before its fsync",
        broken="With durability=fsync a follower fetches from an offset below which it may yet lose records.",
        source="M54",
        scenario="tr02_fsync",
        swaps=(Swap(ReplicaLog, "is_settled", _unless_cutting),),
    ),
)


# 14: acks=all means acks=1.


def _at_once(
    real: Real,
    serving: ProduceServing,
    part: ProducePartition,
    base_offset: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    result, waits_for = real(serving, part, base_offset, end, acks, leader)
    return result, None if acks is Acks.ALL else waits_for


MUTANTS += (
    Mutant(
        number="14",
        name="acknowledged on the leader's append",
        broken="A produce with acks=all is answered as soon as the leader has appended it.",
        source="M46; I12",
        scenario="tr20_duplicate_of_a_cut_record",
        swaps=(Swap(ProduceServing, "_appended", _at_once),),
    ),
)


# 25: a duplicate is taken to be committed.


def _duplicate_at_once(
    real: Real, serving: ProduceServing, part: ProducePartition, check: SequenceCheck, acks: Acks, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None]:
    result, waits_for = real(serving, part, check, acks, leader)
    return result, None if check.verdict is SequenceVerdict.DUPLICATE else waits_for


MUTANTS += (
    Mutant(
        number="25",
        name="duplicate answered at once",
        broken="A batch that is sent again is acknowledged with its first offset, committed or not.",
        source="TR20; M61",
        scenario="tr20_duplicate_of_a_cut_record",
        swaps=(Swap(ProduceServing, "_out_of_sequence", _duplicate_at_once),),
    ),
)


# 47: deletions that are answered as complete although an election can undo them.


def _of_the_leader_alone(real: Real, self: LeaderReplica) -> Offset | None:
    return self.log.log_start_offset


def _whatever_it_holds(real: Real, self: LeaderReplica, follower: FollowerProgress) -> bool:
    return True


def _whatever_min_isr_says(real: Real, self: LeaderReplica, offset: Offset) -> bool:
    lowest = self.low_watermark
    if lowest is None or lowest < offset:
        return False
    if not real(self, offset):
        real.differs()
    self.log_start_floor = max(self.log_start_floor, lowest)
    return True


MUTANTS += (
    Mutant(
        number="47",
        name="DeleteRecords answered before the ISR",
        broken="A leader answers a deletion as complete when it alone has deleted.",
        source="C100; TR34",
        scenario="tr34_deletion_of_the_leader_alone",
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "low_watermark", _of_the_leader_alone),),
    ),
    Mutant(
        number="47b",
        name="the ISR grows below a completed deletion",
        broken="A follower may join the ISR with a log start below what was answered as deleted.",
        source="C100; M44",
        tests=("tests/core/test_delete_records.py::test_nobody_joins_below_a_completed_deletion",),
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "_has_deleted", _whatever_it_holds),),
    ),
    Mutant(
        number="47c",
        name="DeleteRecords complete below min ISR",
        broken="A deletion is answered as complete though a replica of the ELR, with any log start, may be elected.",
        source="C100; M57",
        tests=("tests/core/test_delete_records.py::test_below_min_isr_no_deletion_is_complete",),
        profiles=("trim", "swarm"),
        swaps=(Swap(LeaderReplica, "try_complete_deletion", _whatever_min_isr_says, pure=False),),
    ),
)


# 114: HW and recovery point, not written until the next checkpoint.


def _later(real: Real, self: NodeCore, out: list[Effect]) -> None:
    if self._checkpoint_now:
        real.differs()
    self._checkpoint_now = False
    real(self, out)


MUTANTS += (
    Mutant(
        number="114",
        name="HW not saved when it matters",
        broken="A new leader, or one below min ISR, leaves its HW to a checkpoint seconds later.",
        source="M68",
        tests=("tests/core/test_replica_log_reports.py",),
        swaps=(Swap(NodeCore, "_make_durable", _later, pure=False),),
    ),
)


# 115, 116: a replica's report of its own HW.

_TESTS = ("tests/core/test_follower_truncation.py", "tests/core/test_follower_errors.py")


def _none_if_unknown(real: Real, log: ReplicaLog, offset: Offset) -> int | None:
    known: int | None = real(log, offset)
    return known or 0


def _whatever_it_is(real: Real, log: ReplicaLog) -> Offset | None:
    return log.hw


MUTANTS += (
    Mutant(
        number="115",
        name="unknown loss reported as none",
        broken="A replica that does not know its own HW says that a cut took no committed record.",
        source="M41; state events",
        tests=_TESTS,
        swaps=(Swap(follower, "_committed_cut", _none_if_unknown),),
    ),
    Mutant(
        number="116",
        name="consumers see the end go back",
        broken="A follower that cut shows consumers an HW below the one that it showed before.",
        source="M1",
        tests=_TESTS,
        swaps=(Swap(ReplicaLog, "expose_hw", _whatever_it_is),),
    ),
)


# 120: an operator may delete records above the high watermark.


def _up_to_the_leo(real: Real, self: ReplicaLog, offset: Offset, out: list[Effect]) -> None:
    target = min(offset, self.leo)
    if target <= self.hw:
        real(self, offset, out)
        return
    real.differs()
    self.log_start_offset = self.hw = target
    out.append(AdvanceLogStart(self.tp, target))


def _any_offset(real: Real, self: DeleteServing, part: DeletePartition) -> Offset | Refusal:
    leader = self._state.leaders.get(part.tp)
    if leader is None or part.offset is None or part.offset <= leader.log.hw:
        target: Offset | Refusal = real(self, part)
        return target
    return min(part.offset, leader.log.leo)


MUTANTS += (
    Mutant(
        number="120",
        name="DeleteRecords above the high watermark",
        broken="A leader deletes records that are not committed, and takes its new log start for committed.",
        source="M10",
        profiles=("trim", "swarm"),
        swaps=(
            Swap(DeleteServing, "_target", _any_offset),
            Swap(ReplicaLog, "advance_log_start", _up_to_the_leo, pure=False),
        ),
    ),
)


# 122: a woken consumer reads on to the log end.


def _to_the_log_end(real: Real, self: FetchServing, fetch: Any, parts: Any) -> list[FetchResult]:
    found: list[FetchResult] = []
    for result in real(self, fetch, parts):
        leader = self._state.leaders.get(result.tp)
        if fetch.replica is None and leader is not None and result.read is not None:
            result = result._replace(read=result.read._replace(end=leader.log.leo))
        found.append(result)
    return found


MUTANTS += (
    Mutant(
        number="122",
        name="woken consumer reads to the log end",
        broken="A consumer's fetch that was parked is answered with records above the high watermark.",
        source="M9",
        swaps=(Swap(FetchServing, "_read_again", _to_the_log_end),),
    ),
)
