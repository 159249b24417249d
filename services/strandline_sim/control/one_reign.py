"""One hold of the key by one simulated process: the production controller and its driver over the store.

Invariant: what the reign stores, sends and decides is checked as it happens (I20, I23, I24); a reign that ends leaves
no task behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from strandline.controller.watches import Watch, Watches
from strandline.core.control.events import ControllerStarted, ControllerTicked, DoorsOpened
from strandline.core.control.messages import ControllerRequest, WatchMetadata
from strandline.core.control.recovery import position_sent
from strandline.core.control.state import ClusterState, Standing, Transaction, standing
from strandline.core.errors import Refusal, Refused
from strandline.core.log.effects import Emit
from strandline.core.messages import MetadataImage, Position, PositionProof
from strandline.core.reigns.effects import AppendSettled, Settled
from strandline.core.reigns.events import AppendAsked, Head, ReignEvent
from strandline.core.reigns.lease import ReignTimings
from strandline.core.reigns.reign import ReignCore
from strandline.core.state_events import NodeSession, StateEvent
from strandline.core.types import TopicPartition
from strandline.metadata.etcd_layout import TransactionBatch, batches
from strandline_sim.checks.committed import Broken
from strandline_sim.control.checked_driver import CheckedDriver, CountedCore, Notes, as_it_is, stop
from strandline_sim.control.store import LeasedStore
from strandline_sim.world.clock import Clock
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import CONTROLLER, Stream
from strandline_sim.world.virtual_loop import Life

CLUSTER_ID = "sim"
SECRET = "5d" * 32
TICK_MS = 100
_WATCH_BACKLOG = 1_000
_ALIVE_HEARTBEATS = 4
"""Heartbeat intervals after which a watch without changes sends a sign of life."""

# ---- group
# The environment of a controller's process: its machine, the shared store, and what nodes were sent.
#
# Invariant: the machines share nothing but the store and the network.


ADDRESSES = {f"c{number + 1}": CONTROLLER - number for number in range(3)}
"""The address of each controller, by name."""
RECOVERS_WITHIN_US = 300_000
TIMINGS = ReignTimings(lease_ms=2_000)


class Group:
    """The store that the controllers share, and the decisions that nodes were sent."""

    def __init__(self, world: Cluster, store: LeasedStore) -> None:
        self.world = world
        self.store = store
        self.was_rolled_back = False
        """Whether the store was once replaced while no controller ran; a recovery may miss what only a node holds."""
        self.is_stopped = False
        """Whether a reign stopped serving since the last recovery."""
        self.sent: dict[str, int] = {}
        """The last offset of each reign that a node was sent (I23)."""

    def note_sent(self, position: Position | PositionProof | None) -> None:
        """A node is sent a position."""
        if position is not None:
            self.sent[position.reign_id] = max(position.metadata_offset, self.sent.get(position.reign_id, 0))

    def recover_soon(self) -> None:
        """An operator learns that the store is too old."""
        self.world.timeline.after(RECOVERS_WITHIN_US, self.recover)

    def recover(self) -> None:
        """Repair a store that is an older copy, as an operator does."""
        raise NotImplementedError


class Host:
    """The machine of a controller's process."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.world = group.world
        self.name = name
        self.address = ADDRESSES[name]
        self.clock = Clock(group.world.timeline, start_ms=50_000_000 * (CONTROLLER - self.address))
        self.is_paused = False
        self.inbox: list[tuple[Any, Callable[..., object], tuple[Any, ...]]] = []
        self.seen_revision = 0
        """The store revision saved on its disk (C40)."""


