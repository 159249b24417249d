"""The controllers, one or three, on one store: their machines, and what the rest of a world uses as "the controller".

Invariant: the machines share nothing but the store and the network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from strandline.controller.watches import WatchNews
from strandline.core import messages
from strandline.core.control.messages import ControllerRequest, GetMetadata, WatchMetadata
from strandline.core.control.recovery import position_sent
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.positions import later_of
from strandline.core.reigns.reign import State
from strandline.core.types import NodeEpoch, NodeId, TopicPartition
from strandline_sim.checks.checks import Checks
from strandline_sim.checks.committed import Broken
from strandline_sim.control.checked_driver import recovered_from_nodes
from strandline_sim.control.one_reign import ADDRESSES, Group, Host, Reign
from strandline_sim.control.reigning import ReignProcess
from strandline_sim.control.store import STORE, LeasedStore
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call, Stream
from strandline_sim.world.process import Process
from strandline_sim.world.virtual_loop import Inbox

DECIDES_WITHIN_US = 6_000_000
_ADMINISTERED_EVERY_US = 10_000
MOST_LOST = 8
"""The largest number of entries that a restored store lacks."""


class ControllerMachine(Host):
    """The machine of one controller."""

    process: ReignProcess | None = None
    _life = 0

    def start(self) -> None:
        """Start the process, if there is none."""
        if self.process is None:
            self._life += 1
            self.process = ReignProcess(self, self._life)
            self.world.network.parties[self.address] = self.process
            self.process.start()

    def kill(self) -> bool:
        """End the process at once."""
        process, self.process = self.process, None
        self.is_paused = False
        self.inbox.clear()
        if process is None:
            return False
        self.world.network.break_streams_of(process, silently=False)
        process.end()
        return True

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = self.process is not None

    def resume(self) -> None:
        """SIGCONT: everything that waited happens now."""
        was_paused, self.is_paused = self.is_paused, False
        process = self.process
        if was_paused and process is not None and process.core.state is State.ACTIVE and process.reign is not None:
            inside = not process.reign.is_idle
            self.world.coverage.saw("paused active woke inside an append" if inside else "paused active woke")
        waiting, self.inbox = self.inbox, []
        for each, action, given in waiting:
            self.world.timeline.after(0, each.hand, action, *given)

    def serve(self, request: ControllerRequest, call: Call) -> None:
        """A request arrived."""
        if self.process is not None:
            self.process.serve(request, lambda answer: self.world.network.reply(call, answer))

    def watch_arrived(self, stream: Stream, request: Any) -> None:
        """A node opened a watch."""
        if self.process is not None and self.process is stream.server:
            self.process.watch(stream, request)

    def watch_ended(self, stream: Stream) -> None:
        """A watch ended at this side."""
        if self.process is not None and self.process.reign is not None:
            self.process.reign.watch_ended(stream)


class Controllers(Group):
    """The controllers of a profile, and their store."""

    def __init__(self, world: Cluster, checks: Checks) -> None:
        super().__init__(world, LeasedStore(world, checks.committed_state))
        self.machines = [ControllerMachine(self, name) for name in list(ADDRESSES)[: world.shape.profile.controllers]]
        if len(self.machines) == 1:
            low_us, high_us = world.shape.commit_us
            world.network.sound_us[STORE] = (low_us // 2, high_us // 2)
        self.undecidable: set[TopicPartition] = set()
        """Partitions that a recovery had to leave without a leader."""

    @property
    def is_old(self) -> bool:
        """Whether the store is an older copy."""
        return self.store.is_old

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses at which nodes look for a controller."""
        return tuple(machine.address for machine in self.machines)

    @property
    def active(self) -> ControllerMachine | None:
        """The machine whose process holds the key and serves."""
        for machine in self.machines:
            process = machine.process
            if process is not None and process.reign is not None and process.core.serves(machine.clock.ms()):
                key = self.store.key
                if key is not None and key.token == process.core.token and not machine.is_paused:
                    return machine
        return None

    @property
    def process(self) -> Reign | None:
        """The reign that serves now."""
        machine = self.active
        return machine.process.reign if machine is not None and machine.process is not None else None

    def start(self) -> None:
        """Start every process that is not running."""
        for machine in self.machines:
            machine.start()

    def heal(self) -> None:
        """Undo all faults of controllers and store."""
        self.store.is_full = self.store.loses_answers = self.store.loses_next_named = False
        self.store.watch_lag_us = 0
        self.store.on_part = lambda _: None
        if self.store.is_away:
            self.store.comes_back()
        for machine in self.machines:
            machine.clock.set_rate(1_000)
            machine.resume()
            machine.start()
        self.world.timeline.after(DECIDES_WITHIN_US, self._decides)

    def _decides(self) -> None:
        if self.active is None:
            raise Broken("L9", f"no controller decides {DECIDES_WITHIN_US // 1_000_000} s after everything was healed")

    def end(self) -> None:
        """The run is over."""
        for machine in self.machines:
            if machine.process is not None:
                machine.process.end()

    def kill(self) -> bool:
        """End the active's process, or the first one's if no controller reigns."""
        return (self.active or self.machines[0]).kill()

    def restore(self, pick: int) -> bool:
        """Replace the store by a copy that lacks its last entries, if a node knows one of them (C41)."""
        store = self.store
        if store.is_old or store.is_away or len(store.log) < 2:
            return False
        lost = 1 + pick % min(MOST_LOST, len(store.log) - 1)
        kept = store.log[-1 - lost].after
        nodes = [machine.disk.seen for machine in self.world.machines.values()]
        known = [
            place.metadata_offset for seen in nodes if seen is not None and (place := position_sent(seen)) is not None
        ]
        topics = {topic.topic_id for seen in nodes if seen is not None for topic in seen.topics}
        assert store.state is not None
        if max(known, default=0) <= kept.header.metadata_offset or store.state.topics.keys() - kept.topics - topics:
            return False
        store.restore(lost)
        return True

    def recover(self) -> None:
        """Repair a store that is an older copy, as an operator does: adopt the newest state that nodes have stored."""
        store = self.store
        if not (store.is_old or self.is_stopped):
            return
        self.is_stopped = False
        for machine in self.machines:
            machine.kill()
        recovered, undecidable = recovered_from_nodes(self.world, store.state)
        self.undecidable |= undecidable
        store.hold(recovered)
        self.world.coverage.saw("controller recovered")
        self.world.note("ctl", "recovered from what the nodes have stored")
        self.start()

    def roll_back(self, pick: int) -> bool:
        """As `restore`, but no controller runs or remembers what it has seen: only nodes can notice (TR18)."""
        if not self.restore(pick):
            return False
        for machine in self.machines:
            machine.kill()
            machine.seen_revision = 0
            self.world.network.lose_answers_of(machine.address)
        self.was_rolled_back = True
        self._administer()
        return True

    def _administer(self) -> None:
        """An administrator asks again and again, as long as the store is an older copy (I41)."""
        if self.is_old:
            if self.process is not None:
                self.order(GetMetadata(linearizable=True), self.process.administered)
            self.world.timeline.after(_ADMINISTERED_EVERY_US, self._administer)

    def order(self, request: ControllerRequest, reply: Callable[[Any], None] = lambda _: None) -> None:
        """An operator's request to the active controller."""
        machine = self.active
        if machine is not None and machine.process is not None:
            machine.process.hand(machine.process.serve, request, reply)


