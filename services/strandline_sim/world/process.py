"""One life of a data node: the services' own driver, performers, session, flusher and links on virtual time.

What a data node runs, this runs: only disk, network, clock and the controller behind them are simulated.

Invariant: a dead process does nothing more, whatever was planned for it; after every step all invariants are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from strandline.core.coordinator.shard import ShardState
from strandline.core.errors import ErrorCode, Refused
from strandline.core.log import effects as want
from strandline.core.log import events
from strandline.core.messages import (
    DeletePartition,
    Endpoint,
    EpochsSeen,
    NodeRegistered,
    OffsetQuestion,
    PartitionView,
    ProducePartition,
    RegisterNode,
    ReplicaStateView,
    Served,
    ServedPartition,
)
from strandline.core.positions import newest_in
from strandline.core.types import Acks, ActiveProducer, NodeId, Offset, TopicPartition
from strandline.node.leader_links import LeaderLinks
from strandline.runtime.clock import Clocks
from strandline.runtime.driver import Driver
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.host import Host, TopicDirectory
from strandline.runtime.log_performers import Flusher, Perform
from strandline.runtime.performers import Halted, Performers
from strandline.runtime.ports import Core
from strandline.runtime.session import Session, SessionTimings
from strandline.runtime.threads import Coordinating
from strandline.runtime.transaction_links import TransactionLinks
from strandline_sim.checks.committed import check_own
from strandline_sim.clients.coordinators import LOOK_EVERY, READ_S, check_coordinators
from strandline_sim.clients.transaction_peers import KnownPlaces, ReachedPeers
from strandline_sim.control.controller_link import ControllerLink
from strandline_sim.world.disk import CommitFailed, LogFile
from strandline_sim.world.draws import Draw, mix
from strandline_sim.world.leaders import ReachedLeaders, ServedStream
from strandline_sim.world.memory_logs import MemoryLogs, as_fetched
from strandline_sim.world.network import Call, Stream
from strandline_sim.world.virtual_loop import Life, ProcessEnded

if TYPE_CHECKING:
    from strandline_sim.world.machine import Machine

TICK_MS = 50
FAREWELL_MS = 2_000
_DELETION_TIMEOUT_MS = 10_000
_RETRY_US = (20_000, 150_000)
_RECONNECT_US = (20_000, 200_000)


class DrawnBackoff:
    """Waits that are drawn (`runtime.ports.Backoff`)."""

    def __init__(self, draw: Draw, range_us: tuple[int, int]) -> None:
        self._draw = draw
        self._range_us = range_us

    def next_s(self) -> float:
        """The next wait in seconds."""
        return self._draw.between(*self._range_us) / 1e6

    def reset(self) -> None:
        """The next wait is drawn like any other."""


class Process:
    """One life of a node. ``life`` counts them; everything in here is lost when it ends."""

    def __init__(self, machine: Machine, life: int) -> None:
        world = machine.world
        self.machine = machine
        self.world = world
        self.disk = machine.disk
        self.node_id = machine.node_id
        self.party_id = int(machine.node_id)
        self.life = life
        self.alive = True
        self.is_registered = False
        self._is_stopping = False
        # What the checks remember of this life: the HW last seen of each log, and produces not answered yet.
        self.hws: dict[TopicPartition, int] = {}
        self.produces: dict[int, tuple[Acks, int, int, int]] = {}
        # The HW of each log as this life found or saved it.
        self.saved: dict[TopicPartition, int] = {}
        self._latest: set[int] = set()
        self._streams: dict[int, ServedStream] = {}
        self._tasks: list[asyncio.Task[None]] = []
        given = {} if world.coordinators is None else {"coordinators": world.coordinators}
        self.core = world.build.node_core(
            node_id=NodeId(machine.node_id), rules=world.rules, timings=world.node_timings, seen=self.disk.seen, **given
        )
        self.loop = world.loop
        self._running = Life(world.loop, machine.clock, self.hand, machine.work_aside)
        self._wire()

    def _wire(self) -> None:
        """As `replica.node` does."""
        machine, timings = self.machine, self.world.controller_timings
        logs = MemoryLogs(self.disk, mix, _LogLooks(self))
        self.driver = _CheckedDriver(self)
        self.host = Host(
            node_id=self.node_id,
            driver=self.driver,
            topics=TopicDirectory(),
            sizes=logs,
            low_space=lambda _: None,
        )
        self.flusher = Flusher(logs, self.driver.step, self.driver.fail, machine.clock.ms)
        self.link = ControllerLink(self)
        self.session = Session(
            self.link,
            self.host,
            stop=self._stop,
            backoff=lambda: DrawnBackoff(machine.draw, _RETRY_US),
            clocks=Clocks(machine.clock.us, machine.clock.us),
            timings=SessionTimings(
                first_interval_ms=timings.heartbeat_interval_ms,
                farewell_interval_ms=timings.heartbeat_interval_ms // 5,
                shortest_deadline_ms=timings.heartbeat_interval_ms,
                session_timeout_ms=timings.session_timeout_ms,
            ),
            log=_Notes(self),
        )
        self.peers = LeaderLinks(
            self.host, ReachedLeaders(self), backoff=lambda: DrawnBackoff(machine.draw, _RECONNECT_US)
        )
        self.transaction_links = (
            TransactionLinks(self.driver, KnownPlaces(self), ReachedPeers(self))
            if self.world.transactions is not None
            else None
        )
        coordinating = Coordinating(logs, self.driver.step, self.driver.fail, machine.clock.ms, read_s=READ_S)
        performers = Performers(
            logs=logs,
            flusher=self.flusher,
            peers=self.peers,
            calls=self.driver.calls,
            reporter=_Reporter(self),
            clock=machine.clock.ms,
            alter_partition=self.session.alter_partition,
            report_logs=self.session.report_logs,
            refresh=self.session.refresh,
            believe=self.session.believe,
            ignore=self.session.ignore,
            look_up=_never,
            read_log=coordinating.read_log,
            compute=coordinating.compute,
            transactions=self.transaction_links,
        )
        self.driver.attach(self._checked(performers.table), logs.sync_saves)
        self._logs = logs

    def _checked(self, table: dict[type[object], Perform]) -> dict[type[object], Perform]:
        """The performers, with a look at what is answered before it is."""
        checks = self.world.checks

        def before(kind: type[Any], look: Callable[[Any], None]) -> None:
            perform = table[kind]

            def looked_at(effect: Any) -> events.Event | None:
                look(effect)
                return perform(effect)

            table[kind] = looked_at

        before(want.AnswerProduce, lambda effect: checks.answered_produce(self, effect))
        before(want.AnswerFetch, self._answering_fetch)
        before(want.AnswerOffsets, self._answering_offsets)
        before(want.AnswerCall, checks.answered_call)
        return table

    def _answering_fetch(self, effect: want.AnswerFetch) -> None:
        if effect.replica is not None:
            for result in effect.results:
                if result.refusal is not None or result.diverging is not None:
                    self.world.checks.served_replica(result)

    def _answering_offsets(self, effect: want.AnswerOffsets) -> None:
        if effect.request_id in self._latest:
            self._latest.discard(effect.request_id)
            self.world.checks.answered_latest(self, effect)

    @property
    def now_ms(self) -> int:
        """This process's own clock."""
        return self.machine.clock.ms()

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Do something now, or when the process goes on."""
        if not self.alive:
            return
        if self.machine.is_paused:
            self.machine.inbox.append((self, action, given))
            return
        self._running.enter(action, *given)

    def step(self, event: events.Event) -> None:
        """Let an event happen, with all that follows from it; then everything is checked."""
        self.driver.step(event)

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task; one that ends by an error ends the run."""
        task = self.loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.driver.fail(error)

    def _stop(self, code: ExitCode, line: str) -> NoReturn:
        self.machine.halted(line)
        raise ProcessEnded

    def end(self) -> None:
        """This life is over: nothing of it runs any more."""
        self.alive = False
        for shard in self.core._coordinators.shards.values():
            if shard.state is ShardState.LOADING:
                self.world.coverage.saw("leader died while loading")
            elif shard.sweep is not None:
                self.world.coverage.saw("leader died during a sweep")
        self._logs.lose_saves()
        self._running.shut()

    def start(self) -> None:
        """Begin to live."""
        self.hand(self._begin)

    def _begin(self) -> None:
        self.own(self._live())

    async def _live(self) -> None:
        """Register, then tick, send heartbeats and follow the metadata (as `replica.node`)."""
        incarnation_id = f"life-{self.node_id}-{self.life}"
        answer = await self.session.register(self._registration(incarnation_id))
        self._adopt(answer, incarnation_id)
        self.session.begin(answer)
        self.disk.is_unclean = False
        self._tasks += [
            self.own(self.driver.tick_forever(TICK_MS)),
            self.own(self.session.beat_forever()),
            self.own(self.session.watch_forever()),
        ]

    def _registration(self, incarnation_id: str) -> RegisterNode:
        seen = self.disk.seen
        seen_partitions = [p for topic in seen.topics for p in topic.partitions] if seen else []
        endpoint = Endpoint("node", int(self.node_id))
        return RegisterNode(
            node_id=self.node_id,
            cluster_id=self.disk.cluster_id,
            incarnation_id=incarnation_id,
            directory_id=self.disk.directory_id,
            roles=self.machine.roles,
            rules=self.world.rules,
            client_endpoint=endpoint,
            internal_endpoint=endpoint,
            unclean=self.disk.is_unclean,
            controller_epoch_seen=seen.controller_epoch if seen else None,
            epochs_seen=tuple(EpochsSeen(p.tp, p.leader_epoch, p.partition_epoch) for p in seen_partitions),
            known_incarnations=self.disk.begin_incarnation(incarnation_id),
            position=newest_in(seen) if seen else None,
            topics_position=seen.place if seen else None,
        )

    def _adopt(self, answer: NodeRegistered, incarnation_id: str) -> None:
        assert answer.node_epoch is not None
        self.is_registered = True
        self.world.checks.registered(self, answer.node_epoch)
        self.disk.cluster_id = answer.cluster_id
        self.disk.confirm_incarnation(incarnation_id)

    def stop(self) -> None:
        """Begin a controlled shutdown, once."""
        if self.is_registered and not self._is_stopping:
            self._is_stopping = True
            self.own(self._shut_down())

    async def _shut_down(self) -> None:
        """Hand leadership over, make everything durable, end (as `replica.node`)."""
        if not await self.session.say_farewell(FAREWELL_MS):
            self.world.coverage.saw("stopped without consent")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.transaction_links is not None:
            await self.transaction_links.close()
        await self.peers.close()
        await self.session.close()
        self.driver.step(events.StopRequested(self.now_ms))
        await self.flusher.until_idle()
        self.machine.stopped(self)

    async def call(
        self,
        target: int,
        serve: Callable[[Call], None],
        *,
        deadline_us: int,
        copies: bool = False,
        extra_us: int = 0,
        copy_us: int = 0,
    ) -> Any:
        """Make one call over the network.

        Raises:
            Refused: REQUEST_TIMED_OUT, no answer came.
        """
        answered = self.loop.create_future()
        self.world.network.call(
            self, target, serve, partial(_complete, answered), deadline_us=deadline_us, copies=copies,
            extra_us=extra_us, copy_us=copy_us,
        )  # fmt: skip
        answer = await answered
        if answer is None:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return answer

    def serve(self, call: Call, build: Callable[[int, int], events.Event]) -> None:
        """Step the event that ``build(now_ms, request_id)`` makes; its answer goes back over the network."""
        request_id = self._waiting(call)
        self.step(build(self.now_ms, request_id))

    def _waiting(self, call: Call) -> int:
        """A request id whose answer goes back over the network."""
        request_id = self.driver.calls.new_id()

        def sink(answer: Any) -> bool:
            self.world.network.reply(call, answer)
            return True

        self.driver.calls.wait(request_id, sink)
        return request_id

    def serve_produce(
        self, call: Call, acks: Acks, timeout_ms: int, part: ProducePartition, transactional_id: str | None = None
    ) -> None:
        """A client's produce came."""
        request_id = self._waiting(call)
        assert isinstance(part.payload, int)
        leo = self.machine.log(part.tp).leo
        self.produces[request_id] = (acks, part.payload, part.header.record_count, leo)
        self.step(
            events.ProduceArrived(self.now_ms, request_id, acks, timeout_ms, (part,), transactional_id=transactional_id)
        )

    def serve_latest(self, call: Call, question: OffsetQuestion) -> None:
        """A client asks where a partition ends."""
        request_id = self._waiting(call)
        self._latest.add(request_id)
        self.step(events.OffsetsAsked(self.now_ms, request_id, (question,)))

    def serve_consumer(
        self,
        call: Call,
        build: Callable[[int, int], events.Event],
        as_given: Callable[[ServedPartition], object] = as_fetched,
    ) -> None:
        """A consumer's fetch came; what it is given is checked. ``as_given``: what it makes of each partition."""
        request_id = self.driver.calls.new_id()

        def sink(served: Served) -> bool:
            self.world.checks.served_consumer(self, served.partitions)
            self.world.network.reply(call, tuple(as_given(part) for part in served.partitions))
            return True

        self.driver.calls.wait(request_id, sink)
        self.step(build(self.now_ms, request_id))

    def stream_of(self, stream: Stream) -> ServedStream:
        """A replica's stream at this end."""
        served = self._streams.get(stream.number)
        if served is None:
            served = self._streams[stream.number] = ServedStream(self, stream)
        return served

    def end_stream(self, stream: Stream) -> None:
        """A replica's stream ended here."""
        served = self._streams.pop(stream.number, None)
        if served is not None:
            served.end()

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        """An operator wants records deleted, and waits for it."""
        request_id = self.driver.calls.new_id()
        self.driver.calls.wait(request_id, lambda _: True)
        part = DeletePartition(tp, Offset(offset))
        self.step(events.DeleteRecordsAsked(self.now_ms, request_id, _DELETION_TIMEOUT_MS, (part,)))

    def __repr__(self) -> str:
        return f"<Process n{self.node_id} life {self.life}>"


