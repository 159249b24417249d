"""How far a broker's clock is from the controller's, and in which zone its log is written, without any protocol (A21).

For each removal by a leader, the line that proposes it precedes the controller's record, and the line that takes it
over follows it; so do the lines that take over a return or begin to lead. So the offset lies in [largest proposal -
record, smallest following line - record]. Lines and records are joined by the partition epoch, and intervals are taken
for each reign of a controller, whose clock the records are of. An interval that would be empty means that a clock was
set: a new span begins there.

The zone follows from the line of a removal itself, which has a time since 1970 beside its time of day: that when the
member was last caught up, a lag time before. Without one, an offset near a multiple of 15 minutes is a zone.

Invariant: nothing is corrected that was not measured: without a pair, a broker has no span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from strandline.kafka.history.broker_logs import Logged
from strandline.kafka.history.line_facts import IsrUpdated, LeaderStarted, ShrinkProposed
from strandline.kafka.history.skeleton import Decision, Skeleton

_QUARTER_MS = 15 * 60_000
_HALF_DAY_MS = 14 * 3_600_000
"""No zone is further from UTC."""


class Pair(NamedTuple):
    """One removal by a leader: when it was proposed and taken over as written, and when it was decided."""

    proposed_ms: int
    updated_ms: int
    decided_ms: int
    controller_epoch: int
    caught_up_ms: int | None
    """When the member was last caught up, since 1970 by the broker's clock."""


class Span(NamedTuple):
    """From one time of day on: the zone, and the offset of the clock from the controller's, ms."""

    from_written_ms: int
    from_ms: int
    """The same by the controller's clock."""
    zone_ms: int
    low_ms: int
    high_ms: int
    pairs: int

    @property
    def offset_us(self) -> int:
        """The middle of what is possible."""
        return (self.low_ms + self.high_ms) * 500

    @property
    def least_ms(self) -> int:
        """The smallest offset that is possible: a clock that need not be wrong is taken to be right.

        Moments of several brokers are compared by it; the middle of a wide interval would tear apart what was one.
        """
        return max(self.low_ms, min(0, self.high_ms))

    @property
    def err_us(self) -> int:
        """Half of the width."""
        return (self.high_ms - self.low_ms) * 500


class BrokerClock:
    """Turns times as written in one broker's logs into the broker's own time since 1970."""

    def __init__(self, spans: Sequence[Span], zone_ms: int | None) -> None:
        self.spans = tuple(spans)
        self.zone_ms = zone_ms
        """Where there is no span: the zone, None if it is not known."""
        self._starts = [span.from_written_ms for span in self.spans]

    def span_at(self, written_ms: int) -> Span | None:
        """What was measured for a time as written; before the first pair that counts which came first."""
        if not self.spans:
            return None
        return self.spans[max(0, bisect_right(self._starts, written_ms) - 1)]

    def own_ms(self, written_ms: int) -> int:
        """By the broker's clock, since 1970."""
        span = self.span_at(written_ms)
        zone_ms = self.zone_ms if span is None else span.zone_ms
        return written_ms - (zone_ms or 0)

    def shift_ms(self, own_ms: int) -> int:
        """By how much the broker's clock is ahead of the controller's at a time of its own."""
        found = [span for span in self.spans if span.from_written_ms - span.zone_ms <= own_ms] or self.spans[:1]
        return found[-1].least_ms if found else 0

    def true_ms(self, written_ms: int) -> int:
        """By the controller's clock, as far as it was measured."""
        span = self.span_at(written_ms)
        shift_ms = 0 if span is None else span.least_ms
        return self.own_ms(written_ms) - shift_ms


def clock_of(facts: Sequence[Logged], skeleton: Skeleton) -> BrokerClock:
    """The clock of one broker.

    Args:
        facts: of the broker's logs, in order.
    """
    spans = _spans(_pairs(facts, skeleton))
    for at_ms, behind_ms in _near(facts, skeleton):
        _bound(spans, at_ms, behind_ms)
    return BrokerClock(spans, _zone_of(behind_ms for _, behind_ms in _near(facts, skeleton)))


