"""Balances what nodes hold and lead: the best single step or shortest chain of steps, until nothing improves (C91).

Invariant: a chain takes from a node that has too much, or gives to one that has too little, and leaves every node
between them as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from strandline.core.planning.layout import Band, Layout, nearest


class Flow(ABC):
    """Something that nodes have: ``load`` is how many units of it, ``bands`` how many they should have."""

    def __init__(self, layout: Layout, load: Callable[[int], int]) -> None:
        self._layout = layout
        self.load = load
        self.bands = layout.bands(load)

    @abstractmethod
    def find(self, source: int, target: int) -> int | None:
        """The partition that can shift one unit between these nodes; None if there is none."""

    @abstractmethod
    def shift(self, index: int, source: int, target: int) -> None:
        """Shift it."""


class ReplicaFlow(Flow):
    """Replicas, shifted by moving them."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, layout.count)
        self._bytes = layout.byte_bands()
        # Pairs between which no replica may move: asked for at every step, and seldom changed by one.
        self._blocked: set[tuple[int, int]] = set()

    def find(self, source: int, target: int) -> int | None:
        """A replica of about the size that evens out bytes, too."""
        layout = self._layout
        if target not in layout.takers or (source, target) in self._blocked:
            return None
        # A replica has to move in any case; one of the right size saves a copy that would only even out bytes.
        for _, index in nearest(layout.held[source], self._wanted_size(source, target)):
            if layout.may_move(index, source, target):
                return index
        self._blocked.add((source, target))
        return None

    def _wanted_size(self, source: int, target: int) -> float:
        """The bytes that the target lacks per missing replica, or that the source has too many per extra replica."""
        lacks = self.bands[target].share - self.load(target)
        if lacks >= 1:
            return (self._bytes[target].share - self._layout.bytes[target]) / lacks
        surplus = max(1, self.load(source) - self.bands[source].share)
        return (self._layout.bytes[source] - self._bytes[source].share) / surplus

    def shift(self, index: int, source: int, target: int) -> None:
        """Move the replica."""
        layout = self._layout
        why = f"node {source} held {self.load(source)} replicas, node {target} {self.load(target)}"
        layout.move(index, source, target, why)
        # Its nodes and racks have changed, so it may now go where it could not before.
        for holder in layout.replicas[index]:
            for taker in layout.takers:
                if (holder, taker) in self._blocked and layout.may_move(index, holder, taker):
                    self._blocked.discard((holder, taker))


class LeaderFlow(Flow):
    """First places, shifted by another order of the same replicas; with ``may_copy`` also by exchanging a first
    replica for another replica."""

    def __init__(self, layout: Layout, *, may_copy: bool) -> None:
        super().__init__(layout, layout.leads)
        self._may_copy = may_copy

    def find(self, source: int, target: int) -> int | None:
        """A partition of both nodes with the source first, else one that can be exchanged."""
        layout = self._layout
        if target not in layout.takers:
            return None
        led = layout.led[source]
        # A partition of both nodes only needs another order, which copies nothing.
        found = next((index for index in led if target in layout.replicas[index]), None)
        if found is None and self._may_copy and source in layout.takers:
            return next((index for index in led if self._partner(index, source, target) is not None), None)
        return found

    def _partner(self, index: int, source: int, target: int) -> int | None:
        """The replica of similar size that the source gets in exchange for a first replica that goes to the target."""
        layout = self._layout
        if not layout.may_move(index, source, target):
            return None
        # In exchange, because the goal before has evened out how many replicas each node holds (C90).
        held = (other for _, other in nearest(layout.held[target], layout.sizes[index]))
        return next((o for o in held if layout.replicas[o][0] != target and layout.may_move(o, target, source)), None)

    def shift(self, index: int, source: int, target: int) -> None:
        """Put the target first."""
        layout, replicas = self._layout, self._layout.replicas[index]
        why = f"node {source} was first of {self.load(source)} partitions, node {target} of {self.load(target)}"
        if target in replicas:
            layout.put(index, [target, *(node_id for node_id in replicas if node_id != target)], why)
            return
        partner = self._partner(index, source, target)
        assert partner is not None
        layout.move(index, source, target, why)
        layout.move(partner, target, source, why)


def even(flow: Flow) -> None:
    """Shift until every node is within its band, or nothing improves."""
    wrong = _excess(flow)
    while wrong:
        # From the chain's end: then no node within it ever has one unit too many.
        for source, target in reversed(list(pairwise(_chain(flow)))):
            index = flow.find(source, target)
            if index is None:
                break
            flow.shift(index, source, target)
        left = _excess(flow)
        # It ends with the first chain that improves nothing, so it always ends.
        wrong = left if left < wrong else 0


def _excess(flow: Flow) -> float:
    """By how much loads are outside their bands, added up."""
    loads = ((flow.load(node_id), band) for node_id, band in flow.bands.items())
    return sum(max(0, load - band.high, band.low - load) for load, band in loads)


def _chain(flow: Flow) -> Sequence[int]:
    """The nodes along which to shift one unit; empty: there is no way."""
    loads = {node_id: flow.load(node_id) for node_id in flow.bands}
    # Ties go by ids, so that equal input gives an equal plan (C91).
    least = sorted(loads, key=lambda node_id: (loads[node_id] - flow.bands[node_id].share, node_id))
    most = sorted(loads, key=lambda node_id: (flow.bands[node_id].share - loads[node_id], node_id))
    over = [node_id for node_id in most if loads[node_id] > flow.bands[node_id].high]
    under = [node_id for node_id in least if loads[node_id] < flow.bands[node_id].low]
    can_give = [node_id for node_id in most if loads[node_id] - 1 >= flow.bands[node_id].low]
    can_take = [node_id for node_id in least if loads[node_id] + 1 <= flow.bands[node_id].high]
    # From a node with too much to one with too little first: one chain then repairs both.
    ways = ((over, under), (over, can_take), (can_give, under))
    direct = (
        (source, target)
        for sources, targets in ways
        for source in sources
        for target in targets
        if source != target and flow.find(source, target) is not None
    )
    # A direct step is the shortest chain, and found without a search.
    return next(direct, None) or next(filter(None, (_shortest(flow, *way) for way in ways)), ())


def _shortest(flow: Flow, sources: Sequence[int], targets: Sequence[int]) -> Sequence[int]:
    """The shortest chain from one of the sources to one of the targets; empty: there is none."""
    paths: dict[int, tuple[int, ...]] = {source: (source,) for source in sources}
    for path in (waiting := list(paths.values()) if targets else []):
        for node_id in flow.bands:
            if node_id not in paths and flow.find(path[-1], node_id) is not None:
                paths[node_id] = (*path, node_id)
                if node_id in targets:
                    return paths[node_id]
                waiting.append(paths[node_id])
    return ()


# ---- bytes
# Balances the bytes that nodes hold, by moves and by exchanges of a larger replica for a smaller one (C90).
#
# Invariant: numbers of replicas and of first replicas stay within their bands, or as they are.

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
