"""Two measurements in pairs by turns, so that what changes on the machine meanwhile meets both alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Measure = Callable[[], Awaitable[float]]


async def by_turns(count: int, one: Measure, other: Measure) -> list[tuple[float, float]]:
    """So many pairs, each the figure of ``one`` and that of ``other``; the other one is measured first each time."""
    found = []
    for number in range(count):
        if number % 2 == 0:
            first = await one()
            found.append((first, await other()))
        else:
            second = await other()
            found.append((await one(), second))
    return found
