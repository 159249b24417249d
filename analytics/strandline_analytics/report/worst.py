"""The worst incident of a report, for its first screen: who, what it cost, what to do next.

Worst are incidents that lost committed records, or may have; then those whose ISRs took longest to be whole again.

Invariant: every figure is one of the page's own. What statistics know of a partition over the window is said to be that
where the incident is not the partition's only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.units import duration_text
from strandline_analytics.report.culprits import who_text
from strandline_analytics.report.incident import Incident, Key
from strandline_analytics.report.material import Material
from strandline_analytics.report.shown_incident import recovered_text
from strandline_analytics.report.steps import Step, steps
from strandline_analytics.report.tables import moment_text


@dataclass(frozen=True, slots=True)
class Worst:
    """One incident, as the first screen has it."""

    id: str
    began: str
    who: str
    cost: tuple[str, ...]
    step: Step


def worst(material: Material, incidents: Sequence[Incident]) -> Worst | None:
    """The worst one; None where nothing happened that nobody asked for."""
    faults = [incident for incident in incidents if not incident.is_planned]
    if not faults:
        return None

    def lasted_us(incident: Incident) -> int:
        return (material.end_us if incident.recovered_us is None else incident.recovered_us) - incident.began_us

    chosen = min(faults, key=lambda incident: (not incident.is_severe, -lasted_us(incident)))
    others = {key for incident in incidents if incident is not chosen for key in incident.keys}
    costs = tuple(_costs(material, chosen, is_only=not others & {*chosen.keys}))
    return Worst(chosen.id, moment_text(chosen.began_us), who_text(material, chosen), costs, steps(chosen)[0])


def _costs(material: Material, incident: Incident, *, is_only: bool) -> Iterator[str]:
    over = "" if is_only else " over the window"
    if incident.is_unclean:
        unclean = {e.key for e in incident.leader_changes if e.get("election_type") == "unclean"}
        yield _lost(material, unclean) + over
    elif incident.committed_cut:
        yield f"{incident.committed_cut:,} committed records cut from copies"
    if refused_us := max(
        (us or 0 for us in _values(material, "s11", "write_unavailable_us", {*incident.keys})), default=0
    ):
        yield f"writes refused for up to {duration_text(refused_us / 1_000)} in one partition{over}"
    if incident.stalls:
        longest_us = max(stall.t1 - stall.t0 for stall in incident.stalls)
        yield f"HW stood still for up to {duration_text(longest_us / 1_000)}"
    yield f"ISRs whole again: {recovered_text(incident)}"


def _lost(material: Material, unclean: set[Key]) -> str:
    lost = _values(material, "s07", "committed_lost_records", unclean)
    unknown = _values(material, "s07", "epochs_unknown", unclean)
    is_whole = bool(lost) and None not in lost and not any(unknown)
    known = sum(records or 0 for records in lost)
    if not known and not is_whole:
        return "how many committed records were lost is not known"
    return f"{'' if is_whole else 'at least '}{known:,} committed records lost"


def _values(material: Material, statistic: str, name: str, keys: set[Key]) -> list[int | None]:
    rows = material.results[statistic].rows if statistic in material.results else []
    return [row.get(name) for row in rows if (row["cluster_id"], row.get("topic_id"), row.get("partition")) in keys]
