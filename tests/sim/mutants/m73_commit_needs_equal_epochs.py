"""73: a commit is taken in the member's own epoch alone."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups import commits
from strandline.core.groups.records import CurrentValue


def _only_now(
    real: Real, current: CurrentValue, owner: tuple[str, int] | None, member_id: str, given_epoch: int
) -> bool:
    return bool(real(current, owner, member_id, given_epoch)) and given_epoch == current.member_epoch


MUTANTS = (
    Mutant(
        number="73",
        name="commit needs equal epochs",
        broken="Every commit that crosses a heartbeat is refused.",
        source="G20; KAFKA-20066, KIP-1251",
        tests=("tests/core/groups/test_commits.py", "tests/core/groups/test_fold.py"),
        layers=(Layer.TESTS,),
        swaps=(Swap(commits, "may_commit", _only_now),),
    ),
)
