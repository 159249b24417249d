"""Answers FetchProducerSnapshot: what a leader remembers of producers whose batches lie below its log start (C43).

Invariant: what is returned and what the replica folds from the log above it make the leader's own state. Only the
leader of the epoch that the replica follows answers, so a replica begins on the lineage that it then fetches.
"""

from __future__ import annotations

from strandline.core.effects import AnswerCall, Effect
from strandline.core.events import ProducerSnapshotAsked
from strandline.core.messages import ProducerSnapshotAnswer
from strandline.core.node_state import NodeState

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

    def _answer(self, event: ProducerSnapshotAsked) -> ProducerSnapshotAnswer:
        state, (tp, epoch) = self._state, event.question
        if tp not in state.images:
            return ProducerSnapshotAnswer(tp, refusal=state.unknown(tp))
        refusal = state.check_asker_epoch(tp, epoch, by_replica=True)
        if refusal is not None:
            return ProducerSnapshotAnswer(tp, refusal=refusal)
        leader = state.leaders.get(tp)
        if leader is None:
            return ProducerSnapshotAnswer(tp, refusal=state.not_leader(tp))
        start = leader.log.log_start_offset
        producers = leader.log.producers
        return ProducerSnapshotAnswer(
            tp,
            start,
            producers.rows_below(start, MOST_BATCHES),
            transactions=producers.transactions.state_below(start),
        )
