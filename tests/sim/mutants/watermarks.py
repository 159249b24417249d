"""Mutants of the HW and the log start: what is committed, acknowledged, shown to readers, or deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

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


@mutant(LeaderReplica, "maybe_raise_hw", "tr09_pending_removal", pure=False)
def _raise_by_majority(real: Real, leader: LeaderReplica, now_ms: int) -> bool:
    """R3: majority of replicas (Raft's commit rule under Kafka's elections; M6).

    The high watermark follows the majority of the assigned replicas, whether or not they are in the ISR.
    """
    if len(leader.isr.committed) < leader.image.min_isr:
        return False
    others = [node_id for node_id in leader.image.replicas if node_id != leader.node_id]
    known = {node_id: leader.progress[node_id].remote_leo or Offset(0) for node_id in others}
    by_majority = sorted([leader.log.vote, *known.values()], reverse=True)[len(leader.image.replicas) // 2]
    if any(known[node_id] < by_majority for node_id in others if node_id in leader.isr.maximal):
        real.differs()
    return leader.log.raise_hw(by_majority)


def _whatever_the_size(
    real: Real, own_vote: Offset, remote_leos: Iterable[Offset | None], *, committed_isr_size: int, min_isr: int
) -> Offset | None:
    return real(own_vote, remote_leos, committed_isr_size=min_isr, min_isr=min_isr)


def _never(real: Real, leader: LeaderReplica) -> bool:
    return False


MUTANTS += (
    Mutant(
        number="R4",
        name="commit and acknowledge below min ISR",
        broken="The high watermark moves, and acks=all is answered, while the ISR has fewer than min.insync.replicas.",
        source="KIP-966, KAFKA-15583; M18, M47, TR11",
        scenario="tr11_last_replica_standing",
        swaps=(Swap(high_watermark, "candidate", _whatever_the_size), Swap(LeaderReplica, "is_under_min_isr", _never)),
    ),
)


@mutant(NodeCore, "_lead", "tr03_leader_epoch", pure=False)
def _commits_its_log(real: Real, core: NodeCore, tp: TopicPartition, *given: Any) -> None:
    """R6a: a new leader commits its whole log (Raft, section 5.4.2, in Kafka's terms; M6).

    A new leader sets its high watermark to its own log end.
    """
    real(core, tp, *given)
    log = core.state.logs[tp]
    if log.raise_hw(log.leo):
        real.differs()


@mutant(LeaderReplica, "knows_true_hw", "tr06_isr_grows_too_early")
def _always(real: Real, leader: LeaderReplica) -> bool:
    """R6b: a new leader tells an end it does not know (KIP-207; I13, TR6).

    A new leader answers the latest offset before its high watermark reached the start of its epoch.
    """
    return True


@mutant(ReplicaLog, "vote", "tr21_same_epoch_after_restart")
def _log_end(real: Real, log: ReplicaLog) -> Offset:
    """R12a: the leader votes before its fsync (M55).

    With durability=fsync a leader counts records of its own that a loss of power takes away.
    """
    return log.leo


@mutant(ReplicaLog, "is_settled", "tr02_fsync")
def _unless_cutting(real: Real, log: ReplicaLog) -> bool:
    """R12b: a follower reports before its fsync (M54).

    With durability=fsync a follower fetches from an offset below which it may yet lose records.
    """
    return not log.cutting


@mutant(ProduceServing, "_appended", "tr20_duplicate_of_a_cut_record")
def _at_once(
    real: Real,
    serving: ProduceServing,
    part: ProducePartition,
    base_offset: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    """14: acknowledged on the leader's append (M46; I12).

    A produce with acks=all is answered as soon as the leader has appended it.
    """
    result, waits_for = real(serving, part, base_offset, end, acks, leader)
    return result, None if acks is Acks.ALL else waits_for


@mutant(ProduceServing, "_out_of_sequence", "tr20_duplicate_of_a_cut_record")
def _duplicate_at_once(
    real: Real, serving: ProduceServing, part: ProducePartition, check: SequenceCheck, acks: Acks, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None]:
    """25: duplicate answered at once (TR20; M61).

    A batch that is sent again is acknowledged with its first offset, committed or not.
    """
    result, waits_for = real(serving, part, check, acks, leader)
    return result, None if check.verdict is SequenceVerdict.DUPLICATE else waits_for


@mutant(LeaderReplica, "low_watermark", "tr34_deletion_of_the_leader_alone", profiles="trim swarm")
def _of_the_leader_alone(real: Real, self: LeaderReplica) -> Offset | None:
    """47: DeleteRecords answered before the ISR (C100; TR34).

    A leader answers a deletion as complete when it alone has deleted.
    """
    return self.log.log_start_offset


@mutant(
    LeaderReplica,
    "_has_deleted",
    tests="tests/core/test_delete_records.py::test_nobody_joins_below_a_completed_deletion",
    profiles="trim swarm",
)
def _whatever_it_holds(real: Real, self: LeaderReplica, follower: FollowerProgress) -> bool:
    """47b: the ISR grows below a completed deletion (C100; M44).

    A follower may join the ISR with a log start below what was answered as deleted.
    """
    return True


@mutant(
    LeaderReplica,
    "try_complete_deletion",
    tests="tests/core/test_delete_records.py::test_below_min_isr_no_deletion_is_complete",
    profiles="trim swarm",
    pure=False,
)
def _whatever_min_isr_says(real: Real, self: LeaderReplica, offset: Offset) -> bool:
    """47c: DeleteRecords complete below min ISR (C100; M57).

    A deletion is answered as complete though a replica of the ELR, with any log start, may be elected.
    """
    lowest = self.low_watermark
    if lowest is None or lowest < offset:
        return False
    if not real(self, offset):
        real.differs()
    self.log_start_floor = max(self.log_start_floor, lowest)
    return True


@mutant(NodeCore, "_make_durable", tests="tests/core/test_replica_log_reports.py", pure=False)
def _later(real: Real, self: NodeCore, out: list[Effect]) -> None:
    """114: HW not saved when it matters (M68).

    A new leader, or one below min ISR, leaves its HW to a checkpoint seconds later.
    """
    if self._checkpoint_now:
        real.differs()
    self._checkpoint_now = False
    real(self, out)


# 115, 116: a replica's report of its own HW.

_TESTS = "tests/core/test_follower_truncation.py tests/core/test_follower_errors.py"


@mutant(follower, "_committed_cut", tests=_TESTS)
def _none_if_unknown(real: Real, log: ReplicaLog, offset: Offset) -> int | None:
    """115: unknown loss reported as none (M41; state events).

    A replica that does not know its own HW says that a cut took no committed record.
    """
    return real(log, offset) or 0


@mutant(ReplicaLog, "expose_hw", tests=_TESTS)
def _whatever_it_is(real: Real, log: ReplicaLog) -> Offset | None:
    """116: consumers see the end go back (M1).

    A follower that cut shows consumers an HW below the one that it showed before.
    """
    return log.hw


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
        return real(self, part)
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


@mutant(FetchServing, "_read_again")
def _to_the_log_end(real: Real, self: FetchServing, fetch: Any, parts: Any) -> list[FetchResult]:
    """122: woken consumer reads to the log end (M9).

    A consumer's fetch that was parked is answered with records above the high watermark.
    """
    found: list[FetchResult] = []
    for result in real(self, fetch, parts):
        leader = self._state.leaders.get(result.tp)
        if fetch.replica is None and leader is not None and result.read is not None:
            result = result._replace(read=result.read._replace(end=leader.log.leo))
        found.append(result)
    return found
