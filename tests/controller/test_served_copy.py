"""How old the metadata is that a controller serves beside the one that decides (C62)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from strandline.controller.among import ServedCopy
from strandline.core.reigns.events import Head


def head(offset: int) -> Head:
    """The last transaction of a store."""
    return Head("r", offset, "d")


async def test_the_age_counts_from_the_read_whose_head_the_copy_has_reached() -> None:
    """Neither from one that names more than the copy has, nor from when it ended; who decides is never behind."""
    store: Any = SimpleNamespace(applied=head(4), active=None)
    now_ms, decides, ages = 1_000, False, []
    copy = ServedCopy(store, decides=lambda: decides, clock=lambda: now_ms, merge_ms=0)

    def look(at_ms: int) -> None:
        nonlocal now_ms
        now_ms = at_ms
        ages.append(copy.feed.as_of().age_ms)

    copy.head_read(1_200, head(4))
    look(1_500)
    copy.head_read(1_600, head(5))
    look(2_000)
    store.applied = head(5)
    look(2_100)
    decides = True
    look(9_000)

    assert ages == [300, 800, 500, 0]
