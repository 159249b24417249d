"""The search of reigns: a world is three numbers, of what is shared and of each controller.

Two worlds that differ only in which controller is which are one (`symmetry`). A controller's steps are worked out once
for all worlds in which they are the same (`steps.of_controller` names what they depend on).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from strandline.core.reigns.effects import Campaign, RenewLease, Resign
from strandline.core.reigns.events import Head, Holder
from strandline_sim.searches import breadth_first
from strandline_sim.searches.reigns.steps import ReignBounds, has_read, of_controller, of_restores, of_store, successors
from strandline_sim.searches.reigns.world import LEASE, ReignController, ReignStore, ReignWorld, start, thaw, tidied

# ---- symmetry
# The searched world with its two controllers exchanged: what happens in one happens in the other, under other names.
#
# Invariant: exchanging twice gives the same world. The two controllers are distinguished by name, in the ids of its
# reigns and batches, and by its leases, which are odd for the first and even for the second.

_NAME = re.compile(r"\bc([12])\b")


def exchanged(world: ReignWorld) -> ReignWorld:
    """The world with the first controller in the second one's place."""
    first, second = world.controllers
    return ReignWorld(
        store=_store(world.store),
        controllers=(exchanged_controller(second), exchanged_controller(first)),
        late=frozenset((1 - who, _value(effect)) for who, effect in world.late),
        refused=frozenset(_value(head) for head in world.refused),
    )


def exchanged_controller(controller: ReignController) -> ReignController:
    """A controller as it is in the other one's place."""
    core = list(_value(controller.core))
    lease_id, *lease = controller.core[LEASE]
    core[LEASE] = (_lease(lease_id), *lease)
    core[-1] = tuple(map(_question, controller.core[-1]))
    return tidied(controller._replace(core=tuple(core), calls=_value(controller.calls)))


def _store(store: ReignStore) -> ReignStore:
    return store._replace(
        key=_value(store.key),
        log=_value(store.log),
        leases=frozenset(_lease(each) for each in store.leases),
        sent=_value(store.sent),
    )


def _question(question: tuple[Any, ...]) -> tuple[Any, ...]:
    kind, given = question
    if kind in (Campaign, RenewLease, Resign):
        given = (*given[:-1], _lease(given[-1]))
    return kind, _value(given)


def _lease(lease_id: Any) -> Any:
    return lease_id and lease_id - 1 + 2 * (lease_id % 2)


def _value(value: Any) -> Any:
    match value:
        case type():
            return value
        case str():
            return _NAME.sub(lambda found: f"c{3 - int(found[1])}", value)
        case Holder():
            name, incarnation = _value(value.controller_id), _value(value.incarnation_id)
            return Holder(value.token, name, incarnation, _lease(value.lease_id))
        case Head():
            return replace(value, reign_id=_value(value.reign_id), digest=_value(value.digest))
        case tuple():
            return tuple(map(_value, value))
        case Campaign() | RenewLease() | Resign():
            return replace(value, lease_id=_lease(value.lease_id))
        case _ if hasattr(value, "head"):
            return replace(value, head=_value(value.head))
    return value


_BITS = 20
_MASK = (1 << _BITS) - 1
"""Numbers of controllers have so many bits; with the one of what is shared, a state is a small integer."""

State = tuple[int, int, int]
"""Numbers of what is shared, and of the two controllers."""
Move = tuple[int, int]
"""What is shared after a step, and the controller after it."""


Result = breadth_first.Result[ReignWorld, str]
"""What a search found; a step is its name."""


def search(bounds: ReignBounds, **limits: Any) -> Result:
    """Search until an invariant is broken, or nothing is left (`breadth_first.search`)."""
    return breadth_first.search(_Reigns(bounds), **limits)


