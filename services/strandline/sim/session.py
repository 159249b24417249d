"""Decides how a process stays a member of its cluster: registration, heartbeats, the metadata watch, its proposals.

Invariant: a process registers once in its life, after recovery (as `runtime.session` does).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from strandline.core import events
from strandline.core.controller_messages import WatchMetadata
from strandline.core.effects import BelieveMetadata, RefreshMetadata, SendAlterPartition, SendReplicaLogs
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import (
    AlterPartitionAnswer,
    Endpoint,
    EpochsSeen,
    Heartbeat,
    HeartbeatAnswer,
    MetadataImage,
    NodeRegistered,
    PositionProof,
    RegisterNode,
    ReplicaLogsReported,
)
from strandline.sim.network import CONTROLLER, Stream

if TYPE_CHECKING:
    from strandline.sim.process import Process

CALL_DEADLINE_US = 400_000
RETRY_US = (20_000, 150_000)

_NO_ANSWER = Refusal(ErrorCode.REQUEST_TIMED_OUT, "no answer")


class Session:
    """One process's membership."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._watch: Stream | None = None
        self.metadata_offset = -1
        self.is_fenced = True
        self.is_stopping = False
        self._last_heard_us = 0
        self._position: PositionProof | None = None
        self._incarnation_id = f"life-{process.node_id}-{process.life}"
        self._known_incarnations: tuple[str, ...] = ()

    def register(self) -> None:
        """Write this process down, then ask for a node epoch until there is one."""
        self._known_incarnations = self._process.disk.begin_incarnation(self._incarnation_id)
        self._register()

    def _register(self) -> None:
        self._ask(self._registration(), self._registered, copies=True)

    def _registration(self) -> RegisterNode:
        process = self._process
        seen = process.disk.seen
        seen_partitions = [p for topic in seen.topics for p in topic.partitions] if seen else []
        endpoint = Endpoint("node", int(process.node_id))
        return RegisterNode(
            node_id=process.node_id,
            cluster_id=process.disk.cluster_id,
            incarnation_id=self._incarnation_id,
            directory_id=process.disk.directory_id,
            roles=process.machine.roles,
            rules=self._world.rules,
            client_endpoint=endpoint,
            internal_endpoint=endpoint,
            unclean=process.disk.is_unclean,
            controller_epoch_seen=seen.controller_epoch if seen else None,
            epochs_seen=tuple(EpochsSeen(p.tp, p.leader_epoch, p.partition_epoch) for p in seen_partitions),
            known_incarnations=self._known_incarnations,
            position=seen.position if seen else None,
        )

    def _registered(self, answer: Any) -> None:
        if self._process.is_registered:
            return
        if not isinstance(answer, NodeRegistered) or answer.refusal is not None:
            refusal = answer if isinstance(answer, Refusal) else answer.refusal if answer is not None else None
            if refusal is not None:
                self._world.coverage.saw(f"registration refused: {refusal.code.name}")
                if not refusal.retriable:
                    self._process.machine.halted(f"registration refused: {refusal}")
                    return
            self._later(self._register)
            return
        self._begin(answer)

    def _begin(self, answer: NodeRegistered) -> None:
        process = self._process
        assert answer.node_epoch is not None
        process.is_registered = True
        self._world.checks.registered(process, answer.node_epoch)
        process.disk.cluster_id, process.disk.is_unclean = answer.cluster_id, False
        process.disk.confirm_incarnation(self._incarnation_id)
        process.step(events.Registered(process.now_ms, answer.cluster_id, answer.node_epoch, answer.controller_epoch))
        self._beat()
        self._open_watch()

    def _beat(self) -> None:
        process = self._process
        state = process.core.state
        assert state.node_epoch is not None
        heartbeat = Heartbeat(
            cluster_id=state.cluster_id,
            node_id=process.node_id,
            node_epoch=state.node_epoch,
            metadata_offset=self.metadata_offset,
            want_shut_down=self.is_stopping,
            position=self._position,
        )
        self._ask(heartbeat, self._beaten)
        own_ms = self._world.controller_timings.heartbeat_interval_ms
        self._world.timeline.after(process.machine.clock.world_us(own_ms), process.hand, self._beat)

    def _beaten(self, answer: Any) -> None:
        if isinstance(answer, Refusal):
            self._refused(answer)
        elif isinstance(answer, HeartbeatAnswer):
            if answer.refusal is not None:
                self._refused(answer.refusal)
                return
            self.is_fenced = answer.is_fenced
            if answer.should_shut_down:
                self._process.machine.stop_now(self._process)

    def _refused(self, refusal: Refusal) -> None:
        self._world.coverage.saw(f"heartbeat refused: {refusal.code.name}")
        if refusal.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INCONSISTENT_CLUSTER_ID):
            self._process.machine.halted(str(refusal))

    def _open_watch(self) -> None:
        process = self._process
        stream = self._world.network.open_stream(
            process, CONTROLLER, on_up=self._world.controller.watch_arrived, on_down=self._told,
            on_end_at_opener=self._watch_ended, on_end_at_server=self._world.controller.watch_ended,
        )  # fmt: skip
        if stream is None:
            self._later(self._open_watch)
            return
        self._watch = stream
        state = process.core.state
        request = WatchMetadata(cluster_id=state.cluster_id, node_id=process.node_id, node_epoch=state.node_epoch)
        self._world.network.send_up(stream, request)

    def _told(self, stream: Stream, image: Any) -> None:
        if stream is not self._watch:
            return
        if isinstance(image, Refusal):
            self._refused(image)
            return
        delay_us = self._process.machine.lag_us
        if delay_us:
            at_us = max(self._world.timeline.now_us + delay_us, self._last_heard_us)
        else:
            at_us = max(self._world.timeline.now_us, self._last_heard_us)
        self._last_heard_us = at_us
        if at_us > self._world.timeline.now_us:
            self._world.timeline.at(at_us, self._process.hand, self._learn, image)
        else:
            self._learn(image)

    def _learn(self, image: MetadataImage) -> None:
        process = self._process
        process.step(events.MetadataArrived(process.now_ms, image))

    def believe(self, effect: BelieveMetadata) -> None:
        """The core believed an image; heartbeats name its position from now on."""
        self.metadata_offset = effect.image.metadata_offset
        self._position = effect.image.position

    def _watch_ended(self, stream: Stream) -> None:
        if stream is self._watch:
            self._watch = None
            self._later(self._open_watch)

    def refresh(self, _: RefreshMetadata | None = None) -> None:
        """Open the watch anew."""
        if self._watch is not None:
            watch, self._watch = self._watch, None
            self._world.network.close(watch, by_opener=True)
            self._later(self._open_watch)

    def alter_partition(self, effect: SendAlterPartition) -> None:
        """Propose ISRs; ends in exactly one event."""
        request = effect.request
        extra_us, copy_us = self._mishaps() if self._world.network.late_alter else (0, 0)
        struck_us = self._world.faults.joiner.proposed(request)
        if struck_us:
            self._world.coverage.saw("alter late")
            extra_us = struck_us
        done = partial(self._altered, request.request_sequence)
        self._ask(request, done, copies=True, extra_us=extra_us, copy_us=copy_us)

    def _mishaps(self) -> tuple[int, int]:
        """While `late_alter` lasts: by how much a proposal is late, and when a copy of it arrives; 0 for not."""
        draw, saw = self._process.machine.draw, self._world.coverage.saw
        extra_us = draw.between(50_000, 1_500_000) if draw.chance(500) else 0
        copy_us = draw.between(1_000, 1_500_000) if draw.chance(500) else 0
        if extra_us:
            saw("alter late")
        if copy_us:
            saw("alter twice")
        return extra_us, copy_us

    def _altered(self, sequence: int, answer: Any) -> None:
        process = self._process
        if answer is None:
            process.step(events.AlterPartitionFailed(process.now_ms, sequence, "no answer"))
            return
        if isinstance(answer, Refusal):
            answer = AlterPartitionAnswer(refusal=answer)
        self._world.checks.alter_answered(answer)
        process.step(events.AlterPartitionAnswered(process.now_ms, sequence, answer))

    def report_logs(self, effect: SendReplicaLogs) -> None:
        """Report logs to the controller; ends in exactly one event."""
        self._ask(effect.request, partial(self._reported, effect.report_id), copies=True)

    def _reported(self, report_id: int, answer: Any) -> None:
        process = self._process
        refusal = answer.refusal if isinstance(answer, ReplicaLogsReported) else answer or _NO_ANSWER
        self._world.coverage.saw("logs reported" if refusal is None else f"report refused: {refusal.code.name}")
        process.step(events.ReplicaLogsAnswered(process.now_ms, report_id, refusal))

    def _ask(self, request: Any, done: Any, *, copies: bool = False, extra_us: int = 0, copy_us: int = 0) -> None:
        controller = self._world.controller
        self._world.network.call(
            self._process, CONTROLLER, partial(controller.serve, request), done, deadline_us=CALL_DEADLINE_US,
            copies=copies, extra_us=extra_us, copy_us=copy_us,
        )  # fmt: skip

    def _later(self, action: Any) -> None:
        delay_us = self._process.machine.draw.between(*RETRY_US)
        self._world.timeline.after(delay_us, self._process.hand, action)
