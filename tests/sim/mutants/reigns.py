"""Mutants of controllers that follow each other: what a new one may assume, and what others believe of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core import positions
from strandline.core.control import state
from strandline.core.control.controller import ControllerCore
from strandline.core.control.doubt import Doubt
from strandline.core.control.events import ControllerStarted
from strandline.core.control.messages import ControllerRequest
from strandline.core.control.nodes import Sessions
from strandline.core.control.state import Reigns, Standing
from strandline.core.errors import Refusal
from strandline.core.log.metadata import MetadataFollower
from strandline.core.messages import AsOf, MetadataImage, PartitionImage, Position, PositionProof
from strandline.core.reigns.events import Holder
from strandline.core.reigns.lease import KeyTaking
from strandline.core.types import NodeId

MUTANTS: tuple[Mutant, ...] = ()


# 31: a reign goes on with the controller epoch of the one before.


def _staying(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    if self._state is not None:
        real.differs()
        header = self._state.header
        self._state = replace(self._state, header=replace(header, controller_epoch=header.controller_epoch - 1))
    return real(self, event)


MUTANTS += (
    Mutant(
        number="31",
        name="controller epoch not raised",
        broken="A reign begins with the controller epoch of the reign before it.",
        source="C18",
        profiles=("controllers",),
        swaps=(Swap(ControllerCore, "_start", _staying, pure=False),),
    ),
)


# 33, 48: sessions that end for a time in which nobody could be heard.


def _due_at_once(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    effects = real(self, event)
    for session in self._sessions._sessions.values():
        real.differs()
        session.deadline_ms = event.now_ms
    return effects


def _sessions_staying(real: Real, self: Sessions, now_ms: int, closed_ms: int) -> None:
    real.differs()


MUTANTS += (
    Mutant(
        number="33",
        name="no sessions at a take-over",
        broken="A new reign grants no session to the nodes of the one before.",
        source="C21; M59",
        profiles=("controllers", "store-trouble"),
        swaps=(Swap(ControllerCore, "_start", _due_at_once, pure=False),),
    ),
    Mutant(
        number="48",
        name="sessions not moved after a time unsure",
        broken="Deadlines of sessions stay where they were while the controller served nobody.",
        source="C14; TR30",
        tests=("tests/core/test_sessions.py::test_minute_without_a_store_fences_nobody",),
        scenario="tr30_store_is_away_for_a_minute",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(Sessions, "resume", _sessions_staying, pure=False),),
    ),
)


# 35, 35b: positions are compared as numbers, and an image of a reign that knows less is believed.


def _by_number(real: Real, reigns: Reigns, head: int, position: Position) -> Standing:
    return Standing.KNOWN if position.metadata_offset <= head else Standing.UNKNOWN


def _continues(real: Real, self: MetadataFollower, image: MetadataImage) -> str:
    return ""


MUTANTS += (
    Mutant(
        number="35",
        name="positions compared as numbers",
        broken="A store that forgot its end, and has as many transactions again, knows every position.",
        source="C35; TR27",
        tests=("tests/core/test_reign_begins.py::test_a_position_is_known_in_its_own_reign_only",),
        scenario="tr27_position_of_a_lost_offset",
        profiles=("rollback",),
        swaps=(Swap(state, "standing", _by_number),),
    ),
    Mutant(
        number="35b",
        name="image of a reign that branches off believed",
        broken="A node takes the snapshot of a store that forgot something, and drops what is not in it.",
        source="C36; TR29",
        scenario="tr29_topic_that_the_store_forgot",
        profiles=("rollback",),
        swaps=(Swap(MetadataFollower, "_branches_off", _continues),),
    ),
)


# 36: a new reign elects before it has heard from the live replicas.


def _nobody(
    real: Real, self: Doubt, partition: PartitionImage, is_unfenced: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    return ()


MUTANTS += (
    Mutant(
        number="36",
        name="election while a live replica is unheard",
        broken="A reign elects although a live replica may know of a transaction that the store forgot.",
        source="C37; TR28",
        tests=("tests/core/test_reign_begins.py",),
        scenario="tr28_election_in_doubt",
        profiles=("rollback",),
        swaps=(Swap(Doubt, "waits_for", _nobody),),
    ),
)


# 37: a reign goes on with the next epoch of each partition.


def _by_one(real: Real, is_known_of_this_reign: bool) -> int:
    return 1


MUTANTS += (
    Mutant(
        number="37",
        name="no epoch skip",
        broken="A reign gives epochs that a transaction which the store forgot may have given.",
        source="C37; TR28",
        tests=("tests/core/test_reign_begins.py",),
        scenario="tr28_epochs_skip",
        profiles=("rollback",),
        swaps=(Swap(state, "_step", _by_one),),
    ),
)


# 39: a new reign answers administrators before any node has spoken.


def _at_once(real: Real, self: Doubt, request: ControllerRequest) -> Refusal | None:
    return None


MUTANTS += (
    Mutant(
        number="39",
        name="administrators answered before a node has spoken",
        broken="A reign changes and confirms from a store that may have forgotten what nodes were sent.",
        source="C37",
        tests=("tests/core/test_doubted_store.py",),
        profiles=("rollback",),
        swaps=(Swap(Doubt, "refusal", _at_once),),
    ),
)


# 44: a client takes an older image for news.


def _never(real: Real, self: AsOf, other: AsOf) -> bool:
    return False


MUTANTS += (
    Mutant(
        number="44",
        name="client takes an older image",
        broken="Metadata of a node that lags replaces newer metadata, and leaders of the past are believed again.",
        source="C63; TR35",
        scenario="tr35_metadata_of_a_stale_node",
        tests=("tests/client/test_cluster_view.py::test_an_older_position_is_ignored_whoever_sends_it",),
        profiles=("swarm",),
        swaps=(Swap(AsOf, "is_before", _never),),
    ),
)


# 50: a refused connection counts although this standby's own stream never broke.


def _whenever(real: Real, self: KeyTaking, holder: Holder | None, now_ms: int) -> bool:
    if holder is not None and self._broken_token != holder.token:
        real.differs()
        self.lost(holder.token, now_ms)
    return bool(real(self, holder, now_ms))


MUTANTS += (
    Mutant(
        number="50",
        name="refusal trusted without a broken stream",
        broken="A standby looks at the active controller, and takes its key, without having lost its stream to it.",
        source="C19",
        tests=(
            "tests/core/test_reign.py::test_refusal_without_a_broken_stream_takes_nothing",
            "tests/core/test_reign.py::test_reached_controller_keeps_its_key",
        ),
        profiles=("controllers",),
        swaps=(Swap(KeyTaking, "look_due", _whenever, pure=False),),
    ),
)


# 111: a large number is accepted as a proof.


def _always(real: Real, secret: str, node_id: NodeId, proof: PositionProof) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="111",
        name="any claim is a proof",
        broken="One forged heartbeat stops the controller for everybody.",
        source="M72",
        tests=("tests/core/test_store_age.py",),
        swaps=(Swap(positions, "is_proof", _always),),
    ),
)
