"""What a gap is: the time without acknowledgements around the loss of a leader, however short it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Acknowledgement(NamedTuple):
    """One record's acknowledgement."""

    sent_s: float
    acked_s: float


def gap_ms(acked: Sequence[Acknowledgement], lost_s: float) -> float:
    """The gap around a loss, once a record that was sent after it is acknowledged."""
    last = max(each.acked_s for each in acked if each.acked_s <= lost_s)
    first = min(each.acked_s for each in acked if each.sent_s > lost_s)
    return 1e3 * (first - last)
