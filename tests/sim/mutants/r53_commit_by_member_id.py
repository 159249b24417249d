"""R53: any member commits for every partition."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups import commits


def _member_is_enough(real: Real, *given: Any) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="R53",
        name="commit checked by member id only",
        broken="A member commits for partitions that it does not hold, and in epochs in which it did not hold them.",
        source="G20; zombies of consumer groups (KIP-447)",
        tests=("tests/core/groups/test_commits.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(commits, "may_commit", _member_is_enough),),
    ),
)