class _CheckedDriver(Driver[Core]):
    """The services' driver; after a step with all that followed from it everything is checked."""

    def __init__(self, process: Process) -> None:
        super().__init__(
            _CountedCore(process),
            clock=process.machine.clock.ms,
            fatal={CommitFailed: ExitCode.STORAGE_FAILED},
            stop=process._stop,
        )
        self._process = process

    def step(self, event: events.Event) -> None:
        """Let an event happen."""
        process = self._process
        if not process.alive:
            raise ProcessEnded
        try:
            super().step(event)
            process.world.checks.after_step(process)
            check_own(process)
            if process.world.transactions is not None:
                process.world.transactions.after_step(process)
            if process.world.coordinators is not None and process.world.events % LOOK_EVERY == 0:
                check_coordinators(process)
        except ProcessEnded:
            raise
        except BaseException as error:
            process.loop.failure = error
            raise

    def fail(self, error: BaseException) -> NoReturn:
        """End the process, if that is what production would do; any other error is the run's."""
        if isinstance(error, CommitFailed):
            self._failed = True
            self._process.machine.fsync_failed()
            raise ProcessEnded
        if isinstance(error, Halted):
            super().fail(error)
        if not isinstance(error, ProcessEnded):
            self._process.loop.failure = error
        raise error


