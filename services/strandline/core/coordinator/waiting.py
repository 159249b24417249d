"""Answers that wait until what they depend on is committed, and until a read barrier has passed (G5, G10).

Invariants: answers of one scope leave in the order in which they were decided; each leaves exactly once, by the HW and
its barrier, by its deadline, with the leadership, or with its caller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from strandline.core.types import Offset

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

    @property
    def open_scopes(self) -> int:
        """How many scopes have a write that is not committed."""
        return len(self._open)

    def wrote(self, scope: Scope, end: Offset) -> None:
        """A write of ``scope`` ends at ``end``, the log's end now; None: one that is of no scope."""
        self._last_end = end
        if scope is not None:
            self._open[scope] = end
        self._ends.append((end, scope))

    def end_for(self, scope: Scope) -> Offset | None:
        """Up to where the HW must be for an answer that shows ``scope`` as it is now; None: it is there."""
        return self._last_end if scope is None else self._open.get(scope)

    def must_queue(self, scope: Scope) -> bool:
        """Whether an answer of ``scope`` has others before it."""
        return scope in self._queues

    def hold(self, held: Held) -> None:
        """Keep an answer until `released` gives it."""
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
        """What may leave now that the HW is ``hw`` and all barriers up to ``barrier`` have passed, in order."""
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
        """The caller needs no answer; returns what may leave because of that."""
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
