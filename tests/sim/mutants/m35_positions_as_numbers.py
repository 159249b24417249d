"""35, 35b: positions are compared as numbers, and an image of a reign that knows less is believed."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import state
from strandline.core.control.state import Reigns, Standing
from strandline.core.log.metadata import MetadataFollower
from strandline.core.messages import MetadataImage, Position


def _by_number(real: Real, reigns: Reigns, head: int, position: Position) -> Standing:
    return Standing.KNOWN if position.metadata_offset <= head else Standing.UNKNOWN


def _continues(real: Real, self: MetadataFollower, image: MetadataImage) -> str:
    return ""


MUTANTS = (
    Mutant(
        number="35",
        name="positions compared as numbers",
        broken="A store that forgot its end, and has as many transactions again, knows every position.",
        source="C35; TR27",
        tests=("tests/core/test_reign_begins.py::test_a_position_is_known_in_its_own_reign_only",),
        scenario="tr27_position_of_a_lost_offset",
        profiles=("rollback",),
        swaps=(Swap(state, "standing", _by_number),),
    ),
    Mutant(
        number="35b",
        name="image of a reign that branches off believed",
        broken="A node takes the snapshot of a store that forgot something, and drops what is not in it.",
        source="C36; TR29",
        scenario="tr29_topic_that_the_store_forgot",
        profiles=("rollback",),
        swaps=(Swap(MetadataFollower, "_branches_off", _continues),),
    ),
)
