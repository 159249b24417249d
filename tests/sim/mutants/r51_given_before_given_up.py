"""R51: a partition is given to a member while another still holds it."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups.group import Owners


def _gives_at_once(real: Real, *given: Any) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="R51",
        name="given before it was given up",
        broken="A member is given a partition of its target at once, even if another member holds it.",
        source="G17; the classic protocol's cooperative assignor does this where a report is missing (KIP-792)",
        tests=("tests/core/groups/test_heartbeats.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(Owners, "is_free_for", _gives_at_once),),
    ),
)
