"""The controllers of a scenario on one store: production cores of reigns, whose calls are answered at once.

Invariant: only a command delays, loses or stops anything. What the store compares is `sim.fenced_log`'s; each write is
checked as it is made (I19, I21), each reign where it begins (I22) and where it serves (I23), each end of an append when
it is known (I20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from strandline.core.control import events as want
from strandline.core.control.events import ControllerEffect, ControllerEvent, DoorsOpened, StepContinued
from strandline.core.control.state import ClusterState, Standing, standing
from strandline.core.messages import PartitionImage, Position
from strandline.core.reigns import effects as reigns_effects, events
from strandline.core.reigns.reign import FOLLOWING, ReignCore, State
from strandline_sim.control import stored_values
from strandline_sim.scenario.board import CONTROLLER
from strandline_sim.scenario.controlling import StagedController

Answer = tuple[Any, ...]
_WRITES = (reigns_effects.Append, reigns_effects.Campaign, reigns_effects.TakeKey, reigns_effects.Resign)


class ScenarioController:
    """One controller: its core of reigns and, while it reigns, the core that decides."""

    def __init__(self, name: str, *, life: int = 1, seen_revision: int = 0) -> None:
        self.name = name
        self.incarnation = f"{name}-{life}"
        self.core = ReignCore(name, self.incarnation, seen_revision=seen_revision)
        self.decider: StagedController | None = None
        self.is_paused = False
        self.stops_at_key = False
        """Whether it is paused as soon as it has won the key, before it learns that."""
        self.inbox: list[Callable[[], None]] = []
        """The actions to run when it resumes."""
        self.events: deque[events.ReignEvent] = deque()
        self.is_stepping = False
        self.applied = 0
        self.state: ClusterState | None = None
        self.batches = 0
        self.asked: _Asked | None = None
        self.waiting: deque[list[want.ControllerEffect]] = deque()


@dataclass(slots=True)
class _Asked:
    """A transaction that is being appended, and the action once it is stored."""

    head: events.Head
    after: ClusterState
    rest: list[want.ControllerEffect]


@dataclass(slots=True)
class StagedStore:
    """The store of the controllers."""

    key: events.Holder | None = None
    revision: int = 1
    heads: list[events.Head] = field(default_factory=list)
    states: list[ClusterState] = field(default_factory=list)
    leases: set[int] = field(default_factory=set)
    granted: int = 0
    is_away: bool = False
    is_full: bool = False
    lags: bool = False
    """Whether watches show no new transaction."""
    loses: str = ""
    """The part of the next write that is lost: its ``request``, its ``answer``, or nothing."""
    epochs: dict[int, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    restored: int = 0
    """The number of times it went back to an earlier state."""
    highest: int = 1
    """The highest revision it ever had."""

    def restore(self, count: int) -> None:
        """Go back to an earlier transaction (C40): the revision goes back, no controller holds a lease or the key."""
        self.highest = max(self.highest, self.revision)
        self.restored += 1
        del self.heads[count:], self.states[count:]
        self.key, self.revision = None, self.heads[-1].revision
        self.leases.clear()
        kept = self.states[-1].header.controller_epoch
        self.epochs = {epoch: token for epoch, token in self.epochs.items() if epoch <= kept}

    def hold(self, state: ClusterState) -> None:
        """Become what a recovery wrote: one state, at a revision that this store never had."""
        self.key, self.revision = None, max(self.highest, self.revision) + 1
        self.leases.clear()
        self.heads = [events.Head("recovery", state.header.metadata_offset, f"recovery.{self.restored}", self.revision)]
        self.states = [state]

    @property
    def head(self) -> events.Head | None:
        """The last transaction."""
        return self.heads[-1] if self.heads else None

    @property
    def state(self) -> ClusterState | None:
        """The state after the last transaction."""
        return self.states[-1] if self.states else None

    def put_key(self, key: events.Holder | None) -> None:
        """Change the key."""
        if key != self.key:
            self.key, self.revision = key, self.revision + 1

    def end_lease(self, lease_id: int) -> None:
        """End a lease, and its key with it."""
        self.leases.discard(lease_id)
        if self.key is not None and self.key.lease_id == lease_id:
            self.put_key(None)


class Deciding(Protocol):
    """The part of the control plane (`control.Control`) that the controllers need."""

    core: StagedController | None
    """The core of the reign that serves."""

    @property
    def now_ms(self) -> int: ...
    def new_core(self, state: ClusterState | None) -> StagedController: ...
    def started(self, reign_id: str) -> want.ControllerStarted: ...
    def serve(self, core: StagedController) -> None: ...
    def end(self) -> None: ...
    def perform_one(self, effect: ControllerEffect) -> None: ...
    def partition(self) -> PartitionImage | None: ...
    def stored(self, before: PartitionImage | None) -> None: ...
    def positions_sent(self) -> set[Position]: ...
    def tell(self, line: str) -> None: ...
    def trace(self, what: ControllerEvent | ControllerEffect) -> None: ...
    def breaks(self, invariant: str, how: str) -> None: ...


class StagedControllers:
    """The controllers of a scenario: a single one, ``ctl``, or several named ones."""

    def __init__(self, control: Deciding, names: Sequence[str]) -> None:
        self._control = control
        self._names = names
        self.store = StagedStore()
        self.members: dict[str, ScenarioController] = {}
        self.reigns = 0
        """The number of reigns so far."""
        self._starts = 0
        self._is_telling = False

    @property
    def is_several(self) -> bool:
        """Whether a scenario named controllers; the states of a single one are not shown."""
        return CONTROLLER not in self._names

    @property
    def active(self) -> ScenarioController | None:
        """The controller that serves."""
        core = self._control.core
        return next((each for each in self.members.values() if core is not None and each.decider is core), None)

    def start(self, seen: dict[str, int] | None = None) -> None:
        """Start those that do not run, from the revisions that they have ``seen``; the first one wins."""
        self._starts += 1
        begun = [name for name in self._names if name not in self.members]
        for name in begun:
            self.members[name] = ScenarioController(name, life=self._starts, seen_revision=(seen or {}).get(name, 0))
        for name in begun:
            self.take(self.members[name], events.Ticked(self._now_ms))
            self._follow(self.members[name])

    @property
    def is_paused(self) -> bool:
        """Whether the controller that decides is paused."""
        return self.active is not None and self.active.is_paused

    def restart_on(self, state: ClusterState) -> None:
        """Start a new process of every controller; all follow the recovered store."""
        before, seen = self._control.partition(), {name: each.core.revision for name, each in self.members.items()}
        self.store.hold(state)
        self._control.stored(before)
        self.members.clear()
        self.start(seen)

    @property
    def _now_ms(self) -> int:
        return self._control.now_ms

    def tick(self) -> None:
        """Time passed."""
        for member in self.members.values():
            if not member.is_paused:
                self.take(member, events.Ticked(self._now_ms))

    def resume(self, member: ScenarioController) -> None:
        """SIGCONT: everything that waited happens now, the oldest first."""
        member.is_paused = False
        waiting, member.inbox = member.inbox, []
        for action in waiting:
            action()
        self.take(member, events.Ticked(self._now_ms))
        self.tell_all()

    # Events in, effects out.

    def take(self, member: ScenarioController, event: events.ReignEvent) -> None:
        """Step a controller, and all that follows from it at once."""
        if member.is_paused:
            member.inbox.append(lambda: self.take(member, event))
            return
        self._step(member, event)

    def _step(self, member: ScenarioController, event: events.ReignEvent) -> None:
        member.events.append(event)
        if member.is_stepping:
            return
        member.is_stepping = True
        while member.events:
            before = member.core.state
            for effect in member.core.step(member.events.popleft()):
                self._perform(member, effect)
            if member.core.state is not before and self.is_several:
                self._control.tell(f"{member.name}: {before.value} to {member.core.state.value}")
        member.is_stepping = False
        self.tell_all()

    def _perform(self, member: ScenarioController, effect: reigns_effects.ReignEffect) -> None:
        now_ms, control = self._now_ms, self._control
        match effect:
            case reigns_effects.AppendSettled():
                self._settled(member, effect)
            case reigns_effects.StartCore():
                self._start_core(member, effect)
            case reigns_effects.OpenDoors():
                assert member.decider is not None
                if self.is_several:
                    # A single controller remembers only its store: only nodes can tell it that this is a copy (TR18).
                    self._knows_what_was_sent(member.name, member.decider.state)
                member.decider.step(DoorsOpened(now_ms, effect.closed_ms))
                control.serve(member.decider)
            case reigns_effects.CloseDoors():
                if control.core is not None and control.core is member.decider:
                    control.end()
            case reigns_effects.FinishCore():
                member.events.append(events.CoreFinished(now_ms))
            case reigns_effects.DropCore():
                member.decider, member.asked, member.applied, member.state = None, None, 0, None
                member.waiting.clear()
                member.events.append(events.CoreDropped(now_ms))
            case reigns_effects.NameSuccessor():
                token = self.store.key.token if self.store.key else 0
                for other in self.members.values():
                    if other is not member:
                        self.take(other, events.SuccessorNamed(now_ms, token, effect.controller_id))
            case reigns_effects.RevokeLease():
                self.store.end_lease(effect.lease_id)
            case reigns_effects.Stop():
                if effect.reason is not None:
                    control.tell(f"{member.name}: serves no more: {effect.reason.partition(':')[0]}")
            case reigns_effects.LookAtActive():
                look = (
                    events.ActiveProbe.REFUSED
                    if self.store.key and self.store.key.token == effect.token
                    else events.ActiveProbe.SILENT
                )
                member.events.append(events.Looked(now_ms, effect.question, look))
            case _ if hasattr(effect, "question"):
                if member.is_paused:
                    member.inbox.append(lambda: self._ask(member, effect))
                else:
                    self._ask(member, effect)

    def _ask(self, member: ScenarioController, effect: Any) -> None:
        store, is_write = self.store, isinstance(effect, _WRITES)
        if store.is_away:
            answer: Answer = (events.Unanswered,)
        elif is_write and store.loses:
            lost, store.loses = store.loses, ""
            if lost == "answer":
                self._reach(member, effect)
            answer = (events.Unanswered,)
        else:
            answer = self._reach(member, effect)
        kind, *given = answer
        if kind is events.CampaignWon and member.stops_at_key:
            member.is_paused, member.stops_at_key = True, False
        self.take(member, kind(self._now_ms, effect.question, *given))

    def _reach(self, member: ScenarioController, effect: Any) -> Answer:
        store = self.store
        match effect:
            case reigns_effects.GrantLease():
                if store.is_full:
                    return (events.NoSpace,)
                store.granted += 1
                store.leases.add(store.granted)
                return events.LeaseGranted, store.granted
            case reigns_effects.RenewLease():
                return (events.LeaseRenewed,) if effect.lease_id in store.leases else (events.LeaseLost,)
            case reigns_effects.ReadAlarm():
                return events.AlarmRead, store.is_full
            case reigns_effects.ReadStore():
                return events.StoreRead, store.revision, store.key, store.head
            case reigns_effects.ReadLog():
                self._apply(member, effect.head.offset)
                return events.LogRead, effect.head
            case reigns_effects.Campaign():
                return self._campaign(member, effect)
            case reigns_effects.TakeKey():
                before = store.key
                self._take_key(member, effect.token)
                return events.KeyTaken, store.revision, before is not None and store.key is None
            case reigns_effects.Resign():
                self._take_key(member, effect.token)
                if effect.lease_id is not None:
                    store.end_lease(effect.lease_id)
                return (events.Resigned,)
            case reigns_effects.Append():
                return self._append(member, effect)
        raise AssertionError(effect)

    def _campaign(self, member: ScenarioController, effect: reigns_effects.Campaign) -> Answer:
        store = self.store
        if store.key is not None:
            return events.CampaignLost, store.revision, store.key
        if store.is_full or effect.lease_id not in store.leases:
            return (events.NoSpace,)
        wanted = events.Holder(0, member.name, member.incarnation, effect.lease_id)
        store.put_key(stored_values.put_key(store.key, wanted, store.revision + 1))
        return events.CampaignWon, store.revision

    def _take_key(self, member: ScenarioController, token: int) -> None:
        taker = events.Holder(token, member.name, member.incarnation, member.core._lease.lease_id or 0)
        self.store.put_key(stored_values.key_after_taking(self.store.key, token, taker))

    def _append(self, member: ScenarioController, effect: reigns_effects.Append) -> Answer:
        store, asked, head = self.store, member.asked, effect.head
        if not stored_values.may_append(store.key, store.head, effect.token, effect.after):
            return events.AppendRefused, store.revision, store.key, store.head
        if store.is_full:
            return (events.NoSpace,)
        if store.key is None or store.key.token != effect.token:
            self._control.breaks(
                "I19", f"{member.name} writes offset {head.offset} with the token of a reign that ended"
            )
        if head.digest in store.refused:
            self._control.breaks("I20", f"{member.name} writes offset {head.offset}, which was answered as refused")
        assert asked is not None
        epoch = asked.after.header.controller_epoch
        if store.epochs.setdefault(epoch, effect.token) != effect.token:
            self._control.breaks("I21", f"controller epoch {epoch} has two reigns")
        store.revision += 1
        store.heads.append(events.Head(head.reign_id, head.offset, head.digest, store.revision))
        before = self._control.partition()
        store.states.append(asked.after)
        self._control.stored(before)
        return events.Appended, store.revision

    # The copies of the state.

    def _apply(self, member: ScenarioController, offset: int) -> None:
        member.applied = sum(head.offset <= offset for head in self.store.heads)
        member.state = self.store.states[member.applied - 1] if member.applied else None

    def _follow(self, member: ScenarioController) -> None:
        head, core = self.store.head, member.core
        is_news = not core._follows or (head is not None and core.applied != head)
        if core.state in FOLLOWING and is_news and not (self.store.lags and core._follows):
            self._apply(member, head.offset if head else 0)
            self.take(member, events.TransactionsCame(self._now_ms, head))
        if not member.is_paused and (member.core.holder != self.store.key or member.core._key_revision is None):
            self.take(member, events.KeyChanged(self._now_ms, self.store.revision, self.store.key))

    def tell_all(self) -> None:
        """Send all watches what changed."""
        if self._is_telling or self.store.is_away:
            return
        self._is_telling = True
        for member in self.members.values():
            if not member.is_stepping and not member.is_paused and member.core.state is not State.STOPPED:
                self._follow(member)
        self._is_telling = False

    # A reign.

    def _start_core(self, member: ScenarioController, effect: reigns_effects.StartCore) -> None:
        store = self.store
        if store.key is not None and store.key.token == effect.token and effect.head != store.head:
            ours, theirs = (0 if head is None else head.offset for head in (effect.head, store.head))
            self._control.breaks("I22", f"{member.name} begins from offset {ours}, the log ends at {theirs}")
        if any(each is not member and each.core.token == effect.token for each in self.members.values()):
            self._control.breaks("I21", f"{member.name} begins a reign with the token of another one")
        member.decider = self._control.new_core(member.state)
        self.reigns += 1
        started = self._control.started(f"{self.reigns:032x}")
        self._control.trace(started)
        self.run(member, member.decider.step(started))

    def _knows_what_was_sent(self, name: str, state: ClusterState) -> None:
        for position in self._control.positions_sent():
            if standing(state.reigns, state.header.metadata_offset, position) is Standing.UNKNOWN:
                how = f"{name} serves and does not know offset {position.metadata_offset}, which a node was sent"
                self._control.breaks("I23", how)

    def run(self, member: ScenarioController, effects: list[want.ControllerEffect]) -> None:
        """Perform a decision; the effects after a commit wait until that is stored."""
        if member.asked is not None:
            member.waiting.append(effects)
            return
        for at, effect in enumerate(effects):
            self._control.trace(effect)
            assert member.decider is not None
            if isinstance(effect, want.ContinueStep):
                self.run(member, member.decider.step(StepContinued(self._now_ms)))
            elif isinstance(effect, want.Commit):
                after = member.decider.state
                member.batches += 1
                digest = f"{member.incarnation}.{member.batches}"
                head = events.Head(member.name, after.header.metadata_offset, digest)
                member.asked = _Asked(head, after, effects[at + 1 :])
                self._step(member, events.AppendAsked(self._now_ms, head))
                return
            else:
                self._control.perform_one(effect)

    def _settled(self, member: ScenarioController, effect: reigns_effects.AppendSettled) -> None:
        asked, is_stored = member.asked, any(h.digest == effect.head.digest for h in self.store.heads)
        if (
            effect.settled is not reigns_effects.Settled.UNCERTAIN
            and (effect.settled is reigns_effects.Settled.DONE) != is_stored
        ):
            end = "is" if is_stored else "is not"
            how = f"{member.name} answers offset {effect.head.offset} as {effect.settled.value}, and it {end} stored"
            self._control.breaks("I20", how)
        if effect.settled is reigns_effects.Settled.REFUSED:
            self.store.refused.add(effect.head.digest)
        if effect.settled is not reigns_effects.Settled.DONE:
            self._control.tell(f"{member.name}: a change is {effect.settled.value}")
            return
        assert asked is not None
        member.asked = None
        self.run(member, asked.rest)
        while member.waiting and member.asked is None:
            self.run(member, member.waiting.popleft())
