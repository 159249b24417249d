"""What a refused send means for its batch: acknowledged after all, sent again, numbered again, or given up.

Invariant: a batch that may have been appended is sent again only under the sequence it had (M61), and never without
one: nothing would tell the second copy from the first.
"""

from __future__ import annotations

from enum import Enum

from strandline.core.errors import ErrorCode, Refusal

_SEQUENCE_REFUSED = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)


class AfterRefusal(Enum):
    """What becomes of a batch."""

    ACKNOWLEDGED = "acknowledged"
    """The leader already has it."""
    SENT_AGAIN = "sent again"
    NUMBERED_AGAIN = "numbered again"
    """It was never written under its sequence, which no leader will take any more."""
    GIVEN_UP = "given up"


def after_refusal(
    refusal: Refusal, *, idempotent: bool, may_have_appeared: bool, behind_an_older: bool, transactional: bool = False
) -> AfterRefusal:
    """Decide for one batch. ``transactional``: it has no other number than that of its transaction, which ends with it.

    ``may_have_appeared``: some attempt, this one included, may have been appended. ``behind_an_older``: a batch with a
    smaller sequence is not answered yet.
    """
    if refusal.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return AfterRefusal.ACKNOWLEDGED
    if idempotent and refusal.code in _SEQUENCE_REFUSED:
        if behind_an_older and refusal.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The gap is the older batch, which was refused and goes again first.
            return AfterRefusal.SENT_AGAIN
        is_final = may_have_appeared or transactional
        return AfterRefusal.GIVEN_UP if is_final else AfterRefusal.NUMBERED_AGAIN
    if may_have_appeared and not idempotent:
        return AfterRefusal.GIVEN_UP
    return AfterRefusal.SENT_AGAIN if refusal.retriable else AfterRefusal.GIVEN_UP
