"""Which stalls of the high watermark there are, and whether all is known of each.

A stall is defined by one HW of one leader: from when records above it were first seen, or from the advance to it, until
the advance from it, the end of the epoch, or the end of what is known. The replica that blocked it is known from its
last look, so a window that a stall reaches is not settled before the stall is.

Invariant: a stall that is settled does not change any more, whatever comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strandline_analytics.stream.control_fold import Terms
from strandline_analytics.stream.look_fold import Look
from strandline_analytics.stream.stories import Story

STALL_US = 1_000_000
_COALESCED_US = 1_000_000
"""An advance is reported at most this long after it happened."""

Reign = tuple[int, int]
"""Leader epoch and incarnation of the leader."""

StallKey = tuple[int, int, int]
"""Leader epoch, incarnation, HW."""


@dataclass(slots=True)
class Stall:
    """What was seen of one HW. Times in us; None: nothing was."""

    seen: int | None = None
    held: int | None = None
    came: int | None = None
    went: int | None = None
    # The last look at it: its time, its number, who stood at the HW.
    last_at: int | None = None
    last_look: int | None = None
    blockers: list[int] = field(default_factory=list)

    def see(self, look: Look, blockers: list[int]) -> None:
        """Take a look of the leader with records above the HW."""
        self.seen = look.t0 if self.seen is None else min(self.seen, look.t0)
        self.held = look.t1 if self.held is None else max(self.held, look.t1)
        if self.last_at is None or look.t0 >= self.last_at:
            self.last_at, self.last_look, self.blockers = look.t0, look.story.get("sample_id"), blockers


@dataclass(frozen=True, slots=True)
class Episode:
    """A stall as an interval; ``is_settled``: it is known to its end."""

    t0: int
    t1: int
    ended_by: str
    blockers: tuple[int, ...]
    is_settled: bool


def take(
    stalls: dict[StallKey, Stall], looks: Iterable[Look], members: Iterable[Look], advances: Iterable[Story]
) -> None:
    """Add what looks of leaders and advances tell; taking a thing twice changes nothing.

    Args:
        members: looks that may say who stood at the HW, those of ``looks`` among them.
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
    """The stall as far as it is known; None if it is none.

    Args:
        passed_us: when a higher HW of the same reign was first seen; None: not yet.
        watermark: up to where everything has come, us.
        horizon: how long a silent leader may speak again, us.
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


def is_waiting(look: Look) -> bool:
    """Whether there were records above the HW."""
    return bool(look.story["leader_leo"] > look.story["hw"])


def stall_key(look: Look) -> StallKey:
    """The HW that the look is about."""
    return (look.story["leader_epoch"], look.story["incarnation"], look.story["hw"])
