"""What members of groups did (I29, I30, I32, I33): each anomaly has a history that is found, and some that are not."""

from __future__ import annotations

import pytest

from strandline_sim.checks.group_history import CommitOutcome
from strandline_sim.checks.member_history import (
    Commit,
    Fetch,
    Given,
    MemberOperation,
    Share,
    Taken,
    member_anomalies,
    offsets_that_went_back,
)

SHARE, OTHER = Share("g", "t", 0), Share("g", "t", 1)
DONE, UNKNOWN, NOT_WRITTEN = CommitOutcome.DONE, CommitOutcome.UNKNOWN, CommitOutcome.NOT_WRITTEN

History = list[MemberOperation]


def taken(member: str, at: int, share: Share = SHARE) -> Taken:
    """A member is assigned a partition."""
    return Taken(member, share, at)


def given(member: str, begin: int, end: int, at: int, done: int | None = None, share: Share = SHARE) -> Given:
    """A member asked for records at ``at``, and got them at ``done`` or at once."""
    return Given(member, share, begin, end, at, at if done is None else done)


def commit(
    member: str | None, offset: int, at: int, done: int | None, outcome: CommitOutcome = DONE, share: Share = SHARE
) -> Commit:
    """A commit from ``at`` to ``done``."""
    return Commit(member, share, offset, f"{member}/{at}", at, done, outcome)


def fetch(offset: int | None, at: int, done: int, serial: str | None = None, share: Share = SHARE) -> Fetch:
    """A read from ``at`` to ``done``."""
    return Fetch(share, offset, serial, at, done)


READ_BY_A: History = [taken("a", 0), given("a", 0, 10, 5)]
HANDED_OVER: History = [*READ_BY_A, commit("a", 10, 10, 12), taken("b", 20), given("b", 10, 20, 25)]


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("I29", [*HANDED_OVER, commit("a", 10, 22, 24)]),
        ("I29", [*READ_BY_A, commit("b", 5, 6, 7)]),
        ("I29", [*READ_BY_A, commit(None, 5, 7, 8), given("a", 10, 11, 9)]),
        ("I29", [*HANDED_OVER, commit("a", 10, 22, 24), commit("b", 20, 26, 28)]),
        ("I30", [*READ_BY_A, commit("a", 10, 10, 12), fetch(None, 13, 14)]),
        ("I30", [*READ_BY_A, commit("a", 5, 6, 7), commit("a", 10, 10, 12), fetch(5, 13, 14, "a/6")]),
        ("I30", [*READ_BY_A, commit("a", 10, 10, 12, NOT_WRITTEN), fetch(10, 13, 14, "a/10")]),
        ("I32", [*HANDED_OVER, given("a", 10, 12, 21, 22)]),
        ("I32", [*HANDED_OVER, taken("c", 30), given("b", 20, 21, 31)]),
        ("I32", [given("a", 0, 10, 5)]),
        ("I33", [*READ_BY_A, commit("a", 11, 10, 12)]),
        ("I33", [taken("a", 0), given("a", 0, 4, 1), given("a", 5, 10, 2), commit("a", 10, 10, 12)]),
        ("I33", [*READ_BY_A, commit("a", 12, 10, 12), given("a", 10, 12, 11)]),
        ("I33", [taken("a", 0), given("a", 3, 10, 5), commit("a", 10, 10, 12)]),
        ("I33", [*READ_BY_A, commit("a", 11, 10, None, UNKNOWN), fetch(11, 13, 14, "a/10")]),
    ],
    ids=[
        "I29 a commit by the one before",
        "I29 a commit by a member without the partition",
        "I29 a commit of nobody beside a member",
        "I29 a commit by the one before, the holder commits too",
        "I30 a commit that is lost",
        "I30 an older commit is back",
        "I30 a commit that was refused",
        "I32 the one before reads on",
        "I32 a third member is assigned it, the second reads on",
        "I32 read without an assignment",
        "I33 a commit behind what was given",
        "I33 a record between that nobody was given",
        "I33 committed, then given",
        "I33 the first records were given to nobody",
        "I33 a commit without an answer that was fetched",
    ],
)
def test_what_is_wrong_is_found(name: str, history: History) -> None:
    """One anomaly, by the number of the invariant."""
    assert [anomaly.name for anomaly in member_anomalies(history)] == [name]


@pytest.mark.parametrize(
    "history",
    [
        HANDED_OVER,
        [*HANDED_OVER, commit("a", 10, 15, 24)],
        [*HANDED_OVER, commit("a", 10, 22, 24, NOT_WRITTEN), commit("a", 10, 23, None, UNKNOWN)],
        [*HANDED_OVER, commit("a", 10, 25, 30)],
        [*HANDED_OVER, taken("a", 30), given("a", 20, 25, 31), commit("a", 25, 32, 33)],
        [*HANDED_OVER, given("a", 10, 12, 19, 40)],
        [*HANDED_OVER, taken("a", 21, OTHER), given("a", 0, 9, 22, share=OTHER), commit("a", 9, 23, 24, share=OTHER)],
        [*READ_BY_A, commit("a", 10, 10, 12, UNKNOWN), fetch(None, 13, 14), fetch(10, 15, 16, "a/10")],
        [*READ_BY_A, taken("b", 20), given("b", 8, 12, 22), commit("b", 12, 23, 24), fetch(12, 25, 26, "b/23")],
        [given("a", 0, 10, 5), taken("a", 4), commit("a", 10, 6, 7)],
        [commit(None, 0, 1, 2), taken("a", 3), given("a", 0, 1, 4), fetch(0, 5, 6, "None/1")],
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
    """Partitions that change hands, records given twice, and commits of which nobody knows what became of them."""
    assert member_anomalies(history) == []


@pytest.mark.parametrize(
    "history",
    [
        [commit("a", 10, 0, 5), commit("b", 9, 6, 8)],
        [commit("a", 10, 0, 5), fetch(9, 6, 8, "x")],
        [fetch(10, 0, 5, "x"), fetch(None, 6, 8)],
        [commit("a", 10, 0, 5), taken("b", 6), given("b", 8, 12, 7)],
    ],
    ids=["committed", "fetched", "gone", "where a member began"],
)
def test_an_offset_that_went_back_is_found(history: History) -> None:
    """A later commit, read or beginning below what was known before."""
    assert [anomaly.name for anomaly in offsets_that_went_back(history)] == ["went-back"]


@pytest.mark.parametrize(
    "history",
    [
        [commit("a", 10, 0, 5), commit("b", 9, 4, 8)],
        [commit("a", 10, 0, 5, UNKNOWN), fetch(9, 6, 8, "x")],
        [commit("a", 10, 0, 5), fetch(9, 6, 8, "x", OTHER)],
        [taken("a", 0), given("a", 5, 9, 1), commit("a", 9, 2, 3), given("a", 0, 3, 6)],
        HANDED_OVER,
    ],
    ids=["at once", "perhaps never", "another partition", "the middle of what one member read", "handed over"],
)
def test_an_offset_that_may_have_been_so_is_not(history: History) -> None:
    """What overlaps has no order, and only the first records by each right show what is committed."""
    assert offsets_that_went_back(history) == []
