"""Decides when ISR proposals go to the controller, and what each answer means for the one who proposed.

Invariants: one request in flight per node, one proposal per partition; every attempt carries a higher
sequence and the current controller epoch, and only the latest attempt's answer counts (TR16); the
content of a proposal is frozen when it is made (TR10).
"""

from __future__ import annotations

from strandline.core.effects import Effect, Emit, Halt, RefreshMetadata, SendAlterPartition
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.events import AlterPartitionAnswered, AlterPartitionFailed
from strandline.core.messages import AlterPartitionRequest, IsrDecision, ProposedIsr
from strandline.core.node_state import NodeState
from strandline.core.state_events import AlterPartition, Number
from strandline.core.types import TopicPartition

REVERTING = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The change did not happen and, with no other copy under way, never will: back to the committed ISR."""

FINAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""This leader is behind: it stays with the stricter reading until new metadata arrives, and asks no more."""

REVERT_BACKOFF_MS = 1_000


class IsrChannel:
    """The AlterPartition requests of one node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.waiting: dict[TopicPartition, ProposedIsr] = {}
        """What is proposed and not answered for good, by partition; changed here alone."""
        self._in_flight: AlterPartitionRequest | None = None
        self._sequence = 0
        self._sent_ms = 0
        self._retry_at_ms = 0
        self.failed_updates = 0

    def propose(self, proposal: ProposedIsr, out: list[Effect]) -> None:
        """Take a proposal; it is sent at the end of the step, if nothing is in flight."""
        self.waiting[proposal.tp] = proposal

    def forget(self, tp: TopicPartition) -> None:
        """New metadata ended whatever was proposed for ``tp``; an answer still under way no longer counts."""
        self.waiting.pop(tp, None)

    def maybe_send(self, now_ms: int, out: list[Effect]) -> None:
        """Send everything that waits as one new attempt, unless one is in flight or backing off."""
        if self._in_flight is not None or not self.waiting or now_ms < self._retry_at_ms:
            return
        self._sequence += 1
        identity = self._state.identity
        self._in_flight = AlterPartitionRequest(
            cluster_id=self._state.cluster_id,
            controller_epoch=self._state.controller_epoch,
            node_id=identity.node_id,
            node_epoch=identity.node_epoch,
            request_sequence=self._sequence,
            partitions=tuple(self.waiting.values()),
        )
        self._sent_ms = now_ms
        out += [self._emit("proposed", proposal, None, now_ms) for proposal in self._in_flight.partitions]
        out.append(SendAlterPartition(self._in_flight))

    def failed(self, event: AlterPartitionFailed, out: list[Effect]) -> None:
        """No answer: it may have been applied, so the stricter reading stays and a new attempt follows."""
        if self._is_latest(event.request_sequence):
            assert self._in_flight is not None
            out += [self._emit("timeout", proposal, None, event.now_ms) for proposal in self._in_flight.partitions]
            self._in_flight = None
            self._retry_at_ms = event.now_ms + self._state.timings.alter_partition_retry_ms

    def answered(self, event: AlterPartitionAnswered, out: list[Effect]) -> list[TopicPartition]:
        """Apply the controller's decisions. Returns the partitions whose committed ISR may have changed."""
        if not self._is_latest(event.request_sequence):
            return []
        request, self._in_flight = self._in_flight, None
        assert request is not None
        if event.answer.refusal is not None:
            refusal = event.answer.refusal
            out += [self._emit("result", proposal, refusal, event.now_ms) for proposal in request.partitions]
            self._refused(event.answer.refusal, event.now_ms, out)
            if event.answer.last_sequence is not None:
                # Somebody else used the number. The proposal was not looked at, so it goes out again at once, with a
                # number above any that the controller has seen; every earlier copy of it stays refused (TR16).
                self._sequence = max(self._sequence, event.answer.last_sequence)
                self._retry_at_ms = event.now_ms
            return []
        proposals = {p.tp: p for p in request.partitions}
        decided = [d for d in event.answer.partitions if d.tp in proposals]
        return [d.tp for d in decided if self._decide(proposals[d.tp], d, event.now_ms, out)]

    def _is_latest(self, sequence: int) -> bool:
        return self._in_flight is not None and self._in_flight.request_sequence == sequence

    def _refused(self, refusal: Refusal, now_ms: int, out: list[Effect]) -> None:
        self.failed_updates += 1
        if refusal.code is ErrorCode.STALE_BROKER_EPOCH:
            out.append(Halt(f"a newer process registered as node {self._state.node_id}: {refusal}"))
            return
        if refusal.code is ErrorCode.STALE_CONTROLLER_EPOCH:
            out.append(RefreshMetadata())
        self._retry_at_ms = now_ms + self._state.timings.alter_partition_retry_ms

    def _decide(self, proposal: ProposedIsr, decision: IsrDecision, now_ms: int, out: list[Effect]) -> bool:
        """One partition. Returns whether the committed ISR changed."""
        if self.waiting.get(proposal.tp) is not proposal:
            return False
        leader = self._state.leaders.get(proposal.tp)
        code = decision.refusal.code if decision.refusal else ErrorCode.NONE
        if code is ErrorCode.NONE and leader is not None and not leader.could_be_isr(decision.isr):
            # No controller commits that; what it did commit is asked for again.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if leader is None or leader.image.leader_epoch != proposal.leader_epoch:
            self.forget(proposal.tp)
            return False
        out.append(self._emit("result", proposal, decision.refusal, now_ms))
        if code is ErrorCode.NONE:
            self.forget(proposal.tp)
            return leader.commit_isr(decision)
        self.failed_updates += 1
        if code in REVERTING:
            self.forget(proposal.tp)
            leader.revert_isr(now_ms, REVERT_BACKOFF_MS)
        elif code in FINAL:
            self.forget(proposal.tp)
        else:
            self._retry_at_ms = now_ms + self._state.timings.alter_partition_retry_ms
        return False

    def _emit(self, phase: str, proposal: ProposedIsr, refusal: Refusal | None, now_ms: int) -> Emit:
        event = AlterPartition(
            request_id=self._sequence,
            phase=phase,
            expected_partition_epoch=proposal.partition_epoch,
            proposed_isr=tuple(m.node_id for m in proposal.new_isr),
            error_code=Number(int(refusal.code) if refusal else 0),
            latency_us=None if phase == "proposed" else (now_ms - self._sent_ms) * 1_000,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
        )
        return Emit(proposal.tp, event)
