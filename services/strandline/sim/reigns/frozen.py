"""A `ReignCore` as a value, and back: what the search keeps of a controller between two steps.

Invariant: a core made from a value behaves as the core that the value was made from; numbers of questions, and what was
known when a write was asked for, on which nothing depends here, are the same in every value. Every back-off is over
at once, and a renewal never comes due: it is a step of the search.
"""

from __future__ import annotations

from typing import Any

from strandline.core.reign import ReignCore, _Batch, _Question, _Reign
from strandline.core.reign_effects import ReadStore
from strandline.core.reign_events import HandOverAsked

LONG_AGO_MS = -2_500
"""When a question was sent whose answer proves nothing about now."""

_CORE = ("state", "applied", "holder", "_follows", "_key_revision", "_named", "_then_stop")
_LEASE = ("lease_id", "late_at_ms")
_TAKING = ("_broken_token", "_refused_token")
_REIGN = (
    "token", "head", "is_head_read", "has_begun", "is_open", "unsure_since_ms", "proven_ms", "is_full", "hand_over",
)  # fmt: skip

Value = tuple[Any, ...]


def freeze(core: ReignCore) -> tuple[Value, dict[int, int]]:
    """The value of a core, and the number in it of each question."""
    reign = core._reign
    numbers = {number: place for place, number in enumerate(sorted(core._questions), 1)}
    questions = tuple(_question(asked) for _, asked in sorted(core._questions.items()))
    batch = None if reign is None or reign.batch is None else (reign.batch.head, reign.batch.is_doubtful)
    return (
        core.controller_id,
        core.incarnation_id,
        _fields(core, _CORE),
        _fields(core._lease, _LEASE),
        _fields(core._taking, _TAKING),
        None if reign is None else (_fields(reign, _REIGN), batch),
        questions,
    ), numbers


def _question(asked: _Question) -> Value:
    is_read = isinstance(asked.effect, ReadStore)
    known = (asked.sent_ms, asked.applied) if is_read else (0, None)
    return type(asked.effect), _given(asked.effect), *known


def thaw(value: Value) -> ReignCore:
    """A core of this value, at time 0."""
    controller_id, incarnation_id, own, lease, taking, reign, questions = value
    core = ReignCore(controller_id, incarnation_id)
    _set(core, _CORE, own)
    _set(core._lease, _LEASE, lease)
    _set(core._taking, _TAKING, taking)
    # No back-off lasts, and a lease is renewed by a step of its own.
    core._lease._next_ms = core._finish_by_ms = 1
    if reign is not None:
        fields, batch = reign
        core._reign = _Reign(0)
        _set(core._reign, _REIGN, fields)
        if batch is not None:
            core._reign.batch = _Batch(batch[0], is_doubtful=batch[1])
    for number, (kind, given, sent_ms, applied) in enumerate(questions, 1):
        core._questions[number] = _Question(kind(number, *given), sent_ms, 0, applied)
    core._last_question = len(questions)
    return core


def end_certainty(core: ReignCore) -> None:
    """So much time passes that the lease may have ended: whatever was asked until now was asked long ago."""
    core._lease.late_at_ms = 0
    if core._reign is not None:
        core._reign.proven_ms = LONG_AGO_MS
    for number, asked in core._questions.items():
        core._questions[number] = _Question(asked.effect, LONG_AGO_MS, asked.revision, asked.applied)


def _given(effect: Any) -> tuple[Any, ...]:
    return tuple(getattr(effect, name) for name in type(effect).__slots__ if name != "question")


def _fields(of: object, names: tuple[str, ...]) -> tuple[Any, ...]:
    found = (getattr(of, name) for name in names)
    return tuple(
        value is not None and HandOverAsked(0) if name == "hand_over" else value
        for name, value in zip(names, found, strict=True)
    )


def _set(of: object, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    for name, value in zip(names, values, strict=True):
        setattr(of, name, value or None if name == "hand_over" else value)
