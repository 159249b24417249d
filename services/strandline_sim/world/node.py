"""One life of a data node: the services' own driver, performers, session, flusher and links on virtual time.

It runs what a data node runs: only disk, network, clock and the controller behind them are simulated.

Invariant: a dead process does nothing, whatever was planned for it; after every step all invariants are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from strandline.core import messages
from strandline.core.coordinator.shard import ShardState
from strandline.core.log import effects as want, events
from strandline.core.positions import newest_in
from strandline.core.types import ActiveProducer, Offset, TopicPartition
from strandline.node.leader_links import LeaderLinks
from strandline.runtime.clock import Clocks
from strandline.runtime.driver import Driver, Halted
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.host import Host, TopicDirectory
from strandline.runtime.log_performers import Flusher, Perform
from strandline.runtime.performers import Performers
from strandline.runtime.ports import Core
from strandline.runtime.session import Session, SessionTimings
from strandline.runtime.threads import Coordinating
from strandline.runtime.transaction_links import TransactionLinks
from strandline_sim.checks.checks import Checks, check_own
from strandline_sim.clients.coordinators import LOOK_EVERY, READ_S, KnownPlaces, ReachedPeers, check_coordinators
from strandline_sim.clients.transacting import Transacting
from strandline_sim.control.controllers import ControllerLink
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import CommitFailed, LogFile
from strandline_sim.world.draws import Draw, mix
from strandline_sim.world.leaders import ReachedLeaders, ServedStream
from strandline_sim.world.machine import Machine
from strandline_sim.world.memory_logs import MemoryLogs
from strandline_sim.world.network import Stream
from strandline_sim.world.process import Process
from strandline_sim.world.virtual_loop import ProcessEnded

TICK_MS = 50
FAREWELL_MS = 2_000
_RETRY_US = (20_000, 150_000)
_RECONNECT_US = (20_000, 200_000)


class DrawnBackoff:
    """Draws waiting times (`runtime.ports.Backoff`)."""

    def __init__(self, draw: Draw, range_us: tuple[int, int]) -> None:
        self._draw = draw
        self._range_us = range_us

    def next_s(self) -> float:
        """The next wait in seconds."""
        return self._draw.between(*self._range_us) / 1e6

    def reset(self) -> None:
        """Do nothing: the next wait is drawn like any other."""


class NodeProcess(Process):
    """One life of a node, wired as in production. ``link`` creates the connection to the controller."""

    def __init__(
        self,
        world: Cluster,
        checks: Checks,
        machine: Machine[Process],
        life: int,
        *,
        link: Callable[[Process], ControllerLink],
        transactions: Transacting | None,
    ) -> None:
        super().__init__(machine, life, {} if world.coordinators is None else {"coordinators": world.coordinators})
        self.cluster: Cluster = world
        self.checks = checks
        self.transactions = transactions
        self._is_stopping = False
        self._streams: dict[int, ServedStream] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._link = link(self)
        self._wire()

    def _wire(self) -> None:
        """As `replica.node` does."""
        machine, timings = self.machine, self.world.controller_timings
        logs = MemoryLogs(self.disk, mix, _LogLooks(self))
        self.driver = _CheckedDriver(self)
        self.host = Host(
            node_id=self.node_id, driver=self.driver, topics=TopicDirectory(), sizes=logs, low_space=lambda _: None
        )
        self.flusher = Flusher(logs, self.driver.step, self.driver.fail, machine.clock.ms, threads=_Threads())
        self.session = Session(
            self._link,
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
            self.host, ReachedLeaders(self, self.cluster), backoff=lambda: DrawnBackoff(machine.draw, _RECONNECT_US)
        )
        self.transaction_links = (
            None
            if self.transactions is None
            else TransactionLinks(
                self.driver, KnownPlaces(self), ReachedPeers(self, self.cluster, self.transactions.next_marker)
            )
        )
        coordinating = Coordinating(logs, self.driver.step, self.driver.fail, machine.clock.ms, read_s=READ_S)
        performers = Performers(
            logs=logs,
            flusher=self.flusher,
            peers=self.peers,
            calls=self.driver.calls,
            reporter=_Reporter(self),
            clock=machine.clock.ms,
            session=self.session,
            believe=self.session.believe,
            look_up=_never,
            coordinating=coordinating,
            transactions=self.transaction_links,
        )
        self.driver.attach(self._checked(performers.table), logs.sync_saves)
        self._logs = logs

    def _checked(self, table: dict[type[object], Perform]) -> dict[type[object], Perform]:
        """The performers, with a check of each answer before it is given."""
        checks = self.checks

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
                    self.checks.served_replica(result)

    def _answering_offsets(self, effect: want.AnswerOffsets) -> None:
        if effect.request_id in self._latest:
            self._latest.discard(effect.request_id)
            self.checks.answered_latest(self, effect)

    def _stop(self, code: ExitCode, line: str) -> NoReturn:
        self.machine.halted(line)
        raise ProcessEnded

    def end(self) -> None:
        """End this life: nothing of it runs any more."""
        for shard in self.core._coordinators.shards.values():
            if shard.state is ShardState.LOADING:
                self.world.coverage.saw("leader died while loading")
            elif shard.sweep is not None:
                self.world.coverage.saw("leader died during a sweep")
        self._logs.lose_saves()
        super().end()

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

    def _registration(self, incarnation_id: str) -> messages.RegisterNode:
        seen = self.disk.seen
        seen_partitions = [p for topic in seen.topics for p in topic.partitions] if seen else []
        endpoint = messages.Endpoint("node", int(self.node_id))
        return messages.RegisterNode(
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
            epochs_seen=tuple(messages.EpochsSeen(p.tp, p.leader_epoch, p.partition_epoch) for p in seen_partitions),
            known_incarnations=self.disk.begin_incarnation(incarnation_id),
            position=newest_in(seen) if seen else None,
            topics_position=seen.place if seen else None,
        )

    def _adopt(self, answer: messages.NodeRegistered, incarnation_id: str) -> None:
        assert answer.node_epoch is not None
        self.is_registered = True
        self.checks.registered(self, answer.node_epoch)
        self.disk.cluster_id = answer.cluster_id
        self.disk.confirm_incarnation(incarnation_id)

    def stop(self) -> None:
        """Begin a controlled shutdown, once."""
        if self.is_registered and not self._is_stopping:
            self._is_stopping = True
            self.own(self._shut_down())

    async def _shut_down(self) -> None:
        """Hand over leadership, make everything durable, end (as `replica.node`)."""
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

    def gave(self, served: Sequence[messages.ServedPartition]) -> None:
        """Check what a consumer is about to be given."""
        self.checks.served_consumer(self, served)

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


class _CheckedDriver(Driver[Core]):
    """The services' driver; after each step and all that followed from it everything is checked."""

    def __init__(self, process: NodeProcess) -> None:
        super().__init__(
            _CountedCore(process),
            clock=process.machine.clock.ms,
            fatal={CommitFailed: ExitCode.STORAGE_FAILED},
            stop=process._stop,
        )
        self._process = process

    def step(self, event: events.Event) -> None:
        """Process an event."""
        process = self._process
        if not process.alive:
            raise ProcessEnded
        try:
            super().step(event)
            process.checks.after_step(process)
            check_own(process)
            if process.transactions is not None:
                process.transactions.after_step(process)
            if process.cluster.coordinators is not None and process.cluster.events % LOOK_EVERY == 0:
                check_coordinators(process, process.cluster.codec)
        except ProcessEnded:
            raise
        except BaseException as error:
            process.loop.failure = error
            raise

    def fail(self, error: BaseException) -> NoReturn:
        """End the process if production would; any other error ends the run."""
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

    def __init__(self, process: NodeProcess) -> None:
        self._process = process
        self._world = process.cluster
        self._core = process.core

    def step(self, event: events.Event) -> Sequence[want.Effect]:
        """Step the core."""
        world = self._world
        world.events += 1
        is_idle = isinstance(event, events.Ticked) and self._core.due_ms > event.now_ms
        asked = self._core.step(event)
        # The driver of a real node omits this tick.
        assert not is_idle or all(isinstance(effect, want.Emit) for effect in asked), asked
        world.recorder.stepped(self._process, event, asked)
        return asked

    @property
    def purgatory_full(self) -> bool:
        """Whether streams must not be read further."""
        return self._core.purgatory_full

    @property
    def due_ms(self) -> int:
        """The next time at which a tick has something to do."""
        return self._core.due_ms

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        """The partition of an internal topic that coordinates ``key``."""
        return self._core.coordinator_partition(topic, key)

    def coordinated(self, topic: str) -> Sequence[TopicPartition]:
        """The partitions of an internal topic whose coordinator this node is."""
        return self._core.coordinated(topic)

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> messages.PartitionView | None:
        """A led partition as this node sees it."""
        return self._core.describe_partition(tp, now_ms)

    def describe_replica(self, tp: TopicPartition) -> messages.ReplicaStateView | None:
        """A replica as it sees itself."""
        return self._core.describe_replica(tp)

    def describe_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...] | None:
        """The producer state of a led log."""
        return self._core.describe_producers(tp)


class _Threads:
    """The threads of a simulated machine, which decide how long a sync takes."""

    def run(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda done: None if done.cancelled() else ended(done.exception()))

    def close(self) -> None:
        """Their process ends with them."""


class _LogLooks:
    """Checks the logs of a process while they change."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process
        self._checks = process.checks
        self._saw = process.world.coverage.saw

    def opened(self, tp: TopicPartition) -> None:
        """A log was opened."""
        self._checks.opened(self._process, tp)

    def appended(self, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Batches were written."""
        self._checks.appended(self._process, tp, log, first)
        if self._process.transactions is not None:
            self._process.transactions.appended(self._process, tp, log, first)

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
    """Passes state events to the checks."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    def emit(self, effect: want.Emit) -> None:
        """Take one event."""
        self._process.checks.emitted(self._process, effect)


class _Notes:
    """Turns the log messages of a process into lines of a replay."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    def info(self, event: str, **fields: Any) -> None:
        world = self._process.world
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        world.note(f"n{self._process.node_id}", f"logs: {event} {said}".rstrip())

    def warning(self, event: str, **fields: Any) -> None:
        self.info(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        self.info(event, **fields)


def _never(effect: want.AnswerOffsets) -> None:
    raise NotImplementedError
