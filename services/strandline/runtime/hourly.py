"""When the full state is reported: at the start of every hour, by the time of day.

Invariant: a clock that is set while the hour is waited for costs at most one report too many or too late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_HOUR_S = 3_600
_JUST_AFTER_S = 0.05


def until_next_hour_s(now_s: float) -> float:
    """Seconds until just after the next full hour."""
    return _HOUR_S - now_s % _HOUR_S + _JUST_AFTER_S


async def at_each_hour(tell: Callable[[], None], now_s: Callable[[], float] = time.time) -> None:
    """Call ``tell`` at the start of every hour, until cancelled."""
    while True:
        await asyncio.sleep(until_next_hour_s(now_s()))
        tell()
