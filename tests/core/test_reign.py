"""Each row of the table of `core.reign` (C13): what a controller among several does, event by event."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from strandline.core.reigns import effects, events
from strandline.core.reigns.lease import ReignTimings
from strandline.core.reigns.reign import ReignCore, State

H1 = events.Head("r1", 1, "d1", 5)
H2 = events.Head("r1", 2, "d2", 6)
MINE = events.Head("r2", 2, "m2")
OTHER = events.Holder(4, "c9", "other", 99)
_Effect = TypeVar("_Effect")


class Reign:
    """A core with a clock, and the last question of each kind."""

    def __init__(self) -> None:
        self.core = ReignCore("c1", "here", ReignTimings())
        self.now_ms = 1_000
        self.out: list[effects.ReignEffect] = []
        self.asked: dict[type[Any], Any] = {}

    def step(self, build: Callable[[int], events.ReignEvent]) -> list[effects.ReignEffect]:
        """Step an event; ``build`` gets the time."""
        self.out = self.core.step(build(self.now_ms))
        self.asked.update({type(effect): effect for effect in self.out})
        return self.out

    def answer(
        self, asked: type[Any], kind: Callable[..., events.ReignEvent], *given: Any
    ) -> list[effects.ReignEffect]:
        """Answer the last question of a kind."""
        question = self.asked.pop(asked).question
        return self.step(lambda now_ms: kind(now_ms, question, *given))

    def pass_ms(self, ms: int) -> list[effects.ReignEffect]:
        """Time passes; the next tick comes after all of it."""
        self.now_ms += ms
        return self.step(events.Ticked)

    def want(self, kind: type[_Effect]) -> _Effect:
        """The one effect of a kind in the last step."""
        (found,) = [effect for effect in self.out if isinstance(effect, kind)]
        return found

    def wants(self, kind: type[Any]) -> bool:
        """Whether the last step wanted this."""
        return any(isinstance(effect, kind) for effect in self.out)

    def reads(self, revision: int, holder: events.Holder | None, head: events.Head | None) -> list[effects.ReignEffect]:
        return self.answer(effects.ReadStore, events.StoreRead, revision, holder, head)

    @property
    def state(self) -> State:
        return self.core.state

    def mine(self, token: int = 10) -> events.Holder:
        return events.Holder(token, "c1", "here", 7)


def standby(holder: events.Holder | None = OTHER, head: events.Head | None = H1) -> Reign:
    """A standby with a lease that has followed the log to ``head``."""
    reign = Reign()
    reign.step(events.Ticked)
    reign.answer(effects.GrantLease, events.LeaseGranted, 7)
    reign.step(lambda now_ms: events.TransactionsCame(now_ms, head))
    reign.reads(8, holder, head)
    return reign


@pytest.fixture
def reign() -> Reign:
    """A controller that waits beside an active one."""
    return standby()


def campaigning() -> Reign:
    """A controller whose campaign is under way."""
    return standby(holder=None)


def catching_up() -> Reign:
    """A controller that has just won with token 10."""
    reign = campaigning()
    reign.answer(effects.Campaign, events.CampaignWon, 10)
    return reign


def active() -> Reign:
    """A controller that reigns, its first transaction stored."""
    reign = catching_up()
    reign.reads(10, reign.mine(), H1)
    reign.step(lambda now_ms: events.AppendAsked(now_ms, MINE))
    reign.answer(effects.Append, events.Appended, 11)
    return reign


def unsure() -> Reign:
    """A controller whose lease may have ended."""
    reign = active()
    reign.pass_ms(2_500)
    return reign


def renew(reign: Reign) -> None:
    """Let the lease and the token be proven by questions sent now."""
    if effects.RenewLease in reign.asked:
        reign.answer(effects.RenewLease, events.Unanswered)
    reign.pass_ms(1_000)
    reign.answer(effects.RenewLease, events.LeaseRenewed)
    for _ in range(3):
        if reign.state is State.UNSURE and effects.ReadStore in reign.asked:
            reign.reads(20, reign.mine(), reign.core.applied)


def test_standby_without_a_lease_asks_for_one_and_does_nothing_else() -> None:
    """STANDBY, no lease: grant, with back-off; the key is gone, and it does not campaign."""
    reign = Reign()
    reign.step(events.Ticked)
    reign.step(lambda now_ms: events.TransactionsCame(now_ms, H1))
    reign.reads(8, None, H1)
    reign.answer(effects.GrantLease, events.Unanswered)
    waits = []
    for _ in range(400):
        if reign.wants(effects.GrantLease):
            waits.append(reign.now_ms)
            reign.answer(effects.GrantLease, events.NoSpace)
        reign.pass_ms(10)
        assert reign.state is State.STANDBY
    assert [later - sooner for sooner, later in itertools.pairwise(waits)] == [200, 400, 800, 1_000, 1_000]


def test_standby_campaigns_when_the_key_is_gone(reign: Reign) -> None:
    """STANDBY, key gone, own lease alive: CAMPAIGNING, campaign with that lease."""
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 9, None))

    assert reign.state is State.CAMPAIGNING
    assert reign.want(effects.Campaign).lease_id == 7


def test_standby_whose_lease_is_late_does_not_campaign(reign: Reign) -> None:
    """STANDBY, key gone, own lease perhaps ended: nothing until it was renewed."""
    reign.pass_ms(2_500)
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 9, None))
    assert reign.state is State.STANDBY
    reign.answer(effects.RenewLease, events.Unanswered)
    reign.pass_ms(100)
    reign.answer(effects.RenewLease, events.LeaseRenewed)

    assert reign.state is State.CAMPAIGNING


def test_older_words_of_a_watch_change_nothing(reign: Reign) -> None:
    """STANDBY: the watch shows a deletion older than what was read; no standby campaigns on it."""
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 7, None))

    assert reign.state is State.STANDBY
    assert reign.core.holder == OTHER


def test_named_successor_campaigns_at_once_and_others_wait() -> None:
    """STANDBY, named by ``--to``: campaign at the next "gone"; others 200 ms later."""
    named, other = standby(), standby()
    named.step(lambda now_ms: events.SuccessorNamed(now_ms, 4, "c1"))
    other.step(lambda now_ms: events.SuccessorNamed(now_ms, 4, "c2"))
    for reign in (named, other):
        reign.step(lambda now_ms: events.KeyChanged(now_ms, 9, None))

    assert (named.state, other.state) == (State.CAMPAIGNING, State.STANDBY)
    other.pass_ms(199)
    assert other.state is State.STANDBY
    other.pass_ms(1)
    assert other.state is State.CAMPAIGNING


@pytest.mark.parametrize("known", [OTHER, None])
def test_a_read_that_overtakes_the_watch_names_the_successor(known: events.Holder | None) -> None:
    """STANDBY, "gone" and the name read in one: the named one campaigns at once, others 200 ms later, once."""

    def gone(to: str) -> Reign:
        reign = standby()
        reign.core.holder = known
        reign.step(lambda now_ms: events.KeyChanged(now_ms, 9, None, to))
        return reign

    named, other = gone("c1"), gone("c2")
    assert (named.state, other.state) == (State.CAMPAIGNING, State.STANDBY)
    other.pass_ms(199)
    other.step(lambda now_ms: events.KeyChanged(now_ms, 9, None, "c2"))
    assert other.state is State.STANDBY
    other.pass_ms(1)
    assert other.state is State.CAMPAIGNING


def test_standby_takes_the_key_of_one_that_refuses(reign: Reign) -> None:
    """STANDBY, stream broke, then refused at both addresses: the alarm is read, then the key taken by its token."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    assert reign.want(effects.LookAtActive).token == 4
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    assert reign.wants(effects.ReadAlarm)
    reign.answer(effects.ReadAlarm, events.AlarmRead, False)
    assert reign.want(effects.TakeKey).token == 4
    reign.answer(effects.TakeKey, events.KeyTaken, 9, True)

    assert reign.state is State.CAMPAIGNING


