"""Decides when a decision of the controller is durable, who hears of it, and what is left of it after a crash.

Invariant: nothing is answered or published before the transactions in front of it are durable; steps that come while
a commit is under way wait behind it and share the next one (as `controller.driver` does). A crash keeps what was
durable, and a commit under way happens as a whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.core.controller_effects import (
    Answer,
    Commit,
    ControllerEffect,
    Emit,
    OpenWatch,
    Publish,
    RefuseCall,
    StopServing,
)
from strandline.core.controller_events import (
    ControllerEvent,
    ControllerStarted,
    ControllerTicked,
    RequestArrived,
    WatchArrived,
)
from strandline.core.controller_messages import ControllerRequest
from strandline.core.controller_state import ClusterState
from strandline.core.store_recovery import GivenNode, recover
from strandline.core.types import NodeEpoch, NodeId
from strandline.sim.draws import Draw, Purpose
from strandline.sim.network import CONTROLLER, Call, Stream

if TYPE_CHECKING:
    from strandline.sim.world import World

TICK_US = 100_000
CLUSTER_ID = "sim"
SECRET = "5d" * 32
BACKUPS = 8


class Controller:
    """The controller's machine: its durable store, and the process if there is one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store: ClusterState | None = None
        self.draw = Draw(world.shape.seed, Purpose.STORE)
        self.process: ControllerProcess | None = None
        # What the store held before, the newest last; a backup may be any of it.
        self._older: deque[ClusterState] = deque(maxlen=BACKUPS)
        # Whether a backup took the store's place, and nobody has recovered from that yet (TR18).
        self.is_old = False

    def start(self) -> None:
        """Read the store and begin a reign."""
        if self.process is None:
            self.process = ControllerProcess(self)
            self.world.network.parties[CONTROLLER] = self.process
            self.process.start()

    def kill(self) -> bool:
        """End the process; a commit under way is durable or was never made."""
        process, self.process = self.process, None
        if process is None:
            return False
        process.alive = False
        if process.committing and self.draw.chance(500):
            process.make_durable()
        self.world.network.break_streams_of(process, silently=False)
        return True

    def keep(self, state: ClusterState) -> None:
        """A commit is durable. What a reign on an old store decides is no decision: the checks do not follow it."""
        before, self.store = self.store, state
        if self.is_old:
            return
        if before is not None:
            self._older.append(before)
        self.world.checks.committed_state(state)

    def roll_back(self, pick: int) -> bool:
        """Put a backup in the store's place, while nobody runs on it."""
        if self.is_old or not self._older:
            return False
        self.kill()
        self.store, self.is_old = self._older[pick % len(self._older)], True
        return True

    def recover(self) -> None:
        """What an operator does (`strandline controller recover`): adopt the newest that the nodes have stored."""
        if not self.is_old:
            return
        self.kill()
        given = [
            GivenNode(node_id=machine.node_id, directory_id=machine.disk.directory_id, image=machine.disk.seen)
            for machine in self.world.machines.values()
            if machine.disk.seen is not None
        ]
        self.is_old = False
        self._older.clear()
        self.world.checks.metadata.begin_anew()
        self.keep(recover(given, self.store))
        self.world.coverage.saw("controller recovered")
        self.world.note("ctl", "recovered from what the nodes have stored")
        self.start()

    def stopped_serving(self, reason: str) -> None:
        """A reign found out that its store is too old; an operator hears of it."""
        self.world.coverage.saw("controller stopped serving")
        self.world.note("ctl", f"serves no more: {reason}")
        self.world.timeline.after(self.draw.between(50_000, 400_000), self.recover)

    def serve(self, request: ControllerRequest, call: Call) -> None:
        """A request arrived."""
        if self.process is not None:
            self.process.serve(request, lambda answer: self.world.network.reply(call, answer))

    def watch_arrived(self, stream: Stream, request: Any) -> None:
        """Somebody opened a watch."""
        if self.process is not None and self.process is stream.server:
            self.process.watch(stream, request)

    def watch_ended(self, stream: Stream) -> None:
        """A watch ended at this side."""
        if self.process is not None:
            self.process.watches.pop(stream.number, None)

    def order(self, request: ControllerRequest) -> None:
        """An operator's request, given on the controller's own machine."""
        if self.process is not None:
            self.process.serve(request, _ignored)


