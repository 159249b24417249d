"""Cores of several data nodes without processes: effects are performed in memory, messages wait to be delivered.

Nothing happens by itself: `deliver`, `drop`, `settle`, `advance`, `push` and `crash` move the world. Logs keep the
batch headers and payloads that the cores asked to append, so whatever a test compares was really "written".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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

from strandline.core import effects as want
from strandline.core import events
from strandline.core.messages import (
    AlterPartitionRequest,
    DeletePartition,
    FetchedPartition,
    FetchPartition,
    FetchResult,
    NodeImage,
    PartitionImage,
    ProduceResult,
)
from strandline.core.node import NodeCore
from strandline.core.producers import ProducerLedger
from strandline.core.timings import NodeTimings
from strandline.core.types import (
    Acks,
    BatchHeader,
    EpochEntry,
    NodeId,
    Offset,
    ProducerBatch,
    Rules,
    TopicPartition,
)

E = TypeVar("E")


@dataclass
class StoredLog:
    """One log "on disk": what is written, how much of it is durable, and the checkpoint files beside it."""

    batches: list[tuple[BatchHeader, object]] = field(default_factory=list)
    log_start: int = 0
    empty_at: int = 0
    durable: int = 0
    flushing: int | None = None
    """What the commit under way will cover: the LEO at its issue, less whatever was cut since."""
    epochs: tuple[EpochEntry, ...] = ()
    high_watermark: int = 0

    @property
    def leo(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else self.empty_at

    def append(self, header: BatchHeader, payload: object) -> None:
        assert header.base_offset == self.leo, (header, self.leo)
        self.batches.append((header, payload))

    def cut(self, offset: int) -> None:
        """Keep whole batches below ``offset``: the one that holds it goes."""
        held = [b[0].base_offset for b in self.batches if b[0].base_offset < offset < b[0].next_offset]
        end = held[0] if held else offset
        self.batches = [b for b in self.batches if b[0].next_offset <= end]
        self.empty_at = min(self.empty_at, end)
        if not self.batches:
            self.empty_at = end
        self.durable = min(self.durable, end)
        if self.flushing is not None:
            self.flushing = min(self.flushing, end)

    def flushed(self) -> None:
        """The commit under way is complete."""
        assert self.flushing is not None
        self.durable, self.flushing = max(self.durable, self.flushing), None

    def producers(self) -> tuple[ProducerBatch, ...]:
        ledger = ProducerLedger()
        for header, _ in self.batches:
            ledger.observe(header, header.base_offset)
        return ledger.rows()

    def read(self, start: int, end: int) -> list[tuple[BatchHeader, object]]:
        return [b for b in self.batches if b[0].next_offset > start and b[0].next_offset <= end]

    def records(self, start: int = 0, end: int | None = None) -> list[tuple[int, int, object]]:
        """(offset, epoch, payload) of every record in [start, end)."""
        top = self.leo if end is None else end
        found = [(o, h.leader_epoch, p) for h, p in self.batches for o in range(h.base_offset, h.next_offset)]
        return [r for r in found if start <= r[0] < top]

    def recover(self) -> None:
        """What recovery does: batches win over the epoch checkpoint, and what is left becomes durable (M55, TR17)."""
        kept = [e for e in self.epochs if e.start_offset < self.leo]
        for header, _ in self.batches:
            if not kept or header.stamped_epoch > kept[-1].epoch:
                kept.append(EpochEntry(header.stamped_epoch, header.base_offset))
        self.epochs = tuple(kept)
        self.durable = self.leo


@dataclass
class Message:
    """Something under way between two nodes. Dropping it gives the asker the failure instead."""

    source: int
    target: int
    arrive: Callable[[], events.Event]
    asker: int
    fail: Callable[[], events.Event]
    life: int

    def __repr__(self) -> str:
        return f"{self.source}->{self.target}"


class Cluster:
    """Some cores and all that is between them. Nodes without a core may be named in metadata and requests."""

    def __init__(
        self,
        *nodes: int,
        rules: Rules | None = None,
        timings: NodeTimings | None = None,
        streams: bool = False,
        hold_flushes: bool = False,
        max_records_per_fetch: int | None = None,
    ) -> None:
        self.now = 0
        self.rules = rules or Rules()
        self.timings = timings or NodeTimings()
        self.streams = streams
        self.hold_flushes = hold_flushes
        self.max_records_per_fetch = max_records_per_fetch
        self.cores: dict[int, NodeCore] = {}
        self.lives: dict[int, int] = {}
        self.disks: dict[int, dict[TopicPartition, StoredLog]] = {}
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.flushes: dict[int, list[events.LogFlushed]] = {}
        # Everything each node ever asked for, in order.
        self.effects: dict[int, list[want.Effect]] = {}
        self.produced: dict[int, want.AnswerProduce] = {}
        self.fetched: dict[int, list[want.AnswerFetch]] = {}
        self.answered: dict[int, Any] = {}
        # AlterPartition attempts nobody has taken yet: (node, its life, request).
        self.alters: list[tuple[int, int, AlterPartitionRequest]] = []
        self._asked: dict[int, tuple[int, int, int]] = {}
        self._next_request = 0
        for node in nodes:
            self.lives[node] = 0
            self.disks[node] = {}
            self.start(node)

    def start(self, node: int) -> None:
        """A new process of ``node`` that registers under the next node epoch."""
        self.lives[node] += 1
        self.flushes[node] = []
        self.effects.setdefault(node, [])
        self.cores[node] = NodeCore(node_id=NodeId(node), rules=self.rules, timings=self.timings)
        self.step(node, events.Registered(self.now, CLUSTER, node_epoch(node, self.lives[node]), 1))

    def crash(self, node: int, *, keep: int | None = None, tp: TopicPartition = TP) -> None:
        """End the process. Of its log ``keep`` records survive, by default what was durable; never less."""
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
        """Crash and start again."""
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
        """Give ``node`` a log before it hears of the partition."""
        disk = StoredLog(high_watermark=hw)
        for header in batches:
            if not disk.batches:
                disk.empty_at = header.base_offset
            disk.append(header, None)
        disk.log_start = disk.batches[0][0].base_offset if start is None and disk.batches else (start or 0)
        disk.recover()
        self.disks[node][tp] = disk

    def step(self, node: int, event: events.Event) -> list[want.Effect]:
        """One event and everything that follows from it at once. Returns the effects."""
        found: list[want.Effect] = []
        queue = deque([event])
        while queue:
            asked = self.cores[node].step(queue.popleft())
            self.effects[node].extend(asked)
            found.extend(asked)
            follow: list[events.Event] = []
            for effect in asked:
                follow.extend(self._perform(node, effect))
            queue.extend(follow)
        return found

    def push(
        self, node: int, *images: PartitionImage, nodes: Iterable[NodeImage] | None = None, **how: Any
    ) -> list[want.Effect]:
        """Metadata for one node, addressed to its present life."""
        if nodes is None:
            mentioned = {n for i in images for n in (*i.replicas, *i.observers)}
            nodes = [node_image(n, life=self.lives.get(n, 1)) for n in sorted(mentioned)]
        to = node_epoch(node, self.lives[node])
        image = metadata(to, *images, nodes=nodes, rules=self.rules, **how)
        return self.step(node, events.MetadataArrived(self.now, image))

    def push_all(self, *images: PartitionImage, **how: Any) -> None:
        """Metadata for every running node."""
        for node in list(self.cores):
            self.push(node, *images, **how)

    def advance(self, ms: int, *, tick_ms: int = 100, settle: bool = False) -> None:
        """Let time pass in ticks."""
        end = self.now + ms
        while self.now < end:
            self.now = min(end, self.now + tick_ms)
            for node in list(self.cores):
                self.step(node, events.Ticked(self.now))
            if settle:
                self.settle()

    def waiting(self, source: int, target: int) -> int:
        """How many messages are under way on a link."""
        return len(self.links.get((source, target), ()))

    def deliver(self, source: int, target: int) -> list[want.Effect]:
        """Let the oldest message of a link arrive."""
        message = self.links[source, target].popleft()
        if message.target not in self.cores or message.life != self.lives.get(message.asker):
            self._fail(message)
            return []
        return self.step(message.target, message.arrive())

    def drop(self, source: int, target: int) -> None:
        """Lose the oldest message of a link; who waits for it hears that it failed."""
        self._fail(self.links[source, target].popleft())

    def settle(self, limit: int = 10_000) -> None:
        """Deliver and flush until nothing is under way."""
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
        event = self.flushes[node].pop(0)
        self.disks[node][event.tp].flushed()
        self.step(node, replace(event, now_ms=self.now))

    def _fail(self, message: Message) -> None:
        if message.asker in self.cores and message.life == self.lives[message.asker]:
            self.step(message.asker, message.fail())

    def request_id(self) -> int:
        """An id that no other request has."""
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
    ) -> int:
        """Send one request with the given batches for ``tp``, by default one record. Returns its id."""
        request = self.request_id()
        parts = tuple(produce_part(h, tp, payload) for h in headers or (batch(),))
        self.step(node, events.ProduceArrived(self.now, request, acks, timeout, parts))
        return request

    def delete_records(
        self, offset: int | None, *, node: int = L, timeout: int = 30_000, tp: TopicPartition = TP
    ) -> int:
        """Ask ``node`` to delete the records below ``offset``, or below its HW. Returns the request's id."""
        request = self.request_id()
        part = DeletePartition(tp, None if offset is None else Offset(offset))
        self.step(node, events.DeleteRecordsAsked(self.now, request, timeout, (part,)))
        return request

    def outcome(self, request: int) -> ProduceResult | None:
        """The answer to a produce of one partition, None while it waits."""
        answer = self.produced.get(request)
        return answer.results[0] if answer else None

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
        part: FetchPartition | None = None,
        at_follower: bool = False,
        stream: int | None = None,
        honest: bool = True,
    ) -> int:
        """A fetch by replica ``by`` or (None) a consumer. Fields that are not given are right.

        A replica without a core is ``honest``: whatever it says it has, this leader has sent it before.
        """
        if part is None and by is not None:
            part = self.honest_part(offset, node=node, tp=tp, epoch=epoch, lfe=lfe)
        if honest and by is not None and by not in self.cores:
            self.serve(offset, by=by, node=node, tp=tp)
        part = part or fetch_part(offset, tp=tp, epoch=epoch, lfe=lfe)
        request = self.request_id()
        life = self.lives.get(by or 0, 1) if life is None else life
        asked = fetch_request(part, replica=by, life=life, wait=wait, min_bytes=min_bytes)
        self.step(node, events.FetchArrived(self.now, request, asked, stream, at_follower))
        return request

    def serve(self, end: int, *, by: int, node: int = L, tp: TopicPartition = TP) -> None:
        """The leader has sent replica ``by`` its log up to ``end``, or whole if ``end`` lies beyond it."""
        log = self.cores[node].state.logs.get(tp)
        if log is not None:
            self.step(node, events.FetchServed(self.now, NodeId(by), ((tp, Offset(min(end, log.leo))),)))

    def honest_part(
        self, offset: int, *, node: int = L, tp: TopicPartition = TP, epoch: int | None = None, lfe: int | None = None
    ) -> FetchPartition:
        """What a replica at ``offset`` would ask: the current epoch, and the leader's epoch of the record before."""
        state = self.cores[node].state
        log = state.logs[tp]
        if lfe is None and offset > log.log_start_offset:
            lfe = log.epochs.epoch_of(Offset(min(offset, log.leo) - 1))
        start = offset if lfe is None else 0
        return fetch_part(
            offset, tp=tp, epoch=state.images[tp].leader_epoch if epoch is None else epoch, lfe=lfe, log_start=start
        )

    def result(self, request: int) -> FetchResult | None:
        """The answer to a fetch of one partition, None while it is parked."""
        answers = self.fetched.get(request)
        return answers[-1].results[0] if answers else None

    def log(self, node: int, tp: TopicPartition = TP) -> Any:
        """The core's view of a log."""
        return self.cores[node].state.logs[tp]

    def ends(self, node: int, tp: TopicPartition = TP) -> tuple[int, int]:
        """(LEO, HW) of a replica."""
        log = self.log(node, tp)
        return log.leo, log.hw

    def leader(self, node: int = L, tp: TopicPartition = TP) -> Any:
        """The leader's part of ``node``."""
        return self.cores[node].state.leaders[tp]

    def follower(self, node: int, tp: TopicPartition = TP) -> Any:
        """The follower's part of ``node``."""
        return self.cores[node].state.followers[tp]

    def remote(self, follower: int, node: int = L, tp: TopicPartition = TP) -> int | None:
        """The remote LEO of ``follower`` as ``node`` knows it."""
        leo: int | None = self.leader(node, tp).progress[follower].remote_leo
        return leo

    def wished(self, node: int, kind: type[E]) -> list[E]:
        """Every effect of a kind that ``node`` ever asked for."""
        return [e for e in self.effects[node] if isinstance(e, kind)]

    def emitted(self, node: int, event_type: str) -> list[want.Emit]:
        """Every event of a type that left the house."""
        return [e for e in self.wished(node, want.Emit) if e.event_type == event_type]

    def cuts(self, node: int) -> list[int]:
        """Where ``node`` truncated, in order."""
        return [e.offset for e in self.wished(node, want.Truncate)]

    def _perform(self, node: int, effect: want.Effect) -> list[events.Event]:
        handler = _PERFORM.get(type(effect))
        return handler(self, node, effect) if handler else []

    def _open(self, node: int, effect: want.OpenLog) -> list[events.Event]:
        disk = self.disks[node].setdefault(effect.tp, StoredLog())
        return [
            events.LogOpened(
                self.now, effect.tp, Offset(disk.log_start), Offset(disk.leo), Offset(disk.high_watermark),
                disk.epochs, disk.producers(),
            )
        ]  # fmt: skip

    def _delete(self, node: int, effect: want.DeleteLog) -> list[events.Event]:
        del self.disks[node][effect.tp]
        return []

    def _append(self, node: int, effect: want.Append) -> list[events.Event]:
        header = effect.header._replace(base_offset=effect.base_offset, leader_epoch=effect.leader_epoch)
        self.disks[node][effect.tp].append(header, effect.payload)
        return []

    def _append_replicated(self, node: int, effect: want.AppendReplicated) -> list[events.Event]:
        payloads = effect.payload if isinstance(effect.payload, tuple) else (effect.payload,) * len(effect.batches)
        for header, payload in zip(effect.batches, payloads, strict=True):
            self.disks[node][effect.tp].append(header, payload)
        return []

    def _truncate(self, node: int, effect: want.Truncate) -> list[events.Event]:
        disk = self.disks[node][effect.tp]
        disk.cut(effect.offset)
        return [events.LogTruncated(self.now, effect.tp, Offset(disk.leo), disk.producers())]

    def _restart_log(self, node: int, effect: want.RestartLog) -> list[events.Event]:
        disk = self.disks[node][effect.tp]
        disk.batches, disk.epochs = [], ()
        disk.log_start = disk.empty_at = disk.durable = effect.offset
        disk.flushing = None if disk.flushing is None else 0
        return []

    def _log_start(self, node: int, effect: want.AdvanceLogStart) -> list[events.Event]:
        self.disks[node][effect.tp].log_start = effect.offset
        return []

    def _save_epochs(self, node: int, effect: want.SaveEpochs) -> list[events.Event]:
        self.disks[node][effect.tp].epochs = effect.entries
        return []

    def _save_hw(self, node: int, effect: want.SaveHighWatermarks) -> list[events.Event]:
        for tp, hw in effect.high_watermarks.items():
            self.disks[node][tp].high_watermark = hw
        return []

    def _flush(self, node: int, effect: want.Flush) -> list[events.Event]:
        disk = self.disks[node][effect.tp]
        assert disk.flushing is None, "two commits of one log at once"
        disk.flushing = disk.leo
        event = events.LogFlushed(self.now, effect.tp, Offset(disk.leo))
        if self.hold_flushes:
            self.flushes[node].append(event)
            return []
        disk.flushed()
        return [event]

    def _ask(
        self, node: int, target: int, correlation: int, request: int, arrive: events.Event, fail: events.Event
    ) -> None:
        self._asked[request] = (node, correlation, target)
        self._send(node, target, node, arrive, fail)

    def _send(self, source: int, target: int, asker: int, arrive: events.Event, fail: events.Event) -> None:
        message = Message(
            source, target, lambda: replace(arrive, now_ms=self.now), asker, lambda: replace(fail, now_ms=self.now),
            self.lives[asker],
        )  # fmt: skip
        self.links.setdefault((source, target), deque()).append(message)

    def _reply(self, leader: int, request: int, arrive: events.Event, fail: events.Event) -> None:
        asker = self._asked[request][0]
        self._send(leader, asker, asker, arrive, fail)

    def _send_fetch(self, node: int, effect: want.SendFetch) -> list[events.Event]:
        request = self.request_id()
        stream = 1000 * self.lives[node] + node if self.streams else None
        arrive = events.FetchArrived(self.now, request, effect.request, stream)
        fail = events.FetchFailed(self.now, effect.leader, effect.correlation_id, "lost")
        self._ask(node, effect.leader, effect.correlation_id, request, arrive, fail)
        return []

    def _send_forget(self, node: int, effect: want.SendForget) -> list[events.Event]:
        if self.streams and effect.leader in self.cores:
            stream = 1000 * self.lives[node] + node
            arrive = events.FetchForgotten(self.now, stream, effect.partitions)
            nothing = events.FetchFailed(self.now, effect.leader, -1, "forget was lost")
            self._send(node, effect.leader, node, arrive, nothing)
        return []

    def _send_epochs(self, node: int, effect: want.SendEpochEnds) -> list[events.Event]:
        request = self.request_id()
        arrive = events.EpochEndsAsked(self.now, request, effect.questions)
        fail = events.EpochEndsFailed(self.now, effect.leader, effect.correlation_id, "lost")
        self._ask(node, effect.leader, effect.correlation_id, request, arrive, fail)
        return []

    def _send_offsets(self, node: int, effect: want.SendListOffsets) -> list[events.Event]:
        request = self.request_id()
        replica = self.cores[node].state.identity
        arrive = events.OffsetsAsked(self.now, request, effect.questions, replica)
        fail = events.OffsetsFailed(self.now, effect.leader, effect.correlation_id, "lost")
        self._ask(node, effect.leader, effect.correlation_id, request, arrive, fail)
        return []

    def _send_alter(self, node: int, effect: want.SendAlterPartition) -> list[events.Event]:
        self.alters.append((node, self.lives[node], effect.request))
        return []

    def _answer_produce(self, _: int, effect: want.AnswerProduce) -> list[events.Event]:
        assert effect.request_id not in self.produced, "a produce was answered twice"
        self.produced[effect.request_id] = effect
        return []

    def _answer_fetch(self, node: int, effect: want.AnswerFetch) -> list[events.Event]:
        self.fetched.setdefault(effect.request_id, []).append(effect)
        parts, ends = [], []
        for result in effect.results:
            found = self._read(node, result)
            if found:
                ends.append((result.tp, found[-1][0].next_offset))
            parts.append(_as_received(result, found))
        if effect.request_id in self._asked and parts:
            _, correlation, _ = self._asked[effect.request_id]
            arrive = events.FetchAnswered(self.now, NodeId(node), correlation, tuple(parts))
            fail = events.FetchFailed(self.now, NodeId(node), correlation, "lost")
            self._reply(node, effect.request_id, arrive, fail)
        if effect.replica is not None and ends:
            return [events.FetchServed(self.now, effect.replica, tuple(ends))]
        return []

    def _read(self, node: int, result: FetchResult) -> list[tuple[BatchHeader, object]]:
        if result.read is None:
            return []
        found = self.disks[node][result.tp].read(result.read.start, result.read.end)
        return found[: self.max_records_per_fetch]

    def _answer_epochs(self, node: int, effect: want.AnswerEpochEnds) -> list[events.Event]:
        self.answered[effect.request_id] = effect.answers
        if effect.request_id in self._asked:
            _, correlation, _ = self._asked[effect.request_id]
            arrive = events.EpochEndsAnswered(self.now, NodeId(node), correlation, effect.answers)
            self._reply(
                node, effect.request_id, arrive, events.EpochEndsFailed(self.now, NodeId(node), correlation, "lost")
            )
        return []

    def _answer_offsets(self, node: int, effect: want.AnswerOffsets) -> list[events.Event]:
        self.answered[effect.request_id] = effect.answers
        if effect.request_id in self._asked:
            _, correlation, _ = self._asked[effect.request_id]
            arrive = events.OffsetsAnswered(self.now, NodeId(node), correlation, effect.answers)
            self._reply(
                node, effect.request_id, arrive, events.OffsetsFailed(self.now, NodeId(node), correlation, "lost")
            )
        return []

    def _answer_call(self, _: int, effect: want.AnswerCall) -> list[events.Event]:
        assert effect.request_id not in self.answered, f"a {effect.call} was answered twice"
        self.answered[effect.request_id] = effect.answers
        return []


