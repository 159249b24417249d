"""What was decided about a partition around a moment, and what held then; imports no Spark.

Invariant: what held is what the last decision before says, else what the next one replaced; without either it is not
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import nodes_text, sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A partition at a moment, us: what held, and the decisions on both sides, each with its rows."""

    at_us: int
    held: str
    before: tuple[Event, ...]
    after: tuple[Event, ...]

    @property
    def nearest(self) -> Event | None:
        """The decision that was nearest in time, the earlier one of two; None: there is none."""
        near = [*self.before[:1], *self.after[:1]]
        return min(near, key=lambda event: abs(event.t_us - self.at_us), default=None)

    @property
    def sentences(self) -> list[str]:
        """Both decisions, with how far away they are."""
        sides = ((self.before, "before"), (self.after, "later"))
        return [
            f"{abs(rows[0].t_us - self.at_us) / 1_000_000:,.1f} s {side}: {'; '.join(map(sentence, rows))}"
            for rows, side in sides
            if rows
        ]


def moment(decisions: Sequence[Event], at_us: int) -> Moment:
    """What held at a moment.

    Args:
        decisions: about one partition (`chain.candidates`), in order.
    """
    earlier = [event for event in decisions if event.t_us <= at_us]
    later = [event for event in decisions if event.t_us > at_us]
    isr = _known(earlier, later, "new_isr", "old_isr")
    leader = _known(earlier, later, "new_leader", "old_leader")
    led = "who led is not known" if leader is None else f"node {leader} led" if leader >= 0 else "nobody led"
    stood = "its ISR is not known" if isr is None else f"its ISR was {nodes_text(isr)}"
    return Moment(
        at_us=at_us,
        held=f"{led}, {stood}",
        before=_rows(earlier, earlier[-1:]),
        after=_rows(later, later[:1]),
    )


def _known(earlier: Sequence[Event], later: Sequence[Event], became: str, was: str) -> Any:
    found = [event.get(became) for event in reversed(earlier)] + [event.get(was) for event in later]
    return next((value for value in found if value is not None), None)


def _rows(decisions: Sequence[Event], of: Sequence[Event]) -> tuple[Event, ...]:
    """All rows of one decision: a shrink and a change of leader may be one."""
    return tuple(e for e in decisions for one in of if (e.key, e.partition_epoch) == (one.key, one.partition_epoch))
