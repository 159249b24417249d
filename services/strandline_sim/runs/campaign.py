"""How many seeds are run by whom, and what all of them together mean.

Invariant: a seed runs whole in one process, and the sum does not depend on the order in which seeds end.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import Outcome, run_seed
from strandline_sim.world.environment import missing


@dataclass(slots=True)
class Campaign:
    """The sum of all outcomes so far."""

    profile: str
    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    committed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        """One more seed is done."""
        self.seeds += 1
        self.events += outcome.events
        self.simulated_us += outcome.simulated_us
        self.committed += outcome.committed
        self.counts.update(outcome.counts)
        if outcome.violation is not None:
            self.broken.append(outcome)

    @property
    def missing(self) -> list[str]:
        """What the profile promises and no seed showed; nothing is asked of a campaign that is too small."""
        profile = PROFILES[self.profile]
        kinds = tuple(f"fault: {kind}" for kind in (*profile.kinds, *profile.aimed))
        return missing(self.counts, (*profile.promises, *kinds)) if self.seeds >= profile.enough_seeds else []

    @property
    def passed(self) -> bool:
        """Whether nothing was broken and all was seen."""
        return not self.broken and not self.missing


_YOUNG_OBJECTS = 200_000
"""A run makes many objects that live for microseconds and few cycles; looking for those at every 700 is a waste."""


def _collect_rarely() -> None:
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let this process look for cycles seldom for a while: a few per cent of a run's time."""
    before = gc.get_threshold()
    _collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)


def outcomes(
    seeds: Iterable[int], profile: str, jobs: int, run: Callable[[int, str], Outcome] = run_seed
) -> Iterator[Outcome]:
    """The outcome of every seed, as they end."""
    if jobs <= 1:
        with rare_collections():
            for seed in seeds:
                yield run(seed, profile)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_collect_rarely) as pool:
        waiting: set[Future[Outcome]] = set()
        rest = iter(seeds)
        while True:
            waiting.update(pool.submit(run, seed, profile) for seed in islice(rest, 4 * jobs - len(waiting)))
            if not waiting:
                return
            done, waiting = wait_for(waiting, return_when="FIRST_COMPLETED")
            for future in done:
                yield future.result()
