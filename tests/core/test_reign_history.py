"""Which positions a store knows, and how its history of reigns grows (C34, C35, C39)."""

from __future__ import annotations

import pytest

from strandline.core.control.state import (
    KEPT_REIGNS,
    SENT_REIGNS,
    ReignRecord,
    Reigns,
    Standing,
    begun,
    present,
    sent,
    standing,
    with_changed,
)
from strandline.core.messages import Position, Reign

HEAD = 118


def grown(*first_offsets: int, recovered: bool = False) -> Reigns:
    """Reigns R1, R2, ... that began at these offsets."""
    reigns: Reigns = {}
    for number, first in enumerate(first_offsets, 1):
        reigns = with_changed(reigns, begun(reigns, reign_id=f"R{number}", controller_epoch=number, first_offset=first))
    if recovered:
        ended = {**reigns}
        for reign_id, record in ended.items():
            last = record.last_offset if record.last_offset is not None else HEAD
            ended[reign_id] = ReignRecord(
                reign_id=reign_id,
                controller_epoch=record.controller_epoch,
                first_offset=record.first_offset,
                last_offset=last,
                recovered=True,
            )
        return ended
    return reigns


@pytest.mark.parametrize(
    ("reign_id", "offset", "expected"),
    [
        ("R1", 1, Standing.KNOWN),
        ("R1", 104, Standing.KNOWN),
        ("R2", 105, Standing.KNOWN),
        ("R2", 118, Standing.KNOWN),
        ("R1", 105, Standing.UNKNOWN),
        ("R2", 119, Standing.UNKNOWN),
        ("R2", 104, Standing.UNKNOWN),
        ("R9", 3, Standing.UNKNOWN),
    ],
)
def test_a_position_is_known_in_its_own_reign_only(reign_id: str, offset: int, expected: Standing) -> None:
    """T64: R1 gave 1 to 104, R2 gives 105 to 118; the same offset in another reign is another position."""
    assert standing(grown(1, 105), HEAD, Position(reign_id, offset)) is expected


def test_beyond_the_end_that_a_recovery_learned_of_is_not_unknown() -> None:
    """C39: what a recovery could not know of is no proof that the store forgot anything since."""
    reigns = grown(1, 105, recovered=True)

    assert standing(reigns, 1_000_118, Position("R2", 119)) is Standing.BEYOND_RECOVERY
    assert standing(reigns, 1_000_118, Position("R2", 118)) is Standing.KNOWN
    assert standing(reigns, 1_000_118, Position("R9", 119)) is Standing.BEYOND_RECOVERY


def test_an_unknown_reign_above_a_recovery_is_unknown() -> None:
    """C39: a recovery continues a million offsets above all that was given, so what is above it came after it."""
    reigns = grown(1, 105, recovered=True)
    reigns = with_changed(reigns, begun(reigns, reign_id="R3", controller_epoch=4, first_offset=1_000_119))

    assert standing(reigns, 1_000_130, Position("R9", 1_000_118)) is Standing.BEYOND_RECOVERY
    assert standing(reigns, 1_000_130, Position("R9", 1_000_119)) is Standing.UNKNOWN


def test_a_reign_ends_where_the_next_one_begins() -> None:
    """C34: the last offset of a reign is the one before the first of its successor, which names it."""
    first, second = grown(1, 105).values()

    assert (first.last_offset, second.last_offset) == (104, None)
    assert (first.previous_reign_id, second.previous_reign_id) == ("", "R1")


def test_a_position_below_all_kept_reigns_is_old() -> None:
    """C34: beyond 10,000 reigns the oldest are forgotten; what they gave is old, and no sign of a loss."""
    reigns = grown(*range(1, KEPT_REIGNS + 3))

    assert len(reigns) == KEPT_REIGNS
    assert "R2" not in reigns
    assert standing(reigns, KEPT_REIGNS + 2, Position("R2", 2)) is Standing.OLD
    assert standing(reigns, KEPT_REIGNS + 2, Position("R2", 7)) is Standing.UNKNOWN


def test_a_snapshot_carries_the_latest_reigns_and_a_change_the_present_one() -> None:
    """C38: enough to tell which nodes share a history, however long it is."""
    reigns = grown(*range(1, SENT_REIGNS + 11))

    assert len(sent(reigns)) == SENT_REIGNS
    assert sent(reigns)[-1] == Reign(f"R{SENT_REIGNS + 10}", SENT_REIGNS + 10, SENT_REIGNS + 10, f"R{SENT_REIGNS + 9}")
    assert present(reigns) == sent(reigns)[-1:]
    assert present({}) == ()
