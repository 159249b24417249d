"""Derives the state of a partition from the controller's rows, in their own order, from the end of the last window.

Rows are in the order of partition epochs and of the metadata log; time is corrected along it. A row that was folded
never comes again, so one `Held` is all that is kept of earlier rows.

Invariant: times do not go back, neither within a fold nor from one fold to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.core.control.state import changes_between
from strandline.export.schema import NO_LEADER
from strandline_analytics.scope import FOREVER_US, HOUR_US
from strandline_analytics.silver.control import AT_ONCE
from strandline_analytics.stream.feed import Story, is_control, is_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Everything that the rows up to some row reported. ``order`` is the place of that row, ``t`` its corrected time,
    us."""

    t: int
    order: tuple[int, int, int, int]
    leader_epoch: int | None = None
    leader: int | None = None
    reported_at: int | None = None
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    min_isr: int | None = None
    is_deleted: bool = False
    # The replicas that a running reassignment adds; None if none is running.
    adding: tuple[int, ...] | None = None
    # The number of holes in the partition epochs so far, and their number when the ISR was last reported.
    holes: int = 0
    isr_reported_at: int | None = None

    @property
    def partition_epoch(self) -> int:
        """The partition epoch of the row."""
        return self.order[0]

    @property
    def is_reported(self) -> bool:
        """Whether every part of the state was reported: the leader in this epoch, the ISR since the last hole."""
        reported = (
            self.leader_epoch is not None
            and self.leader_epoch == self.reported_at
            and self.isr_reported_at == self.holes
        )
        return reported and None not in (self.isr, self.replicas, self.min_isr)

    @property
    def kind(self) -> tuple[bool, int, int, int]:
        """Whether there is a leader, |ISR|, RF, effective minimum; only for a state that was reported."""
        assert self.isr is not None and self.replicas is not None and self.min_isr is not None
        rf = len(self.replicas)
        return self.leader not in (None, NO_LEADER), len(self.isr), rf, min(rf, self.min_isr)


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """One folded row: its story, the state from then on, and the flaws before it."""

    story: Story
    held: Held
    went_back: bool
    lost_before: int


@dataclass(frozen=True, slots=True)
class ControlState:
    """A state that held from ``t0`` until before ``t1``, us."""

    t0: int
    t1: int
    known: bool
    held: Held


def fold(before: Held | None, stories: Iterable[Story]) -> list[FoldedRow]:
    """The rows of the controller in order; rows whose place is before ``before`` came too late and are left out."""
    rows = [story for story in stories if is_control(story)]
    rows.sort(key=_order)
    times: dict[int, int] = {}
    for story in rows:
        if story["event_type"] in AT_ONCE:
            epoch = story["partition_epoch"]
            times[epoch] = min(times.get(epoch, FOREVER_US), story["ts_wall_us"])
    steps: list[FoldedRow] = []
    held = before
    for story in rows:
        if before is not None and _order(story) <= before.order:
            continue
        decides = story["event_type"] in AT_ONCE
        at = times[story["partition_epoch"]] if decides else story["ts_wall_us"]
        # A snapshot reports a state; the transition that made it should have come before it. A row of an unknown
        # type is a transition of which only the time is known.
        own = 0 if story["event_type"] == "STATE_SNAPSHOT" or not is_known(story) else 1
        risen = 0 if held is None else max(0, story["partition_epoch"] - held.partition_epoch)
        lost = max(0, changes_between(0, risen) - own)
        t = at if held is None else max(at, held.t)
        held = held_after(held, story, t, lost)
        steps.append(FoldedRow(story, held, at < t, lost))
    return steps


