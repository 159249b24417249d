"""What a log returns of what was appended, across segments and at their boundaries."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from log_builder import open_files

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import LeaderEpoch, Offset
from strandline.records.batch import parse_header, split_batches
from strandline.records.codec import NewRecord, decode_batch, encode_batch
from strandline.storage import scan as time_search
from strandline.storage.disk import StorageDamaged
from strandline.storage.layout import remove_tree


def test_new_log_is_empty(build) -> None:
    """A new log starts and ends at 0 and returns nothing."""
    log, recovery = build.recover()

    assert (log.log_start_offset, log.leo, log.size_bytes) == (0, 0, 0)
    assert log.read(Offset(0), 100, Offset(100)).payload == b""
    assert (recovery.bytes_cut, recovery.epochs, recovery.lost_durable_records) == (0, (), False)


def test_leader_append_stamps_offset_and_epoch(log, fill) -> None:
    """Batches get consecutive base offsets and the leader's epoch, and stay valid."""
    fill(log, 2, records=3, epoch=7)
    headers = [header for header, _ in split_batches(log.read(Offset(0), 10_000, log.leo).payload)]

    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 7), (3, 7)]


def test_several_batches_of_one_payload_lie_one_behind_the_other(log) -> None:
    """One append of a payload with several batches gives dense offsets."""
    payload = b"".join(encode_batch([NewRecord(None, b"v", 1)] * count) for count in (1, 2, 3))
    log.append(split_batches(payload), Offset(0), LeaderEpoch(1))
    leo = log.leo

    assert leo == 6
    assert [header.base_offset for header, _ in split_batches(log.read(Offset(0), 9_999, leo).payload)] == [0, 1, 3]


def test_follower_keeps_the_very_bytes(build, fill, tmp_path) -> None:
    """A follower's append is byte for byte what the leader holds."""
    leader = build.log()
    fill(leader, 30)
    (tmp_path / "other").mkdir()
    follower = type(build)(tmp_path / "other")
    copy = follower.log(segment_bytes=1_500)
    while copy.leo < leader.leo:
        copy.append_replicated(leader.read(copy.leo, 700, leader.leo).payload)
    mine = b"".join(segment.path.read_bytes() for segment in leader.segments)
    theirs = b"".join(segment.path.read_bytes() for segment in copy.segments)
    follower.close()

    assert mine == theirs
    assert len(copy.segments) > len(leader.segments) > 1


def test_follower_refuses_what_does_not_continue_its_log(log, fill) -> None:
    """Bytes for another offset change nothing."""
    fill(log, 2)
    first = log.read(Offset(0), 1, log.leo).payload
    with pytest.raises(Refused, match=r"^CORRUPT_MESSAGE"):
        log.append_replicated(first)

    assert log.leo == 4


def test_read_gives_every_record_once_in_order(log, fill) -> None:
    """Reading on from the end of each answer returns every record, for any sizes of log and answers."""
    fill(log, 100)
    offsets = []
    offset = log.log_start_offset
    while offset < log.leo:
        batches = split_batches(log.read(offset, 333, log.leo).payload)
        records = [record for _, view in batches for record in decode_batch(view)]
        offsets += [record.offset for record in records]
        offset = Offset(records[-1].offset + 1)

    assert len(log.segments) > 3
    assert offsets == list(range(200))


def test_read_inside_a_batch_gives_the_whole_batch(log, fill) -> None:
    """An offset inside a batch is answered with that batch from its start, as in Kafka."""
    fill(log, 50, records=5)

    assert [
        parse_header(log.read(Offset(offset), 10, log.leo).payload).base_offset for offset in (0, 4, 5, 123, 249)
    ] == [0, 0, 5, 120, 245]


def test_read_never_gives_a_batch_beyond_the_end(log, fill) -> None:
    """A batch that crosses the exclusive end is not returned, even as the first one."""
    fill(log, 3, records=4)

    assert log.read(Offset(0), 10_000, Offset(3)).payload == b""
    assert parse_header(log.read(Offset(0), 10_000, Offset(4)).payload).next_offset == 4
    assert [h.next_offset for h, _ in split_batches(log.read(Offset(0), 10_000, Offset(11)).payload)] == [4, 8]


def test_first_batch_is_given_whatever_its_size(log, fill) -> None:
    """A fetch always makes progress (KIP-74), unless another partition already did."""
    fill(log, 2, size_bytes=1_000)

    assert len(split_batches(log.read(Offset(0), 1, log.leo).payload)) == 1
    assert log.read(Offset(0), 1, log.leo, at_least_one=False).payload == b""


