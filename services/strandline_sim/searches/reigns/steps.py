"""Every step that the searched world can take next, with its name.

Invariant: that something happens is a free choice here; what follows from it is `core.reign`'s or the store's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.core.control.messages import GetMetadata
from strandline.core.control.positions import Doubt
from strandline.core.messages import Heartbeat
from strandline.core.reigns import effects, events as reigns_events
from strandline.core.reigns.reign import REIGNING, ReignCore, State
from strandline.core.types import NodeEpoch, NodeId
from strandline_sim.searches.reigns import world as reigns_world

_NODE = Heartbeat(cluster_id="c", node_id=NodeId(1), node_epoch=NodeEpoch(1), metadata_offset=0)
_NEXT_NODE_EPOCH = NodeEpoch(2)
_READ = GetMetadata(linearizable=True)
Step = tuple[str, reigns_world.ReignWorld]
WRITES = (effects.Campaign, effects.TakeKey, effects.Append, effects.Resign)


@dataclass(frozen=True, slots=True)
class ReignBounds:
    """How large the searched world is: two controllers, one store, and these."""

    transactions: int = 2
    campaigns: int = 2
    """How often the election key is put."""
    endings: int = 1
    """How many leases end that no controller gave up."""
    takings: int = 1
    """How often a key is taken from a controller that seems dead, or handed over."""
    late: int = 1
    """How many writes without an answer may still be under way."""
    restores: int = 0
    """How often the store is put back to an earlier state while the controllers lose their own files."""

    def __str__(self) -> str:
        return (
            f"2 controllers, {self.transactions} transactions, {self.campaigns} campaigns won, "
            f"{self.endings} leases lost, {self.takings} taken or handed over, {self.late} late writes"
            + (f", {self.restores} restores" if self.restores else "")
        )


class Loose:
    """A controller taken out of a world, to be stepped once."""

    def __init__(self, world: reigns_world.ReignWorld, who: int) -> None:
        self.world = world
        self.who = who
        self.core = reigns_world.thaw(world.controllers[who].core)
        self.calls = dict(enumerate(world.controllers[who].calls, 1))

    def takes(
        self, event: reigns_events.ReignEvent, *, store: reigns_world.ReignStore | None = None
    ) -> reigns_world.ReignWorld:
        """The world after the core took an event, and the store changed."""
        world = self.world if store is None else self.world._replace(store=store)
        number = getattr(event, "question", None)
        if number is not None:
            self.calls.pop(number, None)
        return reigns_world.stepped(world, self.who, self.core, event, self.calls)


def successors(world: reigns_world.ReignWorld, bounds: ReignBounds) -> Iterator[Step]:
    """What can follow."""
    for who in range(len(world.controllers)):
        yield from of_controller(world, who, bounds)
    yield from of_store(world, bounds)
    yield from of_restores(world)


def of_restores(world: reigns_world.ReignWorld) -> Iterator[Step]:
    """The store is put back, and with it everything but what nodes know. This changes all three."""
    if world.store.restores:
        for kept in range(len(world.store.log)):
            yield f"the store is put back to {kept} transactions", reigns_world.restored(world, kept)


def of_controller(world: reigns_world.ReignWorld, who: int, bounds: ReignBounds) -> Iterator[Step]:
    """What one controller, or an answer to it, can do next. Of the other one this depends on nothing but its token, and
    on whether something that it read is under way."""
    controller, name = world.controllers[who], reigns_world.NAMES[who]
    questions = reigns_world.thaw(controller.core)._questions
    for number, answer in enumerate(controller.calls, 1):
        yield from _calling(world, who, number, questions[number].effect, answer, bounds)
    yield from _own(world, who, name, bounds)


def of_store(world: reigns_world.ReignWorld, bounds: ReignBounds) -> Iterator[Step]:
    """What can happen at the store alone. Of the controllers this depends on nothing but their leases."""
    yield from _late(world)
    store = world.store
    for lease_id in sorted(store.leases):
        if store.endings < bounds.endings:
            after = reigns_world.ended(store, lease_id)._replace(endings=store.endings + 1)
            yield f"the store ends lease {lease_id}", world._replace(store=after)


def _calling(
    world: reigns_world.ReignWorld, who: int, number: int, effect: effects.ReignEffect, answer: Any, bounds: ReignBounds
) -> Iterator[Step]:
    store, name, kind = world.store, reigns_world.NAMES[who], type(effect).__name__
    if isinstance(effect, WRITES):
        if answer is None:
            if not (isinstance(effect, effects.Campaign) and store.key is None and store.campaigns >= bounds.campaigns):
                after, result = _reach(store, effect, name, world)
                loose = Loose(world, who)
                loose.calls[number] = result
                yield f"{kind} of {name} reaches the store", _kept(loose, store=after)
            if len(world.late) < bounds.late:
                late = world._replace(late=world.late | {(who, effect)})
                yield (
                    f"{name} gives up its {kind}, still under way",
                    Loose(late, who).takes(reigns_events.Unanswered(0, number)),
                )
        else:
            yield f"the answer of {kind} reaches {name}", _answered(world, who, number, answer)
            yield (
                f"the answer of {kind} to {name} is lost",
                Loose(world, who).takes(reigns_events.Unanswered(0, number)),
            )
    elif isinstance(effect, effects.ReadStore):
        yield from _reading(world, who, number, answer)
    else:
        yield from _at_once(world, who, number, effect)


def _reading(world: reigns_world.ReignWorld, who: int, number: int, answer: Any) -> Iterator[Step]:
    """A read, made now or earlier, is answered; whether its question is so old that it proves nothing of the lease is
    open. It shows no less than what was known when it was made, so only one that is made now is compared with that."""
    store, name = world.store, reigns_world.NAMES[who]
    kind, *given = answer or (reigns_events.StoreRead, store.revision, store.key, store.head)
    for asked_ms in (0, reigns_world.LONG_AGO_MS):
        loose = Loose(world, who)
        reigns_world.asked_at(loose.core, number, asked_ms, None if answer else loose.core.applied)
        text = f"what was read reaches {name}" if answer else f"{name} reads the store"
        yield text, loose.takes(kind(0, number, *given))
    # One answer that comes late at a time: an earlier one is the same to a controller as none.
    if answer is None and not any(has_read(controller) for controller in world.controllers):
        loose = Loose(world, who)
        loose.calls[number] = (kind, *given)
        yield f"the store is read for {name}", _kept(loose)


def _is_read(answer: Any) -> bool:
    return answer is not None and answer[0] is reigns_events.StoreRead


def has_read(controller: reigns_world.ReignController) -> bool:
    """Whether something that this controller read from the store is under way to it."""
    return any(_is_read(each) for each in controller.calls)


def _at_once(world: reigns_world.ReignWorld, who: int, number: int, effect: effects.ReignEffect) -> Iterator[Step]:
    store, name = world.store, reigns_world.NAMES[who]
    match effect:
        case effects.RenewLease():
            yield f"{name} renews its lease", Loose(world, who).takes(_renewal(store, effect))
        case effects.GrantLease():
            lease_id = 1 + who + 2 * (store.endings + store.takings)
            after = store._replace(leases=store.leases | {lease_id})
            yield (
                f"{name} gets lease {lease_id}",
                Loose(world, who).takes(reigns_events.LeaseGranted(0, number, lease_id), store=after),
            )
        case effects.ReadLog():
            yield f"{name} reads the log", Loose(world, who).takes(reigns_events.LogRead(0, number, effect.head))


def _reach(
    store: reigns_world.ReignStore, effect: effects.ReignEffect, name: str, world: reigns_world.ReignWorld
) -> tuple[reigns_world.ReignStore, Any]:
    """A write reaches the store: the store then, and the answer."""
    lease_id = reigns_world.thaw(world.controllers[reigns_world.NAMES.index(name)].core)._lease.lease_id or 0
    after = reigns_world.performed(store, effect, name, lease_id, world.refused)
    match effect:
        case effects.Campaign():
            if after.key is not None and after.campaigns > store.campaigns:
                return after, (reigns_events.CampaignWon, after.key.token)
            if after.key is not None:
                return after, (reigns_events.CampaignLost, after.revision, after.key)
            return after, (reigns_events.Unanswered,)
        case effects.TakeKey():
            return after, (reigns_events.KeyTaken, after.revision, after is not store)
        case effects.Resign():
            return after, (reigns_events.Resigned,)
    if after is not store:
        return after, (reigns_events.Appended, after.revision)
    return after, (reigns_events.AppendRefused, store.revision, store.key, store.head)


def _answered(world: reigns_world.ReignWorld, who: int, number: int, answer: Any) -> reigns_world.ReignWorld:
    kind, *given = answer
    return Loose(world, who).takes(kind(0, number, *given))


def _kept(loose: Loose, *, store: reigns_world.ReignStore | None = None) -> reigns_world.ReignWorld:
    """The world in which only the store, or what is under way, changed."""
    world = loose.world if store is None else loose.world._replace(store=store)
    controller = world.controllers[loose.who]
    return reigns_world.with_core(
        world, loose.who, loose.core, loose.calls, controller.is_dropping, controller.is_doubted
    )


def _own(world: reigns_world.ReignWorld, who: int, name: str, bounds: ReignBounds) -> Iterator[Step]:
    store, core = world.store, reigns_world.thaw(world.controllers[who].core)
    if world.controllers[who].is_dropping:
        freed = world._replace(
            controllers=tuple(c._replace(is_dropping=False) if n == who else c for n, c in enumerate(world.controllers))
        )
        yield f"{name} has dropped its core", Loose(freed, who).takes(reigns_events.CoreDropped(0))
        return
    yield from _renewing(world, who, name)
    if core._lease.late_at_ms and core.state in REIGNING:
        doubting = Loose(world, who)
        reigns_world.end_certainty(doubting.core)
        yield f"{name}: its lease may have ended", doubting.takes(reigns_events.Ticked(0))
    if core.holder != store.key:
        yield (
            f"the watch shows {name} the key",
            Loose(world, who).takes(reigns_events.KeyChanged(0, store.revision, store.key)),
        )
    yield from _following(world, who, core)
    if core.state is State.STANDBY and core.holder is not None and store.takings < bounds.takings:
        yield from _taking(world, who, name, core.holder.token)
    reign = core._reign
    if core.state is State.ACTIVE and reign is not None and reign.is_open:
        yield from _serving(world, who, name)
    if core.state in REIGNING and reign is not None:
        if reign.batch is None and len(store.log) < bounds.transactions:
            yield f"{name} wants to append", Loose(world, who).takes(reigns_events.AppendAsked(0, _next(core)))
        if reign.hand_over is None and store.takings < bounds.takings:
            counted = store._replace(takings=store.takings + 1)
            yield f"{name} is to hand over", Loose(world, who).takes(reigns_events.HandOverAsked(0), store=counted)
        elif reign.hand_over is not None and reign.batch is None:
            yield f"{name} has finished", Loose(world, who).takes(reigns_events.CoreFinished(0))


def _serving(world: reigns_world.ReignWorld, who: int, name: str) -> Iterator[Step]:
    """An administrator asks; or a node speaks that was sent all, which ends a reign on a store that forgot some."""
    store, doubt = world.store, Doubt()
    if world.controllers[who].is_doubted:
        doubt.begin([_NODE.node_id], first_node_epoch=_NEXT_NODE_EPOCH)
        if not store.forgot:
            doubt.witnessed(_NODE)
            assert doubt.refusal(_READ) is None
            heard = (c._replace(is_doubted=False) if n == who else c for n, c in enumerate(world.controllers))
            yield f"a node speaks to {name}", world._replace(controllers=tuple(heard))
            return
    if store.forgot and doubt.refusal(_READ) is None:
        raise reigns_world.ReignBroken(
            f"I41: {name} answers an administrator, and its store forgot {reigns_world.said(store.sent)}"
        )


def _renewing(world: reigns_world.ReignWorld, who: int, name: str) -> Iterator[Step]:
    """The lease is renewed, or a new one granted, in one step."""
    loose = Loose(world, who)
    loose.core._lease._next_ms = 0
    for effect in loose.core.step(reigns_events.Ticked(0)):
        if isinstance(effect, effects.RenewLease):
            yield f"{name} renews its lease", loose.takes(_renewal(world.store, effect))
            return


def _renewal(store: reigns_world.ReignStore, effect: effects.RenewLease) -> reigns_events.ReignEvent:
    lives = effect.lease_id in store.leases
    return reigns_events.LeaseRenewed(0, effect.question) if lives else reigns_events.LeaseLost(0, effect.question)


def _taking(world: reigns_world.ReignWorld, who: int, name: str, token: int) -> Iterator[Step]:
    """A standby loses its stream, is refused, and sees no alarm, in one step."""
    loose = Loose(world, who)
    events: list[reigns_events.ReignEvent] = [reigns_events.PeerLost(0, token)]
    while events:
        for effect in loose.core.step(events.pop()):
            if isinstance(effect, effects.LookAtActive):
                events.append(reigns_events.Looked(0, effect.question, reigns_events.ActiveProbe.REFUSED))
            elif isinstance(effect, effects.ReadAlarm):
                events.append(reigns_events.AlarmRead(0, effect.question, False))
            elif isinstance(effect, effects.TakeKey):
                store = world.store._replace(takings=world.store.takings + 1)
                yield f"{name} is refused by the active and takes its key", _kept(loose, store=store)


def _following(world: reigns_world.ReignWorld, who: int, core: ReignCore) -> Iterator[Step]:
    if core.state not in (State.STANDBY, State.CAMPAIGNING, State.CATCHING_UP):
        return
    log, applied = world.store.log, 0 if core.applied is None else core.applied.offset
    if not core._follows:
        # A snapshot as it is, or as it was.
        for head in (None, *log):
            yield (
                f"{reigns_world.NAMES[who]} follows the log",
                Loose(world, who).takes(reigns_events.TransactionsCame(0, head)),
            )
    elif applied < len(log):
        yield (
            f"the watch brings {reigns_world.NAMES[who]} a transaction",
            Loose(world, who).takes(reigns_events.TransactionsCame(0, log[applied])),
        )


def _next(core: ReignCore) -> reigns_events.Head:
    reign = core._reign
    assert reign is not None
    offset = 1 + (0 if reign.head is None else reign.head.offset)
    return reigns_events.Head(f"{core.controller_id}/{reign.token}", offset, f"{core.controller_id}/{reign.token}")


def _late(world: reigns_world.ReignWorld) -> Iterator[Step]:
    for who, effect in sorted(world.late, key=repr):
        left = world._replace(late=world.late - {(who, effect)})
        after, _ = _reach(world.store, effect, reigns_world.NAMES[who], world)
        name = type(effect).__name__
        yield f"a late {name} of {reigns_world.NAMES[who]} reaches the store", left._replace(store=after)
        yield f"a late {name} of {reigns_world.NAMES[who]} is lost", left
