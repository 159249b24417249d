"""Which refusals are series: every error that was given, and the ones that alerts ask for from the start.

Invariant: an error's name comes from the closed table of errors, so the number of series is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.errors import ErrorCode
from strandline.metrics.families import REFUSALS
from strandline.metrics.figures import Figure
from strandline.runtime.refusals import Refusals

_FROM_THE_START = (ErrorCode.NOT_ENOUGH_REPLICAS.name, ErrorCode.THROTTLING_QUOTA_EXCEEDED.name)


def refusal_figures(refusals: Refusals) -> Iterator[Figure]:
    """How many there were, by error."""
    counts = dict.fromkeys(_FROM_THE_START, 0) | refusals.by_error
    yield from (Figure(REFUSALS, count, (error,)) for error, count in counts.items())
