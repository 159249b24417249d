"""Measurements by turns: the order in which they are made, and whose each figure is."""

from __future__ import annotations

from by_turns import by_turns


async def test_the_other_one_is_first_in_the_next_pair() -> None:
    """What the first of a pair finds warm or cold is shared fairly, and each figure is ascribed to its own."""
    order: list[str] = []

    async def one() -> float:
        order.append("one")
        return 1.0

    async def other() -> float:
        order.append("other")
        return 2.0

    found = await by_turns(3, one, other)

    assert order == ["one", "other", "other", "one", "one", "other"]
    assert found == [(1.0, 2.0)] * 3
