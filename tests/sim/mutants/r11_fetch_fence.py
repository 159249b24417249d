"""R11: a fetch of any epoch is accepted."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.errors import Refusal
from strandline.core.messages import FetchPartition, ReplicaState
from strandline.core.serving.fetch import FetchServing


def _any_epoch(
    real: Real, serving: FetchServing, part: FetchPartition, replica: ReplicaState | None, at_follower: bool
) -> Refusal | None:
    image = serving._state.images.get(part.tp)
    if replica is not None and image is not None and part.current_leader_epoch is not None:
        part = part._replace(current_leader_epoch=image.leader_epoch)
    found: Refusal | None = real(serving, part, replica, at_follower)
    return found


MUTANTS = (
    Mutant(
        number="R11",
        name="fetch fence skipped",
        broken="A leader counts the fetch of a follower that lives in another leader epoch.",
        source="KIP-320; TR4, TR5",
        scenario="r11_fetch_of_another_epoch",
        swaps=(Swap(FetchServing, "_check", _any_epoch),),
    ),
)
