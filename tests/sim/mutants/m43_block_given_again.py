"""43a, 43b: a block of producer ids is given a second time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import producer_ids
from strandline.core.control.controller import PRODUCER_IDS_SKIPPED, ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.events import ControllerStarted


def _not_reserved(real: Real, draft: Draft) -> int:
    real.differs()
    return draft.header.next_producer_id


def _going_on(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    if self._state is not None:
        real.differs()
        header = self._state.header
        stay = header.next_producer_id - PRODUCER_IDS_SKIPPED
        self._state = replace(self._state, header=replace(header, next_producer_id=stay))
    return real(self, event)


MUTANTS = (
    Mutant(
        number="43a",
        name="producer-id block given again",
        broken="The next block begins where the last one began.",
        source="C33, C65; TR36",
        tests=("tests/core/test_producers.py",),
        scenario="tr36_producer_ids_of_a_store_that_forgot",
        profiles=("swarm",),
        swaps=(Swap(producer_ids, "_reserve", _not_reserved, pure=False),),
    ),
    Mutant(
        number="43b",
        name="no producer ids skipped by a reign",
        broken="A reign on a store that forgot its end gives the blocks that the forgotten transactions gave.",
        source="C33; TR36",
        tests=("tests/core/test_producers.py",),
        scenario="tr36_producer_ids_of_a_store_that_forgot",
        profiles=("rollback",),
        swaps=(Swap(ControllerCore, "_start", _going_on, pure=False),),
    ),
)
