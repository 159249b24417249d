"""Decides when a node reports its logs to the controller, and which (M65, M69).

Invariants: only a log that is durable up to its end is reported, and only while its partition has no leader, or while
this replica refuses to cut to its leader's log; one report is under way at a time; what the controller took is not
sent again until the partition's leader epoch or the controller changes.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.effects import Effect, SendReplicaLogs
from strandline.core.events import ReplicaLogsAnswered
from strandline.core.messages import ReplicaLogInfo, ReportReplicaLogs
from strandline.core.node_state import NodeState
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

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
        """The controller is another one, and knows nothing of what was reported."""
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
