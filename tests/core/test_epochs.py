"""The epoch cache, row by row and against a model that knows the epoch of every record."""

from __future__ import annotations

import pytest
from core_builders import entries
from hypothesis import given, strategies as st

from strandline.core.log.truncation import Cut, EpochCache, cut_for
from strandline.core.types import EpochEnd, EpochEntry, LeaderEpoch, Offset


def cache(*pairs: tuple[int, int]) -> EpochCache:
    """A cache with the given (epoch, start offset) entries."""
    return EpochCache(entries(*pairs))


def assigned(*pairs: tuple[int, int]) -> EpochCache:
    """A cache to which the pairs were assigned in this order."""
    built = EpochCache()
    for epoch, start in pairs:
        built.assign(LeaderEpoch(epoch), Offset(start))
    return built


def end(of: EpochCache, epoch: int | None, leo: int = 20) -> tuple[int, int] | None:
    """The answer to OffsetForLeaderEpoch as a plain pair."""
    found = of.end_offset_for(None if epoch is None else LeaderEpoch(epoch), Offset(leo))
    return None if found is None else (found.epoch, found.end_offset)


@pytest.mark.parametrize(
    ("built", "leo", "asked", "answer"),
    [
        (cache((0, 10), (2, 13), (4, 17)), 20, 1, (0, 13)),
        (cache((0, 10), (2, 13), (4, 17)), 20, 2, (2, 17)),
        (cache((0, 10), (2, 13), (4, 17)), 20, 3, (2, 17)),
        (cache((0, 10), (2, 13), (4, 17)), 20, 4, (4, 20)),
        (cache((5, 11), (6, 12), (7, 13)), 20, 4, (4, 11)),
        (cache((2, 100)), 100, 3, None),
        (cache((2, 11)), 14, 2, (2, 14)),
        (cache(), 14, 0, None),
        (cache(), 14, 7, None),
        (cache(), 14, None, None),
        (cache((2, 11)), 14, None, None),
    ],
)
def test_where_an_epoch_ends(built: EpochCache, leo: int, asked: int | None, answer: tuple[int, int] | None) -> None:
    """T1: the answer is the largest epoch not above the requested one, and its end; none where that is unknown."""
    assert end(built, asked, leo) == answer


@pytest.mark.parametrize(
    ("pairs", "kept"),
    [
        (((2, 9), (2, 10)), ((2, 9),)),
        (((2, 9), (3, 9)), ((3, 9),)),
        (((2, 6), (3, 5)), ((3, 5),)),
        (((1, 5), (2, 6), (1, 7)), ((1, 7),)),
        (((5, 11), (6, 12), (7, 13), (7, 12)), ((5, 11), (7, 12))),
    ],
)
def test_conflicting_assignments(pairs: tuple[tuple[int, int], ...], kept: tuple[tuple[int, int], ...]) -> None:
    """T2: a new entry removes every entry that does not lie below it in both epoch and start."""
    assert assigned(*pairs).entries == entries(*kept)


@pytest.mark.parametrize(
    ("cut", "kept"), [(8, ((2, 6),)), (9, ((2, 6), (3, 8))), (6, ()), (12, ((2, 6), (3, 8), (4, 11)))]
)
def test_truncating_from_the_end(cut: int, kept: tuple[tuple[int, int], ...]) -> None:
    """T3: entries that begin at or after the truncation point are removed, those below it are kept."""
    built = cache((2, 6), (3, 8), (4, 11))
    changed = built.truncate_from_end(Offset(cut))

    assert built.entries == entries(*kept)
    assert changed == (len(kept) < 3)


@pytest.mark.parametrize(
    ("before", "cut", "kept"),
    [
        (((2, 6), (3, 8), (4, 11)), 8, ((3, 8), (4, 11))),
        (((2, 6), (3, 8), (4, 11)), 9, ((3, 9), (4, 11))),
        (((2, 6), (3, 8), (4, 11)), 1, ((2, 6), (3, 8), (4, 11))),
        (((2, 6), (3, 8), (4, 11)), 6, ((2, 6), (3, 8), (4, 11))),
        (((2, 6), (3, 8), (4, 11)), 11, ((4, 11),)),
        (((2, 6), (3, 8), (4, 11)), 15, ((4, 15),)),
        (((0, 0), (1, 7), (2, 10)), 5, ((0, 5), (1, 7), (2, 10))),
    ],
)
def test_truncating_from_the_start(
    before: tuple[tuple[int, int], ...], cut: int, kept: tuple[tuple[int, int], ...]
) -> None:
    """T3: the epoch that spans the new log start begins there, older ones are removed."""
    built = cache(*before)
    changed = built.truncate_from_start(Offset(cut))

    assert built.entries == entries(*kept)
    assert changed == (before != kept)


