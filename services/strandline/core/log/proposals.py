"""Decides when ISR proposals are sent to the controller, and what each answer means for the proposing leader.

Invariants: one request in flight per node, one proposal per partition; every attempt carries a higher
sequence and the current controller epoch, and only the latest attempt's answer counts (TR16); the
content of a proposal is frozen when it is made (TR10).
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Effect, Emit, Halt, RefreshMetadata, SendAlterPartition, SendReplicaLogs
from strandline.core.log.events import AlterPartitionAnswered, AlterPartitionFailed, ReplicaLogsAnswered
from strandline.core.log.state import NodeState
from strandline.core.messages import AlterPartitionRequest, IsrDecision, ProposedIsr, ReplicaLogInfo, ReportReplicaLogs
from strandline.core.state_events import AlterPartition, Number
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

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

# Without this pause the next counted fetch of the refused replica would propose it again at once.
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
        """Add a proposal; it is sent at the end of the step, if no request is in flight."""
        self.waiting[proposal.tp] = proposal

    def forget(self, tp: TopicPartition) -> None:
        """New metadata ended whatever was proposed for ``tp``; an answer still under way no longer counts."""
        self.waiting.pop(tp, None)

    def maybe_send(self, now_ms: int, out: list[Effect]) -> None:
        """Send everything that waits as one new attempt, unless one is in flight or backing off."""
        if self._in_flight is not None or not self.waiting or now_ms < self._retry_at_ms:
            return
        # A repeated proposal gets a new number, so that a late copy of the abandoned attempt is refused (TR16).
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
                # Another proposal used the number. This one was not looked at, so it goes out again at once, with a
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


# ---- log_reporter
# Decides when a node reports its logs to the controller, and which (M65, M69).
#
# Invariants: only a log that is durable up to its end is reported, and only while its partition has no leader, or while
# this replica refuses to cut to its leader's log; one report is under way at a time; what the controller took is not
# sent again until the partition's leader epoch or the controller changes.

MAX_LOGS = 1_000
MAX_EPOCHS = 20_000
"""How many logs, and how many epochs of them, one report holds; with both it stays far below a message's limit."""

RETRY_MS = 500
"""How long after a failed report the next one is sent."""


class _Reported(NamedTuple):
    """What the controller was sent, as far as it matters whether to send it again."""

    controller_epoch: int
    leader_epoch: LeaderEpoch
    refused_cut_to: Offset | None


class LogReporter:
    """The reports of one node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._reported: dict[TopicPartition, _Reported] = {}
        self._under_way: dict[TopicPartition, _Reported] | None = None
        self._report_id = 0
        self._retry_at_ms = 0

    def consider_all(self) -> None:
        """The controller has changed, and does not know what was reported."""
        for tp, follower in self._state.followers.items():
            if follower.leader is None or follower.refused_cut_to is not None:
                self._state.unreported[tp] = None

    def forget(self, tp: TopicPartition) -> None:
        """The partition is no longer this node's."""
        self._state.unreported.pop(tp, None)
        self._reported.pop(tp, None)

    def maybe_send(self, now_ms: int, out: list[Effect]) -> None:
        """Send what is wanted and ready, unless a report is under way or failed a moment ago."""
        if not self._state.unreported or self._under_way is not None or now_ms < self._retry_at_ms:
            return
        logs: list[ReplicaLogInfo] = []
        sent: dict[TopicPartition, _Reported] = {}
        room = MAX_EPOCHS
        for tp in tuple(self._state.unreported):
            key = self._key(tp)
            if key is None or key == self._reported.get(tp):
                del self._state.unreported[tp]
                continue
            log = self._state.logs[tp]
            # An election counts on what is reported, so nothing is reported that a power loss may still take (M65).
            if not log.is_settled:
                continue
            if logs and (len(logs) == MAX_LOGS or len(log.epochs.entries) > room):
                break
            room -= len(log.epochs.entries)
            sent[tp] = key
            logs.append(self._info(tp, key))
        if logs:
            self._send(tuple(logs), sent, out)

    def _key(self, tp: TopicPartition) -> _Reported | None:
        follower = self._state.followers.get(tp)
        if not self._state.truncation.proves_members:
            # Under a historic rule elections ask for no logs, and a cut below the HW is done, not refused.
            return None
        if follower is None or self._state.node_id not in follower.image.replicas:
            return None
        if follower.leader is not None and follower.refused_cut_to is None:
            return None
        return _Reported(self._state.controller_epoch, follower.leader_epoch, follower.refused_cut_to)

    def _info(self, tp: TopicPartition, key: _Reported) -> ReplicaLogInfo:
        log = self._state.logs[tp]
        return ReplicaLogInfo(
            tp=tp,
            leader_epoch=key.leader_epoch,
            log_start_offset=log.log_start_offset,
            leo=log.leo,
            epochs=log.epochs.entries,
            reconciled_epoch=log.reconciled_epoch,
            high_watermark=log.hw,
            refused_cut_to=key.refused_cut_to,
        )

    def _send(self, logs: tuple[ReplicaLogInfo, ...], sent: dict[TopicPartition, _Reported], out: list[Effect]) -> None:
        self._report_id += 1
        self._under_way = sent
        identity = self._state.identity
        request = ReportReplicaLogs(
            cluster_id=self._state.cluster_id, node_id=identity.node_id, node_epoch=identity.node_epoch, logs=logs
        )
        out.append(SendReplicaLogs(self._report_id, request))

    def answered(self, event: ReplicaLogsAnswered, _: list[Effect]) -> None:
        """The controller took the report, or it is sent again after a while."""
        if event.report_id != self._report_id or self._under_way is None:
            return
        sent, self._under_way = self._under_way, None
        if event.refusal is None:
            self._reported |= sent
        else:
            self._retry_at_ms = event.now_ms + RETRY_MS
