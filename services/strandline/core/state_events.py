"""The types of state events that services export: one class each, from which the schema of the export follows.

A field has its column's name, and its type determines the column's: whole numbers are BIGINT, ids and epochs INT. A
`Moment` is in milliseconds of the emitter's monotonic clock; its column ends in ``_us`` and holds a time of day. A
field that is None is null in its row.

Invariant: the order of classes and fields is the order of the columns. A new version only adds fields that may be None,
at the end of a class, and classes at the end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, NewType, TypeVar

from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch

TRANSITIONS = "transitions"
"""The small dataset of all changes; it is complete and never sampled."""

SAMPLES = "samples"
"""The large dataset of sampled states, which is dropped first when there is no room."""

REPEATED = "repeated"
"""The ``cause`` of a GroupChange or MemberChange that repeats an unchanged state."""

Moment = NewType("Moment", int)
"""Milliseconds of the emitter's monotonic clock."""

Number = NewType("Number", int)
"""A whole number of 32 bits."""

Leader = Annotated[NodeId | None, "no leader is -1"]
"""A leader, or None if there is none; never null in a row."""

Ext = Annotated[str | None, "ext"]
"""A text without a column of its own."""


class Member(NamedTuple):
    """A replica that left or joined an ISR; the controller knows its id alone."""

    replica_id: NodeId
    leo: Offset | None = None
    last_fetch_ms: Moment | None = None
    last_caught_up_ms: Moment | None = None


class EventType(NamedTuple):
    """A class of events, its name in ``event_type``, and the dataset it is in."""

    name: str
    kind: type[Any]
    dataset: str


EVENT_TYPES: dict[str, EventType] = {}
"""Every type of this version, by name, in the order of this file."""

_C = TypeVar("_C", bound=type[Any])


def _in(dataset: str) -> Callable[[_C], _C]:
    def register(kind: _C) -> _C:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()
        EVENT_TYPES[name] = EventType(name, kind, dataset)
        return kind

    return register


@_in(SAMPLES)
class ReplicaSample(NamedTuple):
    """The leader's sample of one replica; the rows of one sample have the same ``sample_id``."""

    sample_id: int
    interval_ms: int
    replica_id: NodeId
    leo: Offset | None
    durable_leo: Offset | None
    leader_leo: Offset
    hw: Offset
    acked_offset: Offset
    log_start: Offset
    leo_bytes: int | None
    hw_bytes: int | None
    hw_next_append_ms: Moment | None
    last_fetch_ms: Moment | None
    last_caught_up_ms: Moment | None
    in_isr: bool
    in_maximal_isr: bool
    expected_state: str
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(SAMPLES)
class LocalSample(NamedTuple):
    """A follower's sample of itself."""

    interval_ms: int
    leo: Offset
    hw: Offset
    fetch_leader_id: NodeId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(SAMPLES)
class HwAdvance(NamedTuple):
    """The HW of a led partition rose, ``n_coalesced`` times between the two moments."""

    old_hw: Offset
    new_hw: Offset
    cause: str
    first_ms: Moment
    last_ms: Moment
    n_coalesced: int
    blocking_replicas: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class IsrChange(NamedTuple):
    """The ISR changed; with ``meta_offset`` reported by the controller, without it by the leader, which knows more."""

    old_isr: tuple[NodeId, ...]
    new_isr: tuple[NodeId, ...]
    removed: tuple[Member, ...]
    added: tuple[Member, ...]
    cause: str | None
    initiator: str
    hw: Offset | None
    leader_leo: Offset | None
    elr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    meta_offset: int | None = None


@_in(TRANSITIONS)
class AlterPartition(NamedTuple):
    """A leader proposed an ISR, or got a result, or got none in time; ``latency_us`` is None for a proposal."""

    request_id: int
    phase: str
    expected_partition_epoch: PartitionEpoch
    proposed_isr: tuple[NodeId, ...]
    error_code: Number
    latency_us: int | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class LeaderChange(NamedTuple):
    """The leader of a partition changed, or was lost."""

    old_leader: Leader
    new_leader: Leader
    old_leader_epoch: LeaderEpoch | None
    new_leader_epoch: LeaderEpoch
    reason: str
    election_type: str | None
    eligible_set: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    meta_offset: int | None = None


@_in(TRANSITIONS)
class EpochStart(NamedTuple):
    """A leader's epoch begins, with the log end and the HW at its beginning."""

    start_offset: Offset
    hw: Offset
    new_isr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class Truncation(NamedTuple):
    """A follower cut its log."""

    from_leo: Offset
    to_leo: Offset
    hw_before: Offset | None
    # None if this process has not learned its HW: 0 would claim that nothing committed was cut (F4).
    committed_cut: int | None
    reason: str
    leader_epoch: LeaderEpoch


@_in(TRANSITIONS)
class PartitionFailed(NamedTuple):
    """A follower stopped replicating a partition (KIP-461), for example because it refused to cut its log."""

    reason: str
    leo: Offset
    hw: Offset
    refused_to_leo: Offset | None
    leader_epoch: LeaderEpoch


