"""What a state of the searched world is, and what a controller's step makes of it.

Invariant: a state is a value. What the store compares is `sim.fenced_log`'s; what must hold is checked where it can
first be seen: when the store writes, when a core begins, and when a batch is settled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.core.reigns import effects as reigns_effects, events
from strandline.core.reigns.reign import ReignCore, State, _Batch, _Question, _Reign
from strandline_sim.control import stored_values

# ---- frozen
# A `ReignCore` as a value, and back: what the search keeps of a controller between two steps.
#
# Invariant: a core made from a value behaves as the core that the value was made from. Numbers of questions, when they
# were asked and what was known then are the same in every value; when a read was asked for is chosen where its answer
# comes. Every back-off is over at once, and a renewal never comes due: it is a step of the search.

LONG_AGO_MS = -2_500
"""When a question was sent whose answer proves nothing about now."""

_CORE = ("state", "applied", "holder", "_follows", "_key_revision", "_named", "_then_stop")
_LEASE = ("lease_id", "late_at_ms")
_TAKING = ("_broken_token", "_refused_token")
_REIGN = (
    "token", "head", "is_head_read", "has_begun", "is_open", "unsure_since_ms", "proven_ms", "is_full", "hand_over",
)  # fmt: skip

Value = tuple[Any, ...]
OWN, LEASE = 2, 3
"""Where in a value the core's own fields are, and its lease's."""
KEY_REVISION = _CORE.index("_key_revision")
"""Where among its own fields the revision is at which it saw the key last."""


def freeze(core: ReignCore) -> tuple[Value, dict[int, int]]:
    """The value of a core, and the number in it of each question."""
    reign = core._reign
    numbers = {number: place for place, number in enumerate(sorted(core._questions), 1)}
    questions = tuple(_question(asked) for _, asked in sorted(core._questions.items()))
    batch = None if reign is None or reign.batch is None else (reign.batch.head, reign.batch.is_doubtful)
    return (
        core.controller_id,
        core.incarnation_id,
        _fields(core, _CORE),
        _fields(core._lease, _LEASE),
        _fields(core._taking, _TAKING),
        None if reign is None else (_fields(reign, _REIGN), batch),
        questions,
    ), numbers


def _question(asked: _Question) -> Value:
    return type(asked.effect), _given(asked.effect)


def thaw(value: Value) -> ReignCore:
    """A core of this value, at time 0."""
    controller_id, incarnation_id, own, lease, taking, reign, questions = value
    core = ReignCore(controller_id, incarnation_id)
    _set(core, _CORE, own)
    _set(core._lease, _LEASE, lease)
    _set(core._taking, _TAKING, taking)
    # No back-off lasts, and a lease is renewed by a step of its own.
    core._lease._next_ms = core._finish_by_ms = 1
    if reign is not None:
        fields, batch = reign
        core._reign = _Reign(0)
        _set(core._reign, _REIGN, fields)
        if batch is not None:
            core._reign.batch = _Batch(batch[0], is_doubtful=batch[1])
    for number, (kind, given) in enumerate(questions, 1):
        core._questions[number] = _Question(kind(number, *given), 0, 0, None)
    core._last_question = len(questions)
    return core


def end_certainty(core: ReignCore) -> None:
    """So much time passes that the lease may have ended, and that nothing which was proven proves it now."""
    core._lease.late_at_ms = 0
    if core._reign is not None:
        core._reign.proven_ms = LONG_AGO_MS


def asked_at(core: ReignCore, number: int, sent_ms: int, applied: events.Head | None) -> None:
    """A read was asked for at ``sent_ms``, when the copy of the state ended at ``applied``."""
    core._questions[number] = _Question(core._questions[number].effect, sent_ms, 0, applied)


def _given(effect: Any) -> tuple[Any, ...]:
    return tuple(getattr(effect, name) for name in type(effect).__slots__ if name != "question")


def _fields(of: object, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(
        value is not None and events.HandOverAsked(0) if name == "hand_over" else value
        for name, value in zip(names, (getattr(of, name) for name in names), strict=True)
    )


def _set(of: object, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    for name, value in zip(names, values, strict=True):
        setattr(of, name, value or None if name == "hand_over" else value)


NAMES = ("c1", "c2")


class ReignBroken(AssertionError):
    """An invariant does not hold."""


class ReignStore(NamedTuple):
    """The store: what was written last, the election key, every transaction, and the leases that live."""

    revision: int
    key: events.Holder | None
    log: tuple[events.Head, ...]
    leases: frozenset[int]
    campaigns: int = 0
    """How often the key was put."""
    endings: int = 0
    """How many leases ended that no controller gave up."""
    takings: int = 0
    """How often a key was taken from a controller that refused connections, or that was asked to hand over."""
    restores: int = 0
    """How often the store may still be put back to an earlier state, with the controllers' own files lost."""
    sent: events.Head | None = None
    """The last transaction that nodes were sent, where the store may be, or was, put back."""

    @property
    def forgot(self) -> bool:
        """Whether it lacks something that nodes were sent."""
        return self.sent is not None and self.sent not in self.log

    @property
    def head(self) -> events.Head | None:
        """The last transaction."""
        return self.log[-1] if self.log else None


