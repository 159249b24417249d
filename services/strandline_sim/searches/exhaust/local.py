"""What one node is, as a value: everything in a `NodeCore` on which its future depends, and nothing else.

Invariant: two cores with equal `Local` take every further event alike. What is left out is time (see
`strandline_sim.searches.exhaust`), counters that only tell questions apart, and what can no longer be read.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.log.follower import FetchState


class Rec(NamedTuple):
    """One record: the leader epoch it was written in, and by whom.

    With its offset that names the write, for a leader writes an offset once in its reign. The numbers of the
    records (the K of mK/eE) are given only when a trace is printed, so states that differ in them alone are one.
    """

    epoch: int
    writer: int


class Image(NamedTuple):
    """A committed state of the partition, as the controller publishes it."""

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    partition_epoch: int


class Leading(NamedTuple):
    """The part of a node that leads."""

    epoch_start_offset: int
    """LESO while it is above the HW; 0 once the HW passed it, for then it decides nothing any more."""
    isr: tuple[int, ...]
    proposed: tuple[int, ...] | None
    """The ISR of a pending change."""
    proposed_at: int
    """The partition epoch that the pending change names; 0 without one."""
    asking: bool
    """Whether the proposal is still being sent, or was refused for good and only pins the maximal ISR."""
    remote_leos: tuple[int | None, ...]
    """By node id; None for one that has not been counted in this epoch, and for itself."""
    agreed: tuple[int, ...] = ()
    """Nodes that are not counted yet, and whose next fetch that passes the divergence check is (M66)."""


class Following(NamedTuple):
    """The part of a node that follows, or waits for a leader."""

    state: FetchState


class Local(NamedTuple):
    """One node."""

    node_id: int
    image: Image | None
    """Newest metadata believed. A follower's keeps leader and leader epoch; the rest decides nothing for it."""
    log: tuple[Rec, ...]
    hw: int
    epochs: tuple[tuple[int, int], ...]
    part: Leading | Following | None

    @property
    def leader_epoch(self) -> int:
        """The leader epoch it knows, -1 before any."""
        return -1 if self.image is None else self.image.leader_epoch

    @property
    def follows(self) -> int | None:
        """Whom it follows."""
        return self.image.leader if self.image is not None and isinstance(self.part, Following) else None

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Committed and pending members of a leader's ISR."""
        assert isinstance(self.part, Leading)
        return tuple(sorted({*self.part.isr, *(self.part.proposed or ())}))


class Data(NamedTuple):
    """What clients did, and the history variable."""

    written: int
    committed: tuple[Rec, ...]
    """C: everything that was ever below the HW of a node that led."""


def newborn(node_id: int) -> Local:
    """A node that registered and has heard nothing yet."""
    return Local(node_id, None, (), 0, (), None)


def rebased(local: Local, ranks: dict[int, int]) -> Local:
    """The same node with its partition epochs renumbered; only their order means anything."""
    part = local.part
    if local.image is None or not isinstance(part, Leading):
        return local
    image = local.image._replace(partition_epoch=ranks[local.image.partition_epoch])
    if part.proposed is not None:
        part = part._replace(proposed_at=ranks[part.proposed_at])
    return local._replace(image=image, part=part)


def partition_epochs(local: Local) -> tuple[int, ...]:
    """The partition epochs that decide something in this node."""
    part = local.part
    if local.image is None or not isinstance(part, Leading):
        return ()
    return (
        (local.image.partition_epoch, part.proposed_at) if part.proposed is not None else (local.image.partition_epoch,)
    )
