"""81: a consumer whose transaction was aborted reads on behind what that had consumed."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.client.consumer import Consumer


def _stays(real: Real, self: Consumer) -> None:
    real.differs()


MUTANTS = (
    Mutant(
        number="81",
        name="abort without rewind",
        broken="The next transaction skips what the aborted one had consumed: an input without an output.",
        source="U11",
        tests=("tests/client/test_client_transactions.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Consumer, "_rewind", _stays, pure=False),),
    ),
)
