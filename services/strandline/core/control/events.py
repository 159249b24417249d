"""Everything that can happen to the controller, in past tense. Each carries ``now_ms``, a monotonic clock.

Invariant: whatever is random (topic ids, the id of a new cluster) comes in with an event, so a recorded list of
events replays to the same state.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.control.messages import ControllerAnswer, ControllerRequest, WatchMetadata
from strandline.core.control.state import Transaction
from strandline.core.errors import Refusal
from strandline.core.log.effects import Emit
from strandline.core.messages import MetadataImage, PositionProof
from strandline.core.permissions import Caller
from strandline.core.positions import prove
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
    """A request arrived. Ends in exactly one `Answer` or `RefuseCall` with the same ``request_id``."""

    now_ms: int
    request_id: int
    request: ControllerRequest
    caller: Caller | None = None
    """Who changes something, or may touch what rules allow (C105); None: a node, or a caller that only looks."""
    principal: str | None = None
    """Whose quota counts; None: no quota does (C102)."""


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


# ---- controller_effects
# Everything the controller's core may ask for, with the ordering contract.
#
# Effects are performed in list order, and the lists of later steps after those of earlier ones. A `Commit` is
# durable before anything behind it is answered or published; one that fails ends the process.


@dataclass(frozen=True, slots=True)
class Commit:
    """Make a transaction durable, whole or not at all."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a change to every open watch, each addressed to its own node epoch (TR15)."""

    image: MetadataImage
    secret: str

    def position_for(self, node_id: NodeId | None, node_epoch: NodeEpoch | None) -> PositionProof | None:
        """The proof that goes with the change to one process; None to a client (M72)."""
        if node_id is None or node_epoch is None:
            return None
        return prove(
            self.secret,
            node_id=node_id,
            node_epoch=node_epoch,
            controller_epoch=self.image.controller_epoch,
            metadata_offset=self.image.metadata_offset,
            reign_id=self.image.reign.reign_id if self.image.reign else "",
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Complete one request."""

    request_id: int
    answer: ControllerAnswer


@dataclass(frozen=True, slots=True)
class RefuseCall:
    """End one request or watch as a whole: it is not for this cluster, this controller, or this process."""

    request_id: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Send the snapshot to a new watch; every `Publish` behind this one is for it, too."""

    request_id: int
    snapshot: MetadataImage
    node_id: NodeId | None = None
    node_epoch: NodeEpoch | None = None


@dataclass(frozen=True, slots=True)
class ContinueStep:
    """Step `StepContinued` once everything in front is durable and performed, and other events have had a turn.

    More than one that waits is one. A process that may not decide meanwhile drops it: the next tick goes on.
    """


@dataclass(frozen=True, slots=True)
class StopServing:
    """End every watch and report it in health and log: the store is too old, an operator must act (TR18)."""

    reason: str


ControllerEffect = Commit | Publish | Answer | RefuseCall | OpenWatch | ContinueStep | StopServing | Emit
