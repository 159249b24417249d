"""The first sentence of a report: was anything lost, does anything stand open, and how much of it is known.

Invariant: nothing is called fine that is not known; a figure of the sentence is one of the page's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.culprits import count_text, names_text, whose
from strandline_analytics.report.drawing import clock_text
from strandline_analytics.report.failovers import loss_parts, losses
from strandline_analytics.report.incident import Incident, Key
from strandline_analytics.report.material import Material, sees_changes
from strandline_analytics.report.spools import spooled
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import undecided

KNOWN_ENOUGH = 0.95
"""Below this share of known time, a window without incidents is not called calm."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What matters first, its tone (good, warn or bad), and what else there is to say."""

    headline: str
    tone: str
    details: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        return "; ".join((self.headline, *self.details))


def verdict(material: Material, incidents: Sequence[Incident], coverage: float | None) -> Verdict:
    """The verdict on a window. Losses are what a new leader lacked; a copy that is cut while the record lives elsewhere
    is none."""
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
    """What else there is to say of a window with incidents, what is missing of it first."""
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
    """When nobody could decide anything in the window."""
    for cluster in sorted({event.cluster_id for event in material.events}):
        for span in undecided(event for event in material.events if event.cluster_id == cluster):
            if span.overlaps(material.start_us, material.end_us):
                yield f"from {clock_text(span.t0)} {span.sentence}"


def unknown_losses(material: Material) -> list[str]:
    """Partitions with an unclean election in the window of which not everything that was lost is known."""
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
    """The cuts in the window that say nothing of committed records, because the replica did not know its own HW."""
    return [
        event
        for event in material.events
        if event.event_type == "TRUNCATION"
        and event.get("committed_cut") is None
        and material.start_us <= event.t_us < material.end_us
    ]


def _without_faults(material: Material, incidents: Sequence[Incident], known: str) -> Verdict:
    """No incident began in the window, which is calm only if none was open when it began."""
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
    """Partitions of which looks tell what all of their new leaders lacked."""
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
