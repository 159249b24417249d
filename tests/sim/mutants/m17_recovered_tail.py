"""17: recovery trusts the page cache.

The rule belongs to recovery, not to the core, so it is swapped in the simulator's disk, which takes the place of
`storage`.
"""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline_sim.world.disk import LogFile


def _without_sync(real: Real, log: LogFile, *given: Any, **named: Any) -> bool:
    synced = log.synced
    missed: bool = real(log, *given, **named)
    if synced < log.synced:
        real.differs()
        log.synced = synced
    return missed


MUTANTS = (
    Mutant(
        number="17",
        name="recovered tail not synced",
        broken="After a kill a log is handed over whose tail lies in the page cache, and it counts as durable.",
        source="TR17",
        scenario="m17_tail_of_the_page_cache",
        swaps=(Swap(LogFile, "recover", _without_sync, pure=False),),
    ),
)
