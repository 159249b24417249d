"""Everything the controller's core may ask for, with the ordering contract.

Effects are performed in list order, and the lists of later steps after those of earlier ones. A `Commit` is
durable before anything behind it is answered or published; one that fails ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.controller_messages import ControllerAnswer
from strandline.core.controller_state import Transaction
from strandline.core.effects import Emit
from strandline.core.errors import Refusal
from strandline.core.messages import MetadataImage, PositionProof
from strandline.core.position_proof import prove
from strandline.core.types import NodeEpoch, NodeId


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

__all__ = [
    "Answer",
    "Commit",
    "ContinueStep",
    "ControllerEffect",
    "Emit",
    "OpenWatch",
    "Publish",
    "RefuseCall",
    "StopServing",
]
