"""Decides the first sentence of a report: was anything lost, does anything stand open, and how much of it is known.

Invariant: nothing is called fine that is not known; a figure of the sentence is one of the page's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline_analytics.report.draw_lanes import length_text
from strandline_analytics.report.incidents import Incident
from strandline_analytics.report.material import Material

KNOWN_ENOUGH = 0.95
"""Below this share of known time, a window without incidents is not called calm."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A sentence, and its tone: good, warn or bad."""

    sentence: str
    tone: str


def verdict(material: Material, incidents: Sequence[Incident], coverage: float | None) -> Verdict:
    """The verdict on a window."""
    lost = _total(material, "s07", "committed_lost_records")
    below = _total(material, "s07", "committed_cut_records")
    if lost or below:
        return Verdict(
            f"Committed records were lost: {max(lost, below):,}, in {_count(len(incidents), 'incident')}", "bad"
        )
    still = [incident for incident in incidents if incident.recovered_us is None and not incident.is_planned]
    faults = [incident for incident in incidents if not incident.is_planned]
    known = "" if coverage is None or coverage >= KNOWN_ENOUGH else f" in what is known ({100 * coverage:.0f} %)"
    if not faults:
        calm = "Nothing went wrong" if not incidents else f"Only planned changes ({len(incidents)})"
        return Verdict(calm + known, "warn" if known else "good")
    parts = [f"Nothing committed was lost{known}", _count(len(faults), "incident")]
    if waited := _most(material, "s11", "write_unavailable_us"):
        parts.append(f"writes refused at most {length_text(waited)} in one partition")
    if cut := _total(material, "s07", "truncated_records"):
        parts.append(f"{cut:,} uncommitted records cut")
    if still:
        parts.append(f"{_count(len(still), 'incident')} not over at the end of the window")
    if planned := len(incidents) - len(faults):
        parts.append(_count(planned, "planned change"))
    return Verdict("; ".join(parts), "warn")


def _total(material: Material, statistic: str, name: str) -> int:
    return material.results[statistic].total(name) if statistic in material.results else 0


def _most(material: Material, statistic: str, name: str) -> float | None:
    return material.results[statistic].most(name) if statistic in material.results else None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
