"""The first sentence of a report: was anything lost, does anything stand open, and how much of it is known.

Invariant: nothing is called fine that is not known; a figure of the sentence is one of the page's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.draw_lanes import clock_text
from strandline_analytics.report.incidents import Incident, Key
from strandline_analytics.report.losses import loss_parts, losses
from strandline_analytics.report.material import Material, sees_changes
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import downs

KNOWN_ENOUGH = 0.95
"""Below this share of known time, a window without incidents is not called calm."""

MOSTLY = 0.8
"""With this share of what happened a node is the one that it is about (S17)."""

_NAMED = 3
"""So many partitions are named, the others counted."""


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
    lost = _total(material, "s07", "committed_lost_records")
    unknown = unknown_losses(material)
    if lost:
        least, more = ("at least ", f"; how many more in {_names(unknown)} is not known") if unknown else ("", "")
        what = ", ".join([f"{least}{lost:,}", *loss_parts(losses(material))])
        return Verdict(f"Committed records were lost: {what}, in {_whose(material, incidents)}{more}", "bad")
    if unknown:
        sentence = f"Unclean election of {_names(unknown)}: how many committed records it lost is not known"
        return Verdict(sentence, "bad")
    still = [incident for incident in incidents if incident.recovered_us is None and not incident.is_planned]
    faults = [incident for incident in incidents if not incident.is_planned]
    known = "" if coverage is None or coverage >= KNOWN_ENOUGH else f" in what is known ({100 * coverage:.0f} %)"
    if not faults:
        return _without_faults(material, incidents, known)
    elected = {event.key for incident in incidents for event in incident.elections}
    is_measured = elected <= _measured(material) and sees_changes(material)
    lossless = "Nothing committed was lost" if is_measured else "No loss of committed records is known"
    headline = f"{lossless}{known}; {_whose(material, faults)}"
    parts = []
    if below := _total(material, "s07", "committed_cut_records"):
        parts.append(f"{below:,} committed records cut from copies")
    if waited := _most(material, "s11", "write_unavailable_us"):
        parts.append(f"writes refused at most {duration_text(waited / 1_000)} in one partition")
    blind = _blind_cuts(material)
    of_blind = sum(event.get("from_leo") - event.get("to_leo") for event in blind)
    if (cut := _total(material, "s07", "truncated_records") - below - of_blind) > 0:
        parts.append(f"{cut:,} uncommitted records cut")
    if blind:
        reported = f"{_count(len(blind), 'cut')} by a replica that did not know its own HW"
        parts.append(f"{reported} ({_count(of_blind, 'record')})")
    if still:
        parts.append(f"{_count(len(still), 'incident')} not over at the end of the window")
    if planned := len(incidents) - len(faults):
        parts.append(_count(planned, "planned change"))
    return Verdict(headline, "warn", tuple(parts))


def _whose(material: Material, incidents: Sequence[Incident]) -> str:
    """How many incidents there are, and the node that most of it is about, with the reason and when it was down."""
    reported = _count(len(incidents), "incident")
    faults = [incident for incident in incidents if not incident.is_planned]
    about = Counter((fault.cluster_id, node) for fault in faults for node in fault.culprits.elements())
    if not about:
        return reported
    of_several = len({event.cluster_id for event in material.events}) > 1
    most = sorted(about, key=lambda one: (-about[one], one))
    names = [f"node {node} of {cluster}" if of_several else f"node {node}" for cluster, node in most]
    if about[most[0]] < MOSTLY * about.total():
        return f"{reported}: {_names(names)}"
    own = [fault for fault in faults if fault.cluster_id == most[0][0] and most[0][1] in fault.culprits]
    ((why, _),) = Counter(fault.why[0] for fault in own).most_common(1)
    return f"{reported}: {names[0]} ({why.replace('_', ' ')}{_down(material, own, most[0][1])})"


def _down(material: Material, own: Sequence[Incident], node: int) -> str:
    """When a node was fenced in these incidents of its cluster, if it was; of several times the first."""
    reported = [e for e in material.events if e.partition is None and e.cluster_id == own[0].cluster_id]
    times = [
        down
        for down in downs(reported, material.end_us)
        if down.node_id == node and any(down.t1 > one.began_us and down.t0 <= _over(one, material) for one in own)
    ]
    if not times:
        return ""
    first, others = times[0], len(times) - 1
    more = f", and {'once' if others == 1 else f'{others} times'} more" if others else ""
    if first.t1 >= material.end_us:
        return f", down since {clock_text(first.t0)}{more}"
    return f", down {clock_text(first.t0)} to {clock_text(first.t1)}{more}"


def _over(incident: Incident, material: Material) -> int:
    return material.end_us if incident.recovered_us is None else incident.recovered_us


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
        names = _names(sorted(f"{row['topic']}-{row['partition']}" for row in open_rows))
        longest = duration_text(max(row["under_replicated_us"] for row in open_rows) / 1_000)
        since = " since before the window" if sees_changes(material) else ""
        return Verdict(f"In trouble{since}{known}: {names}, up to {longest} of it", "warn")
    if not sees_changes(material):
        return Verdict(f"No trouble was seen{known}; what happened between two looks is not recorded", "warn")
    calm = "Nothing went wrong" if not incidents else f"Only planned changes ({len(incidents)})"
    return Verdict(calm + known, "warn" if known else "good")


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


def _names(partitions: Sequence[str]) -> str:
    shown = ", ".join(partitions[:_NAMED])
    return shown if len(partitions) <= _NAMED else f"{shown} and {len(partitions) - _NAMED} more"


def _total(material: Material, statistic: str, name: str) -> int:
    return material.results[statistic].total(name) if statistic in material.results else 0


def _most(material: Material, statistic: str, name: str) -> float | None:
    return material.results[statistic].most(name) if statistic in material.results else None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
