"""Performs each effect of a data node: one performer per type of effect, in a table.

Invariant: the first failure of a performer ends the process. Every type of effect has a performer; a test compares the
table with the union of effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log import effects as want
from strandline.core.log.events import AddPartitionsAnswered, Event, FetchServed, TxnMarkersAnswered
from strandline.core.messages import MetadataImage, Served
from strandline.core.transactions.messages import TxnMarkerAnswer
from strandline.runtime.calls import Calls
from strandline.runtime.clock import Clock
from strandline.runtime.driver import Halted
from strandline.runtime.log_performers import Flusher, LogPerformers, Perform
from strandline.runtime.ports import Logs, Peers, Reporter, Transactions
from strandline.runtime.session import Session
from strandline.runtime.threads import Coordinating

# ---- saving
# Makes the saves of a step durable: all at once, before the first effect that others can see.
#
# Invariant: nothing is sent, answered or appended while a save of the same step waits; no save waits after its step.

WITHOUT_SYNC = frozenset(
    {
        # Saves, and effects that themselves change files in the right order.
        want.SaveEpochs, want.SaveHighWatermarks, want.SaveReconciledEpochs, want.SaveMetadata, want.SaveProducers,
        want.OpenLog, want.DeleteLog, want.SetLogAside, want.Truncate, want.RestartLog, want.AdvanceLogStart,
        # Visible in this process only.
        want.NoteDurable, want.ApplyRetention, want.BelieveMetadata, want.IgnoreMetadata, want.Emit,
    }
)  # fmt: skip
"""Effects that may precede the sync; `Emit` is one, because a state event reports a decision of this process."""


def behind_saves(table: Mapping[type[object], Perform], logs: Logs) -> dict[type[object], Perform]:
    """The performers; each one whose effect others can see first syncs what was saved."""
    return {kind: perform if kind in WITHOUT_SYNC else _behind(perform, logs) for kind, perform in table.items()}


def _behind(perform: Perform, logs: Logs) -> Perform:
    def performed(effect: Any) -> Event | None:
        if logs.saves_wait:
            logs.sync_saves()
        return perform(effect)

    return performed


_NO_COORDINATORS = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    "transactions are not offered here; clear the transactional bit",
    Outcome.NOT_APPENDED,
)
"""The answer to questions about transactions in a process without `Transactions`."""


class Performers:
    """The table of performers. ``believe`` wraps `Session.believe`; ``look_up`` is `Lookups.begin`."""

    def __init__(
        self,
        *,
        logs: Logs,
        flusher: Flusher,
        peers: Peers,
        calls: Calls,
        reporter: Reporter,
        clock: Clock,
        session: Session,
        believe: Callable[[MetadataImage], None],
        look_up: Callable[[want.AnswerOffsets], None],
        coordinating: Coordinating,
        transactions: Transactions | None = None,
    ) -> None:
        self._log_performers = LogPerformers(logs, clock)
        self._calls = calls
        self._clock = clock
        self._look_up = look_up
        self.bytes_to_replicas = 0
        self.bytes_to_consumers = 0
        """Bytes of records sent to each since the process started."""
        table: dict[type[object], Perform] = {
            **self._log_performers.table,
            want.BelieveMetadata: lambda effect: believe(effect.image),
            want.IgnoreMetadata: lambda effect: session.ignore(effect.reason),
            want.Flush: lambda effect: flusher.flush(effect.tp),
            want.SendFetch: peers.send_fetch,
            want.SendForget: peers.send_forget,
            want.SendEpochEnds: peers.send_epoch_ends,
            want.SendListOffsets: peers.send_list_offsets,
            want.SendProducerSnapshot: peers.send_producer_snapshot,
            want.SendAddPartitions: transactions.send_add_partitions if transactions else self._refuse_transaction,
            want.SendTxnMarkers: transactions.send_txn_markers if transactions else self._refuse_markers,
            want.SendAlterPartition: session.alter_partition,
            want.SendReplicaLogs: session.report_logs,
            want.RefreshMetadata: lambda _: session.refresh(),
            want.AnswerProduce: lambda effect: calls.answer(effect.request_id, effect.results),
            want.AnswerFetch: self._answer_fetch,
            want.AnswerEpochEnds: lambda effect: calls.answer(effect.request_id, effect.answers),
            want.AnswerOffsets: self._answer_offsets,
            want.ReadCoordinatorLog: coordinating.read_log,
            want.Compute: coordinating.compute,
            want.AnswerCoordinator: lambda effect: calls.answer(effect.request_id, effect.answer),
            want.AnswerCall: lambda effect: calls.answer(effect.request_id, effect.answers),
            want.Emit: reporter.emit,
            want.Halt: self._halt,
        }
        self.table = behind_saves(table, logs)

    def _refuse_transaction(self, effect: want.SendAddPartitions) -> Event:
        return AddPartitionsAnswered(self._clock(), effect.correlation_id, _NO_COORDINATORS)

    def _refuse_markers(self, effect: want.SendTxnMarkers) -> Event:
        answers = tuple(TxnMarkerAnswer(marker, _NO_COORDINATORS) for marker in effect.markers)
        return TxnMarkersAnswered(self._clock(), effect.tp, effect.leader_epoch, answers)

    def _answer_fetch(self, effect: want.AnswerFetch) -> Event | None:
        room_bytes = self._calls.room_bytes(effect.request_id, effect.max_bytes)
        if room_bytes is None:
            return None
        found = self._log_performers.read(effect.results, room_bytes)
        self._calls.answer(effect.request_id, Served(found.partitions, effect.done))
        if effect.replica is None:
            self.bytes_to_consumers += found.size_bytes
            return None
        self.bytes_to_replicas += found.size_bytes
        return FetchServed(self._clock(), effect.replica, tuple(found.ends)) if found.ends else None

    def _answer_offsets(self, effect: want.AnswerOffsets) -> None:
        if all(answer.lookup is None for answer in effect.answers):
            self._calls.answer(effect.request_id, effect.answers)
        else:
            self._look_up(effect)

    def _halt(self, effect: want.Halt) -> None:
        raise Halted(effect.reason)
