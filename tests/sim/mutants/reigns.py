"""Mutants of controllers that follow each other: what a new one may assume, and what others believe of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants.mutant import Real, mutant

from strandline.core import positions
from strandline.core.control import state
from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted
from strandline.core.control.messages import ControllerRequest
from strandline.core.control.nodes import Sessions
from strandline.core.control.positions import Doubt
from strandline.core.control.state import Reigns, Standing
from strandline.core.errors import Refusal
from strandline.core.log.metadata import MetadataFollower
from strandline.core.messages import AsOf, MetadataImage, PartitionImage, Position, PositionProof
from strandline.core.reigns.events import Holder
from strandline.core.reigns.lease import KeyTaking
from strandline.core.types import NodeId


@mutant(ControllerCore, "_start", profiles="controllers", pure=False)
def _staying(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    """31: controller epoch not raised (C18).

    A reign begins with the controller epoch of the reign before it.
    """
    if self._state is not None:
        real.differs()
        header = self._state.header
        self._state = replace(self._state, header=replace(header, controller_epoch=header.controller_epoch - 1))
    return real(self, event)


# 33, 48: sessions that end for a time in which no node could be heard.


@mutant(ControllerCore, "_start", profiles="controllers store-trouble", pure=False)
def _due_at_once(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    """33: no sessions at a take-over (C21; M59).

    A new reign grants no session to the nodes of the one before.
    """
    effects = real(self, event)
    for session in self._sessions._sessions.values():
        real.differs()
        session.deadline_ms = event.now_ms
    return effects


@mutant(
    Sessions,
    "resume",
    "tr30_store_is_away_for_a_minute",
    tests="tests/core/test_sessions.py::test_minute_without_a_store_fences_nobody",
    profiles="store-trouble controllers",
    pure=False,
)
def _sessions_staying(real: Real, self: Sessions, now_ms: int, closed_ms: int) -> None:
    """48: sessions not moved after a time unsure (C14; TR30).

    Deadlines of sessions stay where they were while the controller served nobody.
    """
    real.differs()


# 35, 35b: positions are compared as numbers, and an image of a reign that knows less is believed.


@mutant(
    state,
    "standing",
    "tr27_position_of_a_lost_offset",
    tests="tests/core/test_reign_begins.py::test_a_position_is_known_in_its_own_reign_only",
    profiles="rollback",
)
def _by_number(real: Real, reigns: Reigns, head: int, position: Position) -> Standing:
    """35: positions compared as numbers (C35; TR27).

    A store that forgot its end, and has as many transactions again, knows every position.
    """
    return Standing.KNOWN if position.metadata_offset <= head else Standing.UNKNOWN


@mutant(MetadataFollower, "_branches_off", "tr29_topic_that_the_store_forgot", profiles="rollback")
def _continues(real: Real, self: MetadataFollower, image: MetadataImage) -> str:
    """35b: image of a reign that branches off believed (C36; TR29).

    A node takes the snapshot of a store that forgot something, and drops what is not in it.
    """
    return ""


@mutant(Doubt, "waits_for", "tr28_election_in_doubt", tests="tests/core/test_reign_begins.py", profiles="rollback")
def _nobody(
    real: Real, self: Doubt, partition: PartitionImage, is_unfenced: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    """36: election while a live replica is unheard (C37; TR28).

    A reign elects although a live replica may know of a transaction that the store forgot.
    """
    return ()


@mutant(state, "_step", "tr28_epochs_skip", tests="tests/core/test_reign_begins.py", profiles="rollback")
def _by_one(real: Real, is_known_of_this_reign: bool) -> int:
    """37: no epoch skip (C37; TR28).

    A reign gives epochs that a transaction which the store forgot may have given.
    """
    return 1


@mutant(Doubt, "refusal", tests="tests/core/test_doubted_store.py", profiles="rollback")
def _at_once(real: Real, self: Doubt, request: ControllerRequest) -> Refusal | None:
    """39: administrators answered before a node has spoken (C37).

    A reign changes and confirms from a store that may have forgotten what nodes were sent.
    """
    return None


@mutant(
    AsOf,
    "is_before",
    "tr35_metadata_of_a_stale_node",
    tests="tests/client/test_cluster_view.py::test_an_older_position_is_ignored_whoever_sends_it",
    profiles="swarm",
)
def _never(real: Real, self: AsOf, other: AsOf) -> bool:
    """44: client takes an older image (C63; TR35).

    Metadata of a node that lags replaces newer metadata, and leaders of the past are believed again.
    """
    return False


@mutant(
    KeyTaking,
    "look_due",
    tests="tests/core/test_reign.py::test_refusal_without_a_broken_stream_takes_nothing"
    " tests/core/test_reign.py::test_reached_controller_keeps_its_key",
    profiles="controllers",
    pure=False,
)
def _whenever(real: Real, self: KeyTaking, holder: Holder | None, now_ms: int) -> bool:
    """50: refusal trusted without a broken stream (C19).

    A standby looks at the active controller, and takes its key, without having lost its stream to it.
    """
    if holder is not None and self._broken_token != holder.token:
        real.differs()
        self.lost(holder.token, now_ms)
    return bool(real(self, holder, now_ms))


@mutant(positions, "is_proof", tests="tests/core/test_store_age.py")
def _always(real: Real, secret: str, node_id: NodeId, proof: PositionProof) -> bool:
    """111: any claim is a proof (M72).

    One forged heartbeat stops the controller for everybody.
    """
    return True
