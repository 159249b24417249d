"""Finding offsets: what the caller gets when the time is up."""

from __future__ import annotations

import asyncio

import pytest

from strandline.client.cluster.metadata import Cluster
from strandline.client.offsets import FoundOffset, OffsetFinder
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

FIRST, SECOND = TopicPartition("T", 0), TopicPartition("T", 1)
ANSWER = FoundOffset(Offset(7), None, LeaderEpoch(1))


class AnsweredAndCutOff(OffsetFinder):
    """Stores the answers for ``answered``, and does not return before the deadline."""

    def __init__(self, *answered: TopicPartition) -> None:
        super().__init__(Cluster.__new__(Cluster))
        self._answered = answered

    async def _ask_leaders(self, missing, found, why) -> None:
        found.update(dict.fromkeys(self._answered, ANSWER))
        await asyncio.Event().wait()


async def test_answers_that_came_in_the_moment_of_the_deadline_are_given() -> None:
    """When every partition has answered, reaching the deadline is not a failure, however late it is."""
    found = await AnsweredAndCutOff(FIRST, SECOND).find({FIRST: -1, SECOND: -1}, deadline_ms=20)

    assert found == {FIRST: ANSWER, SECOND: ANSWER}


async def test_the_deadline_names_a_partition_that_did_not_answer() -> None:
    """A partition without an answer gets an error, although the other has one."""
    with pytest.raises(Refused, match="partition 1") as refused:
        await AnsweredAndCutOff(FIRST).find({FIRST: -1, SECOND: -1}, deadline_ms=20)

    assert refused.value.refusal.code is ErrorCode.LEADER_NOT_AVAILABLE
