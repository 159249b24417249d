"""AlterPartition: checks, attempts, epochs, the ELR, and repeated requests (C32)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from controller_builders import CLUSTER, P0, TOPIC_ID, Controller, created, next_reign, outcome, started

from strandline.core.control import messages
from strandline.core.control.topics import KEPT_GROWTHS
from strandline.core.errors import ErrorCode
from strandline.core.messages import EpochsSeen, IsrMember, ProposedIsr
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition


@pytest.fixture
def controller() -> Controller:
    """Nodes 0..3, one partition on 0, 1, 2 that node 0 leads."""
    controller = started(0, 1, 2, 3)
    controller.create(0, 1, 2)
    return controller


@pytest.mark.parametrize(
    ("isr", "given", "expected"),
    [
        ((0, 1), {"sender": 1}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"node_epoch": NodeEpoch(0)}, ErrorCode.STALE_BROKER_EPOCH),
        ((0, 1), {"leader_epoch": 500}, ErrorCode.NOT_CONTROLLER),
        ((0, 1), {"partition_epoch": 500}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 3), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {}, ErrorCode.INVALID_REQUEST),
        ((0, 1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"recovering": True}, ErrorCode.INVALID_REQUEST),
        ((0,), {"recovering": True}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ((0, 1), {"controller_epoch": 7}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ((0, 1), {"node_id": NodeId(8)}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ((0, 1), {"tp": TopicPartition("nobody", 0)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((0, 1), {"tp": TopicPartition(TOPIC_ID, 4)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((0, 1), {}, ErrorCode.NONE),
    ],
)
def test_invalid_requests_are_refused_as_in_kafka(
    controller: Controller, isr: tuple[int, ...], given: dict[str, object], expected: ErrorCode
) -> None:
    """T27: each broken rule has its own error, and the state stays untouched unless all rules hold."""
    before = controller.partition()

    assert controller.propose(*isr, **given) is expected
    assert (controller.partition() == before) is (expected is not ErrorCode.NONE)


def test_fences_come_before_the_shape(controller: Controller) -> None:
    """Check order: cluster, controller epoch, node epoch, sequence, partition; the first failure is returned."""
    wrong = controller.proposal(1, 3, cluster_id="x", controller_epoch=9, node_epoch=NodeEpoch(0), leader_epoch=500)
    steps = [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH]
    repairs = [{"cluster_id": CLUSTER}, {"controller_epoch": 1}, {"node_epoch": controller.epochs[0]}]

    for code, repair in zip(steps, repairs, strict=True):
        assert outcome(controller.ask(wrong)) is code
        wrong = replace(wrong, **repair)
    assert outcome(controller.ask(wrong)) is ErrorCode.NOT_CONTROLLER


def test_stale_epochs_are_distinguished(controller: Controller) -> None:
    """A lower leader epoch is fenced; a lower partition epoch of the current leader epoch is INVALID_UPDATE_VERSION."""
    controller.fence(0)
    before = controller.partition()
    assert before.leader == 1
    assert controller.propose(0, 1, sender=0, leader_epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert controller.propose(1, partition_epoch=before.partition_epoch - 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert controller.partition() == before


def test_shrink_below_min_isr_fills_the_elr_and_expansion_empties_it(controller: Controller) -> None:
    """KIP-966: min ISR 2, ISR {0,1,2} shrinks to {0}: ELR {1,2}; the ISR reaches 2 again: no ELR."""
    assert controller.propose(0, sequence=1) is ErrorCode.NONE
    assert controller.view() == (0, {0}, {1, 2})
    assert controller.propose(0, 2, sequence=2) is ErrorCode.NONE
    assert controller.view() == (0, {0, 2}, set())


def test_proposal_of_the_current_isr_changes_nothing(controller: Controller) -> None:
    """A proposal that already holds is answered with the current state and does not bump an epoch."""
    before = controller.partition()
    offset = controller.core.state.header.metadata_offset

    assert controller.propose(2, 1, 0) is ErrorCode.NONE
    assert controller.partition() == before
    assert controller.core.state.header.metadata_offset == offset


def test_old_incarnation_is_not_added() -> None:
    """TR10: the delayed request names B's old epoch; B, with a replaced disk, stays out: INELIGIBLE_REPLICA."""
    controller = created(1, 2)
    assert controller.propose(1, sequence=1) is ErrorCode.NONE
    delayed = controller.proposal(1, 2, sequence=2)
    controller.fence(2)
    controller.start(2, directory_id="new-disk", unclean=True)
    assert not controller.node(2).fenced
    before = controller.partition()

    assert outcome(controller.ask(delayed)) is ErrorCode.INELIGIBLE_REPLICA
    assert controller.partition() == before
    assert controller.propose(1, 2, sequence=3, epoch_of_2=None) is ErrorCode.INELIGIBLE_REPLICA
    assert controller.propose(1, 2, sequence=4) is ErrorCode.NONE


