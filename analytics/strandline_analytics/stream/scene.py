"""What the events of open windows and what was kept of all before tell together.

Invariant: a scene is made again from the same carry and the same events, however often and in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline_analytics.stream import control_fold, spans
from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.control_fold import ControlState, FoldedRow, Terms
from strandline_analytics.stream.feed import Identity, Story, distinct, identity, is_control
from strandline_analytics.stream.spans import Leader, Reign, SampleSpan, Stall, StallKey
from strandline_analytics.timeline.causes import MOVED


@dataclass(frozen=True, slots=True)
class Transition:
    """A committed change of an ISR at ``t``, us: who went, who came; without those that a move takes away or adds."""

    t: int
    left: tuple[int, ...]
    came: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenScene:
    """The partition over the open windows. ``others`` are events that are only counted."""

    texts: dict[Identity, str]
    copies: Counter[Identity]
    steps: Sequence[FoldedRow]
    states: Sequence[ControlState]
    terms: Terms
    first_looks: dict[Leader, int]
    looks: Sequence[SampleSpan]
    advances: Sequence[Story]
    others: Sequence[Story]

    @property
    def times(self) -> list[int]:
        """When something was reported, us."""
        return [
            *(step.held.t for step in self.steps),
            *(look.at for look in self.looks if look.is_new),
            *(story["ts_wall_us"] for story in (*self.advances, *self.others)),
        ]

    @property
    def topics(self) -> set[str]:
        """What the topic is called."""
        return {step.story["topic"] for step in self.steps if "topic" in step.story}

    def extra_copies(self, story: Story) -> int:
        """How many more copies of an event came than one."""
        return max(0, self.copies[identity(story)] - 1)

    def transitions(self) -> list[Transition]:
        """Changes of the ISR in order; two rows of one partition epoch are one change."""
        found: dict[int, Transition] = {}
        for step in self.steps:
            story = step.story
            if story["event_type"] == "ISR_CHANGE" and story["partition_epoch"] not in found:
                old, new = story.get("old_isr", ()), story.get("new_isr", ())
                left = () if story.get("cause") == MOVED else tuple(r for r in old if r not in new)
                came = tuple(r for r in new if r not in (*old, *(step.held.adding or ())))
                found[story["partition_epoch"]] = Transition(step.held.t, left, came)
        return list(found.values())

    def under_min(self) -> list[tuple[int, int]]:
        """When the ISR of a leader was below the minimum, us."""
        under = []
        for state in self.states:
            if state.known:
                is_led, isr, _, minimum = state.held.kind
                if is_led and isr < minimum:
                    under.append((state.t0, state.t1))
        return under

    def stalls(self, carry: Carry) -> dict[StallKey, Stall]:
        """Every stall as far as it was seen."""
        stalls = carry.copy_of_stalls()
        spans.take(stalls, self.looks, self.looks, [*carry.advances, *self.advances])
        return stalls

    def seen_beyond(self) -> dict[Reign, Beyond]:
        """When the HW of each reign was seen above a value."""
        hws: dict[Reign, dict[int, int]] = {}
        for look in self.looks:
            if look.is_believed and look.is_leader:
                seen = hws.setdefault((look.story["leader_epoch"], look.story["incarnation"]), {})
                seen[look.story["hw"]] = min(seen.get(look.story["hw"], look.t0), look.t0)
        return {reign: Beyond(sorted(seen.items())) for reign, seen in hws.items()}


class Beyond:
    """HWs of one reign with the times at which they were first seen."""

    def __init__(self, seen: list[tuple[int, int]]) -> None:
        self._hws = [hw for hw, _ in seen]
        self._times = [t for _, t in seen]

    def after(self, hw: int) -> int | None:
        """When a higher HW was first seen, us; None: not yet."""
        place = bisect_right(self._hws, hw)
        return self._times[place] if place < len(self._hws) else None


def build(carry: Carry, texts: Iterable[str]) -> OpenScene:
    """Fold the events onto what was kept.

    Raises:
        ConflictingEvents: one event id has two contents.
    """
    stories, kept, copies = distinct(texts)
    steps = control_fold.fold(carry.held, stories.values())
    terms = carry.terms.after(steps).with_starts_of(stories.values())
    firsts = spans.first_looks(carry.first_looks, stories.values())
    succeeded = spans.successions(firsts, terms)
    return OpenScene(
        texts=kept,
        copies=copies,
        steps=steps,
        states=control_fold.states(carry.held, steps),
        terms=terms,
        first_looks=firsts,
        looks=spans.fold(carry.last_looks, stories.values(), terms, succeeded),
        advances=[story for story in stories.values() if story["event_type"] == "HW_ADVANCE"],
        others=[story for story in stories.values() if _is_other(story)],
    )


def _is_other(story: Story) -> bool:
    # An echo of a leader has the type of a decision, and decides nothing.
    return not is_control(story) and story["event_type"] not in ("REPLICA_SAMPLE", "HW_ADVANCE")
