"""How much one request may name: partitions, topics, records, settings, all of them together.

Invariant: what a handler is given names at most `MAX_NAMED` things. A message of two-byte entries would otherwise
cost hundreds of times its size, in memory and in time on the one event loop; an answer to so many still fits into a
message.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from google.protobuf.message import Message

from strandline.core.errors import ErrorCode, Outcome, Refusal

MAX_NAMED = 100_000
"""Entries of repeated fields in one request, at all depths; above what a cluster of one controller can have."""

TOO_MUCH = Refusal(
    ErrorCode.INVALID_REQUEST,
    f"the request names more than {MAX_NAMED} partitions, records or other entries; send several smaller ones",
    Outcome.NOT_APPENDED,
)


class _Plan(NamedTuple):
    """Where entries are counted in messages of one type, and in which fields more may lie deeper."""

    counted: tuple[str, ...]
    lists: tuple[str, ...]
    singles: tuple[str, ...]


def names_too_much(message: Message, limit: int = MAX_NAMED) -> bool:
    """Whether the repeated fields of ``message`` have more than ``limit`` entries together."""
    return _counted(message, limit) > limit


def _counted(message: Message, limit: int) -> int:
    """The number of entries, or any number above ``limit``."""
    plan = _plan(message.DESCRIPTOR)
    total = sum(len(getattr(message, name)) for name in plan.counted)
    for name in plan.singles:
        if total <= limit:
            total += _counted(getattr(message, name), limit - total)
    for name in plan.lists:
        for child in getattr(message, name) if total <= limit else ():
            total += _counted(child, limit - total)
            if total > limit:
                break
    return total


@cache
def _plan(kind: Any) -> _Plan:
    repeated = [field for field in kind.fields if field.is_repeated]
    deep = [field for field in kind.fields if _is_deep(field)]
    return _Plan(
        tuple(field.name for field in repeated),
        tuple(field.name for field in deep if field.is_repeated),
        tuple(field.name for field in deep if not field.is_repeated),
    )


def _is_deep(field: Any) -> bool:
    """Whether messages in this field may have repeated fields themselves; no message of ours contains its own type."""
    kind = field.message_type
    if kind is None or kind.GetOptions().map_entry:
        return False
    return any(child.is_repeated or _is_deep(child) for child in kind.fields)
