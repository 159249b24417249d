"""44: a client takes an older image for news."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.messages import AsOf


def _never(real: Real, self: AsOf, other: AsOf) -> bool:
    return False


MUTANTS = (
    Mutant(
        number="44",
        name="client takes an older image",
        broken="Metadata of a node that lags replaces newer metadata, and leaders of the past are believed again.",
        source="C63; TR35",
        scenario="tr35_metadata_of_a_stale_node",
        tests=("tests/client/test_cluster_view.py::test_an_older_position_is_ignored_whoever_sends_it",),
        profiles=("swarm",),
        swaps=(Swap(AsOf, "is_before", _never),),
    ),
)
