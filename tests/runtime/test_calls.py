"""The calls that wait on a node: how many, and of which total size."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.runtime.calls import Calls


def take(_: object) -> bool:
    """Take a caller that expects one answer."""
    return True


def test_calls_are_bounded_by_number_and_by_what_they_name() -> None:
    """Beyond either bound a call is rejected, definitely, and an answered or dropped call frees its slot."""
    calls = Calls(limit=3, named_limit=100)
    calls.wait(1, take, named=60)
    calls.wait(2, take, named=40)
    with pytest.raises(Refused) as refused:
        calls.wait(3, take, named=1)
    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.value.refusal.outcome is Outcome.NOT_APPENDED

    calls.answer(1, "answer")
    assert calls.drop(2)
    assert not calls.drop(2)

    for number in (4, 5, 6):
        calls.wait(number, take, named=33)
    with pytest.raises(Refused):
        calls.wait(7, take, named=0)
