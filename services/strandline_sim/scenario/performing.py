"""Performs the effects of a data node's core in a scenario: messages wait on the wire, commits on the disk.

Invariant: effects are performed in the order in which they were requested; an answer with records reads the disk at
that moment, as the production performers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strandline.core import messages
from strandline.core.errors import Refusal
from strandline.core.log import effects as want, events
from strandline.core.types import CONTROL_BIT, AbortedTransaction, BatchHeader, TopicPartition
from strandline_sim.scenario import telling
from strandline_sim.scenario.board import Asked, Board, Envelope, Link
from strandline_sim.scenario.clients import Clients
from strandline_sim.scenario.control import Control
from strandline_sim.scenario.nodes import Actor
from strandline_sim.world.disk import LogFile
from strandline_sim.world.memory_logs import NoLooks, as_fetched


class Played(Board):
    """The targets of nodes' effects: clients, controller and coordinators."""

    clients: Clients
    control: Control

    def consent(self, producer_id: int, producer_epoch: int, tp: TopicPartition) -> Refusal | None:
        """The coordinator's answer about a partition to which a producer's transaction writes for the first time."""
        raise NotImplementedError

    def end_process(self, actor: Actor, *, keep_sent: bool = False) -> None:
        """End the process."""
        raise NotImplementedError


def perform(stage: Played, actor: Actor, effect: want.Effect) -> list[events.Event]:
    """Perform an effect. Returns the events that answer it at once."""
    on_logs = actor.files.table.get(type(effect))
    if on_logs is None:
        return _PERFORM[type(effect)](stage, actor, effect)
    event = on_logs(effect)
    return [] if event is None else [event]


def _nothing(stage: Played, actor: Actor, effect: want.Effect) -> list[events.Event]:
    return []