class _CountedCore:
    """The core under test; its steps are counted and shown to the recorder."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._core = process.core

    def step(self, event: events.Event) -> Sequence[want.Effect]:
        """Step the core."""
        world = self._world
        world.events += 1
        asked = self._core.step(event)
        if world.recorder is not None:
            world.recorder.stepped(self._process, event, asked)
        return asked

    @property
    def purgatory_full(self) -> bool:
        """Whether streams must not be read further."""
        return self._core.purgatory_full

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        """Which partition of an internal topic coordinates ``key``."""
        return self._core.coordinator_partition(topic, key)

    def coordinated(self, topic: str) -> Sequence[TopicPartition]:
        """The partitions of an internal topic whose coordinator this node is."""
        return self._core.coordinated(topic)

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> PartitionView | None:
        """A led partition as this node sees it."""
        return self._core.describe_partition(tp, now_ms)

    def describe_replica(self, tp: TopicPartition) -> ReplicaStateView | None:
        """A replica as it sees itself."""
        return self._core.describe_replica(tp)

    def describe_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...] | None:
        """What a led log remembers of producers."""
        return self._core.describe_producers(tp)


class _LogLooks:
    """What is checked while the logs of a process change."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._checks = process.world.checks
        self._saw = process.world.coverage.saw

    def opened(self, tp: TopicPartition) -> None:
        """A log was opened."""
        self._checks.opened(self._process, tp)

    def appended(self, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Batches were written."""
        self._checks.appended(self._process, tp, log, first)
        if self._process.world.transactions is not None:
            self._process.world.transactions.appended(self._process, tp, log, first)

    def truncating(self, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Batches are about to be cut."""
        self._checks.truncating(self._process, tp, log, offset)

    def restarting(self, tp: TopicPartition, offset: int) -> int:
        """A log begins again."""
        self._saw("log restarted")
        return self._checks.hash_below(tp, offset)

    def start_moved(self, tp: TopicPartition) -> None:
        """A log start moved."""
        self._saw("log start moved")

    def saved(self, tp: TopicPartition, high_watermark: Offset) -> None:
        """A high watermark was saved."""
        self._process.saved[tp] = high_watermark


class _Reporter:
    """Where state events go: to the checks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def emit(self, effect: want.Emit) -> None:
        """Take one event."""
        self._process.world.checks.emitted(self._process, effect)


class _Notes:
    """Where a process logs: lines of a replay."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def _note(self, event: str, **fields: Any) -> None:
        world = self._process.world
        if world.recorder is not None:
            said = " ".join(f"{name}={value}" for name, value in fields.items())
            world.note(f"n{self._process.node_id}", f"logs: {event} {said}".rstrip())

    info = warning = error = _note


def _complete(answered: asyncio.Future[Any], answer: Any) -> None:
    if not answered.done():
        answered.set_result(answer)


def _never(effect: want.AnswerOffsets) -> None:
    raise NotImplementedError
