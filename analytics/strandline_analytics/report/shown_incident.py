"""Prepares one incident for the page: its row, its facts, its next steps and its pictures.

Invariant: partitions that are not drawn are counted, and an unknown figure is a dash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.drawing import NARROW, WIDE, clock_text, draw_lanes
from strandline_analytics.report.failovers import failovers_of
from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material
from strandline_analytics.report.pictures import picture
from strandline_analytics.report.scenes import MOST_INCIDENTS, scenes
from strandline_analytics.report.tables import moment_text
from strandline_analytics.timeline.causes import INFERRED_STEPS, LOSSY, meaning
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import in_short
from strandline_analytics.timeline.sentences import nodes_text

# ---- facts
# Facts: pairs of a name and a figure on the page.
#
# Invariant: a figure links to its definition only if the page has that definition.


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a figure, with a note on its parts; ``anchor`` links to how the figure was computed."""

    name: str
    shown: str
    anchor: str = ""
    note: str = ""


def linked(facts: Sequence[Fact], material: Material) -> list[Fact]:
    """The facts, without links to statistics that are not in the report."""
    there = {"incidents"} | {f"def-{name}" for name in material.results}
    there |= {f"def-{name}-{column.name}" for name, found in material.results.items() for column in found.declared}
    return [fact if fact.anchor in there else replace(fact, anchor="") for fact in facts]


# ---- steps
# Lists what to do about an incident: one step for each of its causes, recorded or inferred.
#
# Invariant: an inferred cause is called inferred, and never hides a recorded one.

DOCS = "docs/OPERATIONS.md"
"""The document that explains next steps: it is part of the project, not of the page, which refers to it by name."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about one cause of an incident, and where that is documented."""

    cause: str
    said: str
    todo: str
    link: str
    heading: str


def steps(incident: Incident) -> list[Remedy]:
    """The next steps: for causes that may lose records, for inferred causes, then for the others."""
    lossy = [cause for cause in incident.why if cause in LOSSY]
    return [
        *map(_recorded, lossy),
        *_inferred(incident),
        *(_recorded(cause) for cause in incident.why if cause not in LOSSY),
    ]


def _recorded(cause: str) -> Remedy:
    reported = meaning(cause)
    return Remedy(cause.replace("_", " "), reported.said, reported.todo, f"{DOCS}#{reported.anchor}", reported.heading)


def _inferred(incident: Incident) -> list[Remedy]:
    # The heading is that of the recorded cause of the removals, which the inferred cause explains.
    lag = meaning("lag")
    link, heading = f"{DOCS}#{lag.anchor}", lag.heading
    return [
        Remedy(in_short([one]), one.says, INFERRED_STEPS.get(one.rule, lag.todo), link, heading)
        for one in incident.inferred
    ]


_MOST_NAMES = 12


def shown_incident(incident: Incident, found: Sequence[Incident], material: Material) -> dict[str, Any]:
    """The template's values for an incident, one of those in ``found``."""
    drawn = scenes(incident, found, material)
    of_nodes = [e for e in material.events if e.partition is None and e.cluster_id == incident.cluster_id]
    topics = {event.key: event.topic for event in material.events}
    pictures = []
    for scene in drawn:
        own = _ordered([e for e in (*material.events, *material.samples) if e.key == scene.key])
        title = f"{own[0].topic}-{scene.key[2]}" if own else str(scene.key)
        shown = picture(title, own, of_nodes, scene.t0, scene.t1)
        marks = [
            {"clock": clock_text(m.t_us), "who": m.who, "sentence": m.sentence, "cause": m.cause}
            for m in shown.markers
        ]  # fmt: skip
        drawings = {"wide": draw_lanes(shown, WIDE), "narrow": draw_lanes(shown, NARROW)}
        alike = sorted(f"{topics[key]}-{key[2]}" for key in scene.alike)
        pictures.append({"title": title, "drawings": drawings, "markers": marks, "alike": _alike(alike)})
    tag, tone = _tag(incident)
    shown_keys = sum(1 + len(scene.alike) for scene in drawn)
    why = "" if incident.number <= MOST_INCIDENTS else f" (drawn are the first {MOST_INCIDENTS} incidents)"
    return {
        "id": incident.id,
        "number": incident.number,
        "began": moment_text(incident.began_us),
        "began_short": moment_text(incident.began_us).replace("T", " ").removesuffix("Z"),
        "sentence": incident_sentence(incident),
        "tag": tag,
        "tone": tone,
        "is_planned": incident.is_planned,
        "failover": longest_failover(incident, material),
        "recovered": recovered_text(incident),
        "facts": linked(_incident_facts(incident, material), material),
        "steps": steps(incident),
        "pictures": pictures,
        "left_out": f"{shown_keys} of {len(incident.keys)} partitions are shown{why}."
        if shown_keys < len(incident.keys)
        else "",
    }


