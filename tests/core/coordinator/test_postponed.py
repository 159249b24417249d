"""Requests that wait until their transactional id has gone on (X9): decided then, or refused; never twice."""

from __future__ import annotations

from cluster_of_cores import Cluster
from core_builders import TP, L, partition_image
from shard_cells import code, shard_of

from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import ShardLimits
from strandline.core.errors import Outcome, Refusal
from strandline.core.log import effects as want
from strandline.core.log.events import CallGone, TxnMarkersAnswered
from strandline.core.log.producer_id_blocks import ProducerIdBlocks
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    PartitionsAdded,
    ProducerIdentity,
    ProducerIdGiven,
    TxnEnded,
    TxnMarkerAnswer,
)
from strandline.core.types import TopicPartition
from strandline_sim.world.record_codec import IdentityCodec

ONE = partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2)
P0, P1 = TopicPartition("foo", 0), TopicPartition("bar", 0)
NAME = "payments"


class _Ended:
    """A cluster whose node 1 coordinates an id with a decided transaction in `P0`, whose marker is under way."""

    def __init__(self, **limits: int) -> None:
        supply = ProducerIdBlocks()
        supply.add(100, 1_000)
        machines = {TRANSACTION_STATE: lambda reports: TransactionMachine(reports, supply)}
        parts = Coordinators(codec=IdentityCodec(), machines=machines, limits=ShardLimits(**limits))
        self.cluster = cluster = Cluster(1, 2, coordinators=parts)
        cluster.push_all(ONE, name=TRANSACTION_STATE)
        for tp in (P0, P1):
            cluster.push_all(partition_image(tp, replicas=(1, 2), isr=(1, 2)), name=tp.topic_id)
        cluster.settle()
        cluster.advance(100, settle=True)
        given = self._asked(InitProducerId(transactional_id=NAME))
        assert isinstance(given, ProducerIdGiven)
        assert isinstance(self._asked(self._adding(given.identity, P0)), PartitionsAdded)
        self.next = given.identity
        self.end()

    def end(self) -> None:
        """The open transaction is decided."""
        ended = self._asked(EndTxn(transactional_id=NAME, identity=self.next, committed=True))
        assert isinstance(ended, TxnEnded)
        self.next = ended.identity

    def _asked(self, request: object) -> object:
        request_id = self.cluster.ask_coordinator(request)
        self.cluster.settle()
        return self.cluster.answered[request_id]

    def _adding(self, identity: ProducerIdentity, tp: TopicPartition) -> AddPartitions:
        return AddPartitions(transactional_id=NAME, identity=identity, partitions=(tp,))

    def add(self, tp: TopicPartition = P0, *, timeout: int = 5_000) -> int:
        """Ask for a partition of the next transaction; the number of the request."""
        return self.cluster.ask_coordinator(self._adding(self.next, tp), timeout=timeout)

    def marked(self) -> None:
        """The partition has its marker."""
        sent = self.cluster.wished(L, want.SendTxnMarkers)[-1]
        answers = tuple(TxnMarkerAnswer(marker) for marker in sent.markers)
        self.cluster.step(L, TxnMarkersAnswered(self.cluster.now, TP, sent.leader_epoch, answers))

    def said(self, request_id: int) -> str:
        """What a request was answered; empty if it was not."""
        return code(self.cluster.answered[request_id]) if request_id in self.cluster.answered else ""

    @property
    def postponed(self) -> int:
        return len(shard_of(self.cluster, L, TP).postponed)


def test_the_next_transaction_is_added_when_the_one_before_is_complete() -> None:
    """X9: its questions wait while a marker is missing, and are answered in order, without being asked again."""
    ended = _Ended()
    first, second = ended.add(P0), ended.add(P1)
    ended.cluster.settle()
    assert (ended.said(first), ended.said(second)) == ("", "")

    ended.marked()
    ended.cluster.settle()
    assert list(ended.cluster.answered)[-2:] == [first, second]
    assert (ended.said(first), ended.said(second)) == ("PartitionsAdded()", "PartitionsAdded()")
    assert ended.postponed == 0


def test_transactions_one_after_another_ask_once_each() -> None:
    """A producer that goes on at once sends each question once, whenever the marker of the transaction before comes."""
    ended = _Ended()
    questions = 0
    for _ in range(5):
        is_added = False
        while not is_added:
            question = ended.add()
            questions += 1
            ended.cluster.settle()
            ended.marked()
            ended.cluster.settle()
            is_added = ended.said(question) == "PartitionsAdded()"
        ended.end()

    assert questions == 5, f"{questions} questions for 5 transactions"


def test_nothing_is_answered_before_the_end_of_the_one_before_is_committed() -> None:
    """G5: what completes a transaction and what begins the next are written in one step, and committed first."""
    ended = _Ended()
    early = ended.add()
    ended.marked()

    assert ended.said(early) == "", "I30: answered before it was committed"
    ended.cluster.settle()
    assert ended.said(early) == "PartitionsAdded()"


def test_one_flush_covers_what_a_step_writes() -> None:
    """The end of a transaction and the beginning of the next are made durable together."""
    ended = _Ended()
    ended.add()
    before = len(ended.cluster.effects[L])
    ended.marked()

    step = [type(each) for each in ended.cluster.effects[L][before:]]
    writes = [each for each in step if each in (want.Append, want.Flush)]
    assert writes == [want.Append, want.Append, want.Flush]


def test_a_question_that_waits_too_long_is_to_be_asked_again() -> None:
    """CONCURRENT_TRANSACTIONS after 100 ms, or at its own deadline if that comes first; a marker that comes later
    answers nobody twice."""
    ended = _Ended()
    patient, hasty = ended.add(P0), ended.add(P1, timeout=50)
    ended.cluster.advance(50, settle=True)
    assert (ended.said(patient), ended.said(hasty)) == ("", "CONCURRENT_TRANSACTIONS")
    ended.cluster.advance(50, settle=True)
    assert ended.said(patient) == "CONCURRENT_TRANSACTIONS"

    ended.marked()
    ended.cluster.settle()
    assert ended.said(again := ended.add()) == ""
    ended.cluster.settle()
    assert ended.said(again) == "PartitionsAdded()"


def test_a_shard_holds_no_more_than_its_bound() -> None:
    """THROTTLING_QUOTA_EXCEEDED beyond it, for whatever is asked."""
    ended = _Ended(max_waiting=2)
    held = [ended.add(), ended.add()]
    beyond = ended.add()

    assert ended.said(beyond) == "THROTTLING_QUOTA_EXCEEDED"
    assert [ended.said(each) for each in held] == ["", ""]


def test_what_is_postponed_is_refused_when_leadership_is_lost() -> None:
    """NOT_COORDINATOR, and nothing of it was written."""
    ended = _Ended()
    request = ended.add()
    ended.cluster.push(L, partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2))

    answer = ended.cluster.answered[request]
    assert isinstance(answer, Refusal)
    assert (answer.code.name, answer.outcome) == ("NOT_COORDINATOR", Outcome.NOT_APPENDED)


def test_a_caller_that_went_away_begins_no_transaction() -> None:
    """Its question is forgotten; the one behind it is decided."""
    ended = _Ended()
    gone, stays = ended.add(P0), ended.add(P1)
    ended.cluster.step(L, CallGone(ended.cluster.now, gone))
    ended.marked()
    ended.cluster.settle()

    assert (ended.said(gone), ended.said(stays)) == ("", "PartitionsAdded()")
    assert shard_of(ended.cluster, L, TP).machine.ids[NAME].partitions == (P1,)  # type: ignore[attr-defined]
