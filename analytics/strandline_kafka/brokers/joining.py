"""Joins lines of brokers' logs to decisions of the metadata log, by identity and time, never by a name alone.

A name can mean several topics over time, each with a partition 0 at partition epoch 1. If a line has more than a
name, that decides: the topic id of a leader's start, the broker epoch of a registration. Otherwise its distance from
the record, which contains the zone and the clock's error, must be that of a line whose identity is known, or that
of a correct clock.

Invariant: a line is joined to at most one decision; a line without a decision near enough is joined to none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from strandline_kafka.brokers import line_facts
from strandline_kafka.brokers.broker_logs import Logged
from strandline_kafka.metadata.skeleton import Decision, Removal, Skeleton

SLACK_MS = 60_000
"""How far a line may be from the place by a known distance: a request waits for its answer, and a clock drifts."""
_APART_MS = 1_000
"""Distances that differ by less count as one."""
_QUARTER_MS = 15 * 60_000
_HALF_DAY_MS = 14 * 3_600_000
"""No zone is further from UTC."""

_Change = tuple[str, int, frozenset[int], frozenset[int]]
"""Topic (its id if known), partition, and the ISR before and after."""


class Joined(NamedTuple):
    """The decisions of one broker's lines; a line is identified by its index among the broker's facts."""

    decisions: Mapping[int, Decision]
    """The decision behind a take-over, or behind the epoch in which the broker begins to lead or to follow."""
    answers: Mapping[int, int]
    """The line of the take-over for each proposal that has one."""
    granted: Mapping[int, Removal]
    """The results of other proposals: a broker that learns one from the metadata log first writes no line."""
    uncertain: frozenset[int]
    """Entries of ``granted`` that could also belong to another removal."""
    proposals: Mapping[int, int]
    """The line of the proposal, by the offset of the removal."""
    topic_ids: Mapping[int, str]
    """The topic of a leader's line, if the line with which it began to lead names it."""


def join(node_id: int, facts: Sequence[Logged], skeleton: Skeleton) -> Joined:
    """Find the decision of each line of a broker."""
    known, topic_ids = _known(node_id, facts, skeleton), _topic_ids(facts)
    decisions = {
        place: decision
        for place, one in enumerate(facts)
        if (decision := _decision(one, topic_ids.get(place), skeleton, known)) is not None
    }
    answers = {asked: place for asked, place in _answers(facts) if place in decisions}
    proposals = {decisions[place].meta_offset: asked for asked, place in answers.items()}
    granted: dict[int, Removal] = {}
    uncertain: set[int] = set()
    for places, removals in _unanswered(node_id, facts, skeleton, topic_ids, answers.keys(), proposals.keys()):
        for near in _stretches(places, removals, facts, known):
            decided = sorted(set().union(*near.values()))
            is_certain = len(near) == len(decided)
            pairs = dict(zip(near, decided, strict=True)) if is_certain else _nearest(near, removals, facts, known)
            uncertain |= set() if is_certain else pairs.keys()
            granted |= {asked: removals[one] for asked, one in pairs.items()}
    proposals |= {removal.meta_offset: asked for asked, removal in granted.items()}
    return Joined(decisions, answers, granted, frozenset(uncertain), proposals, topic_ids)


def quarters(distance_ms: int) -> int:
    """The zone nearest to a distance; 0 if it is too far from UTC for a zone."""
    zone_ms = round(distance_ms / _QUARTER_MS) * _QUARTER_MS
    return zone_ms if abs(zone_ms) <= _HALF_DAY_MS else 0


class _Distances:
    """The distances of lines from their records: zone, clock error, and a delay. Invariant: sorted, and not empty."""

    def __init__(self, several: Iterable[int]) -> None:
        self.known = sorted(several)

    def add(self, distance_ms: int) -> None:
        """Add a known distance if it is near the others: a drifting clock is followed, and a late line is ignored."""
        if _APART_MS < self.gap(distance_ms) <= SLACK_MS:
            insort(self.known, distance_ms)

    def near(self, times_ms: Sequence[int], at_ms: int) -> set[int]:
        """The indices of the records, at these ordered times, to which a line of a given time may belong."""
        found: set[int] = set()
        for one in self.known:
            begin = bisect_left(times_ms, at_ms - one - SLACK_MS)
            found.update(range(begin, bisect_right(times_ms, at_ms - one + SLACK_MS)))
        return found

    def gap(self, distance_ms: int) -> int:
        """The difference of a distance from the nearest known one."""
        at = bisect_left(self.known, distance_ms)
        return min(abs(distance_ms - one) for one in self.known[max(0, at - 1) : at + 1])


def _known(node_id: int, facts: Sequence[Logged], skeleton: Skeleton) -> _Distances:
    registered = {one.broker_epoch: one.at_ms for one in skeleton.registrations if one.node == node_id}
    processes: list[int] = []
    starts: list[int] = []
    zones: set[int] = set()
    for at_ms, fact, *_ in facts:
        if isinstance(fact, line_facts.BrokerRegistered) and fact.broker_epoch in registered:
            processes.append(at_ms - registered[fact.broker_epoch])
        elif isinstance(fact, line_facts.LeaderStarted) and (decision := _of_topic_id(fact, skeleton)) is not None:
            starts.append(at_ms - decision.at_ms)
        elif isinstance(fact, line_facts.ShrinkProposed):
            caught_up = (one.last_caught_up_ms for one in fact.removed)
            zones |= {quarters(at_ms - one) for one in caught_up if one is not None and one > 0}
    sure = processes or (starts and [min(starts)])
    known = _Distances({*sure, *(zones or {quarters(one) for one in sure} or {0})})
    for distance_ms in starts:
        known.add(distance_ms)
    return known


