"""Breadth-first search: every state of a small world, nearest first, so that a violation found is a shortest one.

Invariant: each state is kept with the one it was first reached from; a trace is read back from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

World = TypeVar("World")
Step = TypeVar("Step")
Key = TypeVar("Key", bound=Hashable)

Progress = Callable[[int, int, int], None]
"""Called before each level with (depth, states so far, states of this level)."""


class Model(Generic[World, Step, Key]):
    """Worlds and the steps between them. One key may represent several worlds that differ only in names."""

    failure: ClassVar[type[Exception]] = AssertionError
    """What `after` raises where a step breaks a rule; its text names the rule."""
    bounds: Any

    def start(self) -> World:
        """The world to begin with."""
        raise NotImplementedError

    def successors(self, world: World) -> Iterable[tuple[Step, World]]:
        """Every step within the bounds, and the world after it."""
        raise NotImplementedError

    def key(self, world: World) -> Key:
        """What represents a world."""
        raise NotImplementedError

    def world(self, key: Key) -> World:
        """A world that ``key`` represents."""
        raise NotImplementedError

    def check(self, world: World) -> None:
        """Called when a state is reached for the first time.

        Raises:
            AssertionError: the world breaks a rule.
        """

    def after(self, key: Key) -> Iterable[Key]:
        """The states that can follow, some of them more than once.

        Raises:
            failure: a step breaks a rule.
        """
        return (self.key(after) for _, after in self.successors(self.world(key)))

    def broken(self, key: Key) -> Iterable[str]:
        """The rules that a new state breaks."""
        try:
            self.check(self.world(key))
        except AssertionError as error:
            return (str(error),)
        return ()


@dataclass(frozen=True, slots=True)
class Found(Generic[World, Step]):
    """A violation, with the steps to it from the start."""

    broken: str
    steps: tuple[Step, ...]
    states: tuple[World, ...]
    """The start, then the world after each step, with names that stay."""
    note: str = ""

    @property
    def length(self) -> int:
        """How many steps it takes."""
        return len(self.steps)


@dataclass(slots=True)
class Result(Generic[World, Step]):
    """What a search found."""

    bounds: Any
    model: Any
    found: dict[str, Found[World, Step]] = field(default_factory=dict)
    states: int = 0
    depth: int = 0
    exhausted: bool = False
    """Every state within the bounds was reached."""

    @property
    def shortest(self) -> Found[World, Step] | None:
        """The shortest violation, if there is one."""
        return min(self.found.values(), key=lambda each: each.length, default=None)

    @property
    def violation(self) -> str:
        """The rule that it breaks, or nothing."""
        return self.shortest.broken if self.shortest is not None else ""

    @property
    def trace(self) -> tuple[Step, ...]:
        """The steps to the state that breaks a rule, or in which the next step does."""
        return self.shortest.steps if self.shortest is not None else ()


def search(
    model: Model[World, Step, Key],
    *,
    wanted: Collection[str] = (),
    until_first: bool = False,
    max_states: int | None = None,
    progress: Progress | None = None,
) -> Result[World, Step]:
    """Search until a rule is broken, nothing is left, or at least ``max_states`` were reached.

    ``wanted``: end with the level in which the last of these rules is broken, or the first, if ``until_first``.
    """
    result: Result[World, Step] = Result(model.bounds, model)
    first = model.key(model.start())
    came_from, frontier = {first: first}, [first]
    found = result.found

    def note(rule: str, key: Key, error: object = None) -> None:
        if rule not in found:
            steps, worlds = _way(model, came_from, key)
            last: tuple[Step, ...] = getattr(error, "steps", ())
            found[rule] = Found(rule, (*steps, *last), worlds, getattr(error, "note", ""))

    while frontier:
        result.states = len(came_from)
        if progress is not None:
            progress(result.depth, result.states, len(frontier))
        is_enough = any(map(found.__contains__, wanted)) if until_first else found.keys() >= set(wanted)
        if (wanted and is_enough) or (max_states is not None and result.states >= max_states):
            return result
        reached: list[Key] = []
        for before in frontier:
            try:
                for after in model.after(before):
                    if after not in came_from:
                        came_from[after] = before
                        reached.append(after)
                        for rule in model.broken(after):
                            note(rule, after)
                        if found and not wanted:
                            break
            except model.failure as error:
                note(str(error), before, error)
            if found and not wanted:
                result.states = len(came_from)
                return result
        frontier = reached
        result.depth += bool(frontier)
    result.exhausted = True
    return result


def _way(model: Model[World, Step, Key], came_from: dict[Key, Key], last: Key) -> tuple[list[Step], tuple[World, ...]]:
    """The steps from the start to a state, and the worlds in between."""
    keys = [last]
    while came_from[keys[-1]] != keys[-1]:
        keys.append(came_from[keys[-1]])
    steps: list[Step] = []
    worlds = [model.start()]
    for wanted in keys[-2::-1]:
        step, world = next(each for each in model.successors(worlds[-1]) if model.key(each[1]) == wanted)
        steps.append(step)
        worlds.append(world)
    return steps, tuple(worlds)


# ---- interned
# Small numbers for equal values, so that states are tuples of numbers.
#
# Invariant: ``values[id_of(value)] == value``, and equal values have equal numbers.

Value = TypeVar("Value")


class Interned(Generic[Value]):
    """Values in order of first appearance."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._ids: dict[Value, int] = {}

    def id_of(self, value: Value) -> int:
        """The number of ``value``; a new one, if it was never seen."""
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known

    def __len__(self) -> int:
        return len(self.values)
