"""Clients of groups in a run that commit offsets without a member, and read the newest offsets.

Invariant: each value is committed once in a run, so a read shows whose commit it saw.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from strandline.core.errors import Outcome, Refusal
from strandline.core.groups.messages import OffsetCommit, OffsetFetch, OffsetsCommitted, OffsetsFetched, OffsetToCommit
from strandline.core.log.events import CoordinatorAsked
from strandline.core.types import Offset, TopicPartition
from strandline_sim.checks.group_history import CommitOutcome, Committed, Fetched
from strandline_sim.clients.clients import Client
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call

TIMEOUT_MS = 400
DEADLINE_US = 500_000
GAP_US = (1_000, 25_000)
CLIENTS = 6
GROUPS = 6


class Committer(Client):
    """A client of the groups that one partition coordinates, with one request in flight."""

    def __init__(self, world: Cluster, number: int, tp: TopicPartition) -> None:
        super().__init__(world, number, tp)
        self.stopped = False
        self._next = 1
        self._offset_of = world.tps[0]
        self.open: Committed | None = None
        """The commit that is not answered yet; a read may show it nevertheless."""

    def start(self) -> None:
        """Begin after a while."""
        self.world.timeline.after(self.draw.between(*GAP_US), self._act)

    def _act(self) -> None:
        if self.stopped:
            return
        leader = self.leader()
        if leader is None:
            self.start()
            return
        begun_us = self.world.timeline.now_us
        group = f"g{self.tp.partition}-{self.draw.below(GROUPS)}"
        if self.draw.chance(500):
            value = self._next * CLIENTS + self.number
            self._next += 1
            offset = OffsetToCommit(self._offset_of, Offset(value))
            request: Any = OffsetCommit(group_id=group, offsets=(offset,))
            self.open = Committed(group, value, begun_us, None, CommitOutcome.UNKNOWN)
            answered = partial(self._committed, self.open)
        else:
            newest = not self.draw.chance(300)
            request = OffsetFetch(group_id=group, partitions=(self._offset_of,), require_stable=newest)
            answered = partial(self._fetched, group, begun_us, newest)

        def serve(call: Call) -> None:
            self.world.process_at(int(leader)).serve(
                call, lambda now_ms, call_id: CoordinatorAsked(now_ms, call_id, self.tp, TIMEOUT_MS, request)
            )

        self.world.network.call(self, int(leader), serve, answered, deadline_us=DEADLINE_US)

    def _committed(self, sent: Committed, answer: Any) -> None:
        outcome = self._outcome(answer)
        self.world.group_history.append(replace(sent, completed_us=self.world.timeline.now_us, outcome=outcome))
        self.open = None
        self.world.coverage.saw(f"group commit {outcome}")
        self.start()

    def _outcome(self, answer: Any) -> CommitOutcome:
        if isinstance(answer, OffsetsCommitted) and answer.partitions[0].refusal is None:
            return CommitOutcome.DONE
        refusal = answer.partitions[0].refusal if isinstance(answer, OffsetsCommitted) else answer
        self._refused(refusal)
        is_definite = isinstance(refusal, Refusal) and refusal.outcome is Outcome.NOT_APPENDED
        return CommitOutcome.NOT_WRITTEN if is_definite else CommitOutcome.UNKNOWN

    def _fetched(self, group: str, begun_us: int, newest: bool, answer: Any) -> None:
        if isinstance(answer, OffsetsFetched):
            offset = answer.partitions[0].offset
            now_us = self.world.timeline.now_us
            self.world.group_history.append(Fetched(group, offset, begun_us, now_us, newest))
            self.world.coverage.saw("group offset read")
        else:
            self._refused(answer)
        self.start()

    def _refused(self, refusal: Any) -> None:
        if isinstance(refusal, Refusal):
            self.world.coverage.saw(f"group refused: {refusal.code.name}")
        self.forget_leader()