class ReignController(NamedTuple):
    """One controller: its core, and what became of each of its questions."""

    core: Value
    calls: tuple[Any, ...]
    """By question: None when it did not reach the store, else the answer that is under way: an event without time and
    number."""
    is_dropping: bool = False
    is_doubted: bool = False
    """Whether its reign waits for the word of a node (C37)."""


class ReignWorld(NamedTuple):
    """The world between two steps."""

    store: ReignStore
    controllers: tuple[ReignController, ...]
    late: frozenset[tuple[int, reigns_effects.ReignEffect]] = frozenset()
    """Writes that were given up without an answer, and may still reach the store: by whom, and what."""
    refused: frozenset[events.Head] = frozenset()
    """Batches that a caller heard are not stored."""


def start(restores: int = 0) -> ReignWorld:
    """An empty store, and two controllers with leases that campaign."""
    return ReignWorld(ReignStore(1, None, (), frozenset({1, 2}), restores=restores), _new_controllers())


def restored(world: ReignWorld, kept: int) -> ReignWorld:
    """The store has its first ``kept`` transactions; the controllers start again and know of no later ones."""
    store = world.store
    put_back = ReignStore(store.revision + 1, None, store.log[:kept], frozenset({1, 2}), restores=0, sent=store.sent)
    return ReignWorld(put_back, _new_controllers())


def _new_controllers() -> tuple[ReignController, ...]:
    controllers = []
    for lease_id, name in enumerate(NAMES, 1):
        core = ReignCore(name, f"{name}-process")
        asked = {type(effect): effect for effect in core.step(events.Ticked(0))}
        grant, read = asked[reigns_effects.GrantLease], asked[reigns_effects.ReadStore]
        assert isinstance(grant, reigns_effects.GrantLease) and isinstance(read, reigns_effects.ReadStore)
        core.step(events.LeaseGranted(0, grant.question, lease_id))
        core.step(events.TransactionsCame(0, None))
        core.step(events.StoreRead(0, read.question, 1, None, None))
        value, numbers = freeze(core)
        controllers.append(tidied(ReignController(value, (None,) * len(numbers))))
    return tuple(controllers)


def stepped(
    world: ReignWorld, who: int, core: ReignCore, event: events.ReignEvent, calls: dict[int, Any]
) -> ReignWorld:
    """The world after a controller took an event; ``calls`` are its calls under way, the answered one left out."""
    before = core.token
    effects = core.step(event)
    is_dropping, is_doubted = world.controllers[who].is_dropping, world.controllers[who].is_doubted
    for effect in effects:
        if isinstance(effect, reigns_effects.StartCore):
            _begins(world.store, core, effect)
            is_doubted = world.store.sent is not None
        elif isinstance(effect, reigns_effects.DropCore):
            is_dropping, is_doubted = True, False
        elif isinstance(effect, reigns_effects.AppendSettled):
            world = _settles(world, effect)
    if core.state is State.STOPPED:
        raise ReignBroken("I0: a controller believes that a sound store is damaged or went back in time")
    if core.token is not None and core.token != before and core.token in _tokens(world, who):
        raise ReignBroken(f"I21: two controllers reign with token {core.token}")
    return with_core(world, who, core, calls, is_dropping, is_doubted)


def with_core(
    world: ReignWorld, who: int, core: ReignCore, calls: dict[int, Any], is_dropping: bool, is_doubted: bool
) -> ReignWorld:
    """The world with another core in a controller's place."""
    value, numbers = freeze(core)
    answers = [None] * len(numbers)
    for number, place in numbers.items():
        answers[place - 1] = calls.get(number)
    controllers = list(world.controllers)
    controllers[who] = tidied(ReignController(value, tuple(answers), is_dropping, is_doubted))
    return world._replace(controllers=tuple(controllers))


def tidied(controller: ReignController) -> ReignController:
    """The same controller for all that behave alike.

    Nothing depends on the order of questions: they are sorted. Of reads that did not reach the store one is kept: when
    it was asked is chosen later (`steps`), and the core asks again as soon as none is left. The revision at which the
    key was seen last only tells which answers under way are older than that sight, since all that comes later has a
    higher one: the lowest that tells the same is kept.
    """
    *rest, questions = controller.core
    pairs = list(zip(questions, controller.calls, strict=True))
    asked = [pair for pair in pairs if not _is_unread(pair)]
    asked += [((reigns_effects.ReadStore, ()), None)] * any(map(_is_unread, pairs))
    asked.sort(key=repr)
    calls = tuple(answer for _, answer in asked)
    rest[OWN] = _with_lowest_revision(rest[OWN], calls)
    return controller._replace(core=(*rest, tuple(question for question, _ in asked)), calls=calls)


