"""How transactions end: T92, X5 to X7, and partitions that a leader asks about (T91, X9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ids_alone import ID, P0, P1, Q0, IdsAlone, code

from strandline.core.errors import ErrorCode
from strandline.core.transactions.records import TxnState
from strandline.core.types import TopicPartition


@pytest.fixture
def alone() -> IdsAlone:
    """Transactional ids without a log, none of them known yet."""
    return IdsAlone()


@pytest.mark.parametrize(("commit", "word"), [(True, "Commit"), (False, "Abort")])
def test_the_end_raises_the_epoch_and_is_complete_after_the_last_marker(
    alone: IdsAlone, commit: bool, word: str
) -> None:
    """Prepare has epoch + 1, so have the markers and the next transaction; Complete comes with the last marker (X6)."""
    identity = alone.begun(P0, P1)
    ended = alone.end(identity, commit=commit)
    found = [(marker.tp, tuple(marker.identity), marker.committed) for marker in alone.sent]

    assert ended == (100, 1)
    assert alone.state == f"Prepare{word}"
    assert found == [(P0, (100, 1), commit), (P1, (100, 1), commit)]
    alone.answer(P0)
    assert alone.state == f"Prepare{word}"
    alone.answer(P1)
    assert (alone.state, alone.epoch, alone.value().partitions) == (f"Complete{word}", 1, ())
    assert code(alone.add(P0, by=(100, 1))) == "PartitionsAdded()"


def test_a_copy_of_the_end_is_answered_alike_once_it_is_complete(alone: IdsAlone) -> None:
    """While preparing a copy is CONCURRENT_TRANSACTIONS, afterwards it has the same answer; nothing is written."""
    identity = alone.begun()
    alone.end(identity)

    assert code(alone.end(identity)) == "CONCURRENT_TRANSACTIONS"
    alone.answer()
    written = len(alone.log)
    assert alone.end(identity) == (100, 1)
    assert len(alone.log) == written


def test_the_other_result_is_refused() -> None:
    """What is committed cannot be aborted, and the reverse: INVALID_TXN_STATE, before and after Complete."""
    for commit in (True, False):
        alone = IdsAlone()
        identity = alone.begun()
        alone.end(identity, commit=commit)
        assert code(alone.end(identity, commit=not commit)) == "INVALID_TXN_STATE"
        alone.answer()
        assert code(alone.end(identity, commit=not commit)) == "INVALID_TXN_STATE"


def test_an_end_that_arrives_late_ends_nothing(alone: IdsAlone) -> None:
    """KAFKA-17754: a copy from the transaction before is PRODUCER_FENCED while the next one is open, and that one
    stays open."""
    first = alone.begun()
    second = alone.end(first)
    alone.answer()
    alone.add(P0, by=second)

    assert code(alone.end(first)) == "PRODUCER_FENCED"
    assert code(alone.end(first, commit=False)) == "PRODUCER_FENCED"
    assert alone.state == "Ongoing"


@pytest.mark.parametrize("partitions", [(), (P1,)], ids=["Empty", "Ongoing"])
@pytest.mark.parametrize("ask", [IdsAlone.end, lambda alone, by: alone.add(P0, by=by)], ids=["end", "add"])
def test_another_producer_is_refused(
    alone: IdsAlone, ask: Callable[[IdsAlone, tuple[int, int]], object], partitions: tuple[TopicPartition, ...]
) -> None:
    """T91: an unknown id and another producer id are INVALID_PRODUCER_ID_MAPPING, another epoch PRODUCER_FENCED."""
    assert code(ask(alone, (50, 5))) == "INVALID_PRODUCER_ID_MAPPING"
    state = TxnState.ONGOING if partitions else TxnState.EMPTY
    alone.at(5, state, partitions=partitions, start_ms=1 if partitions else None)
    answers = [code(ask(alone, by)) for by in ((51, 5), (50, 4), (50, 6))]

    assert answers == ["INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "PRODUCER_FENCED"]
    assert (alone.value().state, alone.value().partitions) == (state, partitions)


def test_the_next_identity_cannot_end_what_is_being_ended(alone: IdsAlone) -> None:
    """EndTxn with the identity of the next transaction: CONCURRENT_TRANSACTIONS until the one before is complete."""
    second = alone.end(alone.begun())

    assert code(alone.end(second)) == "CONCURRENT_TRANSACTIONS"


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_without_records_is_complete_at_once(alone: IdsAlone, commit: bool) -> None:
    """KAFKA-18401: nothing was written, so no marker is; the epoch rises, so that a copy finds its answer (X6)."""
    identity = alone.init()
    assert isinstance(identity, tuple)
    assert alone.end(identity, commit=commit) == (100, 1)
    assert alone.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert alone.end(identity, commit=commit) == (100, 1)
    assert code(alone.end(identity, commit=not commit)) == "INVALID_TXN_STATE"
    assert not alone.sent


def test_the_end_at_the_last_epoch_names_the_next_producer_id(alone: IdsAlone) -> None:
    """X5: markers have epoch 32,767, the answer is a new producer id at epoch 0, valid from Complete on; a copy of the
    request counts as the epoch before."""
    identity = alone.at(32_766, TxnState.ONGOING, partitions=(P0,), start_ms=1)

    assert alone.end(identity) == (100, 0)
    assert alone.sent[0].identity == (50, 32_767)
    assert code(alone.end(identity)) == "CONCURRENT_TRANSACTIONS"
    alone.answer()
    assert alone.value().identity == (100, 0)
    assert alone.end(identity) == (100, 0)
    assert code(alone.add(P0, by=(100, 0))) == "PartitionsAdded()"


def test_a_time_out_aborts_and_its_producer_hears_of_it(alone: IdsAlone) -> None:
    """T92: after the time-out PrepareAbort at epoch + 1; a commit is INVALID_TXN_STATE, an abort is answered with the
    identity to go on with."""
    identity = alone.begun()
    alone.tick(59_999)
    assert alone.state == "Ongoing"
    alone.tick(1_000)
    assert (alone.state, alone.epoch) == ("PrepareAbort", 1)
    alone.answer()
    assert code(alone.end(identity)) == "INVALID_TXN_STATE"
    assert alone.end(identity, commit=False) == (100, 1)
    assert [change.cause for change in alone.seen] == ["init", "begun", "timeout", "completed"]


def test_a_time_out_does_nothing_to_what_is_decided_or_begun_again(alone: IdsAlone) -> None:
    """T92: a transaction that is being ended is left alone, and the one after it has its own time."""
    identity = alone.begun()
    alone.tick(30_000)
    second = alone.end(identity)
    alone.tick(30_000)
    assert (alone.state, alone.epoch) == ("PrepareCommit", 1)
    alone.answer()
    alone.add(P0, by=second)
    alone.tick(59_000)
    assert alone.state == "Ongoing"
    alone.tick(1_000)
    assert (alone.state, alone.epoch) == ("PrepareAbort", 2)


def test_a_failover_in_a_time_out_raises_the_epoch_once(alone: IdsAlone) -> None:
    """T92: a coordinator that was deposed with the abort unwritten leaves Ongoing, one that wrote it leaves
    PrepareAbort: in neither case does the next coordinator raise the epoch twice."""
    alone.begun()
    alone.tick(60_000)
    lost = alone.log.pop()
    alone.fail_over()
    assert (alone.state, alone.epoch) == ("Ongoing", 0)
    alone.tick(60_000)
    assert (alone.state, alone.epoch) == ("PrepareAbort", 1)
    assert lost.value is not None

    alone.fail_over()
    alone.tick(60_000)
    alone.answer()

    assert (alone.state, alone.epoch) == ("CompleteAbort", 1)


def test_a_pause_of_the_shard_does_not_count(alone: IdsAlone) -> None:
    """Time in which the coordinator could not commit does not count: the full time begins again (G8)."""
    alone.begun()
    alone.tick(59_000)
    alone.machine.excuse(alone.context)
    alone.tick(59_000)
    assert alone.state == "Ongoing"
    alone.tick(1_000)
    assert alone.state == "PrepareAbort"


def test_an_id_that_is_idle_for_seven_days_is_forgotten(alone: IdsAlone) -> None:
    """Empty and complete ids go after 7 days, open ones never; then the id is as one that never was (X7)."""
    alone.init(name="idle")
    alone.begun()
    week_ms = 7 * 86_400_000
    alone.tick(week_ms - 1)
    assert "idle" in alone.machine.ids
    alone.tick(600_000)

    assert set(alone.machine.ids) == {ID}
    assert code(alone.end((100, 0), name="idle")) == "INVALID_PRODUCER_ID_MAPPING"
    assert alone.init(name="idle") == (102, 0)


def test_no_caller_hears_of_a_decision_before_it_is_committed() -> None:
    """Markers go out when the HW covers the decision, for another coordinator could still decide otherwise (X8)."""
    alone = IdsAlone(holds_commits=True)
    alone.end(alone.begun())

    assert alone.state == "PrepareCommit"
    alone.tick(10_000)
    assert not alone.sent
    alone.commit()
    assert [marker.tp for marker in alone.sent] == [P0]


def test_refused_markers_are_sent_again_until_they_are_written(alone: IdsAlone) -> None:
    """A refusal of any kind is no answer; INVALID_PRODUCER_EPOCH is an alarm besides (X11)."""
    alone.end(alone.begun(P0, P1))
    alone.answer(refused=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    alone.tick(199)
    assert not alone.sent
    alone.tick(1)
    assert [marker.tp for marker in alone.sent] == [P0, P1]
    alone.answer(P0, refused=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert alone.alarms == [(P0, "INVALID_PRODUCER_EPOCH")]
    alone.answer(P1)
    alone.tick(200)
    assert (alone.state, [marker.tp for marker in alone.sent]) == ("PrepareCommit", [P0])
    alone.answer()
    assert alone.state == "CompleteCommit"


def test_a_deleted_topic_counts_as_answered(alone: IdsAlone) -> None:
    """X8: a topic id that is gone from the metadata needs no marker, one of another topic still does."""
    alone.topics.put("r", 1)
    alone.end(alone.begun(P0, P0._replace(topic_id="r-id")))
    alone.answer(refused=ErrorCode.UNKNOWN_TOPIC_ID)
    alone.topics.drop("r")
    alone.tick(200)
    assert alone.state == "PrepareCommit"
    alone.answer()
    assert alone.state == "CompleteCommit"


def test_a_transaction_of_deleted_topics_alone_completes(alone: IdsAlone) -> None:
    """Nothing is left that could answer, so the next tick completes it."""
    alone.end(alone.begun(P0))
    alone.topics.drop("p")
    alone.tick()

    assert alone.state == "CompleteCommit"


def test_after_a_failover_all_markers_are_sent_again(alone: IdsAlone) -> None:
    """X8: what one coordinator heard dies with it; the next one asks every partition."""
    alone.end(alone.begun(P0, P1))
    alone.answer(P0)
    alone.fail_over()
    alone.tick()

    assert [marker.tp for marker in alone.sent] == [P0, P1]
    alone.answer()
    assert alone.state == "CompleteCommit"


def test_a_late_answer_to_a_marker_changes_nothing(alone: IdsAlone) -> None:
    """An answer for the transaction before says nothing of the one that is being ended now."""
    second = alone.end(alone.begun())
    (old,) = alone.sent
    alone.answer()
    alone.add(P0, by=second)
    alone.end(second)
    alone.hear(old)
    assert alone.state == "PrepareCommit"
    alone.answer()
    assert alone.state == "CompleteCommit"
    alone.hear(old)


def test_people_see_what_is_missing(alone: IdsAlone) -> None:
    """A description names the partitions without a marker; a list is filtered by state, producer and age."""
    alone.init(name="idle")
    alone.end(alone.begun(P0, P1))
    alone.answer(P1)
    alone.now_ms += 5_000
    shown = alone.describe()
    assert not isinstance(shown, type(None)) and code(alone.describe("nobody")) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert getattr(shown, "partitions", None) == (P0,)
    assert getattr(shown, "start_ms", None) == alone.context.unix_ms - 5_000
    assert alone.listed() == ["idle", ID]
    assert alone.listed(states=("preparecommit",)) == [ID]
    assert alone.listed(producer_ids=(100,)) == ["idle"]
    assert alone.listed(longer_than_ms=4_999) == [ID]
    assert alone.listed(longer_than_ms=5_000) == []


# What a leader that asks about a partition is answered: T91, and what is added to a transaction (X9).


ADDED = "PartitionsAdded()"


def test_the_next_transaction_waits_until_the_one_before_is_complete() -> None:
    """T91: in PrepareCommit and PrepareAbort the next identity is CONCURRENT_TRANSACTIONS, also one with the next
    producer id (X5)."""
    for state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
        alone = IdsAlone()
        alone.at(5, state, partitions=(P0,), start_ms=1)
        assert code(alone.add(P0, by=(50, 5))) == "CONCURRENT_TRANSACTIONS"
        assert code(alone.add(P0, by=(50, 4))) == "PRODUCER_FENCED"
        alone.at(32_767, state, partitions=(P0,), start_ms=1, next_producer_id=60)
        assert code(alone.add(P0, by=(60, 0))) == "CONCURRENT_TRANSACTIONS"
        assert code(alone.add(P0, by=(50, 32_767))) == "PRODUCER_FENCED"


def test_looking_up_adds_nothing(alone: IdsAlone) -> None:
    """T91: with verify_only a partition that the transaction lacks is TRANSACTION_ABORTABLE, also without one open."""
    identity = alone.begun(P0)
    written = len(alone.log)

    assert code(alone.add(P1, by=identity, verify_only=True)) == "TRANSACTION_ABORTABLE"
    assert code(alone.add(P0, by=identity, verify_only=True)) == ADDED
    assert len(alone.log) == written
    after = alone.end(identity)
    alone.answer()
    assert code(alone.add(P0, by=after, verify_only=True)) == "TRANSACTION_ABORTABLE"


def test_a_partition_is_written_down_once(alone: IdsAlone) -> None:
    """The first partition begins the transaction, a further one is added, a known one writes nothing."""
    identity = alone.begun(Q0)
    begun_ms = alone.value().start_ms
    alone.now_ms += 10

    assert code(alone.add(P1, by=identity)) == ADDED
    written = len(alone.log)
    assert code(alone.add(P1, Q0, by=identity)) == ADDED
    assert len(alone.log) == written
    assert alone.value().partitions == (P1, Q0)
    assert alone.value().start_ms == begun_ms == alone.context.unix_ms - 10


def test_a_partition_that_this_node_has_not_heard_of_is_refused(alone: IdsAlone) -> None:
    """A topic id that is not in the metadata may be newer than it: were it added, it would count as deleted (X8)."""
    identity = alone.init()
    assert isinstance(identity, tuple)
    assert code(alone.add(TopicPartition("new-id", 0), by=identity)) == "UNKNOWN_TOPIC_ID"
    assert code(alone.add(TopicPartition("p-id", 2), by=identity)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert alone.state == "Empty"
