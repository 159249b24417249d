"""What clients of groups saw of committed offsets, and whether one register for each group explains it (I30).

Pure: a list of operations in, sentences out. A commit that was acknowledged counts from its answer at the latest; one
without an answer may count at any time from its sending on, or never, but once a read has returned it, it counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from strandline.core.coordinator.machine import Batch, Context, Decision, Record
from strandline.core.groups.happenings import GroupObserver
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import GroupSettings
from strandline.runtime.patterns import Re2Patterns


class CommitOutcome(StrEnum):
    """What a client knows of its commit."""

    DONE = "done"
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of one group; every value of a run is committed once."""

    group: str
    value: int | str
    invoked_us: int
    completed_us: int | None
    """None while it is open."""
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True)
class Fetched:
    """A read; None: nothing was committed. One that need not be the newest may be of a coordinator that was deposed,
    and yet never shows what may be undone."""

    group: str
    value: int | str | None
    invoked_us: int
    completed_us: int
    is_newest: bool = True


class _Register:
    """The commits of one group: by when each counts, and for any moment the one sent last of those that count by then.

    Reads count too: whatever one has shown counts from its answer on.
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
        """Of the commits that count before a moment, the one that was sent last."""
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
            return f"{read} returned a value that nobody had committed"
        if own.outcome is CommitOutcome.NOT_WRITTEN:
            return f"{read} returned the value of {own}"
    if not read.is_newest:
        return ""
    latest_us = min(register.by_us[own.value], read.completed_us) if own else -1
    other = register.last_sent(read.invoked_us)
    if other is not None and other.invoked_us > latest_us:
        return f"{read} missed {other}, which counted by {register.by_us[other.value]}"
    return ""


# ---- watched_groups
# The production machine of groups, with every row that it applies checked against I28 to I30.


class WatchedGroups(GroupMachine):
    """Decides as production does. A decision is known by the identity of its rows; what else is applied was written
    before: by a log that is loaded, or by a sweep."""

    def __init__(self, settings: GroupSettings, observer: GroupObserver) -> None:
        super().__init__(Re2Patterns(), settings, observer)
        self._invariants = GroupInvariants()
        self._decided: dict[int, tuple[object | None, Batch]] = {}

    def decide(self, request: object, context: Context) -> Decision:
        """As production; the decision is remembered until it is applied."""
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
        """As production, and look."""
        decided = self._decided.pop(id(record), None)
        if decided is not None:
            request, batch = decided
            self._invariants.decided(request, [batch])
            # The others of this batch follow at once.
            self._rest = len(batch) - 1
        elif self._rest:
            self._rest -= 1
        else:
            self._invariants.written_before(record)
        super().apply(record)

    _rest = 0