@_in(SAMPLES)
class FetchStats(NamedTuple):
    """A follower's fetches in an interval; ``n_error`` counts by name of error."""

    interval_ms: int
    replica_id: NodeId
    n_fetch: int
    n_error: Mapping[str, int]
    max_gap_us: int
    bytes: int
    throttled_ms: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class ControllerDecision(NamedTuple):
    """A decision of the controller, with its reasons."""

    decision: str
    live_set: tuple[NodeId, ...]
    fenced_set: tuple[NodeId, ...]
    outcome: str
    old_isr: tuple[NodeId, ...] = ()
    elr: tuple[NodeId, ...] = ()
    meta_offset: int | None = None


@_in(TRANSITIONS)
class NodeSession(NamedTuple):
    """A step in the life of a node's session."""

    subject_node_id: NodeId
    phase: str
    cause: str
    last_heartbeat_ms: Moment | None
    rack: str | None
    meta_offset: int | None = None


@_in(TRANSITIONS)
class ClockSample(NamedTuple):
    """The offset of a node's clock from the controller's, within ``err_us``."""

    subject_node_id: NodeId
    offset_us: int
    err_us: int
    meta_offset: int | None = None


@_in(TRANSITIONS)
class ConfigChange(NamedTuple):
    """A partition was created or deleted, or its settings changed; with only a lag time, a node's setting."""

    min_isr: Number | None = None
    replicas: tuple[NodeId, ...] = ()
    lag_time_max_ms: int | None = None
    topic_created: bool | None = None
    topic_deleted: bool | None = None
    leader_epoch: LeaderEpoch | None = None
    partition_epoch: PartitionEpoch | None = None
    meta_offset: int | None = None


@_in(TRANSITIONS)
class StateSnapshot(NamedTuple):
    """The whole state of a partition, from the controller or from its leader."""

    new_leader: Leader
    new_isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    min_isr: Number
    replicas: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    leo: Offset | None = None
    hw: Offset | None = None
    log_start: Offset | None = None
    start_offset: Offset | None = None
    meta_offset: int | None = None
    # Behind `meta_offset`, because a new version adds columns only at the end.
    original_replicas: tuple[NodeId, ...] = ()
    """While a reassignment runs: the replicas before it."""
    adding_replicas: tuple[NodeId, ...] = ()


@_in(TRANSITIONS)
class ExportHeartbeat(NamedTuple):
    """The export is alive; every event up to ``last_seq`` was written or is counted in a gap."""

    # Without these rows silence could be either: nothing to report, or an export that has ended.
    last_seq: int
    final: Ext = None


@_in(TRANSITIONS)
class ExportGap(NamedTuple):
    """Events that were dropped or lost: their sequence numbers, and how many of each type."""

    # Without these rows a reader would take what was lost for what did not happen.
    dropped_first_seq: int
    dropped_last_seq: int
    dropped_by_type: Mapping[str, int]


@_in(TRANSITIONS)
class ControllerReign(NamedTuple):
    """One of several controllers became active, or is no longer; a killed one reports no end."""

    phase: str
    cause: str
    controller_id: str
    token: int
    reign_id: str
    meta_offset: int | None = None


@_in(TRANSITIONS)
class Store(NamedTuple):
    """The active controller's store is away, back, full, or went back in time; only after `back` are decisions made."""

    phase: str
    cause: str
    controller_id: str
    token: int
    closed_ms: int | None
    meta_offset: int | None = None


@_in(TRANSITIONS)
class GroupChange(NamedTuple):
    """A consumer group's state or epoch changed, or is repeated (cause `REPEATED`); the place is the partition of its
    coordinator (G33)."""

    group_id: str
    old_state: str
    new_state: str
    group_epoch: Number
    target_epoch: Number
    n_members: Number
    cause: str
    leader_epoch: LeaderEpoch


@_in(TRANSITIONS)
class MemberChange(NamedTuple):
    """A group member's partitions or epoch changed, or it left, or is repeated (cause `REPEATED`); reported before the
    change of its group (G33)."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack: str | None
    phase: str
    member_epoch: Number | None
    assigned: tuple[str, ...]
    revoking: tuple[str, ...]
    leader_epoch: LeaderEpoch
    cause: str | None = None


@_in(SAMPLES)
class GroupOffsets(NamedTuple):
    """A group's committed offset of one partition, which is the place, and the commits since the previous row (G33)."""

    group_id: str
    committed: Offset | None
    commit_us: int | None
    n_commits: int
    n_error: Mapping[str, int]
    coordinator_epoch: LeaderEpoch | None = None
    """The leader epoch of the coordinator's partition, not of the place."""


@_in(TRANSITIONS)
class CoordinatorLoad(NamedTuple):
    """A coordinator has loaded its partition and answers requests from now on (G33)."""

    bytes: int
    n_keys: int
    load_ms: int
    leader_epoch: LeaderEpoch


