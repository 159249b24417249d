"""Everything that can happen to the controller, in past tense. Each carries ``now_ms``, a monotonic clock.

Invariant: whatever is random (topic ids, the id of a new cluster) comes in with an event, so a recorded list of
events replays to the same state.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.controller_messages import ControllerRequest, WatchMetadata
from strandline.core.types import NodeEpoch, NodeId


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """The store was read.

    ``new_cluster_id`` names the cluster if the store was empty, and ``new_secret``, 64 random hexadecimal digits, is
    taken if the store has no secret yet. ``new_reign_id``, 32 of them, names the reign that begins (C34).
    """

    now_ms: int
    new_cluster_id: str
    new_secret: str
    new_reign_id: str


@dataclass(frozen=True, slots=True)
class ControllerTicked:
    """Time passed, about 100 ms. Sessions and the check of preferred leaders come due by this event only."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """Somebody asks. Ends in exactly one `Answer` or `RefuseCall` with the same ``request_id``."""

    now_ms: int
    request_id: int
    request: ControllerRequest


@dataclass(frozen=True, slots=True)
class WatchArrived:
    """A caller wants every change. Ends in `OpenWatch` or `RefuseCall` with the same ``request_id``."""

    now_ms: int
    request_id: int
    request: WatchMetadata


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The controller itself was refused a connection by these incarnations of nodes: their processes are gone.

    Raised by the controller's own probe only; a third party's word is a reason to look, never to fence. Nodes that
    went at the same time come in one event.
    """

    now_ms: int
    nodes: tuple[tuple[NodeId, NodeEpoch], ...]


@dataclass(frozen=True, slots=True)
class DoorsOpened:
    """Calls are served from now on, after ``closed_ms`` in which no heartbeat could come in: since the reign began, or
    since it became unsure of itself (`core.reign`). Comes before everything that enters by the doors."""

    now_ms: int
    closed_ms: int


@dataclass(frozen=True, slots=True)
class StepContinued:
    """What a step left over is due (`core.step_parts`); follows every `ContinueStep`."""

    now_ms: int


ControllerEvent = (
    ControllerStarted
    | ControllerTicked
    | RequestArrived
    | WatchArrived
    | ConnectionRefused
    | DoorsOpened
    | StepContinued
)