def test_epochs_are_checked_for_added_members_only(controller: Controller) -> None:
    """A shrink is applied although it names an earlier incarnation of a member that stays."""
    shrink = controller.proposal(0, 1, epoch_of_1=NodeEpoch(controller.epochs[1] - 1))

    assert outcome(controller.ask(shrink)) is ErrorCode.NONE
    assert controller.view()[1] == {0, 1}


def test_fenced_and_stopping_members_are_ineligible(controller: Controller) -> None:
    """A member that is fenced or shutting down cannot be added."""
    controller.fence(1)
    assert controller.propose(0, 1, 2, sequence=1) is ErrorCode.INELIGIBLE_REPLICA
    controller.heartbeat(1)
    controller.heartbeat(2, want_shut_down=True)

    assert controller.propose(0, 2, sequence=2) is ErrorCode.INELIGIBLE_REPLICA
    assert controller.propose(0, 1, sequence=3) is ErrorCode.NONE


def test_retried_request_applies_once_or_never() -> None:
    """TR16: R1 and its copy arrive around a brief fencing; after "not applied" no copy of that attempt applies."""
    controller = started(0, 1, 2)
    controller.create(2, 0, 1)
    assert controller.propose(2, 0, sequence=1) is ErrorCode.NONE
    attempt = controller.proposal(2, 0, 1, sequence=2)
    controller.fence(1)

    assert outcome(controller.ask(attempt)) is ErrorCode.INELIGIBLE_REPLICA

    controller.heartbeat(1)
    before = controller.partition()

    assert outcome(controller.ask(attempt)) is ErrorCode.INELIGIBLE_REPLICA
    assert controller.partition() == before


def test_equal_sequence_gets_the_stored_answer(controller: Controller) -> None:
    """A copy of an applied attempt gets the same answer as the first, and changes nothing."""
    attempt = controller.proposal(0, 1)
    first = controller.ask(attempt)
    offset = controller.core.state.header.metadata_offset
    second = controller.ask(attempt)

    assert second == first
    assert outcome(second) is ErrorCode.NONE
    assert controller.core.state.header.metadata_offset == offset


def test_lower_sequence_is_invalid_and_a_new_incarnation_counts_again(controller: Controller) -> None:
    """A sequence below the last seen of this node epoch never applies; a new node epoch starts its own sequence."""
    assert controller.propose(0, 1, sequence=5) is ErrorCode.NONE
    before = controller.partition()

    assert controller.propose(0, sequence=4) is ErrorCode.INVALID_REQUEST
    assert controller.partition() == before

    controller.register(0)
    controller.fence(1, 2)
    controller.report(0)
    controller.start(1)
    controller.report(1)

    assert controller.partition().leader == 0
    assert controller.propose(0, 1, sequence=1) is ErrorCode.NONE


def test_a_strangers_sequence_is_not_answered_with_the_leaders_own(controller: Controller) -> None:
    """F3: a sequence that another sender used first is rejected with the sequence to exceed, not with that answer."""
    stranger = controller.ask(controller.proposal(0, 2, sequence=7, sender=0, leader_epoch=99))
    own = controller.ask(controller.proposal(0, 1, sequence=7))
    assert outcome(stranger) is not ErrorCode.NONE
    assert (own.refusal.code, own.last_sequence) == (ErrorCode.INVALID_REQUEST, 7)

    assert outcome(controller.ask(controller.proposal(0, 1, sequence=8))) is ErrorCode.NONE
    assert controller.view()[1] == {0, 1}


