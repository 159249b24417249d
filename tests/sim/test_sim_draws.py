"""Draws depend on seed, purpose, key and number, and on nothing else."""

from __future__ import annotations

from strandline_sim.world.draws import Draw, Purpose, mix, mix2


def test_values_are_those_of_every_other_machine() -> None:
    """A seed in a report means the same run everywhere: these numbers never change."""
    draw = Draw(7, Purpose.NET, 3)

    assert [mix(1), mix2(1, 2)] == [6238072747940578789, 13608149317741381227]
    assert [draw.next() for _ in range(3)] == [6703874006564161244, 740099055954456542, 3980909856652977612]


def test_one_stream_of_draws_does_not_move_another() -> None:
    """More draws of one key leave all other keys unchanged."""
    alone = Draw(7, Purpose.NET, 3)
    busy, beside = Draw(7, Purpose.NET, 4), Draw(7, Purpose.NET, 3)
    for _ in range(10):
        busy.next()

    assert [alone.next() for _ in range(5)] == [beside.next() for _ in range(5)]


def test_bounds_are_kept() -> None:
    """`between` includes both ends, `below` excludes its bound, `sample` repeats nothing."""
    draw = Draw(1, Purpose.SHAPE)
    between = {draw.between(3, 5) for _ in range(200)}
    below = {draw.below(3) for _ in range(200)}
    sample = draw.sample(range(10), 10)

    assert between == {3, 4, 5}
    assert below == {0, 1, 2}
    assert sorted(sample) == list(range(10))
