"""Measures a broker's clock offset from the controller's and the zone of its log, without any protocol (A21).

For each removal by a leader, the line that proposes it precedes the controller's record, and the line that takes it
over follows it; so do the lines that take over a return or begin to lead. So the offset lies in [largest proposal -
record, smallest following line - record]. Lines and records are joined by `joining.py`, and intervals are taken for
each reign of a controller, whose clock the records are of. An interval that would be empty means that a clock was set:
a new span begins there. If lines bound it on one side only, the other side is a request timeout away.

The zone follows from the line of a removal itself, which has a time since 1970 beside its time of day: that when the
member was last caught up, a lag time before. Without one, an offset near a multiple of 15 minutes is a zone.

Invariant: only measured offsets are corrected: without a removal, a broker has no span.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline_kafka.brokers.broker_logs import Logged
from strandline_kafka.brokers.joining import SLACK_MS, Joined, quarters
from strandline_kafka.brokers.line_facts import IsrUpdated, LeaderStarted, ShrinkProposed

_OPEN = 1 << 62
"""The largest offset of a span that is unbounded on a side."""


class Pair(NamedTuple):
    """One removal by a leader: the written times of its proposal and take-over, and the time of the decision."""

    proposed_ms: int
    updated_ms: int | None
    """None if no line has it."""
    decided_ms: int
    controller_epoch: int
    caught_up_ms: int | None
    """When the member was last caught up, since 1970 by the broker's clock."""
    coarse_ms: int
    """How far the real times may be from the written ones."""


class ClockSpan(NamedTuple):
    """The zone, and the offset of the clock from the controller's in ms, from one time of day on."""

    from_written_ms: int
    from_ms: int
    """The same time by the controller's clock."""
    zone_ms: int
    low_ms: int
    high_ms: int
    controller_epoch: int
    is_half: bool = False
    """Whether lines bound it on one side only; then the value nearest to a correct clock is the likeliest offset."""

    @property
    def offset_us(self) -> int:
        """The likeliest offset: the middle of the possible range, if lines bound it on both sides."""
        return self.least_ms * 1_000 if self.is_half else (self.low_ms + self.high_ms) * 500

    @property
    def least_ms(self) -> int:
        """The smallest possible offset: a clock that may be correct is taken as correct.

        Moments of several brokers are compared by it; the middle of a wide interval would separate simultaneous events.
        """
        return max(self.low_ms, min(0, self.high_ms))

    @property
    def err_us(self) -> int:
        """The largest error of the likeliest offset."""
        return (self.high_ms - self.low_ms) * (1_000 if self.is_half else 500)


class BrokerClock:
    """Turns times as written in one broker's logs into the broker's own time since 1970."""

    def __init__(self, spans: Sequence[ClockSpan], zone_ms: int | None) -> None:
        self.spans = tuple(spans)
        self.zone_ms = zone_ms
        """The zone if there is no span; None if it is not known."""
        self._starts = [span.from_written_ms for span in self.spans]

    def span_at(self, written_ms: int) -> ClockSpan | None:
        """The span for a time as written; before the first pair, the first span."""
        if not self.spans:
            return None
        return self.spans[max(0, bisect_right(self._starts, written_ms) - 1)]

    def own_ms(self, written_ms: int) -> int:
        """A time by the broker's clock, since 1970."""
        span = self.span_at(written_ms)
        zone_ms = self.zone_ms if span is None else span.zone_ms
        return written_ms - (zone_ms or 0)

    def shift_ms(self, own_ms: int) -> int:
        """The broker clock's lead over the controller's at one of its own times."""
        found = [span for span in self.spans if span.from_written_ms - span.zone_ms <= own_ms] or self.spans[:1]
        return found[-1].least_ms if found else 0

    def true_ms(self, written_ms: int) -> int:
        """A time by the controller's clock, as far as it was measured."""
        span = self.span_at(written_ms)
        shift_ms = 0 if span is None else span.least_ms
        return self.own_ms(written_ms) - shift_ms


class _Following(NamedTuple):
    """A line that follows a record: its distance is the zone, the clock error, and a small delay."""

    at_ms: int
    behind_ms: int
    decided_ms: int
    controller_epoch: int


