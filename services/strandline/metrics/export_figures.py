"""The export's counters as figures: by their names, all of them.

Invariant: a counter without a family is a mistake of the programmer, found at the first scrape.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.export.counters import ExportCounters
from strandline.metrics.families import EXPORT
from strandline.metrics.figures import Figure

_FAMILIES = {family.full_name: family for family in EXPORT}


def export_figures(counters: ExportCounters) -> Iterator[Figure]:
    """One figure for each counter."""
    for name, value in counters.metrics().items():
        yield Figure(_FAMILIES[name], value)
