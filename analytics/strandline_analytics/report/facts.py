"""What a page shows as a name and a figure.

Invariant: a figure leads to its definition only where that stands on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline_analytics.report.material import Material


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a figure, with what it consists of; ``anchor`` leads to how the figure was computed."""

    name: str
    shown: str
    anchor: str = ""
    note: str = ""


def linked(facts: Sequence[Fact], material: Material) -> list[Fact]:
    """The facts, without links to statistics that were not asked for."""
    there = {"incidents"} | {f"def-{name}" for name in material.results}
    there |= {f"def-{name}-{column.name}" for name, found in material.results.items() for column in found.declared}
    return [fact if fact.anchor in there else replace(fact, anchor="") for fact in facts]
