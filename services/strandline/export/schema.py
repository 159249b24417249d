"""The schema of the exported state: every column, every event type, every dataset.

This table is the source of truth. The Arrow schema (`arrow.py`), Spark's StructType (`spark_ddl`) and the check of
`protos/strandline/v1/state_event.proto` derive from it. It imports nothing but the standard library.

Invariant: a column that a version has had keeps its name, kind and meaning for ever; versions only add nullable
columns at the end of a block. Enumerations are strings; a reader keeps and counts a type that it does not know.

Reading rules that the columns themselves cannot say:

- The identity of an event, and the only key for removing doubles, is (node_id, incarnation, seq).
- The controller writes as node ``CONTROLLER_NODE_ID`` and its incarnation is its controller epoch.
- Columns that end in ``_us`` and hold a moment are the emitter's time of day in microseconds since 1970, UTC. They are
  converted from its monotonic clock with the offset of the same row, so that differences within a row are monotonic.
- ``ts_mono_us`` compares only within one (node_id, incarnation).
- In a row, a column that does not belong to its event type is null; a list that belongs to it is never null.
- ``new_leader`` and ``old_leader`` are -1 where there is no leader.
- An ISR_CHANGE comes twice: from the controller (``meta_offset`` set, authoritative) and as an echo of the leader
  (``meta_offset`` null), which alone knows HW, LEO and the members' progress. ``partition_epoch`` joins them.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

SCHEMA_VERSION = 1

CONTROLLER_NODE_ID = -1
"""What ``node_id`` says in the controller's rows; data nodes are numbered from 0."""

NO_LEADER = -1
"""What ``old_leader`` and ``new_leader`` say where nobody leads."""

TRANSITIONS = "transitions"
"""The small dataset that is complete: what changed. Never sampled."""

SAMPLES = "samples"
"""The large dataset: sampled states. Dropped first when there is no room."""

DATASETS = (TRANSITIONS, SAMPLES)


class Kind(Enum):
    """The type of a column, as Spark spells it."""

    STRING = "STRING"
    INT = "INT"
    LONG = "BIGINT"
    BOOL = "BOOLEAN"
    INTS = "ARRAY<INT>"
    MEMBERS = "ARRAY<STRUCT<replica_id: INT, leo: BIGINT, last_fetch_us: BIGINT, last_caught_up_us: BIGINT>>"
    STRINGS_BY_NAME = "MAP<STRING, STRING>"
    LONGS_BY_NAME = "MAP<STRING, BIGINT>"


MEMBER_FIELDS: tuple[tuple[str, Kind], ...] = (
    ("replica_id", Kind.INT),
    ("leo", Kind.LONG),
    ("last_fetch_us", Kind.LONG),
    ("last_caught_up_us", Kind.LONG),
)
"""The fields of one element of a ``Kind.MEMBERS`` column."""


class Column(NamedTuple):
    """One column; ``required`` ones are set in every row."""

    name: str
    kind: Kind
    required: bool = False


ENVELOPE: tuple[Column, ...] = (
    Column("schema_version", Kind.INT, required=True),
    Column("cluster_id", Kind.STRING, required=True),
    Column("event_type", Kind.STRING, required=True),
    Column("node_id", Kind.INT, required=True),
    Column("incarnation", Kind.LONG, required=True),
    Column("seq", Kind.LONG, required=True),
    Column("ts_wall_us", Kind.LONG, required=True),
    Column("ts_mono_us", Kind.LONG, required=True),
    Column("topic", Kind.STRING),
    Column("topic_id", Kind.STRING),
    Column("partition", Kind.INT),
    Column("controller_epoch", Kind.INT),
    Column("leader_epoch", Kind.INT),
    Column("partition_epoch", Kind.INT),
    Column("meta_offset", Kind.LONG),
    Column("ext", Kind.STRINGS_BY_NAME),
)
"""Set in every event, as far as they apply: topic to partition_epoch are null in events of a whole node."""

