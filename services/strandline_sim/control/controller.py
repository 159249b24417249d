"""The controller's machine: the services' own driver and watches on virtual time, over a store that survives crashes.

Invariant: a crash keeps what was durable, and a commit under way happens as a whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NoReturn

from strandline.controller.driver import ControllerDriver, Store
from strandline.controller.watches import Watch, Watches
from strandline.core.control import events
from strandline.core.control.messages import ControllerRequest, GetMetadata, WatchMetadata
from strandline.core.control.recovery import GivenNode, position_sent, recover
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.errors import Refusal, Refused
from strandline.core.messages import Heartbeat, MetadataImage, Position, PositionProof, RegisterNode
from strandline.core.state_events import StateEvent
from strandline.core.types import TopicPartition
from strandline.runtime.exit_codes import ExitCode
from strandline_sim.checks.checks import Checks
from strandline_sim.checks.committed import Broken
from strandline_sim.world.clock import Clock
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.environment import ElectableController
from strandline_sim.world.network import CONTROLLER, Call, Stream
from strandline_sim.world.virtual_loop import Life

TICK_MS = 100
CLUSTER_ID = "sim"
SECRET = "5d" * 32
BACKUPS = 8
WATCH_BACKLOG = 1_000
_ALIVE_HEARTBEATS = 4
"""A watch without news brings a sign of life every so many heartbeat intervals."""


class Controller:
    """The controller's machine: its durable store, and the process if there is one."""

    def __init__(self, world: Cluster, checks: Checks) -> None:
        self.world = world
        self.checks = checks
        self.store: ClusterState | None = None
        self.draw = Draw(world.shape.seed, Purpose.STORE)
        self.process: ControllerProcess | None = None
        # What the store held before, the newest last; a backup may be any of it.
        self._older: deque[ClusterState] = deque(maxlen=BACKUPS)
        # Whether a backup took the store's place, and nobody has recovered from that yet (TR18).
        self.is_old = False
        self.undecidable: set[TopicPartition] = set()
        """Partitions that a recovery had to leave without a leader."""
        # Whether a reign stopped serving, and nobody has recovered the store since.
        self._stopped = False
        self._reigns = 0

    def next_reign_id(self) -> str:
        """An id that no other reign of this world has, also none of a line that a backup replaced."""
        self._reigns += 1
        return f"{self._reigns:032x}"

    def start(self) -> None:
        """Read the store and begin a reign."""
        if self.process is None:
            self.process = ControllerProcess(self)
            self.process.start()
            if self.is_old:
                self._administer(self.process)

    def _administer(self, process: ControllerProcess) -> None:
        """An administrator asks at every tick of a reign on an older store, from its first moment on."""
        if process is self.process and self.is_old and not self._stopped:
            self.order(GetMetadata(linearizable=True))
            self.world.timeline.after(TICK_MS * 1_000, self._administer, process)

    def kill(self) -> bool:
        """End the process; a commit under way is durable or was never made."""
        process, self.process = self.process, None
        if process is None:
            return False
        process.end(keeps_commit=bool(process.store.under_way) and self.draw.chance(500))
        self.world.network.break_streams_of(process, silently=False)
        return True

    def keep(self, state: ClusterState) -> None:
        """A commit is durable. What a reign on an old store decides is no decision: the checks do not follow it."""
        before, self.store = self.store, state
        if self.is_old:
            return
        if before is not None:
            self._older.append(before)
        self.checks.committed_state(state)

    def roll_back(self, pick: int) -> bool:
        """Put a backup in the store's place, while nobody runs on it."""
        if self.is_old or not self._older:
            return False
        self.kill()
        self.world.network.lose_answers_of(CONTROLLER)
        backup = self._older[pick % len(self._older)]
        if self._would_forget_a_topic_that_no_node_keeps(backup):
            # Only the administrator knows of it, and would have to make it again.
            return True
        if self._somebody_knows_more_than(backup):
            self.store, self.is_old = backup, True
            return True
        # Nobody can notice the loss of what nobody was sent (C41): what the backup holds is what was decided.
        self.world.coverage.saw("backup that lacks nothing that was sent")
        self._older.clear()
        self.world.metadata.begin_anew()
        self.store = None
        self.keep(backup)
        return True

    def _would_forget_a_topic_that_no_node_keeps(self, backup: ClusterState) -> bool:
        kept = {
            topic.topic_id
            for machine in self.world.machines.values()
            for topic in (machine.disk.seen.topics if machine.disk.seen else ())
        }
        return self.store is not None and bool(self.store.topics.keys() - backup.topics.keys() - kept)

    def _somebody_knows_more_than(self, backup: ClusterState) -> bool:
        head = backup.header.metadata_offset
        return any(position.metadata_offset > head for position in self._positions())

    def _positions(self) -> Iterator[Position | PositionProof]:
        """What nodes know, on disk or in a process, and what waits in a paused one."""
        for machine in self.world.machines.values():
            seen, process = machine.disk.seen, machine.running
            if seen is not None and (place := position_sent(seen)) is not None:
                yield place
            if process is not None:
                yield from (each for each in (process.session.position, process.arrived) if each is not None)
            for _, _, given in machine.inbox:
                yield from (position for each in given if (position := getattr(each, "position", None)) is not None)

    def recover(self) -> None:
        """What an operator does (`strandline controller recover`): adopt the newest that the nodes have stored."""
        if not (self.is_old or self._stopped):
            return
        self.kill()
        self.is_old = self._stopped = False
        self._older.clear()
        recovered, undecidable = recovered_from_nodes(self.world, self.store)
        self.undecidable |= undecidable
        self.keep(recovered)
        self.world.coverage.saw("controller recovered")
        self.world.note("ctl", "recovered from what the nodes have stored")
        self.start()

    def stopped_serving(self, reason: str) -> None:
        """A reign found out that its store is too old; an operator reads of it."""
        self.world.coverage.saw("controller stopped serving")
        self.world.note("ctl", f"stopped serving: {reason}")
        self._stopped = True
        self.world.timeline.after(self.draw.between(50_000, 400_000), self.recover)

    def serve(self, request: ControllerRequest, call: Call) -> None:
        """A request arrived."""
        if self.process is not None:
            self.process.serve(request, lambda answer: self.world.network.reply(call, answer))

    def watch_arrived(self, stream: Stream, request: WatchMetadata) -> None:
        """A node opened a watch."""
        if self.process is not None and self.process is stream.server:
            self.process.watch(stream, request)

    def watch_ended(self, stream: Stream) -> None:
        """A watch ended at this side."""
        if self.process is not None:
            self.process.watch_ended(stream)

    def order(self, request: ControllerRequest) -> None:
        """An operator's request, given on the controller's own machine."""
        if self.process is not None:
            self.process.hand(self.process.serve, request, self.process.administered)


