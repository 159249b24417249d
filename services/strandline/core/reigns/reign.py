"""Decides whether this controller reigns: when it campaigns, takes over, serves, doubts, hands over and steps down.

Invariants: a reign writes with its token and after the head it knows, so the store alone decides between two
controllers (I19); it begins from a head read after it won (I22); nothing is answered before the store has it, and a
write without an answer is neither done nor refused until the store was read (C9). An event without a row in the table
changes nothing and is counted; an answer to no question is an assertion (C13).

`step` never waits. The performer asks `serves` with the time before each call it lets in and each tick of the
controller's core: a process that was stopped must not answer before its first `Ticked`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from strandline.core.reigns import effects, events
from strandline.core.reigns.lease import KeyTaking, Lease, ReignTimings

REMEDY = "stop all controllers and run `strandline controller recover` with the nodes' data directories"


class State(Enum):
    """The role of a controller in its cluster."""

    STANDBY = "standby"
    CAMPAIGNING = "campaigning"
    CATCHING_UP = "catching_up"
    """It holds the key, and does not know the whole log yet."""
    ACTIVE = "active"
    UNSURE = "unsure"
    """It was active a moment ago and cannot prove that it still is: it serves and decides nothing."""
    DEPOSED = "deposed"
    """Its reign is over; the core is being dropped."""
    STOPPED = "stopped"


REIGNING = frozenset({State.ACTIVE, State.UNSURE})
HOLDING = REIGNING | {State.CATCHING_UP}
FOLLOWING = frozenset({State.STANDBY, State.CAMPAIGNING, State.CATCHING_UP})


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked, when, and what was known then: a linearizable answer cannot show less."""

    effect: effects.ReignEffect
    sent_ms: int
    revision: int
    applied: events.Head | None


@dataclass(slots=True)
class _Batch:
    """The one append of a reign whose end is not known yet."""

    head: events.Head
    resend_at_ms: int | None = None
    is_doubtful: bool = False
    """Some copy of it was not answered, so it may take effect at any time."""


@dataclass(slots=True)
class _Reign:
    """One hold of the key."""

    token: int
    head: events.Head | None = None
    """The last one known to be stored."""
    is_head_read: bool = False
    """Whether ``head`` was read since the key was won."""
    has_begun: bool = False
    """Whether the reign's first transaction is stored."""
    batch: _Batch | None = None
    is_open: bool = False
    closed_since_ms: int = 0
    unsure_since_ms: int = 0
    proven_ms: int = 0
    """When the question was sent whose answer last proved the token."""
    is_full: bool = False
    hand_over: events.HandOverAsked | None = None


