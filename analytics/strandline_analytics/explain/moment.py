"""What was decided about a partition around a moment, and what held then; imports no Spark.

Invariant: what held is what the last decision before says, else what the next one replaced; without either it is not
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import nodes_text, sentence


class Moment(NamedTuple):
    """A partition at a moment: what held, and the decisions on both sides, each in one sentence."""

    held: str
    decisions: tuple[str, ...]
    nearest: Event | None
    """The decision that was nearest in time, the earlier one of two; None: there is none."""


def moment(decisions: Sequence[Event], at_us: int) -> Moment:
    """What held at a moment, us.

    Args:
        decisions: about one partition (`chain.candidates`), in order.
    """
    earlier = [event for event in decisions if event.t_us <= at_us]
    later = [event for event in decisions if event.t_us > at_us]
    isr = _known(earlier, later, "new_isr", "old_isr")
    leader = _known(earlier, later, "new_leader", "old_leader")
    led = "who led is not known" if leader is None else f"node {leader} led" if leader >= 0 else "nobody led"
    stood = "its ISR is not known" if isr is None else f"its ISR was {nodes_text(isr)}"
    around = [(event, "before") for event in earlier[-1:]] + [(event, "later") for event in later[:1]]
    said = []
    for event, side in around:
        # A shrink and a change of leader may be one decision.
        rows = [e for e in decisions if (e.key, e.partition_epoch) == (event.key, event.partition_epoch)]
        said.append(f"{abs(event.t_us - at_us) / 1_000_000:,.1f} s {side}: {'; '.join(map(sentence, rows))}")
    nearest = min((event for event, _ in around), key=lambda event: abs(event.t_us - at_us), default=None)
    return Moment(f"{led}, {stood}", tuple(said), nearest)


def _known(earlier: Sequence[Event], later: Sequence[Event], became: str, was: str) -> Any:
    found = [event.get(became) for event in reversed(earlier)] + [event.get(was) for event in later]
    return next((value for value in found if value is not None), None)
