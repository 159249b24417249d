"""What a failed send means for its batch."""

from __future__ import annotations

import pytest

from strandline.client.produce.lane import AfterRefusal, after_refusal
from strandline.core.errors import ErrorCode, Refusal


def decided(code: ErrorCode, *, idempotent: bool = True, appeared: bool = False, behind: bool = False) -> AfterRefusal:
    """The retry decision for one batch."""
    return after_refusal(Refusal(code), idempotent=idempotent, may_have_appeared=appeared, behind_an_older=behind)


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_a_retry_may_cure_is_sent_again(idempotent: bool) -> None:
    """A rejection that is retriable and certain is retried."""
    assert decided(ErrorCode.NOT_LEADER_OR_FOLLOWER, idempotent=idempotent) is AfterRefusal.SENT_AGAIN
    assert decided(ErrorCode.MESSAGE_TOO_LARGE, idempotent=idempotent) is AfterRefusal.GIVEN_UP


def test_without_a_sequence_nothing_uncertain_is_sent_again() -> None:
    """Without a sequence a second copy could not be detected, so an uncertain batch is given up."""
    assert decided(ErrorCode.REQUEST_TIMED_OUT, idempotent=False, appeared=True) is AfterRefusal.GIVEN_UP
    assert decided(ErrorCode.REQUEST_TIMED_OUT, appeared=True) is AfterRefusal.SENT_AGAIN


def test_a_duplicate_is_acknowledged() -> None:
    """A duplicate counts as acknowledged, because the leader has it."""
    assert decided(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, appeared=True) is AfterRefusal.ACKNOWLEDGED


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_sequence_no_leader_takes_is_replaced_unless_it_may_be_written(code: ErrorCode) -> None:
    """A batch that may be in the log keeps its number, so it is given up."""
    assert decided(code) is AfterRefusal.NUMBERED_AGAIN
    assert decided(code, appeared=True) is AfterRefusal.GIVEN_UP


def test_a_gap_before_an_unanswered_batch_closes_by_itself() -> None:
    """Out of order behind an older batch: both are sent again in order."""
    assert decided(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, appeared=True, behind=True) is AfterRefusal.SENT_AGAIN
    assert decided(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is AfterRefusal.NUMBERED_AGAIN
