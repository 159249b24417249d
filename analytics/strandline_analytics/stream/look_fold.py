"""For how long each look of a leader is believed, from where the last window ended.

A look holds to the next one of the same leader, three times the silence that it declared, the end of its term or the
first sign of a later leader, whichever comes first. What is kept of all before is the last look of every series, for
its end is not known yet.

Times are those of the leader's own clock. The controller's measurements name no partition and do not reach a stream's
state, so where a clock is off, the batch, which corrects it, is right.

Invariant: times of a series do not go back, also not from one fold to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline_analytics.stream.control_fold import Terms
from strandline_analytics.stream.stories import Story

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
class Look:
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
        """Whether figures use it."""
        return not self.is_zombie and self.t1 > self.t0

    @property
    def went_back(self) -> bool:
        """Whether its clock said an earlier time than the look before."""
        return bool(self.story["ts_wall_us"] < self.at)


def series_of(story: Story) -> Series:
    """Whose look at whom it is."""
    return (story["replica_id"], story["leader_epoch"], story["node_id"], story["incarnation"])


def first_looks(before: Mapping[Leader, int], stories: Iterable[Story]) -> dict[Leader, int]:
    """When each leader looked first, us."""
    firsts = dict(before)
    for story in stories:
        if story["event_type"] == "REPLICA_SAMPLE":
            leader = series_of(story)[1:]
            firsts[leader] = min(firsts.get(leader, story["ts_wall_us"]), story["ts_wall_us"])
    return firsts


def successions(firsts: Mapping[Leader, int], terms: Terms) -> dict[Leader, int]:
    """When each leader was succeeded, us: the first look or EPOCH_START of a later one; who was not is absent."""
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
) -> list[Look]:
    """All looks, those of ``before`` first, each with its end as far as it is known."""
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


def _fold_series(last: LastLook | None, stories: list[Story], start: int | None, end: int | None) -> list[Look]:
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
        looks.append(Look(story, at, t0, min(borders), is_zombie, index + 1 == len(reported), is_new))
    return looks