def _alike(names: Sequence[str]) -> str:
    """The other partitions that a picture represents, in one line."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
    count = "1 more partition looks" if len(names) == 1 else f"{len(names)} more partitions look"
    return f"{count} the same: {', '.join(names[:_MOST_NAMES])}{more}"


def longest_failover(incident: Incident, material: Material) -> str:
    """The duration of the longest failover from the last heartbeat; if none was seen, of election and start only."""
    found = failovers_of(incident.leader_changes, material.events)
    heard = [f.epoch_start_us - f.last_heartbeat_us for f in found if f.last_heartbeat_us is not None]
    if heard:
        return duration_text(max(heard) / 1_000)
    took = max((f.epoch_start_us - f.fence_us for f in found), default=None)
    return "–" if took is None else f"{duration_text(took / 1_000)} to elect and to begin"


def _ordered(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda e: (e.partition_epoch or 0, e.plane, e.t_us, e.node_id, e.incarnation, e.seq))


def incident_sentence(incident: Incident) -> str:
    """The summary of an incident, in one line."""
    parts = []
    if incident.shrinks:
        nodes = incident.removed_nodes
        of = len({event.key for event in incident.shrinks})
        who = f"node {next(iter(nodes))}" if len(nodes) == 1 else f"nodes {nodes_text(nodes)}"
        parts.append(f"{who} removed from the ISR of {of} partition{'' if of == 1 else 's'}")
        if incident.label:
            parts[-1] += f", {incident.label.replace('_', ' ')}"
    if incident.elections:
        parts.append(f"{len(incident.elections)} election{'' if len(incident.elections) == 1 else 's'}")
    leaderless = len({event.key for event in incident.leader_changes if (event.get("new_leader") or 0) < 0})
    if leaderless:
        parts.append(f"{leaderless} partition{'' if leaderless == 1 else 's'} without a leader for a time")
    if incident.stalls:
        longest = max(stall.t1 - stall.t0 for stall in incident.stalls)
        count = len(incident.stalls)
        parts.append(
            f"{count} stalled high watermark{'' if count == 1 else 's'}, up to {duration_text(longest / 1_000)}"
        )
    return "; ".join(parts)


def _tag(incident: Incident) -> tuple[str, str]:
    if incident.is_unclean:
        return "unclean election", "bad"
    if incident.committed_cut:
        return "committed records cut", "bad"
    if incident.is_planned:
        return "planned", "good"
    return ("over", "warn") if incident.recovered_us is not None else ("not over", "bad")


def recovered_text(incident: Incident) -> str:
    """The time until its ISRs were whole again."""
    if incident.recovered_us is None:
        return "not within the window"
    return f"after {duration_text((incident.recovered_us - incident.began_us) / 1_000)}"


def _below_hw(incident: Incident) -> str:
    if not incident.blind_cuts:
        return f"{incident.committed_cut:,}"
    if incident.blind_cuts == len(incident.truncations):
        return "own HW not known"
    return f"{incident.committed_cut:,}, own HW not known of {incident.blind_cuts:,}"


def _phases(incident: Incident, material: Material) -> list[Fact]:
    """The phases of the incident's failovers (S19), the longest of each, as far as events show them."""
    found = failovers_of(incident.leader_changes, material.events)
    heard = [each.fence_us - each.last_heartbeat_us for each in found if each.last_heartbeat_us is not None]
    phases = (
        ("detection: last heartbeat to fence", heard, "detect"),
        ("decision: fence to election", [each.decided_us - each.fence_us for each in found], "elect"),
        ("activation: election to epoch start", [each.epoch_start_us - each.decided_us for each in found], "activate"),
    )
    return [Fact(name, duration_text(max(took) / 1_000), f"def-s19-{of}_max_us") for name, took, of in phases if took]


def _incident_facts(incident: Incident, material: Material) -> list[Fact]:
    causes: Counter[str] = incident.causes
    facts = [
        Fact("began (UTC)", clock_text(incident.began_us)),
        Fact(
            "cause of its decisions",
            ", ".join(f"{cause.replace('_', ' ')} ({n})" for cause, n in causes.most_common()) or "–",
            "def-s09",
        ),
        Fact("shrinks", f"{len(incident.shrinks):,}", "def-s17"),
        Fact("elections", f"{len(incident.elections):,}", "def-s19"),
        *_phases(incident, material),
        Fact("recovery: ISRs whole again", recovered_text(incident), "def-s12"),
        Fact("cut from logs", f"{incident.cut_records:,} records", "def-s07"),
        Fact("of them below an HW", _below_hw(incident), "def-s07-committed_cut_records"),
    ]
    if incident.stalls:
        blockers = sorted({node for stall in incident.stalls for node in stall.blockers})
        under = " (under min ISR)" if any(stall.is_under_min for stall in incident.stalls) else ""
        facts.append(Fact("HW held up by", f"{nodes_text(blockers)}{under}", "def-s18"))
    return facts
