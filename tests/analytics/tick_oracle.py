"""The statistics of one partition by the simplest means: time passes tick by tick, and every tick goes into a bucket.

It has no concept in common with the Spark code: no intervals, no joins, no windows. It has a queue of events, in the
order in which they were decided; a state; counters. One tick is `TICK_US` microseconds; everything happens on a tick.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

TICK_US = 50_000
HOUR_TICKS = 3_600_000_000 // TICK_US
FLAP_TICKS = 600_000_000 // TICK_US


@dataclass
class _Stay:
    """A replica outside of the ISR."""

    seen_leaving: bool
    before_window: bool
    ticks: int = 0
    in_window: int = 0


@dataclass
class Buckets:
    """The counts in the window, in ticks and events."""

    known: int = 0
    states: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    lags: list[int] = field(default_factory=list)
    at_risk: list[int] = field(default_factory=list)
    follower_lags: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    activation: int = 0
    out: Counter[int] = field(default_factory=Counter)
    rejoins: dict[int, list[int]] = field(default_factory=dict)
    censored: Counter[int] = field(default_factory=Counter)
    removals: Counter[int] = field(default_factory=Counter)
    flaps: Counter[int] = field(default_factory=Counter)
    zombies: int = 0


class Oracle:
    """One partition. ``control`` is in the order of decisions, ``looks`` and ``starts`` in the order of time."""

    def __init__(self, control: list[Any], looks: list[Any], starts: list[Any], ticks: int) -> None:
        self.queue, self.looks, self.starts = list(control), list(looks), list(starts)
        self.last_tick = ticks
        self.buckets = Buckets()
        self.now = 0
        self.hour_ends = 0
        self.leader: int | None = None
        self.epoch = -1
        self.isr: set[int] = set()
        self.replicas: list[int] = []
        self.min_isr = 0
        self.known = False
        self.isr_reported = False
        self.started: set[int] = set()
        self.look: Any = None
        self.waits_for: int | None = None
        self.stays: dict[int, _Stay] = {}
        self.was_in: set[int] = set()
        self.came: dict[int, int] = {}
        self.went: dict[int, int] = {}

    def run(self, first_tick: int) -> Buckets:
        """Advance time from ``first_tick`` to the end of the window, which begins at tick 0."""
        for now in range(first_tick, self.last_tick):
            self.now = now
            while self.queue and self.queue[0].tick <= self.now:
                self._decided(self.queue.pop(0))
            while self.starts and self.starts[0].tick <= self.now:
                self._started(self.starts.pop(0).epoch)
            while self.looks and self.looks[0].tick <= self.now:
                self._looked(self.looks.pop(0))
            self._tick()
        for replica, stay in self.stays.items():
            self._ended(replica, stay, rejoined=False)
        return self.buckets

    @property
    def _in_window(self) -> bool:
        return self.now >= 0

    def _decided(self, event: Any) -> None:
        if event.old_isr is not None and self._in_window:
            gone, new = set(event.old_isr) - set(event.isr), set(event.isr) - set(event.old_isr)
            self.buckets.changes += Counter(
                shrinks=int(bool(gone)), expands=int(bool(new)), removals=len(gone), adds=len(new)
            )
        if event.old_isr is not None:
            self._moved(set(event.old_isr) - set(event.isr), set(event.isr) - set(event.old_isr))
        if event.epoch != self.epoch:
            self.epoch, self.look = event.epoch, None
            waits = event.is_change and event.leader is not None and event.epoch not in self.started
            self.waits_for = event.epoch if waits else None
        self.leader, self.isr = event.leader, set(event.isr)
        self.hour_ends = (self.now // HOUR_TICKS + 1) * HOUR_TICKS
        self.replicas, self.min_isr = event.replicas, event.min_isr
        tells_isr = event.is_snapshot or event.old_isr is not None
        self.isr_reported = tells_isr or (self.isr_reported and not event.lost_before)
        self.known = self.isr_reported and not (self.queue and self.queue[0].lost_before)
        self._place_replicas()

    def _started(self, epoch: int) -> None:
        self.started.add(epoch)
        if epoch == self.waits_for:
            self.waits_for = None

    def _moved(self, gone: set[int], new: set[int]) -> None:
        """Flaps: each replica's changes, and the time of its last one."""
        for replica in gone:
            if self._in_window:
                self.buckets.removals[replica] += 1
                self.buckets.flaps[replica] += replica in self.came and self.now - self.came[replica] <= FLAP_TICKS
            self.went[replica] = self.now
        for replica in new:
            self.came[replica] = self.now

    def _place_replicas(self) -> None:
        inside = self.isr if self.known else set()
        for replica in list(self.stays):
            # A return that was read is one, whatever was lost behind it.
            if not self.known or replica in self.isr:
                self._ended(replica, self.stays.pop(replica), rejoined=self.isr_reported and replica in self.isr)
        if self.known:
            for replica in set(self.replicas) - self.isr - set(self.stays):
                self.stays[replica] = _Stay(replica in self.was_in, before_window=self.now < 0)
        self.was_in = set(inside)

    def _ended(self, replica: int, stay: _Stay, *, rejoined: bool) -> None:
        if stay.in_window == 0:
            return
        self.buckets.out[replica] += stay.in_window
        if rejoined and stay.seen_leaving and not stay.before_window:
            self.buckets.rejoins.setdefault(replica, []).append(stay.ticks)
        else:
            self.buckets.censored[replica] += 1

    def _looked(self, look: Any) -> None:
        if look.epoch < self.epoch:
            self.buckets.zombies += self._in_window
            return
        self.look = look

    def _tick(self) -> None:
        if not self.queue and self.now >= self.hour_ends:
            # The hour after the last event begins with a snapshot, and there is none.
            self.known = False
            self._place_replicas()
        for stay in self.stays.values():
            stay.ticks += 1
            stay.in_window += self._in_window
        if not self._in_window:
            return
        if self.waits_for is not None:
            self.buckets.activation += 1
        if self.known:
            self.buckets.known += 1
            self.buckets.states[self._state()] += 1
            if self.leader is not None and len(self.isr) == len(self.replicas):
                self.buckets.states["full"] += 1
        look = self.look
        if look is not None and self.now < look.tick + look.hold:
            self.buckets.lags.append(look.leo[look.leader] - look.hw)
            self.buckets.at_risk.append(max(0, look.acked - look.hw))
            for replica, leo in look.leo.items():
                if replica != look.leader:
                    state = "member" if replica in look.isr else "catching_up"
                    self.buckets.follower_lags.setdefault((replica, state), []).append(look.leo[look.leader] - leo)

    def _state(self) -> str:
        if self.leader is None:
            return "leaderless"
        least = min(len(self.replicas), self.min_isr)
        size = len(self.isr)
        return "under_min" if size < least else "at_min" if size == least else "above_min"


def nearest_rank(values: list[int], percent: int) -> int | None:
    """The value at position ceil(percent * n / 100) in order."""
    return sorted(values)[-(-len(values) * percent // 100) - 1] if values else None
