"""Balances the bytes that nodes hold, by moves and by exchanges of a larger replica for a smaller one (C90).

Invariant: numbers of replicas and of first replicas stay within their bands, or as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from strandline.core.planning.layout import Band, Layout, nearest

_TRIES = 64
"""How many replicas of a node are tried before the next pair of nodes."""
# The share of the wanted size that each step must achieve, which bounds the number of steps.
_LEAST = 1 / 8


def even_bytes(layout: Layout) -> None:
    """Take from nodes above their share for nodes below it until all are within their bands, or nothing improves."""
    bands, trades = layout.byte_bands(), _Trades(layout)
    for _ in layout.partitions:
        apart = {node_id: layout.bytes[node_id] - band.share for node_id, band in bands.items()}
        wrong = {node_id for node_id, band in bands.items() if not band.low <= layout.bytes[node_id] <= band.high}
        order = sorted(apart, key=lambda node_id: (-apart[node_id], node_id))
        above = [node_id for node_id in order if apart[node_id] > 0]
        below = [node_id for node_id in reversed(order) if apart[node_id] < 0 and node_id in layout.takers]
        pairs = ((one, other) for one in above for other in below if wrong & {one, other})
        if not any(trades.trade(one, other, min(apart[one], -apart[other])) for one, other in pairs):
            return


class _Trades:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._replicas = layout.bands(layout.count)
        self._leaders = layout.bands(layout.leads)
        self._bytes = layout.byte_bands()

    def trade(self, source: int, target: int, size: float) -> bool:
        """Move a replica of about this size, or exchange two that differ by it."""
        layout = self._layout
        for given in self._movable(source, target, size):
            partners: list[int | None] = [None]
            # A node that takes nothing can give, but not exchange.
            if source in layout.takers:
                partners += islice(self._movable(target, source, layout.sizes[given] - size), 1)
            for taken in partners:
                gain = layout.sizes[given] - (0 if taken is None else layout.sizes[taken])
                # With twice the size the two nodes would only change places.
                if _LEAST * size <= gain <= (2 - _LEAST) * size and self._may_trade(given, taken, source, target):
                    self._perform(given, taken, source, target)
                    return True
        return False

    def _movable(self, source: int, target: int, size: float) -> Iterator[int]:
        near = islice(nearest(self._layout.held[source], size), _TRIES)
        return (index for _, index in near if self._layout.may_move(index, source, target))

    def _may_trade(self, given: int, taken: int | None, source: int, target: int) -> bool:
        layout = self._layout
        firsts = (layout.replicas[given][0] == source) - (taken is not None and layout.replicas[taken][0] == target)
        # An exchange leaves the numbers of replicas as they are; first places may shift, and bytes must not break that
        # goal (C90).
        return (taken is not None or _stays(self._replicas, layout.count, source, target, 1)) and _stays(
            self._leaders, layout.leads, source, target, firsts
        )

    def _perform(self, given: int, taken: int | None, source: int, target: int) -> None:
        parts = [round(100 * self._layout.bytes[each] / self._bytes[each].share) for each in (source, target)]
        why = f"node {source} held {parts[0]} % of its share of bytes, node {target} {parts[1]} %"
        self._layout.move(given, source, target, why)
        if taken is not None:
            self._layout.move(taken, target, source, why)


def _stays(bands: Mapping[int, Band], load: Callable[[int], int], source: int, target: int, shifted: int) -> bool:
    """Whether shifting this many units takes neither node over the edge of its band that it goes towards."""
    if shifted < 0:
        source, target, shifted = target, source, -shifted
    return shifted == 0 or (
        load(source) - shifted >= bands[source].low and load(target) + shifted <= bands[target].high
    )