def states(before: Held | None, steps: Sequence[FoldedRow]) -> list[ControlState]:
    """The states in order; the last one holds to the end of its hour, because the snapshot of the next one is missing.

    A deleted partition has no state.
    """
    reported = [(before, 0)] if before is not None else []
    # The parts of the state that a row of an unknown type changed are unknown from it on, but known before it.
    reported += [
        (step.held, step.lost_before - (0 if is_known(step.story) else min(1, step.lost_before))) for step in steps
    ]
    found = []
    for index, (held, _) in enumerate(reported):
        following = reported[index + 1] if index + 1 < len(reported) else None
        t1 = following[0].t if following else (held.t // HOUR_US + 1) * HOUR_US
        is_whole = following is None or following[1] == 0
        if t1 > held.t and not held.is_deleted:
            found.append(ControlState(held.t, t1, is_whole and held.is_reported, held))
    return found


def _order(story: Story) -> tuple[int, int, int, int]:
    return (story["partition_epoch"], story.get("meta_offset", -1), story["ts_wall_us"], story["seq"])


def held_after(held: Held | None, story: Story, t: int, lost: int) -> Held:
    """The state from a row on: the one before it (None for the first row), changed by the row.

    ``t`` is the row's corrected time, us; ``lost`` is the number of transitions missing before it.
    """
    holes = (0 if held is None else held.holes) + (lost > 0)
    news: dict[str, Any] = {"t": t, "order": _order(story), "holes": holes}
    if "leader_epoch" in story:
        news["leader_epoch"] = story["leader_epoch"]
    if not is_known(story):
        news["adding"] = None if held is None or lost else held.adding
        return replace(held, **news) if held is not None else Held(**news)
    if "new_leader" in story:
        news["leader"] = story["new_leader"]
        if "leader_epoch" in story:
            news["reported_at"] = story["leader_epoch"]
    if "new_isr" in story:
        news["isr"] = tuple(story["new_isr"])
        news["isr_reported_at"] = holes
    # A lost transition may have been its end.
    adding = None if held is None or lost else held.adding
    original = story.get("original_replicas", ())
    if story["event_type"] == "REASSIGNMENT" and story.get("phase") != "queued":
        adding = tuple(story.get("adding_replicas", ())) if story.get("phase") == "started" else None
    elif story["event_type"] == "STATE_SNAPSHOT" and original:
        adding = tuple(story.get("adding_replicas", ()))
    news["adding"] = adding
    if "replicas" in story and (adding is None or original):
        news["replicas"] = tuple(story["replicas"] if adding is None else original)
    if "min_isr" in story:
        news["min_isr"] = story["min_isr"]
    if "topic_deleted" in story:
        news["is_deleted"] = story["topic_deleted"]
    return replace(held, **news) if held is not None else Held(**news)


@dataclass(frozen=True, slots=True)
class Terms:
    """When each leader epoch began by the controller, and when the topic was deleted, us.

    ``changed``: when the change that began an epoch was reported; ``taken_up``: when its leader reported its start.
    """

    starts: dict[int, int]
    deleted_us: int | None = None
    changed: dict[int, int] = field(default_factory=dict)
    taken_up: dict[int, int] = field(default_factory=dict)

    def after(self, steps: Iterable[FoldedRow]) -> Terms:
        """The terms, extended by further rows."""
        starts, deleted, changed = dict(self.starts), self.deleted_us, dict(self.changed)
        for step in steps:
            epoch = step.story.get("leader_epoch")
            if step.story.get("topic_deleted"):
                deleted = step.held.t if deleted is None else min(deleted, step.held.t)
            elif epoch is not None:
                starts[epoch] = min(starts.get(epoch, FOREVER_US), step.held.t)
                if step.story["event_type"] == "LEADER_CHANGE":
                    changed[epoch] = min(changed.get(epoch, FOREVER_US), step.held.t)
        return Terms(starts, deleted, changed, self.taken_up)

    def with_starts_of(self, stories: Iterable[Story]) -> Terms:
        """The terms, extended by the starts that leaders reported."""
        taken_up = dict(self.taken_up)
        for story in stories:
            if story["event_type"] == "EPOCH_START":
                epoch = story["leader_epoch"]
                taken_up[epoch] = min(taken_up.get(epoch, FOREVER_US), story["ts_wall_us"])
        return replace(self, taken_up=taken_up)

    def began(self, epoch: int) -> int | None:
        """When an epoch began, us: its commit; if that was not reported, the EPOCH_START, if it was the first
        sign."""
        reported, taken_up = self.starts.get(epoch), self.taken_up.get(epoch)
        if reported is None or taken_up is None or self.changed.get(epoch) == reported:
            return taken_up if reported is None else reported
        return min(reported, taken_up)

    def of(self, epoch: int | None) -> tuple[int | None, int | None]:
        """Start and end of an epoch; (None, None) for one that the controller did not report."""
        if epoch not in self.starts:
            return None, None
        later = [other for other in self.starts if other > epoch]
        end = self.starts[min(later)] if later else self.deleted_us
        return self.starts[epoch], FOREVER_US if end is None else end
