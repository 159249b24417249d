"""Answers that wait until what they depend on is committed, and until a read barrier has passed (G5, G10).

Invariants: answers of one scope leave in the order in which they were decided; each leaves exactly once, by the HW and
its barrier, by its deadline, with the leadership, or with its caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from strandline.core.coordinator.machine import VerifyTransaction
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log.effects import Effect, SendAddPartitions
from strandline.core.log.events import CoordinatorAsked
from strandline.core.log.leader import LeaderReplica
from strandline.core.serving.produce_checks import Verification
from strandline.core.types import Offset, TopicPartition

Scope = str | None
"""A group or transactional id; None: the whole shard."""


@dataclass(slots=True)
class Held:
    """One answer, and what it waits for."""

    request_id: int
    scope: Scope
    deadline_ms: int
    answer: object
    note: object | None
    end: Offset | None
    """The HW must reach this; None if nothing it depends on was open."""
    barrier: int | None
    appended: bool
    """Whether something was appended for this request itself."""
    gone: bool = False


class Waiting:
    """The held answers of one shard, with the ends of its open writes."""

    def __init__(self) -> None:
        self._queues: dict[Scope, deque[Held]] = {}
        self._by_request: dict[int, Held] = {}
        self._by_deadline: list[tuple[int, int]] = []
        # Scope -> end of its last write that the HW has not reached. The order of writing is that of the ends.
        self._open: dict[str, Offset] = {}
        self._ends: deque[tuple[Offset, Scope]] = deque()
        self._barriers: deque[tuple[int, Scope]] = deque()
        self._last_end: Offset | None = None

    def __len__(self) -> int:
        return len(self._by_request)

    def wrote(self, scope: Scope, end: Offset) -> None:
        """A write of ``scope`` ends at ``end``, the log's current end; a scope of None belongs to no group or id."""
        self._last_end = end
        if scope is not None:
            self._open[scope] = end
        self._ends.append((end, scope))

    def end_for(self, scope: Scope) -> Offset | None:
        """The HW that an answer with the current state of ``scope`` needs; None if it has been reached."""
        return self._last_end if scope is None else self._open.get(scope)

    def must_queue(self, scope: Scope) -> bool:
        """Whether an answer of ``scope`` has others before it."""
        return scope in self._queues

    def hold(self, held: Held) -> None:
        """Keep an answer until `released` returns it."""
        self._by_request[held.request_id] = held
        heappush(self._by_deadline, (held.deadline_ms, held.request_id))
        self._queues.setdefault(held.scope, deque()).append(held)
        if held.scope is None and held.end is not None:
            self._ends.append((held.end, None))
        if held.barrier is not None:
            self._barriers.append((held.barrier, held.scope))
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * len(self._by_request):
            self._by_deadline = sorted(entry for entry in self._by_deadline if entry[1] in self._by_request)

    def released(self, hw: Offset, barrier: int) -> list[Held]:
        """The answers to send once the HW is ``hw`` and all barriers up to ``barrier`` have passed, in order."""
        touched: dict[Scope, None] = {}
        while self._ends and self._ends[0][0] <= hw:
            end, scope = self._ends.popleft()
            touched[scope] = None
            if scope is not None and self._open.get(scope) == end:
                del self._open[scope]
        if self._last_end is not None and self._last_end <= hw:
            self._last_end = None
        while self._barriers and self._barriers[0][0] <= barrier:
            touched[self._barriers.popleft()[1]] = None
        found: list[Held] = []
        for scope in touched:
            self._take_front(scope, hw, barrier, found)
        return found

    def _take_front(self, scope: Scope, hw: Offset, barrier: int, found: list[Held]) -> None:
        queue = self._queues.get(scope)
        if queue is None:
            return
        while queue:
            first = queue[0]
            if not first.gone:
                if (first.end is not None and first.end > hw) or (
                    first.barrier is not None and first.barrier > barrier
                ):
                    return
                self._by_request.pop(first.request_id, None)
                found.append(first)
            queue.popleft()
        del self._queues[scope]

    def expired(self, now_ms: int, hw: Offset, barrier: int) -> tuple[list[Held], list[Held]]:
        """(those whose deadline has come, those that may leave because one before them is gone)."""
        late: list[Held] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            held = self._by_request.get(heappop(self._by_deadline)[1])
            if held is not None and held.deadline_ms <= now_ms:
                late.append(held)
        return late, self._drop(late, hw, barrier)

    def behind_unpassed(self, hw: Offset, barrier: int) -> tuple[list[Held], list[Held]]:
        """As `expired`, for all that wait for a barrier that has not passed."""
        found = [h for h in self._by_request.values() if h.barrier is not None and h.barrier > barrier]
        return found, self._drop(found, hw, barrier)

    def call_gone(self, request_id: int, hw: Offset, barrier: int) -> list[Held]:
        """The caller needs no answer; returns the answers that can be sent because of that."""
        held = self._by_request.get(request_id)
        return self._drop([held], hw, barrier) if held is not None else []

    def _drop(self, gone: list[Held], hw: Offset, barrier: int) -> list[Held]:
        freed: list[Held] = []
        for held in gone:
            held.gone = True
            self._by_request.pop(held.request_id, None)
        for scope in dict.fromkeys(held.scope for held in gone):
            self._take_front(scope, hw, barrier, freed)
        return freed

    def all(self) -> list[Held]:
        """Every answer that is held, in the order of the requests."""
        return list(self._by_request.values())