def _is_unread(pair: tuple[Value, Any]) -> bool:
    (kind, _), answer = pair
    return kind is reigns_effects.ReadStore and answer is None


def _with_lowest_revision(own: Value, calls: tuple[Any, ...]) -> Value:
    seen = own[KEY_REVISION]
    if seen is None:
        return own
    older = [revision for answer in calls if (revision := _revision_in(answer)) is not None and revision < seen]
    return (*own[:KEY_REVISION], max(older, default=0) + 1, *own[KEY_REVISION + 1 :])


def _revision_in(answer: Any) -> int | None:
    """The revision of the store that an answer under way shows."""
    return None if answer is None or len(answer) < 2 else int(answer[1])


def _tokens(world: ReignWorld, but: int) -> set[int | None]:
    return {thaw(each.core).token for who, each in enumerate(world.controllers) if who != but}


def _begins(store: ReignStore, core: ReignCore, effect: reigns_effects.StartCore) -> None:
    if (store.key is not None and store.key.token == effect.token) and effect.head != store.head:
        raise ReignBroken(
            f"I22: {core.controller_id} begins from {said(effect.head)}, the log ends at {said(store.head)}"
        )


def _settles(world: ReignWorld, effect: reigns_effects.AppendSettled) -> ReignWorld:
    is_stored = effect.head in world.store.log
    if effect.settled is reigns_effects.Settled.DONE and not is_stored:
        raise ReignBroken(f"I20: {said(effect.head)} is answered as done, and is not in the store")
    if effect.settled is reigns_effects.Settled.REFUSED:
        if is_stored:
            raise ReignBroken(f"I20: {said(effect.head)} is answered as refused, and is in the store")
        return world._replace(refused=world.refused | {effect.head})
    if effect.settled is reigns_effects.Settled.DONE and world.store.restores:
        return world._replace(store=world.store._replace(sent=effect.head))
    return world


def said(head: events.Head | None) -> str:
    """A transaction, for people."""
    return "nothing" if head is None else f"{head.offset} of {head.reign_id}"


def performed(
    store: ReignStore, effect: reigns_effects.ReignEffect, name: str, lease_id: int, refused: frozenset[events.Head]
) -> ReignStore:
    """The store after a write reached it; the store itself when it compared and wrote nothing."""
    incarnation = f"{name}-process"
    match effect:
        case reigns_effects.Campaign():
            # A put with a lease that has ended is refused.
            wanted = events.Holder(0, name, incarnation, effect.lease_id)
            key = (
                stored_values.put_key(store.key, wanted, store.revision + 1)
                if effect.lease_id in store.leases
                else None
            )
            if key is None:
                return store
            return store._replace(revision=store.revision + 1, key=key, campaigns=store.campaigns + 1)
        case reigns_effects.TakeKey():
            return _taken(store, effect.token, events.Holder(effect.token, name, incarnation, lease_id))
        case reigns_effects.Resign():
            store = _taken(store, effect.token, events.Holder(effect.token, name, incarnation, lease_id))
            return store if effect.lease_id is None else ended(store, effect.lease_id)
        case reigns_effects.Append():
            return _appended(store, effect, refused)
    raise AssertionError(effect)


def _appended(store: ReignStore, effect: reigns_effects.Append, refused: frozenset[events.Head]) -> ReignStore:
    if not stored_values.may_append(store.key, store.head, effect.token, effect.after):
        return store
    if store.key is None or store.key.token != effect.token:
        raise ReignBroken(f"I19: {said(effect.head)} is written with token {effect.token}, which reigns no more")
    if effect.head.offset != len(store.log) + 1:
        raise ReignBroken(f"I19: {said(effect.head)} is written after {said(store.head)}")
    if effect.head in refused:
        raise ReignBroken(f"I20: {said(effect.head)} was answered as refused, and is written")
    head = events.Head(effect.head.reign_id, effect.head.offset, effect.head.digest, store.revision + 1)
    return store._replace(revision=store.revision + 1, log=(*store.log, head))


def ended(store: ReignStore, lease_id: int) -> ReignStore:
    """The store after a lease ended, or was revoked: its key goes with it."""
    store = store._replace(leases=store.leases - {lease_id})
    return _deleted(store) if store.key is not None and store.key.lease_id == lease_id else store


def _taken(store: ReignStore, token: int, taker: events.Holder) -> ReignStore:
    key = stored_values.key_after_taking(store.key, token, taker)
    return store if key == store.key else store._replace(revision=store.revision + 1, key=key)


def _deleted(store: ReignStore) -> ReignStore:
    return store._replace(revision=store.revision + 1, key=None)