def clock_of(facts: Sequence[Logged], joined: Joined) -> BrokerClock:
    """The clock of one broker.

    Args:
        facts: the facts of the broker's logs, in order.
        joined: the decisions of the facts.
    """
    following = list(_following(facts, joined))
    spans = _spans(_pairs(facts, joined))
    for one in following:
        _bound(spans, one)
    nearest = min((one.behind_ms for one in following), key=abs, default=None)
    closed = [_closed(span) for span in spans]
    if closed and closed[0].is_half and not closed[0].least_ms:
        # A single proposal, before its record by a correct clock, measures nothing.
        del closed[0]
    return BrokerClock(closed, None if nearest is None else quarters(nearest))


def _closed(span: ClockSpan) -> ClockSpan:
    """Close an interval that is open on a side, a request timeout away."""
    if span.high_ms >= _OPEN:
        return span._replace(high_ms=span.low_ms + SLACK_MS, is_half=True)
    return span._replace(low_ms=span.high_ms - SLACK_MS, is_half=True) if span.low_ms <= -_OPEN else span


def _pairs(facts: Sequence[Logged], joined: Joined) -> Iterator[Pair]:
    for place, one in enumerate(facts):
        if not isinstance(one.fact, ShrinkProposed):
            continue
        moments = (each.last_caught_up_ms for each in one.fact.removed)
        caught_up_ms = max((each for each in moments if each is not None), default=None)
        if place in joined.answers:
            answer = joined.answers[place]
            decision = joined.decisions[answer]
            if decision.why is not None and decision.why.cause == "lag":
                reign = decision.controller_epoch
                yield Pair(one.at_ms, facts[answer].at_ms, decision.at_ms, reign, caught_up_ms, one.coarse_ms)
        elif place in joined.granted and place not in joined.uncertain:
            removal = joined.granted[place]
            reign = removal.controller_epoch
            yield Pair(one.at_ms, None, removal.at_ms, reign, caught_up_ms, one.coarse_ms)


def _following(facts: Sequence[Logged], joined: Joined) -> Iterator[_Following]:
    for place, decision in joined.decisions.items():
        one = facts[place]
        if isinstance(one.fact, LeaderStarted | IsrUpdated):
            behind_ms = one.at_ms - decision.at_ms + one.coarse_ms
            yield _Following(one.at_ms, behind_ms, decision.at_ms, decision.controller_epoch)


def _spans(pairs: Iterator[Pair]) -> list[ClockSpan]:
    spans: list[ClockSpan] = []
    for pair in pairs:
        zone_ms = _zone_of_pair(pair)
        low_ms = pair.proposed_ms - pair.decided_ms - zone_ms - pair.coarse_ms
        behind_ms = _OPEN if pair.updated_ms is None else pair.updated_ms - pair.decided_ms
        high_ms = behind_ms - zone_ms + pair.coarse_ms
        span = ClockSpan(pair.proposed_ms, pair.decided_ms, zone_ms, low_ms, high_ms, pair.controller_epoch)
        if spans and (joined := _joined(spans[-1], span)) is not None:
            spans[-1] = joined
        else:
            spans.append(span)
    return spans


def _joined(span: ClockSpan, other: ClockSpan) -> ClockSpan | None:
    low_ms, high_ms = max(span.low_ms, other.low_ms), min(span.high_ms, other.high_ms)
    is_other = (span.zone_ms, span.controller_epoch) != (other.zone_ms, other.controller_epoch)
    return None if is_other or low_ms > high_ms else span._replace(low_ms=low_ms, high_ms=high_ms)


def _bound(spans: list[ClockSpan], one: _Following) -> None:
    """A line that follows says how far the clock is ahead at most: below the span's least, it was set back."""
    place = max(0, bisect_right(spans, one.at_ms, key=lambda span: span.from_written_ms) - 1)
    own = [span for span in spans[place : place + 2] if span.controller_epoch == one.controller_epoch]
    if not own:
        return
    span = own[0]
    high_ms = one.behind_ms - span.zone_ms
    if high_ms >= span.low_ms:
        spans[spans.index(span)] = span._replace(high_ms=min(span.high_ms, high_ms))
    elif not quarters(high_ms - span.low_ms):
        insort(spans, ClockSpan(one.at_ms, one.decided_ms, span.zone_ms, -_OPEN, high_ms, one.controller_epoch))


def _zone_of_pair(pair: Pair) -> int:
    if pair.caught_up_ms is not None and pair.caught_up_ms > 0:
        return quarters(pair.proposed_ms - pair.caught_up_ms)
    updated_ms = pair.proposed_ms if pair.updated_ms is None else pair.updated_ms
    return quarters((pair.proposed_ms + updated_ms) // 2 - pair.decided_ms)