# ---- controller link
# Connects a simulated process to the controller (`runtime.ports.Controller`): calls may be lost, late or doubled.
#
# Invariant: a call ends in one answer or in `Refused`; what the network does to it is drawn, not chosen by the caller.


CALL_DEADLINE_US = 400_000


class ControllerLink:
    """One process's calls and its watch."""

    def __init__(
        self,
        controller: Controllers,
        proposed: Callable[[messages.AlterPartitionRequest], int],
        checks: Checks,
        process: Process,
    ) -> None:
        """``proposed`` is called with every proposal, and returns its delay in microseconds."""
        self._process = process
        self._world = process.world
        self._controller = controller
        self._proposed = proposed
        self._checks = checks
        self._last_image_us = 0
        # The controller that was last found to be active.
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
        """While `late_alter` lasts: the delay of a proposal, and when a copy of it arrives; 0 for neither."""
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

    def _found(self) -> tuple[int, ControllerMachine]:
        """The controller to try now."""
        machine = self._controller.machines[self._at % len(self._controller.machines)]
        return machine.address, machine

    def _refused(self, refusal: Refusal) -> Refused:
        """A controller that is not active says nothing about the request: ask the next one."""
        if refusal.code is ErrorCode.NOT_CONTROLLER:
            self._at += 1
            return Refused(ErrorCode.NETWORK_EXCEPTION, refusal.message)
        return Refused.of(refusal)

    async def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: messages.PositionProof | None
    ) -> AsyncGenerator[messages.MetadataImage | None, None]:
        """The metadata: a snapshot first, then every change."""
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
        """Deliver images in order, however late; a process that cannot keep up learns the metadata late (`lag`)."""
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