PAYLOAD: tuple[Column, ...] = (
    # Looks at one replica.
    Column("sample_id", Kind.LONG),
    Column("interval_ms", Kind.LONG),
    Column("replica_id", Kind.INT),
    Column("leo", Kind.LONG),
    Column("durable_leo", Kind.LONG),
    Column("leader_leo", Kind.LONG),
    Column("hw", Kind.LONG),
    Column("acked_offset", Kind.LONG),
    Column("log_start", Kind.LONG),
    Column("leo_bytes", Kind.LONG),
    Column("hw_bytes", Kind.LONG),
    Column("hw_next_append_us", Kind.LONG),
    Column("last_fetch_us", Kind.LONG),
    Column("last_caught_up_us", Kind.LONG),
    Column("in_isr", Kind.BOOL),
    Column("in_maximal_isr", Kind.BOOL),
    Column("expected_state", Kind.STRING),
    Column("fetch_leader_id", Kind.INT),
    # The high watermark.
    Column("old_hw", Kind.LONG),
    Column("new_hw", Kind.LONG),
    Column("cause", Kind.STRING),
    Column("first_us", Kind.LONG),
    Column("last_us", Kind.LONG),
    Column("n_coalesced", Kind.LONG),
    Column("blocking_replicas", Kind.INTS),
    # The ISR.
    Column("old_isr", Kind.INTS),
    Column("new_isr", Kind.INTS),
    Column("removed", Kind.MEMBERS),
    Column("added", Kind.MEMBERS),
    Column("initiator", Kind.STRING),
    Column("elr", Kind.INTS),
    # Proposals for it.
    Column("request_id", Kind.LONG),
    Column("phase", Kind.STRING),
    Column("expected_partition_epoch", Kind.INT),
    Column("proposed_isr", Kind.INTS),
    Column("error_code", Kind.INT),
    Column("latency_us", Kind.LONG),
    # Leadership.
    Column("old_leader", Kind.INT),
    Column("new_leader", Kind.INT),
    Column("old_leader_epoch", Kind.INT),
    Column("new_leader_epoch", Kind.INT),
    Column("reason", Kind.STRING),
    Column("election_type", Kind.STRING),
    Column("eligible_set", Kind.INTS),
    Column("start_offset", Kind.LONG),
    # Logs that were cut, or not.
    Column("from_leo", Kind.LONG),
    Column("to_leo", Kind.LONG),
    Column("hw_before", Kind.LONG),
    Column("committed_cut", Kind.LONG),  # null: the replica did not know its own HW since it started
    Column("refused_to_leo", Kind.LONG),
    # Fetches.
    Column("n_fetch", Kind.LONG),
    Column("n_error", Kind.LONGS_BY_NAME),
    Column("max_gap_us", Kind.LONG),
    Column("bytes", Kind.LONG),
    # The controller, nodes and clocks.
    Column("decision", Kind.STRING),
    Column("live_set", Kind.INTS),
    Column("fenced_set", Kind.INTS),
    Column("outcome", Kind.STRING),
    Column("subject_node_id", Kind.INT),
    Column("last_heartbeat_us", Kind.LONG),
    Column("rack", Kind.STRING),
    Column("offset_us", Kind.LONG),
    Column("err_us", Kind.LONG),
    # Settings and topics.
    Column("min_isr", Kind.INT),
    Column("replicas", Kind.INTS),
    Column("lag_time_max_ms", Kind.LONG),
    Column("topic_created", Kind.BOOL),
    Column("topic_deleted", Kind.BOOL),
    # The export itself.
    Column("last_seq", Kind.LONG),
    Column("dropped_first_seq", Kind.LONG),
    Column("dropped_last_seq", Kind.LONG),
    Column("dropped_by_type", Kind.LONGS_BY_NAME),
)
"""Set in the events that `EVENT_TYPES` names for them, and null in all others."""

COLUMNS: tuple[Column, ...] = ENVELOPE + PAYLOAD


class EventType(NamedTuple):
    """What one type of event carries beside the envelope, and in which dataset it is."""

    dataset: str
    payload: tuple[str, ...]


def _transition(payload: str) -> EventType:
    return EventType(TRANSITIONS, tuple(payload.split()))


def _sample(payload: str) -> EventType:
    return EventType(SAMPLES, tuple(payload.split()))


EVENT_TYPES: dict[str, EventType] = {
    "REPLICA_SAMPLE": _sample(
        "sample_id interval_ms replica_id leo durable_leo leader_leo hw acked_offset log_start leo_bytes hw_bytes "
        "hw_next_append_us last_fetch_us last_caught_up_us in_isr in_maximal_isr expected_state"
    ),
    "LOCAL_SAMPLE": _sample("interval_ms leo hw fetch_leader_id"),
    "HW_ADVANCE": _sample("old_hw new_hw cause first_us last_us n_coalesced blocking_replicas"),
    "ISR_CHANGE": _transition("old_isr new_isr removed added cause initiator hw leader_leo elr"),
    "ALTER_PARTITION": _transition(
        "request_id phase expected_partition_epoch proposed_isr error_code latency_us"  # latency_us: not when proposed
    ),
    "LEADER_CHANGE": _transition(
        "old_leader new_leader old_leader_epoch new_leader_epoch reason election_type eligible_set"
    ),
    "EPOCH_START": _transition("start_offset hw new_isr"),
    "TRUNCATION": _transition("from_leo to_leo hw_before committed_cut reason"),
    "PARTITION_FAILED": _transition("reason leo hw refused_to_leo"),
    "FETCH_STATS": _sample("interval_ms replica_id n_fetch n_error max_gap_us bytes"),
    "CONTROLLER_DECISION": _transition("decision live_set fenced_set old_isr elr outcome"),
    "NODE_SESSION": _transition("subject_node_id phase cause last_heartbeat_us rack"),
    "CLOCK_SAMPLE": _transition("subject_node_id offset_us err_us"),
    "CONFIG_CHANGE": _transition("min_isr replicas lag_time_max_ms topic_created topic_deleted"),
    "STATE_SNAPSHOT": _transition("new_leader new_isr elr min_isr replicas leo hw log_start start_offset"),
    "EXPORT_HEARTBEAT": _transition("last_seq"),
    "EXPORT_GAP": _transition("dropped_first_seq dropped_last_seq dropped_by_type"),
}
"""Every type of event of this version."""

SORT_ORDER = ("topic_id", "partition", "leader_epoch", "seq")
"""How the rows of a file are sorted, nulls first, so that the statistics of row groups prune."""


def dataset_of(event_type: str) -> str:
    """The dataset of an event type; an unknown one is kept with the transitions."""
    known = EVENT_TYPES.get(event_type)
    return known.dataset if known else TRANSITIONS


def spark_ddl() -> str:
    """The schema as Spark reads it: ``spark.read.schema(spark_ddl())``. All columns nullable, as Spark reads files."""
    return ", ".join(f"{column.name} {column.kind.value}" for column in COLUMNS)
