"""81: what a transaction consumed is not consumed again after its abort."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.client.consumer import Consumer
from strandline_sim.clients.copiers import Copier
from strandline_sim.clients.transactors import Transactor


def _stays(real: Real, self: Consumer) -> None:
    real.differs()


def _reads_on(real: Real, self: Copier) -> None:
    if self._open is not None and self._open.offsets:
        real.differs()
        self._position = self._open.offsets[0].offset
    Transactor._forget(self)


MUTANTS = (
    Mutant(
        number="81a",
        name="abort without rewind",
        broken="The next transaction skips what the aborted one had consumed: an input without an output.",
        source="U11",
        tests=("tests/client/test_client_transactions.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Consumer, "_rewind", _stays, pure=False),),
    ),
    Mutant(
        number="81b",
        name="a simulated process reads on behind an abort",
        broken="The inputs of an aborted transaction have no output, and the offset passes them all the same.",
        source="X16; KIP-447, whose example resets the consumer after an abort",
        tests=("tests/sim/test_sim_seeds.py::test_a_seed_of_copiers_breaks_nothing",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(Copier, "_forget", _reads_on, pure=False),),
    ),
)
