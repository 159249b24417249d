"""R7: ISR members that lack committed records."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log import isr
from strandline.core.log.isr import FollowerProgress, Joins
from strandline.core.types import Offset


def _without_positions(
    real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, joins: Joins, **given: Any
) -> bool:
    return follower.remote_leo is not None and joins(follower, leader_leo, given["now_ms"], given["lag_max_ms"])


def _without_epoch_start(
    real: Real, follower: FollowerProgress, *, hw: Offset, leader_leo: Offset, joins: Joins, **given: Any
) -> bool:
    leo = follower.remote_leo
    return leo is not None and leo >= hw and joins(follower, leader_leo, given["now_ms"], given["lag_max_ms"])


MUTANTS = (
    Mutant(
        number="R7a",
        name="the ISR grows without any position",
        broken="A follower may join the ISR below the high watermark and below the start of the leader's epoch.",
        source="M44",
        scenario="r07_joins_below_the_start",
        swaps=(Swap(isr, "may_join", _without_positions),),
    ),
    Mutant(
        number="R7b",
        name="the ISR grows before the true high watermark is known",
        broken="A follower may join the ISR at the leader's high watermark, though below the start of its epoch.",
        source="KAFKA-7128; TR4b, TR6",
        scenario="r07_joins_below_the_start",
        swaps=(Swap(isr, "may_join", _without_epoch_start),),
    ),
)
