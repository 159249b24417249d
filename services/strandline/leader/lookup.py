"""Decides which record answers a time: the first one at or after it, below the end that may be seen.

Invariant: while a new leader does not know how far its predecessors were committed, no offset beyond what is
settled is told (KIP-207).
"""

from __future__ import annotations

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import MAX_TIMESTAMP, OffsetAnswer, OffsetLookup
from strandline.core.types import LeaderEpoch, Offset
from strandline.storage.log import FoundBatch, Log

_UNSETTLED = Refusal(
    ErrorCode.OFFSET_NOT_AVAILABLE, "this leader is new and has not confirmed yet what was committed before it"
)


def look_up(log: Log, answer: OffsetAnswer) -> OffsetAnswer:
    """Find the record that ``answer.lookup`` asks for; offset and timestamp stay absent when there is none.

    Raises:
        StorageDamaged: a batch on the way is not what was written.
    """
    lookup = answer.lookup
    assert lookup is not None, "only answers with a lookup are looked up"
    timestamp = _max_timestamp_ms(log, lookup.end) if lookup.timestamp == MAX_TIMESTAMP else lookup.timestamp
    found = log.offset_for_timestamp(timestamp, lookup.end) if timestamp is not None else None
    if found is None or timestamp is None:
        return OffsetAnswer(answer.tp)
    return _settled(_first_record(log, found, timestamp, answer), lookup)


def _settled(answer: OffsetAnswer, lookup: OffsetLookup) -> OffsetAnswer:
    if lookup.unsettled and answer.offset is not None and answer.offset >= lookup.settled_end:
        return OffsetAnswer(answer.tp, refusal=_UNSETTLED)
    return answer


def _first_record(log: Log, found: FoundBatch, timestamp_ms: int, answer: OffsetAnswer) -> OffsetAnswer:
    # Imported here: the codec is large, and only this question and unary decoding need it.
    from strandline.records.codec import decode_batch

    header = found.header
    payload = log.read(header.base_offset, header.size_bytes, header.next_offset)
    epoch = LeaderEpoch(header.leader_epoch)
    try:
        for record in decode_batch(payload):
            timestamp = -1 if record.timestamp_ms is None else record.timestamp_ms
            if timestamp >= timestamp_ms and record.offset >= log.log_start_offset:
                return OffsetAnswer(answer.tp, Offset(record.offset), record.timestamp_ms, epoch)
    except Refused:
        # The CRC holds, so the producer compressed something else than records: the batch itself is the answer.
        pass
    return OffsetAnswer(answer.tp, header.base_offset, header.max_timestamp_ms, epoch)


def _max_timestamp_ms(log: Log, end: Offset) -> int | None:
    """The largest timestamp below ``end``; None if there is no timed record."""
    latest = -1
    for segment in log.segments:
        if segment.next_offset <= end:
            latest = max(latest, segment.max_timestamp_ms)
        elif segment.base_offset < end:
            within = (batch for batch in segment.batches() if batch.next_offset <= end)
            latest = max(latest, max((batch.wire.max_timestamp_ms for batch in within), default=-1))
    return latest if latest >= 0 else None
