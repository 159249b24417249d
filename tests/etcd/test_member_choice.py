"""Which member of etcd is asked, without etcd (C3)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from strandline.core.messages import Endpoint
from strandline.etcd.client import MemberChoice
from strandline.etcd.errors import Unanswered

A, B, C = (Endpoint("127.0.0.1", port) for port in (1, 2, 3))


class Members:
    """What members say when they are asked for their leader: None for one that does not answer."""

    def __init__(self, said: Mapping[Endpoint, list[bool | None]]) -> None:
        self._said = {member: list(answers) for member, answers in said.items()}
        self.asked: list[Endpoint] = []

    async def knows_leader(self, member: Endpoint) -> bool:
        """The next of its answers; the last one for ever."""
        self.asked.append(member)
        answers = self._said[member]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise Unanswered(f"member {member.port} is silent")
        return answer


async def _after_a_failure(said: Mapping[Endpoint, list[bool | None]], within_s: float = 1.0) -> Endpoint:
    choice = MemberChoice([A, B, C], Members(said).knows_leader)
    choice.leave(A)
    return await choice.settled(within_s)


async def test_nobody_is_asked_before_a_call_failed() -> None:
    """While calls are answered, choosing costs no message."""
    members = Members({A: [True], B: [True], C: [True]})

    assert await MemberChoice([A, B, C], members.knows_leader).settled(1.0) == A
    assert members.asked == []


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ({A: [True], B: [True], C: [True]}, B),
        ({A: [None], B: [None], C: [True]}, C),
        ({A: [True], B: [False], C: [True]}, C),
        ({A: [True], B: [None], C: [None]}, A),
        ({A: [None], B: [None], C: [None]}, B),
        ({A: [None], B: [False, False, True], C: [False]}, B),
        ({A: [None], B: [False], C: [False, False, True]}, C),
    ],
    ids=[
        "the next in turn",
        "past another silent one",
        "past one without a leader",
        "back to the one that was left",
        "in turn when none answers",
        "the first to have a leader, next in turn",
        "the first to have a leader, another",
    ],
)
async def test_the_member_after_a_failed_call(said: Mapping[Endpoint, list[bool | None]], chosen: Endpoint) -> None:
    """After a call to A without an answer, the next goes to a member that knows a leader."""
    assert await _after_a_failure(said) == chosen


async def test_members_without_a_leader_are_waited_for_no_longer_than_the_call() -> None:
    """A call ends in time although no leader is elected."""
    assert await _after_a_failure({A: [None], B: [False], C: [False]}, within_s=0.0) == B


async def test_a_late_failure_of_a_member_that_was_left_leaves_no_other() -> None:
    """Calls that were under way together move on once."""
    choice = MemberChoice([A, B, C], Members({A: [True], B: [True], C: [True]}).knows_leader)
    choice.leave(A)
    choice.leave(A)

    assert choice.member == B
