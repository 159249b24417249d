"""Combines the events of open windows with the state kept of everything before.

Invariant: the same carry and the same events give the same scene, however often and in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline_analytics.stream import control_fold, spans
from strandline_analytics.stream.carry import Carry, Pending
from strandline_analytics.stream.control_fold import ControlState, FoldedRow, Terms
from strandline_analytics.stream.feed import Identity, Story, distinct, identity, is_control
from strandline_analytics.stream.spans import (
    Episode,
    LastLook,
    Leader,
    Reign,
    SampleSpan,
    Series,
    Stall,
    StallKey,
    series_of,
)
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
        """The moments at which something was reported, us."""
        return [
            *(step.held.t for step in self.steps),
            *(look.at for look in self.looks if look.is_new),
            *(story["ts_wall_us"] for story in (*self.advances, *self.others)),
        ]

    @property
    def topics(self) -> set[str]:
        """The names of the topic."""
        return {step.story["topic"] for step in self.steps if "topic" in step.story}

    def extra_copies(self, story: Story) -> int:
        """The number of copies of an event beyond the first."""
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
        """The periods in which the ISR of a leader was below the minimum, us."""
        under = []
        for state in self.states:
            if state.known:
                is_led, isr, _, minimum = state.held.kind
                if is_led and isr < minimum:
                    under.append((state.t0, state.t1))
        return under

    def stalls(self, carry: Carry) -> dict[StallKey, Stall]:
        """Every stall, as far as it has been seen."""
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
        """When a higher HW was first seen, us; None if not yet."""
        place = bisect_right(self._hws, hw)
        return self._times[place] if place < len(self._hws) else None


def build(carry: Carry, texts: Iterable[str]) -> OpenScene:
    """Fold the events onto the kept state.

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
    # A leader's echo has the type of a decision, but decides nothing.
    return not is_control(story) and story["event_type"] not in ("REPLICA_SAMPLE", "HW_ADVANCE")


# ---- leaving
# Determines what to keep after windows were closed: the events that still count, and a carry in place of the others.
#
# Invariant: for open windows, folding the carry and the remaining events gives the same as folding everything.


def leave(
    carry: Carry,
    scene: OpenScene,
    reported: Mapping[StallKey, Episode],
    pending: list[Pending],
    *,
    start_us: int,
    horizon_us: int,
) -> tuple[Carry, list[str]]:
    """The carry for everything before ``start_us``, and the events that are not before it.

    Args:
        reported: the present stalls.
        pending: the closed windows that wait for stalls to end.
    """
    gone = [step for step in scene.steps if step.held.t < start_us]
    looks = [look for look in scene.looks if _is_before(look, start_us)]
    lasts = _last_looks(looks, start_us - horizon_us)
    advances = [story for story in scene.advances if story["ts_wall_us"] < start_us]
    held = gone[-1].held if gone else carry.held
    first = min([start_us, *(one.start_us for one in pending)])
    counting = {key for key, one in reported.items() if not one.is_settled or one.t1 > first}
    stalls = _stalls(carry, looks, lasts, scene.looks, advances, counting)
    # A last look is folded again with its true end, so a stall may still begin at it.
    begun = [look.at for look in lasts.values() if look.is_leader and spans.is_waiting(look)]
    floor = min([first, *begun, *(stall.seen for stall in stalls.values() if stall.seen is not None)])
    under = [span for span in scene.under_min() if held is not None and span[1] <= held.t]
    kept = Carry(
        start_us=start_us,
        held=held,
        # For these two the earliest counts, so remaining events may report them again.
        terms=replace(carry.terms.after(gone), taken_up=scene.terms.taken_up),
        first_looks=scene.first_looks,
        last_looks={series: LastLook(look.at, look.story) for series, look in lasts.items()},
        advances=_last_advances([*carry.advances, *advances], start_us - horizon_us),
        stalls=stalls,
        pending=pending,
        under_min=sorted({span for span in (*carry.under_min, *under) if span[1] > floor}),
    )
    return kept, _rest(scene, start_us)


def _rest(scene: OpenScene, start_us: int) -> list[str]:
    stories = [
        *(step.story for step in scene.steps if step.held.t >= start_us),
        *(look.story for look in scene.looks if look.is_new and not _is_before(look, start_us)),
        *(story for story in (*scene.advances, *scene.others) if story["ts_wall_us"] >= start_us),
    ]
    # All copies stay, because they are counted in their window.
    return [text for story in stories for text in [scene.texts[identity(story)]] * scene.copies[identity(story)]]


def _is_before(look: SampleSpan, start_us: int) -> bool:
    # A look from before its own term counts from the term on.
    return not look.is_new or (look.at < start_us and (look.is_zombie or look.t0 < start_us))


def _last_looks(looks: Iterable[SampleSpan], silent_us: int) -> dict[Series, SampleSpan]:
    lasts: dict[Series, SampleSpan] = {}
    for look in looks:
        series = series_of(look.story)
        if series not in lasts or look.story["seq"] > lasts[series].story["seq"]:
            lasts[series] = look
    # A replica that was silent for the horizon starts again.
    return {series: look for series, look in lasts.items() if max(look.t1, look.at) > silent_us}


def _stalls(
    carry: Carry,
    looks: Iterable[SampleSpan],
    lasts: Mapping[Series, SampleSpan],
    members: Iterable[SampleSpan],
    advances: Iterable[Story],
    counting: Collection[StallKey],
) -> dict[StallKey, Stall]:
    """The stalls without the last looks, which are folded again with their true ends."""
    stalls = carry.copy_of_stalls()
    waiting = {spans.stall_key(look) for look in lasts.values() if look.is_leader and spans.is_waiting(look)}
    for key in waiting:
        stalls.setdefault(key, Stall())
    others = [look for look in looks if lasts.get(series_of(look.story)) is not look]
    spans.take(stalls, others, members, [*carry.advances, *advances])
    return {key: stall for key, stall in stalls.items() if key in waiting or key in counting}


def _last_advances(advances: Iterable[Story], silent_us: int) -> list[Story]:
    lasts: dict[tuple[int, int], Story] = {}
    for story in advances:
        reign = (story["leader_epoch"], story["incarnation"])
        if reign not in lasts or story["new_hw"] >= lasts[reign]["new_hw"]:
            lasts[reign] = story
    return [story for story in lasts.values() if story["last_us"] > silent_us]
