"""Target 6: one core whose peers send anything: a follower any claim, a leader any answer, a controller any state.

All of it is well typed. Invariant: no assertion fails and no event is rejected; logs stay valid (I0) and equal to the
disk's; a leader's HW never goes back, and never rises above what every ISR member claimed first or was sent since; a
follower's HW is never above its leader's; nothing is truncated below the HW unless metadata names an unclean election.
"""

from __future__ import annotations

from typing import Any

from cluster_of_cores import Cluster
from core_builders import CLUSTER, L, batch, fetch_part, fetch_request, history, node_epoch, partition_image
from draws import Draws

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import effects as want, events
from strandline.core.types import (
    Acks,
    EpochEnd,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Rules,
    TopicPartition,
    Truncation,
)

TOPIC_ID = "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"
OTHER_ID = "99999999-6a52-4d4c-9d0e-5f5a3c1d7e10"
TP = TopicPartition(TOPIC_ID, 0)
STEPS = 40
_CODES = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NONE,
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def check(data: bytes) -> None:
    """The oracle."""
    draws = Draws(data)
    Liars(draws).run()


class Liars:
    """A core on node 1, and everything around it as the bytes say."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        rules = Rules(truncation=draws.choice((Truncation.LEADER_EPOCH, Truncation.FETCH)))
        self.cluster = Cluster(1, rules=rules)
        self.core = self.cluster.cores[1]
        if draws.one_in(2):
            self.cluster.preload(1, history((2, 3, 0), (4, 2, 3)), hw=draws.integer(0, 5))
        if not draws.one_in(4):
            self.cluster.push(1, partition_image(epoch=5, replicas=(1, 2, 3), isr=(1, 2), leader=draws.choice((1, 2))))
        # What each follower can hold, by leader in its epoch: its first counted claim, then what it was sent.
        self.could_hold: dict[int, dict[NodeId, Offset]] = {}
        self.leaders: dict[TopicPartition, Any] = {}
        self.reported: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """This many false messages, each followed by every check."""
        verbs = (
            self.fetch, self.fetch, self.fetch, self.fetch, self.produce, self.produce, self.time, self.answer,
            self.answer, self.metadata, self.metadata, self.decide, self.ask, self.forget,
        )  # fmt: skip
        for _ in range(STEPS):
            if self.draws.is_over:
                return
            self.draws.choice(verbs)()

    def step(self, event: events.Event) -> None:
        """One event and the checks."""
        before = self.seen()
        effects = self.cluster.step(1, event)
        self.check(before, effects)

    def seen(self) -> dict[TopicPartition, tuple[Any, int, int]]:
        """The role of this node, with HW and LEO, by partition."""
        state = self.core.state
        return {tp: (state.leaders.get(tp), log.hw, log.leo) for tp, log in state.logs.items()}

    def fetch(self) -> None:
        draws = self.draws
        parts = [
            fetch_part(self.offset(), tp=self.place(), epoch=self.epoch(), lfe=self.epoch(), log_start=self.offset())
            for _ in range(draws.choice((1, 1, 2)))
        ]
        parts = list({part.tp: part for part in parts}.values())
        request = fetch_request(
            *parts, replica=draws.choice((2, 3, 2, None, 9)), life=draws.choice((1, 1, 0, 2)),
            wait=draws.choice((0, 300, -1)), min_bytes=draws.choice((1, 0, 500, -1)),
        )  # fmt: skip
        stream = draws.choice((None, 1, 2))
        self.step(events.FetchArrived(self.now, self.cluster.request_id(), request, stream, draws.one_in(8)))

    def produce(self) -> None:
        draws = self.draws
        header = batch(draws.integer(1, 3), producer=draws.choice((None, 1)), sequence=draws.choice((0, 1, 5)))
        acks = draws.choice(tuple(Acks))
        part = messages.ProducePartition(self.place(), header, b"")
        self.step(events.ProduceArrived(self.now, self.cluster.request_id(), acks, draws.choice((0, 500)), (part,)))

    def ask(self) -> None:
        draws, request_id = self.draws, self.cluster.request_id()
        if draws.one_in(2):
            question = messages.EpochEndQuestion(self.place(), self.epoch(), self.epoch())
            self.step(events.EpochEndsAsked(self.now, request_id, (question,)))
        else:
            offset_question = messages.OffsetQuestion(self.place(), draws.integer(-9, 9), self.epoch())
            self.step(events.OffsetsAsked(self.now, request_id, (offset_question,)))

    def forget(self) -> None:
        if self.draws.one_in(2):
            self.step(events.CallGone(self.now, self.draws.integer(1, 20)))
        else:
            places = (self.place(),) if self.draws.one_in(2) else ()
            self.step(events.FetchForgotten(self.now, self.draws.integer(1, 3), places))

    def time(self) -> None:
        self.cluster.now += self.draws.choice((50, 200, 1_100, 31_000))
        self.step(events.Ticked(self.now))

    def answer(self) -> None:
        """An answer to the outstanding request, or to none."""
        draws, followers = self.draws, self.core.state.followers
        follower = followers.get(TP)
        correlation = follower.outstanding if follower is not None and follower.outstanding else draws.integer(0, 9)
        leader = draws.choice((NodeId(2), NodeId(3)))
        tp = TP if not draws.one_in(8) else self.place()
        kind = str(follower.state) if follower is not None and not draws.one_in(8) else "fetching"
        if draws.one_in(8):
            kind = draws.choice(("truncating", "out_of_range", "failed"))
        if kind == "truncating":
            end = messages.EpochEndAnswer(tp, self.end(), self.refusal())
            self.step(events.EpochEndsAnswered(self.now, leader, correlation, (end,)))
        elif kind == "out_of_range":
            both = tuple(messages.OffsetAnswer(tp, self.maybe_offset(), None, None, self.refusal()) for _ in range(2))
            self.step(events.OffsetsAnswered(self.now, leader, correlation, both))
        elif kind == "failed":
            self.step(events.FetchFailed(self.now, leader, draws.choice((None, correlation)), "broken"))
        else:
            self.step(events.FetchAnswered(self.now, leader, correlation, (self.fetched(tp),)))

    def fetched(self, tp: TopicPartition) -> messages.FetchedPartition:
        batches = []
        log = self.core.state.logs.get(tp)
        base = int(log.leo) if log is not None and not self.draws.one_in(4) else int(self.offset())
        for _ in range(self.draws.choice((0, 1, 1, 2))):
            count = self.draws.integer(1, 3)
            batches.append(batch(count, base=base, epoch=self.draws.choice((5, 5, 6, 4, 7, 2, -1))))
            base += count
        hw, start = self.maybe_offset(), self.maybe_offset()
        self.reported[tp] = max(self.reported.get(tp, 0), hw or 0, start or 0)
        diverging = self.end() if self.draws.one_in(4) else None
        corrupt = "damaged" if self.draws.one_in(16) else None
        return messages.FetchedPartition(tp, self.refusal(), hw, start, diverging, tuple(batches), corrupt=corrupt)

    def metadata(self) -> None:
        draws = self.draws
        topics = {}
        for _ in range(draws.choice((1, 1, 2, 0))):
            tp = self.place()
            images = [self.image(tp)] if not draws.one_in(16) else [self.image(tp), self.image(tp)]
            topics[tp.topic_id] = messages.TopicImage(
                name=draws.choice(("lines", "lines", "lines", "../x", "")),
                topic_id=tp.topic_id,
                partitions=tuple(images),
                configs=draws.choice(((), (), (("max.message.bytes", draws.choice(("100", "x", "-1", ""))),))),
            )
        nodes = tuple(
            messages.NodeImage(
                node_id=NodeId(number),
                node_epoch=draws.choice((node_epoch(number), node_epoch(number, 2), NodeEpoch(-1))),
                fenced=draws.one_in(4),
                shutting_down=draws.one_in(8),
            )
            for number in (1, 2, 3)
            if draws.one_in(2)
        )
        image = messages.MetadataImage(
            cluster_id=draws.choice((CLUSTER, CLUSTER, "other")),
            controller_epoch=draws.choice((1, 1, 1, 2, 0, -1)),
            metadata_offset=draws.integer(0, 9),
            is_snapshot=draws.one_in(4),
            rules=Rules(),
            nodes=nodes,
            topics=tuple(topics.values()),
            deleted_topic_ids=(draws.choice((TOPIC_ID, OTHER_ID)),) if draws.one_in(8) else (),
            to_node_epoch=draws.choice((node_epoch(1), node_epoch(1), node_epoch(1), node_epoch(1, 2), None)),
        )
        self.step(events.MetadataArrived(self.now, image))

    def image(self, tp: TopicPartition) -> messages.PartitionImage:
        draws = self.draws
        leader = draws.choice((1, 2, 3, 1, None, 9))
        return messages.PartitionImage(
            tp=tp,
            replicas=self.nodes((1, 2, 3)),
            isr=self.nodes((1, 2, 3)),
            elr=self.nodes(()),
            leader=None if leader is None else NodeId(leader),
            leader_epoch=LeaderEpoch(draws.choice((5, 6, 7, 8, 4, 0, -1))),
            partition_epoch=PartitionEpoch(draws.choice((1, 2, 3, 4, 5, 0, -1))),
            min_isr=draws.choice((1, 2, 3, 0, -1)),
            recovering=draws.one_in(8),
            last_unclean_leader_epoch=None,
            observers=self.nodes(()),
        )

    def nodes(self, usual: tuple[int, ...]) -> tuple[NodeId, ...]:
        """Nodes of the cluster, or any."""
        if not self.draws.one_in(3):
            return tuple(map(NodeId, usual))
        return tuple(NodeId(self.draws.choice((1, 2, 3, 4, 9, -1))) for _ in range(self.draws.integer(0, 3)))

    def decide(self) -> None:
        """An answer to AlterPartition: for the outstanding attempt, or for none."""
        draws, alters = self.draws, self.cluster.alters
        sequence = alters[-1][2].request_sequence if alters and not draws.one_in(4) else draws.integer(0, 5)
        decision = messages.IsrDecision(
            self.place(),
            leader=draws.choice((NodeId(1), NodeId(2), None)),
            leader_epoch=LeaderEpoch(draws.choice((5, 6, 7, -1))),
            isr=self.nodes((1, 2, 3)),
            partition_epoch=PartitionEpoch(draws.integer(-1, 9)),
            refusal=self.refusal(),
        )
        answer = messages.AlterPartitionAnswer(
            partitions=(decision,), refusal=self.refusal() if draws.one_in(4) else None
        )
        if draws.one_in(4):
            self.step(events.AlterPartitionFailed(self.now, sequence, "lost"))
        else:
            self.step(events.AlterPartitionAnswered(self.now, sequence, answer))

    @property
    def now(self) -> int:
        return self.cluster.now

    def place(self) -> TopicPartition:
        if not self.draws.one_in(6):
            return TP
        return TopicPartition(self.draws.choice((TOPIC_ID, OTHER_ID)), self.draws.choice((1, 0, -1)))

    def offset(self) -> Offset:
        """Near the log's end most of the time, because a false offset there is most plausible."""
        log = self.core.state.logs.get(TP)
        near = int(log.leo) if log is not None else 0
        return Offset(self.draws.choice((near, near - 1, near - 2, near + 1, near + 5, 0, 1, -3, (1 << 63) - 1)))

    def maybe_offset(self) -> Offset | None:
        return None if self.draws.one_in(8) else self.offset()

    def epoch(self) -> int | None:
        leader = self.core.state.images.get(TP)
        usual = leader.leader_epoch if leader is not None else 0
        return self.draws.choice((usual, usual, usual, None, 2, 4, usual + 1, -1))

    def end(self) -> EpochEnd | None:
        if self.draws.one_in(6):
            return None
        return EpochEnd(LeaderEpoch(self.draws.choice((2, 4, 5, 3, -1, 7))), self.offset())

    def refusal(self) -> Refusal | None:
        return Refusal(self.draws.choice(_CODES)) if self.draws.one_in(6) else None

    def check(self, before: dict[TopicPartition, tuple[Any, int, int]], effects: list[want.Effect]) -> None:
        state = self.core.state
        for answers in self.cluster.fetched.values():
            assert not any(answer.done for answer in answers[:-1]), "a fetch was answered after its last answer"
        restarted = {effect.tp for effect in effects if isinstance(effect, want.RestartLog)}
        for tp, log in state.logs.items():
            log.assert_sane()
            assert log.leo == self.cluster.disks[1][tp].leo, "the core and its disk disagree"
            assert (tp in state.leaders) != (tp in state.followers), f"{tp} has no part, or two"
            leader, hw, leo = before.get(tp, (None, 0, 0))
            if tp in state.leaders:
                self.check_leader(tp, state.leaders[tp], hw if leader is state.leaders[tp] else None)
            elif leader is None and tp in before and tp not in restarted:
                # A disk truncates whole batches: the requested offset counts, because a false message can put the HW
                # within one.
                asked = [effect.offset for effect in effects if isinstance(effect, want.Truncate) and effect.tp == tp]
                assert min(asked, default=hw) >= min(hw, leo), f"{tp} was cut from {leo} to {asked}, below its HW {hw}"
                assert log.hw <= max(hw, self.reported.get(tp, 0)), f"HW {log.hw} was never reported"

    def check_leader(self, tp: TopicPartition, leader: Any, hw_before: int | None) -> None:
        log = leader.log
        if self.leaders.get(tp) is not leader:
            self.leaders[tp], self.could_hold[id(leader)] = leader, {}
            hw_before = min(log.hw, hw_before or log.hw)
        could_hold = self.could_hold[id(leader)]
        for node_id, follower in leader.progress.items():
            if follower.remote_leo is None:
                continue
            could_hold.setdefault(node_id, follower.remote_leo)
        allowed = min(
            [int(log.leo), *(int(could_hold.get(n, 0)) for n in leader.isr.committed if n != L)], default=int(log.leo)
        )
        if hw_before is not None:
            assert log.hw >= hw_before, f"the HW of {tp} went back from {hw_before} to {log.hw}"
            assert log.hw <= max(hw_before, allowed), f"HW {log.hw} above {allowed}: {could_hold}, {leader}"
        for sent in self.cluster.effects[1][self._looked :]:
            self._note_sent(tp, sent, could_hold)
        self._looked = len(self.cluster.effects[1])

    _looked = 0

    def _note_sent(self, tp: TopicPartition, effect: want.Effect, could_hold: dict[NodeId, Offset]) -> None:
        if isinstance(effect, want.AnswerFetch) and effect.replica in could_hold:
            for result in effect.results:
                if result.tp == tp and result.read is not None:
                    could_hold[effect.replica] = max(could_hold[effect.replica], result.read.end)
