"""Histories of groups, committed offsets and members (I29, I30, I32, I33): each anomaly is found, and nothing else."""

from __future__ import annotations

import pytest

from strandline_sim.checks.group_history import (
    CommitOutcome,
    Committed,
    Fetch,
    Fetched,
    Given,
    MemberOperation,
    OffsetCommitted,
    Share,
    Taken,
    group_anomalies,
    member_anomalies,
    offsets_that_went_back,
)
from strandline_sim.runs.run import run_seed

DONE, UNKNOWN, NOT_WRITTEN = CommitOutcome.DONE, CommitOutcome.UNKNOWN, CommitOutcome.NOT_WRITTEN


def commit(value: int, at: int, done: int, outcome: CommitOutcome = DONE, group: str = "g") -> Committed:
    """A commit from ``at`` to ``done``."""
    return Committed(group, value, at, done, outcome)


def read(value: int | None, at: int, done: int, *, newest: bool = True, group: str = "g") -> Fetched:
    """A read from ``at`` to ``done``."""
    return Fetched(group, value, at, done, newest)


@pytest.mark.parametrize(
    "history",
    [
        [commit(1, 0, 10), read(None, 20, 30)],
        [commit(1, 0, 10), commit(2, 20, 30), read(1, 40, 50)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(2, 40, 50), read(1, 60, 70)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(2, 40, 50, newest=False), read(1, 60, 70)],
        [commit(1, 0, 10, NOT_WRITTEN), read(1, 20, 30)],
        [read(1, 0, 10), commit(1, 20, 30)],
        [read(7, 0, 10)],
        [commit(1, 0, 10, NOT_WRITTEN), read(1, 20, 30, newest=False)],
    ],
    ids=["lost", "stale", "went back", "undone", "refused and there", "from the future", "never sent", "refused, seen"],
)
def test_what_no_order_of_commits_explains_is_found(history: list[Committed | Fetched]) -> None:
    """The wrong read gets one sentence."""
    assert len(group_anomalies(history)) == 1


@pytest.mark.parametrize(
    "history",
    [
        [commit(1, 0, 10), read(1, 20, 30), read(1, 25, 40)],
        [commit(1, 0, 10), commit(2, 20, 50), read(1, 30, 40), read(2, 45, 60)],
        [commit(1, 0, 10), commit(2, 20, 30, UNKNOWN), read(1, 40, 50), read(2, 60, 70)],
        [commit(1, 0, 10), commit(2, 20, 30), read(1, 40, 50, newest=False)],
        [commit(1, 0, 100), commit(2, 20, 30), read(1, 40, 50)],
        [commit(1, 0, 10, group="h"), read(None, 20, 30)],
        [commit(1, 0, 10, UNKNOWN), read(None, 20, 30), read(1, 40, 50)],
    ],
    ids=["read twice", "at once", "late and unknown", "old, and said so", "order unknown", "another group", "later"],
)
def test_what_some_order_explains_is_not(history: list[Committed | Fetched]) -> None:
    """Commits that overlap may count in either order, and one without an answer at any time, or never."""
    assert group_anomalies(history) == []


def test_a_commit_that_is_open_when_a_run_ends_may_have_been_read() -> None:
    """A run of committers that ends between a read and the answer to the commit it shows breaks nothing."""
    assert run_seed(124, "groups").violation is None


# What members of groups did (I29, I30, I32, I33): each anomaly has a history that is found, and some that are not.


SHARE, OTHER = Share("g", "t", 0), Share("g", "t", 1)

History = list[MemberOperation]


def taken(member: str, at: int, share: Share = SHARE) -> Taken:
    """A member is assigned a partition."""
    return Taken(member, share, at)


def given(member: str, begin: int, end: int, at: int, done: int | None = None, share: Share = SHARE) -> Given:
    """A member asked for records at ``at``, and got them at ``done`` or at once."""
    return Given(member, share, begin, end, at, at if done is None else done)


def member_commit(
    member: str | None, offset: int, at: int, done: int | None, outcome: CommitOutcome = DONE, share: Share = SHARE
) -> OffsetCommitted:
    """A commit from ``at`` to ``done``."""
    return OffsetCommitted(member, share, offset, f"{member}/{at}", at, done, outcome)


def fetch(offset: int | None, at: int, done: int, serial: str | None = None, share: Share = SHARE) -> Fetch:
    """A read from ``at`` to ``done``."""
    return Fetch(share, offset, serial, at, done)


