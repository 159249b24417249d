"""Answers OffsetForLeaderEpoch and ListOffsets.

Invariant: only the leader answers, and while its HW has not reached the start of its own epoch it does
not return the end of the log to a client (KIP-207, I13): it does not know yet what its predecessors exposed.
"""

from __future__ import annotations

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import AnswerCall, AnswerEpochEnds, AnswerOffsets, Effect
from strandline.core.log.events import EpochEndsAsked, OffsetsAsked, ProducerSnapshotAsked
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.state import NodeState
from strandline.core.types import LeaderEpoch, TopicPartition

UNSETTLED = Refusal(
    ErrorCode.OFFSET_NOT_AVAILABLE,
    "this leader is new and has not confirmed yet what was committed before it; ask again",
)


def settled(answer: messages.OffsetAnswer, lookup: messages.OffsetLookup) -> messages.OffsetAnswer:
    """What a client may be given of the record that was found for ``lookup``: nothing at or above its settled end."""
    if lookup.unsettled and answer.offset is not None and answer.offset >= lookup.settled_end:
        return messages.OffsetAnswer(answer.tp, refusal=UNSETTLED)
    return answer


class OffsetServing:
    """Questions about offsets, answered from the state of one node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def epoch_ends(self, event: EpochEndsAsked, out: list[Effect]) -> None:
        """Answer OffsetForLeaderEpoch (M37)."""
        out.append(AnswerEpochEnds(event.request_id, tuple(self._epoch_end(q) for q in event.questions)))

    def _epoch_end(self, question: messages.EpochEndQuestion) -> messages.EpochEndAnswer:
        leader = self._leader(question.tp, question.current_leader_epoch, by_replica=True)
        if isinstance(leader, Refusal):
            return messages.EpochEndAnswer(question.tp, refusal=leader)
        return messages.EpochEndAnswer(
            question.tp, leader.log.epochs.end_offset_for(question.leader_epoch, leader.log.leo)
        )

    def offsets(self, event: OffsetsAsked, out: list[Effect]) -> None:
        """Answer ListOffsets: to a replica up to the LEO, to a client up to the HW, or to the LSO (X14)."""
        by_replica = event.replica is not None
        out.append(AnswerOffsets(event.request_id, tuple(self._offset(q, by_replica) for q in event.questions)))

    def _offset(self, question: messages.OffsetQuestion, by_replica: bool) -> messages.OffsetAnswer:
        tp = question.tp
        leader = self._leader(tp, question.current_leader_epoch, by_replica=by_replica)
        if isinstance(leader, Refusal):
            return messages.OffsetAnswer(tp, refusal=leader)
        log = leader.log
        if question.timestamp == messages.EARLIEST:
            return messages.OffsetAnswer(tp, log.log_start_offset, None, log.epochs.epoch_of(log.log_start_offset))
        if question.timestamp == messages.LATEST:
            if by_replica:
                return messages.OffsetAnswer(tp, log.leo, None, leader.image.leader_epoch)
            # Its predecessor may have shown a later end to clients, for whom the end must not go back (KIP-207, I13).
            if not leader.knows_true_hw:
                return messages.OffsetAnswer(tp, refusal=UNSETTLED)
            end = log.lso if question.read_committed else log.hw
            return messages.OffsetAnswer(tp, end, None, leader.image.leader_epoch)
        if question.timestamp < 0 and question.timestamp != messages.MAX_TIMESTAMP:
            message = f"timestamp {question.timestamp} is not -1, -2, -3 or a time in ms since the epoch"
            return messages.OffsetAnswer(tp, refusal=Refusal(ErrorCode.INVALID_REQUEST, message))
        readable = log.lso if question.read_committed else log.hw
        # While the HW is unsettled the search goes up to the LEO: a hit above the HW is refused, where no hit would say
        # that there is no such record.
        end = log.leo if by_replica or not leader.knows_true_hw else readable
        unsettled = not by_replica and not leader.knows_true_hw
        return messages.OffsetAnswer(tp, lookup=messages.OffsetLookup(question.timestamp, end, readable, unsettled))

    def _leader(self, tp: TopicPartition, current: LeaderEpoch | None, *, by_replica: bool) -> LeaderReplica | Refusal:
        state = self._state
        if tp not in state.images:
            return state.unknown(tp)
        refusal = state.check_asker_epoch(tp, current, by_replica=by_replica)
        if refusal is not None:
            return refusal
        return state.leaders.get(tp) or state.not_leader(tp)


# ---- producer_snapshot_serving
# Answers FetchProducerSnapshot: what a leader remembers of producers whose batches lie below its log start (C43).
#
# Invariant: what is returned and what the replica folds from the log above it make the leader's own state. Only the
# leader of the epoch that the replica follows answers, so a replica begins on the lineage that it then fetches.

CALL = "FetchProducerSnapshot"

MOST_BATCHES = 100_000
"""In one answer, about 5 MB: the oldest beyond that are left out, and their producers count as unknown (M61)."""


class ProducerSnapshotServing:
    """FetchProducerSnapshot requests of one node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def asked(self, event: ProducerSnapshotAsked, out: list[Effect]) -> None:
        """Answer at once."""
        out.append(AnswerCall(event.request_id, CALL, (self._answer(event),)))

    def _answer(self, event: ProducerSnapshotAsked) -> messages.ProducerSnapshotAnswer:
        state, (tp, epoch) = self._state, event.question
        if tp not in state.images:
            return messages.ProducerSnapshotAnswer(tp, refusal=state.unknown(tp))
        refusal = state.check_asker_epoch(tp, epoch, by_replica=True)
        if refusal is not None:
            return messages.ProducerSnapshotAnswer(tp, refusal=refusal)
        leader = state.leaders.get(tp)
        if leader is None:
            return messages.ProducerSnapshotAnswer(tp, refusal=state.not_leader(tp))
        start = leader.log.log_start_offset
        producers = leader.log.producers
        return messages.ProducerSnapshotAnswer(
            tp,
            start,
            producers.rows_below(start, MOST_BATCHES),
            transactions=producers.transactions.state_below(start),
        )
