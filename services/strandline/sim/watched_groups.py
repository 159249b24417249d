"""The production machine of groups, with every row that it applies checked against I28 to I30."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.core.coordinator.machine import Batch, Context, Decision, Record
from strandline.core.groups.happenings import GroupObserver
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import GroupSettings
from strandline.runtime.patterns import Re2Patterns


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
