"""Requests that wait: for a transaction's coordinator, or until their transactional id has gone on (X9, X16)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, F, L, marker, partition_image
from shard_cells import code, shard_of

from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import ShardLimits
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups import messages
from strandline.core.groups.machine import GroupMachine
from strandline.core.log import effects as want, events
from strandline.core.log.events import CallGone, TxnMarkersAnswered
from strandline.core.producer_ids import ProducerIdBlocks
from strandline.core.transactions import messages as transactions_messages
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.types import Offset, TopicPartition
from strandline.runtime.patterns import Re2Patterns
from strandline_sim.world.record_codec import IdentityCodec

FOO = TopicPartition("foo", 0)
ONE = partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2)
NO = Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "another producer has this id")


def _cluster(*, hold_reads: bool = False, **limits: int) -> Cluster:
    """Node 1 coordinates groups, node 2 follows; there is a topic to commit offsets of."""
    machines = {GROUP_STATE: lambda _: GroupMachine(Re2Patterns())}
    parts = Coordinators(codec=IdentityCodec(), machines=machines, limits=ShardLimits(**limits))
    cluster = Cluster(1, 2, coordinators=parts, hold_reads=hold_reads)
    cluster.push_all(ONE, name=GROUP_STATE)
    cluster.push_all(partition_image(FOO, replicas=(1, 2), isr=(1, 2)), name="foo")
    cluster.settle()
    cluster.advance(100, settle=True)
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    """It reads its log at once, under the default limits."""
    return _cluster()


def _stage(cluster: Cluster, offset: int = 7, *, epoch: int = 0, timeout: int = 5_000) -> int:
    request = messages.TxnOffsetCommit(
        transactional_id="t",
        producer_id=9,
        producer_epoch=epoch,
        group_id="g",
        offsets=(messages.OffsetToCommit(FOO, Offset(offset)),),
    )
    return cluster.ask_coordinator(request, timeout=timeout)


def _committed(cluster: Cluster) -> Offset | None:
    request = cluster.ask_coordinator(messages.OffsetFetch(group_id="g", partitions=(FOO,)))
    cluster.settle()
    answer = cluster.answered[request]
    return answer.partitions[0].offset


def _refused(cluster: Cluster, request: int) -> str:
    """The code with which a marker was refused; empty if it was taken."""
    result = cluster.outcome(request)
    return "" if result.refusal is None else result.refusal.code.name


def _asked(cluster: Cluster) -> list[want.SendAddPartitions]:
    return cluster.wished(L, want.SendAddPartitions)


def test_the_first_request_of_a_transaction_waits_for_its_coordinator(cluster: Cluster) -> None:
    """Its own partition of the group's topic is added; nothing is written before the answer, and later requests of
    the producer wait behind it."""
    end = cluster.log(L).leo
    first, second = _stage(cluster), _stage(cluster, 8)

    assert [(ask.transactional_id, ask.producer_id, ask.producer_epoch, ask.tp) for ask in _asked(cluster)] == [
        ("t", 9, 0, TP)
    ]
    assert cluster.log(L).leo == end
    cluster.coordinator_says()
    cluster.settle()
    assert all(isinstance(cluster.answered[request], messages.OffsetsCommitted) for request in (first, second))
    assert len(_asked(cluster)) == 1


def test_a_refusal_answers_all_that_waited(cluster: Cluster) -> None:
    """Each waiting request is answered NOT_APPENDED."""
    waiting = [_stage(cluster), _stage(cluster, 8)]
    cluster.coordinator_says(NO)
    answers = [cluster.answered[request] for request in waiting]
    assert [code(answer) for answer in answers] == ["INVALID_PRODUCER_ID_MAPPING"] * 2
    assert all(isinstance(answer, Refusal) and answer.outcome is Outcome.NOT_APPENDED for answer in answers)


@pytest.mark.parametrize("gone", [False, True], ids=["caller waits", "caller gone"])
@pytest.mark.parametrize("refusal", [None, NO])
def test_a_later_transaction_is_asked_about_for_itself(cluster: Cluster, gone: bool, refusal: Refusal | None) -> None:
    """What was answered is about the first one's epoch alone, also if its caller has gone meanwhile."""
    first = _stage(cluster)
    second = _stage(cluster, 8, epoch=1)
    if gone:
        cluster.step(L, events.CallGone(cluster.now, first))
    cluster.coordinator_says(refusal)

    assert [ask.producer_epoch for ask in _asked(cluster)] == [0, 1]
    assert second not in cluster.answered


