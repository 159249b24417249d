"""Writes the first sentence of a report: was anything lost, is any incident still open, and how much of it is known.

Invariant: nothing unknown is called fine; every figure of the sentence is on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.culprits import count_text, names_text, spooled, who_text, whose
from strandline_analytics.report.drawing import clock_text
from strandline_analytics.report.failovers import loss_parts, losses
from strandline_analytics.report.incident import Incident, Key
from strandline_analytics.report.material import Material, sees_changes
from strandline_analytics.report.shown_incident import Remedy, recovered_text, steps
from strandline_analytics.report.tables import moment_text
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import undecided

KNOWN_ENOUGH = 0.95
"""The share of known time below which a window without incidents is not called calm."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, its tone (good, warn or bad), and further details."""

    headline: str
    tone: str
    details: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The whole verdict in one line."""
        return "; ".join((self.headline, *self.details))


def verdict(material: Material, incidents: Sequence[Incident], coverage: float | None) -> Verdict:
    """The verdict on a window. Losses are the records that a new leader lacked; truncating one copy of a record that
    exists elsewhere is not a loss."""
    known = "" if coverage is None or coverage >= KNOWN_ENOUGH else f" ({100 * coverage:.0f} % of the time is known)"
    faults = [incident for incident in incidents if not incident.is_planned]
    lost, unknown = _total(material, "s07", "committed_lost_records"), unknown_losses(material)
    if lost:
        least, more = ("at least ", f"; how many more in {names_text(unknown)} is not known") if unknown else ("", "")
        what = ", ".join([f"{least}{lost:,}", *loss_parts(losses(material))])
        headline = f"Committed records were lost: {what}, in {whose(material, incidents)}{more}"
    elif unknown:
        headline = f"Unclean election of {names_text(unknown)}: how many committed records it lost is not known"
        headline += f"; {whose(material, incidents)}"
    elif not faults:
        return _without_faults(material, incidents, known)
    else:
        elected = {event.key for incident in incidents for event in incident.elections}
        is_measured = elected <= _measured(material) and sees_changes(material)
        lossless = "Nothing committed was lost" if is_measured else "No loss of committed records is known"
        headline = f"{lossless}{known}; {whose(material, faults)}"
    return Verdict(headline, "bad" if lost or unknown else "warn", tuple(_details(material, incidents, faults)))


def _details(material: Material, incidents: Sequence[Incident], faults: Sequence[Incident]) -> Iterator[str]:
    """Further details of a window with incidents, missing data first."""
    yield from spooled(material)
    if below := _total(material, "s07", "committed_cut_records"):
        yield f"{below:,} committed records cut from copies"
    if waited := _most(material, "s11", "write_unavailable_us"):
        yield f"writes refused at most {duration_text(waited / 1_000)} in one partition"
    blind = _blind_cuts(material)
    of_blind = sum(event.cut_records or 0 for event in blind)
    if (cut := _total(material, "s07", "truncated_records") - below - of_blind) > 0:
        yield f"{cut:,} uncommitted records cut"
    if blind:
        reported = f"{count_text(len(blind), 'cut')} by a replica that did not know its own HW"
        yield f"{reported} ({count_text(of_blind, 'record')})"
    if still := sum(incident.recovered_us is None for incident in faults):
        yield f"{count_text(still, 'incident')} not over at the end of the window"
    if planned := len(incidents) - len(faults):
        yield count_text(planned, "planned change")
    yield from _undecided(material)


def _undecided(material: Material) -> Iterator[str]:
    """The periods in which no controller could decide anything, within the window."""
    for cluster in sorted({event.cluster_id for event in material.events}):
        for span in undecided(event for event in material.events if event.cluster_id == cluster):
            if span.overlaps(material.start_us, material.end_us):
                yield f"from {clock_text(span.t0)} {span.sentence}"


def unknown_losses(material: Material) -> list[str]:
    """Partitions with an unclean election in the window whose losses are not completely known."""
    unclean = {
        event.key
        for event in material.events
        if event.event_type == "LEADER_CHANGE"
        and event.get("election_type") == "unclean"
        and material.start_us <= event.t_us < material.end_us
    }
    topics = {event.key: event.topic for event in material.events}
    return sorted(f"{topics[key]}-{key[2]}" for key in unclean - _measured(material))


def _blind_cuts(material: Material) -> list[Event]:
    """The truncations in the window that do not show committed records: the replica did not know its own HW."""
    return [
        event
        for event in material.events
        if event.event_type == "TRUNCATION"
        and event.get("committed_cut") is None
        and material.start_us <= event.t_us < material.end_us
    ]


def _without_faults(material: Material, incidents: Sequence[Incident], known: str) -> Verdict:
    """The verdict if no fault began in the window, which is calm only if nothing was in trouble when it began."""
    planned = {key for incident in incidents for key in incident.keys}
    open_rows = [row for row in _rows(material, "s10") if row.get("under_replicated_us") and _key(row) not in planned]
    if open_rows:
        names = names_text(sorted(f"{row['topic']}-{row['partition']}" for row in open_rows))
        longest = duration_text(max(row["under_replicated_us"] for row in open_rows) / 1_000)
        since = " since before the window" if sees_changes(material) else ""
        return Verdict(f"In trouble{since}{known}: {names}, up to {longest} of it", "warn")
    if not sees_changes(material):
        return Verdict(f"No trouble was seen{known}; what happened between two looks is not recorded", "warn")
    calm = "Nothing went wrong" if not incidents else f"Only planned changes ({len(incidents)})"
    waited = tuple(_undecided(material))
    return Verdict(calm + known, "warn" if known or waited else "good", waited)


def _rows(material: Material, statistic: str) -> Sequence[Mapping[str, Any]]:
    return material.results[statistic].rows if statistic in material.results else []


def _measured(material: Material) -> set[Key]:
    """Partitions for which observations show what all of their new leaders lacked."""
    return {
        _key(row)
        for row in _rows(material, "s07")
        if row.get("committed_lost_records") is not None and not row.get("epochs_unknown")
    }


def _key(row: Mapping[str, Any]) -> Key:
    return row["cluster_id"], row.get("topic_id"), row.get("partition")


def _total(material: Material, statistic: str, name: str) -> int:
    return material.results[statistic].total(name) if statistic in material.results else 0


def _most(material: Material, statistic: str, name: str) -> float | None:
    return material.results[statistic].most(name) if statistic in material.results else None


# ---- worst
# Describes the worst incident of a report for its first screen: who, what it cost, what to do next.
#
# The worst incidents lost committed records, or may have; next come those whose ISRs took longest to be whole again.
#
# Invariant: every figure is on the page. If the partition has other incidents too, a figure that statistics give for
# the whole window is marked as such.


@dataclass(frozen=True, slots=True)
class Worst:
    """One incident, as the first screen shows it."""

    id: str
    began: str
    who: str
    cost: tuple[str, ...]
    step: Remedy


def worst(material: Material, incidents: Sequence[Incident]) -> Worst | None:
    """The worst incident; None if everything that happened was planned."""
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