class DrivenReign:
    """What every reign does, of the only controller or of one of several: core, driver, requests and watches."""

    def __init__(self, world: Cluster, state: ClusterState | None, store: Store, clock_ms: Callable[[], int]) -> None:
        self.world = world
        self.core = world.build.controller_core(state, world.rules, world.controller_timings)
        self.counted = _CountedCore(world, self.core)
        self._watching: dict[int, tuple[Stream, asyncio.Task[None]]] = {}
        self.driver = _CheckedDriver(
            world,
            self.counted,
            store,
            clock=clock_ms,
            sink=self,
            watches=Watches(WATCH_BACKLOG, _as_it_is),
            stop=_stop,
            log=_Notes(world),
        )

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task of the reign."""
        raise NotImplementedError

    def own_watch(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the task of a watch."""
        return self.own(work)

    def answering(self, answer: object) -> None:
        """A node is about to be answered this."""

    def publishing(self, image: MetadataImage) -> None:
        """A watcher is about to be sent this."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take a state event (`controller.driver.Sink`): it goes to the checks and the recorder."""
        world, emit = self.world, events.Emit(tp, event)
        world.metadata.reported(emit)
        world.recorder.controller_reported(self.core.state, emit, self.driver.clock())

    def serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        """Step a request; ``reply`` takes its answer or refusal, after the commit in front of it."""
        self.own(self._serve(request, reply))

    async def _serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        try:
            answer: object = await self.driver.request(request, object)
        except Refused as error:
            answer = error.refusal
        self.answering(answer)
        reply(answer)

    def watch(self, stream: Stream, request: WatchMetadata) -> None:
        """Serve a watch until its stream or the watch ends."""
        self._watching[stream.number] = (stream, self.own_watch(self._watch(stream, request)))

    async def _watch(self, stream: Stream, request: WatchMetadata) -> None:
        network = self.world.network
        alive_every_ms = _ALIVE_HEARTBEATS * self.world.controller_timings.heartbeat_interval_ms
        watch: Watch[MetadataImage] | None = None
        try:
            watch = await self.driver.watch(request)
            while True:
                news = await watch.next_news(alive_every_ms)
                if news.metadata is not None:
                    self.publishing(news.metadata)
                network.send_down(stream, news)
        except Refused as error:
            network.send_down(stream, error.refusal)
            network.close(stream, by_opener=False)
        finally:
            if watch is not None:
                self.driver.watches.close(watch)

    def watch_ended(self, stream: Stream) -> None:
        """The watcher is gone."""
        found = self._watching.pop(stream.number, None)
        if found is not None:
            found[1].cancel()


