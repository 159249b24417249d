"""How a call that cannot be answered is refused: which field, by which rule, and what to do.

Invariant: every refusal carries the three apart from its sentence, so that programs need not read the sentence.
"""

from __future__ import annotations

from strandline.core.errors import ErrorCode, Refusal, Refused


def wrong(field: str, rule: str, remedy: str) -> Refused:
    """INVALID_ARGUMENT: a field of the request breaks a rule."""
    return _refused(ErrorCode.INVALID_REQUEST, field, rule, remedy)


def not_found(field: str, rule: str, remedy: str) -> Refused:
    """NOT_FOUND: the request names what does not exist."""
    return _refused(ErrorCode.RESOURCE_NOT_FOUND, field, rule, remedy)


def full(field: str, rule: str, remedy: str) -> Refused:
    """RESOURCE_EXHAUSTED: a bound of the server is reached; the same call may succeed later."""
    return _refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, field, rule, remedy)


def unusable_input(reported: str) -> Refused:
    """FAILED_PRECONDITION: the exported files cannot be used as they are; ``reported`` says which, and what to do."""
    return Refused.of(
        Refusal(
            ErrorCode.INVALID_CONFIG,
            reported,
            field="input",
            rule="the server's input is a sound export",
            remedy="do what the message says, or start the server with another --input",
        )
    )


def stopping() -> Refused:
    """UNAVAILABLE: the server gives up what it does, because it stops."""
    return Refused(ErrorCode.NETWORK_EXCEPTION, "the server stops and gave this up; ask it again once it serves")


def _refused(code: ErrorCode, field: str, rule: str, remedy: str) -> Refused:
    return Refused.of(Refusal(code, f"{field}: {rule}; {remedy}", field=field, rule=rule, remedy=remedy))


def sentence_of(error: Exception) -> str:
    """What a caller may learn of an error: a refusal's own sentence, and nothing of the inside of the process."""
    if isinstance(error, Refused):
        return str(error.refusal)
    return f"{ErrorCode.UNKNOWN_SERVER_ERROR.name}: internal failure; the server's log has it at this run's id"
