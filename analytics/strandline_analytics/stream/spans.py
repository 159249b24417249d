"""Determines how long each look of a leader is valid, from the end of the last window.

A look holds to the next one of the same leader, three times the silence that it declared, the end of its term or the
first sign of a later leader, whichever comes first. Of earlier looks only the last one of every series is kept,
because its end is not known yet.

Times are those of the leader's own clock. The controller's measurements name no partition and do not reach a stream's
state, so if a clock is off, the batch, which corrects it, is right.

Invariant: times of a series do not go back, neither within a fold nor from one fold to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from strandline_analytics.stream.control_fold import Terms
from strandline_analytics.stream.feed import Story

HOLD_INTERVALS = 3

Series = tuple[int, int, int, int]
"""Replica, leader epoch, leader, incarnation."""


Leader = tuple[int, int, int]
"""Leader epoch, leader, incarnation."""


@dataclass(frozen=True, slots=True)
class LastLook:
    """The last look of a series, with its corrected time, us."""

    at: int
    story: Story


@dataclass(frozen=True, slots=True)
class SampleSpan:
    """A look that counts from ``t0`` to before ``t1``, us; ``at`` is when it was taken."""

    story: Story
    at: int
    t0: int
    t1: int
    is_zombie: bool
    is_last: bool
    is_new: bool

    @property
    def is_leader(self) -> bool:
        """Whether it is the leader's look at itself, which represents the whole look."""
        return bool(self.story["replica_id"] == self.story["node_id"])

    @property
    def is_believed(self) -> bool:
        """Whether figures use the look."""
        return not self.is_zombie and self.t1 > self.t0

    @property
    def went_back(self) -> bool:
        """Whether its clock showed an earlier time than at the look before."""
        return bool(self.story["ts_wall_us"] < self.at)


def series_of(story: Story) -> Series:
    """The series of a look: its leader and the replica."""
    return (story["replica_id"], story["leader_epoch"], story["node_id"], story["incarnation"])


def first_looks(before: Mapping[Leader, int], stories: Iterable[Story]) -> dict[Leader, int]:
    """The time of each leader's first look, us."""
    firsts = dict(before)
    for story in stories:
        if story["event_type"] == "REPLICA_SAMPLE":
            leader = series_of(story)[1:]
            firsts[leader] = min(firsts.get(leader, story["ts_wall_us"]), story["ts_wall_us"])
    return firsts


def successions(firsts: Mapping[Leader, int], terms: Terms) -> dict[Leader, int]:
    """When each leader was succeeded, us: the first look or EPOCH_START of a later one; absent if it was not."""
    began = {epoch: terms.began(epoch) for epoch in {leader[0] for leader in firsts} | set(terms.taken_up)}

    def sign(epoch: int, at: int) -> int:
        start = began[epoch]
        return at if start is None else max(at, start)

    looked = {leader: (sign(leader[0], at), leader[2], leader[1]) for leader, at in firsts.items()}
    started = {epoch: sign(epoch, at) for epoch, at in terms.taken_up.items()}
    found = {}
    for leader in firsts:
        later = [own[0] for other, own in looked.items() if (other[0], own) > (leader[0], looked[leader])] + [
            at for epoch, at in started.items() if epoch > leader[0]
        ]
        if later:
            found[leader] = min(later)
    return found


def fold(
    before: dict[Series, LastLook], stories: Iterable[Story], terms: Terms, succeeded: Mapping[Leader, int]
) -> list[SampleSpan]:
    """All looks, those of ``before`` first, each with its end as far as that is known."""
    rows: dict[Series, list[Story]] = {series: [] for series in before}
    for story in stories:
        if story["event_type"] == "REPLICA_SAMPLE":
            rows.setdefault(series_of(story), []).append(story)
    looks = []
    for series, own in rows.items():
        _, term_end = terms.of(series[1])
        ends = [end for end in (term_end, succeeded.get(series[1:])) if end is not None]
        looks += _fold_series(before.get(series), own, terms.began(series[1]), min(ends, default=None))
    return looks


def _fold_series(last: LastLook | None, stories: list[Story], start: int | None, end: int | None) -> list[SampleSpan]:
    stories.sort(key=lambda story: int(story["seq"]))
    reported = [(last.at, last.story, False)] if last is not None else []
    for story in stories:
        if last is not None and story["seq"] <= last.story["seq"]:
            continue
        at = max(story["ts_wall_us"], reported[-1][0]) if reported else story["ts_wall_us"]
        reported.append((at, story, True))
    looks = []
    for index, (at, story, is_new) in enumerate(reported):
        borders = [at + story["interval_ms"] * HOLD_INTERVALS * 1_000]
        if index + 1 < len(reported):
            borders.append(max(reported[index + 1][1]["ts_wall_us"], at))
        if end is not None:
            borders.append(end)
        t0 = at if start is None else max(at, start)
        is_zombie = end is not None and at >= end
        looks.append(SampleSpan(story, at, t0, min(borders), is_zombie, index + 1 == len(reported), is_new))
    return looks


