"""The state machine of transactional ids that a coordinator shard drives (G3): who decides what, and what is due when.

Invariant: only `apply` changes the state of an id; deadlines and the progress of markers may be lost with the shard
and start again in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.core.coordinator.machine import Context, Decision, Record, Reports
from strandline.core.errors import ErrorCode
from strandline.core.log.effects import Effect, SendTxnMarkers
from strandline.core.producer_ids import ProducerIdSupply
from strandline.core.transactions import decisions, messages, records
from strandline.core.transactions.ending import Markers, end_txn, timed_out
from strandline.core.transactions.reporting import Cause, TransactionChange, TransactionObserver
from strandline.core.types import TopicPartition

_IDLE = frozenset({records.TxnState.EMPTY, records.TxnState.COMPLETE_COMMIT, records.TxnState.COMPLETE_ABORT})


class TransactionMachine:
    """`core.coordinator.machine.Machine` for transactional ids."""

    def __init__(
        self,
        reports: Reports,
        supply: ProducerIdSupply,
        settings: records.TransactionSettings | None = None,
        observer: TransactionObserver | None = None,
    ) -> None:
        """``supply``: this node's producer ids; ``reports`` says which shard this is."""
        self.settings = settings or records.TransactionSettings()
        self.ids: dict[str, records.TransactionalId] = {}
        self._place = reports
        self._supply = supply
        self._observer = observer
        # Ids with an open transaction -> when it times out.
        self._deadlines_ms: dict[str, int] = {}
        # Ids whose transaction is decided, and the decision committed.
        self._markers: dict[str, Markers] = {}
        self._is_loaded = False
        self._next_timeouts_ms: int | None = None
        self._next_expiration_ms: int | None = None
        self._expiration_queue: list[str] = []

    def apply(self, record: Record) -> None:
        """Apply one row to the state (`Machine.apply`)."""
        assert isinstance(record.key, records.TransactionalIdKey), f"a record of no transactional id: {record.key}"
        transactional_id, value = record.key.transactional_id, record.value
        if value is None:
            self.ids.pop(transactional_id, None)
            return
        assert isinstance(value, records.TransactionalId)
        self.ids[transactional_id] = value

    def decide(self, request: object, context: Context) -> Decision:
        """Decide a request (`Machine.decide`)."""
        match request:
            case messages.InitProducerId():
                value = self.ids.get(request.transactional_id)
                return decisions.init_producer_id(value, request, context, self._supply, self.settings)
            case messages.AddPartitions():
                return decisions.add_partitions(self.ids.get(request.transactional_id), request, context)
            case messages.EndTxn():
                return end_txn(self.ids.get(request.transactional_id), request, context, self._supply)
            case messages.DescribeTransaction():
                markers = self._markers.get(request.transactional_id)
                missing = markers.missing if markers is not None else None
                return describe(self.ids.get(request.transactional_id), request, missing)
            case messages.ListTransactions():
                return list_transactions(self.ids, request, context)
            case _:
                raise AssertionError(f"a request that no transactional id takes: {request!r}")

    def taken(self, note: object, now_ms: int) -> None:
        """A step was written (`Machine.taken`)."""
        assert isinstance(note, decisions.StepTaken), f"a note of no step: {note!r}"
        change = note.change
        # Only now: a decision that the shard refuses must not use up an id.
        if note.used_producer_id is not None:
            self._supply.take(note.used_producer_id)
        if change.after is None or change.after.state is not records.TxnState.ONGOING:
            self._deadlines_ms.pop(change.transactional_id, None)
        elif change.cause is Cause.BEGUN:
            # From the first partition on: adding further ones does not extend it (X7).
            self._deadlines_ms[change.transactional_id] = now_ms + change.after.timeout_ms
        if change.after is None or change.after.state not in records.PREPARED:
            self._markers.pop(change.transactional_id, None)
        if self._observer is not None:
            self._observer.changed(change, now_ms)

    def answered(self, note: object, now_ms: int) -> None:
        """Does nothing: no state depends on whether an answer was sent (`Machine.answered`)."""
        raise AssertionError(f"a note of no answer: {note!r}")

    def computed(self, result: object, context: Context) -> Decision:
        """Does nothing: no decision needs a worker (`Machine.computed`)."""
        raise AssertionError(f"nothing was to be computed: {result!r}")

    def committed(self, note: object, context: Context) -> Sequence[Effect]:
        """A decision is committed (`Machine.committed`): send its markers."""
        assert isinstance(note, decisions.MarkersDue), f"a note of no decided transaction: {note!r}"
        value = self.ids.get(note.transactional_id)
        if value is None or value.state not in records.PREPARED or value.identity != note.identity:
            return ()
        markers = self._markers[note.transactional_id] = Markers(note.transactional_id, value, context.now_ms)
        return self._sent(markers.due(context.now_ms))

    def _sent(self, markers: tuple[messages.TxnMarker, ...]) -> tuple[Effect, ...]:
        return (SendTxnMarkers(self._place.tp, self._place.leader_epoch, markers),) if markers else ()

    def heard(self, answer: object, context: Context) -> Sequence[Decision]:
        """A partition answered its marker (`Machine.heard`)."""
        assert isinstance(answer, messages.TxnMarkerAnswer), f"an answer to no marker: {answer!r}"
        marker, refusal = answer
        markers = self._markers.get(marker.transactional_id)
        if markers is None or markers.identity != marker.identity:
            return ()
        if refusal is None:
            markers.written(marker.tp)
            return [self._completed(markers, context)] if not markers.missing else ()
        if refusal.code is ErrorCode.INVALID_PRODUCER_EPOCH and self._observer is not None:
            # The partition is ahead of its coordinator, which is impossible, so this is not accepted as an answer.
            self._observer.marker_refused(marker, refusal, context.now_ms)
        markers.refused(marker.tp, context.now_ms + self.settings.marker_retry_ms)
        return ()

    def _completed(self, markers: Markers, context: Context) -> Decision:
        before = self.ids[markers.transactional_id]
        after = decisions.completed(before, context.unix_ms)
        return decisions.step(TransactionChange(markers.transactional_id, before, after, Cause.COMPLETED))

    def tick(self, context: Context) -> Sequence[Decision]:
        """Decide what is due (`Machine.tick`), at most one decision for each id."""
        if self._observer is not None:
            self._observer.ticked(self.ids, context)
        found = [decision for markers in self._markers.values() if (decision := self._asked_again(markers, context))]
        found += self._timed_out(context)
        found += self._expired(context)
        return found

    def _asked_again(self, markers: Markers, context: Context) -> Decision | None:
        topics = context.topics
        # A partition of a deleted topic never answers, and its records are gone with it (X8).
        markers.deleted([tp for tp in markers.missing if topics.by_id(tp.topic_id) is None])
        if not markers.missing:
            return self._completed(markers, context)
        effects = self._sent(markers.due(context.now_ms))
        return Decision(effects=effects) if effects else None

    def _timed_out(self, context: Context) -> list[Decision]:
        if self._next_timeouts_ms is not None and context.now_ms < self._next_timeouts_ms:
            return []
        self._next_timeouts_ms = context.now_ms + self.settings.timeout_check_ms
        over = [name for name, deadline_ms in self._deadlines_ms.items() if deadline_ms <= context.now_ms]
        found: list[Decision] = []
        is_used = False
        for name in over:
            decision = timed_out(name, self.ids[name], context, self._supply)
            if decision is None:
                continue
            assert isinstance(decision.taken, decisions.StepTaken)
            if decision.taken.used_producer_id is not None:
                if is_used:
                    # Two transactions would get the same producer id; this one is checked again in a second.
                    continue
                is_used = True
            found.append(decision)
        return found

    def _expired(self, context: Context) -> list[Decision]:
        """Forget unused ids; all ids are checked within a few ticks."""
        if self._next_expiration_ms is None or context.now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = context.now_ms + self.settings.id_expiration_check_ms
            self._expiration_queue = sorted(self.ids, reverse=True)
        step_size = self.settings.expiration_step
        names, self._expiration_queue = self._expiration_queue[-step_size:], self._expiration_queue[:-step_size]
        found = []
        for name in reversed(names):
            value = self.ids.get(name)
            if value is None or value.state not in _IDLE:
                continue
            if context.unix_ms - value.update_ms >= self.settings.id_expiration_ms:
                found.append(decisions.step(TransactionChange(name, value, None, Cause.EXPIRED)))
        return found

    def excuse(self, context: Context) -> None:
        """Every open transaction gets its full time from now on (`Machine.excuse`); all that was decided when the log
        was loaded is committed, and its markers are sent again."""
        ongoing = ((name, value) for name, value in self.ids.items() if value.state is records.TxnState.ONGOING)
        self._deadlines_ms = {name: context.now_ms + value.timeout_ms for name, value in ongoing}
        if self._is_loaded:
            return
        self._is_loaded = True
        decided = ((name, value) for name, value in self.ids.items() if value.state in records.PREPARED)
        self._markers = {name: Markers(name, value, context.now_ms) for name, value in decided}


