"""Makes a failing run small: fewer faults, clients, partitions and nodes, a plain network, round times.

Invariant: every smaller run was run and broke the same invariant. A plan is an explicit list and draws are keyed, so a
run with one fault fewer draws the same for everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from strandline_sim.runs.run import Outcome, run_world
from strandline_sim.runs.shape import PLAN_FROM_US, Fault, Shape
from strandline_sim.world.environment import PRODUCTION, Build
from strandline_sim.world.world import FIRST_CONSUMER, World

# ---- ddmin
# Makes a list as short as possible while a condition stays true of it (Zeller's delta debugging).
#
# Invariant: the returned list was tried and found true; kept items keep their order.

T = TypeVar("T")


def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """A part of ``items`` of which ``holds`` is true, and of which no single item can be left out.

    ``holds`` must be true of ``items``; it returns False without trying when its time is over.
    """
    kept, size = list(items), max(1, len(items) // 2)
    while kept:
        shorter = _without_a_piece(kept, size, holds)
        if shorter is not None:
            kept, size = shorter, max(1, min(size, len(shorter) // 2))
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return kept


def _without_a_piece(items: list[T], size: int, holds: Callable[[list[T]], bool]) -> list[T] | None:
    """``items`` without every piece of ``size`` that is not needed, from the end on; None if each one is needed."""
    kept, removed = items, False
    end = len(kept)
    while end > 0:
        start = max(0, end - size)
        candidate = kept[:start] + kept[end:]
        if holds(candidate):
            kept, removed = candidate, True
        end = start
    return kept if removed else None


ROUND_US = 10_000
CALM_US = (1_000, 1_000)
"""Duration of a delay, of a disk commit and of a controller commit in a run where time plays no part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest run that was found, and how it ended."""

    shape: Shape
    outcome: Outcome
    tries: int


class Shrinker:
    """Tries smaller and smaller runs, for at most ``seconds`` of ``clock``."""

    def __init__(self, shape: Shape, *, build: Build = PRODUCTION, seconds: float, clock: Callable[[], float]) -> None:
        self._build = build
        self._clock = clock
        self._until_s = clock() + seconds
        self._shape = shape
        self._outcome = self._run(shape)
        self.tries = 1

    @property
    def first(self) -> Outcome:
        """The outcome of the run that is to be made smaller; called before `shrink`."""
        return self._outcome

    @property
    def shape(self) -> Shape:
        """The smallest run so far."""
        return self._shape

    def _run(self, shape: Shape) -> Outcome:
        return run_world(World(shape, build=self._build))

    def _take(self, shape: Shape) -> bool:
        """Whether this run breaks the same invariant; if so, go on from it."""
        if shape == self._shape:
            return True
        if self._clock() > self._until_s:
            return False
        self.tries += 1
        outcome = self._run(shape)
        wanted, found = self._outcome.violation, outcome.violation
        if found is None or wanted is None or found.name != wanted.name:
            return False
        self._shape, self._outcome = shape, outcome
        return True

    def shrink(self) -> Shrunk:
        """The smallest run found; the given one if it breaks nothing."""
        if self._outcome.violation is not None:
            self._fewer_faults()
            for simpler in self._simpler():
                self._take(simpler)
            self._fewer_clients()
            self._fewer_faults()
            self._sooner()
            self._round_times()
        return Shrunk(shape=self._shape, outcome=self._outcome, tries=self.tries)

    def _fewer_faults(self) -> None:
        violation = self._outcome.violation
        assert violation is not None
        self._take(replace(self._shape, plan=tuple(f for f in self._shape.plan if f.at_us <= violation.at_us)))
        ddmin(self._shape.plan, lambda plan: self._take(replace(self._shape, plan=tuple(plan))))

    def _simpler(self) -> Iterator[Shape]:
        """Simplifications of the newest shape, one after the other."""
        yield replace(self._shape, partitions=1)
        yield replace(self._shape, nodes=self._shape.nodes - self._shape.observers, observers=0)
        yield replace(self._shape, nodes=self._shape.replication_factor + self._shape.observers)
        yield replace(self._shape, nodes=3 + self._shape.observers, replication_factor=3, min_isr=2)
        yield replace(self._shape, single_records=True)
        yield replace(self._shape, lost_per_mille=0, sticky=False)
        yield replace(self._shape, delay_us=CALM_US)
        yield replace(self._shape, fsync_us=CALM_US)
        yield replace(self._shape, commit_us=CALM_US)

    def _fewer_clients(self) -> None:
        shape = self._shape
        producers = [n for n in range(shape.producers) if n not in shape.without]
        consumers = [FIRST_CONSUMER + n for n in range(shape.consumers) if FIRST_CONSUMER + n not in shape.without]
        everybody = frozenset((*producers, *consumers))

        def holds(kept: list[int]) -> bool:
            return self._take(replace(self._shape, without=shape.without | (everybody - set(kept))))

        ddmin([*producers, *consumers], holds)

    def _sooner(self) -> None:
        """Heal earlier, and bring the faults forward, as long as the run still breaks."""
        for part in (2, 4, 8):
            self._take(replace(self._shape, faults_end_us=max(PLAN_FROM_US, self._shape.faults_end_us // part)))
            self._take(replace(self._shape, plan=tuple(_earlier(fault, part) for fault in self._shape.plan)))

    def _round_times(self) -> None:
        self._take(replace(self._shape, plan=tuple(map(_rounded, self._shape.plan))))


def _earlier(fault: Fault, part: int) -> Fault:
    return replace(fault, at_us=PLAN_FROM_US + (fault.at_us - PLAN_FROM_US) // part)


def _rounded(fault: Fault) -> Fault:
    at_us = fault.at_us // ROUND_US * ROUND_US
    return replace(fault, at_us=at_us, duration_us=max(ROUND_US, fault.duration_us // ROUND_US * ROUND_US))