class TruthLooks(NoLooks):
    """Checks before each cut whether it removes a committed record."""

    def __init__(self, stage: Played, actor: Actor) -> None:
        self._stage = stage
        self._actor = actor

    def truncating(self, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Batches from ``offset`` on are about to be cut."""
        self._stage.truth.truncating(self._actor, offset, self._stage.lines)


def _flush(stage: Played, actor: Actor, effect: want.Flush) -> list[events.Event]:
    commit = actor.logs.issue_flush(effect.tp)
    if actor.holds_commits:
        actor.commit = commit
        stage.tell(f"{actor.name}: commit up to {commit.leo_at_issue} is held")
        return []
    commit.sync()
    return [events.LogFlushed(stage.now_ms, effect.tp, commit.leo_at_issue)]


def _send_fetch(stage: Played, actor: Actor, effect: want.SendFetch) -> list[events.Event]:
    request_id = _ask(stage, actor, effect, events.FetchFailed)
    arrived = events.FetchArrived(stage.now_ms, request_id, effect.request)
    (part,) = effect.request.partitions
    return _send(stage, request_id, "fetch", telling.fetch_text(part), arrived)


def _send_epoch_ends(stage: Played, actor: Actor, effect: want.SendEpochEnds) -> list[events.Event]:
    request_id = _ask(stage, actor, effect, events.EpochEndsFailed)
    replica = actor.core.state.identity if actor.core else None
    arrived = events.EpochEndsAsked(stage.now_ms, request_id, effect.questions, replica)
    return _send(stage, request_id, "end-of-epoch", telling.epoch_question_text(effect.questions[0]), arrived)


def _send_offsets(stage: Played, actor: Actor, effect: want.SendListOffsets) -> list[events.Event]:
    request_id = _ask(stage, actor, effect, events.OffsetsFailed)
    replica = actor.core.state.identity if actor.core else None
    arrived = events.OffsetsAsked(stage.now_ms, request_id, effect.questions, replica)
    current = effect.questions[0].current_leader_epoch
    return _send(stage, request_id, "offsets", "offsets?" + ("" if current is None else f" epoch={current}"), arrived)


def _send_producers(stage: Played, actor: Actor, effect: want.SendProducerSnapshot) -> list[events.Event]:
    request_id = _ask(stage, actor, effect, events.ProducerSnapshotFailed)
    replica = actor.core.state.identity if actor.core else None
    arrived = events.ProducerSnapshotAsked(stage.now_ms, request_id, effect.question, replica)
    return _send(stage, request_id, "producers", f"producers? epoch={effect.question.current_leader_epoch}", arrived)


_Question = want.SendFetch | want.SendEpochEnds | want.SendListOffsets | want.SendProducerSnapshot
_Failure = events.FetchFailed | events.EpochEndsFailed | events.OffsetsFailed | events.ProducerSnapshotFailed


def _ask(stage: Played, actor: Actor, effect: _Question, failed: type[_Failure]) -> int:
    """Note which node asked which. Returns the number under which the request is served."""
    request_id, life = stage.request_id(), actor.life

    def fail(reason: str) -> None:
        stage.asked.pop(request_id, None)
        if actor.is_running and actor.life == life:
            stage.step(actor, failed(stage.now_ms, effect.leader, effect.correlation_id, reason))

    stage.asked[request_id] = Asked(actor.name, life, stage.names.name(effect.leader), effect.correlation_id, fail)
    return request_id


def _send(stage: Played, request_id: int, kind: str, text: str, arrived: events.Event) -> list[events.Event]:
    asked = stage.asked[request_id]
    leader = stage.actors[asked.leader]

    def arrive() -> None:
        asked.arrived = True
        stage.step(leader, replace(arrived, now_ms=stage.now_ms))

    stage.send(Envelope(Link(asked.asker, asked.leader), kind, text, arrive, asked.fail))
    return []


def _answer_fetch(stage: Played, actor: Actor, effect: want.AnswerFetch) -> list[events.Event]:
    if not effect.results:
        return []
    found = actor.files.read(effect.results, effect.max_bytes)
    received = as_fetched(found.partitions[0])
    asked = stage.asked.get(effect.request_id)
    if asked is not None:
        leader = actor.node_id
        arrived = events.FetchAnswered(stage.now_ms, leader, asked.correlation_id, (received,))
        _reply(stage, actor, effect.request_id, "fetched", telling.fetched_text(received), arrived)
    else:
        stage.clients.fetched(effect.request_id, _given(received, found.partitions[0].result))
    if effect.replica is None or not found.ends:
        return []
    return [events.FetchServed(stage.now_ms, effect.replica, tuple(found.ends))]


def _given(received: messages.FetchedPartition, result: messages.FetchResult) -> messages.FetchedPartition:
    """The part of an answer that a client keeps: neither markers nor aborted records (X14)."""
    payloads: Any = received.payload
    kept = [
        (header, payload)
        for header, payload in zip(received.batches, payloads or (), strict=True)
        if not header.attributes & CONTROL_BIT and not _is_aborted(header, result.aborted)
    ]
    if len(kept) == len(received.batches):
        return received
    return received._replace(batches=tuple(h for h, _ in kept), payload=tuple(p for _, p in kept))


def _is_aborted(header: BatchHeader, aborted: tuple[AbortedTransaction, ...]) -> bool:
    sent = header.producer
    return sent is not None and any(
        sent.producer_id == one.producer_id and one.first_offset <= header.base_offset < one.marker_offset
        for one in aborted
    )


def _send_add(stage: Played, actor: Actor, effect: want.SendAddPartitions) -> list[events.Event]:
    producers, core = stage.clients.producers, actor.core
    refusal = stage.consent(effect.producer_id, effect.producer_epoch, effect.tp)
    held = producers.held_back.get(effect.producer_id)
    if held is None:
        return [events.AddPartitionsAnswered(stage.now_ms, effect.correlation_id, refusal)]

    def arrive() -> None:
        # A process that began meanwhile has not asked.
        if actor.is_running and actor.core is core:
            stage.step(actor, events.AddPartitionsAnswered(stage.now_ms, effect.correlation_id, refusal))

    held.append(arrive)
    stage.tell(f"{actor.name}: asks the coordinator")
    return []


def _answer_epoch_ends(stage: Played, actor: Actor, effect: want.AnswerEpochEnds) -> list[events.Event]:
    asked = stage.asked.get(effect.request_id)
    if asked is not None:
        arrived = events.EpochEndsAnswered(stage.now_ms, actor.node_id, asked.correlation_id, effect.answers)
        _reply(stage, actor, effect.request_id, "end-of-epoch", telling.epoch_answer_text(effect.answers[0]), arrived)
    return []


def _answer_offsets(stage: Played, actor: Actor, effect: want.AnswerOffsets) -> list[events.Event]:
    asked = stage.asked.get(effect.request_id)
    if asked is None:
        stage.clients.reported_offset(effect.request_id, effect.answers[0])
        return []
    arrived = events.OffsetsAnswered(stage.now_ms, actor.node_id, asked.correlation_id, effect.answers)
    _reply(stage, actor, effect.request_id, "offsets", _offsets_text(effect.answers), arrived)
    return []


def _offsets_text(answers: tuple[messages.OffsetAnswer, ...]) -> str:
    refusal = next((answer.refusal for answer in answers if answer.refusal), None)
    if refusal is not None:
        return f"offsets {refusal.code.name}"
    return f"offsets latest={answers[0].offset} earliest={answers[1].offset}"


def _reply(stage: Played, actor: Actor, request_id: int, kind: str, text: str, arrived: events.Event) -> None:
    asked = stage.asked.pop(request_id)
    asker, life = stage.actors[asked.asker], asked.life

    def arrive() -> None:
        if asker.life == life:
            stage.step(asker, replace(arrived, now_ms=stage.now_ms))

    stage.send(Envelope(Link(actor.name, asked.asker), kind, text, arrive, asked.fail))


def _answer_call(stage: Played, actor: Actor, effect: want.AnswerCall) -> list[events.Event]:
    (answer,) = effect.answers
    if isinstance(answer, messages.ProducerSnapshotAnswer):
        asked = stage.asked[effect.request_id]
        arrived = events.ProducerSnapshotAnswered(stage.now_ms, actor.node_id, asked.correlation_id, answer)
        _reply(stage, actor, effect.request_id, "producers", _producers_text(answer), arrived)
        return []
    assert isinstance(answer, messages.DeletedPartition)
    stage.clients.deleted(effect.request_id, answer)
    return []


def _producers_text(answer: messages.ProducerSnapshotAnswer) -> str:
    if answer.refusal is not None:
        return f"producers {answer.refusal.code.name}"
    return f"producers below {answer.log_start_offset}: {len(answer.producers)} batches"


def _send_alter(stage: Played, actor: Actor, effect: want.SendAlterPartition) -> list[events.Event]:
    stage.control.propose(actor, effect.request)
    return []


def _send_logs(stage: Played, actor: Actor, effect: want.SendReplicaLogs) -> list[events.Event]:
    refusal = stage.control.report(actor, effect.request)
    return [events.ReplicaLogsAnswered(stage.now_ms, effect.report_id, refusal)]


def _refresh(stage: Played, actor: Actor, effect: want.RefreshMetadata) -> list[events.Event]:
    stage.control.watch(actor)
    return []


def _answer_produce(stage: Played, actor: Actor, effect: want.AnswerProduce) -> list[events.Event]:
    stage.clients.produced(effect.request_id, effect.results[0])
    return []


def _emit(stage: Played, actor: Actor, effect: want.Emit) -> list[events.Event]:
    stage.report(actor.name, actor.node_id, effect.tp, effect.event)
    return []


def _halt(stage: Played, actor: Actor, effect: want.Halt) -> list[events.Event]:
    stage.tell(f"{actor.name}: stops: {effect.reason}")
    stage.end_process(actor)
    return []


_PERFORM: dict[type[Any], Callable[[Played, Actor, Any], list[events.Event]]] = {
    want.BelieveMetadata: _nothing,
    want.IgnoreMetadata: _nothing,
    want.Flush: _flush,
    want.SendFetch: _send_fetch,
    want.SendForget: _nothing,
    want.SendEpochEnds: _send_epoch_ends,
    want.SendListOffsets: _send_offsets,
    want.SendProducerSnapshot: _send_producers,
    want.SendAddPartitions: _send_add,
    want.SendAlterPartition: _send_alter,
    want.SendReplicaLogs: _send_logs,
    want.RefreshMetadata: _refresh,
    want.AnswerProduce: _answer_produce,
    want.AnswerFetch: _answer_fetch,
    want.AnswerEpochEnds: _answer_epoch_ends,
    want.AnswerOffsets: _answer_offsets,
    want.AnswerCall: _answer_call,
    want.Emit: _emit,
    want.Halt: _halt,
}
