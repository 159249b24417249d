"""Decides which record answers a time: the first one at or after it, below the end that may be seen.

Invariant: what was found is returned as `core.offset_serving.settled` says. Headers and records are read by the
function that is returned, which touches no log and may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import MAX_TIMESTAMP, OffsetAnswer
from strandline.core.offset_serving import settled
from strandline.core.types import Offset
from strandline.records.batch import UNPACKED_RECORDS
from strandline.runtime.aside import giving_way
from strandline.storage.disk import StorageDamaged
from strandline.storage.log import Log
from strandline.storage.scan import StoredBatch
from strandline.storage.time_search import FoundInPart, TimeSearch

Find = Callable[[], OffsetAnswer]

_CHANGED = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "the log was cut while a time was looked for; refresh metadata and ask again",
)


def look_up(log: Log, answer: OffsetAnswer) -> Find:
    """Open the files in which the record that ``answer.lookup`` asks for lies; what is returned finds it there.

    Offset and timestamp stay absent when there is none.

    Raises:
        StorageDamaged: a batch on the way is not what was written.
    """
    lookup = answer.lookup
    assert lookup is not None, "only answers with a lookup are looked up"
    asked = lookup.timestamp
    timestamp = log.max_timestamp_before(lookup.end) if asked == MAX_TIMESTAMP else asked
    if timestamp is None:
        return lambda: OffsetAnswer(answer.tp)
    search, log_start, time = log.search_time(timestamp, lookup.end), log.log_start_offset, timestamp

    def find() -> OffsetAnswer:
        try:
            return settled(_found(search, time, log_start, answer), lookup)
        except StorageDamaged:
            # A log is cut only where it is not led any more; damage is found by the next read there.
            return OffsetAnswer(answer.tp, refusal=_CHANGED)
        finally:
            search.close()

    return find


def _found(search: TimeSearch, timestamp_ms: int, log_start: Offset, answer: OffsetAnswer) -> OffsetAnswer:
    found = search.first(_giving_way)
    if found is None:
        return OffsetAnswer(answer.tp)
    header = found.header
    epoch = header.stamped_epoch
    record = _first_record(found, timestamp_ms, log_start)
    if record is None:
        # The batch itself is the answer.
        return OffsetAnswer(answer.tp, max(header.base_offset, log_start), header.max_timestamp_ms, epoch)
    return OffsetAnswer(answer.tp, record[0], record[1], epoch)


def _giving_way(batches: Iterable[StoredBatch]) -> Iterator[StoredBatch]:
    return giving_way(batches)


def _first_record(found: FoundInPart, timestamp_ms: int, log_start: Offset) -> tuple[Offset, int | None] | None:
    """The record in a batch; None if its records are not read one by one, or cannot be."""
    # Imported here: the codec is large, and only this question and unary decoding need it.
    from strandline.records.codec import iterate_batch

    if found.header.record_count > UNPACKED_RECORDS:
        # It is compressed, and was made to cost.
        return None
    try:
        for record in giving_way(iterate_batch(found.payload())):
            timestamp = -1 if record.timestamp_ms is None else record.timestamp_ms
            if timestamp >= timestamp_ms and record.offset >= log_start:
                return record.offset, record.timestamp_ms
    except Refused:
        # The CRC holds, so the producer compressed something else than records.
        pass
    return None
