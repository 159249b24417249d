"""Cores of several data nodes without processes: effects are performed in memory, messages wait to be delivered.

Nothing happens by itself: `deliver`, `drop`, `settle`, `advance`, `push` and `crash` drive it. Logs keep the batch
headers and payloads that the cores appended, so every byte that a test compares was really "written".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from core_builders import (
    CLUSTER,
    TP,
    L,
    batch,
    fetch_part,
    fetch_request,
    metadata,
    node_epoch,
    node_image,
    produce_part,
)

from strandline.core import messages
from strandline.core.coordinator.serving import Coordinators
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log import effects as want, events
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.state_events import NAME_OF
from strandline.core.types import (
    Acks,
    BatchHeader,
    EpochEnd,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Rules,
    TopicPartition,
)  # fmt: skip
from strandline.observe.reporting import Reporting
from strandline.runtime.log_performers import Found, LogPerformers
from strandline.runtime.ports import Opened
from strandline_sim.world.disk import Disk, LogFile
from strandline_sim.world.memory_logs import IssuedFlush, MemoryLogs, as_fetched

E = TypeVar("E")

UNIX_MS = 1_700_000_000_000
"""The wall clock when a cluster begins."""


class StoredLog(LogFile):
    """One log "on disk", in the form that tests read it."""

    __slots__ = ()

    @property
    def batches(self) -> list[tuple[BatchHeader, object]]:
        return list(zip(self.headers, self.values, strict=True))

    @property
    def durable(self) -> int:
        """The offset below which everything is synced."""
        return self.synced

    def records(self, start: int = 0, end: int | None = None) -> list[tuple[int, int, object]]:
        """(offset, epoch, payload) of every record in [start, end)."""
        top = self.leo if end is None else end
        found = [(o, h.leader_epoch, p) for h, p in self.batches for o in range(h.base_offset, h.next_offset)]
        return [r for r in found if start <= r[0] < top]


class CoreLogs(MemoryLogs):
    """The logs of one node: the simulator's logs, in a form that tests can read."""

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        self.disk.logs.setdefault(tp, StoredLog())
        return super().open(tp, topic)

    def append_replicated(self, effect: want.AppendReplicated) -> bool:
        if not isinstance(effect.payload, tuple):
            effect = replace(effect, payload=(effect.payload,) * len(effect.batches))
        return super().append_replicated(effect)


@dataclass
class Message:
    """A message in flight between two nodes. If it is dropped, the sender of the request gets the failure instead."""

    source: int
    target: int
    arrive: Callable[[], events.Event]
    asker: int
    fail: Callable[[], events.Event]
    life: int

    def __repr__(self) -> str:
        return f"{self.source}->{self.target}"


