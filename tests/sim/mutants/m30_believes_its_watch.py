"""30: a take-over that does not read the head."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.reigns.reign import ReignCore


def _believing(real: Real, self: ReignCore, token: int, revision: int) -> None:
    real(self, token, revision)
    real.differs()
    assert self._reign is not None
    self._reign.head, self._reign.is_head_read = self.applied, True


MUTANTS = (
    Mutant(
        number="30",
        name="head not read at a take-over",
        broken="A reign begins from what the watch has brought.",
        source="C18; TR26",
        tests=("tests/core/test_reign.py::test_catching_up_reads_what_is_missing",),
        scenario="tr26_watch_that_lags",
        profiles=("controllers",),
        swaps=(Swap(ReignCore, "_won", _believing, pure=False),),
    ),
)
