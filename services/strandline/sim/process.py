"""Decides how one incarnation of a data node lives: it steps the production core and performs what that asks for.

Invariants: effects of a step are performed in list order, completely, before anything else is stepped, and a
follow-up event is stepped right after the effects it arose from (as `runtime.driver` does); a dead process does
nothing more, whatever was planned for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.core import effects as want
from strandline.core import events
from strandline.core.messages import DeletePartition, FetchedPartition, FetchResult, OffsetQuestion, ProducePartition
from strandline.core.types import Acks, NodeId, Offset, TopicPartition
from strandline.sim.disk import LogFile
from strandline.sim.draws import mix
from strandline.sim.links import Links
from strandline.sim.network import Call, Stream
from strandline.sim.own_checks import check_own
from strandline.sim.session import Session

if TYPE_CHECKING:
    from strandline.sim.machine import Machine

TICK_MS = 50
_DELETION_TIMEOUT_MS = 10_000

Answerer = Callable[[Any, bool], None]
"""Takes what a request is answered, and whether no more follows."""


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
        self.core = world.build.node_core(
            node_id=NodeId(machine.node_id), rules=world.rules, timings=world.node_timings, seen=self.disk.seen
        )
        self.session = Session(self)
        self.links = Links(self)
        self._sinks: dict[int, Answerer] = {}
        self._next_request = 0
        self._latest: set[int] = set()
        self._halted = ""
        # What the checks remember of this life: the HW last seen of each log, and produces not answered yet.
        self.hws: dict[TopicPartition, int] = {}
        self.produces: dict[int, tuple[Acks, int, int, int]] = {}
        # The HW of each log as this life found or saved it.
        self.saved: dict[TopicPartition, int] = {}
        self._perform: dict[type[Any], Callable[[Any], events.Event | None]] = self._performers()

    @property
    def now_ms(self) -> int:
        """This process's own clock."""
        return self.machine.clock.ms(self.world.timeline.now_us)

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Do something now, or when the process goes on."""
        if not self.alive:
            return
        if self.machine.is_paused:
            self.machine.inbox.append((self, action, given))
            return
        action(*given)

    def start(self) -> None:
        """Begin to live: register, and tick."""
        self.session.register()
        self._tick()

    def _tick(self) -> None:
        if not self.alive:
            return
        if self.machine.is_paused:
            # One timer, not one for every interval that was missed.
            self.machine.inbox.append((self, self._tick, ()))
            return
        self.world.timeline.after(self.machine.clock.world_us(TICK_MS), self._tick)
        self.step(events.Ticked(self.now_ms))

    def step(self, event: events.Event) -> None:
        """Let an event happen, with all that follows from it; then everything is checked."""
        self._step(event)
        self.world.checks.after_step(self)
        check_own(self)
        if self._halted:
            self.machine.halted(self._halted)

    def _step(self, event: events.Event) -> None:
        world = self.world
        world.events += 1
        asked = self.core.step(event)
        if world.recorder is not None:
            world.recorder.stepped(self, event, asked)
        perform = self._perform
        follow_ups: list[events.Event] | None = None
        for effect in asked:
            follow_up = perform[type(effect)](effect)
            if follow_up is not None:
                if follow_ups is None:
                    follow_ups = []
                follow_ups.append(follow_up)
        if follow_ups is not None:
            for follow_up in follow_ups:
                self._step(follow_up)

    def ask(self, answer: Answerer) -> int:
        """A request id whose answers go to ``answer``."""
        self._next_request += 1
        self._sinks[self._next_request] = answer
        return self._next_request

    def serve(self, call: Call, build: Callable[[int, int], events.Event]) -> None:
        """Step the event that ``build(now_ms, request_id)`` makes; its answer goes back over the network."""
        request_id = self.ask(lambda answer, _: self.world.network.reply(call, answer))
        self.step(build(self.now_ms, request_id))

    def serve_produce(self, call: Call, acks: Acks, timeout_ms: int, part: ProducePartition) -> None:
        """A client's produce came."""
        request_id = self.ask(lambda answer, _: self.world.network.reply(call, answer))
        assert isinstance(part.payload, int)
        leo = self.machine.log(part.tp).leo
        self.produces[request_id] = (acks, part.payload, part.header.record_count, leo)
        self.step(events.ProduceArrived(self.now_ms, request_id, acks, timeout_ms, (part,)))

    def serve_latest(self, call: Call, question: OffsetQuestion) -> None:
        """A client asks where a partition ends."""
        request_id = self.ask(lambda answer, _: self.world.network.reply(call, answer))
        self._latest.add(request_id)
        self.step(events.OffsetsAsked(self.now_ms, request_id, (question,)))

    def serve_fetch(self, stream: Stream, message: Any) -> None:
        """A replica's fetch came on its stream."""
        correlation_id, request = message
        send_down = self.world.network.send_down

        def answer(partitions: Any, _: bool) -> None:
            send_down(stream, (correlation_id, partitions))

        request_id = self.ask(answer)
        self.step(events.FetchArrived(self.now_ms, request_id, request, stream.number))

    def end_fetches(self, stream: Stream) -> None:
        """A replica's stream ended here."""
        self.step(events.FetchForgotten(self.now_ms, stream.number))

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        """An operator wants records deleted, and waits for it."""
        request_id = self.ask(lambda answer, _: None)
        part = DeletePartition(tp, Offset(offset))
        self.step(events.DeleteRecordsAsked(self.now_ms, request_id, _DELETION_TIMEOUT_MS, (part,)))

    def _answered(self, request_id: int, answer: Any, *, done: bool = True) -> None:
        sink = self._sinks.pop(request_id, None) if done else self._sinks.get(request_id)
        if sink is not None:
            sink(answer, done)

    def _performers(self) -> dict[type[Any], Callable[[Any], events.Event | None]]:
        return {
            want.OpenLog: self._open,
            want.DeleteLog: self._delete,
            want.Append: self._append,
            want.AppendReplicated: self._append_replicated,
            want.Truncate: self._truncate,
            want.RestartLog: self._restart,
            want.AdvanceLogStart: self._advance_log_start,
            want.ApplyRetention: _nothing,
            want.SaveEpochs: self._save_epochs,
            want.SaveHighWatermarks: self._save_high_watermarks,
            want.SaveReconciledEpochs: self._save_reconciled_epochs,
            want.SaveProducers: _nothing,
            want.NoteDurable: _nothing,
            want.BelieveMetadata: self.session.believe,
            want.IgnoreMetadata: _nothing,
            want.SaveMetadata: self._save_metadata,
            want.Flush: self._flush,
            want.SendFetch: self.links.send_fetch,
            want.SendForget: self.links.send_forget,
            want.SendEpochEnds: self.links.send_epoch_ends,
            want.SendListOffsets: self.links.send_list_offsets,
            want.SendAlterPartition: self.session.alter_partition,
            want.SendReplicaLogs: self.session.report_logs,
            want.RefreshMetadata: self.session.refresh,
            want.AnswerProduce: self._answer_produce,
            want.AnswerFetch: self._answer_fetch,
            want.AnswerEpochEnds: self._answer_plain,
            want.AnswerOffsets: self._answer_offsets,
            want.AnswerCall: self._answer_call,
            want.Emit: self._emit,
            want.Halt: self._halt,
        }

    def _open(self, effect: want.OpenLog) -> events.Event:
        log = self.disk.logs.get(effect.tp)
        if log is None:
            log = self.disk.logs[effect.tp] = LogFile()
        hw = Offset(log.hw_cached)
        start, leo = Offset(log.log_start), Offset(log.leo)
        self.world.checks.opened(self, effect.tp)
        return events.LogOpened(self.now_ms, effect.tp, start, leo, hw, log.epochs, log.producers(), log.reconciled)

    def _delete(self, effect: want.DeleteLog) -> None:
        self.disk.logs.pop(effect.tp, None)

    def _append(self, effect: want.Append) -> None:
        log = self.disk.logs[effect.tp]
        header = effect.header._replace(base_offset=effect.base_offset, leader_epoch=effect.leader_epoch)
        log.append(header, effect.payload, mix(_number(effect.payload)))
        self.world.checks.appended(self, effect.tp, log, len(log.starts) - 1)

    def _append_replicated(self, effect: want.AppendReplicated) -> None:
        log = self.disk.logs[effect.tp]
        payload: Any = effect.payload
        first = len(log.starts)
        for header, value in zip(effect.batches, payload, strict=True):
            log.append(header, value, mix(value))
        self.world.checks.appended(self, effect.tp, log, first)

    def _truncate(self, effect: want.Truncate) -> events.Event:
        log = self.disk.logs[effect.tp]
        self.world.checks.truncating(self, effect.tp, log, log.border_below(effect.offset))
        log.cut(effect.offset)
        return events.LogTruncated(self.now_ms, effect.tp, Offset(log.leo), log.producers())

    def _restart(self, effect: want.RestartLog) -> None:
        self.world.coverage.saw("log restarted")
        root_hash = self.world.checks.hash_below(effect.tp, effect.offset)
        self.disk.logs[effect.tp].restart(effect.offset, root_hash)

    def _advance_log_start(self, effect: want.AdvanceLogStart) -> None:
        self.world.coverage.saw("log start moved")
        self.disk.logs[effect.tp].log_start = effect.offset

    def _save_epochs(self, effect: want.SaveEpochs) -> None:
        self.disk.logs[effect.tp].epochs = effect.entries

    def _save_high_watermarks(self, effect: want.SaveHighWatermarks) -> None:
        for tp, hw in effect.high_watermarks.items():
            log = self.disk.logs[tp]
            log.hw_cached = self.saved[tp] = hw
            if effect.durable:
                log.hw_durable = hw
        for log in self.disk.logs.values():
            log.recovery_point = log.synced
            if effect.durable:
                log.recovery_point_durable = log.synced

    def _save_reconciled_epochs(self, effect: want.SaveReconciledEpochs) -> None:
        for tp, epoch in effect.epochs.items():
            self.disk.logs[tp].reconciled = epoch

    def _save_metadata(self, effect: want.SaveMetadata) -> None:
        self.disk.seen = effect.image

    def _flush(self, effect: want.Flush) -> None:
        log = self.disk.logs[effect.tp]
        issued = log.begin_flush()
        self.world.timeline.after(self.machine.fsync_us(), self._flushed, effect.tp, log, issued)

    def _flushed(self, tp: TopicPartition, log: LogFile, issued: int) -> None:
        # The kernel syncs on while a process stands still; only the news of it waits.
        if self.alive and self.disk.logs.get(tp) is log:
            if self.machine.fsync_fails is not None:
                self.machine.fsync_failed()
                return
            log.end_flush()
            self.hand(self._tell_flushed, tp, issued)

    def _tell_flushed(self, tp: TopicPartition, issued: int) -> None:
        self.step(events.LogFlushed(self.now_ms, tp, Offset(issued)))

    def _answer_produce(self, effect: want.AnswerProduce) -> None:
        self.world.checks.answered_produce(self, effect)
        self._answered(effect.request_id, effect.results)

    def _answer_fetch(self, effect: want.AnswerFetch) -> events.Event | None:
        served: list[FetchedPartition] = []
        ends: list[tuple[TopicPartition, Offset]] = []
        room = effect.max_bytes
        for result in effect.results:
            partition, used = self._read(result, room)
            served.append(partition)
            room -= used
            if effect.replica is not None and (result.refusal is not None or result.diverging is not None):
                self.world.checks.served_replica(result)
            if result.read is not None:
                end = partition.batches[-1].next_offset if partition.batches else result.read.start
                ends.append((result.tp, end))
        if effect.replica is None:
            self.world.checks.served_consumer(self, effect, served)
        self._answered(effect.request_id, tuple(served), done=effect.done)
        if effect.replica is None or not ends:
            return None
        return events.FetchServed(self.now_ms, effect.replica, tuple(ends))

    def _read(self, result: FetchResult, room: int) -> tuple[FetchedPartition, int]:
        """The bytes of one partition's answer, whole batches, at least one; and how many they are."""
        batches: list[Any] = []
        values: list[object] = []
        used = 0
        if result.read is not None:
            start, end, limit = result.read
            log = self.disk.logs[result.tp]
            limit = min(limit, room)
            index = log.index_of(start + 1) - 1
            headers, ends = log.headers, log.ends
            while index < len(ends) and ends[index] <= end:
                header = headers[index]
                if used and used + header.size_bytes > limit:
                    break
                batches.append(header)
                values.append(log.values[index])
                used += header.size_bytes
                index += 1
        answer = FetchedPartition(
            result.tp, result.refusal, result.high_watermark, result.log_start_offset, result.diverging,
            tuple(batches), tuple(values),
        )  # fmt: skip
        return answer, used

    def _answer_plain(self, effect: want.AnswerEpochEnds) -> None:
        self._answered(effect.request_id, effect.answers)

    def _answer_offsets(self, effect: want.AnswerOffsets) -> None:
        if effect.request_id in self._latest:
            self._latest.discard(effect.request_id)
            self.world.checks.answered_latest(self, effect)
        self._answered(effect.request_id, effect.answers)

    def _answer_call(self, effect: want.AnswerCall) -> None:
        self.world.checks.answered_call(effect)
        self._answered(effect.request_id, effect.answers)

    def _emit(self, effect: want.Emit) -> None:
        self.world.checks.emitted(self, effect)

    def _halt(self, effect: want.Halt) -> None:
        self._halted = effect.reason

    def __repr__(self) -> str:
        return f"<Process n{self.node_id} life {self.life}>"


def _nothing(_: object) -> None:
    return None


def _number(payload: object) -> int:
    """In this world a batch's bytes are one number."""
    assert isinstance(payload, int)
    return payload
