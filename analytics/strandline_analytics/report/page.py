"""Makes the page from its material, as one HTML file.

Invariant: the file loads nothing from outside itself, and every figure on it is in the material.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline.units import duration_text
from strandline_analytics.report import Report
from strandline_analytics.report.failovers import failovers, loss_parts, losses
from strandline_analytics.report.groups import group_lines
from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material, incidents_of, sees_changes
from strandline_analytics.report.shown_incident import Fact, linked, shown_incident
from strandline_analytics.report.tables import Content, moment_text, share_text, stat_tables
from strandline_analytics.report.verdict import unknown_losses, verdict, worst


def report_of(material: Material) -> Report:
    """The page of a material, and its figures."""
    shown = page(material)
    return Report(
        verdict=shown["verdict"].sentence,
        troubles=shown["data"]["troubles"],
        page=_render(shown),
        figures=json.dumps(shown["data"], indent=2) + "\n",
    )


def render(material: Material) -> str:
    """The page."""
    return _render(page(material))


def _render(shown: Mapping[str, Any]) -> str:
    environment = Environment(
        loader=PackageLoader("strandline_analytics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(page=shown)


def page(material: Material) -> dict[str, Any]:
    """The values for the template."""
    found = incidents_of(material)
    share = coverage(material)
    figures = data(material, found)
    tables = stat_tables(material)
    return {
        "verdict": verdict(material, found, share),
        "worst": worst(material, found),
        "start": moment_text(material.start_us),
        "end": moment_text(material.end_us),
        "length": duration_text((material.end_us - material.start_us) / 1_000),
        "partitions": len({event.key for event in material.events if event.partition is not None}),
        "clusters": sorted({event.cluster_id for event in material.events}),
        "facts": linked(_facts(material, figures), material),
        "incidents": [shown_incident(incident, found, material) for incident in found],
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
    """The page's figures for programs, as the page has them under ``report-data``."""
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
    """The share of the window in which the control plane is known, over all partitions; None without any evidence."""
    rows = material.results["s10"].rows if "s10" in material.results else []
    shares = [row["coverage"] for row in rows if row.get("coverage") is not None]
    return sum(shares) / len(shares) if shares else None


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
    """The phases of the longest failover among those with a last heartbeat; empty if there is none."""
    heard = [each for each in found if each["last_heartbeat_us"] is not None]
    if not heard:
        return ""
    longest = max(heard, key=lambda each: each["epoch_start_us"] - each["last_heartbeat_us"])
    moments = [longest[name] for name in ("last_heartbeat_us", "fence_us", "decided_us", "epoch_start_us")]
    took = [duration_text((later - earlier) / 1_000) for earlier, later in itertools.pairwise(moments)]
    return f"{took[0]} to notice, {took[1]} to elect, {took[2]} to begin"


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