class ControllerProcess:
    """One reign."""

    def __init__(self, machine: Controller) -> None:
        world = machine.world
        self.machine = machine
        self.world = world
        self.party_id = CONTROLLER
        self.alive = True
        self.committing: list[ControllerEffect] = []
        self.watches: dict[int, tuple[Stream, NodeId | None, NodeEpoch | None]] = {}
        self.core = world.build.controller_core(machine.store, world.rules, world.controller_timings)
        self._pending: list[ControllerEffect] = []
        self._calls: dict[int, Callable[[Any], None]] = {}
        self._opening: dict[int, Stream] = {}
        self._next_request = 0

    @property
    def now_ms(self) -> int:
        """The controller's clock, which is the world's."""
        return self.world.timeline.now_us // 1000

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Do something, unless the process is gone."""
        if self.alive:
            action(*given)

    def start(self) -> None:
        """Begin the reign."""
        self.step(ControllerStarted(self.now_ms, CLUSTER_ID, SECRET))
        self._tick()

    def _tick(self) -> None:
        if self.alive:
            self.world.timeline.after(TICK_US, self._tick)
            self.step(ControllerTicked(self.now_ms))

    def serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        """Step a request; ``reply`` takes its answer or refusal, after the commit in front of it."""
        self._next_request += 1
        self._calls[self._next_request] = reply
        self.step(RequestArrived(self.now_ms, self._next_request, request))

    def watch(self, stream: Stream, request: Any) -> None:
        """Step the opening of a watch."""
        self._next_request += 1
        self._opening[self._next_request] = stream
        self.step(WatchArrived(self.now_ms, self._next_request, request))

    def step(self, event: ControllerEvent) -> None:
        """Let an event happen; effects without a commit in front of them are performed at once."""
        world = self.world
        world.events += 1
        effects = self.core.step(event)
        if world.recorder is not None:
            world.recorder.controller_stepped(event, effects)
        self.take(effects)

    def take(self, effects: list[ControllerEffect]) -> None:
        """Perform the effects of a step when what stands before them is durable."""
        if self.committing or self._pending or any(type(effect) is Commit for effect in effects):
            self._pending += effects
            self._begin_commit()
        else:
            self._perform(effects)

    def elect(self, tp: Any, node_id: Any) -> None:
        """Move leadership to a member of the ISR, as an operator's tool would."""
        self.take(self.core.elect(tp, node_id))

    def _begin_commit(self) -> None:
        if self.committing or not self._pending:
            return
        self.committing, self._pending = self._pending, []
        delay_us = self.machine.draw.between(*self.world.shape.commit_us)
        self.world.timeline.after(delay_us, self.hand, self._committed)

    def make_durable(self) -> None:
        """Apply the transactions under way to the store, all of them."""
        for effect in self.committing:
            if isinstance(effect, Commit):
                store = self.machine.store or ClusterState(header=effect.transaction.header)
                self.machine.keep(store.apply(effect.transaction))

    def _committed(self) -> None:
        self.make_durable()
        effects, self.committing = self.committing, []
        self._perform(effects)
        self._begin_commit()

    def _perform(self, effects: list[ControllerEffect]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    continue
                case Answer():
                    self._calls.pop(effect.request_id)(effect.answer)
                case RefuseCall():
                    self._refuse(effect)
                case OpenWatch():
                    self._open_watch(effect)
                case Publish():
                    self._publish(effect)
                case Emit():
                    self.world.checks.controller_emitted(effect)
                    if self.world.recorder is not None:
                        self.world.recorder.controller_told(self.core.state, effect, self.now_ms)
                case StopServing():
                    self.machine.stopped_serving(effect.reason)

    def _refuse(self, effect: RefuseCall) -> None:
        stream = self._opening.pop(effect.request_id, None)
        if stream is not None:
            self.world.network.send_down(stream, effect.refusal)
            self.world.network.close(stream, by_opener=False)
            return
        self._calls.pop(effect.request_id)(effect.refusal)

    def _open_watch(self, effect: OpenWatch) -> None:
        stream = self._opening.pop(effect.request_id)
        if stream.open_at_server:
            self.watches[stream.number] = (stream, effect.node_id, effect.node_epoch)
            self.world.network.send_down(stream, effect.snapshot)

    def _publish(self, effect: Publish) -> None:
        for stream, node_id, node_epoch in self.watches.values():
            position = effect.position_for(node_id, node_epoch)
            self.world.network.send_down(stream, replace(effect.image, to_node_epoch=node_epoch, position=position))


def _ignored(_: object) -> None:
    return None
