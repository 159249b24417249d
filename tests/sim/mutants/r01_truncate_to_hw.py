"""R1: the rule of all releases before 0.11, inside the current rules."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.truncation import AskedTruncation, FetchTruncation, FirstMove


def _cut_to_hw(real: Real, *_: Any) -> FirstMove:
    return FirstMove.CUT_TO_HW


MUTANTS = (
    Mutant(
        number="R1",
        name="truncate to the high watermark",
        broken="A follower cuts its log to its own high watermark when a new leader epoch begins, and asks nobody.",
        source="KIP-101, scenario 1; TR1",
        scenario="tr01_leader_epoch",
        swaps=(
            Swap(AskedTruncation, "first_move", _cut_to_hw),
            Swap(FetchTruncation, "first_move", _cut_to_hw),
        ),
    ),
)
