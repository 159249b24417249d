"""Checks whether correct coordinators can explain what members of groups did and saw.

I29: an acknowledged commit comes from a member that was assigned the partition, and never at a time when
another member is known to hold it. I30: as `group_history`. I32: a member asks for no records of a partition after
another was assigned it. I33: every record below a committed offset was given to a member before.

Pure: a list of operations in, anomalies out; it knows nothing of coordinators, epochs and leases, so it cannot be
fooled by what they believe. Times are of one clock. A member is one life of one process.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from strandline.core.coordinator.machine import Batch, Context, Decision, Record
from strandline.core.groups.happenings import GroupObserver
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import GroupSettings
from strandline.runtime.patterns import Re2Patterns
from strandline_sim.checks.history import Anomaly

# ---- group history
# Checks whether one register for each group explains the committed offsets that clients saw (I30).
#
# Pure: a list of operations in, sentences out. A commit that was acknowledged counts from its answer at the latest; one
# without an answer may count at any time after it was sent, or never, but it counts once a read has returned it.


class CommitOutcome(StrEnum):
    """The outcome of a commit, as its client knows it."""

    DONE = "done"
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of one group; every value is committed once in a run."""

    group: str
    value: int | str
    invoked_us: int
    completed_us: int | None
    """None while it is open."""
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True)
class Fetched:
    """A read; None if nothing was committed. A read that need not be the newest may come from a deposed coordinator,
    but never shows a commit that may be undone."""

    group: str
    value: int | str | None
    invoked_us: int
    completed_us: int
    is_newest: bool = True


class _Register:
    """The commits of one group: when each counts, and for any moment the last one sent of those that count by then.

    Reads count too: a commit that a read has returned counts from the read's answer on.
    """

    def __init__(self, commits: Iterable[Committed], reads: Iterable[Fetched]) -> None:
        self.commits = {commit.value: commit for commit in commits}
        self.by_us = {
            commit.value: commit.completed_us
            for commit in self.commits.values()
            if commit.outcome is CommitOutcome.DONE and commit.completed_us is not None
        }
        for read in reads:
            if read.value is not None:
                self.by_us[read.value] = min(self.by_us.get(read.value, read.completed_us), read.completed_us)
        counted = sorted((by_us, value) for value, by_us in self.by_us.items() if value in self.commits)
        self._times = [by_us for by_us, _ in counted]
        self._last: list[Committed] = []
        for _, value in counted:
            commit = self.commits[value]
            last = self._last[-1] if self._last else commit
            self._last.append(commit if commit.invoked_us > last.invoked_us else last)

    def last_sent(self, before_us: int) -> Committed | None:
        """The commit that was sent last of those that count before a moment."""
        count = bisect_left(self._times, before_us)
        return self._last[count - 1] if count else None


def group_anomalies(operations: Iterable[Committed | Fetched]) -> list[str]:
    """Every read that no order of the commits explains, as a sentence; reads in the order of their answers."""
    commits: dict[str, list[Committed]] = defaultdict(list)
    reads: dict[str, list[Fetched]] = defaultdict(list)
    for each in operations:
        if isinstance(each, Committed):
            commits[each.group].append(each)
        else:
            reads[each.group].append(each)
    registers = {group: _Register(commits[group], of) for group, of in reads.items()}
    answered = sorted((read for of in reads.values() for read in of), key=lambda read: read.completed_us)
    return [sentence for read in answered if (sentence := _wrong(read, registers[read.group]))]


def _wrong(read: Fetched, register: _Register) -> str:
    own = register.commits.get(read.value) if read.value is not None else None
    if read.value is not None:
        if own is None or own.invoked_us > read.completed_us:
            return f"{read} returned a value that no client had committed"
        if own.outcome is CommitOutcome.NOT_WRITTEN:
            return f"{read} returned the value of {own}"
    if not read.is_newest:
        return ""
    latest_us = min(register.by_us[own.value], read.completed_us) if own else -1
    other = register.last_sent(read.invoked_us)
    if other is not None and other.invoked_us > latest_us:
        return f"{read} missed {other}, which counted by {register.by_us[other.value]}"
    return ""


# ---- watched groups
# The production machine of groups, which has every row that it applies checked against I28 to I30.


