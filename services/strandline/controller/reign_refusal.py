"""Why a controller among several decides nothing at this moment, and which one does: a sentence with a hint."""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.controller_state import ClusterState
from strandline.core.errors import ControllerHint, ErrorCode, Refusal
from strandline.core.reign_effects import Why
from strandline.metadata.etcd import EtcdHealth
from strandline.metadata.etcd_layout import Presence
from strandline.rpc.channels import target


class Undecided(NamedTuple):
    """What a controller knows while it decides nothing."""

    why: Why
    since_s: float | None
    """For how long, in seconds, if that is known."""
    health: EtcdHealth | None

    @property
    def no_decisions(self) -> str:
        """The beginning of a sentence."""
        return "no decisions" if self.since_s is None else f"no decisions for {self.since_s:.0f} s"

    @property
    def store_unreachable(self) -> str:
        """With how many members answered last."""
        known = f", {self.health.answering} of {self.health.members} members answer" if self.health is not None else ""
        return f"{self.no_decisions}: store unreachable{known}; bring back a majority of etcd"


def refused(why: Why, sentence: str) -> Refusal:
    """NOT_CONTROLLER that names no other controller."""
    return Refusal(ErrorCode.NOT_CONTROLLER, sentence, hint=ControllerHint(why))


def undecided(known: Undecided, *, is_active: bool, other: Presence | None, state: ClusterState | None) -> Refusal:
    """NOT_CONTROLLER. ``is_active``: this one has the key; ``other``: the controller that is known to decide."""
    why = known.why
    if why is Why.STORE_AWAY:
        return refused(why, known.store_unreachable)
    if why is Why.STORE_FULL:
        return refused(why, f"{known.no_decisions}: etcd has no space; compact, defragment, disarm the alarm")
    if is_active:
        # It has the key, and has not begun, or waits for the store.
        return refused(why, "this controller is about to decide; ask again")
    if other is None:
        return refused(why, "no controller is known to decide; ask again")
    client = target(other.client)
    epoch = state.header.controller_epoch if state is not None else 0
    return Refusal(
        ErrorCode.NOT_CONTROLLER,
        f"controller {other.controller_id} at {client} decides",
        hint=ControllerHint(why, other.controller_id, client, target(other.internal), epoch),
    )