class _Reigns(breadth_first.Model[ReignWorld, str, int]):
    """The numbers of all values that were met, and the steps that were worked out."""

    def __init__(self, bounds: ReignBounds) -> None:
        self.bounds: ReignBounds = bounds
        self._controllers: list[ReignController] = []
        self._shared: list[ReignWorld] = []
        """Worlds of which only what is shared counts."""
        self._number_of: dict[object, int] = {}
        self._controller_in_other: list[int] = []
        self._shared_in_other: list[int] = []
        self._outside: list[tuple[int | None, bool]] = []
        """For each controller: its token, and whether something that it read is under way."""
        self._leases: list[int | None] = []
        self._moves: dict[tuple[int, int, int, int | None, bool], tuple[Move, ...]] = {}
        self._store_moves: dict[tuple[int, int | None, int | None], tuple[int, ...]] = {}

    def start(self) -> ReignWorld:
        return start(self.bounds.restores)

    def successors(self, world: ReignWorld) -> Iterator[tuple[str, ReignWorld]]:
        return iter(successors(world, self.bounds))

    def key(self, world: ReignWorld) -> int:
        """One number for a world and for the same one with its controllers exchanged."""
        shared, first, second = self._number(world)
        turned = self._shared_in_other[shared], self._controller_in_other[second], self._controller_in_other[first]
        return min(_packed((shared, first, second)), _packed(turned))

    def world(self, key: int) -> ReignWorld:
        return self._world(*_parts(key))

    def _number(self, world: ReignWorld) -> State:
        """The numbers of a world."""
        first, second = world.controllers
        return self._number_shared(world), self._number_controller(first), self._number_controller(second)

    def after(self, key: int) -> list[int]:
        """The states that can follow, some of them more than once."""
        shared, first, second = _parts(key)
        shared_in, controller_in = self._shared_in_other, self._controller_in_other
        moves = [(after, own, second) for after, own in self._moves_of(0, shared, first, second)]
        moves += [(after, first, own) for after, own in self._moves_of(1, shared, second, first)]
        moves += [(after, first, second) for after in self._moves_of_store(shared, first, second)]
        moves += map(self._number, [after for _, after in of_restores(self._world(shared, first, second))])
        found = []
        for after, one, other in moves:
            plain = (after << _BITS | one) << _BITS | other
            turned = (shared_in[after] << _BITS | controller_in[other]) << _BITS | controller_in[one]
            found.append(plain if plain < turned else turned)
        return found

    def broken(self, key: int) -> tuple[str, ...]:
        """Nothing: what must hold is checked in the steps."""
        return ()

    def _moves_of(self, who: int, shared: int, own: int, other: int) -> tuple[Move, ...]:
        asked = (who, shared, own, *self._outside[other])
        found = self._moves.get(asked)
        if found is None:
            world = self._world(shared, *((own, other) if who == 0 else (other, own)))
            steps = {
                (self._number_shared(after), self._number_controller(after.controllers[who])): None
                for _, after in of_controller(world, who, self.bounds)
            }
            steps.pop((shared, own), None)
            found = self._moves[asked] = tuple(steps)
        return found

    def _moves_of_store(self, shared: int, first: int, second: int) -> tuple[int, ...]:
        asked = (shared, self._leases[first], self._leases[second])
        found = self._store_moves.get(asked)
        if found is None:
            world = self._world(shared, first, second)
            steps = {self._number_shared(after): None for _, after in of_store(world, self.bounds)}
            found = self._store_moves[asked] = tuple(steps)
        return found

    def _world(self, shared: int, first: int, second: int) -> ReignWorld:
        return self._shared[shared]._replace(controllers=(self._controllers[first], self._controllers[second]))

    def _number_controller(self, controller: ReignController) -> int:
        known = self._number_of.get(controller)
        if known is not None:
            return known
        number = self._number_of[controller] = len(self._controllers)
        assert number <= _MASK, "more controllers than a state has room for"
        core = thaw(controller.core)
        self._controllers.append(controller)
        self._controller_in_other.append(number)
        self._outside.append((core.token, has_read(controller)))
        self._leases.append(core._lease.lease_id)
        self._controller_in_other[number] = self._number_controller(exchanged_controller(controller))
        return number

    def _number_shared(self, world: ReignWorld) -> int:
        value = (world.store, world.late, world.refused)
        known = self._number_of.get(value)
        if known is not None:
            return known
        number = self._number_of[value] = len(self._shared)
        self._shared.append(world)
        self._shared_in_other.append(number)
        self._shared_in_other[number] = self._number_shared(exchanged(world))
        return number


def _packed(state: State) -> int:
    shared, first, second = state
    return (shared << _BITS | first) << _BITS | second


def _parts(key: int) -> State:
    return key >> 2 * _BITS, key >> _BITS & _MASK, key & _MASK
