"""What must hold in every state, and what it is called (RELIABILITY.md#invariants).

Invariant: each property is a function of the state alone; ``committed`` is the history variable C.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from strandline.core.log.follower import FetchState
from strandline_sim.searches.exhaust.local import Following, Image, Leading, Local, Rec


class Property(StrEnum):
    """A name for each."""

    WEAK_ISR = "WeakIsr"
    """I3: below its own HW a leader agrees with everybody it believes in sync."""
    STRONG_ISR = "StrongIsr"
    """I4: what any leader exposed is on every member of the controller's ISR."""
    LOST = "committed record lost"
    """I8: the true leader has all that was ever below the HW of any leader."""
    DIVERGED = "divergence in one epoch"
    """I2: a follower that finished truncating agrees with its leader of the same epoch wherever both have records."""
    CANDIDATES = "candidates complete"
    """I5: everybody who can be elected has all that was ever below the HW of any leader."""
    ASSERTION = "assertion of the core"
    """I0, I7, I11 and their like, asserted in production."""


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
    leader: Local,
    part: Leading,
    locals_: Sequence[Local],
    now: Image,
    committed: tuple[Rec, ...],
    found: set[Property],
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
        return False  # its first Fetch of this epoch is what will compare the logs
    shared = min(len(leader.log), len(follower.log))
    return leader.log[:shared] != follower.log[:shared]
