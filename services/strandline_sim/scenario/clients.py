"""Keeps the answers to producers, consumers and hand-made requests of a scenario, by their names.

Invariant: a request is answered once; one whose node dies ends as `no answer`, which may mean anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.types import TRANSACTIONAL_BIT, Acks, BatchHeader, Offset
from strandline_sim.scenario.board import Board
from strandline_sim.scenario.controlling import Belief
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.telling import deleted_text, fetched_text, produced_text, refused_text
from strandline_sim.scenario.transactions import Producers

WAITING = "waiting"
NO_ANSWER = "no answer"
_GONE = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "the process that was asked ended")


def consumer_of(node: str) -> str:
    """The name of a consumer of a node."""
    return f"consumer of {node}"


@dataclass(slots=True)
class CallerRequest:
    """One request of a caller. ``text`` is its outcome, as printed."""

    label: str
    node: str
    values: tuple[str, ...] = ()
    acks: Acks | None = None
    text: str = WAITING
    code: ErrorCode | None = None
    """The error of the answer; NONE for success, None while there is no answer."""
    received: messages.FetchedPartition | None = None
    start: int | None = None
    """The offset that a fetch asked for; None for any other call."""
    offset: int | None = None
    then: Callable[[Refusal | None], None] | None = None
    """Called with the answer to a produce; None if only the client itself waits for it."""

    def offset_of(self, name: str) -> int | None:
        """The offset of a record of the batch, or of the batch if the name is its label."""
        if self.offset is None or name not in self.values:
            return self.offset
        return self.offset + self.values.index(name)


class Clients:
    """All callers. Labels are unique among produces; a fetch may take its label again."""

    def __init__(self, stage: Board) -> None:
        self._stage = stage
        self.belief = Belief()
        self.calls: dict[str, CallerRequest] = {}
        self._open: dict[int, CallerRequest] = {}
        self.producers = Producers()

    def produce(
        self,
        actor: Actor,
        header: BatchHeader,
        values: tuple[str, ...],
        *,
        label: str,
        acks: Acks,
        timeout_ms: int,
        then: Callable[[Refusal | None], None] | None = None,
    ) -> CallerRequest:
        """Send one batch; a transactional one has the transactional id of its producer."""
        call, request_id = self._begin(CallerRequest(label, actor.name, values, acks, then=then))
        if len(values) > 1:
            self.calls.update(dict.fromkeys(values, call))
        part = messages.ProducePartition(TP, header, values)
        now_ms = self._stage.now_ms
        transactional_id = None
        if header.attributes & TRANSACTIONAL_BIT and header.producer is not None:
            transactional_id = self.producers.transactional_id_of(header.producer.producer_id)
        arrived = events.ProduceArrived(
            now_ms, request_id, acks, timeout_ms, (part,), transactional_id=transactional_id
        )
        self._stage.step(actor, arrived)
        if call.text == WAITING:
            self._stage.tell(f"{label}: waits")
        return call

    def fetch(
        self,
        actor: Actor,
        part: messages.FetchPartition,
        *,
        label: str,
        replica: messages.ReplicaState | None,
        wait_ms: int,
        min_bytes: int,
        at_follower: bool,
        read_committed: bool = False,
    ) -> CallerRequest:
        """Send one fetch."""
        call, request_id = self._begin(CallerRequest(label, actor.name, start=part.fetch_offset))
        request = messages.FetchRequest(
            (part,), replica, max_wait_ms=wait_ms, min_bytes=min_bytes, read_committed=read_committed
        )
        arrived = events.FetchArrived(self._stage.now_ms, request_id, request, None, at_follower)
        self._stage.step(actor, arrived)
        if call.text == WAITING:
            self._stage.tell(f"{label}: waits")
        return call

    def list_offsets(
        self, actor: Actor, question: messages.OffsetQuestion, *, label: str, replica: messages.ReplicaState | None
    ) -> CallerRequest:
        """Ask for the end or the start of the log."""
        call, request_id = self._begin(CallerRequest(label, actor.name))
        asked = events.OffsetsAsked(self._stage.now_ms, request_id, (question,), replica)
        self._stage.step(actor, asked)
        return call

    def delete(self, actor: Actor, offset: Offset | None, *, label: str, timeout_ms: int) -> CallerRequest:
        """Ask a leader to delete all records below ``offset``, or below its HW."""
        call, request_id = self._begin(CallerRequest(label, actor.name))
        part = messages.DeletePartition(TP, offset)
        self._stage.step(actor, events.DeleteRecordsAsked(self._stage.now_ms, request_id, timeout_ms, (part,)))
        if call.text == WAITING:
            self._stage.tell(f"{label}: waits")
        return call

    def _begin(self, call: CallerRequest) -> tuple[CallerRequest, int]:
        request_id = self._stage.request_id()
        self.calls[call.label] = self._open[request_id] = call
        return call, request_id

    def produced(self, request_id: int, result: messages.ProduceResult) -> None:
        """A produce was answered."""
        call = self._open.pop(request_id, None)
        if call is None:
            return
        call.offset = result.base_offset
        self._end(call, produced_text(result), result.refusal)
        if result.refusal is None and call.acks is Acks.ALL and result.base_offset is not None:
            for offset, value in enumerate(call.values, result.base_offset):
                self._stage.truth.acked(value, offset, self._stage.lines)
        if call.then is not None:
            call.then(result.refusal)

    def fetched(self, request_id: int, answer: messages.FetchedPartition) -> None:
        """A fetch by hand was answered."""
        call = self._open.pop(request_id, None)
        if call is not None:
            call.received = answer
            self._end(call, fetched_text(answer), answer.error)

    def reported_offset(self, request_id: int, answer: messages.OffsetAnswer) -> None:
        """A question for an offset was answered."""
        call = self._open.pop(request_id, None)
        if call is not None:
            call.offset = answer.offset
            self._end(call, refused_text(answer.refusal) if answer.refusal else f"is {answer.offset}", answer.refusal)

    def deleted(self, request_id: int, answer: messages.DeletedPartition) -> None:
        """A deletion was answered."""
        call = self._open.pop(request_id, None)
        if call is not None:
            call.offset = answer.low_watermark
            self._end(call, deleted_text(answer), answer.refusal)
            if answer.refusal is None and answer.low_watermark is not None:
                self._stage.truth.deleted(answer.low_watermark)

    def _end(self, call: CallerRequest, text: str, refusal: Refusal | None) -> None:
        call.text, call.code = text, refusal.code if refusal else ErrorCode.NONE
        if call.acks is Acks.NONE and refusal is None:
            return
        self._stage.tell(f"{call.label}: {text}")

    def note(self, label: str, text: str, refusal: Refusal | None) -> None:
        """A call that was answered at once, such as a proposal by hand."""
        call = self.calls[label] = CallerRequest(label, "")
        self._end(call, text, refusal)

    def gone(self, actor: Actor) -> None:
        """A node's process ended: callers that wait there get no answer."""
        for request_id, call in list(self._open.items()):
            if call.node == actor.name:
                del self._open[request_id]
                call.text = NO_ANSWER
                self._stage.tell(f"{call.label}: {NO_ANSWER}")
                if call.then is not None:
                    call.then(_GONE)