def test_a_marker_that_came_in_between_refuses_the_request(cluster: Cluster) -> None:
    """X10: the consent is late, and the transaction over."""
    late = _stage(cluster)
    cluster.produce(marker(9, 1))
    cluster.settle()
    cluster.coordinator_says()
    cluster.settle()

    assert code(cluster.answered[late]) == "INVALID_PRODUCER_EPOCH"
    assert _committed(cluster) is None


def test_without_an_answer_the_request_is_refused_at_its_deadline(cluster: Cluster) -> None:
    """The answer is REQUEST_TIMED_OUT, and a consent that comes later changes nothing."""
    request = _stage(cluster, timeout=1_000)
    end = cluster.log(L).leo
    cluster.advance(1_000, settle=True)
    answer = cluster.answered[request]
    assert code(answer) == "REQUEST_TIMED_OUT"
    assert answer.outcome is Outcome.NOT_APPENDED
    cluster.coordinator_says()
    assert cluster.log(L).leo == end


def test_what_waits_is_refused_when_leadership_is_lost(cluster: Cluster) -> None:
    """The answer is NOT_COORDINATOR: the next coordinator asks for itself."""
    request = _stage(cluster)
    moved = partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2)
    cluster.push(L, moved, name=GROUP_STATE)

    assert code(cluster.answered[request]) == "NOT_COORDINATOR"
    cluster.coordinator_says()


def test_no_more_than_the_bound_wait() -> None:
    """THROTTLING_QUOTA_EXCEEDED: a coordinator that does not answer fills no memory."""
    cluster = _cluster(max_waiting=1)
    _stage(cluster)

    assert code(cluster.answered[_stage(cluster)]) == "THROTTLING_QUOTA_EXCEEDED"


def test_a_marker_is_the_shards_and_no_batch_of_the_log(cluster: Cluster) -> None:
    """It becomes records of the coordinator, is answered when these are committed, and moves the group's offset."""
    _stage(cluster)
    cluster.coordinator_says()
    cluster.settle()
    marked = cluster.produce(marker(9, 1))

    assert cluster.outcome(marked) is None, "a marker was answered that may be undone"
    cluster.settle()
    assert _refused(cluster, marked) == ""
    assert cluster.log(L).producers.transactions.last_marker(9) is None
    assert _committed(cluster) == 7


def test_a_repeated_marker_waits_for_what_the_first_one_wrote(cluster: Cluster) -> None:
    """R86 for groups: the first copy may still be lost with this leader."""
    first = cluster.produce(marker(9, 1))
    second = cluster.produce(marker(9, 1))

    assert (cluster.outcome(first), cluster.outcome(second)) == (None, None)
    cluster.settle()
    assert _refused(cluster, second) == ""
    assert _refused(cluster, cluster.produce(marker(9, 1))) == ""


def test_an_old_marker_ends_nothing(cluster: Cluster) -> None:
    """With the numbers of X11: behind a later marker it is done, from an older coordinator refused."""
    cluster.produce(marker(9, 5, coordinator=2))
    cluster.settle()
    end = cluster.log(L).leo
    done = cluster.produce(marker(9, 4, coordinator=2))
    cluster.settle()

    assert _refused(cluster, done) == ""
    assert _refused(cluster, cluster.produce(marker(9, 6))) == "TRANSACTION_COORDINATOR_FENCED"
    assert cluster.log(L).leo == end


