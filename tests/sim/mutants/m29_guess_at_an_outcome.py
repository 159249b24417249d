"""29a, 29b: an append without an answer is taken for done, or for refused."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.reigns.effects import Append, AppendSettled, Settled
from strandline.core.reigns.reign import ReignCore


def _guess(settled: Settled) -> Any:
    def unanswered(real: Real, self: ReignCore, event: Any, question: Any) -> None:
        batch = self._batch_of(question.effect) if isinstance(question.effect, Append) else None
        reign = self._reign
        if batch is None or reign is None:
            real(self, event, question)
            return
        real.differs()
        reign.batch = None
        self._out.append(AppendSettled(batch.head, settled))

    return unanswered


MUTANTS = (
    Mutant(
        number="29a",
        name="unknown outcome taken for done",
        broken="An append whose answer was lost is answered as stored.",
        source="C9; TR25",
        tests=("tests/core/test_reign.py::test_unknown_append_that_was_not_made",),
        scenario="tr25_request_of_an_append_is_lost",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(ReignCore, "_unanswered", _guess(Settled.DONE), pure=False),),
    ),
    Mutant(
        number="29b",
        name="unknown outcome taken for refused",
        broken="An append whose answer was lost is answered as refused.",
        source="C9; TR25",
        tests=("tests/core/test_reign.py::test_unknown_append_that_was_made",),
        scenario="tr25_answer_of_an_append_is_lost",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(ReignCore, "_unanswered", _guess(Settled.REFUSED), pure=False),),
    ),
)