class ControllerProcess(DrivenReign):
    """The reign of the only controller."""

    def __init__(self, machine: Controller) -> None:
        world = machine.world
        self.machine = machine
        self.party_id = CONTROLLER
        self.alive = True
        self.store = _Store(machine)
        self.clock = Clock(world.timeline)
        """The controller's clock is the world's."""
        super().__init__(world, machine.store, self.store, self.clock.ms)
        self.loop = world.loop
        self._running = Life(world.loop, self.clock, self.hand)
        self._began_us = world.timeline.now_us
        self.driver.on_stop_serving = machine.stopped_serving

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Do something, unless the process is gone."""
        if self.alive:
            self._running.enter(action, *given)

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task; one that ends by an error ends the run."""
        return self.loop.own(work)

    def start(self) -> None:
        """Begin the reign."""
        self.hand(lambda: self.own(self._live()))

    async def _live(self) -> None:
        """The next controller epoch is durable before anything is served in it (as `controller.process`)."""
        self.driver.step(events.ControllerStarted(self.clock.ms(), CLUSTER_ID, SECRET, self.machine.next_reign_id()))
        await self.driver.perform_pending()
        self.world.network.parties[CONTROLLER] = self
        self.own(self.driver.perform_forever())
        self.own(self.driver.tick_forever(TICK_MS))

    def end(self, *, keeps_commit: bool) -> None:
        """The process is gone; ``keeps_commit``: the commit under way was made."""
        self.alive = False
        if keeps_commit:
            self.store.make_durable()
        self._running.shut()

    def administered(self, answer: object) -> None:
        """I41: an older store answers an administrator only after a node's word, or after a session."""
        if isinstance(answer, Refusal):
            self.world.coverage.saw(f"administrator refused: {answer.code.name}")
            return
        age_ms = (self.world.timeline.now_us - self._began_us) // 1_000
        if (
            self.machine.is_old
            and not self.counted.has_heard
            and age_ms < self.world.controller_timings.session_timeout_ms
        ):
            raise Broken("I41", f"a store that forgot what a node was sent answers {answer} after {age_ms} ms")

    def elect(self, tp: Any, node_id: Any) -> None:
        """Move leadership to a member of the ISR, as an operator's tool would."""
        self.hand(lambda: self.driver.carry_out(self.core.elect(tp, node_id)))


