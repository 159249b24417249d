"""Draws the lanes of a partition: one per replica, with LEO, HW and state over the last two minutes.

Pure: samples in, shapes out; the template only writes them down. Invariant: all lanes share one time axis and one
scale of offsets; where nothing was measured there is a gap, not a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from strandline.console.courses import ReplicaPoint, Sample
from strandline.console.overview import ReplicaStanding
from strandline.core.types import NodeId, Offset

WINDOW_MS = 120_000
WIDTH, CURVES, STRIP = 600, 52, 10
HEIGHT = CURVES + STRIP + 2
_MARGIN = 4
_GAP_MS = 5_000
"""A longer time between two samples is drawn as a gap."""


class Span(NamedTuple):
    """A stretch of one state; ``css`` is the state as a class."""

    x: float
    width: float
    css: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One replica's lane; paths are SVG path data, empty where nothing was measured."""

    node_id: NodeId
    spans: tuple[Span, ...]
    leader_leo: str
    leo: str
    hw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """All lanes; ``epochs`` are the x of leader changes, ``lowest`` and ``highest`` the scale of offsets."""

    lanes: tuple[Lane, ...]
    epochs: tuple[tuple[float, int], ...]
    lowest: Offset | None
    highest: Offset | None


def draw_lanes(samples: Sequence[Sample], node_ids: Sequence[NodeId], now_ms: int) -> Lanes:
    """The lanes of these replicas, right edge now."""
    shown = [sample for sample in samples if sample.at_ms >= now_ms - WINDOW_MS]
    known = [offset for sample in shown for offset in _offsets(sample) if offset is not None]
    low, high = min(known, default=None), max(known, default=None)

    def y(offset: Offset) -> float:
        if low is None or high is None or high == low:
            return CURVES / 2
        return _MARGIN + (CURVES - 2 * _MARGIN) * (1 - (offset - low) / (high - low))

    def path(value: Callable[[Sample], Offset | None]) -> str:
        return _path([(sample.at_ms, value(sample)) for sample in shown], y, now_ms)

    lanes = tuple(
        Lane(
            node_id=node_id,
            spans=tuple(_spans(shown, node_id, now_ms)),
            leader_leo=path(lambda sample: sample.leo),
            leo=path(lambda sample, node_id=node_id: _point(sample, node_id).leo),  # type: ignore[misc]
            hw=path(lambda sample, node_id=node_id: _point(sample, node_id).hw),  # type: ignore[misc]
        )
        for node_id in node_ids
    )
    return Lanes(lanes=lanes, epochs=tuple(_epochs(shown, now_ms)), lowest=low, highest=high)


_ABSENT = ReplicaPoint(None, None, ReplicaStanding.DOWN)


def _point(sample: Sample, node_id: NodeId) -> ReplicaPoint:
    return sample.replicas.get(node_id, _ABSENT)


def _offsets(sample: Sample) -> Iterator[Offset | None]:
    yield sample.leo
    yield sample.hw
    for point in sample.replicas.values():
        yield point.leo
        yield point.hw


def _x(at_ms: int, now_ms: int) -> float:
    return WIDTH * (1 - (now_ms - at_ms) / WINDOW_MS)


def _path(points: Sequence[tuple[int, Offset | None]], y: Callable[[Offset], float], now_ms: int) -> str:
    words: list[str] = []
    last_ms: int | None = None
    for at_ms, offset in points:
        if offset is None:
            last_ms = None
            continue
        begins = last_ms is None or at_ms - last_ms > _GAP_MS
        words.append(f"{'M' if begins else 'L'}{_x(at_ms, now_ms):.1f} {y(offset):.1f}")
        last_ms = at_ms
    return " ".join(words)


def _spans(shown: Sequence[Sample], node_id: NodeId, now_ms: int) -> Iterator[Span]:
    begun: tuple[int, ReplicaStanding] | None = None
    last_ms = 0
    for sample in shown:
        state = _point(sample, node_id).state
        if begun is not None and (begun[1] is not state or sample.at_ms - last_ms > _GAP_MS):
            end_ms = sample.at_ms if sample.at_ms - last_ms <= _GAP_MS else last_ms
            yield _span(begun[0], end_ms, begun[1], now_ms)
            begun = None
        if begun is None:
            begun = sample.at_ms, state
        last_ms = sample.at_ms
    if begun is not None:
        yield _span(begun[0], max(last_ms, min(now_ms, last_ms + _GAP_MS)), begun[1], now_ms)


def _span(start_ms: int, end_ms: int, state: ReplicaStanding, now_ms: int) -> Span:
    x = _x(start_ms, now_ms)
    return Span(x, max(0.5, _x(end_ms, now_ms) - x), state.css, state.value)


def _epochs(shown: Sequence[Sample], now_ms: int) -> Iterator[tuple[float, int]]:
    for before, after in pairwise(shown):
        if after.leader_epoch != before.leader_epoch:
            yield _x(after.at_ms, now_ms), after.leader_epoch