def test_no_request_uses_up_all_sequences(controller: Controller) -> None:
    """F3: a sequence that no honest node can have reached is rejected and not stored, also before the first attempt."""
    first = controller.ask(controller.proposal(0, 1, sequence=1 << 62))
    assert controller.propose(0, 1, sequence=1) is ErrorCode.NONE
    later = controller.ask(controller.proposal(0, sequence=1 << 62))

    assert (first.refusal.code, first.last_sequence) == (ErrorCode.INVALID_REQUEST, 0)
    assert (later.refusal.code, later.last_sequence) == (ErrorCode.INVALID_REQUEST, 1)
    assert controller.propose(0, sequence=2) is ErrorCode.NONE


def test_attempt_for_an_earlier_reign_is_refused(controller: Controller) -> None:
    """TR16: after a restart of the controller an attempt addressed to the earlier epoch does not apply."""
    attempt = controller.proposal(0, 1)
    restarted = next_reign(controller)

    refused = restarted.ask(attempt).refusal
    assert refused.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert refused.message == "controller_epoch 1 is not the current 2; refresh metadata"
    assert outcome(restarted.ask(restarted.proposal(0, 1))) is ErrorCode.NONE


def test_one_refused_partition_does_not_keep_the_others(controller: Controller) -> None:
    """Each proposal of a request is decided separately."""
    good = controller.proposal(0, 1)
    bad = ProposedIsr(
        TopicPartition("nobody", 0), LeaderEpoch(0), PartitionEpoch(0), (IsrMember(NodeId(0), controller.epochs[0]),)
    )
    answer = controller.ask(replace(good, partitions=(bad, *good.partitions)))

    assert [d.refusal.code if d.refusal else None for d in answer.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID, None]
    assert answer.partitions[1].tp == P0
    assert set(answer.partitions[1].isr) == {0, 1}


# A request that is repeated because its answer was lost changes nothing, and is answered as the first time (C32).


T = messages.TopicRef("t")


def uuid(number: int) -> str:
    """The request id of one test's request."""
    return f"00000000-0000-4000-8000-{number:012x}"


@pytest.fixture
def controller_repeated() -> Controller:
    """Three nodes, no topic."""
    return started(1, 2, 3)


def create(controller: Controller, request: int | None, *ids: str, **given: Any) -> list[ErrorCode | str | None]:
    """Create topics `t`, one for each id; of each row the code or the topic's id."""
    topics = tuple(messages.NewTopic("t", topic_id, num_partitions=2) for topic_id in ids)
    request_id = None if request is None else uuid(request)
    answer = controller.ask(messages.CreateTopics(topics=topics, request_id=request_id, **given))
    return [row.refusal.code if row.refusal else row.topic and row.topic.topic_id for row in answer.topics]


def grow(controller: Controller, request: int | None, total: int) -> ErrorCode | None:
    request_id = None if request is None else uuid(request)
    answer = controller.ask(messages.CreatePartitions(topics=(messages.GrowingTopic(T, total),), request_id=request_id))
    (row,) = answer.topics
    return row.refusal.code if row.refusal else None


def test_a_repeat_answers_with_the_topic_of_the_first(controller_repeated: Controller) -> None:
    """The repeat finds the topic that the first request created, and draws no other id for it."""
    first = create(controller_repeated, 1, TOPIC_ID)
    before = controller_repeated.core.state

    assert first == create(controller_repeated, 1, "drawn again") == [TOPIC_ID]
    assert controller_repeated.core.state == before


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, None), (None, None), (None, 1)])
def test_another_request_finds_the_name_taken(
    controller_repeated: Controller, first: int | None, second: int | None
) -> None:
    """Only the same id is a repeat; two requests without one are two requests, and one that only checks is none."""
    create(controller_repeated, first, TOPIC_ID)
    taken = [ErrorCode.TOPIC_ALREADY_EXISTS]

    assert create(controller_repeated, second, "another") == taken
    assert create(controller_repeated, first, "another", validate_only=True) == taken


