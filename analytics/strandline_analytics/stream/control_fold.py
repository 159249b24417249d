"""The state of a partition from the controller's rows, in their own order, from where the last window ended.

Order is that of partition epochs and of the metadata log; time is corrected along it. A row that was folded never comes
again, so what is kept of all before is one `Held`.

Invariant: times of a fold do not go back, also not from one fold to the next.
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
    """Everything that the rows up to one of them reported. ``order`` is the row's place, ``t`` its corrected time,
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
    # What the reassignment that runs adds; None: none runs.
    adding: tuple[int, ...] | None = None
    # How many holes there were in the partition epochs, and how many when the ISR was reported last.
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
        """Whether there is a leader, |ISR|, RF, effective minimum; only of a state that was reported."""
        assert self.isr is not None and self.replicas is not None and self.min_isr is not None
        rf = len(self.replicas)
        return self.leader not in (None, NO_LEADER), len(self.isr), rf, min(rf, self.min_isr)


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """One row, folded: what it reported, the state from then on, and what was wrong before it."""

    story: Story
    held: Held
    went_back: bool
    lost_before: int


@dataclass(frozen=True, slots=True)
class ControlState:
    """What held from ``t0`` to before ``t1``, us."""

    t0: int
    t1: int
    known: bool
    held: Held


def fold(before: Held | None, stories: Iterable[Story]) -> list[FoldedRow]:
    """The rows of the controller in order; rows whose place lies before ``before`` came too late and are left out."""
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
        # A snapshot reports a state; the transition that made it should have come before it. What is not understood
        # is a transition that was lost, but for its time.
        own = 0 if story["event_type"] == "STATE_SNAPSHOT" or not is_known(story) else 1
        risen = 0 if held is None else max(0, story["partition_epoch"] - held.partition_epoch)
        lost = max(0, changes_between(0, risen) - own)
        t = at if held is None else max(at, held.t)
        held = held_after(held, story, t, lost)
        steps.append(FoldedRow(story, held, at < t, lost))
    return steps


def states(before: Held | None, steps: Sequence[FoldedRow]) -> list[ControlState]:
    """What held when; the last one to the end of its hour, for the next begins with a snapshot that is not there.

    A deleted partition has no state.
    """
    reported = [(before, 0)] if before is not None else []
    # What a row that is not understood has changed is not known from then on, and known before it.
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
    """What is reported from a row on: the state before it (None: it is the first), changed by what the row says.

    ``t`` is its corrected time, us; ``lost``: how many transitions are missing before it.
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
    # What was lost may have been its end.
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

    ``changed``: when the change that began an epoch was reported; ``taken_up``: when its leader said that it had begun.
    """

    starts: dict[int, int]
    deleted_us: int | None = None
    changed: dict[int, int] = field(default_factory=dict)
    taken_up: dict[int, int] = field(default_factory=dict)

    def after(self, steps: Iterable[FoldedRow]) -> Terms:
        """These and what further rows tell."""
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
        """These and what leaders say of their own beginnings."""
        taken_up = dict(self.taken_up)
        for story in stories:
            if story["event_type"] == "EPOCH_START":
                epoch = story["leader_epoch"]
                taken_up[epoch] = min(taken_up.get(epoch, FOREVER_US), story["ts_wall_us"])
        return replace(self, taken_up=taken_up)

    def began(self, epoch: int) -> int | None:
        """When an epoch began, us: its commit; where that was not reported, the EPOCH_START, if it was the first
        sign."""
        reported, taken_up = self.starts.get(epoch), self.taken_up.get(epoch)
        if reported is None or taken_up is None or self.changed.get(epoch) == reported:
            return taken_up if reported is None else reported
        return min(reported, taken_up)

    def of(self, epoch: int | None) -> tuple[int | None, int | None]:
        """Start and end of an epoch; (None, None) for one that the controller did not tell of."""
        if epoch not in self.starts:
            return None, None
        later = [other for other in self.starts if other > epoch]
        end = self.starts[min(later)] if later else self.deleted_us
        return self.starts[epoch], FOREVER_US if end is None else end
