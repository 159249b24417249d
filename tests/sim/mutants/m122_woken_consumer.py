"""122: a woken consumer reads on to the log end."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.messages import FetchResult
from strandline.core.serving.fetch import FetchServing


def _to_the_log_end(real: Real, self: FetchServing, fetch: Any, parts: Any) -> list[FetchResult]:
    found: list[FetchResult] = []
    for result in real(self, fetch, parts):
        leader = self._state.leaders.get(result.tp)
        if fetch.replica is None and leader is not None and result.read is not None:
            result = result._replace(read=result.read._replace(end=leader.log.leo))
        found.append(result)
    return found


MUTANTS = (
    Mutant(
        number="122",
        name="woken consumer reads to the log end",
        broken="A consumer's fetch that was parked is answered with records above the high watermark.",
        source="M9",
        swaps=(Swap(FetchServing, "_read_again", _to_the_log_end),),
    ),
)
