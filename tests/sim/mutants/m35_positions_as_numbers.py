"""35: positions are compared as numbers, whatever reigns they are of."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core import reign_history
from strandline.core.messages import Position
from strandline.core.reign_history import Reigns, Standing


def _by_number(real: Real, reigns: Reigns, head: int, position: Position) -> Standing:
    return Standing.KNOWN if position.metadata_offset <= head else Standing.UNKNOWN


MUTANTS = (
    Mutant(
        number="35",
        name="positions compared as numbers",
        broken="A store that forgot its end, and has as many transactions again, knows every position.",
        source="C35; TR27",
        tests=("tests/core/test_reign_history.py::test_a_position_is_known_in_its_own_reign_only",),
        profiles=("rollback",),
        swaps=(Swap(reign_history, "standing", _by_number),),
    ),
)
