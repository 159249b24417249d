"""39: a new reign answers administrators before any node has spoken."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.doubt import Doubt
from strandline.core.control.messages import ControllerRequest
from strandline.core.errors import Refusal


def _at_once(real: Real, self: Doubt, request: ControllerRequest) -> Refusal | None:
    return None


MUTANTS = (
    Mutant(
        number="39",
        name="administrators answered before a node has spoken",
        broken="A reign changes and confirms from a store that may have forgotten what nodes were sent.",
        source="C37",
        tests=("tests/core/test_doubted_store.py",),
        profiles=("rollback",),
        swaps=(Swap(Doubt, "refusal", _at_once),),
    ),
)