def _of_topic_id(fact: line_facts.LeaderStarted, skeleton: Skeleton) -> Decision | None:
    found = skeleton.decisions.get((fact.topic, fact.partition, fact.partition_epoch), ())
    return next((each for each in found if each.after.tp.topic_id == fact.topic_id), None)


def _topic_ids(facts: Sequence[Logged]) -> dict[int, str]:
    meant: dict[tuple[str, int], str | None] = {}
    found: dict[int, str] = {}
    for place, (_, fact, *_) in enumerate(facts):
        if isinstance(fact, line_facts.LeaderStarted):
            meant[fact.topic, fact.partition] = fact.topic_id
        elif isinstance(fact, line_facts.ShrinkProposed | line_facts.IsrUpdated):
            topic_id = meant.get((fact.topic, fact.partition))
            if topic_id is not None:
                found[place] = topic_id
    return found


def _decision(one: Logged, topic_id: str | None, skeleton: Skeleton, known: _Distances) -> Decision | None:
    fact = one.fact
    if isinstance(fact, line_facts.LeaderStarted) and fact.topic_id is not None:
        return _of_topic_id(fact, skeleton)
    if not isinstance(fact, line_facts.IsrUpdated | line_facts.LeaderStarted | line_facts.FollowerStarted):
        return None
    found = skeleton.decisions.get((fact.topic, fact.partition, fact.partition_epoch), ())
    if isinstance(fact, line_facts.IsrUpdated):
        is_it = [each for each in found if topic_id in (None, each.after.tp.topic_id) and each.before is not None]
        near = [each for each in is_it if known.gap(one.at_ms - each.at_ms) <= SLACK_MS]
        return min(near, key=lambda each: known.gap(one.at_ms - each.at_ms), default=None)
    # A broker that starts learns of decisions long after them.
    before = [each for each in found if one.at_ms - each.at_ms >= known.known[0] - SLACK_MS]
    return max(before, key=lambda each: each.at_ms, default=None)


def _answers(facts: Sequence[Logged]) -> Iterator[tuple[int, int]]:
    """Each proposal and the take-over of its ISR, by their indices."""
    waiting: dict[tuple[str, int], tuple[int, line_facts.ShrinkProposed]] = {}
    for place, (_, fact, *_) in enumerate(facts):
        if isinstance(fact, line_facts.ShrinkProposed):
            waiting[fact.topic, fact.partition] = (place, fact)
        elif isinstance(fact, line_facts.IsrUpdated):
            asked = waiting.pop((fact.topic, fact.partition), None)
            if asked is not None and {*asked[1].new_isr} == {*fact.isr}:
                yield asked[0], place


def _unanswered(
    node_id: int,
    facts: Sequence[Logged],
    skeleton: Skeleton,
    topic_ids: Mapping[int, str],
    answered: Iterable[int],
    taken: Iterable[int],
) -> Iterator[tuple[list[int], list[Removal]]]:
    """Proposals without a line of their take-over, and the removals of the same change that have no proposal yet."""
    answered, taken = set(answered), set(taken)
    asked: dict[_Change, list[int]] = {}
    for place, (_, fact, *_) in enumerate(facts):
        if isinstance(fact, line_facts.ShrinkProposed) and place not in answered:
            isrs = frozenset(fact.old_isr), frozenset(fact.new_isr)
            change = (topic_ids.get(place, fact.topic), fact.partition, *isrs)
            asked.setdefault(change, []).append(place)
    decided: dict[_Change, dict[int, Removal]] = {}
    for one in skeleton.removals:
        if one.leader == node_id and one.meta_offset not in taken:
            isrs = frozenset(one.old_isr), frozenset(one.new_isr)
            for topic in (one.tp.topic_id, one.topic):
                # A change that removes two has two rows.
                decided.setdefault((topic, one.tp.partition, *isrs), {})[one.meta_offset] = one
    for change, places in asked.items():
        yield places, sorted(decided.get(change, {}).values(), key=lambda one: one.at_ms)


def _nearest(
    near: Mapping[int, set[int]], removals: Sequence[Removal], facts: Sequence[Logged], known: _Distances
) -> dict[int, int]:
    """Each proposal with the nearest removal that does not belong to a nearer proposal."""
    edges = sorted(
        (known.gap(facts[asked].at_ms - removals[one].at_ms), asked, one) for asked in near for one in near[asked]
    )
    found: dict[int, int] = {}
    taken: set[int] = set()
    for _, asked, one in edges:
        if asked not in found and one not in taken:
            found[asked] = one
            taken.add(one)
    return found


def _stretches(
    places: Sequence[int], removals: Sequence[Removal], facts: Sequence[Logged], known: _Distances
) -> Iterator[dict[int, set[int]]]:
    """Proposals, each with its possible removals; no stretch shares a removal with another one."""
    times = [one.at_ms for one in removals]
    stretch: dict[int, set[int]] = {}
    seen: set[int] = set()
    for place in places:
        near = known.near(times, facts[place].at_ms)
        if stretch and near.isdisjoint(seen):
            yield stretch
            stretch, seen = {}, set()
        if near:
            stretch[place] = near
            seen |= near
    if stretch:
        yield stretch
