"""Whether enough bytes are available after an offset, answered from memory alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.core.log.replica_log import PLENTY_BYTES, REMEMBERED_APPENDS, SizeLedger
from strandline.core.types import Offset


def test_bytes_between_two_batch_ends() -> None:
    """Bytes are those of the batches between two offsets."""
    sizes = SizeLedger(Offset(0))
    sizes.appended(Offset(3), 300)
    sizes.appended(Offset(5), 80)

    assert sizes.bytes_between(Offset(0), Offset(5)) == 380
    assert sizes.bytes_between(Offset(3), Offset(5)) == 80
    assert sizes.bytes_between(Offset(5), Offset(5)) == 0


def test_older_than_remembered_counts_as_enough() -> None:
    """M23: an offset from before the remembered ones is answered at once."""
    sizes = SizeLedger(Offset(100))
    sizes.appended(Offset(101), 10)

    assert sizes.bytes_between(Offset(50), Offset(101)) == PLENTY_BYTES


def test_memory_is_bounded() -> None:
    """Only the most recent appends are remembered."""
    sizes = SizeLedger(Offset(0))
    for leo in range(1, 5 * REMEMBERED_APPENDS):
        sizes.appended(Offset(leo), 10)

    assert len(sizes._ends) <= 2 * REMEMBERED_APPENDS
    assert sizes.bytes_between(Offset(5 * REMEMBERED_APPENDS - 11), Offset(5 * REMEMBERED_APPENDS - 1)) == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=40), st.data())
def test_never_less_than_is_there(steps: list[tuple[bool, int]], data: st.DataObject) -> None:
    """Between batch ends the answer is never below the true count of bytes, also after truncations."""
    sizes, ends = SizeLedger(Offset(0)), [0]
    for cuts, number in steps:
        if cuts:
            ends = ends[: max(1, len(ends) - number)]
            sizes.truncated(Offset(ends[-1]))
        else:
            ends.append(ends[-1] + number)
            sizes.appended(Offset(ends[-1]), 10 * number)
    start, end = sorted(data.draw(st.tuples(st.sampled_from(ends), st.sampled_from(ends))))

    assert sizes.bytes_between(Offset(start), Offset(end)) >= 10 * (end - start)