READ_BY_A: History = [taken("a", 0), given("a", 0, 10, 5)]
HANDED_OVER: History = [*READ_BY_A, member_commit("a", 10, 10, 12), taken("b", 20), given("b", 10, 20, 25)]


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("I29", [*HANDED_OVER, member_commit("a", 10, 22, 24)]),
        ("I29", [*READ_BY_A, member_commit("b", 5, 6, 7)]),
        ("I29", [*READ_BY_A, member_commit(None, 5, 7, 8), given("a", 10, 11, 9)]),
        ("I29", [*HANDED_OVER, member_commit("a", 10, 22, 24), member_commit("b", 20, 26, 28)]),
        ("I30", [*READ_BY_A, member_commit("a", 10, 10, 12), fetch(None, 13, 14)]),
        ("I30", [*READ_BY_A, member_commit("a", 5, 6, 7), member_commit("a", 10, 10, 12), fetch(5, 13, 14, "a/6")]),
        ("I30", [*READ_BY_A, member_commit("a", 10, 10, 12, NOT_WRITTEN), fetch(10, 13, 14, "a/10")]),
        ("I32", [*HANDED_OVER, given("a", 10, 12, 21, 22)]),
        ("I32", [*HANDED_OVER, taken("c", 30), given("b", 20, 21, 31)]),
        ("I32", [given("a", 0, 10, 5)]),
        ("I33", [*READ_BY_A, member_commit("a", 11, 10, 12)]),
        ("I33", [taken("a", 0), given("a", 0, 4, 1), given("a", 5, 10, 2), member_commit("a", 10, 10, 12)]),
        ("I33", [*READ_BY_A, member_commit("a", 12, 10, 12), given("a", 10, 12, 11)]),
        ("I33", [taken("a", 0), given("a", 3, 10, 5), member_commit("a", 10, 10, 12)]),
        ("I33", [*READ_BY_A, member_commit("a", 11, 10, None, UNKNOWN), fetch(11, 13, 14, "a/10")]),
    ],
    ids=[
        "I29 a commit by the one before",
        "I29 a commit by a member without the partition",
        "I29 a commit without a member beside a member",
        "I29 a commit by the one before, the holder commits too",
        "I30 a commit that is lost",
        "I30 an older commit is back",
        "I30 a commit that was refused",
        "I32 the one before reads on",
        "I32 a third member is assigned it, the second reads on",
        "I32 read without an assignment",
        "I33 a commit behind what was given",
        "I33 a record between that no member was given",
        "I33 committed, then given",
        "I33 the first records were given to no member",
        "I33 a commit without an answer that was fetched",
    ],
)
def test_what_is_wrong_is_found(name: str, history: History) -> None:
    """There is one anomaly, with the number of the invariant."""
    assert [anomaly.name for anomaly in member_anomalies(history)] == [name]


@pytest.mark.parametrize(
    "history",
    [
        HANDED_OVER,
        [*HANDED_OVER, member_commit("a", 10, 15, 24)],
        [*HANDED_OVER, member_commit("a", 10, 22, 24, NOT_WRITTEN), member_commit("a", 10, 23, None, UNKNOWN)],
        [*HANDED_OVER, member_commit("a", 10, 25, 30)],
        [*HANDED_OVER, taken("a", 30), given("a", 20, 25, 31), member_commit("a", 25, 32, 33)],
        [*HANDED_OVER, given("a", 10, 12, 19, 40)],
        [
            *HANDED_OVER,
            taken("a", 21, OTHER),
            given("a", 0, 9, 22, share=OTHER),
            member_commit("a", 9, 23, 24, share=OTHER),
        ],
        [*READ_BY_A, member_commit("a", 10, 10, 12, UNKNOWN), fetch(None, 13, 14), fetch(10, 15, 16, "a/10")],
        [*READ_BY_A, taken("b", 20), given("b", 8, 12, 22), member_commit("b", 12, 23, 24), fetch(12, 25, 26, "b/23")],
        [given("a", 0, 10, 5), taken("a", 4), member_commit("a", 10, 6, 7)],
        [member_commit(None, 0, 1, 2), taken("a", 3), given("a", 0, 1, 4), fetch(0, 5, 6, "None/1")],
    ],
    ids=[
        "handed over",
        "a commit that may have come before",
        "late commits that were not acknowledged",
        "the second may have gone before the late commit",
        "back to the first",
        "asked before, answered after",
        "two partitions",
        "without an answer",
        "some records twice",
        "in any order",
        "committed before there were members",
    ],
)
def test_what_can_be_explained_is_not(history: History) -> None:
    """Partitions that change hands, records given twice, and commits with an unknown outcome."""
    assert member_anomalies(history) == []


@pytest.mark.parametrize(
    "history",
    [
        [member_commit("a", 10, 0, 5), member_commit("b", 9, 6, 8)],
        [member_commit("a", 10, 0, 5), fetch(9, 6, 8, "x")],
        [fetch(10, 0, 5, "x"), fetch(None, 6, 8)],
        [member_commit("a", 10, 0, 5), taken("b", 6), given("b", 8, 12, 7)],
    ],
    ids=["committed", "fetched", "gone", "where a member began"],
)
def test_an_offset_that_went_back_is_found(history: History) -> None:
    """A later commit, read or beginning below what was known before."""
    assert [anomaly.name for anomaly in offsets_that_went_back(history)] == ["went-back"]


@pytest.mark.parametrize(
    "history",
    [
        [member_commit("a", 10, 0, 5), member_commit("b", 9, 4, 8)],
        [member_commit("a", 10, 0, 5, UNKNOWN), fetch(9, 6, 8, "x")],
        [member_commit("a", 10, 0, 5), fetch(9, 6, 8, "x", OTHER)],
        [taken("a", 0), given("a", 5, 9, 1), member_commit("a", 9, 2, 3), given("a", 0, 3, 6)],
        HANDED_OVER,
    ],
    ids=["at once", "perhaps never", "another partition", "the middle of what one member read", "handed over"],
)
def test_an_offset_that_may_have_been_so_is_not(history: History) -> None:
    """What overlaps has no order, and only the first records by each right show what is committed."""
    assert offsets_that_went_back(history) == []
