"""How a simulated process reaches the controller (`runtime.ports.Controller`): calls that may be lost, late or doubled.

Invariant: a call ends in one answer or in `Refused`; what the network did to it is drawn, never chosen by the caller.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from strandline.controller.watches import WatchNews
from strandline.core import messages
from strandline.core.control.messages import WatchMetadata
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.positions import later_of
from strandline.core.types import NodeEpoch, NodeId
from strandline_sim.checks.checks import Checks
from strandline_sim.control.controller import Controller
from strandline_sim.control.controllers import ControllerMachine, Controllers
from strandline_sim.world.network import CONTROLLER, Stream
from strandline_sim.world.process import Process
from strandline_sim.world.virtual_loop import Inbox

CALL_DEADLINE_US = 400_000


class ControllerLink:
    """One process's calls and its watch."""

    def __init__(
        self,
        controller: Controller | Controllers,
        proposed: Callable[[messages.AlterPartitionRequest], int],
        checks: Checks,
        process: Process,
    ) -> None:
        """``proposed``: called with every proposal; returns by how much it is late, in microseconds."""
        self._process = process
        self._world = process.world
        self._controller = controller
        self._proposed = proposed
        self._checks = checks
        self._last_image_us = 0
        # Which of several controllers was last found to decide.
        self._at = 0

    async def register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        """Ask for a node epoch."""
        answer: messages.NodeRegistered = await self._ask(request, copies=True)
        self._count(answer.refusal, "registration")
        return answer

    async def heartbeat(self, request: messages.Heartbeat, deadline_ms: int) -> messages.HeartbeatAnswer:
        """Send a sign of life."""
        answer: messages.HeartbeatAnswer = await self._ask(request, deadline_us=deadline_ms * 1_000)
        self._count(answer.refusal, "heartbeat")
        return answer

    def _count(self, refusal: Refusal | None, what: str) -> None:
        if refusal is not None:
            self._world.coverage.saw(f"{what} refused: {refusal.code.name}")

    async def alter_partition(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionAnswer:
        """Propose ISRs."""
        extra_us, copy_us = self._mishaps() if self._world.network.late_alter else (0, 0)
        struck_us = self._proposed(request)
        if struck_us:
            self._world.coverage.saw("alter late")
            extra_us = struck_us
        answer: messages.AlterPartitionAnswer = await self._ask(
            request, copies=True, extra_us=extra_us, copy_us=copy_us
        )
        self._checks.alter_answered(answer)
        return answer

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

    async def report_logs(self, request: messages.ReportReplicaLogs) -> messages.ReplicaLogsReported:
        """Report what logs hold."""
        answer: messages.ReplicaLogsReported = await self._ask(request, copies=True)
        refusal = answer.refusal
        self._world.coverage.saw("logs reported" if refusal is None else f"report refused: {refusal.code.name}")
        return answer

    async def _ask(
        self,
        request: Any,
        *,
        deadline_us: int = CALL_DEADLINE_US,
        copies: bool = False,
        extra_us: int = 0,
        copy_us: int = 0,
    ) -> Any:
        process = self._process
        address, controller = self._found()
        serve = partial(controller.serve, request)
        try:
            answer = await process.call(
                address, serve, deadline_us=deadline_us, copies=copies, extra_us=extra_us, copy_us=copy_us
            )
        except Refused:
            self._at += 1
            raise
        if isinstance(answer, Refusal):
            raise self._refused(answer)
        return answer

    def _found(self) -> tuple[int, Controller | ControllerMachine]:
        """The controller that is tried now."""
        group = self._controller
        if not isinstance(group, Controllers):
            return CONTROLLER, group
        address = group.addresses[self._at % len(group.addresses)]
        return address, group.at(address)

    def _refused(self, refusal: Refusal) -> Refused:
        """One that does not decide says nothing about the request: the next one is asked."""
        if isinstance(self._controller, Controllers) and refusal.code is ErrorCode.NOT_CONTROLLER:
            self._at += 1
            return Refused(ErrorCode.NETWORK_EXCEPTION, refusal.message)
        return Refused.of(refusal)

    async def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: messages.PositionProof | None
    ) -> AsyncGenerator[messages.MetadataImage | None, None]:
        """Metadata as it changes, a snapshot first."""
        network, inbox = self._world.network, Inbox(self._world.loop)
        address, controller = self._found()
        stream = network.open_stream(
            self._process,
            address,
            on_up=controller.watch_arrived,
            on_down=partial(self._arrived, inbox),
            on_end_at_opener=lambda _: inbox.end("the watch broke"),
            on_end_at_server=controller.watch_ended,
        )
        if stream is None:
            self._at += 1
            raise Refused(ErrorCode.NETWORK_EXCEPTION, "no connection to the controller")
        asked = WatchMetadata(cluster_id=cluster_id, node_id=node_id, node_epoch=node_epoch, position=position)
        network.send_up(stream, asked)
        try:
            while True:
                message = await inbox.next()
                if isinstance(message, Refusal):
                    raise self._refused(message)
                yield _image_of(message)
        finally:
            if stream.open_at_opener:
                network.close(stream, by_opener=True)

    def _arrived(self, inbox: Inbox, stream: Stream, message: Any) -> None:
        """Images that are late stay in order; a process that cannot keep up learns the world late (`lag`)."""
        self._process.arrived = later_of(self._process.arrived, getattr(message, "position", None))
        timeline = self._world.timeline
        at_us = max(timeline.now_us + self._process.machine.lag_us, self._last_image_us)
        self._last_image_us = at_us
        if at_us > timeline.now_us:
            timeline.at(at_us, self._process.hand, inbox.put, message)
        else:
            inbox.put(message)


def _image_of(message: WatchNews[messages.MetadataImage]) -> messages.MetadataImage | None:
    if message.metadata is None:
        return None
    return replace(message.metadata, to_node_epoch=message.node_epoch, position=message.position)
