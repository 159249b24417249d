"""What of a data node is counted as it happens, and where: around its performers, never inside its core.

A node without a metrics port runs its own performers bare; with one it runs these around them. A produce then pays
for two readings of a clock and four additions.

Invariant: an effect is performed exactly as without counting; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any

from strandline.core import effects as want
from strandline.core.errors import Refusal
from strandline.core.events import Event
from strandline.core.state_events import (
    AlterPartition,
    CoordinatorLoad,
    GroupChange,
    IsrChange,
    TransactionDecided,
    Truncation,
)
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, Histogram, Tally
from strandline.metrics.group_figures import GroupCounts
from strandline.runtime.calls import Calls, Room, Sink
from strandline.runtime.log_performers import Perform

_CAUSES = ("lag", "node_fenced", "controlled_shutdown", "other")


class TimedCalls(Calls):
    """Calls that know since when each waits."""

    def __init__(self) -> None:
        super().__init__()
        self.since_s: dict[int, float] = {}

    def wait(self, request_id: int, sink: Sink, room: Room | None = None, named: int = 1) -> None:
        """See `Calls.wait`."""
        super().wait(request_id, sink, room, named)
        self.since_s[request_id] = perf_counter()

    def drop(self, request_id: int) -> bool:
        """See `Calls.drop`."""
        self.since_s.pop(request_id, None)
        return super().drop(request_id)


class NodeCounts:
    """What one node did since its process began."""

    def __init__(self) -> None:
        self.calls = TimedCalls()
        self.fsync = Histogram()
        self.groups = GroupCounts()
        self._produce = Histogram()
        self._fetch = {"replica": Histogram(), "consumer": Histogram()}
        self._shrinks = Tally(f.ISR_SHRINKS, *_CAUSES)
        self._expands = 0
        self._failed_updates = 0
        self._records_in = self._bytes_in = self._replicated_bytes_in = 0
        self._truncations = self._truncated = self._committed_cut = self._cuts_at_unknown_hw = 0
        self._offset_commits = Tally(f.OFFSET_COMMITS, "committed")
        self._transactions = Tally(f.TRANSACTIONS, "commit", "abort")
        self._on_event: dict[type[object], Callable[[Any], None]] = {
            IsrChange: self._isr_changed,
            AlterPartition: self._proposal_ended,
            Truncation: self._log_cut,
            GroupChange: self.groups.changed,
            CoordinatorLoad: self.groups.loaded,
            TransactionDecided: self._transactions_decided,
        }

    def around(self, table: Mapping[type[object], Perform]) -> dict[type[object], Perform]:
        """The same performers, counted."""
        return {
            **table,
            want.Append: self._counted(self._appended, table[want.Append]),
            want.AppendReplicated: self._counted(self._replicated, table[want.AppendReplicated]),
            want.AnswerProduce: self._counted(self._produce_answered, table[want.AnswerProduce]),
            want.AnswerFetch: self._counted(self._fetch_answered, table[want.AnswerFetch]),
            want.Emit: self._counted(self._emitted, table[want.Emit]),
        }

    @staticmethod
    def _counted(count: Callable[[Any], None], perform: Perform) -> Perform:
        def performed(effect: Any) -> Event | None:
            count(effect)
            return perform(effect)

        return performed

    def _appended(self, effect: want.Append) -> None:
        self._records_in += effect.header.record_count
        self._bytes_in += effect.header.size_bytes

    def _replicated(self, effect: want.AppendReplicated) -> None:
        self._replicated_bytes_in += sum(header.size_bytes for header in effect.batches)

    def _produce_answered(self, effect: want.AnswerProduce) -> None:
        since_s = self.calls.since_s.pop(effect.request_id, None)
        if since_s is not None:
            self._produce.observe(perf_counter() - since_s)

    def _fetch_answered(self, effect: want.AnswerFetch) -> None:
        # A stream's fetch may be answered in parts; an answer without a result closes one that was taken back.
        since_s = self.calls.since_s.pop(effect.request_id, None)
        if since_s is not None and effect.results:
            by = "consumer" if effect.replica is None else "replica"
            self._fetch[by].observe(perf_counter() - since_s)

    def _emitted(self, effect: want.Emit) -> None:
        count = self._on_event.get(type(effect.event))
        if count is not None:
            count(effect.event)

    def _isr_changed(self, change: IsrChange) -> None:
        if change.removed:
            self._shrinks.add(change.cause if change.cause in _CAUSES else "other")
        if change.added:
            self._expands += 1

    def _proposal_ended(self, proposal: AlterPartition) -> None:
        refused = proposal.phase == "result" and proposal.error_code != 0
        self._failed_updates += refused or proposal.phase == "timeout"

    def _log_cut(self, cut: Truncation) -> None:
        self._truncations += 1
        self._truncated += cut.from_leo - cut.to_leo
        self._committed_cut += cut.committed_cut or 0
        self._cuts_at_unknown_hw += cut.committed_cut is None

    def _transactions_decided(self, decided: TransactionDecided) -> None:
        self._transactions.add(decided.outcome, decided.n_coalesced)

    def offsets_committed(self, refusals: Iterable[Refusal | None]) -> None:
        """A commit of a group was answered: why each partition was refused, None where it was not."""
        for refusal in refusals:
            self._offset_commits.add("committed" if refusal is None else refusal.code.name)

    def figures(self) -> Iterator[Figure]:
        """The present values."""
        yield Figure(f.PRODUCE_LATENCY, self._produce.spread())
        yield from (Figure(f.FETCH_LATENCY, one.spread(), (by,)) for by, one in self._fetch.items())
        yield Figure(f.FSYNC, self.fsync.spread())
        yield from self._shrinks.figures()
        yield Figure(f.ISR_EXPANDS, self._expands)
        yield Figure(f.FAILED_ISR_UPDATES, self._failed_updates)
        yield Figure(f.RECORDS_IN, self._records_in)
        yield Figure(f.BYTES_IN, self._bytes_in)
        yield Figure(f.REPLICATED_BYTES_IN, self._replicated_bytes_in)
        yield Figure(f.TRUNCATIONS, self._truncations)
        yield Figure(f.TRUNCATED_RECORDS, self._truncated)
        yield Figure(f.COMMITTED_CUT, self._committed_cut)
        yield Figure(f.CUTS_AT_UNKNOWN_HW, self._cuts_at_unknown_hw)
        yield from self._transactions.figures()
        yield from self._offset_commits.figures()
