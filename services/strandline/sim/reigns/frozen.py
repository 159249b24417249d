"""A `ReignCore` as a value, and back: what the search keeps of a controller between two steps.

Invariant: a core made from a value behaves as the core that the value was made from. Numbers of questions, when they
were asked and what was known then are the same in every value; when a read was asked for is chosen where its answer
comes. Every back-off is over at once, and a renewal never comes due: it is a step of the search.
"""

from __future__ import annotations

from typing import Any

from strandline.core.reigns.events import HandOverAsked, Head
from strandline.core.reigns.reign import ReignCore, _Batch, _Question, _Reign

LONG_AGO_MS = -2_500
"""When a question was sent whose answer proves nothing about now."""

_CORE = ("state", "applied", "holder", "_follows", "_key_revision", "_named", "_then_stop")
_LEASE = ("lease_id", "late_at_ms")
_TAKING = ("_broken_token", "_refused_token")
_REIGN = (
    "token", "head", "is_head_read", "has_begun", "is_open", "unsure_since_ms", "proven_ms", "is_full", "hand_over",
)  # fmt: skip

Value = tuple[Any, ...]
OWN, LEASE = 2, 3
"""Where in a value the core's own fields are, and its lease's."""
KEY_REVISION = _CORE.index("_key_revision")
"""Where among its own fields the revision is at which it saw the key last."""


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
    return type(asked.effect), _given(asked.effect)


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
    for number, (kind, given) in enumerate(questions, 1):
        core._questions[number] = _Question(kind(number, *given), 0, 0, None)
    core._last_question = len(questions)
    return core


def end_certainty(core: ReignCore) -> None:
    """So much time passes that the lease may have ended, and that nothing which was proven proves it now."""
    core._lease.late_at_ms = 0
    if core._reign is not None:
        core._reign.proven_ms = LONG_AGO_MS


def asked_at(core: ReignCore, number: int, sent_ms: int, applied: Head | None) -> None:
    """A read was asked for at ``sent_ms``, when the copy of the state ended at ``applied``."""
    core._questions[number] = _Question(core._questions[number].effect, sent_ms, 0, applied)


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