class ReignCore:
    """One controller among several. `step` is the only way in."""

    def __init__(
        self, controller_id: str, incarnation_id: str, timings: ReignTimings | None = None, seen_revision: int = 0
    ) -> None:
        """``seen_revision``: the highest that a linearizable answer ever showed to this data directory (C40)."""
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.state = State.STANDBY
        self.ignored: Counter[tuple[State, str]] = Counter()
        """Counts of events without a row in the table, by state and name of the event."""
        self.applied: events.Head | None = None
        """Where the performer's copy of the state ends."""
        self.holder: events.Holder | None = None
        """The active controller, as far as known."""
        self.revision = seen_revision
        """The highest revision that a linearizable answer has shown; kept on disk by the performer (C40)."""
        self._timings = timings or ReignTimings()
        self._lease = Lease(self._timings)
        self._taking = KeyTaking(controller_id, incarnation_id, self._timings)
        self._reign: _Reign | None = None
        self._follows = False
        self._key_revision: int | None = None
        self._named: str | None = None
        self._campaign_at_ms = 0
        self._read_at_ms = 0
        self._read_log_at_ms = 0
        self._backoff_ms = self._timings.backoff_ms
        self._finish_by_ms = 0
        self._then_stop = False
        self._current_at_ms: int | None = None
        self._now_ms = 0
        self._questions: dict[int, _Question] = {}
        self._last_question = 0
        self._out: list[effects.ReignEffect] = []
        self._rows = self._table()

    @property
    def token(self) -> int | None:
        """The token of this process's reign; None if it has none."""
        return self._reign.token if self._reign is not None else None

    def serves(self, now_ms: int) -> bool:
        """Whether a call may enter, and the core may tick, at this moment."""
        reign = self._reign
        return self.state is State.ACTIVE and reign is not None and reign.is_open and now_ms < self._lease.late_at_ms

    def is_ready(self, now_ms: int) -> bool:
        """Whether a standby had the whole log within the last 5 s (C17)."""
        return self._current_at_ms is not None and now_ms - self._current_at_ms <= 5_000

    def step(self, event: events.ReignEvent) -> list[effects.ReignEffect]:
        """Handle one event; returns the effects in the order in which they must be started."""
        self._now_ms = event.now_ms
        self._out = []
        question = self._answered_question(event)
        # Before anything else: this process may have been stopped since the last step, and its lease may be over.
        self._doubt()
        if self._shows_less(event, question):
            self._stop(f"the store went back in time: revision {self.revision} was there, {event!r}; {REMEDY}")
        else:
            self._take(event, question)
        self._move_on()
        return self._out

    # The table of C13.

    def _table(self) -> dict[tuple[State, type[Any]], Callable[..., None]]:
        standby, campaigning, catching_up = State.STANDBY, State.CAMPAIGNING, State.CATCHING_UP
        rows: dict[tuple[State, type[Any]], Callable[..., None]] = {
            (standby, events.PeerLost): self._peer_lost,
            (standby, events.Looked): self._looked,
            (standby, events.AlarmRead): self._alarm_read,
            (standby, events.KeyTaken): self._key_taken,
            (standby, events.SuccessorNamed): self._successor_named,
            (campaigning, events.CampaignWon): self._campaign_won,
            (campaigning, events.CampaignLost): self._lost,
            (State.ACTIVE, events.HandOverAsked): self._begin_hand_over,
            (State.ACTIVE, events.CoreFinished): self._resign,
            (State.UNSURE, events.CoreFinished): self._resign,
            (State.DEPOSED, events.CoreDropped): self._core_dropped,
            (State.DEPOSED, events.HandOverAsked): self._leave_when_asked,
        }
        for state in State:
            if state is not State.STOPPED:
                rows[state, events.Ticked] = lambda _event, _question: None
                rows[state, events.LeaseGranted] = self._lease_granted
                rows[state, events.LeaseRenewed] = self._lease_renewed
                rows[state, events.LeaseLost] = self._lease_lost
                rows[state, events.KeyChanged] = lambda event, _: self._key_is(
                    event.revision, event.holder, event.successor
                )
                rows[state, events.StoreBroken] = lambda event, _: self._stop(event.reason)
                rows[state, events.StoreRead] = self._store_read
            rows[state, events.Unanswered] = self._unanswered
            rows[state, events.Resigned] = lambda _event, _question: None
            rows[state, events.NoSpace] = self._no_space
            # Every caller that waits for a batch gets an end, in every state.
            rows[state, events.AppendAsked] = self._append_asked
        for state in FOLLOWING:
            rows[state, events.TransactionsCame] = lambda event, _: self._applied_is(event.head)
        for state in (standby, campaigning, catching_up):
            rows[state, events.HandOverAsked] = self._leave_when_asked
        rows[catching_up, events.LogRead] = lambda event, _: self._applied_is(event.head)
        for state in REIGNING:
            rows[state, events.Appended] = self._appended
            rows[state, events.AppendRefused] = self._append_refused
        rows[State.UNSURE, events.HandOverAsked] = self._begin_hand_over
        return rows

    def _answered_question(self, event: Any) -> _Question | None:
        number = getattr(event, "question", None)
        if number is None:
            return None
        assert number in self._questions, f"an answer to nothing: {event!r}"
        return self._questions.pop(number)

    def _take(self, event: Any, question: _Question | None) -> None:
        row = self._rows.get((self.state, type(event)))
        if row is None:
            self.ignored[self.state, type(event).__name__] += 1
        else:
            row(event, question)

    def _ask(self, build: Callable[[int], effects.ReignEffect]) -> None:
        self._last_question += 1
        effect = build(self._last_question)
        self._questions[self._last_question] = _Question(effect, self._now_ms, self.revision, self.applied)
        self._out.append(effect)

    def _is_asked(self, *kinds: type[Any]) -> bool:
        return any(isinstance(question.effect, kinds) for question in self._questions.values())

    def _shows_less(self, event: events.ReignEvent, question: _Question | None) -> bool:
        """Whether a linearizable answer is older than what was known when its question was sent (C40)."""
        if not isinstance(
            event,
            events.CampaignLost
            | events.StoreRead
            | events.KeyTaken
            | events.Appended
            | events.AppendRefused
            | events.CampaignWon,
        ):
            return False
        assert question is not None
        revision = event.token if isinstance(event, events.CampaignWon) else event.revision
        self.revision = max(self.revision, revision)
        return revision < question.revision

    # What follows from time alone.

    def _move_on(self) -> None:
        if self.state is State.STOPPED:
            return
        now_ms = self._now_ms
        self._doubt()
        self._tend_lease()
        if self.state is State.STANDBY:
            self._stand_by()
        elif self.state is State.CATCHING_UP:
            self._catch_up()
        elif self.state in REIGNING:
            self._reign_on()
        if self.state is not State.DEPOSED and now_ms >= self._read_at_ms and not self._is_asked(effects.ReadStore):
            self._read_at_ms = now_ms + self._timings.read_store_every_ms
            self._ask(effects.ReadStore)

    def _tend_lease(self) -> None:
        if not self._lease.is_due(self._now_ms) or self._is_asked(effects.GrantLease, effects.RenewLease):
            return
        lease_id = self._lease.lease_id
        if lease_id is not None:
            self._ask(lambda question: effects.RenewLease(question, lease_id))
        elif self.state is State.STANDBY:
            self._ask(lambda question: effects.GrantLease(question, self._timings.lease_ms))

    def _stand_by(self) -> None:
        now_ms, holder = self._now_ms, self.holder
        if not self._lease.is_live(now_ms) or not self._follows or self._key_revision is None:
            return
        if holder is None:
            if now_ms >= self._campaign_at_ms:
                self._campaign()
        elif holder.incarnation_id == self.incarnation_id and holder.lease_id == self._lease.lease_id:
            # A campaign without an answer took effect after all.
            self._won(holder.token, self._key_revision)
        elif self._is_asked(effects.LookAtActive, effects.ReadAlarm, effects.TakeKey):
            return
        elif self._taking.may_take(holder, now_ms):
            self._ask(effects.ReadAlarm)
        elif self._taking.look_due(holder, now_ms):
            self._ask(lambda question: effects.LookAtActive(question, holder.token))

    def _campaign(self) -> None:
        lease_id = self._lease.lease_id
        assert lease_id is not None
        self.state = State.CAMPAIGNING
        self._ask(lambda question: effects.Campaign(question, lease_id))

    def _doubt(self) -> None:
        """ACTIVE to UNSURE, by time alone."""
        reign = self._reign
        if self.state is State.ACTIVE and reign is not None and self._now_ms >= self._lease.late_at_ms:
            self._become_unsure(effects.Why.STORE_AWAY, self._lease.late_at_ms)

    def _become_unsure(self, why: effects.Why, since_ms: int) -> None:
        reign = self._reign
        assert reign is not None
        self.state = State.UNSURE
        reign.unsure_since_ms = self._now_ms
        # Only a read or an append that is sent from now on can prove that the key is still ours (C14).
        self._read_at_ms = self._now_ms
        if reign.is_open:
            reign.is_open = False
            reign.closed_since_ms = since_ms
        self._out.append(effects.CloseDoors(why))

    def _reign_on(self) -> None:
        reign, now_ms = self._reign, self._now_ms
        assert reign is not None
        if reign.hand_over is not None and (now_ms >= self._finish_by_ms or self.state is State.UNSURE):
            self._resign(None, None)
            return
        batch = reign.batch
        if batch is not None and batch.resend_at_ms is not None and now_ms >= batch.resend_at_ms:
            self._send(batch)
        # A renewal alone proves the lease, and the key may have been taken from it (C19).
        is_proven = self._lease.is_live(now_ms) and reign.proven_ms >= reign.unsure_since_ms
        if self.state is State.UNSURE and is_proven and not reign.is_full:
            self.state = State.ACTIVE
        if self.state is State.ACTIVE and not reign.is_open and reign.has_begun and reign.hand_over is None:
            reign.is_open = True
            self._out.append(effects.OpenDoors(now_ms - reign.closed_since_ms))

    # The lease.

    def _lease_granted(self, event: events.LeaseGranted, question: _Question) -> None:
        self._lease.granted(event.lease_id, question.sent_ms)

    def _lease_renewed(self, _event: events.LeaseRenewed, question: _Question) -> None:
        assert isinstance(question.effect, effects.RenewLease)
        if question.effect.lease_id == self._lease.lease_id:
            self._lease.renewed(question.sent_ms)

    def _lease_lost(self, _event: events.LeaseLost, question: _Question) -> None:
        assert isinstance(question.effect, effects.RenewLease)
        if question.effect.lease_id != self._lease.lease_id:
            return
        self._lease.gone(self._now_ms)
        if self.state in HOLDING:
            self._depose()
        elif self.state is State.CAMPAIGNING:
            self.state = State.STANDBY

    # Who holds the key.

    def _key_is(self, revision: int, holder: events.Holder | None, successor: str | None = None) -> None:
        """The key was so at ``revision``; its last holder named ``successor``, as far as is known."""
        # The watch may be behind a read.
        if self._key_revision is not None and revision < self._key_revision:
            return
        self._key_revision = revision
        before, self.holder = self.holder, holder
        if self._reign is not None:
            # The key can be taken while the lease lives (C19), so the key alone says whose reign it is.
            if revision >= self._reign.token and (holder is None or holder.token != self._reign.token):
                self._depose()
            return
        is_named = holder is None and successor not in (None, self._named)
        if is_named:
            # A read may overtake the watch, which would show the name before the deletion.
            self._named = successor
        if holder != before:
            self._out.append(effects.TellHint(holder))
            if holder is not None:
                self._named = None
        if holder is None and (before is not None or is_named) and self._named not in (None, self.controller_id):
            # Otherwise the named successor would only be one of those that race for the key (C22).
            self._campaign_at_ms = max(self._campaign_at_ms, self._now_ms + self._timings.successor_wait_ms)
        if self.state is State.CAMPAIGNING and holder is not None and not self._is_asked(effects.Campaign):
            self._campaign_settled(holder)

    def _campaign_won(self, event: events.CampaignWon, question: _Question) -> None:
        assert isinstance(question.effect, effects.Campaign)
        # A key that was won with a lease that is gone since goes with it.
        if question.effect.lease_id == self._lease.lease_id:
            self._won(event.token, event.token)

    def _lost(self, event: events.CampaignLost, _: _Question) -> None:
        self._key_is(event.revision, event.holder)
        if self.state is State.CAMPAIGNING:
            self._campaign_settled(event.holder)

    def _campaign_settled(self, holder: events.Holder) -> None:
        self.state = State.STANDBY
        # The key that this campaign found may have been put by an earlier one whose answer was lost.
        if holder.lease_id == self._lease.lease_id and holder.incarnation_id == self.incarnation_id:
            self._won(holder.token, holder.token)

    def _won(self, token: int, revision: int) -> None:
        self.state = State.CATCHING_UP
        lease_id = self._lease.lease_id
        assert lease_id is not None
        self._key_revision = max(self._key_revision or 0, revision)
        self.holder = events.Holder(token, self.controller_id, self.incarnation_id, lease_id)
        self._reign = _Reign(token)
        self._named = None
        self._ask_head()

    def _ask_head(self) -> None:
        # Once more: the reign before may have appended after the last read, and this one would give the same epochs
        # again (C18, TR26).
        self._read_at_ms = self._now_ms + self._timings.read_store_every_ms
        self._ask(effects.ReadStore)

    # STANDBY.

    def _peer_lost(self, event: events.PeerLost, _: None) -> None:
        self._taking.lost(event.token, self._now_ms)

    def _looked(self, event: events.Looked, _: _Question) -> None:
        self._taking.looked(event.look, self._now_ms)

    def _alarm_read(self, event: events.AlarmRead, _: _Question) -> None:
        holder = self.holder
        if holder is None or not self._taking.may_take(holder, self._now_ms):
            return
        self._taking.took(holder, self._now_ms)
        # A full store deletes keys but puts none: the cluster would lose its controller and get no other (C16).
        if not event.is_raised and self._lease.is_live(self._now_ms):
            self._ask(lambda question: effects.TakeKey(question, holder.token))
        else:
            self._taking.took_nothing(holder.token)

    def _key_taken(self, event: events.KeyTaken, question: _Question) -> None:
        assert isinstance(question.effect, effects.TakeKey)
        if not event.was_taken:
            self._taking.took_nothing(question.effect.token)
        elif self.holder is not None and self.holder.token == question.effect.token:
            self._key_is(event.revision, None)

    def _successor_named(self, event: events.SuccessorNamed, _: None) -> None:
        if self.holder is not None and self.holder.token == event.token:
            self._named = event.controller_id

    def _applied_is(self, head: events.Head | None) -> None:
        self._follows = True
        if self.applied is None or (head is not None and head.offset >= self.applied.offset):
            self.applied = head

    # What a read of the store shows.

    def _store_read(self, event: events.StoreRead, question: _Question) -> None:
        if why := self._why_older(event.head, question):
            self._stop(why)
            return
        self._backoff_ms = self._timings.backoff_ms
        self._key_is(event.revision, event.holder, event.successor)
        reign = self._reign
        if reign is None:
            if event.head == self.applied and self._follows:
                self._current_at_ms = self._now_ms
            if self.state is State.CAMPAIGNING and event.holder is None and not self._is_asked(effects.Campaign):
                self._campaign()
        elif self.state is State.CATCHING_UP:
            # From the revision of the token on every older token fails, so this head is final.
            if event.revision >= reign.token:
                reign.head, reign.is_head_read = event.head, True
        elif self.state in REIGNING:
            # The token is proven for the moment of the question; the answer may have been on its way for long (C14).
            reign.proven_ms = max(reign.proven_ms, question.sent_ms)
            self._head_is(reign, event.head, event.revision)

    def _why_older(self, head: events.Head | None, question: _Question) -> str | None:
        known = question.applied
        if known is None or (head is not None and head.offset > known.offset) or head == known:
            return None
        return f"the store went back in time: it ended at {known}, now at {head}; {REMEDY}"

    def _catch_up(self) -> None:
        reign = self._reign
        assert reign is not None
        if not reign.is_head_read or self._is_asked(effects.ReadLog):
            return
        head = reign.head
        if head == self.applied:
            self.state = State.ACTIVE
            reign.closed_since_ms = self._now_ms
            self._out.append(effects.StartCore(reign.token, head))
        elif head is None or (self.applied is not None and self.applied.offset >= head.offset):
            # The watch has brought what was written after the read, so by another reign: the next read will show it.
            reign.is_head_read = False
            if not self._is_asked(effects.ReadStore):
                self._ask_head()
        elif self._now_ms >= self._read_log_at_ms:
            self._ask(lambda question: effects.ReadLog(question, head))

    # Appends (C9).

    def _append_asked(self, event: events.AppendAsked, _: None) -> None:
        reign = self._reign
        if reign is None or self.state not in REIGNING:
            # Nothing was sent, so the store can never get it.
            self._out.append(effects.AppendSettled(event.head, effects.Settled.REFUSED))
            return
        assert reign.batch is None, "one batch at a time"
        reign.batch = _Batch(event.head)
        self._send(reign.batch)

    def _send(self, batch: _Batch) -> None:
        reign = self._reign
        assert reign is not None
        batch.resend_at_ms = None
        # The store compares both: a controller that wakes inside an append writes nothing (TR22), and of several copies
        # of a batch one takes effect (C9).
        after = reign.head.revision if reign.head is not None else 0
        self._ask(lambda question: effects.Append(question, reign.token, after, batch.head))

    def _appended(self, event: events.Appended, question: _Question) -> None:
        reign = self._reign
        assert reign is not None and isinstance(question.effect, effects.Append)
        reign.proven_ms = max(reign.proven_ms, question.sent_ms)
        if self._batch_of(question.effect) is not None:
            self._done(reign, event.revision)

    def _done(self, reign: _Reign, revision: int) -> None:
        assert reign.batch is not None
        head = replace(reign.batch.head, revision=revision)
        reign.head = self.applied = head
        reign.has_begun, reign.batch, reign.is_full = True, None, False
        self._out.append(effects.AppendSettled(head, effects.Settled.DONE))

    def _append_refused(self, event: events.AppendRefused, question: _Question) -> None:
        assert isinstance(question.effect, effects.Append)
        self._key_is(event.revision, event.holder)
        reign = self._reign
        if reign is None or self._batch_of(question.effect) is None:
            return
        if event.head is not None and event.head == question.effect.head:
            # An earlier copy was applied after the head had been read.
            self._done(reign, event.head.revision)
        else:
            self._stop(f"the store refused an append of its own token: it ends at {event.head}; {REMEDY}")

    def _head_is(self, reign: _Reign, head: events.Head | None, revision: int) -> None:
        """The store ended so at ``revision``, while the key was ours."""
        batch = reign.batch
        # The read was sent before the last append was done.
        if reign.head is not None and revision < reign.head.revision:
            return
        if batch is not None and head == batch.head:
            assert head is not None
            self._done(reign, head.revision)
        elif head != reign.head:
            self._stop(f"another process wrote with this reign's token: the store ends at {head}; {REMEDY}")
        elif (
            batch is not None
            and batch.is_doubtful
            and batch.resend_at_ms is None
            and not self._is_asked(effects.Append)
        ):
            # It is not stored, but its abandoned copy may still arrive: the same bytes with the same comparison are
            # sent again, which cannot be done twice (C9).
            self._send(batch)

    # Questions without an answer.

    def _unanswered(self, event: events.Unanswered, question: _Question) -> None:
        effect = question.effect
        if isinstance(effect, effects.GrantLease | effects.RenewLease):
            self._lease.failed(self._now_ms)
        elif isinstance(effect, effects.ReadStore):
            self._read_at_ms = self._back_off()
        elif isinstance(effect, effects.ReadLog):
            self._read_log_at_ms = self._back_off()
        elif isinstance(effect, effects.Campaign) and self.state is State.CAMPAIGNING:
            self._ask_head()
        elif isinstance(effect, effects.Append) and (batch := self._batch_of(effect)) is not None:
            # Only a read can decide: a refusal of what is stored, or a second append, would be wrong (TR25).
            batch.is_doubtful = True
            self._ask_head()
        elif isinstance(effect, effects.LookAtActive) and self.state is State.STANDBY:
            self._taking.looked(events.ActiveProbe.SILENT, self._now_ms)

    def _batch_of(self, effect: effects.Append) -> _Batch | None:
        batch = self._reign.batch if self._reign is not None else None
        return batch if batch is not None and batch.head == effect.head else None

    def _back_off(self) -> int:
        wait_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, self._timings.backoff_max_ms)
        return self._now_ms + wait_ms

    def _no_space(self, event: events.NoSpace, question: _Question) -> None:
        effect, reign = question.effect, self._reign
        if isinstance(effect, effects.GrantLease):
            self._lease.failed(self._now_ms)
        elif isinstance(effect, effects.Campaign) and self.state is State.CAMPAIGNING:
            self.state = State.STANDBY
            self._campaign_at_ms = self._now_ms + self._timings.backoff_max_ms
        elif isinstance(effect, effects.Append) and reign is not None and (batch := self._batch_of(effect)) is not None:
            batch.resend_at_ms = self._now_ms + self._timings.backoff_max_ms
            reign.is_full = True
            if self.state is State.ACTIVE:
                self._become_unsure(effects.Why.STORE_FULL, self._now_ms)

    # How a reign ends.

    def _begin_hand_over(self, event: events.HandOverAsked, _: None) -> None:
        reign = self._reign
        assert reign is not None
        self._then_stop = self._then_stop or event.then_stop
        if reign.hand_over is None:
            reign.hand_over, reign.is_open = event, False
            self._finish_by_ms = self._now_ms + self._timings.hand_over_ms
            self._out += [effects.CloseDoors(effects.Why.STANDBY), effects.FinishCore()]

    def _resign(self, _event: events.CoreFinished | None, _: None) -> None:
        reign = self._reign
        if reign is None or reign.hand_over is None:
            return
        to = reign.hand_over.to
        if to is not None:
            # Before the deletion, so that the others know the name when they see the key free (C22).
            self._out.append(effects.NameSuccessor(to))
            self._named = to
        # Without this wait, this controller could have its key back before another sees that it is free.
        self._campaign_at_ms = self._now_ms + self._timings.successor_wait_ms
        self._give_up_key(reign)
        self._depose()

    def _give_up_key(self, reign: _Reign) -> None:
        lease_id = self._lease.lease_id
        self._ask(lambda question: effects.Resign(question, reign.token, lease_id))
        self._lease.gone(self._now_ms)

    def _depose(self) -> None:
        """End the reign: nothing of it survives in memory (C13)."""
        had_core = self.state in REIGNING
        self._settle()
        self._reign = None
        self.state = State.DEPOSED
        if self.holder is not None and self.holder.incarnation_id == self.incarnation_id:
            self.holder = None
        self._out += [effects.CloseDoors(effects.Why.STANDBY), effects.TellHint(self.holder)]
        if had_core:
            self.applied, self._follows, self._current_at_ms = None, False, None
            self._out.append(effects.DropCore())
        else:
            self._core_dropped(None, None)

    def _settle(self) -> None:
        batch = self._reign.batch if self._reign is not None else None
        if batch is not None:
            # What was sent may be stored even after this reign, so its callers must not get a refusal (TR25).
            sent = self._is_asked(effects.Append)
            self._out.append(
                effects.AppendSettled(
                    batch.head, effects.Settled.UNCERTAIN if sent or batch.is_doubtful else effects.Settled.REFUSED
                )
            )

    def _core_dropped(self, _event: events.CoreDropped | None, _: None) -> None:
        if self._then_stop:
            self._end(None)
        else:
            self.state = State.STANDBY

    def _leave_when_asked(self, event: events.HandOverAsked, _: None) -> None:
        """A controller that is not active has nothing to hand over, but can be asked to stop."""
        if not event.then_stop:
            return
        self._then_stop = True
        if self.state is State.CATCHING_UP:
            reign = self._reign
            assert reign is not None
            self._give_up_key(reign)
            self._depose()
        elif self.state is not State.DEPOSED:
            self._end(None)

    def _end(self, reason: str | None) -> None:
        self.state = State.STOPPED
        if self._lease.lease_id is not None:
            self._out.append(effects.RevokeLease(self._lease.lease_id))
            self._lease.gone(self._now_ms)
        self._out.append(effects.Stop(reason))

    def _stop(self, reason: str) -> None:
        reign, self._then_stop = self._reign, True
        self._settle()
        if reign is not None:
            self._give_up_key(reign)
            had_core, self._reign = self.state in REIGNING, None
            self._out.append(effects.CloseDoors(effects.Why.STANDBY))
            if had_core:
                self._out.append(effects.DropCore())
        self._end(reason)
