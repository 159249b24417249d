"""Decides whether a position is part of the history that a store holds (C34, C35).

Invariant: two states never share a position. A reign has a random id, and its offsets are given once, so a store that
forgot its end and went on gives other positions for the same offsets, and a
node that knows a forgotten one is recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from strandline.core.messages import Position, Reign

KEPT_REIGNS = 10_000
"""How many reigns a store remembers; a position below the first offset of these is old, not unknown."""

SENT_REIGNS = 64
"""How many of them go with a snapshot, so that a recovery can tell which nodes share a history (C38)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReignRecord:
    """What a store keeps of one reign."""

    reign_id: str
    controller_epoch: int
    first_offset: int
    previous_reign_id: str = ""
    last_offset: int | None = None
    """None while the reign lasts."""
    recovered: bool = False
    """Whether a recovery ended it, from what the given nodes knew: it may have gone on beyond ``last_offset``."""


Reigns = dict[str, ReignRecord]
"""By id, in the order of their first offsets."""


class Standing(Enum):
    """What a store knows of a position."""

    KNOWN = auto()
    OLD = auto()
    """Before everything that is remembered."""
    UNKNOWN = auto()
    """The store never gave it, or forgot it."""
    BEYOND_RECOVERY = auto()
    """After what a recovery could learn of that reign (C39)."""


def standing(reigns: Reigns, head: int, position: Position) -> Standing:
    """What a store whose last offset is ``head`` knows of ``position``."""
    record = reigns.get(position.reign_id)
    if record is None:
        return _of_no_known_reign(reigns, head, position.metadata_offset)
    last = head if record.last_offset is None else record.last_offset
    if record.first_offset <= position.metadata_offset <= last:
        return Standing.KNOWN
    is_beyond = record.recovered and position.metadata_offset > last
    return Standing.BEYOND_RECOVERY if is_beyond else Standing.UNKNOWN


def _of_no_known_reign(reigns: Reigns, head: int, offset: int) -> Standing:
    first = next(iter(reigns.values()), None)
    if len(reigns) >= KEPT_REIGNS and first is not None and offset < first.first_offset:
        return Standing.OLD
    if any(record.recovered for record in reigns.values()):
        # A recovery goes on far above all that was given before it, also by a reign that no given node knew.
        began = next((each.first_offset for each in reigns.values() if not each.recovered), head + 1)
        if offset < began:
            return Standing.BEYOND_RECOVERY
    return Standing.UNKNOWN


def latest(reigns: Reigns) -> ReignRecord | None:
    """The present reign; None before the first."""
    # Every transaction asks, and a store may remember thousands.
    return reigns[next(reversed(reigns))] if reigns else None


def begun(reigns: Reigns, *, reign_id: str, controller_epoch: int, first_offset: int) -> tuple[ReignRecord, ...]:
    """The records that change when a reign begins: the one before it ends, and the new one is there."""
    last = latest(reigns)
    fresh = ReignRecord(
        reign_id=reign_id,
        controller_epoch=controller_epoch,
        first_offset=first_offset,
        previous_reign_id=last.reign_id if last else "",
    )
    if last is None or last.last_offset is not None:
        return (fresh,)
    return (replace(last, last_offset=first_offset - 1), fresh)


def with_changed(reigns: Reigns, changed: tuple[ReignRecord, ...]) -> Reigns:
    """The history after a transaction; beyond `KEPT_REIGNS` the oldest are forgotten."""
    if not changed:
        return reigns
    after = {**reigns, **{record.reign_id: record for record in changed}}
    for reign_id in list(after)[: max(0, len(after) - KEPT_REIGNS)]:
        del after[reign_id]
    return after


def sent(reigns: Reigns) -> tuple[Reign, ...]:
    """The latest reigns as a snapshot carries them, the present one last."""
    return tuple(map(_as_sent, list(reigns.values())[-SENT_REIGNS:]))


def present(reigns: Reigns) -> tuple[Reign, ...]:
    """The present reign alone, as a change carries it; nothing before the first."""
    last = latest(reigns)
    return () if last is None else (_as_sent(last),)


def _as_sent(record: ReignRecord) -> Reign:
    return Reign(record.reign_id, record.controller_epoch, record.first_offset, record.previous_reign_id)
