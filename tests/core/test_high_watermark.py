"""How far the high watermark may move, as a function (M6, M16-M19)."""

from __future__ import annotations

import pytest

from strandline.core.log.high_watermark import candidate
from strandline.core.types import Offset


@pytest.mark.parametrize(
    ("vote", "remotes", "isr", "min_isr", "expected"),
    [
        (5, [], 1, 1, 5),
        (5, [3, 4], 3, 2, 3),
        (2, [3, 4], 3, 2, 2),
        (5, [None, 4], 3, 1, None),
        (5, [4], 1, 2, None),
        (5, [4], 2, 2, 4),
    ],
)
def test_shortest_stave(vote: int, remotes: list[int | None], isr: int, min_isr: int, expected: int | None) -> None:
    """M6, M11, M18: the minimum over all counted replicas; none while one is unknown or the ISR is too small."""
    leos = [None if leo is None else Offset(leo) for leo in remotes]

    assert candidate(Offset(vote), leos, committed_isr_size=isr, min_isr=min_isr) == expected
