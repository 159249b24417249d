"""The layer of exhaustive search: all states of small worlds, the smallest world first, to kill a mutant.

Invariant: only a state that the model reaches in which a property does not hold kills. The model cannot break what it
does not contain (restarts, disks, time-outs, idempotent producers, acknowledgements), so many mutants survive here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from mutants.mutant import Layer, Verdict

from strandline_sim.searches.exhaust import VARIANTS, Bounds, Property, Result, search

NAMES = {
    Property.CANDIDATES: "I5",
    Property.WEAK_ISR: "I3",
    Property.STRONG_ISR: "I4",
    Property.DIVERGED: "I2",
    Property.LOST: "I8",
    Property.ASSERTION: "I0",
}
"""What a property is called everywhere else."""

_INVARIANT = re.compile(r"I\d+: ")

RULES = ("leader-epoch", "fetch")
WORLDS = (
    Bounds(replicas=2, records=1, max_leader_epoch=1),
    Bounds(replicas=2, records=2, max_leader_epoch=2),
    Bounds(replicas=3, records=1, max_leader_epoch=2),
    Bounds(replicas=3, records=2, max_leader_epoch=2),
)


class _EnoughError(Exception):
    """The bound is reached; raised between two levels of a search."""


class _Meter:
    """Counts states over all searches of one mutant, and ends a search when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.began_s = time.process_time()
        self._seconds = seconds
        self._done = 0
        self._now = 0

    @property
    def states(self) -> int:
        """States seen so far."""
        return self._done + self._now

    @property
    def seconds(self) -> float:
        """Processor time taken so far."""
        return time.process_time() - self.began_s

    def next_search(self) -> None:
        """Keep the states of the search before in the count."""
        self._done, self._now = self.states, 0

    def level(self, depth: int, states: int, level: int) -> None:
        """Count a completed level.

        Raises:
            _EnoughError: the time is over.
        """
        self._now = states
        if self.seconds > self._seconds:
            raise _EnoughError


def judge(*, seconds: float) -> Verdict:
    """Search under the current rules until a property is broken, for at most ``seconds``, checked between levels."""
    meter, searched = _Meter(seconds), 0
    try:
        for result in _results(meter):
            searched += 1
            violation = result.shortest
            if violation is not None:
                bounds = result.bounds
                return Verdict(
                    layer=Layer.SEARCH,
                    killed_by=NAMES[Property(violation.broken)],
                    where=f"{result.model.variant.name}, {bounds.replicas} replicas, {bounds.records} records, "
                    f"epochs to {bounds.max_leader_epoch}",
                    why=f"{violation.broken} after {violation.length} steps {violation.note}".strip(),
                    tried=meter.states,
                    seconds=meter.seconds,
                )
    except _EnoughError:
        pass
    except AssertionError as error:
        # A core in a state that it would never have reached itself; other assertions are the search's own.
        if not _INVARIANT.match(str(error)):
            raise
        return Verdict(
            layer=Layer.SEARCH,
            killed_by="I0",
            where="a core that is built where the search left it",
            why=str(error),
            tried=meter.states,
            seconds=meter.seconds,
        )
    note = f"{searched} of {len(WORLDS) * len(RULES)} worlds were searched to their end"
    return Verdict(layer=Layer.SEARCH, tried=meter.states, seconds=meter.seconds, note=note)


def _results(meter: _Meter) -> Iterator[Result]:
    for bounds in WORLDS:
        for rules in RULES:
            meter.next_search()
            yield search(VARIANTS[rules], bounds, until_first=True, progress=meter.level)
