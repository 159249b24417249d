"""Offsets of groups without members: what is committed, refused, given back, and when it goes."""

from __future__ import annotations

from typing import Any

import pytest
from core_builders import partition_image

from strandline.core.coordinator.directory import NodeTopics
from strandline.core.coordinator.machine import Context
from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.group_messages import (
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
)
from strandline.core.group_offsets import GroupOffsets, OffsetKey, OffsetRules, OffsetValue
from strandline.core.messages import TopicImage
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

ID, OTHER = "topic-1", "topic-2"
P0, P1 = TopicPartition(ID, 0), TopicPartition(ID, 1)
DAY_MS = 86_400_000


def _topic(topic_id: str) -> TopicImage:
    tps = [TopicPartition(topic_id, index) for index in range(2)]
    return TopicImage(name=topic_id, topic_id=topic_id, partitions=tuple(partition_image(tp) for tp in tps))


class Groups:
    """A machine whose decisions are applied, as its shard does it."""

    def __init__(self, **rules: int) -> None:
        self.machine = GroupOffsets(OffsetRules(**rules))
        self.topics = {topic_id: _topic(topic_id) for topic_id in (ID, OTHER)}
        self.directory = NodeTopics(self.topics, {})
        self.now_ms = 0
        self.log: list[Record] = []

    @property
    def context(self) -> Context:
        return Context(self.now_ms, 10 * DAY_MS + self.now_ms, LeaderEpoch(3), self.directory)

    def take(self, batches: tuple[tuple[Record, ...], ...]) -> None:
        for record in (record for batch in batches for record in batch):
            self.machine.apply(record)
            self.log.append(record)

    def ask(self, request: object) -> Any:
        decision = self.machine.decide(request, self.context)
        self.take(decision.batches)
        return decision.answer

    def commit(self, *offsets: tuple[TopicPartition, int], group: str = "g", **how: Any) -> list[str]:
        asked = tuple(OffsetToCommit(tp, Offset(offset)) for tp, offset in offsets)
        answer = self.ask(OffsetCommit(group_id=group, offsets=asked, **how))
        if isinstance(answer, Refusal):
            return [answer.code.name]
        assert isinstance(answer, OffsetsCommitted)
        return [part.refusal.code.name if part.refusal else "" for part in answer.partitions]

    def fetch(self, *tps: TopicPartition, group: str = "g") -> dict[TopicPartition, Offset | None]:
        answer = self.ask(OffsetFetch(group_id=group, partitions=tps or None))
        assert isinstance(answer, OffsetsFetched)
        return {found.tp: found.offset for found in answer.partitions}

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for decision in self.machine.tick(self.context):
            self.take(decision.batches)


def test_what_was_committed_last_is_given_back() -> None:
    """Per group and partition; what was never committed has no offset and no error."""
    groups = Groups()
    assert groups.commit((P0, 5), (P1, 6)) == ["", ""]
    groups.commit((P0, 7))
    groups.commit((P0, 1), group="h")

    assert groups.fetch() == {P0: 7, P1: 6}
    assert groups.fetch(P1, TopicPartition(OTHER, 0)) == {P1: 6, TopicPartition(OTHER, 0): None}
    assert groups.fetch(group="nobody") == {}


def test_an_offset_carries_what_was_committed_with_it() -> None:
    """Leader epoch, text, and the wall clock of the commit."""
    groups = Groups()
    asked = (OffsetToCommit(P0, Offset(5), LeaderEpoch(2), "half"),)
    groups.ask(OffsetCommit(group_id="g", offsets=asked))
    answer = groups.ask(OffsetFetch(group_id="g"))

    assert answer.partitions == (FetchedOffset(P0, Offset(5), LeaderEpoch(2), "half", 10 * DAY_MS),)


def test_one_commit_is_one_batch_and_later_ones_have_higher_orders() -> None:
    """All offsets of a request share their order, which rises with each commit of the group."""
    groups = Groups()
    asked = tuple(OffsetToCommit(tp, Offset(1)) for tp in (P0, P1))
    decision = groups.machine.decide(OffsetCommit(group_id="g", offsets=asked), groups.context)
    assert [len(batch) for batch in decision.batches] == [2]
    groups.take(decision.batches)
    groups.commit((P0, 2))
    groups.commit((P0, 1), group="h")

    assert {(k.group_id, k.partition): v.order for k, v in groups.machine.rows()} == {
        ("g", 0): 2,
        ("g", 1): 1,
        ("h", 0): 1,
    }


