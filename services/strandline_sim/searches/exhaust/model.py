"""The search of every state of a small cluster, for several properties at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from strandline.core.log.truncation import EpochCache, FirstMove, rule_for
from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline_sim.searches import breadth_first
from strandline_sim.searches.exhaust.actions import Actions
from strandline_sim.searches.exhaust.bench import Bench
from strandline_sim.searches.exhaust.local import Property, broken
from strandline_sim.searches.exhaust.space import Space, Step
from strandline_sim.searches.exhaust.symmetry import State
from strandline_sim.searches.exhaust.variants import Bounds, Variant

Found = breadth_first.Found[State, Step]
Result = breadth_first.Result[State, Step]


def search(variant: Variant, bounds: Bounds, wanted: Iterable[Property] = tuple(Property), **limits: Any) -> Result:
    """Search until each of ``wanted`` is broken, or nothing is left (`breadth_first.search`)."""
    wanted = frozenset(wanted)
    return breadth_first.search(Exhaust(variant, bounds, wanted), wanted=wanted, **limits)


@dataclass
class _Ends(Exception):
    """A step breaks an assertion of the core: the process ends, and the step leads nowhere."""

    note: str
    steps: tuple[Step]

    def __str__(self) -> str:
        return Property.ASSERTION


class Exhaust(breadth_first.Model[State, Step, State]):
    """States up to the names of the replicas."""

    failure = _Ends

    def __init__(self, variant: Variant, bounds: Bounds, wanted: frozenset[Property]) -> None:
        self.bounds: Bounds = bounds
        self.variant = variant
        self.space = Space(Actions(Bench(variant, bounds.replicas, bounds.min_isr)), bounds)
        self._wanted = wanted
        # Whether the rules begin an epoch with a question or a cut, so that a fetching follower has been compared.
        some = EpochCache((EpochEntry(LeaderEpoch(0), Offset(0)),))
        self._asks = rule_for(variant.rules.truncation).first_move(some) is not FirstMove.FETCH

    def start(self) -> State:
        return self.space.start()

    def successors(self, world: State) -> list[tuple[Step, State]]:
        return self.space.successors(world)

    def key(self, world: State) -> State:
        return self.space.representative(world)

    def after(self, key: State) -> Iterator[State]:
        """The states that can follow.

        Raises:
            _Ends: a step broke an assertion of the core, here or before.
        """
        representative = self.space.representative
        for _, after in self.space.successors(key):
            yield representative(after)
        for note, step in self.space.assertions.items():
            raise _Ends(note, (step,))

    def broken(self, key: State) -> set[Property]:
        """The properties that do not hold."""
        cluster, data, nodes = self.space.view(key)
        return broken(nodes, cluster.now, data.committed, asks=self._asks) & self._wanted