class WatchedGroups(GroupMachine):
    """Decides as production does. A decision is recognized by the identity of its rows; other applied rows were written
    before: by a log that is loaded, or by a sweep."""

    def __init__(self, settings: GroupSettings, observer: GroupObserver) -> None:
        super().__init__(Re2Patterns(), settings, observer)
        self._invariants = GroupInvariants()
        self._decided: dict[int, tuple[object | None, Batch]] = {}

    def decide(self, request: object, context: Context) -> Decision:
        """Decide as production does, and remember the decision until it is applied."""
        return self._remember(request, super().decide(request, context))

    def tick(self, context: Context) -> Sequence[Decision]:
        """As production."""
        return [self._remember(None, decision) for decision in super().tick(context)]

    def computed(self, result: object, context: Context) -> Decision:
        """As production."""
        return self._remember(None, super().computed(result, context))

    def _remember(self, request: object | None, decision: Decision) -> Decision:
        self._decided = {id(batch[0]): (request, batch) for batch in decision.batches} | (
            self._decided if request is None else {}
        )
        return decision

    def apply(self, record: Record) -> None:
        """Apply as production does, and check."""
        decided = self._decided.pop(id(record), None)
        if decided is not None:
            request, batch = decided
            self._invariants.decided(request, [batch])
            # The other rows of this batch follow at once.
            self._rest = len(batch) - 1
        elif self._rest:
            self._rest -= 1
        else:
            self._invariants.written_before(record)
        super().apply(record)

    _rest = 0


class Share(NamedTuple):
    """A partition that one group reads."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A member learned that a partition is assigned to it; its coordinator had decided that by then."""

    member: str
    share: Share
    at_us: int


@dataclass(frozen=True, slots=True)
class Given:
    """Records in [``begin``, ``end``) were given to a member that asked for records."""

    member: str
    share: Share
    begin: int
    end: int
    invoked_us: int
    """When it asked."""
    completed_us: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """A member, or None for no member, committed an offset; each commit has its own serial in its group's partition."""

    member: str | None
    share: Share
    offset: int
    serial: str
    invoked_us: int
    completed_us: int | None
    """None while it is open."""
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True)
class Fetch:
    """A client read the committed offset; None if there is none."""

    share: Share
    offset: int | None
    serial: str | None
    invoked_us: int
    completed_us: int


MemberOperation = Taken | Given | OffsetCommitted | Fetch


_when = attrgetter("at_us")


class _Known(NamedTuple):
    """A period in which a member is known to hold a partition."""

    member: str
    since_us: int
    until_us: int


class _OfShare:
    """The operations of one partition of one group, in the order of their times."""

    def __init__(self, operations: Iterable[MemberOperation]) -> None:
        self.taken: list[Taken] = []
        self.given: list[Given] = []
        self.commits: list[OffsetCommitted] = []
        self.fetches: list[Fetch] = []
        for operation in operations:
            match operation:
                case Taken():
                    self.taken.append(operation)
                case Given():
                    self.given.append(operation)
                case OffsetCommitted():
                    self.commits.append(operation)
                case Fetch():
                    self.fetches.append(operation)
        self.taken.sort(key=_when)
        self.given.sort(key=attrgetter("completed_us"))
        self._by_member: dict[str, list[Taken]] = defaultdict(list)
        for taken in self.taken:
            self._by_member[taken.member].append(taken)

    def right(self, member: str | None, at_us: int) -> Taken | None:
        """The last assignment that a member had learned by a moment."""
        of = self._by_member.get(member or "", [])
        count = bisect_right(of, at_us, key=_when)
        return of[count - 1] if count else None

    def next_other(self, right: Taken) -> Taken | None:
        """The first member that was assigned the partition after ``right``, unless it is the same member."""
        later = islice(self.taken, bisect_right(self.taken, right.at_us, key=_when), None)
        return next((each for each in later if each.member != right.member), None)


def member_anomalies(operations: Iterable[MemberOperation]) -> list[Anomaly]:
    """All anomalies of a history; empty if correct coordinators and members explain it."""
    return [anomaly for each in _by_share(operations).values() for rule in _RULES for anomaly in rule(each)]


def offsets_that_went_back(operations: Iterable[MemberOperation]) -> list[Anomaly]:
    """Every committed offset below an earlier known one, where members commit only what they were given.

    Known offsets are those of acknowledged commits and of reads, and the offsets where members began to read.
    """
    return [anomaly for each in _by_share(operations).values() for anomaly in _went_back(each)]


def _by_share(operations: Iterable[MemberOperation]) -> dict[Share, _OfShare]:
    found: dict[Share, list[MemberOperation]] = defaultdict(list)
    for operation in operations:
        found[operation.share].append(operation)
    return {share: _OfShare(found[share]) for share in sorted(found)}


