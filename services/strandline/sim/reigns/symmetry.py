"""The searched world with its two controllers exchanged: what happens in one happens in the other, under other names.

Invariant: exchanging twice gives the same world. The two controllers are distinguished by name, in the ids of its
reigns and batches, and by its leases, which are odd for the first and even for the second.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from strandline.core.reigns.effects import Campaign, RenewLease, Resign
from strandline.core.reigns.events import Head, Holder
from strandline.sim.reigns.frozen import LEASE
from strandline.sim.reigns.world import Controller, Store, World, tidied

_NAME = re.compile(r"\bc([12])\b")
_LEASE_ID = re.compile(r"\blease (\d+)")


def exchanged(world: World) -> World:
    """The world with the first controller in the second one's place."""
    first, second = world.controllers
    return World(
        store=_store(world.store),
        controllers=(exchanged_controller(second), exchanged_controller(first)),
        late=frozenset((1 - who, _value(effect)) for who, effect in world.late),
        refused=frozenset(_value(head) for head in world.refused),
    )


def exchanged_controller(controller: Controller) -> Controller:
    """A controller as it is in the other one's place."""
    core = list(_value(controller.core))
    lease_id, *lease = controller.core[LEASE]
    core[LEASE] = (_lease(lease_id), *lease)
    core[-1] = tuple(map(_question, controller.core[-1]))
    return tidied(controller._replace(core=tuple(core), calls=_value(controller.calls)))


def exchanged_step(name: str) -> str:
    """The name of a step in the exchanged world."""
    name = _NAME.sub(lambda found: f"c{3 - int(found[1])}", name)
    return _LEASE_ID.sub(lambda found: f"lease {_lease(int(found[1]))}", name)


def _store(store: Store) -> Store:
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