# ---- read_barrier
# Decides when this node knows that it still led at some moment: read barriers of one leader epoch (G10).
#
# A barrier is a number that Fetch answers of the partition carry and that a follower repeats in its next Fetch. A node
# that repeats it did not lead yet when the barrier began, so what this leader had committed until then was the newest.
# That a Fetch merely arrived since proves nothing: it may have been sent before its sender was elected (TR40).

INTERVAL_MS = 100
"""The least time between the beginnings of two barriers; the requests that come meanwhile share the next one."""


class ReadBarrier:
    """The barriers of one led partition. `LeaderReplica.barrier` is the newest that has begun."""

    def __init__(self, leader: LeaderReplica) -> None:
        self._leader = leader
        self._begun = 0
        self._is_new = False
        self._begun_at_ms: int | None = None
        self._wanted = 0
        self.passed = 0
        """All barriers up to this one have passed."""

    def wait_number(self, now_ms: int) -> int:
        """The barrier that a request that comes now waits for: the next to begin."""
        self._wanted = self._begun + 1
        self.maybe_begin(now_ms)
        return self._wanted

    def maybe_begin(self, now_ms: int) -> bool:
        """Begin the barrier that is waited for, if the last one is old enough. Returns whether one began."""
        if self._wanted <= self._begun:
            return False
        if self._begun_at_ms is not None and now_ms - self._begun_at_ms < INTERVAL_MS:
            return False
        self._begun, self._begun_at_ms = self._wanted, now_ms
        self._leader.barrier = self._begun
        self._is_new = True
        return True

    @property
    def has_begun(self) -> bool:
        """Whether `take_begun` would say so."""
        return self._is_new

    def take_begun(self) -> bool:
        """Whether a barrier began since this was asked last: parked fetches of replicas carry it back at once."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def look(self) -> bool:
        """Whether a barrier has passed since this was asked last: every other replica that could be elected repeated
        it. None but a member of the ISR, as it may be by now, or of the ELR can be."""
        leader = self._leader
        others = (leader.isr.maximal | set(leader.image.elr)) - {leader.node_id}
        passed = self._begun
        for node_id in others:
            follower = leader.progress.get(node_id)
            passed = min(passed, follower.barrier_seen if follower is not None else 0)
        if passed <= self.passed:
            return False
        self.passed = passed
        return True


# ---- unverified
# Requests to coordinators that wait until the coordinator of their transaction has added the partition (X9, X16).
#
# Invariant: nothing was written for what waits here; each request leaves exactly once, by the answer, its deadline, a
# change of leader or with its caller.

TOO_LATE = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "the coordinator of the transaction did not confirm in time that the group takes part in it; ask again",
    Outcome.NOT_APPENDED,
)


class Released(NamedTuple):
    """A request that waits no longer."""

    event: CoordinatorAsked
    is_asked: bool
    """Whether the answer is about this request: the first one."""
    is_alike: bool
    """Whether it is of the transaction that the answer is about; a later one may be of the next."""


class _Waiting(NamedTuple):
    event: CoordinatorAsked
    producer_epoch: int


class UnverifiedRequests:
    """The unverified requests of one node."""

    def __init__(self, next_correlation_id: Callable[[], int]) -> None:
        self._next_correlation_id = next_correlation_id
        self._verification: Verification[_Waiting] = Verification()
        self._waiting: dict[int, CoordinatorAsked] = {}
        self._by_deadline: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, event: CoordinatorAsked, whose: VerifyTransaction, out: list[Effect]) -> None:
        """Keep a request behind those of its producer; the first of them is asked about."""
        tp, producer_id = event.tp, whose.producer_id
        if not self._verification.holds(tp, producer_id):
            correlation_id = self._next_correlation_id()
            self._verification.ask(correlation_id, tp, producer_id)
            out.append(SendAddPartitions(correlation_id, whose.transactional_id, producer_id, whose.producer_epoch, tp))
        self._verification.wait(tp, producer_id, _Waiting(event, whose.producer_epoch))
        self._waiting[event.request_id] = event
        heappush(self._by_deadline, (event.now_ms + event.timeout_ms, event.request_id))

    def answered(self, correlation_id: int) -> Iterator[Released]:
        """What waited for this answer and still does, in order."""
        found = self._verification.answered(correlation_id)
        for index, (event, producer_epoch) in enumerate(found):
            if self._waiting.get(event.request_id) is event:
                del self._waiting[event.request_id]
                yield Released(event, index == 0, producer_epoch == found[0].producer_epoch)

    def expired(self, now_ms: int) -> list[CoordinatorAsked]:
        """Those whose deadline has come."""
        late: list[CoordinatorAsked] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            deadline_ms, request_id = heappop(self._by_deadline)
            event = self._waiting.get(request_id)
            if event is not None and event.now_ms + event.timeout_ms == deadline_ms:
                late.append(self._waiting.pop(request_id))
        return late

    def call_gone(self, request_id: int) -> None:
        """The caller needs no answer."""
        self._waiting.pop(request_id, None)

    def resigned(self, tp: TopicPartition) -> list[CoordinatorAsked]:
        """Remove and return what waits in a partition that this node no longer leads."""
        found = [each.event for each in self._verification.resigned(tp) if each.event.request_id in self._waiting]
        for event in found:
            del self._waiting[event.request_id]
        return found


# ---- postponed
# Requests that cannot be decided before their group or transactional id has gone on (X9).
#
# Invariants: nothing was written for what waits here; each request leaves exactly once, to be decided again when a
# record of its scope is written, or by its deadline, a change of leader or with its caller; requests of a scope leave
# in the order in which they came.


class Postponed(NamedTuple):
    """A request that waits."""

    event: CoordinatorAsked
    scope: str
    refusal: Refusal
    """The answer if it waits too long."""


class PostponedRequests:
    """The postponed requests of one shard."""

    def __init__(self) -> None:
        # By request id, in the order in which they came.
        self._waiting: dict[int, Postponed] = {}
        self._of_scope: dict[str, list[int]] = {}
        self._by_deadline: list[tuple[int, int]] = []
        self._written: dict[str, None] = {}
        self.has_gone_on = False
        """Whether `take_up` would return anything; a field, because every step checks it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, postponed: Postponed, deadline_ms: int) -> None:
        """Keep a request until a record of its scope is written, or ``deadline_ms``."""
        request_id = postponed.event.request_id
        self._waiting[request_id] = postponed
        self._of_scope.setdefault(postponed.scope, []).append(request_id)
        heappush(self._by_deadline, (deadline_ms, request_id))
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * len(self._waiting):
            self._by_deadline = sorted(entry for entry in self._by_deadline if entry[1] in self._waiting)

    def wrote(self, scope: str | None) -> None:
        """A record of this scope was written."""
        if scope is not None and scope in self._of_scope:
            self._written[scope] = None
            self.has_gone_on = True

    def take_up(self) -> list[CoordinatorAsked]:
        """What is to be decided again because of what was written since this was asked last; it waits no longer."""
        written, self._written, self.has_gone_on = self._written, {}, False
        ids = [request_id for scope in written for request_id in self._of_scope.pop(scope, ())]
        return [self._waiting.pop(request_id).event for request_id in ids]

    def expired(self, now_ms: int) -> list[Postponed]:
        """Those whose deadline has come; they wait no longer."""
        late: list[Postponed] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            found = self._drop(heappop(self._by_deadline)[1])
            if found is not None:
                late.append(found)
        return late

    def call_gone(self, request_id: int) -> None:
        """The caller needs no answer."""
        self._drop(request_id)

    def all(self) -> list[CoordinatorAsked]:
        """Every request that waits, in the order in which they came."""
        return [each.event for each in self._waiting.values()]

    def _drop(self, request_id: int) -> Postponed | None:
        found = self._waiting.pop(request_id, None)
        if found is not None:
            others = self._of_scope[found.scope]
            others.remove(request_id)
            if not others:
                del self._of_scope[found.scope]
        return found