def describe(
    value: records.TransactionalId | None,
    request: messages.DescribeTransaction,
    missing: tuple[TopicPartition, ...] | None,
) -> Decision:
    """One transactional id; ``missing``: the partitions without a marker, if it is being ended."""
    transactional_id = request.transactional_id
    if value is None:
        message = f"no transactional id {transactional_id!r} is known here"
        return decisions.refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
    answer = messages.TransactionDescribed(
        transactional_id=transactional_id,
        state=value.state,
        identity=value.identity,
        timeout_ms=value.timeout_ms,
        start_ms=value.start_ms,
        partitions=value.partitions if missing is None else missing,
    )
    return Decision(answer=answer, scope=transactional_id)


def list_transactions(
    ids: Mapping[str, records.TransactionalId], request: messages.ListTransactions, context: Context
) -> Decision:
    """The transactional ids of this partition that match the filters, by id."""
    states = {state.lower() for state in request.states}
    found = [
        messages.ListedTransaction(transactional_id, value.identity.producer_id, value.state, value.start_ms)
        for transactional_id, value in ids.items()
        if (not states or value.state.lower() in states)
        and (not request.producer_ids or value.identity.producer_id in request.producer_ids)
        and _is_as_old(value, request.longer_than_ms, context.unix_ms)
    ]
    return Decision(answer=messages.TransactionsListed(transactions=tuple(sorted(found, key=lambda each: each[0]))))


def _is_as_old(value: records.TransactionalId, longer_than_ms: int | None, unix_ms: int) -> bool:
    if longer_than_ms is None:
        return True
    return value.start_ms is not None and unix_ms - value.start_ms > longer_than_ms
