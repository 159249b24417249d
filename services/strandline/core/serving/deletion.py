"""Decides what DeleteRecords deletes, and when it is answered: when no clean election can bring the records back.

Invariants: nothing is deleted above the high watermark (M10); a deletion is answered as complete only when every member
of the maximal ISR has reported a log start at or above it (C100, I27); how many calls wait is bounded, and each leaves
exactly once, by completion, its deadline, a change of leader or its caller's going away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.core.coordinator.internal_topics import is_internal, not_for_clients
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import AnswerCall, Effect
from strandline.core.log.events import DeleteRecordsAsked
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NodeState
from strandline.core.messages import DeletedPartition, DeletePartition
from strandline.core.serving.offsets import UNSETTLED
from strandline.core.types import Offset, TopicPartition

CALL = "DeleteRecords"

# Operators make these calls, so more than a few at a time are a mistake.
MAX_WAITING = 1_000

FULL = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    f"{MAX_WAITING} calls of DeleteRecords wait on this node; nothing was deleted for this one, send it again later",
)
TIMED_OUT = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "timeout_ms passed before every in-sync replica had deleted the records, or the ISR is below min.insync.replicas: "
    "the leader has deleted them; ask again to wait for the others",
)


@dataclass(slots=True)
class _Waiting:
    """A call some of whose partitions are not yet deleted everywhere."""

    request_id: int
    deadline_ms: int
    # One slot per partition of the request, in its order; final once the partition is not in ``wanted``.
    answers: list[DeletedPartition] = field(default_factory=list)
    # Partition -> (index of its slot, the log start to be reached).
    wanted: dict[TopicPartition, tuple[int, Offset]] = field(default_factory=dict)


class DeleteServing:
    """DeleteRecords requests of one node. Moves the log starts of ``state.leaders``."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._waiting: dict[int, _Waiting] = {}
        self._by_partition: dict[TopicPartition, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def asked(self, event: DeleteRecordsAsked, out: list[Effect]) -> None:
        """Delete on the leader at once, then wait for the in-sync replicas."""
        if len(self._waiting) >= MAX_WAITING:
            refused = tuple(DeletedPartition(part.tp, refusal=FULL) for part in event.partitions)
            out.append(AnswerCall(event.request_id, CALL, refused))
            return
        call = _Waiting(event.request_id, event.now_ms + event.timeout_ms)
        for index, part in enumerate(event.partitions):
            target = self._target(part)
            if isinstance(target, Refusal):
                call.answers.append(DeletedPartition(part.tp, refusal=target))
                continue
            self._state.leaders[part.tp].log.advance_log_start(target, out)
            call.answers.append(DeletedPartition(part.tp))
            call.wanted[part.tp] = (index, target)
            self._by_partition.setdefault(part.tp, {})[event.request_id] = None
        self._waiting[event.request_id] = call
        for tp in tuple(call.wanted):
            self._try_complete(call, self._state.leaders[tp])
        self._answer_if_complete(call, out)

    def _target(self, part: DeletePartition) -> Offset | Refusal:
        state, offset = self._state, part.offset
        if part.tp not in state.images:
            return state.unknown(part.tp)
        if is_internal(name := state.topic_names[part.tp.topic_id]):
            return not_for_clients(name)
        leader = state.leaders.get(part.tp)
        if leader is None:
            return state.not_leader(part.tp)
        hw = leader.log.hw
        if offset is not None and 0 <= offset <= hw:
            return offset
        # A new leader's HW may be behind what its predecessor committed: an offset above it may be right, and "below
        # the HW" would delete less than was meant.
        if (offset is None or offset > hw) and not leader.knows_true_hw:
            return UNSETTLED
        return hw if offset is None else _out_of_range(offset, hw)

    def moved(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """A replica reported its log start, or the ISR changed: perhaps a deletion is complete."""
        for request_id in tuple(self._by_partition.get(leader.log.tp, ())):
            call = self._waiting[request_id]
            self._try_complete(call, leader)
            self._answer_if_complete(call, out)

    def resigned(self, tp: TopicPartition, out: list[Effect]) -> None:
        """This node no longer leads ``tp``."""
        state = self._state
        # Whether the next leader has deleted the records is not known here; asking it again is safe (C100).
        refusal = state.not_leader(tp) if tp in state.images else state.unknown(tp)
        for request_id in tuple(self._by_partition.get(tp, ())):
            call = self._waiting[request_id]
            self._settle(call, DeletedPartition(tp, refusal=refusal))
            self._answer_if_complete(call, out)

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for an ISR."""
        return bool(self._waiting)

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Answer the calls whose wait is over, with the low watermark so far."""
        for call in [call for call in self._waiting.values() if call.deadline_ms <= now_ms]:
            for tp in tuple(call.wanted):
                self._settle(call, DeletedPartition(tp, self._state.leaders[tp].low_watermark, TIMED_OUT))
            self._answer_if_complete(call, out)

    def call_gone(self, request_id: int) -> None:
        """The caller went away; what was deleted stays deleted."""
        call = self._waiting.pop(request_id, None)
        if call is not None:
            for tp in call.wanted:
                self._forget(tp, request_id)

    def _try_complete(self, call: _Waiting, leader: LeaderReplica) -> None:
        tp = leader.log.tp
        if leader.try_complete_deletion(call.wanted[tp][1]):
            self._settle(call, DeletedPartition(tp, leader.low_watermark))

    def _settle(self, call: _Waiting, answer: DeletedPartition) -> None:
        index, _ = call.wanted.pop(answer.tp)
        call.answers[index] = answer
        self._forget(answer.tp, call.request_id)

    def _forget(self, tp: TopicPartition, request_id: int) -> None:
        waiting = self._by_partition[tp]
        del waiting[request_id]
        if not waiting:
            del self._by_partition[tp]

    def _answer_if_complete(self, call: _Waiting, out: list[Effect]) -> None:
        if not call.wanted:
            del self._waiting[call.request_id]
            out.append(AnswerCall(call.request_id, CALL, tuple(call.answers)))


def _out_of_range(offset: Offset, hw: Offset) -> Refusal:
    return Refusal(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} must be 0 to {hw}, the high watermark; nothing was deleted; -1 means the high watermark",
    )
