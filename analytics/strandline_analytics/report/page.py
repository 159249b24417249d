"""What stands on the page, and makes the one file of it: material in, HTML out.

Invariant: the file loads nothing from outside itself, and every figure on it is in the material.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline.units import duration_text
from strandline_analytics.report.draw_lanes import NARROW, WIDE, clock_text, draw_lanes
from strandline_analytics.report.failovers import failovers, failovers_of
from strandline_analytics.report.groups import group_lines
from strandline_analytics.report.incidents import Incident
from strandline_analytics.report.losses import loss_parts, losses
from strandline_analytics.report.material import Material, incidents_of, sees_changes
from strandline_analytics.report.moments import moment_text
from strandline_analytics.report.pictures import picture
from strandline_analytics.report.scenes import MOST_INCIDENTS, scenes
from strandline_analytics.report.tables import Content, share_text, stat_tables
from strandline_analytics.report.verdict import unknown_losses, verdict
from strandline_analytics.timeline.causes import meaning
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import nodes_text

_MOST_NAMES = 12

DOCS = "docs/OPERATIONS.md"
"""Where next steps are written: of the project, and not of the page, which refers to it by this name."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a figure, with what it consists of; ``anchor`` leads to how the figure was computed."""

    name: str
    shown: str
    anchor: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one cause of an incident, and where that is written."""

    cause: str
    said: str
    todo: str
    link: str
    heading: str


def render(material: Material) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("strandline_analytics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(page=page(material))


def page(material: Material) -> dict[str, Any]:
    """What the template shows."""
    found = incidents_of(material)
    share = coverage(material)
    figures = data(material, found)
    tables = stat_tables(material)
    return {
        "verdict": verdict(material, found, share),
        "start": moment_text(material.start_us),
        "end": moment_text(material.end_us),
        "length": duration_text((material.end_us - material.start_us) / 1_000),
        "partitions": len({event.key for event in material.events if event.partition is not None}),
        "clusters": sorted({event.cluster_id for event in material.events}),
        "facts": _linked(_facts(material, figures), material),
        "incidents": [_incident(incident, found, material) for incident in found],
        "groups": group_lines(material),
        "coverage": _coverage(material, share),
        "steps": -(-(material.end_us - material.start_us) // material.step_us),
        "step_length": duration_text(material.step_us / 1_000),
        "has_course": any(found.steps for found in material.results.values()),
        "stats": [table for table in tables if table.content is Content.FIGURES],
        "zeros": [table for table in tables if table.content is Content.ZEROS],
        "unknown": [table for table in tables if table.content is Content.NOTHING_KNOWN],
        "definitions": tables,
        "made": moment_text(material.made_us),
        "version": material.version,
        "inputs": material.inputs,
        "input_hash": material.input_hash,
        "data": figures,
    }


def data(material: Material, incidents: Sequence[Incident]) -> dict[str, Any]:
    """The page's figures for programs, as they stand in it under ``report-data``."""
    results = material.results

    def there(statistic: str) -> bool:
        return statistic in results and not results[statistic].trouble

    def total(statistic: str, name: str) -> int | None:
        is_known = there(statistic) and results[statistic].is_recorded(name)
        return results[statistic].total(name) if is_known else None

    def at_least(name: str, left_out: str) -> int | None:
        is_known = there("s07") and results["s07"].is_recorded(left_out)
        return results["s07"].at_least(name, left_out) if is_known else None

    lost = losses(material)
    elections = [e for i in incidents for e in i.elections if e.t_us >= material.start_us]
    return {
        "start_us": material.start_us,
        "end_us": material.end_us,
        "incidents": len(incidents),
        "faults": sum(not incident.is_planned for incident in incidents),
        "elections": len(elections) if sees_changes(material) else None,
        "shrinks": total("s08", "shrinks"),
        "expands": total("s08", "expands"),
        "truncated_records": total("s07", "truncated_records"),
        "own_hw_unknown": total("s07", "own_hw_unknown"),
        "committed_cut_records": at_least("committed_cut_records", "own_hw_unknown"),
        "epochs_unknown": total("s07", "epochs_unknown"),
        "committed_lost_records": lost.records,
        "committed_lost_min_bytes": lost.min_bytes,
        "committed_lost_max_bytes": lost.max_bytes,
        "avoidable_lost_records": lost.avoidable,
        "coverage": coverage(material),
        "failovers": [asdict(each) for each in failovers(material.events, material.start_us, material.end_us)],
        "troubles": {name: found.trouble for name, found in results.items() if found.trouble},
    }


