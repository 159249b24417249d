"""Whether a member's request is of this coordinator epoch, and no late copy of one that was taken (G19, TR41)."""

from __future__ import annotations

from strandline.core.errors import ErrorCode, Outcome, Refusal


def refusal_of_epoch(given: int | None, coordinator_epoch: int) -> Refusal | None:
    """Why a request for another coordinator epoch is not looked at; None if it names this one or none."""
    if given is None or given == coordinator_epoch:
        return None
    message = f"coordinator_epoch is {given} and this coordinator's is {coordinator_epoch}; refresh metadata"
    return Refusal(ErrorCode.NOT_COORDINATOR, message, Outcome.NOT_APPENDED, field="coordinator_epoch")


def late_copy(sequence: int | None) -> Refusal:
    """The answer to a request of which a later one was taken: nobody waits for it any more."""
    message = f"sequence {sequence} is not above that of a request of this member that was taken before"
    return Refusal(ErrorCode.REQUEST_TIMED_OUT, message, field="sequence")
