"""The offset ranges read of each partition, planned without a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.ranges import Extent, OffsetRange, batch_ranges, next_end, split, stream_ranges

LOGS = {0: Extent(0, 10), 1: Extent(5, 8), 2: Extent(3, 3)}


def test_a_batch_reads_what_is_committed() -> None:
    """A batch reads from log start to HW; an empty partition has no range."""
    ranges = batch_ranges("earliest", "latest", LOGS, fail_on_data_loss=True)

    assert ranges == [OffsetRange(0, 0, 10), OffsetRange(1, 5, 8)]


def test_offsets_may_be_given_for_each_partition() -> None:
    """-2 and -1 mean the ends of the log, other numbers are offsets."""
    ranges = batch_ranges({0: 4, 1: -2, 2: -2}, {0: 6, 1: -1, 2: -1}, LOGS, fail_on_data_loss=True)

    assert ranges == [OffsetRange(0, 4, 6), OffsetRange(1, 5, 8)]


@pytest.mark.parametrize(
    ("starting", "ending", "reported"),
    [
        ({0: 1}, "latest", r"startingOffsets: it names partitions \[0\], the topic has \[0, 1, 2\]; give an offset"),
        ({0: 1, 1: 4, 2: 3}, "latest", "startingOffsets: partition 1 begins at 5, and 4 was asked for: retention"),
        ("earliest", {0: 11, 1: 8, 2: 3}, "endingOffsets: partition 0 is committed up to 10, and 11 was asked for"),
        ({0: 7, 1: 5, 2: 3}, {0: 6, 1: 8, 2: 3}, "startingOffsets: partition 0 would be read from 7 to before 6"),
    ],
)
def test_offsets_outside_of_the_log_are_refused(starting: object, ending: object, reported: str) -> None:
    """Nothing is read that does not exist, and nothing is left out without an error."""
    with pytest.raises(TopicReadFailed, match=reported):
        batch_ranges(starting, ending, LOGS, fail_on_data_loss=True)  # type: ignore[arg-type]


def test_lost_records_are_skipped_if_asked() -> None:
    """With failOnDataLoss false reading begins at the first remaining record."""
    ranges = batch_ranges({0: 10, 1: 0, 2: 0}, "latest", LOGS, fail_on_data_loss=False)

    assert ranges == [OffsetRange(1, 5, 8)]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    """A partition that the previous offset did not name is not skipped."""
    assert stream_ranges({0: 9}, {0: 10, 1: 8}, LOGS, fail_on_data_loss=True) == [
        OffsetRange(0, 9, 10),
        OffsetRange(1, 5, 8),
    ]


def test_a_limit_is_shared_out() -> None:
    """A limit is divided in proportion to the waiting records, with at least one record for each that has some."""
    logs = {0: Extent(0, 1_000), 1: Extent(0, 10), 2: Extent(0, 0)}

    assert next_end({}, logs, 101, fail_on_data_loss=True) == {0: 100, 1: 1, 2: 0}
    assert next_end({}, logs, None, fail_on_data_loss=True) == {0: 1_000, 1: 10, 2: 0}


def test_a_target_is_not_passed() -> None:
    """A run over the existing records reads neither later records nor later partitions, and never goes back."""
    logs = {0: Extent(0, 20), 1: Extent(0, 20), 2: Extent(0, 20)}

    assert next_end({0: 3, 1: 15}, logs, None, target={0: 10, 1: 12}, fail_on_data_loss=True) == {0: 10, 1: 15}


def test_a_log_that_ends_before_what_was_read_is_loss() -> None:
    """An unclean election truncated it: reported, or with failOnDataLoss false waited out at the same offset."""
    with pytest.raises(TopicReadFailed, match="failOnDataLoss: partition 0 ends at 10, but was read up to 12"):
        next_end({0: 12}, {0: Extent(0, 10)}, None, fail_on_data_loss=True)

    assert next_end({0: 12}, {0: Extent(0, 10)}, None, fail_on_data_loss=False) == {0: 12}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_pieces_are_the_whole(sizes: list[tuple[int, int]], pieces: int) -> None:
    """For any split of a batch, the pieces of a partition are adjacent and cover its range."""
    ranges = [OffsetRange(p, start, start + size) for p, (start, size) in enumerate(sizes)]
    found = split(ranges, pieces)

    assert [(one.partition, offset) for one in found for offset in range(one.start, one.end)] == [
        (one.partition, offset) for one in ranges for offset in range(one.start, one.end)
    ]
    assert len(found) >= min(pieces, sum(one.size for one in ranges))
