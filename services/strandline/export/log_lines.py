"""Which decisions of replication are also lines of the log, and in which words: one line each.

The lines are made from the very events that are exported, in the writer's thread: thousands of partitions that change
hands at once cost the data path nothing. They come up to a second after the event, with its own time in ``at``.

Invariant: a line is logged for every change of a role, of an ISR, of a log's end by a cut, of a session, of a consumer
group and its members, of every transaction that timed out or that seems to stay open, and of every refusal that
concerns a node or an ISR; a sample is never one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.export.counters import OutletStats
from strandline.export.local_lines import Lost
from strandline.export.rows import Row, Run
from strandline.export.schema import NO_LEADER, REPEATED, TRANSITIONS

Reported = Callable[["Line"], None]


class Line(NamedTuple):
    """One line of the log; ``is_warning`` if an operator may want to look at it."""

    sentence: str
    fields: Mapping[str, object]
    is_warning: bool = False


class LogLines:
    """An outlet that logs its rows as lines."""

    def __init__(self, tell: Reported) -> None:
        self._tell = tell
        self.stats = OutletStats()
        """Empty: the log is not a destination of the export."""

    def write(self, run: Run) -> None:
        """A line for each row that has one."""
        for row in run.of(TRANSITIONS).rows():
            line = line_of(row)
            if line is not None:
                self._tell(line)

    def tend(self, mono_us: int) -> list[Lost]:
        """Nothing is ever due."""
        return []

    def close(self, mono_us: int) -> None:
        """Nothing is left."""


_PLACE = ("node_id", "topic", "partition", "controller_epoch", "leader_epoch", "partition_epoch", "meta_offset")
_CARRIED: dict[str, tuple[str, ...]] = {
    "EPOCH_START": ("start_offset", "hw", "new_isr"),
    "LEADER_CHANGE": ("old_leader", "new_leader", "old_leader_epoch", "reason", "election_type", "eligible_set"),
    "ISR_CHANGE": ("old_isr", "new_isr", "cause", "initiator", "elr", "hw", "leader_leo"),
    "ALTER_PARTITION": ("proposed_isr", "expected_partition_epoch", "error_code", "latency_us"),
    "TRUNCATION": ("from_leo", "to_leo", "hw_before", "committed_cut", "reason"),
    "PARTITION_FAILED": ("reason", "leo", "hw", "refused_to_leo"),
    "NODE_SESSION": ("subject_node_id", "phase", "cause", "rack"),
    "CONTROLLER_DECISION": ("decision", "outcome", "live_set", "fenced_set", "old_isr"),
    "CONFIG_CHANGE": ("min_isr", "replicas", "lag_time_max_ms", "topic_created", "topic_deleted"),
    "CONTROLLER_REIGN": ("controller_id", "phase", "cause", "token", "reign_id"),
    "STORE": ("controller_id", "phase", "cause", "token", "closed_ms"),
    "GROUP_CHANGE": ("group_id", "old_state", "new_state", "group_epoch", "target_epoch", "n_members", "cause"),
    "MEMBER_CHANGE": ("group_id", "member_id", "instance_id", "phase", "member_epoch", "assigned", "revoking"),
    "COORDINATOR_LOAD": ("bytes", "n_keys", "load_ms"),
    "TRANSACTION_CHANGE": ("transactional_id", "producer_id", "producer_epoch", "old_state", "new_state", "timeout_ms"),
    "REASSIGNMENT": (
        "phase",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "target_replicas",
        "min_isr",
        "waiting_for",
    ),
    "TRANSACTION_OPEN": ("producer_id", "producer_epoch", "first_offset", "hw", "held_since_us"),
}
"""Beside the place, what a line of each type carries; a type that is not here has no line."""


def line_of(row: Row) -> Line | None:
    """The line of an exported row, or none."""
    kind = str(row["event_type"])
    words = _words(kind, row)
    if words is None:
        return None
    sentence, is_warning = words
    at = datetime.fromtimestamp(row["ts_wall_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    named = {name: row[name] for name in (*_PLACE, *_CARRIED[kind]) if name in row}
    return Line(sentence, {"kind": kind, "at": at, **named}, is_warning)


def _words(kind: str, row: Row) -> tuple[str, bool] | None:
    match kind:
        case "EPOCH_START":
            return "leads", False
        case "LEADER_CHANGE" if row.get("new_leader") == NO_LEADER:
            return "partition without a leader", True
        case "LEADER_CHANGE":
            return "leader elected", row.get("election_type") == "unclean"
        case "ISR_CHANGE":
            return _isr_words(row)
        case "ALTER_PARTITION":
            return _proposal_words(row)
        case "TRUNCATION":
            committed = row.get("committed_cut")
            return ("log cut", committed > 0) if committed is not None else ("log cut, own HW not known", True)
        case "PARTITION_FAILED":
            return "partition does not replicate until the next leader epoch", True
        case "NODE_SESSION":
            return "node session", row.get("phase") in ("expire", "fence")
        case "CONTROLLER_DECISION":
            return "controller decided", False
        case "CONFIG_CHANGE":
            return _settings_words(row), False
        case "CONTROLLER_REIGN":
            return ("controller decides" if row["phase"] == "begin" else "controller decides no more"), False
        case "STORE":
            return f"store {str(row['phase']).replace('_', ' ')}", row["phase"] != "back"
        case "GROUP_CHANGE" | "MEMBER_CHANGE" if row.get("cause") == REPEATED:
            return None
        case "GROUP_CHANGE":
            is_same = row["old_state"] == row["new_state"]
            return ("group epoch rose" if is_same else f"group is {str(row['new_state']).lower()}"), False
        case "MEMBER_CHANGE":
            return f"member {row['phase']}", row["phase"] == "fenced"
        case "COORDINATOR_LOAD":
            return "coordinator answers", False
        case "TRANSACTION_CHANGE" if row["cause"] == "timeout":
            return "transaction timed out", False
        case "TRANSACTION_CHANGE" if row["cause"] == "marker_refused":
            return "partition refuses the marker of a transaction that its coordinator waits for", True
        case "REASSIGNMENT":
            return f"reassignment {row['phase']}", False
        case "TRANSACTION_OPEN" if row["cause"] == "hanging":
            return "transaction hangs", True
    return None


def _settings_words(row: Row) -> str:
    if row.get("topic_created"):
        return "partition created"
    return "partition deleted" if row.get("topic_deleted") else "settings in force"


def _isr_words(row: Row) -> tuple[str, bool]:
    lost = set(row["old_isr"]) - set(row["new_isr"])
    gained = set(row["new_isr"]) - set(row["old_isr"])
    if lost:
        return "ISR shrank", True
    return ("ISR expanded", False) if gained else ("ISR unchanged", False)


def _proposal_words(row: Row) -> tuple[str, bool] | None:
    if row.get("phase") == "timeout":
        return "ISR update without an answer", True
    refused = row.get("phase") == "result" and row.get("error_code", 0) != 0
    return ("ISR update refused", True) if refused else None
