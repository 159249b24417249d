"""112a, 112b: unproven members, forgotten with the next change of the partition, or by the next controller epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control.controller import ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.events import ControllerEffect, ControllerStarted
from strandline.core.messages import PartitionImage


def _forgets(real: Real, self: Draft, changed: PartitionImage, **how: Any) -> PartitionImage:
    before = self.base.partition(changed.tp)
    kept = before is not None and set(before.unproven) & set(changed.unproven)
    if kept:
        real.differs()
        changed = replace(changed, unproven=tuple(n for n in changed.unproven if n not in kept))
    answer: PartitionImage = real(self, changed, **how)
    return answer


def _begins_proven(real: Real, self: ControllerCore, event: ControllerStarted) -> list[ControllerEffect]:
    if self._state is not None and any(p.unproven for p in self._state.partitions()):
        real.differs()
        topics = {
            topic_id: replace(topic, partitions=tuple(replace(p, unproven=()) for p in topic.partitions))
            for topic_id, topic in self._state.topics.items()
        }
        self._state = replace(self._state, topics=topics)
    effects: list[ControllerEffect] = real(self, event)
    return effects


MUTANTS = (
    Mutant(
        number="112a",
        name="unproven member forgotten",
        broken="With the next change of a partition its unproven members count as proven.",
        source="M64",
        swaps=(Swap(Draft, "put_partition", _forgets, pure=False),),
    ),
    Mutant(
        number="112b",
        name="unproven member forgotten by the next reign",
        broken="A controller that restarts takes every member for proven.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(ControllerCore, "_start", _begins_proven, pure=False),),
    ),
)
