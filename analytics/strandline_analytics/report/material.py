"""The data that a report is made from: all results of Spark, and nothing of Spark itself.

Invariant: the page is a function of this material alone, so it can be made, tested and viewed without a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline_analytics.report.incident import Incident
from strandline_analytics.report.incidents import incidents
from strandline_analytics.timeline.event import Event, Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A column of a result, as its statistic declares it."""

    name: str
    unit: str
    meaning: str
    is_extra: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one statistic: over the whole window per partition, and step by step over the cluster."""

    id: str
    title: str
    headline: str
    """The value whose course is drawn, and by which rows are sorted if not all fit."""
    definition: str
    declared: Sequence[Declared]
    rows: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    trouble: str = ""
    """The reason why there are no rows, if the computation failed."""

    def total(self, name: str) -> int:
        """The sum of a count over all rows; 0 if nothing was counted."""
        return sum(row[name] for row in self.rows if row.get(name) is not None)

    def is_recorded(self, name: str) -> bool:
        """Whether any row has the figure, or there are no rows; Kafka's exports may lack it (`availability`)."""
        return not self.rows or any(row.get(name) is not None for row in self.rows)

    def at_least(self, name: str, left_out: str) -> int | None:
        """The sum of the known values over all rows; None if that is 0 and something is not known.

        Args:
            left_out: the column that counts what the sum lacks.
        """
        known = self.total(name)
        return known if known or not self.total(left_out) else None

    def most(self, name: str) -> float | None:
        """The largest value of all rows; None if no value is known."""
        return max((row[name] for row in self.rows if row.get(name) is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that a page shows. Times in us since 1970."""

    inputs: Sequence[str]
    input_hash: str
    version: str
    made_us: int
    start_us: int
    end_us: int
    step_us: int
    events: Sequence[Event]
    """Transitions of all partitions and nodes, in logical order."""
    samples: Sequence[Event] = ()
    """Samples for the curves of the partitions that are drawn."""
    stalls: Sequence[Stall] = ()
    results: Mapping[str, Result] = field(default_factory=dict)


def sees_changes(material: Material) -> bool:
    """Whether changes of ISRs and leaders are recorded; a collector for Kafka sees only states."""
    return "s08" not in material.results or material.results["s08"].is_recorded("shrinks")


def incidents_of(material: Material) -> list[Incident]:
    """The incidents of the window, in the order of its table (`incidents.incidents`)."""
    chains = material.results["s17"].rows if "s17" in material.results else []
    inside = [event for event in material.events if event.t_us < material.end_us]
    found = incidents([row for row in chains if row.get("began_us") is not None], material.stalls, inside)
    return [incident for incident in found if incident.ended_us >= material.start_us]