def test_a_marker_below_min_isr_writes_nothing(cluster: Cluster) -> None:
    """The marker's sender asks again until replicas are back."""
    cluster.push(L, partition_image(version=2, replicas=(1, 2), isr=(1,), min_isr=2), name=GROUP_STATE)

    assert _refused(cluster, cluster.produce(marker(9, 1))) == "COORDINATOR_NOT_AVAILABLE"


def test_a_marker_for_a_coordinator_that_loads_is_refused() -> None:
    """The transaction that the marker would end may not be known yet."""
    cluster = _cluster(hold_reads=True)
    cluster.produce(marker(8, 1))
    cluster.settle()
    moved = partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2)
    cluster.push_all(moved, name=GROUP_STATE)

    assert _refused(cluster, cluster.produce(marker(9, 1), node=F)) == "COORDINATOR_LOAD_IN_PROGRESS"


def test_other_coordinators_take_no_markers() -> None:
    """A partition of coordinators that are not of groups has none to take."""
    machines = {"__another": lambda _: GroupMachine(Re2Patterns())}
    cluster = Cluster(1, coordinators=Coordinators(codec=IdentityCodec(), machines=machines))
    cluster.push(L, partition_image(replicas=(1,), isr=(1,)), name="__another")

    assert _refused(cluster, cluster.produce(marker(9, 1))) == "INVALID_TOPIC_EXCEPTION"


# Requests that wait until their transactional id has gone on (X9): decided then, or refused; never twice.


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
        given = self._asked(transactions_messages.InitProducerId(transactional_id=NAME))
        assert isinstance(self._asked(self._adding(given.identity, P0)), transactions_messages.PartitionsAdded)
        self.next = given.identity
        self.end()

    def end(self) -> None:
        """The open transaction is decided."""
        ended = self._asked(transactions_messages.EndTxn(transactional_id=NAME, identity=self.next, committed=True))
        self.next = ended.identity

    def _asked(self, request: object) -> object:
        request_id = self.cluster.ask_coordinator(request)
        self.cluster.settle()
        return self.cluster.answered[request_id]

    def _adding(
        self, identity: transactions_messages.ProducerIdentity, tp: TopicPartition
    ) -> transactions_messages.AddPartitions:
        return transactions_messages.AddPartitions(transactional_id=NAME, identity=identity, partitions=(tp,))

    def add(self, tp: TopicPartition = P0, *, timeout: int = 5_000) -> int:
        """Ask for a partition of the next transaction; the number of the request."""
        return self.cluster.ask_coordinator(self._adding(self.next, tp), timeout=timeout)

    def marked(self) -> None:
        """The partition has its marker."""
        sent = self.cluster.wished(L, want.SendTxnMarkers)[-1]
        answers = tuple(transactions_messages.TxnMarkerAnswer(marker) for marker in sent.markers)
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
    assert [each for each in step if each in (want.Append, want.Flush)] == [want.Append, want.Append, want.Flush]


def test_a_question_that_waits_too_long_is_to_be_asked_again() -> None:
    """CONCURRENT_TRANSACTIONS after 100 ms, or at its own deadline if that comes first; a marker that comes later
    answers no caller twice."""
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
    """Any request beyond the bound gets THROTTLING_QUOTA_EXCEEDED."""
    ended = _Ended(max_waiting=2)
    held = [ended.add(), ended.add()]
    beyond = ended.add()

    assert ended.said(beyond) == "THROTTLING_QUOTA_EXCEEDED"
    assert [ended.said(each) for each in held] == ["", ""]


def test_what_is_postponed_is_refused_when_leadership_is_lost() -> None:
    """The answer is NOT_COORDINATOR, and nothing of the request was written."""
    ended = _Ended()
    request = ended.add()
    ended.cluster.push(L, partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2))
    answer = ended.cluster.answered[request]
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
