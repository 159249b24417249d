"""A request that is repeated because its answer was lost changes nothing, and is answered as the first time (C32)."""

from __future__ import annotations

from typing import Any

import pytest
from controller_builders import TOPIC_ID, Controller

from strandline.core.control.messages import (
    AlterTopicConfigs,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionKind,
    ElectLeaders,
    GrowingTopic,
    NewTopic,
    TopicRef,
)
from strandline.core.control.topics import KEPT_GROWTHS
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import EpochsSeen

T = TopicRef("t")


def uuid(number: int) -> str:
    """The request id of one test's request."""
    return f"00000000-0000-4000-8000-{number:012x}"


@pytest.fixture
def controller() -> Controller:
    """Three nodes, no topic."""
    controller = Controller()
    controller.start(1, 2, 3)
    return controller


def create(controller: Controller, request: int | None, *ids: str, **given: Any) -> list[ErrorCode | str | None]:
    """Create topics `t`, one for each id; of each row the code or the topic's id."""
    topics = tuple(NewTopic("t", topic_id, num_partitions=2) for topic_id in ids)
    request_id = None if request is None else uuid(request)
    answer = controller.ask(CreateTopics(topics=topics, request_id=request_id, **given))
    return [row.refusal.code if row.refusal else row.topic and row.topic.topic_id for row in answer.topics]


def grow(controller: Controller, request: int | None, total: int) -> ErrorCode | None:
    """Let topic `t` grow."""
    request_id = None if request is None else uuid(request)
    answer = controller.ask(CreatePartitions(topics=(GrowingTopic(T, total),), request_id=request_id))
    (row,) = answer.topics
    return row.refusal.code if row.refusal else None


def test_a_repeat_answers_with_the_topic_of_the_first(controller: Controller) -> None:
    """The repeat finds the topic that the first request created, and draws no other id for it."""
    first = create(controller, 1, TOPIC_ID)
    before = controller.core.state

    assert first == create(controller, 1, "drawn again") == [TOPIC_ID]
    assert controller.core.state == before


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, None), (None, None), (None, 1)])
def test_another_request_finds_the_name_taken(controller: Controller, first: int | None, second: int | None) -> None:
    """Only the same id is a repeat; two requests without one are two requests."""
    create(controller, first, TOPIC_ID)

    assert create(controller, second, "another") == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_name_that_one_request_gives_twice_stays_refused_once(controller: Controller) -> None:
    """The repeat answers each row as the first request did."""
    assert create(controller, 1, TOPIC_ID, "second") == [TOPIC_ID, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert create(controller, 1, "third", "fourth") == [TOPIC_ID, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_check_is_no_repeat(controller: Controller) -> None:
    """A request that only checks is not answered with what another one of its id did."""
    create(controller, 1, TOPIC_ID)

    assert create(controller, 1, "another", validate_only=True) == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_late_copy_after_a_deletion_creates_another_topic(controller: Controller) -> None:
    """An id of a topic is never given twice, not even to the request that it was given to first."""
    create(controller, 1, TOPIC_ID)
    controller.ask(DeleteTopics(topics=(T,)))

    assert create(controller, 1, "another") == ["another"]


def test_a_repeat_adds_no_partitions_twice(controller: Controller) -> None:
    """Without an id the same request is refused, because the topic has that many partitions already."""
    create(controller, 1, TOPIC_ID)
    assert grow(controller, 2, 4) is None
    before = controller.core.state

    assert grow(controller, 2, 4) is None
    assert controller.core.state == before
    assert grow(controller, None, 4) is grow(controller, 3, 4) is ErrorCode.INVALID_PARTITIONS


def test_a_repeat_after_another_growth_is_answered_as_the_first_time(controller: Controller) -> None:
    """A topic remembers its latest growths, not only the last one, and no more than it was said to."""
    create(controller, 1, TOPIC_ID)
    for number in range(KEPT_GROWTHS + 1):
        assert grow(controller, 10 + number, 3 + number) is None

    assert grow(controller, 10, 3) is ErrorCode.INVALID_PARTITIONS
    assert [grow(controller, 11 + number, 4 + number) for number in range(KEPT_GROWTHS)] == [None] * KEPT_GROWTHS
    assert len(controller.core.state.topics[TOPIC_ID].partitions) == 2 + KEPT_GROWTHS + 1


def test_what_a_request_did_outlives_a_reign_and_a_change_of_settings(controller: Controller) -> None:
    """The ids are part of the state that the next controller begins with, and other changes keep them."""
    create(controller, 1, TOPIC_ID)
    grow(controller, 2, 4)
    controller.ask(AlterTopicConfigs(topics=(ConfigChange(T, (("retention.ms", "1"),)),)))
    successor = Controller(state=controller.stored)
    successor.epochs = controller.epochs
    successor.heartbeat(1)

    assert create(successor, 1, "another") == [TOPIC_ID]
    assert grow(successor, 2, 4) is None


@pytest.mark.parametrize("request_id", ["", "7", uuid(0xABC).upper(), uuid(1) + "\n", "x" * 100_000])
def test_an_id_that_is_no_uuid_is_refused(controller: Controller, request_id: str) -> None:
    """What would be kept has the length of a UUID; the whole request is refused, and the field named."""
    for request in (
        CreateTopics(topics=(NewTopic("t", TOPIC_ID),), request_id=request_id),
        CreatePartitions(topics=(GrowingTopic(T, 4),), request_id=request_id),
    ):
        refusal = controller.ask(request)

        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.field) == (ErrorCode.INVALID_REQUEST, "request_id")
    assert controller.core.state.topics == {}


def test_an_unclean_election_is_held_in_the_epoch_that_was_seen() -> None:
    """A repeat that arrives when the elected leader has died, too, elects nobody: that would be a second loss."""
    controller = Controller()
    controller.start(1, 2, 3)
    controller.create(1, 2, 3, min_insync_replicas="1")
    controller.propose(1)
    controller.fence(1)
    seen = controller.partition()
    request = ElectLeaders(
        kind=ElectionKind.UNCLEAN,
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