def test_a_read_says_where_its_last_batch_ends(log, fill) -> None:
    """A read returns its last batch's end, so that a follower never counts as holding more than it was sent (M70)."""
    fill(log, 12, records=3)

    for max_bytes in (1, 333, 100_000):
        chunk = log.read(Offset(4), max_bytes, log.leo)
        assert chunk.end == split_batches(chunk.payload)[-1].header.next_offset
    assert log.read(Offset(4), 100, Offset(5)) == (b"", 4)


@pytest.mark.parametrize("max_bytes", [0, 1, 61, 200, 500, 4_000])
def test_answers_respect_their_size(log, fill, max_bytes) -> None:
    """Beyond the first batch no answer is larger than requested."""
    fill(log, 20)
    answer = log.read(Offset(6), max_bytes, log.leo).payload

    assert len(answer) <= max_bytes or len(split_batches(answer)) == 1


def test_offsets_outside_the_log_are_refused(log, fill) -> None:
    """Below the log start and above the LEO there is nothing to read."""
    fill(log, 4)
    log.advance_log_start(Offset(3))
    codes = []
    for offset in (0, 2, 9):
        with pytest.raises(Refused) as refused:
            log.read(Offset(offset), 100, log.leo)
        codes.append(refused.value.refusal.code)

    assert set(codes) == {ErrorCode.OFFSET_OUT_OF_RANGE}
    assert log.read(log.leo, 100, log.leo).payload == b""


def test_segments_roll_by_size_and_by_time(build, fill) -> None:
    """A batch that would make the segment too large, or whose timestamp is too far ahead, starts a new one."""
    log = build.log(segment_bytes=1_000, segment_ms=500)
    fill(log, 4, size_bytes=100)
    by_size = [segment.base_offset for segment in log.segments]
    fill(log, 1, start_ms=5_000)

    assert by_size == [0, 6]
    assert log.active_segment.base_offset == 8


def test_an_append_says_whether_a_segment_began(build, tmp_path) -> None:
    """Producer state is saved on a roll: by a leader, and by a follower that writes the leader's bytes."""
    (tmp_path / "other").mkdir()
    follower = type(build)(tmp_path / "other")
    led, copy = build.log(segment_bytes=400), follower.log(segment_bytes=400)
    began, copied = [], []
    for _ in range(6):
        began.append(led.append(split_batches(encode_batch([NewRecord(None, b"v" * 100, 1)])), led.leo, LeaderEpoch(1)))
        copied.append(copy.append_replicated(led.read(copy.leo, 1, led.leo).payload))

    follower.close()

    assert began == copied
    assert began.count(True) == len(led.segments) - 1 > 0


def test_byte_distance_is_exact_at_batch_borders(log, fill) -> None:
    """Lag in bytes is what a follower still has to fetch, across segments."""
    fill(log, 60)
    total = log.size_bytes

    assert log.bytes_between(Offset(0), log.leo) == total
    for border in (0, 2, 44, 78, 118, 120):
        assert log.bytes_between(Offset(0), Offset(border)) + log.bytes_between(Offset(border), log.leo) == total
    assert log.bytes_between(log.leo, Offset(500)) == 0


def test_headers_are_listed_from_any_offset(log, fill) -> None:
    """Dump and recovery walk headers from the batch that holds an offset."""
    fill(log, 40, records=3)

    assert [found.header.base_offset for found in log.batches()] == list(range(0, 120, 3))
    assert [found.header.base_offset for found in log.batches(Offset(61))][:2] == [60, 63]
    assert list(log.batches(log.leo)) == []


@pytest.mark.parametrize("reopened", [False, True])
def test_time_finds_the_first_batch_that_reaches_it(log, build, fill, reopened) -> None:
    """Seeking by time finds the first batch with a record at or after it, below the given end."""
    fill(log, 60)
    if reopened:
        log.close()
        log = build.recover(clean=True)[0]

    def base_at(timestamp_ms: int, end: Offset | None = None) -> int | None:
        found = log.search_time(timestamp_ms, log.leo if end is None else end).first()
        return None if found is None else found.header.base_offset

    assert [base_at(ms) for ms in (0, 1_000, 1_001, 1_002, 1_077, 1_119, 1_120)] == [0, 0, 0, 2, 76, 118, None]
    assert base_at(1_077, Offset(77)) is None
    log.advance_log_start(Offset(30))
    assert base_at(0) == 30


