"""One node as a value: exactly the parts of a `NodeCore` on which its future depends.

Invariant: two cores with equal `Local` take every further event alike. What is left out is time (see
`strandline_sim.searches.exhaust`), counters that only tell questions apart, and what can no longer be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
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
    """LESO while it is above the HW; 0 once the HW has passed it, because then it decides nothing any more."""
    isr: tuple[int, ...]
    proposed: tuple[int, ...] | None
    """The ISR of a pending change."""
    proposed_at: int
    """The partition epoch that the pending change names; 0 without one."""
    asking: bool
    """Whether the proposal is still being sent, or was refused for good and only pins the maximal ISR."""
    remote_leos: tuple[int | None, ...]
    """By node id; None for a node that has not been counted in this epoch, and for the leader itself."""
    agreed: tuple[int, ...] = ()
    """Nodes that are not counted yet, and whose next fetch that passes the divergence check is (M66)."""


class Following(NamedTuple):
    """The part of a node that follows, or waits for a leader."""

    state: FetchState


class Local(NamedTuple):
    """One node."""

    node_id: int
    image: Image | None
    """Newest metadata believed. A follower keeps only leader and leader epoch; the rest decides nothing for it."""
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
        """The node that it follows."""
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
    """A node that has registered and received no metadata yet."""
    return Local(node_id, None, (), 0, (), None)


def rebased(local: Local, ranks: dict[int, int]) -> Local:
    """The same node with its partition epochs renumbered; only their order matters."""
    part = local.part
    if local.image is None or not isinstance(part, Leading):
        return local
    image = local.image._replace(partition_epoch=ranks[local.image.partition_epoch])
    if part.proposed is not None:
        part = part._replace(proposed_at=ranks[part.proposed_at])
    return local._replace(image=image, part=part)


def partition_epochs(local: Local) -> tuple[int, ...]:
    """The partition epochs that matter to this node."""
    part = local.part
    if local.image is None or not isinstance(part, Leading):
        return ()
    return (
        (local.image.partition_epoch, part.proposed_at) if part.proposed is not None else (local.image.partition_epoch,)
    )


# ---- properties
# The properties of every state, and their names (RELIABILITY.md#invariants).
#
# Invariant: each property is a function of the state alone; ``committed`` is the history variable C.


class Property(StrEnum):
    """The names of the properties."""

    WEAK_ISR = "WeakIsr"
    """I3: below its own HW a leader agrees with every node it believes in sync."""
    STRONG_ISR = "StrongIsr"
    """I4: what any leader exposed is on every member of the controller's ISR."""
    LOST = "committed record lost"
    """I8: the true leader has all that was ever below the HW of any leader."""
    DIVERGED = "divergence in one epoch"
    """I2: a follower that finished truncating agrees with its leader of the same epoch wherever both have records."""
    CANDIDATES = "candidates complete"
    """I5: every electable node has all that was ever below the HW of any leader."""
    ASSERTION = "assertion of the core"
    """I0, I7, I11 and similar ones, asserted in production."""


def broken(locals_: Sequence[Local], now: Image, committed: tuple[Rec, ...], *, asks: bool) -> set[Property]:
    """The properties that do not hold. ``asks``: the rules begin an epoch with a question or a cut, not with Fetch."""
    found: set[Property] = set()
    for local in locals_:
        if isinstance(local.part, Leading):
            _check_leader(local, local.part, locals_, now, committed, found)
            if any(_diverged(local, local.part, other, asks) for other in locals_):
                found.add(Property.DIVERGED)
    if any(locals_[n].log[: len(committed)] != committed for n in (*now.isr, *now.elr)):
        found.add(Property.CANDIDATES)
    return found


def _check_leader(
    leader: Local, part: Leading, locals_: Sequence[Local], now: Image, committed: tuple[Rec, ...], found: set[Property]
) -> None:
    exposed = leader.log[: leader.hw]
    if exposed:
        if any(locals_[n].log[: leader.hw] != exposed for n in part.isr):
            found.add(Property.WEAK_ISR)
        if any(locals_[n].log[: leader.hw] != exposed for n in now.isr):
            found.add(Property.STRONG_ISR)
    is_true_leader = now.leader == leader.node_id and now.leader_epoch == leader.leader_epoch
    if is_true_leader and leader.log[: len(committed)] != committed:
        found.add(Property.LOST)


def _diverged(leader: Local, part: Leading, follower: Local, asks: bool) -> bool:
    if follower.follows != leader.node_id or follower.leader_epoch != leader.leader_epoch:
        return False
    assert isinstance(follower.part, Following)
    if follower.part.state is not FetchState.FETCHING:
        return False
    if not asks and part.remote_leos[follower.node_id] is None:
        return False  # its first Fetch of this epoch will compare the logs
    shared = min(len(leader.log), len(follower.log))
    return leader.log[:shared] != follower.log[:shared]
