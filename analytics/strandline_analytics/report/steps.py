"""What to do about an incident: one step for each of its causes, recorded or inferred.

Invariant: what was inferred is called so, and never hides what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline_analytics.report.incident import Incident
from strandline_analytics.timeline.causes import INFERRED_STEPS, LOSSY, meaning
from strandline_analytics.timeline.inferred import in_short

DOCS = "docs/OPERATIONS.md"
"""Where next steps are written: of the project, and not of the page, which refers to it by this name."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one cause of an incident, and where that is written."""

    cause: str
    said: str
    todo: str
    link: str
    heading: str


def steps(incident: Incident) -> list[Step]:
    """The next steps: of causes that may lose records, of what was inferred, of the other causes."""
    lossy = [cause for cause in incident.why if cause in LOSSY]
    return [
        *map(_recorded, lossy),
        *_inferred(incident),
        *(_recorded(cause) for cause in incident.why if cause not in LOSSY),
    ]


def _recorded(cause: str) -> Step:
    reported = meaning(cause)
    return Step(cause.replace("_", " "), reported.said, reported.todo, f"{DOCS}#{reported.anchor}", reported.heading)


def _inferred(incident: Incident) -> list[Step]:
    # The heading is that of the cause of the removals, which the inferred one explains.
    lag = meaning("lag")
    link, heading = f"{DOCS}#{lag.anchor}", lag.heading
    return [
        Step(in_short([one]), one.says, INFERRED_STEPS.get(one.rule, lag.todo), link, heading)
        for one in incident.inferred
    ]