def test_t79_a_text_that_is_too_long_fails_its_partition_alone() -> None:
    """4,097 bytes are OFFSET_METADATA_TOO_LARGE; bytes count, not characters; the other partition is committed."""
    groups = Groups()
    asked = (OffsetToCommit(P0, Offset(1), None, "ä" * 2_049), OffsetToCommit(P1, Offset(2), None, "ä" * 2_048))
    answer = groups.ask(OffsetCommit(group_id="g", offsets=asked))

    assert [p.refusal.code if p.refusal else None for p in answer.partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        None,
    ]
    assert groups.fetch() == {P1: 2}


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        ((P0, -1), "INVALID_REQUEST"),
        ((TopicPartition(ID, 2), 1), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((TopicPartition(ID, -1), 1), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((TopicPartition("gone", 0), 1), "UNKNOWN_TOPIC_ID"),
    ],
)
def test_an_offset_that_cannot_be_is_refused(offset: tuple[TopicPartition, int], code: str) -> None:
    """By itself, and nothing of it is written."""
    groups = Groups()

    assert groups.commit(offset, (P0, 3)) == [code, ""]
    assert groups.fetch() == {P0: 3}


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"member_epoch": 1, "member_id": "m"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "m"}, "UNKNOWN_MEMBER_ID"),
        ({"coordinator_epoch": 2}, "NOT_COORDINATOR"),
    ],
)
def test_a_commit_for_somebody_else_is_refused_whole(how: dict[str, Any], code: str) -> None:
    """A member that the group has not, or a coordinator of another epoch."""
    groups = Groups()

    assert groups.commit((P0, 3), **how) == [code]
    assert groups.log == []


def test_a_commit_for_this_coordinator_is_taken() -> None:
    """The epoch that the sender believes in is the one that is."""
    assert Groups().commit((P0, 3), coordinator_epoch=3) == [""]


def test_a_read_that_must_be_the_newest_waits_for_a_barrier() -> None:
    """Only with ``require_stable``."""
    groups = Groups()
    decide = groups.machine.decide

    assert decide(OffsetFetch(group_id="g", require_stable=True), groups.context).barrier
    assert not decide(OffsetFetch(group_id="g"), groups.context).barrier


def test_an_old_offset_goes_and_a_newer_one_of_the_group_stays() -> None:
    """Seven days after its commit, looked at every ten minutes."""
    groups = Groups()
    groups.tick(0)
    groups.commit((P0, 1))
    groups.now_ms += DAY_MS
    groups.commit((P1, 2))
    groups.tick(6 * DAY_MS - 1)
    assert groups.fetch() == {P0: 1, P1: 2}
    groups.tick(600_000)

    assert groups.fetch() == {P1: 2}
    assert groups.log[-1] == Record(OffsetKey("g", *P0))


def test_offsets_of_a_deleted_topic_go_at_once() -> None:
    """At the next tick, without waiting for the ten minutes; a topic of the same name has none."""
    groups = Groups()
    groups.tick(0)
    groups.commit((P0, 1), (TopicPartition(OTHER, 0), 2))
    groups.tick(100)
    assert len(groups.fetch()) == 2
    del groups.topics[ID]
    groups.directory.changed()
    groups.tick(100)

    assert groups.fetch() == {TopicPartition(OTHER, 0): 2}


def test_a_group_without_offsets_is_forgotten() -> None:
    """When its last offset is deleted nothing of it is left, and deleting it once more is no error."""
    groups = Groups()
    groups.commit((P0, 1))
    for _ in range(2):
        groups.take(((Record(OffsetKey("g", *P0)),),))

    assert groups.machine._groups == {}


def test_state_is_what_its_records_fold_to() -> None:
    """Another machine that applies the same records knows the same."""
    groups = Groups()
    groups.commit((P0, 5), (P1, 6))
    groups.commit((P0, 7))
    groups.take(((Record(OffsetKey("g", *P1)),),))
    other = GroupOffsets()
    for record in groups.log:
        other.apply(record)

    expected = OffsetValue(Offset(7), None, "", 10 * DAY_MS, 2)
    assert dict(other.rows()) == dict(groups.machine.rows()) == {OffsetKey("g", *P0): expected}