def test_refusal_without_a_broken_stream_takes_nothing(reign: Reign) -> None:
    """C19: a proxy without a backend refuses too; a look at another token's reign is no ground either."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 3))
    reign.pass_ms(60)

    assert effects.LookAtActive not in reign.asked
    assert effects.TakeKey not in reign.asked


def test_five_looks_fifty_ms_apart(reign: Reign) -> None:
    """C19: a silent controller is looked at five times, 50 ms apart, and then left to its lease."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    looks = []
    for _ in range(100):
        if reign.wants(effects.LookAtActive):
            looks.append(reign.now_ms)
            reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.SILENT)
        reign.pass_ms(10)

    assert [look - looks[0] for look in looks] == [0, 50, 100, 150, 200]


def test_reached_controller_keeps_its_key(reign: Reign) -> None:
    """C19: a connection that is accepted ends the looks until a stream breaks again."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REACHED)
    reign.pass_ms(60)

    assert effects.LookAtActive not in reign.asked


def test_nothing_is_taken_under_an_alarm(reign: Reign) -> None:
    """C16: with an alarm the key is not touched: it could be deleted and no other written."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    reign.answer(effects.ReadAlarm, events.AlarmRead, True)

    assert effects.TakeKey not in reign.asked


def test_one_key_is_taken_in_ten_seconds(reign: Reign) -> None:
    """C19: a second refusing controller keeps its key until 10 s after the first taking."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    reign.answer(effects.ReadAlarm, events.AlarmRead, False)
    reign.answer(effects.TakeKey, events.KeyTaken, 9, True)
    reign.answer(effects.Campaign, events.CampaignLost, 12, OTHER._replace(token=12))
    reign.step(lambda now_ms: events.PeerLost(now_ms, 12))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    assert not reign.wants(effects.ReadAlarm)
    while reign.now_ms < 10_950:
        reign.pass_ms(50)
        if reign.wants(effects.RenewLease):
            reign.answer(effects.RenewLease, events.LeaseRenewed)
        assert effects.ReadAlarm not in reign.asked
    reign.pass_ms(50)

    assert reign.wants(effects.ReadAlarm)


def test_a_lost_race_for_a_key_is_no_taking(reign: Reign) -> None:
    """C19: one that was too late for a key may take the key of the next controller that refuses, without a pause."""
    reign.step(lambda now_ms: events.PeerLost(now_ms, 4))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    reign.answer(effects.ReadAlarm, events.AlarmRead, False)
    reign.answer(effects.TakeKey, events.KeyTaken, 9, False)
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 12, OTHER._replace(token=12)))
    reign.step(lambda now_ms: events.PeerLost(now_ms, 12))
    reign.answer(effects.LookAtActive, events.Looked, events.ActiveProbe.REFUSED)
    reign.answer(effects.ReadAlarm, events.AlarmRead, False)

    assert reign.want(effects.TakeKey).token == 12


def test_key_of_the_own_former_process_is_taken_at_once() -> None:
    """C20: the holder is this controller's earlier incarnation; the directory's lock proves it gone."""
    reign = standby(holder=events.Holder(4, "c1", "before", 3))
    assert reign.wants(effects.ReadAlarm)
    reign.answer(effects.ReadAlarm, events.AlarmRead, False)

    assert reign.want(effects.TakeKey).token == 4


def test_won_campaign_reads_the_head() -> None:
    """CAMPAIGNING, won with W: CATCHING_UP, read head."""
    reign = catching_up()

    assert reign.state is State.CATCHING_UP
    assert reign.wants(effects.ReadStore)
    assert reign.core.token == 10


def test_lost_campaign_hints_at_the_winner() -> None:
    """CAMPAIGNING, lost: STANDBY, hint = winner."""
    reign = campaigning()
    winner = OTHER._replace(token=9)
    reign.answer(effects.Campaign, events.CampaignLost, 9, winner)

    assert reign.state is State.STANDBY
    assert reign.want(effects.TellHint).holder == winner


def test_campaign_without_space_waits() -> None:
    """CAMPAIGNING, no space: STANDBY, and another campaign a second later."""
    reign = campaigning()
    reign.answer(effects.Campaign, events.NoSpace)
    assert reign.state is State.STANDBY
    reign.pass_ms(999)
    assert reign.state is State.STANDBY
    reign.pass_ms(1)

    assert reign.state is State.CAMPAIGNING


def test_lost_lease_ends_a_campaign() -> None:
    """CAMPAIGNING, own lease lost: STANDBY, and a new lease is asked for."""
    reign = campaigning()
    reign.pass_ms(1_000)
    reign.answer(effects.RenewLease, events.LeaseLost)

    assert reign.state is State.STANDBY
    assert reign.wants(effects.GrantLease)


@pytest.mark.parametrize(
    ("holder", "state"),
    [
        (events.Holder(10, "c1", "here", 7), State.ACTIVE),
        (OTHER._replace(token=9), State.STANDBY),
        (None, State.CAMPAIGNING),
    ],
)
def test_unknown_campaign_is_settled_by_a_read(holder: events.Holder | None, state: State) -> None:
    """CAMPAIGNING, unknown: read ``active``: mine by lease id is won, with a final head, another's is
    lost, none: again."""
    reign = campaigning()
    reign.answer(effects.Campaign, events.Unanswered)
    assert reign.wants(effects.ReadStore)
    reign.reads(11, holder, H1)

    assert reign.state is state
    assert (state is State.CAMPAIGNING) == reign.wants(effects.Campaign)


def test_head_read_before_the_win_is_not_final() -> None:
    """CATCHING_UP: a read that began before the key was won does not start the core (mutant 30)."""
    reign = campaigning()
    reign.pass_ms(1_000)
    early = reign.asked.pop(effects.ReadStore)
    reign.answer(effects.Campaign, events.CampaignWon, 10)
    reign.step(lambda now_ms: events.StoreRead(now_ms, early.question, 9, None, H1))

    assert reign.state is State.CATCHING_UP
    assert not reign.wants(effects.StartCore)


def test_catching_up_reads_again_while_the_store_is_away() -> None:
    """CATCHING_UP, store away: read again with back-off; a late lease changes nothing, the token decides."""
    reign = catching_up()
    for wait_ms in (100, 200, 400, 800, 1_000, 1_000):
        reign.answer(effects.ReadStore, events.Unanswered)
        reign.pass_ms(wait_ms - 1)
        assert not reign.wants(effects.ReadStore)
        reign.pass_ms(1)
        assert reign.wants(effects.ReadStore)
    reign.reads(10, reign.mine(), H1)

    assert reign.wants(effects.StartCore)


def test_catching_up_reads_what_is_missing() -> None:
    """CATCHING_UP, head H > applied: read log (applied, H]; then it starts the core at H."""
    reign = catching_up()
    reign.reads(10, reign.mine(), H2)
    assert reign.want(effects.ReadLog).head == H2
    reign.answer(effects.ReadLog, events.LogRead, H2)

    assert reign.state is State.ACTIVE
    assert reign.want(effects.StartCore) == effects.StartCore(10, H2)


def test_catching_up_behind_another_reign_reads_again() -> None:
    """CATCHING_UP: a late read shows less than the watch has brought since: another reign wrote that, and the next
    read says so; the store did not go back in time."""
    reign = catching_up()
    late = reign.asked.pop(effects.ReadStore)
    reign.step(lambda now_ms: events.TransactionsCame(now_ms, H2))
    reign.step(lambda now_ms: events.StoreRead(now_ms, late.question, 10, reign.mine(), H1))
    assert reign.state is State.CATCHING_UP
    reign.reads(31, OTHER._replace(token=30), H2)

    assert reign.state is State.STANDBY


def test_reign_begins_at_the_head_and_serves_after_its_first_commit() -> None:
    """CATCHING_UP, head = applied: ACTIVE, start core; the doors open when its first transaction is stored."""
    reign = catching_up()
    reign.reads(10, reign.mine(), H1)
    assert (reign.state, reign.want(effects.StartCore)) == (State.ACTIVE, effects.StartCore(10, H1))
    assert not reign.core.serves(reign.now_ms)
    reign.step(lambda now_ms: events.AppendAsked(now_ms, MINE))
    append = reign.want(effects.Append)
    assert (append.token, append.after, append.head) == (10, 5, MINE)
    assert not reign.wants(effects.OpenDoors)
    reign.now_ms += 300
    reign.answer(effects.Append, events.Appended, 11)

    assert reign.out[:2] == [effects.AppendSettled(MINE, effects.Settled.DONE), effects.OpenDoors(300)]
    assert reign.core.serves(reign.now_ms)


@pytest.mark.parametrize("build", [catching_up, active, unsure])
def test_reign_without_its_key_is_deposed(build: Callable[[], Reign]) -> None:
    """CATCHING_UP, ACTIVE, UNSURE, token gone: the doors close, the core is dropped, then it is a standby."""
    reign = build()
    had_core = reign.state is not State.CATCHING_UP
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 30, OTHER._replace(token=30)))
    assert reign.wants(effects.CloseDoors)
    assert reign.wants(effects.DropCore) == had_core
    if had_core:
        assert reign.state is State.DEPOSED
        reign.step(events.CoreDropped)

    assert reign.state is State.STANDBY
    assert reign.core.token is None
    assert not reign.core.serves(reign.now_ms)


def test_lost_lease_deposes() -> None:
    """ACTIVE, lease lost: DEPOSED."""
    reign = active()
    reign.pass_ms(1_000)
    reign.answer(effects.RenewLease, events.LeaseLost)

    assert reign.state is State.DEPOSED


def test_append_refused_by_the_token_deposes() -> None:
    """ACTIVE, append refused by the token: DEPOSED; the batch was refused for good, no copy of it is under way."""
    reign = active()
    following = events.Head("r2", 3, "m3")
    reign.step(lambda now_ms: events.AppendAsked(now_ms, following))
    reign.answer(effects.Append, events.AppendRefused, 30, OTHER._replace(token=30), events.Head("r3", 3, "x", 29))

    assert reign.state is State.DEPOSED
    assert reign.want(effects.AppendSettled).settled is effects.Settled.REFUSED


def _doubtful() -> tuple[Reign, events.Head]:
    reign, following = active(), events.Head("r2", 3, "m3")
    reign.step(lambda now_ms: events.AppendAsked(now_ms, following))
    reign.answer(effects.Append, events.Unanswered)
    assert not reign.wants(effects.AppendSettled)
    assert not reign.wants(effects.Append)
    assert reign.wants(effects.ReadStore)
    return reign, following


def test_unknown_append_that_was_made() -> None:
    """C9: head is mine: done."""
    reign, following = _doubtful()
    reign.reads(12, reign.mine(), events.Head("r2", 3, "m3", 12))

    assert reign.want(effects.AppendSettled) == effects.AppendSettled(following, effects.Settled.DONE)
    assert reign.state is State.ACTIVE


def test_unknown_append_that_was_not_made() -> None:
    """C9: head is the previous one and the token mine: the same bytes again, with the same comparison."""
    reign, following = _doubtful()
    reign.reads(12, reign.mine(), events.Head("r2", 2, "m2", 11))
    again = reign.want(effects.Append)
    assert (again.token, again.after, again.head) == (10, 11, following)
    assert not reign.wants(effects.AppendSettled)


def test_copy_of_an_append_that_came_late() -> None:
    """C9: the first copy took effect after the read; the second is refused by the head, which is mine: done."""
    reign, following = _doubtful()
    reign.reads(12, reign.mine(), events.Head("r2", 2, "m2", 11))
    reign.answer(effects.Append, events.AppendRefused, 13, reign.mine(), events.Head("r2", 3, "m3", 13))

    assert reign.want(effects.AppendSettled) == effects.AppendSettled(following, effects.Settled.DONE)


def test_unknown_append_of_a_reign_that_ended() -> None:
    """C9, TR25: token gone: a caller that waits learns that it may have been done, never a refusal."""
    reign, following = _doubtful()
    reign.reads(30, OTHER._replace(token=30), events.Head("r3", 4, "x", 29))

    assert reign.want(effects.AppendSettled) == effects.AppendSettled(following, effects.Settled.UNCERTAIN)
    assert reign.state is State.DEPOSED


def test_head_of_another_process_under_the_own_token() -> None:
    """C9: head neither mine nor the previous, with my token: the store is damaged; STOPPED."""
    reign, _ = _doubtful()
    reign.reads(30, reign.mine(), events.Head("r3", 3, "x", 29))

    assert reign.state is State.STOPPED
    assert "recover" in (reign.want(effects.Stop).reason or "")


def test_late_lease_makes_unsure() -> None:
    """ACTIVE, sent + TTL - 500 ms passed: UNSURE; the doors close without a hint, the core stays."""
    reign = active()
    reign.pass_ms(2_499)
    assert reign.state is State.ACTIVE
    assert not reign.core.serves(reign.now_ms + 1)
    reign.pass_ms(1)

    assert reign.state is State.UNSURE
    assert reign.want(effects.CloseDoors).why is effects.Why.STORE_AWAY
    assert not reign.wants(effects.DropCore)


def test_stopped_process_is_unsure_before_it_hears_anything() -> None:
    """C12: whatever wakes a process that was stopped for 10 s, its doors are closed first."""
    reign = active()
    reign.now_ms += 10_000
    assert not reign.core.serves(reign.now_ms)
    reign.step(lambda now_ms: events.KeyChanged(now_ms, 10, reign.mine()))

    assert isinstance(reign.out[0], effects.CloseDoors)
    assert reign.state is State.UNSURE


def test_unsure_is_left_when_lease_and_token_are_proven() -> None:
    """UNSURE, a renewal and a read prove lease and token: ACTIVE; the doors open with the time they were closed."""
    reign = unsure()
    renew(reign)

    assert reign.state is State.ACTIVE
    assert reign.want(effects.OpenDoors).closed_ms == 1_000


def test_renewal_alone_does_not_prove_the_token() -> None:
    """UNSURE: the key may have been taken from a lease that lives."""
    reign = unsure()
    reign.answer(effects.RenewLease, events.Unanswered)
    reign.pass_ms(1_000)
    reign.answer(effects.RenewLease, events.LeaseRenewed)
    assert reign.state is State.UNSURE
    reign.reads(30, OTHER._replace(token=30), events.Head("r3", 3, "x", 29))

    assert reign.state is State.DEPOSED


def test_full_store_closes_the_doors_until_the_append_is_made() -> None:
    """C29: an append refused for space is sent again each second; the reign is UNSURE until it was made."""
    reign = active()
    following = events.Head("r2", 3, "m3")
    reign.step(lambda now_ms: events.AppendAsked(now_ms, following))
    reign.answer(effects.Append, events.NoSpace)
    assert (reign.state, reign.want(effects.CloseDoors).why) == (State.UNSURE, effects.Why.STORE_FULL)
    renew(reign)
    assert reign.state is State.UNSURE
    assert reign.asked[effects.Append].head == following
    reign.answer(effects.Append, events.Appended, 25)

    assert reign.want(effects.AppendSettled).settled is effects.Settled.DONE
    assert reign.state is State.ACTIVE


def test_hand_over() -> None:
    """ACTIVE, hand over: the doors close, what is under way is finished, the key is deleted by token, then STANDBY."""
    reign = active()
    reign.step(lambda now_ms: events.HandOverAsked(now_ms, to="c2"))
    assert [type(effect) for effect in reign.out[:2]] == [effects.CloseDoors, effects.FinishCore]
    reign.step(events.CoreFinished)
    assert reign.want(effects.NameSuccessor).controller_id == "c2"
    assert (reign.want(effects.Resign).token, reign.want(effects.Resign).lease_id) == (10, 7)
    assert reign.wants(effects.DropCore)
    reign.step(events.CoreDropped)

    assert reign.state is State.STANDBY


def test_hand_over_does_not_wait_for_ever() -> None:
    """C22: an append without an end does not hold a hand-over longer than a second."""
    reign, following = _doubtful()
    reign.step(events.HandOverAsked)
    reign.pass_ms(1_000)

    assert reign.want(effects.AppendSettled) == effects.AppendSettled(following, effects.Settled.UNCERTAIN)
    assert reign.wants(effects.Resign)


def test_hand_over_that_stops() -> None:
    """SIGTERM: the same, and then STOPPED; a standby revokes its lease and stops at once."""
    reign = active()
    reign.step(lambda now_ms: events.HandOverAsked(now_ms, then_stop=True))
    reign.step(events.CoreFinished)
    reign.step(events.CoreDropped)
    other = standby()
    other.step(lambda now_ms: events.HandOverAsked(now_ms, then_stop=True))

    assert (reign.state, reign.want(effects.Stop).reason) == (State.STOPPED, None)
    assert (other.state, other.want(effects.RevokeLease).lease_id) == (State.STOPPED, 7)


@pytest.mark.parametrize("build", [standby, campaigning, catching_up, active, unsure])
def test_store_that_cannot_be_trusted_stops(build: Callable[[], Reign]) -> None:
    """Any state, StoreWentBack or StoreDamaged: STOPPED, the key is given up."""
    reign = build()
    held = reign.core.token
    reign.step(lambda now_ms: events.StoreBroken(now_ms, "it went back"))

    assert reign.state is State.STOPPED
    assert reign.want(effects.Stop).reason == "it went back"
    assert reign.wants(effects.Resign) == (held is not None)


def test_linearizable_answer_below_an_earlier_one_stops(reign: Reign) -> None:
    """C40: a linearizable read whose revision is below one seen before it was sent: the store went back in time."""
    reign.pass_ms(1_000)
    reign.reads(7, OTHER, H1)

    assert reign.state is State.STOPPED


def test_head_below_what_was_applied_stops() -> None:
    """C40: a store that ends below what this process applied went back, whatever its revision says."""
    reign = standby(head=H2)
    reign.pass_ms(1_000)
    reign.reads(50, OTHER, H1)

    assert reign.state is State.STOPPED


def test_event_without_a_row_is_counted(reign: Reign) -> None:
    """C13: it changes nothing and is counted by state and event."""
    before = reign.core.applied
    reign.step(events.CoreFinished)

    assert (reign.state, reign.core.applied) == (State.STANDBY, before)
    assert reign.core.ignored == {(State.STANDBY, "CoreFinished"): 1}


def test_answer_to_nothing_is_an_assertion(reign: Reign) -> None:
    """C13: an answer without a question breaks an assertion."""
    with pytest.raises(AssertionError, match="answer to nothing"):
        reign.step(lambda now_ms: events.Resigned(now_ms, 777))


def test_append_outside_a_reign_is_refused(reign: Reign) -> None:
    """The driver of a reign that is over waits for nothing."""
    reign.step(lambda now_ms: events.AppendAsked(now_ms, MINE))

    assert reign.want(effects.AppendSettled) == effects.AppendSettled(MINE, effects.Settled.REFUSED)


def test_standby_reads_the_store_every_second(reign: Reign) -> None:
    """C17: its lag is known; it is ready while it had the whole log within 5 s."""
    assert reign.core.is_ready(reign.now_ms + 5_000)
    assert not reign.core.is_ready(reign.now_ms + 5_001)
    reads = 0
    for _ in range(100):
        reign.pass_ms(50)
        if reign.wants(effects.ReadStore):
            reads += 1
            reign.reads(9, OTHER, H1)
        if reign.wants(effects.RenewLease):
            reign.answer(effects.RenewLease, events.LeaseRenewed)

    assert reads == 5


def test_lease_below_two_seconds_is_refused() -> None:
    """etcd grants none shorter than 2 s."""
    with pytest.raises(ValueError, match="at least 2"):
        ReignTimings(lease_ms=1_999)