class _CheckedDriver(ControllerDriver):
    """The services' driver; whatever ends the process in production ends the run."""

    def __init__(self, world: Cluster, core: _CountedCore, store: Store, **ports: Any) -> None:
        super().__init__(core, store, **ports)
        self._world = world

    def fail(self, error: BaseException) -> NoReturn:
        """End the run."""
        self._world.loop.broke(error)
        raise error


class _Store:
    """The durable store (`controller.driver.Store`): a commit takes a while, and is made whole or not at all."""

    def __init__(self, machine: Controller) -> None:
        self._machine = machine
        self.under_way: Sequence[Transaction] = ()

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable."""
        self.under_way = transactions
        await asyncio.sleep(self._machine.draw.between(*self._machine.world.shape.commit_us) / 1e6)
        self.make_durable()

    def make_durable(self) -> None:
        """Apply the transactions under way to the store, all of them."""
        transactions, self.under_way = self.under_way, ()
        for transaction in transactions:
            store = self._machine.store or ClusterState(header=transaction.header)
            self._machine.keep(store.apply(transaction))


class _CountedCore:
    """The core under test; its steps are counted and shown to the recorder."""

    def __init__(self, world: Cluster, core: ElectableController) -> None:
        self._world = world
        self._core = core
        self.has_heard = False
        """Whether a node has spoken in this reign that the store knows."""

    def step(self, event: events.ControllerEvent) -> list[events.ControllerEffect]:
        """Step the core."""
        world = self._world
        world.events += 1
        effects = self._core.step(event)
        if isinstance(event, events.RequestArrived) and isinstance(event.request, RegisterNode | Heartbeat):
            answers = [effect.answer for effect in effects if isinstance(effect, events.Answer)]
            self.has_heard |= any(getattr(answer, "refusal", None) is None for answer in answers)
        if type(event) is events.StepContinued:
            world.coverage.saw("step continued")
        elif type(event) is events.ControllerStarted and any(type(effect) is events.ContinueStep for effect in effects):
            world.coverage.saw("reign goes on with a step")
        world.recorder.controller_stepped(event, effects)
        return effects

    @property
    def purgatory_full(self) -> bool:
        """Never: the controller parks no request."""
        return self._core.purgatory_full

    @property
    def state(self) -> ClusterState:
        """What is decided so far."""
        return self._core.state

    @property
    def serves(self) -> bool:
        """Whether this reign may serve at all."""
        return self._core.serves

    @property
    def unproven_claims(self) -> int:
        """Claims of a newer position that carried no proof."""
        return self._core.unproven_claims


class _Notes:
    """Where the controller logs: lines of a replay."""

    def __init__(self, world: Cluster) -> None:
        self._world = world

    def _note(self, event: str, **fields: Any) -> None:
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        self._world.note("ctl", f"logs: {event} {said}".rstrip())

    info = warning = error = _note


def recovered_from_nodes(world: Cluster, store: ClusterState | None) -> tuple[ClusterState, set[TopicPartition]]:
    """What a recovery makes of a store and of what the nodes have stored; and partitions left to an operator.

    For those no node is a member in all that nodes know, or a replica's directory holds nothing and the store does not
    know it (C38).
    """
    given = [
        GivenNode(node_id=machine.node_id, directory_id=machine.disk.directory_id, image=machine.disk.seen)
        for machine in world.machines.values()
    ]
    world.metadata.begin_anew()
    recovered = recover(given, store)
    unknown = {
        node.node_id for node in given if node.image is None and (store is None or node.node_id not in store.nodes)
    }
    found = set()
    for partition in recovered.partitions():
        seen = [
            {*each.isr, *each.elr}
            for node in given
            if node.image is not None
            for topic in node.image.topics
            for each in topic.partitions
            if each.tp == partition.tp
        ]
        if unknown & set(partition.replicas) or not set.intersection(*seen):
            found.add(partition.tp)
    return recovered, found


def _stop(code: ExitCode, line: str) -> NoReturn:
    """An invariant of the controller's core broke; the run ends with it."""
    raise AssertionError(line)


def _as_it_is(image: MetadataImage) -> MetadataImage:
    return image
