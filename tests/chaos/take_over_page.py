"""The table of what a take-over costs, from the newest result of scenario 28; then `make docs` writes the page.

    PYTHONPATH=tests/bench:tests/chaos:tests/cluster python -m take_over_page

Kafka's figures beside it are those of one measurement of another day on a machine of the same kind; the table says so.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from kept import keep
from scenarios import active_controller as ways

_ROOT = Path(__file__).resolve().parents[2]

WANTED_S = dict(zip(ways.WAYS, (0.3, 0.3, 2.0, 2.0, 4.0, 6.0), strict=True))
"""The longest time to the first change that another controller accepts."""
KAFKA_S = {ways.BOTH_KILLED: "11.8-13.9; 4.6-6.4 at a session of 2 s"}
"""Kafka 4.3.1, three processes in combined mode, the process killed that is active controller and leader."""
ACK_SLACK_S = 0.05


def table_of(result: dict[str, Any]) -> str:
    """The block of the pages."""
    rows = result["measured"]["take_overs"]
    lines = [
        f"`make chaos SCENARIO=28` at {result['commit']} on {result['date'][:8]}, {result['verdict']}: three "
        "controllers with `reign_lease_s` 3, three members of etcd and three data nodes in network namespaces of one "
        "machine with 2 cores, 200 records/s with acks=all; every controller was asked for a change every 40 ms.",
        "The ack gap is the longest time between two acknowledgements of one partition in the minute before and around "
        "the take-over. Kafka is 4.3.1 in combined mode on such a machine, from the kill of the process that is active "
        "controller and leader to the next acknowledgement.",
        "",
        "| the active controller | first change elsewhere, s: median [range] | wanted | | ack gap, s: before / after "
        "| Kafka, s |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways.WAYS:
        own = [row for row in rows if row["why"] == way]
        if not own:
            lines.append(f"| {way} | not measured | {WANTED_S[way]:g} | | | |")
            continue
        took = [row["first_change_s"] for row in own]
        met = "met" if max(took) < WANTED_S[way] else "**missed**"
        before, after = (max(row[f"ack_gap_{when}_s"] for row in own) for when in ("before", "after"))
        kafka = KAFKA_S.get(way, "")
        lines.append(
            f"| {way} | {statistics.median(took):.2f} [{min(took):.2f}-{max(took):.2f}] | {WANTED_S[way]:g} | {met} "
            f"| {before:.2f} / {after:.2f} | {kafka} |"
        )
    alive = [row for row in rows if row["why"] != ways.BOTH_KILLED]
    late = [row for row in alive if row["ack_gap_after_s"] > row["ack_gap_before_s"] + ACK_SLACK_S]
    lines += [
        "",
        f"Where leaders lived, acknowledgements came within the longest gap of the minute before plus 50 ms in "
        f"{len(alive) - len(late)} of {len(alive)} take-overs.",
    ]
    return "\n".join(lines)


def newest() -> dict[str, Any]:
    """The newest full result of the scenario.

    Raises:
        SystemExit: there is none.
    """
    found = sorted((_ROOT / ".run" / "chaos").glob("s28-*/result.json"), key=lambda path: path.stat().st_mtime)
    full = [result for result in [json.loads(path.read_text()) for path in found] if result["form"] == "full"]
    if not full:
        raise SystemExit("there is no result of scenario 28; run: make chaos SCENARIO=28")
    return full[-1]


if __name__ == "__main__":
    keep("take-overs", table_of(newest()))