@_in(TRANSITIONS)
class TransactionChange(NamedTuple):
    """A transactional id changed at its coordinator, or a transaction of it is still open (cause `REPEATED`); with
    ``transactional_id`` None ``n_coalesced`` short transactions were committed. The place is the coordinator's
    partition, but for the cause ``marker_refused``, where it is the partition that refused."""

    transactional_id: str | None
    producer_id: int | None
    producer_epoch: Number | None
    """The epoch before the change if it ends or forgets something; otherwise the epoch after it."""
    old_state: str | None
    new_state: str | None
    """None once it is forgotten."""
    cause: str
    timeout_ms: int | None
    n_partitions: Number | None
    """Number of partitions of the transaction that is open or was ended."""
    txn_start_us: int | None
    n_coalesced: int
    coordinator_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch | None
    """The leader epoch as well; None if the place is not the coordinator's partition."""


@_in(TRANSITIONS)
class TransactionOpen(NamedTuple):
    """A transaction has held back the LSO of a led partition for a second, and still does (X12); ``producer_id`` is
    None if the transaction had ended before this leader epoch."""

    producer_id: int | None
    producer_epoch: Number | None
    first_offset: Offset
    held_since_ms: Moment
    """When the HW had passed its first offset and no earlier transaction was undecided, in this leader epoch."""
    txn_start_ms: Moment
    """When this leader first saw it."""
    hw: Offset
    cause: str
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class TransactionDecided(NamedTuple):
    """Markers of a led partition came below the HW: of one transaction that was reported as open, or, with
    ``producer_id`` None, of ``n_coalesced`` others with the same outcome."""

    producer_id: int | None
    producer_epoch: Number | None
    first_offset: Offset | None
    marker_offset: Offset
    """The offset of the last marker."""
    outcome: str
    """commit or abort."""
    held_ms: int
    """How long they held back the LSO in this leader epoch; of two open transactions only the earlier one holds it."""
    first_ms: Moment
    last_ms: Moment
    n_coalesced: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


@_in(TRANSITIONS)
class Reassignment(NamedTuple):
    """A change of a partition's replicas was queued, started, completed or cancelled (C70)."""

    phase: str
    """queued, started (again when what it waits for has changed), completed or cancelled."""
    replicas: tuple[NodeId, ...]
    adding_replicas: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...]
    target_replicas: tuple[NodeId, ...]
    min_isr: Number
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    meta_offset: int | None = None
    original_replicas: tuple[NodeId, ...] = ()
    waiting_for: tuple[str, ...] = ()


@_in(TRANSITIONS)
class Audit(NamedTuple):
    """A caller changed something, or was refused what it may not do (C109). A caller's reads, records and own
    commits are none, nor is what nodes ask of each other and of controllers."""

    principal: str | None
    """The name in access rules, or ANONYMOUS; None, like the next four, if refusals of several kinds are merged."""
    peer: str | None
    method: str | None
    resource_type: str | None
    resource_name: str | None
    """For merged refusals of one kind, that of the first one, like ``peer``."""
    outcome: str
    """ALLOWED for a change, or REFUSED."""
    rule: str | None
    """The rule that decided; None if no rule did."""
    # One empty mapping is the default of all events, which never change.
    before: Mapping[str, str] = {}
    """The replaced values by name, and in `after` the new ones; never a key, a token or a record."""
    after: Mapping[str, str] = {}
    n_coalesced: int = 1
    first_ms: Moment | None = None
    last_ms: Moment | None = None
    meta_offset: int | None = None


StateEvent = (
    ReplicaSample
    | LocalSample
    | HwAdvance
    | IsrChange
    | AlterPartition
    | LeaderChange
    | EpochStart
    | Truncation
    | PartitionFailed
    | FetchStats
    | ControllerDecision
    | NodeSession
    | ClockSample
    | ConfigChange
    | StateSnapshot
    | ExportHeartbeat
    | ExportGap
    | ControllerReign
    | Store
    | GroupChange
    | MemberChange
    | GroupOffsets
    | CoordinatorLoad
    | TransactionChange
    | TransactionOpen
    | TransactionDecided
    | Reassignment
    | Audit
)

Stamped = ControllerDecision | NodeSession | ClockSample | ConfigChange | Reassignment
"""Events of one controller step, which get the metadata offset of the step's transaction, if there is one."""


def decided_isr_change(
    old_isr: tuple[NodeId, ...],
    new_isr: tuple[NodeId, ...],
    elr: tuple[NodeId, ...],
    cause: str | None,
    initiator: str,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    meta_offset: int | None,
) -> IsrChange:
    """An ISR change as reported by its decider."""
    return IsrChange(
        old_isr=old_isr,
        new_isr=new_isr,
        # Without positions: the decider knows none, and the leader's own event has them.
        removed=tuple(Member(node) for node in old_isr if node not in new_isr),
        added=tuple(Member(node) for node in new_isr if node not in old_isr),
        cause=cause,
        initiator=initiator,
        hw=None,
        leader_leo=None,
        elr=elr,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        meta_offset=meta_offset,
    )


DATASET_OF: Mapping[type[Any], str] = {event_type.kind: event_type.dataset for event_type in EVENT_TYPES.values()}
"""The dataset of each class."""

NAME_OF: Mapping[type[Any], str] = {event_type.kind: name for name, event_type in EVENT_TYPES.items()}
"""The name of each class in ``event_type``."""
