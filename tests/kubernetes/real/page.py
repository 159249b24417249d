"""The results of a run as a block of docs/OPERATIONS.md, so that no figure there is typed by hand."""

from __future__ import annotations

from typing import Any


def rendered(result: dict[str, Any]) -> str:
    """The results in the guide's form."""
    lines = [
        f"One run of `make test-with WHAT=kubernetes` on Kubernetes {result['kubernetes']}, on one machine with "
        f"{result['processors']} cores and a load average of {result['load_average']:.0f}: {result['verdict']}; "
        f"{result.get('acknowledged', 0):,} records acknowledged, {len(result['failures'])} failures.",
        "",
        "| what was done | longest time without an acknowledgement of acks=all in one partition |",
        "|---|---|",
        *(f"| {check['name']} | {check['unavailable_s']:.2f} s |" for check in result["checks"]),
    ]
    return "\n".join(lines) + "\n"
