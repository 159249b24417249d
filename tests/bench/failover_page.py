"""The gaps of acknowledgements as a table, by fault and session time-out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Row = Mapping[str, Any]

FAULTS = {"kill": "`kill -9`", "stop": "SIGSTOP", "vanish": "vanished address"}
_BEFORE = (
    "One partition, one small record under way at a time, acks=all, a cluster without other load on one machine.\n"
    "The closed connection tells the controller of a killed process at once; a machine that vanishes costs the session "
    "time-out more.\n"
)
FAILOVER_IDLE = (
    _BEFORE + "The silence that the producer sees: from the last acknowledgement before the kill to the first "
    "acknowledgement of a record that was sent after it."
)
FAILOVER = (
    "Six partitions under the load of one producer; another has one small record under way at a time, acks=all, to the "
    "partition whose leader is lost.\n"
    "The silence that it sees: from the last acknowledgement before the fault to the first acknowledgement of a record "
    "that was sent after it.\n"
    "The closed connection tells the controller of a killed process at once. A process that stands still (SIGSTOP) and "
    "an address from which nothing arrives any more are known only by the end of the session.\n"
    "No gap was left out for steal time."
)
FAILOVER_BEFORE = (
    _BEFORE + "These figures are of an earlier measure, which looked from 20 ms after the last acknowledgement on: "
    "where service was back sooner, the figure is an ordinary gap between two acknowledgements.\n"
    "`make bench` now takes the silence that the producer sees, from the last acknowledgement before the kill to the "
    "first of a record that was sent after it."
)
"""For figures that do not say which gap they are."""


def failover_table(measured: Sequence[Row]) -> str:
    """Gaps of acknowledgements per loss of a leader."""
    lines = ["## Failover: silence of acknowledgements per `kill -9` of the leader", "", _explained(measured), ""]
    head = (
        "fault | session time-out | heartbeat | times | median ms | range ms | load, records/s | machine, % of a core"
    )
    lines += [f"| {head} |", "|" + "---|" * 8]
    for one in measured:
        gaps = one["gaps_ms"]
        load = one.get("load", {}).get("per_s", "none")
        cells = [
            FAULTS[one.get("fault", "kill")],
            f"{one['session_timeout_ms']} ms",
            f"{one['heartbeat_interval_ms']} ms",
            len(gaps),
            f"{median(gaps):.0f}",
            f"{min(gaps):.0f}-{max(gaps):.0f}",
            load,
            one.get("machine_percent", "–"),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _explained(measured: Sequence[Row]) -> str:
    if not all("measure" in one for one in measured):
        return FAILOVER_BEFORE
    return FAILOVER if all("fault" in one for one in measured) else FAILOVER_IDLE