def test_many_leader_changes() -> None:
    """T4: epochs that wrote nothing end where they began, and entries survive being stored."""
    built = assigned((0, 0), (1, 0))
    fast = (end(built, 0, 0), end(built, 1, 0))
    written = (end(built, 1, 5), end(built, 0, 5))
    built.assign(LeaderEpoch(2), Offset(5))

    # The first epoch's entry began where the second's does and was replaced by it: its end is its start.
    assert fast == ((0, 0), (1, 0))
    assert written == ((1, 5), (0, 0))
    assert (end(built, 2, 10), end(built, 1, 10), end(built, 0, 10)) == ((2, 10), (1, 5), (0, 0))
    assert EpochCache(built.entries).entries == built.entries == entries((1, 0), (2, 5))


def test_entries_that_do_not_increase_are_refused() -> None:
    """I0: a cache that is not a valid history stops the process that reads it from a file."""
    with pytest.raises(AssertionError, match="I0"):
        cache((2, 5), (1, 9))
    with pytest.raises(AssertionError, match="I0"):
        cache((1, 5), (2, 5))


@pytest.mark.parametrize(
    ("own", "leo", "answer", "expected"),
    [
        # Known here: the smaller of both ends.
        (((4, 0),), 10, (4, 7), Cut(Offset(7), True)),
        (((3, 0), (4, 5)), 10, (3, 9), Cut(Offset(5), True)),
        # The leader's answer names an epoch newer than any of this cache: the whole log lies before its end.
        (((3, 0),), 10, (4, 8), Cut(Offset(8), True)),
        (((3, 0),), 10, (4, 18), Cut(Offset(10), True)),
        # Not in this lineage: take the largest epoch below, and compare again.
        (((3, 0), (5, 12)), 20, (4, 15), Cut(Offset(12), False)),
        # Older than the first entry here: that entry's start bounds it (M38).
        (((3, 6), (5, 12)), 20, (1, 9), Cut(Offset(6), True)),
        (((3, 6), (5, 12)), 20, (1, 2), Cut(Offset(2), True)),
        # Nothing known here.
        ((), 10, (4, 7), Cut(Offset(7), True)),
        ((), 10, (4, 70), Cut(Offset(10), True)),
    ],
)
def test_where_a_follower_cuts(
    own: tuple[tuple[int, int], ...], leo: int, answer: tuple[int, int], expected: Cut
) -> None:
    """M38: the follower's own lineage and the leader's answer together determine where it truncates."""
    assert cut_for(cache(*own), Offset(leo), EpochEnd(LeaderEpoch(answer[0]), Offset(answer[1]))) == expected


class NaiveCache:
    """A list with the epoch of every record, and the starts of epochs that have written nothing yet."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.promised: list[int] = []

    def latest(self) -> int | None:
        known = self.records + self.promised
        return max(known) if known else None

    def lead(self, epoch: int) -> None:
        # At one offset only the newest such start counts: the older epochs will never write there.
        self.promised = [epoch]

    def append(self, epoch: int) -> None:
        self.records.append(epoch)
        self.promised = [p for p in self.promised if p > epoch]

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.promised = []

    def end(self, epoch: int) -> tuple[int, int] | None:
        latest = self.latest()
        if latest is None or epoch > latest:
            return None
        if epoch == latest:
            return epoch, len(self.records)
        at_most = [e for e in self.records if e <= epoch]
        return (max(at_most) if at_most else epoch), len(at_most)


@given(st.lists(st.one_of(st.tuples(st.just("lead"), st.integers(1, 3)), st.tuples(st.just("write"), st.integers(1, 4)),
                          st.tuples(st.just("cut"), st.integers(0, 12))), max_size=30), st.integers(0, 40))  # fmt: skip
def test_cache_agrees_with_a_list_of_epochs(steps: list[tuple[str, int]], asked: int) -> None:
    """A cache that followed new epochs, appends and truncations gives the answers of a list of every record's epoch."""
    naive, built = NaiveCache(), EpochCache()
    for verb, number in steps:
        if verb == "lead":
            epoch = (naive.latest() or 0) + number
            naive.lead(epoch)
            built.assign(LeaderEpoch(epoch), Offset(len(naive.records)))
        elif verb == "cut":
            cut = min(number, len(naive.records))
            naive.cut(cut)
            built.truncate_from_end(Offset(cut))
        elif naive.latest() is not None:
            for _ in range(number):
                naive.append(naive.latest() or 0)
        leo = len(naive.records)
        assert end(built, asked, leo) == naive.end(asked)
        assert [built.epoch_of(Offset(o)) for o in range(leo)] == naive.records
        assert built.latest_epoch == naive.latest()
        assert all(isinstance(e, EpochEntry) and built.knows(e.epoch) for e in built.entries)
