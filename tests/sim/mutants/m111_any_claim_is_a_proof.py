"""111: a large number is accepted as a proof."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core import positions
from strandline.core.messages import PositionProof
from strandline.core.types import NodeId


def _always(real: Real, secret: str, node_id: NodeId, proof: PositionProof) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="111",
        name="any claim is a proof",
        broken="One forged heartbeat stops the controller for everybody.",
        source="M72",
        tests=("tests/core/test_store_age.py",),
        swaps=(Swap(positions, "is_proof", _always),),
    ),
)
