"""The results of a run as a block of docs/OPERATIONS.md, so that no figure there is typed by hand."""

from __future__ import annotations

from typing import Any


def rendered(result: dict[str, Any]) -> str:
    """The results in the guide's form."""
    lines = [
        f"One run of `make test-with WHAT=kubernetes` on Kubernetes {result['kubernetes']}, on one machine with "
        f"{result['processors']} cores and a load average of {result['load_average']:.0f}: {result['verdict']}, "
        f"{result['took_s']} s in all; "
        f"{result.get('acknowledged', 0):,} records acknowledged, {len(result['failures'])} failures.",
        "The time is the longest for which one partition gave no acknowledgement to a producer with acks=all.",
        "",
        "| what was done | without an acknowledgement | what was seen |",
        "|---|---|---|",
    ]
    for check in result["checks"]:
        reported = check["reported"].partition("acknowledgement ")[2].partition("; ")[2]
        lines.append(f"| {check['name']} | {check['unavailable_s']:.2f} s | {reported} |")
    lines += ["", *(f"- Server-side dry run, {line.partition('; skipped')[0]}." for line in result.get("dry_run", []))]
    if "analytics" in result:
        lines.append(f"- The analytics Job, {result['analytics_s']} s, said: {result['analytics'].rstrip('.')}.")
    else:
        lines.append("- The analytics Job was left out of this run.")
    return "\n".join(lines) + "\n"
