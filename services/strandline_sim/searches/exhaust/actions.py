"""Finds what one node, or two in a round trip, can do next: decided by the production core, and cached by state.

Invariant: every function here depends on `Local` values alone, so each pair (state of a node, event) is
stepped once, however many states of the whole it is part of. That is what makes a search with the real core fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar

from strandline.core.log import events as log_events
from strandline.core.log.effects import AnswerEpochEnds, AnswerFetch, AnswerOffsets, Effect, SendEpochEnds, SendFetch
from strandline.core.log.follower import FetchState
from strandline.core.messages import AlterPartitionAnswer, FetchedPartition, FetchResult, ProducePartition, ReplicaState
from strandline.core.types import Acks, BatchHeader, LeaderEpoch, NodeId, Offset
from strandline_sim.searches.exhaust.bench import NOW_MS, TP, Bench, Question, node_epoch
from strandline_sim.searches.exhaust.local import Image, Leading, Local, Rec
from strandline_sim.searches.exhaust.settling import PartitionController

NEVER_MS = 1 << 62
LOST = -1
"""In place of a number of records: the answer never arrived."""

Answer = TypeVar("Answer", AnswerFetch, AnswerEpochEnds, AnswerOffsets)


class Trip(NamedTuple):
    """The outcome of a question: both nodes afterwards, and the number of records in the answer (or `LOST`)."""

    asker: Local
    leader: Local
    records: int


class AssertionBroken(Exception):
    """An invariant that the core asserts did not hold; a process would end here."""


class Actions:
    """Everything that nodes can do."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._controller = PartitionController(bench)
        self._questions: dict[Local, Question | None] = {}
        self._served: dict[tuple[Local, int, Question], tuple[Local, FetchResult | log_events.Event]] = {}
        self._heard: dict[tuple[Local, log_events.Event], Local] = {}
        self._proposed: dict[tuple[Local, Image], tuple[Image, Local]] = {}
        self._controlled: dict[Image, list[tuple[str, int, Image]]] = {}

    def learn(self, local: Local, image: Image) -> Local:
        """Metadata arrives."""
        return self._take(local, self._bench.metadata(local, image))

    def write(self, local: Local) -> Local:
        """A producer's record arrives, with acks=0: no request waits, and min ISR refuses nothing."""
        part = ProducePartition(TP, BatchHeader(Offset(0), None, 1, 1, 0), ())
        return self._take(local, log_events.ProduceArrived(NOW_MS, 1, Acks.NONE, 0, (part,)))

    def shrink(self, local: Local, late: int) -> Local:
        """The leader finds that only follower ``late`` has lagged for too long."""
        core = self._bench.core(local)
        for follower in core.state.leaders[TP].progress.values():
            follower.last_caught_up_ms = None if follower.node_id == late else NOW_MS
        core._next_expand_ms = core._next_checkpoint_ms = core._next_retention_ms = NEVER_MS
        return self._run(core, local, log_events.Ticked(NOW_MS))[0]

    def _take(self, local: Local, event: log_events.Event) -> Local:
        return self._run(self._bench.core(local), local, event)[0]

    def _run(self, core: object, local: Local, *events: log_events.Event) -> tuple[Local, list[Effect]]:
        try:
            return self._bench.run(core, local, *events)  # type: ignore[arg-type]
        except AssertionError as error:
            raise AssertionBroken(str(error)) from error

    def trips(self, asker: Local, asked: Local) -> list[Trip]:
        """The follower's next question reaches the node it follows, and the answer arrives or is lost."""
        question = self._question(asker)
        if question is None:
            return []
        after, answer = self._serve(asker, asked, question)
        if not isinstance(answer, FetchResult):
            return [Trip(self._answered(asker, answer), after, 0)]
        trips = [] if after == asked else [Trip(asker, after, LOST)]
        start, end = (answer.read.start, answer.read.end) if answer.read is not None else (0, 0)
        # At least one batch is given, and as many more as fit: the model leaves their number open.
        for count in range(min(1, end - start), end - start + 1):
            received = _received(answer, after.log[start : start + count], start)
            fetched = log_events.FetchAnswered(NOW_MS, question.leader, 0, (received,))
            trips.append(Trip(self._answered(asker, fetched), after, count))
        return trips

    def _question(self, asker: Local) -> Question | None:
        if asker not in self._questions:
            self._questions[asker] = self._bench.question(self._bench.core(asker))
        return self._questions[asker]

    def _serve(self, asker: Local, asked: Local, question: Question) -> tuple[Local, FetchResult | log_events.Event]:
        """The answer of the asked node, and its state afterwards."""
        key = (asked, asker.node_id, question)
        known = self._served.get(key)
        if known is None:
            replica = ReplicaState(NodeId(asker.node_id), node_epoch(asker.node_id))
            known = self._served[key] = self._serve_now(asked, replica, question)
        return known

    def _serve_now(
        self, asked: Local, replica: ReplicaState, question: Question
    ) -> tuple[Local, FetchResult | log_events.Event]:
        core, leader = self._bench.core(asked), question.leader
        if isinstance(question, SendFetch):
            after, effects = self._run(core, asked, log_events.FetchArrived(NOW_MS, 1, question.request))
            (result,) = _only(effects, AnswerFetch).results
            return after, result
        if isinstance(question, SendEpochEnds):
            after, effects = self._run(core, asked, log_events.EpochEndsAsked(NOW_MS, 1, question.questions, replica))
            return after, log_events.EpochEndsAnswered(NOW_MS, leader, 0, _only(effects, AnswerEpochEnds).answers)
        after, effects = self._run(core, asked, log_events.OffsetsAsked(NOW_MS, 1, question.questions, replica))
        return after, log_events.OffsetsAnswered(NOW_MS, leader, 0, _only(effects, AnswerOffsets).answers)

    def _answered(self, asker: Local, answer: log_events.Event) -> Local:
        known = self._heard.get((asker, answer))
        if known is None:
            core = self._bench.core(asker)
            question = self._bench.question(core)
            assert question is not None and isinstance(
                answer, log_events.FetchAnswered | log_events.EpochEndsAnswered | log_events.OffsetsAnswered
            )
            named = replace(answer, correlation_id=question.correlation_id)
            known = self._heard[asker, answer] = self._run(core, asker, named)[0]
        return known

    def propose(self, local: Local, now: Image) -> tuple[Image, Local]:
        """The leader's proposal reaches the controller: the state afterwards, and the leader with the answer."""
        known = self._proposed.get((local, now))
        if known is None:
            known = self._proposed[local, now] = self._propose(local, now)
        return known

    def _propose(self, local: Local, now: Image) -> tuple[Image, Local]:
        core = self._bench.core(local)
        request = self._bench.proposal(core)
        assert request is not None
        after, answer = self._controller.alter(now, request)
        return after, self._decided(core, local, request.request_sequence, answer)

    def _decided(self, core: object, local: Local, sequence: int, answer: AlterPartitionAnswer) -> Local:
        return self._run(core, local, log_events.AlterPartitionAnswered(NOW_MS, sequence, answer))[0]

    def control(self, now: Image) -> list[tuple[str, int, Image]]:
        """What the controller can do on its own: elect or fence a node, and its state afterwards."""
        known = self._controlled.get(now)
        if known is None:
            known = [("elect", n, image) for n, image in self._controller.elections(now)]
            if now.leader_epoch < 0:
                known = known[:1]  # replicas are alike until one of them leads
            else:
                known += [("fence", n, image) for n, image in self._controller.fencings(now)]
            self._controlled[now] = known
        return known

    def first(self) -> Image:
        """The controller's state before any election."""
        return self._controller.first()


def can_ask(local: Local) -> bool:
    """Whether a follower has a question in flight."""
    part = local.part
    return (
        local.follows is not None
        and not isinstance(part, Leading)
        and part is not None
        and part.state in (FetchState.TRUNCATING, FetchState.FETCHING, FetchState.OUT_OF_RANGE)
    )


def _only(effects: list[Effect], kind: type[Answer]) -> Answer:
    (found,) = (effect for effect in effects if isinstance(effect, kind))
    return found


def _received(result: FetchResult, records: tuple[Rec, ...], start: int) -> FetchedPartition:
    """The answer as it arrives, with the headers of what was read."""
    headers = tuple(BatchHeader(Offset(start + i), LeaderEpoch(r.epoch), 1, 1, 0) for i, r in enumerate(records))
    return FetchedPartition(
        TP, result.refusal, result.high_watermark, result.log_start_offset, result.diverging, headers, records
    )