def test_time_never_finds_a_record_below_the_log_start(log, fill) -> None:
    """A log that starts within a batch answers none of the batch's deleted records, whatever time is asked for."""
    fill(log, 2, records=4)
    log.advance_log_start(Offset(2))
    found = [log.search_time(ms, log.leo).first_record() for ms in (0, 1_001, 1_002, 1_003, 1_004)]

    assert [record and record[:2] for record in found] == [(2, 1_002)] * 3 + [(3, 1_003), (4, 1_004)]


def test_a_batch_that_is_not_unpacked_is_found_at_or_above_the_log_start(build, fill, monkeypatch) -> None:
    """Where records are not read one by one, the answer is the batch's own time, and no offset that is deleted."""
    monkeypatch.setattr(time_search, "UNPACKED_RECORDS", 3)
    log = build.log()
    fill(log, 2, records=4)
    log.advance_log_start(Offset(2))
    found = [log.search_time(ms, log.leo).first_record() for ms in (0, 1_004)]

    assert [record and record[:2] for record in found] == [(2, 1_003), (4, 1_007)]


@pytest.mark.parametrize("reopened", [False, True])
def test_the_largest_time_below_an_end_is_that_of_the_batches(build, fill, reopened) -> None:
    """The largest timestamp below an end is right for any order of times, at and between the batches' boundaries."""
    log = build.log(segment_bytes=6_000, index_interval_bytes=300)
    for start_ms in (5_000, 1_000, 9_000, 2_000, 3_000, 9_500, 1_000):
        fill(log, 7, start_ms=start_ms)
    if reopened:
        log.close()
        log = build.recover(clean=True, segment_bytes=6_000, index_interval_bytes=300)[0]
    batches = [(found.header.next_offset, found.header.max_timestamp_ms) for found in log.batches()]

    assert len(log.segments) > 1
    for end in range(log.leo + 3):
        expected = max((newest for next_offset, newest in batches if next_offset <= end), default=-1)
        assert log.max_timestamp_before(Offset(end)) == (expected if expected >= 0 else None)


def test_the_largest_time_below_an_end_is_found_without_reading_the_segment(build, fill, monkeypatch) -> None:
    """The largest timestamp is found with some headers from the last index entry on, however many batches precede."""
    log = build.log(segment_bytes=1 << 24, index_interval_bytes=1_000)
    fill(log, 2_000)
    end = Offset(log.leo - 3)
    reads = []
    real = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        reads.append(size)
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    found = log.max_timestamp_before(end)

    assert found is not None
    assert sum(reads) < 20_000 < log.size_bytes


def test_a_search_by_time_outlives_its_segments(log, fill) -> None:
    """Batches that existed at its creation are found in another thread, though the log has been deleted meanwhile."""
    fill(log, 60)
    search = log.search_time(1_077, log.leo)
    log.forget()
    remove_tree(log.directory)
    found = ThreadPoolExecutor(1).submit(search.first).result()
    payload = found.payload()
    search.close()

    assert found.header.base_offset == 76
    assert parse_header(payload) == found.header


def test_a_search_by_time_in_a_log_that_was_cut_is_an_error(build, fill) -> None:
    """A search in a truncated log never returns batches that replaced the original ones: it ends where those end."""
    log = build.log(segment_bytes=1 << 20)
    fill(log, 60)
    search = log.search_time(1_119, log.leo)
    log.truncate_to(Offset(20))

    with pytest.raises(StorageDamaged):
        search.first()
    search.close()


def test_a_search_that_nobody_runs_keeps_no_descriptor(log, fill) -> None:
    """A search keeps its file open when the log is closed; a caller that goes away leaves no file open."""
    fill(log, 60)
    searches = [log.search_time(1_077, log.leo) for _ in range(10)]
    log.close()
    during = open_files(log.directory)
    found = searches[0].first()
    del searches, found
    gc.collect()

    assert during >= 1
    assert open_files(log.directory) == 0


def test_time_may_go_back(build, fill) -> None:
    """A batch with an old timestamp does not hide a later one with a newer timestamp."""
    log = build.log(segment_bytes=100_000)
    for start_ms in (5_000, 1_000, 9_000, 2_000, 3_000, 9_500, 1_000):
        fill(log, 3, start_ms=start_ms)
    log.close()
    log = build.recover(clean=True)[0]
    times = [(found.header.base_offset, found.header.max_timestamp_ms) for found in log.batches()]

    for asked in range(900, 9_600, 50):
        found = log.search_time(asked, log.leo).first()
        expected = next((base for base, newest in times if newest >= asked), None)
        assert (found.header.base_offset if found else None) == expected