# ---- stall_fold
# Finds the stalls of the high watermark, and whether each is completely known.
#
# A stall is defined by one HW of one leader: from the moment records above it were first seen, or the advance to it,
# until the advance from it, the end of the epoch, or the end of known time. The replica that blocked it is known from
# its last look, so a window that a stall reaches is not settled before the stall is.
#
# Invariant: a settled stall no longer changes, whatever comes.

STALL_US = 1_000_000
_COALESCED_US = 1_000_000
"""The maximum time between an advance and its report."""

Reign = tuple[int, int]
"""Leader epoch and incarnation of the leader."""

StallKey = tuple[int, int, int]
"""Leader epoch, incarnation, HW."""


@dataclass(slots=True)
class Stall:
    """The observations of one HW. Times in us; None if there was none."""

    seen: int | None = None
    held: int | None = None
    came: int | None = None
    went: int | None = None
    # The last look at it: its time, its number, and the replicas at the HW.
    last_at: int | None = None
    last_look: int | None = None
    blockers: list[int] = field(default_factory=list)

    def see(self, look: SampleSpan, blockers: list[int]) -> None:
        """Add a look of the leader with records above the HW."""
        self.seen = look.t0 if self.seen is None else min(self.seen, look.t0)
        self.held = look.t1 if self.held is None else max(self.held, look.t1)
        if self.last_at is None or look.t0 >= self.last_at:
            self.last_at, self.last_look, self.blockers = look.t0, look.story.get("sample_id"), blockers


@dataclass(frozen=True, slots=True)
class Episode:
    """A stall as an interval; ``is_settled`` if it is known to its end."""

    t0: int
    t1: int
    ended_by: str
    blockers: tuple[int, ...]
    is_settled: bool


def take(
    stalls: dict[StallKey, Stall], looks: Iterable[SampleSpan], members: Iterable[SampleSpan], advances: Iterable[Story]
) -> None:
    """Add looks of leaders and advances; adding one twice changes nothing.

    Args:
        members: looks that may show the replicas at the HW, including those of ``looks``.
    """
    at_the_hw: dict[tuple[StallKey, int | None], set[int]] = {}
    for look in members:
        story = look.story
        if look.is_believed and is_waiting(look) and _is_at_the_hw(story):
            at_the_hw.setdefault((stall_key(look), story.get("sample_id")), set()).add(story["replica_id"])
    for look in looks:
        if look.is_believed and look.is_leader and is_waiting(look):
            blockers = sorted(at_the_hw.get((stall_key(look), look.story.get("sample_id")), ()))
            stalls.setdefault(stall_key(look), Stall()).see(look, blockers)
    for story in advances:
        epoch, incarnation = story["leader_epoch"], story["incarnation"]
        into = stalls.get((epoch, incarnation, story["new_hw"]))
        if into is not None:
            into.came = story["last_us"] if into.came is None else max(into.came, story["last_us"])
        outof = stalls.get((epoch, incarnation, story["old_hw"]))
        if outof is not None:
            outof.went = story["first_us"] if outof.went is None else min(outof.went, story["first_us"])


def episode(
    key: StallKey, stall: Stall, terms: Terms, passed_us: int | None, watermark: int, horizon: int
) -> Episode | None:
    """The stall as far as it is known; None if it is not a stall.

    Args:
        passed_us: when a higher HW of the same reign was first seen; None if not yet.
        watermark: the moment up to which all events have come, us.
        horizon: how long a silent leader may still report again, us.
    """
    if stall.seen is None or stall.held is None:
        return None
    _, term_end = terms.of(key[0])
    ends = [stall.held if stall.went is None else stall.went]
    if term_end is not None:
        ends.append(term_end)
    t0 = stall.seen if stall.came is None else max(stall.seen, stall.came)
    t1 = min(ends)
    is_over = term_end is not None and term_end <= watermark
    is_past = passed_us is not None and passed_us + _COALESCED_US <= watermark
    is_silent = stall.held + horizon <= watermark
    is_settled = is_over or stall.went is not None or is_past or is_silent
    if is_settled and t1 - t0 < STALL_US:
        return None
    return Episode(t0, t1, _ended_by(stall, term_end), tuple(stall.blockers), is_settled)


def _ended_by(stall: Stall, term_end: int | None) -> str:
    if stall.went is None:
        assert stall.held is not None
        return "unknown" if term_end is None or stall.held < term_end else "epoch_end"
    return "epoch_end" if term_end is not None and term_end <= stall.went else "advance"


def _is_at_the_hw(story: Story) -> bool:
    return bool(story.get("in_maximal_isr")) and story.get("durable_leo") == story["hw"]


def is_waiting(look: SampleSpan) -> bool:
    """Whether there were records above the HW."""
    return bool(look.story["leader_leo"] > look.story["hw"])


def stall_key(look: SampleSpan) -> StallKey:
    """The key of the HW that the look observed."""
    return (look.story["leader_epoch"], look.story["incarnation"], look.story["hw"])
