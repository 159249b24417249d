"""The console's knowledge of a cluster at one moment: the controller's state, and what each node reported of itself.

Invariant: a picture is never changed, only replaced; every part of it knows how old it is, and what was never reported
is None, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from strandline.client import DescribedGroup, TopicPartition as NamedPartition
from strandline.client.administer.described import fetch_state_of
from strandline.core.messages import MetadataImage, NodeImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.describe import ControllerDescribed
from strandline.v1 import follower_service_pb2, leader_service_pb2, state_event_pb2

_K = TypeVar("_K")
_V = TypeVar("_V")


def _nothing() -> Mapping[_K, _V]:
    return MappingProxyType({})


class RemoteReplica(NamedTuple):
    """One replica as its leader sees it; ages in ms, None: never in this leader epoch."""

    node_id: NodeId
    leo: Offset | None
    lag_records: int | None
    lag_bytes: int | None
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None


class LedPartition(NamedTuple):
    """One partition as its leader sees it."""

    leader_epoch: LeaderEpoch
    leo: Offset
    hw: Offset
    log_start: Offset
    size_bytes: int
    replicas: tuple[RemoteReplica, ...]
    lso: Offset | None = None
    """None if the node's release has no transactions."""
    open_producer_id: int | None = None
    """The producer whose transaction has been open longest; None if none is open."""


class HeldReplica(NamedTuple):
    """One replica as it sees itself; ``reason`` is why its state is `failed`, otherwise empty."""

    leo: Offset
    hw: Offset
    fetch_state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """A node's last answer, its time (monotonic ms), and why the newest look failed (empty: it did not fail)."""

    answered_ms: int | None = None
    failing_since_ms: int | None = None
    failure: str = ""
    led: Mapping[TopicPartition, LedPartition] = field(default_factory=_nothing)
    held: Mapping[TopicPartition, HeldReplica] = field(default_factory=_nothing)


class HeldGroup(NamedTuple):
    """One group as its coordinator describes it; ``committed`` is None where that was not answered."""

    described: DescribedGroup
    committed: Mapping[NamedPartition, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """The groups that one node coordinates, as `NodeLook`; ``lacking`` says why some may be missing."""

    answered_ms: int | None = None
    failing_since_ms: int | None = None
    failure: str = ""
    lacking: str = ""
    left_out: int = 0
    groups: tuple[HeldGroup, ...] = ()

    @property
    def rows(self) -> int:
        """How many members and offsets it has."""
        return sum(len(one.described.members) + len(one.committed or ()) for one in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLook:
    """When the controller last answered (monotonic ms), and why the newest request failed (empty: it did not)."""

    heard_ms: int | None = None
    failing_since_ms: int | None = None
    failure: str = ""
    heartbeat_age_ms: Mapping[NodeId, int | None] = field(default_factory=_nothing)
    among: tuple[ControllerDescribed, ...] = ()
    """All controllers if there are several; empty if there is one, or if none answers."""

    @property
    def active(self) -> ControllerDescribed | None:
        """The active controller, which decides; None if it is not known."""
        return next((one for one in self.among if one.is_active), None)

    @property
    def standbys(self) -> tuple[ControllerDescribed, ...]:
        """The controllers that could take over, the one with the least lag first."""
        others = (one for one in self.among if not one.is_active)
        return tuple(sorted(others, key=lambda one: (one.lag, one.controller_id)))


class AuditLook(NamedTuple):
    """The changes and refusals that one process last reported, or why it did not."""

    events: Sequence[state_event_pb2.StateEvent] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything at ``now_ms``; ``image`` is None until a controller sent its first."""

    now_ms: int
    bootstrap: str = ""
    image: MetadataImage | None = None
    controller: ControllerLook = field(default_factory=ControllerLook)
    looks: Mapping[NodeId, NodeLook] = field(default_factory=_nothing)
    groups: Mapping[NodeId, GroupLook] = field(default_factory=_nothing)
    audits: Mapping[str, AuditLook] = field(default_factory=_nothing)
    """Keyed by the name of the process as shown on the page."""

    @property
    def nodes(self) -> tuple[NodeImage, ...]:
        """The nodes that the controller reported."""
        return self.image.nodes if self.image is not None else ()

    @property
    def topics(self) -> tuple[TopicImage, ...]:
        """The topics that the controller reported."""
        return self.image.topics if self.image is not None else ()

    @property
    def age_ms(self) -> int | None:
        """How old the controller's part is; None: it never sent anything."""
        heard = self.controller.heard_ms
        return None if heard is None or self.image is None else max(0, self.now_ms - heard)


# ---- readings
# Nodes' answers to Describe calls, read into the console's picture.
#
# The client's own reading leaves out bytes, which people want to see here. Invariant: a row with an error is left out,
# never read as zeros.

_REMOTE = ByName(RemoteReplica, leader_service_pb2.DescribedRemoteReplica, node_id="replica_id", leo="log_end_offset")
_LED = ByName(
    LedPartition,
    leader_service_pb2.DescribedPartition,
    leo="log_end_offset",
    hw="high_watermark",
    log_start="log_start_offset",
    size_bytes="log_size_bytes",
    replicas=As("replicas", None, _REMOTE.read_all),
    lso="last_stable_offset",
    open_producer_id="oldest_open_producer_id",
)
_HELD = ByName(
    HeldReplica,
    follower_service_pb2.DescribedReplica,
    leo="log_end_offset",
    hw="high_watermark",
    fetch_state=As("fetch_state", None, fetch_state_of),
    reason="failed_reason",
)


def read_led(answer: leader_service_pb2.DescribePartitionsResponse) -> dict[TopicPartition, LedPartition]:
    """The partitions that the answering node leads."""
    return {
        TopicPartition(topic.topic_id, row.partition_index): _LED.read(row)
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    }


def read_held(answer: follower_service_pb2.DescribeReplicasResponse) -> dict[TopicPartition, HeldReplica]:
    """The replicas that the answering node holds, as it sees them."""
    return {
        TopicPartition(topic.topic_id, row.partition_index): _HELD.read(row)
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    }