def _strangers(history: _OfShare) -> Iterator[Anomaly]:
    """I29."""
    known = _known(history)
    for commit in history.commits:
        end_us = commit.completed_us
        if commit.outcome is not CommitOutcome.DONE or end_us is None:
            continue
        if commit.member is not None and history.right(commit.member, end_us) is None:
            yield Anomaly("I29", f"{commit} was acknowledged, and its member was never assigned the partition")
        for held in known:
            if held.member != commit.member and held.since_us < commit.invoked_us and end_us < held.until_us:
                yield Anomaly("I29", f"{commit} was acknowledged while {held.member} held the partition: {held}")
                break


def _known(history: _OfShare) -> list[_Known]:
    """The periods from the assignment of the partition to a member until it last did what only the holder can do."""
    until: dict[Taken, int] = {}
    proofs = [(given.member, given.invoked_us, given.invoked_us) for given in history.given]
    for commit in history.commits:
        if commit.outcome is CommitOutcome.DONE and commit.member is not None and commit.completed_us is not None:
            proofs.append((commit.member, commit.invoked_us, commit.completed_us))
    for member, at_us, end_us in proofs:
        right = history.right(member, at_us)
        if right is None or right is not history.right(member, end_us):
            continue
        other = history.next_other(right)
        if other is None or other.at_us > end_us:
            until[right] = max(at_us, until.get(right, at_us))
    return [_Known(right.member, right.at_us, until_us) for right, until_us in until.items()]


def _stale(history: _OfShare) -> Iterator[Anomaly]:
    """I30."""
    seen: list[Committed | Fetched] = [
        Committed(str(each.share), each.serial, each.invoked_us, each.completed_us, each.outcome)
        for each in history.commits
    ]
    seen += [Fetched(str(each.share), each.serial, each.invoked_us, each.completed_us) for each in history.fetches]
    for sentence in group_anomalies(seen):
        yield Anomaly("I30", sentence)


def _shared(history: _OfShare) -> Iterator[Anomaly]:
    """I32."""
    for given in history.given:
        right = history.right(given.member, given.completed_us)
        if right is None:
            yield Anomaly("I32", f"{given} was of a partition that its member was never assigned")
            continue
        other = history.next_other(right)
        if other is not None and other.at_us < given.invoked_us:
            yield Anomaly("I32", f"{given} was asked for after another was assigned the partition: {other}")


def _skipped(history: _OfShare) -> Iterator[Anomaly]:
    """I33."""
    shown: list[tuple[int, int, OffsetCommitted | Fetch]] = [
        (each.invoked_us, each.offset, each) for each in history.commits if each.outcome is CommitOutcome.DONE
    ]
    shown += [(each.completed_us, each.offset, each) for each in history.fetches if each.offset is not None]
    reached, index = 0, 0
    ahead: list[tuple[int, int]] = []
    for at_us, offset, what in sorted(shown, key=lambda each: each[:2]):
        while index < len(history.given) and history.given[index].completed_us <= at_us:
            heapq.heappush(ahead, (history.given[index].begin, history.given[index].end))
            index += 1
        while ahead and ahead[0][0] <= reached:
            reached = max(reached, heapq.heappop(ahead)[1])
        if offset > reached:
            yield Anomaly("I33", f"record {reached} had not been given to any member at {what}")


def _went_back(history: _OfShare) -> Iterator[Anomaly]:
    shown = [
        (each.invoked_us, each.completed_us, each.offset, str(each))
        for each in history.commits
        if each.outcome is CommitOutcome.DONE and each.completed_us is not None
    ]
    shown += [(each.invoked_us, each.completed_us, each.offset or 0, str(each)) for each in history.fetches]
    begun: set[Taken] = set()
    for given in history.given:
        right = history.right(given.member, given.invoked_us)
        if right is not None and right not in begun:
            begun.add(right)
            shown.append((right.at_us, given.completed_us, given.begin, str(given)))
    finished = sorted(shown, key=lambda each: each[1])
    index, highest, by = 0, 0, ""
    for invoked_us, _, offset, what in sorted(shown):
        while index < len(finished) and finished[index][1] < invoked_us:
            if finished[index][2] > highest:
                highest, by = finished[index][2:]
            index += 1
        if offset < highest:
            yield Anomaly("went-back", f"{what} came after {by}")


_RULES: tuple[Callable[[_OfShare], Iterator[Anomaly]], ...] = (_strangers, _stale, _shared, _skipped)