class Cluster:
    """Some cores and the links between them. Metadata and requests may name nodes that have no core."""

    def __init__(
        self,
        *nodes: int,
        rules: Rules | None = None,
        timings: NodeTimings | None = None,
        streams: bool = False,
        hold_flushes: bool = False,
        coordinators: Coordinators | None = None,
        hold_reads: bool = False,
    ) -> None:
        self.now = 0
        self.rules = rules or Rules()
        self.timings = timings or NodeTimings()
        self.earlier_releases: set[int] = set()
        """Nodes that do not know FetchProducerSnapshot."""
        self.streams = streams
        self.hold_flushes = hold_flushes
        self.max_records_per_fetch: int | None = None
        self.coordinators = coordinators
        self.hold_reads = hold_reads
        # Pieces of logs that coordinators wait for: (node, its incarnation, event).
        self.reads: list[tuple[int, int, events.Event]] = []
        self.cores: dict[int, NodeCore] = {}
        self.lives: dict[int, int] = {}
        self.disks: dict[int, Any] = {}
        """The logs of each node (`StoredLog`), by partition."""
        self._files: dict[int, LogPerformers] = {}
        self._logs: dict[int, CoreLogs] = {}
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.flushes: dict[int, list[tuple[TopicPartition, IssuedFlush]]] = {}
        # Every effect each node ever requested, in order.
        self.effects: dict[int, list[want.Effect]] = {}
        self.produced: dict[int, want.AnswerProduce] = {}
        self.fetched: dict[int, list[want.AnswerFetch]] = {}
        self.answered: dict[int, Any] = {}
        # AlterPartition attempts that no test has taken yet: (node, its incarnation, request).
        self.alters: list[tuple[int, int, messages.AlterPartitionRequest]] = []
        self._asked: dict[int, tuple[int, int]] = {}
        # By request id: the core that asked, and its correlation id.
        self._next_request = 0
        for node in nodes:
            self.lives[node] = 0
            self._logs[node] = CoreLogs(Disk(node), lambda _: 0, saves_durably=True)
            self.disks[node] = self._logs[node].disk.logs
            self._files[node] = LogPerformers(self._logs[node], lambda: self.now)
            self.start(node)

    def start(self, node: int) -> None:
        """Start a new process of ``node`` that registers under the next node epoch."""
        self.lives[node] += 1
        self.flushes[node] = []
        self.effects.setdefault(node, [])
        self.cores[node] = NodeCore(
            node_id=NodeId(node),
            rules=self.rules,
            timings=self.timings,
            observe=Reporting,
            coordinators=self.coordinators,
        )
        self.step(node, events.Registered(self.now, CLUSTER, node_epoch(node, self.lives[node]), 1))

    def crash(self, node: int, *, keep: int | None = None, tp: TopicPartition = TP) -> None:
        """End the process. ``keep`` records of its log survive, by default the durable ones; never fewer."""
        del self.cores[node]
        self.flushes[node] = []
        for at, disk in self.disks[node].items():
            left = disk.durable if keep is None or at != tp else max(keep, disk.durable)
            disk.flushing = None
            disk.cut(min(left, disk.leo))
            disk.recover()
        for link in self.links.values():
            for message in [m for m in link if node in (m.source, m.target)]:
                link.remove(message)
                self._fail(message)

    def restart(self, node: int, *, keep: int | None = None) -> None:
        self.crash(node, keep=keep)
        self.start(node)

    def preload(
        self,
        node: int,
        batches: Iterable[BatchHeader],
        *,
        hw: int = 0,
        start: int | None = None,
        tp: TopicPartition = TP,
    ) -> None:
        """Give ``node`` a log before it receives metadata of the partition."""
        written = list(batches)
        disk = StoredLog(written[0].base_offset if written else 0)
        for header in written:
            disk.append(header, None, 0)
        disk.hw_cached, disk.log_start = hw, disk.root if start is None else start
        disk.recover()
        self.disks[node][tp] = disk

    def step(self, node: int, event: events.Event) -> list[want.Effect]:
        """Apply one event and everything that follows from it at once. Returns the effects."""
        found: list[want.Effect] = []
        queue = deque([event])
        while queue:
            event, core = queue.popleft(), self.cores[node]
            is_idle = isinstance(event, events.Ticked) and core.due_ms > event.now_ms
            asked = core.step(event)
            # A driver makes no tick before it is due; what a core reports of itself may wait.
            assert not is_idle or all(isinstance(effect, want.Emit) for effect in asked), (event, asked)
            self.effects[node].extend(asked)
            found.extend(asked)
            follow: list[events.Event] = []
            for effect in asked:
                follow.extend(self._perform(node, effect))
            queue.extend(follow)
        self._logs[node].sync_saves()
        return found

    def push(
        self, node: int, *images: messages.PartitionImage, nodes: Iterable[messages.NodeImage] | None = None, **how: Any
    ) -> list[want.Effect]:
        """Send metadata to one node, addressed to its current incarnation."""
        if nodes is None:
            mentioned = {n for i in images for n in (*i.replicas, *i.observers)}
            nodes = [node_image(n, life=self.lives.get(n, 1)) for n in sorted(mentioned)]
        image = metadata(node_epoch(node, self.lives[node]), *images, nodes=nodes, rules=self.rules, **how)
        return self.step(node, events.MetadataArrived(self.now, image))

    def push_all(self, *images: messages.PartitionImage, **how: Any) -> None:
        for node in list(self.cores):
            self.push(node, *images, **how)

    def advance(self, ms: int, *, tick_ms: int = 100, settle: bool = False) -> None:
        end = self.now + ms
        while self.now < end:
            self.now = min(end, self.now + tick_ms)
            for node in list(self.cores):
                self.step(node, events.Ticked(self.now, UNIX_MS + self.now))
            if settle:
                self.settle()

    def waiting(self, source: int, target: int) -> int:
        """How many messages are in flight on a link."""
        return len(self.links.get((source, target), ()))

    def deliver(self, source: int, target: int) -> list[want.Effect]:
        """Deliver the oldest message of a link."""
        message = self.links[source, target].popleft()
        if message.target not in self.cores or message.life != self.lives.get(message.asker):
            self._fail(message)
            return []
        return self.step(message.target, message.arrive())

    def drop(self, source: int, target: int) -> None:
        """Drop the oldest message of a link; the node that waits for it gets a failure."""
        self._fail(self.links[source, target].popleft())

    def settle(self, limit: int = 10_000) -> None:
        """Deliver and flush until nothing is in flight."""
        while limit:
            limit -= 1
            pending = [link for link, queue in self.links.items() if queue and link[1] in self.cores]
            flushing = [node for node in self.cores if self.flushes[node]]
            if not pending and not flushing:
                return
            for node in flushing:
                self.flush(node)
            for source, target in pending:
                if self.links[source, target]:
                    self.deliver(source, target)
        raise AssertionError("messages without end")

    def flush(self, node: int) -> None:
        """Complete the oldest commit of ``node``."""
        tp, commit = self.flushes[node].pop(0)
        commit.sync()
        self.step(node, events.LogFlushed(self.now, tp, commit.leo_at_issue))

    def _fail(self, message: Message) -> None:
        if message.asker in self.cores and message.life == self.lives[message.asker]:
            self.step(message.asker, message.fail())

    def request_id(self) -> int:
        self._next_request += 1
        return self._next_request

    def produce(
        self,
        *headers: BatchHeader,
        node: int = L,
        acks: Acks = Acks.ALL,
        timeout: int = 30_000,
        tp: TopicPartition = TP,
        payload: object = b"",
        transactional_id: str | None = None,
    ) -> int:
        """Send one request with the given batches for ``tp``, by default one record. Returns its id."""
        request = self.request_id()
        parts = tuple(produce_part(h, tp, payload) for h in headers or (batch(),))
        self.step(
            node, events.ProduceArrived(self.now, request, acks, timeout, parts, transactional_id=transactional_id)
        )
        return request

    def coordinator_says(self, refusal: Refusal | None = None, *, node: int = L) -> list[want.Effect]:
        """Answer the newest question of ``node`` whether a transaction includes a partition."""
        asked = self.wished(node, want.SendAddPartitions)[-1]
        return self.step(node, events.AddPartitionsAnswered(self.now, asked.correlation_id, refusal))

    def delete_records(
        self, offset: int | None, *, node: int = L, timeout: int = 30_000, tp: TopicPartition = TP
    ) -> int:
        """Request deletion on ``node`` of the records below ``offset``, or below its HW. Returns the request's id."""
        request = self.request_id()
        part = messages.DeletePartition(tp, None if offset is None else Offset(offset))
        self.step(node, events.DeleteRecordsAsked(self.now, request, timeout, (part,)))
        return request

    def attempts(self) -> list[messages.AlterPartitionRequest]:
        """Every AlterPartition that the leader has sent, oldest first."""
        return [effect.request for effect in self.wished(L, want.SendAlterPartition)]

    def decide(
        self, *isr: int, attempt: int = -1, tp: TopicPartition = TP, version: int = 2, code: ErrorCode | None = None
    ) -> None:
        """The controller answers an attempt, by default the latest, with an ISR of the partition or an error for it."""
        epoch, members = self.attempts()[attempt].partitions[0].leader_epoch, tuple(map(NodeId, isr))
        refusal = Refusal(code) if code else None
        decision = messages.IsrDecision(tp, refusal, L, epoch, members, PartitionEpoch(version))
        self.answer_attempt(messages.AlterPartitionAnswer(partitions=(decision,)), attempt)

    def answer_attempt(self, answer: messages.AlterPartitionAnswer, attempt: int = -1) -> None:
        sequence = self.attempts()[attempt].request_sequence
        self.step(L, events.AlterPartitionAnswered(self.now, sequence, answer))

    def lose_attempt(self, attempt: int = -1) -> None:
        self.step(L, events.AlterPartitionFailed(self.now, self.attempts()[attempt].request_sequence, "deadline"))

    def fetch_answered(self, *parts: messages.FetchedPartition, node: int = 2, leader: int = 1) -> list[want.Effect]:
        """A leader without a core answers the latest fetch of ``node``."""
        asked = self.wished(node, want.SendFetch)[-1].correlation_id
        return self.step(node, events.FetchAnswered(self.now, NodeId(leader), asked, parts))

    def epoch_ended(
        self, epoch: int | None = None, end: int = 0, *, node: int = 2, leader: int = 1, code: ErrorCode | None = None
    ) -> list[want.Effect]:
        """A leader without a core answers the latest question where an epoch ended; None: it cannot say."""
        found = None if epoch is None else EpochEnd(LeaderEpoch(epoch), Offset(end))
        answer = messages.EpochEndAnswer(TP, found, None if code is None else Refusal(code))
        asked = self.wished(node, want.SendEpochEnds)[-1].correlation_id
        return self.step(node, events.EpochEndsAnswered(self.now, NodeId(leader), asked, (answer,)))

    def outcome(self, request: int) -> messages.ProduceResult | None:
        """The answer to a produce of one partition, None while it waits."""
        answer = self.produced.get(request)
        return answer.results[0] if answer else None

    def refused(self, request: int) -> tuple[ErrorCode, Outcome | None] | None:
        """How a produce of one partition was refused; None while it waits, and if it was acknowledged."""
        result = self.outcome(request)
        return None if result is None or result.refusal is None else (result.refusal.code, result.outcome)

    def fetch(
        self,
        offset: int,
        *,
        by: int | None,
        node: int = L,
        tp: TopicPartition = TP,
        epoch: int | None = None,
        lfe: int | None = None,
        life: int | None = None,
        wait: int = 0,
        min_bytes: int = 1,
        part: messages.FetchPartition | None = None,
        at_follower: bool = False,
        stream: int | None = None,
        honest: bool = True,
        committed: bool = False,
    ) -> int:
        """A fetch by replica ``by``, or by a consumer if None. Fields that are not given have correct values.

        ``honest``, for a replica without a core: this leader has sent it everything up to the offset it claims.
        """
        if part is None and by is not None:
            part = self.honest_part(offset, node=node, tp=tp, epoch=epoch, lfe=lfe)
        if honest and by is not None and by not in self.cores:
            self.serve(offset, by=by, node=node, tp=tp)
        part = part or fetch_part(offset, tp=tp, epoch=epoch, lfe=lfe)
        request = self.request_id()
        life = self.lives.get(by or 0, 1) if life is None else life
        asked = fetch_request(part, replica=by, life=life, wait=wait, min_bytes=min_bytes, committed=committed)
        self.step(node, events.FetchArrived(self.now, request, asked, stream, at_follower))
        return request

    def serve(self, end: int, *, by: int, node: int = L, tp: TopicPartition = TP) -> None:
        """Record that the leader has sent replica ``by`` its log up to ``end``, or all of it if it ends earlier."""
        log = self.cores[node].state.logs.get(tp)
        if log is not None:
            self.step(node, events.FetchServed(self.now, NodeId(by), ((tp, Offset(min(end, log.leo)), 0),)))

    def honest_part(
        self, offset: int, *, node: int = L, tp: TopicPartition = TP, epoch: int | None = None, lfe: int | None = None
    ) -> messages.FetchPartition:
        """What a replica at ``offset`` would send: the current epoch, and the leader's epoch of the record before."""
        state = self.cores[node].state
        log = state.logs[tp]
        if lfe is None and offset > log.log_start_offset:
            lfe = log.epochs.epoch_of(Offset(min(offset, log.leo) - 1))
        start = offset if lfe is None else 0
        return fetch_part(
            offset, tp=tp, epoch=state.images[tp].leader_epoch if epoch is None else epoch, lfe=lfe, log_start=start
        )

    def result(self, request: int) -> messages.FetchResult | None:
        """The answer to a fetch of one partition, None while it is parked."""
        answers = self.fetched.get(request)
        return answers[-1].results[0] if answers else None

    def log(self, node: int, tp: TopicPartition = TP) -> Any:
        return self.cores[node].state.logs[tp]

    def ends(self, node: int, tp: TopicPartition = TP) -> tuple[int, int]:
        """(LEO, HW) of a replica."""
        log = self.log(node, tp)
        return log.leo, log.hw

    def leader(self, node: int = L, tp: TopicPartition = TP) -> Any:
        return self.cores[node].state.leaders[tp]

    def follower(self, node: int, tp: TopicPartition = TP) -> Any:
        return self.cores[node].state.followers[tp]

    def remote(self, follower: int, node: int = L, tp: TopicPartition = TP) -> int | None:
        """The remote LEO of ``follower`` as ``node`` knows it."""
        return self.leader(node, tp).progress[follower].remote_leo

    def wished(self, node: int, kind: type[E]) -> list[E]:
        """Every effect of a kind that ``node`` ever requested."""
        return [e for e in self.effects[node] if isinstance(e, kind)]

    def emitted(self, node: int, event_type: str) -> list[want.Emit]:
        """Every event of a type that was reported."""
        return [e for e in self.wished(node, want.Emit) if NAME_OF[type(e.event)] == event_type]

    def cuts(self, node: int) -> list[int]:
        """The offsets where ``node`` truncated, in order."""
        return [e.offset for e in self.wished(node, want.Truncate)]

    def _perform(self, node: int, effect: want.Effect) -> list[events.Event]:
        on_logs = self._files[node].table.get(type(effect))
        if on_logs is not None:
            event = on_logs(effect)
            return [] if event is None else [event]
        handler = _PERFORM.get(type(effect))
        return handler(self, node, effect) if handler else []

    def _flush(self, node: int, effect: want.Flush) -> list[events.Event]:
        commit = self._logs[node].issue_flush(effect.tp)
        if not commit.has_work:
            return [events.LogFlushed(self.now, effect.tp, commit.leo_at_issue)]
        if self.hold_flushes:
            self.flushes[node].append((effect.tp, commit))
            return []
        commit.sync()
        return [events.LogFlushed(self.now, effect.tp, commit.leo_at_issue)]

    def _ask(
        self, node: int, effect: Any, failed: Callable[..., events.Event], arrive: Callable[[int], events.Event]
    ) -> list[events.Event]:
        """Send what ``node`` asks its leader, as an event with a new request id there."""
        request = self.request_id()
        self._asked[request] = (node, effect.correlation_id)
        fail = failed(self.now, effect.leader, effect.correlation_id, "lost")
        self._send(node, effect.leader, node, arrive(request), fail)
        return []

    def _reply(
        self, leader: int, request: int, answered: Callable[..., events.Event], failed: Callable[..., events.Event],
        content: object,
    ) -> None:  # fmt: skip
        """Send an answer to the core that asked, if one did."""
        if request in self._asked:
            asker, correlation = self._asked[request]
            arrive = answered(self.now, NodeId(leader), correlation, content)
            self._send(leader, asker, asker, arrive, failed(self.now, NodeId(leader), correlation, "lost"))

    def _send(self, source: int, target: int, asker: int, arrive: events.Event, fail: events.Event) -> None:
        message = Message(
            source, target, lambda: replace(arrive, now_ms=self.now), asker, lambda: replace(fail, now_ms=self.now),
            self.lives[asker],
        )  # fmt: skip
        self.links.setdefault((source, target), deque()).append(message)

    def _send_fetch(self, node: int, effect: want.SendFetch) -> list[events.Event]:
        stream = 1000 * self.lives[node] + node if self.streams else None
        arrive = partial(events.FetchArrived, self.now, request=effect.request, stream_id=stream)
        return self._ask(node, effect, events.FetchFailed, arrive)

    def _send_forget(self, node: int, effect: want.SendForget) -> list[events.Event]:
        if self.streams and effect.leader in self.cores:
            stream = 1000 * self.lives[node] + node
            arrive = events.FetchForgotten(self.now, stream, effect.partitions)
            nothing = events.FetchFailed(self.now, effect.leader, -1, "forget was lost")
            self._send(node, effect.leader, node, arrive, nothing)
        return []

    def _send_epochs(self, node: int, effect: want.SendEpochEnds) -> list[events.Event]:
        arrive = partial(events.EpochEndsAsked, self.now, questions=effect.questions)
        return self._ask(node, effect, events.EpochEndsFailed, arrive)

    def _send_offsets(self, node: int, effect: want.SendListOffsets) -> list[events.Event]:
        replica = self.cores[node].state.identity
        arrive = partial(events.OffsetsAsked, self.now, questions=effect.questions, replica=replica)
        return self._ask(node, effect, events.OffsetsFailed, arrive)

    def _send_producers(self, node: int, effect: want.SendProducerSnapshot) -> list[events.Event]:
        arrive = partial(events.ProducerSnapshotAsked, self.now, question=effect.question)
        return self._ask(node, effect, events.ProducerSnapshotFailed, arrive)

    def _send_alter(self, node: int, effect: want.SendAlterPartition) -> list[events.Event]:
        self.alters.append((node, self.lives[node], effect.request))
        return []

    def _answer_produce(self, _: int, effect: want.AnswerProduce) -> list[events.Event]:
        assert effect.request_id not in self.produced, "a produce was answered twice"
        self.produced[effect.request_id] = effect
        return []

    def _answer_fetch(self, node: int, effect: want.AnswerFetch) -> list[events.Event]:
        self.fetched.setdefault(effect.request_id, []).append(effect)
        found = self._read(node, effect)
        if found.partitions:
            parts = tuple(as_fetched(part) for part in found.partitions)
            self._reply(node, effect.request_id, events.FetchAnswered, events.FetchFailed, parts)
        if effect.replica is not None and found.ends:
            return [events.FetchServed(self.now, effect.replica, tuple(found.ends))]
        return []

    def _read(self, node: int, effect: want.AnswerFetch) -> Found:
        results = effect.results
        if self.max_records_per_fetch is not None:
            results = tuple(self._shortened(node, result) for result in results)
        return self._files[node].read(results, effect.max_bytes)

    def _shortened(self, node: int, result: messages.FetchResult) -> messages.FetchResult:
        """The first batches of a read, as many as the test allows."""
        if result.read is None:
            return result
        ends = [h.next_offset for h in self.disks[node][result.tp].headers if h.next_offset > result.read.start]
        end = min(result.read.end, (ends[: self.max_records_per_fetch] or [result.read.end])[-1])
        return result._replace(read=result.read._replace(end=Offset(end)))

    def _answer_epochs(self, node: int, effect: want.AnswerEpochEnds) -> list[events.Event]:
        self.answered[effect.request_id] = effect.answers
        self._reply(node, effect.request_id, events.EpochEndsAnswered, events.EpochEndsFailed, effect.answers)
        return []

    def _answer_offsets(self, node: int, effect: want.AnswerOffsets) -> list[events.Event]:
        self.answered[effect.request_id] = effect.answers
        self._reply(node, effect.request_id, events.OffsetsAnswered, events.OffsetsFailed, effect.answers)
        return []

    def _read_coordinator_log(self, node: int, effect: want.ReadCoordinatorLog) -> list[events.Event]:
        chunk = self._logs[node].read(effect.tp, effect.start, effect.end, effect.max_bytes, at_least_one=True)
        read = events.CoordinatorLogRead(
            self.now, effect.tp, effect.leader_epoch, effect.start, chunk.end, chunk.payload, len(chunk.payload)
        )
        if not self.hold_reads:
            return [read]
        self.reads.append((node, self.lives[node], read))
        return []

    def hand_over_read(self) -> None:
        """Give the oldest piece of a log that was read to the coordinator that waits for it."""
        node, life, read = self.reads.pop(0)
        if node in self.cores and self.lives[node] == life:
            self.step(node, read)

    def ask_coordinator(self, request: object, *, node: int = L, tp: TopicPartition = TP, timeout: int = 5_000) -> int:
        """Send a request to the coordinator that lives in ``tp``. Returns its id."""
        request_id = self.request_id()
        self.step(node, events.CoordinatorAsked(self.now, request_id, tp, timeout, request))
        return request_id

    def _answer_coordinator(self, _: int, effect: want.AnswerCoordinator) -> list[events.Event]:
        assert effect.request_id not in self.answered, "a request to a coordinator was answered twice"
        self.answered[effect.request_id] = effect.answer
        return []

    def _answer_call(self, node: int, effect: want.AnswerCall) -> list[events.Event]:
        assert effect.request_id not in self.answered, f"a {effect.call} was answered twice"
        self.answered[effect.request_id] = effect.answers
        if effect.request_id in self._asked:
            (answer,) = effect.answers
            if node in self.earlier_releases:
                answer = messages.ProducerSnapshotAnswer(answer.tp, refusal=Refusal(ErrorCode.UNSUPPORTED_VERSION))
            kinds = events.ProducerSnapshotAnswered, events.ProducerSnapshotFailed
            self._reply(node, effect.request_id, *kinds, answer)
        return []


_PERFORM: dict[type[Any], Callable[[Cluster, int, Any], list[events.Event]]] = {
    want.Flush: Cluster._flush,
    want.SendFetch: Cluster._send_fetch,
    want.SendForget: Cluster._send_forget,
    want.SendEpochEnds: Cluster._send_epochs,
    want.SendListOffsets: Cluster._send_offsets,
    want.SendProducerSnapshot: Cluster._send_producers,
    want.SendAlterPartition: Cluster._send_alter,
    want.AnswerProduce: Cluster._answer_produce,
    want.AnswerFetch: Cluster._answer_fetch,
    want.AnswerEpochEnds: Cluster._answer_epochs,
    want.AnswerOffsets: Cluster._answer_offsets,
    want.AnswerCall: Cluster._answer_call,
    want.ReadCoordinatorLog: Cluster._read_coordinator_log,
    want.AnswerCoordinator: Cluster._answer_coordinator,
}