class Candidate:
    """A controller's process, whether it reigns or not."""

    reign: object = None

    def __init__(self, machine: Host, life: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.party_id = machine.address
        self.name = machine.name
        self.incarnation = f"{machine.name}-{life}"
        self.alive = True
        self.loop = machine.world.loop
        self.clock = machine.clock
        self.core = ReignCore(self.name, self.incarnation, TIMINGS, machine.seen_revision)
        self._running = Life(self.loop, self.clock, self.hand)

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Run an action now, or when the process resumes."""
        if not self.alive:
            return
        if self.machine.is_paused:
            self.machine.inbox.append((self, action, given))
            return
        self._running.enter(action, *given)

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task."""
        return self.loop.own(work)

    def take(self, event: ReignEvent) -> None:
        """Step the core with an event, and with all that follows from it at once."""
        raise NotImplementedError

    def settled(self, batch: TransactionBatch, head: Head) -> None:
        """A batch of the reign is stored."""
        raise NotImplementedError


class Reign:
    """One hold of the key by one process: `ControllerCore` and the services' driver."""

    def __init__(self, process: Candidate, state: ClusterState | None, head: Head | None, token: int) -> None:
        self.world = world = process.world
        self.process = process
        self.core = world.build.controller_core(state, world.rules, world.controller_timings)
        self.counted = CountedCore(world, self.core)
        self._began_us = world.timeline.now_us
        self._watching: dict[int, tuple[Stream, asyncio.Task[None]]] = {}
        self.driver = CheckedDriver(
            world,
            self.counted,
            self,
            clock=process.clock.ms,
            sink=self,
            watches=Watches(_WATCH_BACKLOG, as_it_is),
            stop=stop,
            log=Notes(world),
        )
        self.token = token
        # A store that went back in time gives the same tokens again.
        self._restored = process.machine.group.store.restored
        self.reign_id = f"{self._restored:016x}{token:016x}"
        self.batch: TransactionBatch | None = None
        self._settled: asyncio.Future[Settled] | None = None
        self._wanted: Head | None = None
        self._stored = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._opened_ms: int | None = None
        self.driver.on_stop_serving = self._stopped_serving
        self.driver.may_decide = lambda: process.reign is self and process.core.serves(process.clock.ms())

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Pass a state event (`controller.driver.Sink`) to the checks and the recorder, and check I24."""
        if isinstance(event, NodeSession) and event.phase == "fence" and event.cause == "session_timeout":
            self.fenced(self.world.controller_timings.session_timeout_ms)
        world, emit = self.world, Emit(tp, event)
        world.metadata.reported(emit)
        world.recorder.controller_reported(self.core.state, emit, self.driver.clock())

    def _stopped_serving(self, reason: str) -> None:
        group = self.process.machine.group
        if group.store.is_old or group.was_rolled_back:
            group.is_stopped = True
            self.world.coverage.saw("restored store noticed by a node")
            group.recover_soon()
            return
        raise Broken("I0", f"a sound store is not believed: {reason}")

    async def idle(self) -> None:
        """Wait until nothing waits to be stored; if the reign ends meanwhile, this never returns."""
        while not self.is_idle:
            await self._stored.wait()
            self._stored.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be stored."""
        return self._settled is None and not self.driver._pending

    def start(self) -> None:
        """Begin the reign."""
        self.driver.step(ControllerStarted(self.process.clock.ms(), CLUSTER_ID, SECRET, self.reign_id))
        self.own(self.driver.perform_forever())
        self.own(self._tick_forever())

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task of the reign."""
        task = self.process.own(work)
        self._tasks = [*(each for each in self._tasks if not each.done()), task]
        return task

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1_000)
            now_ms = self.process.clock.ms()
            if self.process.core.serves(now_ms):
                self.driver.step(ControllerTicked(now_ms))

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable (`controller.driver.Store`); a reign that ends meanwhile never returns."""
        process = self.process
        for batch in batches(self.reign_id, transactions, part_bytes=process.machine.group.store.limits.part_bytes):
            self.batch, self._wanted = batch, batch.head
            self._settled = process.loop.create_future()
            process.take(AppendAsked(process.clock.ms(), batch.head))
            settled = await self._settled
            self._settled = None
            if settled is not Settled.DONE:
                self._stored.set()
                # The core of this reign is about to be dropped, and this task with it.
                await process.loop.create_future()
        self._stored.set()

    def settled(self, effect: AppendSettled) -> None:
        """The batch is stored, or not, or its outcome is unknown."""
        assert effect.head == self._wanted and self._settled is not None
        self.world.coverage.saw(f"append settled: {effect.settled.value}")
        store = self.process.machine.group.store
        is_stored = effect.head.digest in store.digests
        if effect.settled is not Settled.UNCERTAIN and (effect.settled is Settled.DONE) != is_stored:
            raise Broken("I20", f"{effect.head} is settled as {effect.settled.value}")
        if effect.settled is Settled.REFUSED:
            store.refused.add(effect.head.digest)
        if effect.settled is Settled.DONE:
            assert self.batch is not None
            self.process.settled(self.batch, effect.head)
        if not self._settled.done():
            self._settled.set_result(effect.settled)

    def fenced(self, session_timeout_ms: int) -> None:
        """A node was fenced for its silence.

        Raises:
            Broken: I24, it had no full session of this reign.
        """
        if self._opened_ms is None or self.process.clock.ms() < self._opened_ms + session_timeout_ms:
            raise Broken("I24", f"{self.process.name} fenced a node within one session after it took over")

    def open_doors(self, closed_ms: int) -> None:
        """Serve from now on."""
        now_ms = self.process.clock.ms()
        if self._opened_ms is None:
            self._opened_ms = now_ms
            self._know_what_was_sent()
        self.driver.step(DoorsOpened(now_ms, closed_ms))

    def _know_what_was_sent(self) -> None:
        """I23: everything that a node was ever sent is part of the history that a reign begins to serve."""
        state, store = self.core.state, self.process.machine.group.store
        if store.is_old and self.process.core.revision <= store.revision:
            # The controller cannot know that this is a copy; the nodes do, and end this reign (C35).
            return
        for reign_id, offset in self.process.machine.group.sent.items():
            if standing(state.reigns, state.header.metadata_offset, Position(reign_id, offset)) is Standing.UNKNOWN:
                what = f"offset {offset} of reign {reign_id}, which a node was sent"
                raise Broken("I23", f"{self.process.name} serves and does not know {what}")

    def drop(self) -> None:
        """End everything of this reign."""
        network = self.world.network
        for task in self._tasks:
            task.cancel()
        for stream, task in self._watching.values():
            task.cancel()
            network.close(stream, by_opener=False)

    def serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        """Step a request; ``reply`` takes its answer or refusal, after the commit that precedes it."""
        self.own(self._serve(request, reply))

    async def _serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        try:
            answer: object = await self.driver.request(request, object)
        except Refused as error:
            answer = error.refusal
        self.process.machine.group.note_sent(getattr(answer, "position", None))
        reply(answer)

    def administered(self, answer: object) -> None:
        """I41: on an older store, an administrator is answered only after a node has called, or after a session."""
        if isinstance(answer, Refusal):
            self.world.coverage.saw(f"administrator refused: {answer.code.name}")
            return
        age_ms = (self.world.timeline.now_us - self._began_us) // 1_000
        is_early = not self.counted.has_heard and age_ms < self.world.controller_timings.session_timeout_ms
        if self.process.machine.group.store.is_old and is_early:
            raise Broken("I41", f"a store that forgot what a node was sent answers {answer} after {age_ms} ms")

    def watch(self, stream: Stream, request: WatchMetadata) -> None:
        """Serve a watch until its stream or the watch ends."""
        self._watching[stream.number] = (stream, self.process.own(self._watch(stream, request)))

    async def _watch(self, stream: Stream, request: WatchMetadata) -> None:
        network = self.world.network
        alive_every_ms = _ALIVE_HEARTBEATS * self.world.controller_timings.heartbeat_interval_ms
        watch: Watch[MetadataImage] | None = None
        try:
            watch = await self.driver.watch(request)
            while True:
                news = await watch.next_news(alive_every_ms)
                if news.metadata is not None:
                    self._publishing(news.metadata)
                network.send_down(stream, news)
        except Refused as error:
            network.send_down(stream, error.refusal)
            network.close(stream, by_opener=False)
        finally:
            if watch is not None:
                self.driver.watches.close(watch)

    def watch_ended(self, stream: Stream) -> None:
        """The watcher has ended."""
        found = self._watching.pop(stream.number, None)
        if found is not None:
            found[1].cancel()

    def _publishing(self, image: MetadataImage) -> None:
        """Check what a watcher is about to be sent.

        Raises:
            Broken: I20, it is not stored.
        """
        group = self.process.machine.group
        if not group.store.is_old and not group.store.holds(image.controller_epoch, image.metadata_offset):
            raise Broken("I20", f"a node is sent offset {image.metadata_offset}, which is not stored")
        group.note_sent(position_sent(image))

    def elect(self, tp: Any, node_id: Any) -> None:
        """Move leadership to a member of the ISR, as an operator's tool would."""
        self.process.hand(self._elect, tp, node_id)

    def _elect(self, tp: Any, node_id: Any) -> None:
        if self.process.reign is self and self.process.core.serves(self.process.clock.ms()):
            self.driver.carry_out(self.core.elect(tp, node_id))