def test_a_name_that_one_request_gives_twice_stays_refused_once(controller_repeated: Controller) -> None:
    """The repeat answers each row as the first request did."""
    assert create(controller_repeated, 1, TOPIC_ID, "second") == [TOPIC_ID, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert create(controller_repeated, 1, "third", "fourth") == [TOPIC_ID, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_late_copy_after_a_deletion_creates_another_topic(controller_repeated: Controller) -> None:
    """An id of a topic is never given twice, not even to the request that it was given to first."""
    create(controller_repeated, 1, TOPIC_ID)
    controller_repeated.ask(messages.DeleteTopics(topics=(T,)))

    assert create(controller_repeated, 1, "another") == ["another"]


def test_a_repeat_adds_no_partitions_twice(controller_repeated: Controller) -> None:
    """Without an id the same request is refused, because the topic has that many partitions already."""
    create(controller_repeated, 1, TOPIC_ID)
    assert grow(controller_repeated, 2, 4) is None
    before = controller_repeated.core.state

    assert grow(controller_repeated, 2, 4) is None
    assert controller_repeated.core.state == before
    assert grow(controller_repeated, None, 4) is grow(controller_repeated, 3, 4) is ErrorCode.INVALID_PARTITIONS


def test_a_repeat_after_another_growth_is_answered_as_the_first_time(controller_repeated: Controller) -> None:
    """A topic remembers its latest growths, not only the last one, and no more than it was said to."""
    create(controller_repeated, 1, TOPIC_ID)
    for number in range(KEPT_GROWTHS + 1):
        assert grow(controller_repeated, 10 + number, 3 + number) is None
    assert grow(controller_repeated, 10, 3) is ErrorCode.INVALID_PARTITIONS
    assert [grow(controller_repeated, 11 + number, 4 + number) for number in range(KEPT_GROWTHS)] == [
        None
    ] * KEPT_GROWTHS
    assert len(controller_repeated.core.state.topics[TOPIC_ID].partitions) == 2 + KEPT_GROWTHS + 1


def test_what_a_request_did_outlives_a_reign_and_a_change_of_settings(controller_repeated: Controller) -> None:
    """The ids are part of the state that the next controller begins with, and other changes keep them."""
    create(controller_repeated, 1, TOPIC_ID)
    grow(controller_repeated, 2, 4)
    controller_repeated.ask(messages.AlterTopicConfigs(topics=(messages.ConfigChange(T, (("retention.ms", "1"),)),)))
    successor = next_reign(controller_repeated)
    successor.heartbeat(1)

    assert create(successor, 1, "another") == [TOPIC_ID]
    assert grow(successor, 2, 4) is None


@pytest.mark.parametrize("request_id", ["", "7", uuid(0xABC).upper(), uuid(1) + "\n", "x" * 100_000])
def test_an_id_that_is_no_uuid_is_refused(controller_repeated: Controller, request_id: str) -> None:
    """What would be kept has the length of a UUID; the whole request is refused, and the field named."""
    for request in (
        messages.CreateTopics(topics=(messages.NewTopic("t", TOPIC_ID),), request_id=request_id),
        messages.CreatePartitions(topics=(messages.GrowingTopic(T, 4),), request_id=request_id),
    ):
        refusal = controller_repeated.ask(request)

        assert (refusal.code, refusal.field) == (ErrorCode.INVALID_REQUEST, "request_id")
    assert controller_repeated.core.state.topics == {}


def test_an_unclean_election_is_held_in_the_epoch_that_was_seen() -> None:
    """A repeat that arrives when the elected leader has died, too, elects no leader: that would be a second loss."""
    controller = created(1, 2, 3, min_insync_replicas="1")
    controller.propose(1)
    controller.fence(1)
    seen = controller.partition()
    request = messages.ElectLeaders(
        kind=messages.ElectionKind.UNCLEAN,
        partitions=((T, (0,)),),
        seen=(EpochsSeen(seen.tp, seen.leader_epoch, seen.partition_epoch),),
    )
    (first,) = controller.ask(request).results
    (repeat,) = controller.ask(request).results
    controller.fence(2)
    (late,) = controller.ask(request).results

    assert (first.refusal, first.leader) == (None, 2)
    assert (repeat.refusal.code, repeat.leader) == (ErrorCode.ELECTION_NOT_NEEDED, 2)
    assert (late.refusal.code, late.leader) == (ErrorCode.ELECTION_NOT_NEEDED, None)
    assert controller.partition().leader is None