def _pairs(facts: Iterable[Logged], skeleton: Skeleton) -> Iterator[Pair]:
    waiting: dict[tuple[str, int], tuple[int, ShrinkProposed]] = {}
    for at_ms, fact, _ in facts:
        if isinstance(fact, ShrinkProposed):
            waiting[fact.topic, fact.partition] = (at_ms, fact)
        elif isinstance(fact, IsrUpdated):
            asked = waiting.pop((fact.topic, fact.partition), None)
            if asked is None or {*asked[1].new_isr} != {*fact.isr}:
                continue
            decision = the_decision(skeleton, fact.topic, fact.partition, fact.partition_epoch)
            if decision is None or decision.why is None or decision.why.cause != "lag":
                continue
            caught_up = [one.last_caught_up_ms for one in asked[1].removed if one.last_caught_up_ms is not None]
            yield Pair(asked[0], at_ms, decision.at_ms, decision.controller_epoch, max(caught_up, default=None))


def the_decision(skeleton: Skeleton, topic: str, partition: int, partition_epoch: int) -> Decision | None:
    """The one decision of a partition epoch; None where a name meant two topics, or the log does not reach so far."""
    found = skeleton.decisions.get((topic, partition, partition_epoch), ())
    return found[0] if len(found) == 1 else None


def _spans(pairs: Iterable[Pair]) -> list[Span]:
    spans: list[Span] = []
    epoch: int | None = None
    for pair in pairs:
        zone_ms = _zone_of_pair(pair)
        low_ms = pair.proposed_ms - pair.decided_ms - zone_ms
        high_ms = pair.updated_ms - pair.decided_ms - zone_ms
        if spans and pair.controller_epoch == epoch and (joined := _joined(spans[-1], zone_ms, low_ms, high_ms)):
            spans[-1] = joined
        else:
            spans.append(Span(pair.proposed_ms, pair.decided_ms, zone_ms, low_ms, high_ms, 1))
        epoch = pair.controller_epoch
    return spans


def _joined(span: Span, zone_ms: int, low_ms: int, high_ms: int) -> Span | None:
    low_ms, high_ms = max(span.low_ms, low_ms), min(span.high_ms, high_ms)
    if zone_ms != span.zone_ms or low_ms > high_ms:
        return None
    return span._replace(low_ms=low_ms, high_ms=high_ms, pairs=span.pairs + 1)


def _bound(spans: list[Span], at_ms: int, behind_ms: int) -> None:
    """A return is written without a proposal: it only says how far the clock is ahead at most."""
    place = max(0, bisect_right([span.from_written_ms for span in spans], at_ms) - 1)
    if place < len(spans):
        span = spans[place]
        high_ms = behind_ms - span.zone_ms
        if span.low_ms <= high_ms < span.high_ms:
            spans[place] = span._replace(high_ms=high_ms)


def _zone_of_pair(pair: Pair) -> int:
    if pair.caught_up_ms is not None and pair.caught_up_ms > 0:
        return _quarters(pair.proposed_ms - pair.caught_up_ms)
    return _quarters((pair.proposed_ms + pair.updated_ms) // 2 - pair.decided_ms)


def _near(facts: Iterable[Logged], skeleton: Skeleton) -> Iterator[tuple[int, int]]:
    """When a line was written that follows a decision, and how far behind it: the zone, the clock, and a little."""
    for at_ms, fact, _ in facts:
        if isinstance(fact, LeaderStarted | IsrUpdated):
            decision = the_decision(skeleton, fact.topic, fact.partition, fact.partition_epoch)
            if decision is not None:
                yield at_ms, at_ms - decision.at_ms


def _zone_of(distances_ms: Iterable[int]) -> int | None:
    nearest = min(distances_ms, key=abs, default=None)
    return None if nearest is None else _quarters(nearest)


def _quarters(distance_ms: int) -> int:
    zone_ms = round(distance_ms / _QUARTER_MS) * _QUARTER_MS
    return zone_ms if abs(zone_ms) <= _HALF_DAY_MS else 0


Clocks = dict[int, BrokerClock]
"""By node."""
