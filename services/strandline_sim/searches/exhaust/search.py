"""Breadth-first search: every state within the bounds, nearest first, so that the first violation found is a shortest.

Invariant: a level holds exactly the states that are that many steps from the start and no fewer. Levels are kept, not
parents: a trace is found again by stepping back level by level, which costs little and halves the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from strandline.core.log.truncation import EpochCache, FirstMove, rule_for
from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline_sim.searches.exhaust.actions import Actions
from strandline_sim.searches.exhaust.bench import Bench
from strandline_sim.searches.exhaust.properties import Property, broken
from strandline_sim.searches.exhaust.space import Space, Step
from strandline_sim.searches.exhaust.symmetry import State
from strandline_sim.searches.exhaust.variants import Bounds, Variant

Progress = Callable[[int, int, int], None]
"""Called after each level with (depth, states so far, states of this level)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, with the steps to it from the start."""

    broken: Property
    steps: tuple[Step, ...]
    states: tuple[State, ...]
    """The start, then the state after each step."""
    note: str = ""

    @property
    def length(self) -> int:
        """How many steps it takes."""
        return len(self.steps)


@dataclass(slots=True)
class Result:
    """What a search found."""

    variant: Variant
    bounds: Bounds
    space: Space
    found: dict[Property, Found] = field(default_factory=dict)
    states: int = 0
    transitions: int = 0
    core_steps: int = 0
    depth: int = 0
    exhausted: bool = False
    """Every reachable state within the bounds was seen."""
    seconds: float = 0.0

    @property
    def violation(self) -> Found | None:
        """The shortest violation, if there is one."""
        return min(self.found.values(), key=lambda each: each.length, default=None)


def search(
    variant: Variant,
    bounds: Bounds,
    wanted: Iterable[Property] = tuple(Property),
    *,
    until_first: bool = False,
    max_states: int | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Result:
    """Search until each of ``wanted`` is broken, or nothing is left, or ``max_states`` were seen.

    ``until_first`` ends it, with the level under way, as soon as any of them is broken.
    ``clock`` gives seconds (`time.monotonic`); without one the result's ``seconds`` stay 0.
    """
    began = clock()
    bench = Bench(variant, bounds.replicas, bounds.min_isr)
    space = Space(Actions(bench), bounds)
    result = Result(variant, bounds, space)
    _Search(space, result, frozenset(wanted), _asks(variant), until_first).run(max_states, progress)
    result.core_steps = bench.steps
    result.seconds = clock() - began
    return result


class _Search:
    def __init__(
        self, space: Space, result: Result, wanted: frozenset[Property], asks: bool, until_first: bool
    ) -> None:
        self._space = space
        self._result = result
        self._wanted = wanted
        self._asks = asks
        self._until_first = until_first
        self._levels: list[list[State]] = []

    def run(self, max_states: int | None, progress: Progress | None) -> None:
        start = self._space.start()
        seen = {start}
        frontier = [start]
        while frontier:
            self._levels.append(frontier)
            self._result.states = len(seen)
            self._result.depth = len(self._levels) - 1
            if progress is not None:
                progress(self._result.depth, len(seen), len(frontier))
            if self._has_found() or (max_states is not None and len(seen) >= max_states):
                return
            frontier = self._expand(frontier, seen)
        self._result.exhausted = True

    def _has_found(self) -> bool:
        found = self._result.found.keys()
        return bool(self._wanted & found) if self._until_first else self._wanted <= found

    def _expand(self, frontier: list[State], seen: set[State]) -> list[State]:
        successors, found, representative = self._space.successors, self._result.found, self._space.representative
        reached: list[State] = []
        transitions = 0
        for state in frontier:
            for _, reachable in successors(state):
                transitions += 1
                after = representative(reachable)
                if after not in seen:
                    seen.add(after)
                    reached.append(after)
                    self._check(after)
            if self._space.assertions and Property.ASSERTION not in found:
                self._assertion(state)
        self._result.transitions += transitions
        return reached

    def _check(self, state: State) -> None:
        cluster, data, nodes = self._space.view(state)
        for name in broken(nodes, cluster.now, data.committed, asks=self._asks):
            if name in self._wanted and name not in self._result.found:
                steps, states = self._way_to(state, len(self._levels))
                self._result.found[name] = Found(name, steps, states)

    def _assertion(self, state: State) -> None:
        note, step = next(iter(self._space.assertions.items()))
        steps, states = self._way_to(state, len(self._levels) - 1)
        found = Found(Property.ASSERTION, (*steps, step), states, note)
        self._result.found[Property.ASSERTION] = found

    def _way_to(self, state: State, depth: int) -> tuple[tuple[Step, ...], tuple[State, ...]]:
        """The steps from the start to ``state``, which lies in level ``depth``, with names that stay."""
        way = [state]
        for level in reversed(self._levels[:depth]):
            way.append(self._predecessor(level, way[-1]))
        steps: list[Step] = []
        states = [way.pop()]
        while way:
            step, after = self._successor(states[-1], way.pop())
            steps.append(step)
            states.append(after)
        return tuple(steps), tuple(states)

    def _predecessor(self, level: list[State], state: State) -> State:
        representative = self._space.representative
        for before in level:
            if any(representative(after) == state for _, after in self._space.successors(before)):
                return before
        raise AssertionError("no state of the level before leads to one of the level after")

    def _successor(self, before: State, wanted: State) -> tuple[Step, State]:
        """The step from ``before`` to the state that ``wanted`` represents."""
        for step, after in self._space.successors(before):
            if self._space.representative(after) == wanted:
                return step, after
        raise AssertionError("a state with other names has other successors")


def _asks(variant: Variant) -> bool:
    """Whether the rules begin an epoch with a question or a cut, so that a fetching follower has been compared."""
    some = EpochCache((EpochEntry(LeaderEpoch(0), Offset(0)),))
    return rule_for(variant.rules.truncation).first_move(some) is not FirstMove.FETCH
