"""Requests that cannot be decided before their group or transactional id has gone on (X9).

Invariants: nothing was written for what waits here; each request leaves exactly once, to be decided again when a record
of its scope is written, or by its deadline, a change of leader or with its caller; requests of a scope leave in the
order in which they came.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.events import CoordinatorAsked


class Postponed(NamedTuple):
    """A request that waits."""

    event: CoordinatorAsked
    scope: str
    refusal: Refusal
    """Its answer if it waits too long."""


class PostponedRequests:
    """Those of one shard."""

    def __init__(self) -> None:
        # By request id, in the order in which they came.
        self._waiting: dict[int, Postponed] = {}
        self._of_scope: dict[str, list[int]] = {}
        self._by_deadline: list[tuple[int, int]] = []
        self._written: dict[str, None] = {}
        self.has_gone_on = False
        """Whether `take_up` would give anything; a field, because every step asks."""

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