def coverage(material: Material) -> float | None:
    """The share of the window in which the control plane is known, over all partitions; None: nothing to tell by."""
    rows = material.results["s10"].rows if "s10" in material.results else []
    shares = [row["coverage"] for row in rows if row.get("coverage") is not None]
    return sum(shares) / len(shares) if shares else None


def _linked(facts: Sequence[Fact], material: Material) -> list[Fact]:
    """The facts, without links to statistics that were not asked for."""
    there = {"incidents"} | {f"def-{name}" for name in material.results}
    there |= {f"def-{name}-{column.name}" for name, found in material.results.items() for column in found.declared}
    return [fact if fact.anchor in there else replace(fact, anchor="") for fact in facts]


def _facts(material: Material, figures: Mapping[str, Any]) -> list[Fact]:
    results = material.results

    def longest(statistic: str, name: str) -> str:
        value = results[statistic].most(name) if statistic in results else None
        return "–" if value is None else duration_text(value / 1_000)

    def count(name: str) -> str:
        return "–" if figures[name] is None else f"{figures[name]:,}"

    lag = results["s01"].most("max_records") if "s01" in results else None
    lost = count("committed_lost_records")
    if unknown_losses(material):
        lost = f"at least {lost}" if figures["committed_lost_records"] else "not known"
    return [
        Fact("incidents", f"{figures['incidents']:,}", "incidents"),
        Fact("elections", count("elections"), "def-s19"),
        Fact("ISR shrinks", count("shrinks"), "def-s08-shrinks"),
        Fact("ISR expands", count("expands"), "def-s08-expands"),
        Fact("records cut from logs", count("truncated_records"), "def-s07-truncated_records"),
        Fact("committed records lost", lost, "def-s07-committed_lost_records", "; ".join(loss_parts(losses(material)))),
        Fact("writes refused, longest", longest("s11", "write_unavailable_us"), "def-s11-write_unavailable_us"),
        Fact(
            "failover, longest",
            longest("s19", "total_max_us"),
            "def-s19-total_max_us",
            _longest_failover(figures["failovers"]),
        ),
        Fact("largest HW lag", "–" if lag is None else f"{lag:,.0f} records", "def-s01-max_records"),
    ]


def _longest_failover(found: Sequence[Mapping[str, Any]]) -> str:
    """How long each phase of the longest failover took, of those with a last heartbeat; empty without one."""
    heard = [each for each in found if each["last_heartbeat_us"] is not None]
    if not heard:
        return ""
    longest = max(heard, key=lambda each: each["epoch_start_us"] - each["last_heartbeat_us"])
    moments = [longest[name] for name in ("last_heartbeat_us", "fence_us", "decided_us", "epoch_start_us")]
    took = [duration_text((later - earlier) / 1_000) for earlier, later in itertools.pairwise(moments)]
    return f"{took[0]} to notice, {took[1]} to elect, {took[2]} to begin"


def _incident(incident: Incident, found: Sequence[Incident], material: Material) -> dict[str, Any]:
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
        "failover": _longest_of(incident, material),
        "recovered": _recovered(incident),
        "facts": _linked(_incident_facts(incident, material), material),
        "steps": [_step(cause) for cause in incident.why],
        "pictures": pictures,
        "left_out": f"{shown_keys} of {len(incident.keys)} partitions are shown{why}."
        if shown_keys < len(incident.keys)
        else "",
    }


