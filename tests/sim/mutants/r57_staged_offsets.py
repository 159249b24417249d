"""R57, R58: offsets that a transaction has staged are forgotten, or count although something newer was committed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups import admin, commits
from strandline.core.groups.group import Group
from strandline.core.types import TopicPartition


def _staged_or_not(
    real: Real, group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int
) -> Iterator[TopicPartition]:
    staged, group.staged = group.staged, {}
    try:
        found = list(real(group, subscribed, unix_ms, retention_ms))
    finally:
        group.staged = staged
    if staged:
        real.differs()
    yield from found


def _whatever_is_decided_last(real: Real, *given: object) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="R57",
        name="expiry ignores staged offsets",
        broken="A committed offset expires under an open transaction, whose abort then leaves the group without one.",
        source="G29, X16",
        tests=("tests/core/groups/test_offsets_in_transactions.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(admin, "_expired", _staged_or_not, pure=False),),
    ),
    Mutant(
        number="R58",
        name="promotion by the order of the markers",
        broken="A marker puts an offset over one that was committed after it was staged: the group goes back.",
        source="G26, X16",
        scenario="x16_later_commit_counts",
        tests=("tests/core/groups/test_offsets_in_transactions.py",),
        layers=(Layer.TESTS, Layer.SCENARIOS),
        swaps=(Swap(commits, "counts", _whatever_is_decided_last),),
    ),
)