def _as_received(result: FetchResult, found: list[tuple[BatchHeader, object]]) -> FetchedPartition:
    return FetchedPartition(
        result.tp,
        result.refusal,
        result.high_watermark,
        result.log_start_offset,
        result.diverging,
        tuple(h for h, _ in found),
        tuple(p for _, p in found),
    )


_PERFORM: dict[type[Any], Callable[[Cluster, int, Any], list[events.Event]]] = {
    want.OpenLog: Cluster._open,
    want.DeleteLog: Cluster._delete,
    want.Append: Cluster._append,
    want.AppendReplicated: Cluster._append_replicated,
    want.Truncate: Cluster._truncate,
    want.RestartLog: Cluster._restart_log,
    want.AdvanceLogStart: Cluster._log_start,
    want.SaveEpochs: Cluster._save_epochs,
    want.SaveHighWatermarks: Cluster._save_hw,
    want.Flush: Cluster._flush,
    want.SendFetch: Cluster._send_fetch,
    want.SendForget: Cluster._send_forget,
    want.SendEpochEnds: Cluster._send_epochs,
    want.SendListOffsets: Cluster._send_offsets,
    want.SendAlterPartition: Cluster._send_alter,
    want.AnswerProduce: Cluster._answer_produce,
    want.AnswerFetch: Cluster._answer_fetch,
    want.AnswerEpochEnds: Cluster._answer_epochs,
    want.AnswerOffsets: Cluster._answer_offsets,
    want.AnswerCall: Cluster._answer_call,
}