def _alike(names: Sequence[str]) -> str:
    """The partitions that a picture also shows, in one line."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
    count = "1 more partition looks" if len(names) == 1 else f"{len(names)} more partitions look"
    return f"{count} the same: {', '.join(names[:_MOST_NAMES])}{more}"


def _longest_of(incident: Incident, material: Material) -> str:
    """From the last heartbeat of a leader, or else its fence, to the first word of the next; the longest one."""
    found = failovers_of(incident.leader_changes, material.events)
    took = [f.epoch_start_us - (f.fence_us if f.last_heartbeat_us is None else f.last_heartbeat_us) for f in found]
    return duration_text(max(took) / 1_000) if took else "–"


def _ordered(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda e: (e.partition_epoch or 0, e.plane, e.t_us, e.node_id, e.incarnation, e.seq))


def incident_sentence(incident: Incident) -> str:
    """What an incident was, in one line."""
    parts = []
    if incident.shrinks:
        nodes = incident.removed_nodes
        of = len({event.key for event in incident.shrinks})
        label = (incident.chain or {}).get("label")
        who = f"node {next(iter(nodes))}" if len(nodes) == 1 else f"nodes {nodes_text(nodes)}"
        parts.append(f"{who} removed from the ISR of {of} partition{'' if of == 1 else 's'}")
        if label:
            parts[-1] += f", {label.replace('_', ' ')}"
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


def _recovered(incident: Incident) -> str:
    if incident.recovered_us is None:
        return "not within the window"
    return f"after {duration_text((incident.recovered_us - incident.began_us) / 1_000)}"


def _below_hw(incident: Incident) -> str:
    if not incident.blind_cuts:
        return f"{incident.committed_cut:,}"
    if incident.blind_cuts == len(incident.truncations):
        return "own HW not known"
    return f"{incident.committed_cut:,}, own HW not known of {incident.blind_cuts:,}"


def _step(cause: str) -> Step:
    reported = meaning(cause)
    return Step(cause.replace("_", " "), reported.said, reported.todo, f"{DOCS}#{reported.anchor}", reported.heading)


def _phases(incident: Incident, material: Material) -> list[Fact]:
    """The phases of the incident's failovers (S19), the longest of each, as far as events tell them."""
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
        Fact("recovery: ISRs whole again", _recovered(incident), "def-s12"),
        Fact("cut from logs", f"{incident.cut_records:,} records", "def-s07"),
        Fact("of them below an HW", _below_hw(incident), "def-s07-committed_cut_records"),
    ]
    if incident.stalls:
        blockers = sorted({node for stall in incident.stalls for node in stall.blockers})
        under = " (under min ISR)" if any(stall.is_under_min for stall in incident.stalls) else ""
        facts.append(Fact("HW held up by", f"{nodes_text(blockers)}{under}", "def-s18"))
    return facts


def _coverage(material: Material, share: float | None) -> dict[str, Any]:
    results = material.results
    looked = [
        row["coverage"] for row in (results["s01"].rows if "s01" in results else []) if row.get("coverage") is not None
    ]

    def flaws(name: str) -> str:
        rows = results["s01"].rows if "s01" in results else []
        return f"{sum(row.get(name) or 0 for row in rows):,}"

    if share is None:
        sentence = "Nothing says how much of the window is known."
    elif share >= 1:
        sentence = "Every decision of the controller is there: who led and who was in sync is known at every moment."
    else:
        sentence = f"Who led and who was in sync is known for {share_text(share)} of the time; the rest is not guessed."
    kinds = Counter(event.event_type for event in material.events)
    return {
        "sentence": sentence,
        "facts": [
            Fact("decisions known", "–" if share is None else share_text(share)),
            Fact("HW and LEO known", share_text(sum(looked) / len(looked)) if looked else "–"),
            Fact("events read", f"{len(material.events):,} transitions"),
            Fact("transitions missing", flaws("n_gap")),
            Fact("doubles removed", flaws("n_duplicate")),
            Fact("zombie samples left out", flaws("n_zombie")),
            Fact("clocks that went back", flaws("clock_regressions")),
            Fact("reported as dropped by exporters", f"{kinds['EXPORT_GAP']:,}"),
        ],
    }
