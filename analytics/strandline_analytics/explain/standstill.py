"""Explains why a consumer group stood still at a moment, from the results of S21 to S25 and S18; imports no Spark.

Reasons are listed in this order, because each may be the cause of the next: no coordinator answers; the group
rebalances; a partition has no owner; a member is stuck; the HW does not move, so that there is nothing to read. If none
of them applies, the answer is how far behind the group was.

Invariant: times and members are taken from the statistics, never recomputed; what is not known is named in
``missing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline_analytics.explain.chain import CauseLink, Chain, in_order, link_of
from strandline_analytics.timeline.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time span [t0, t1) in us; ``what`` is its subject: a partition, a member and a partition, or empty."""

    t0: int
    t1: int
    what: str = ""
    member_id: str | None = None
    """The member that was stuck, or changed last; None if not known."""
    is_start_seen: bool = True
    is_end_seen: bool = True
    lag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A decision of the controller about the coordinator's partition that was in force from t0 until before t1."""

    t0: int
    t1: int
    leader: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAt:
    """The facts about a group at a moment."""

    cluster_id: str
    group_id: str
    at_us: int
    coordinator: str | None
    """The coordinator's partition, as ``topic-partition``; None if no event of the group was read."""
    terms: Sequence[Term] = ()
    """The known terms of that partition, by time."""
    events: Sequence[Event] = ()
    """Changes of the group and its members, and loads of its coordinators, by time."""
    rebalance: Span | None = None
    unowned: Sequence[Span] = ()
    stuck: Sequence[Span] = ()
    lags: Sequence[Span] = ()
    stalls: Sequence[Chain] = ()
    """Stalls of the partitions in which the group had read everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """The answer: ``reasons`` are sentences, the most important one first."""

    cluster_id: str
    group_id: str
    at_us: int
    reasons: tuple[str, ...]
    links: tuple[CauseLink, ...]
    missing: tuple[str, ...]
    stalls: tuple[Chain, ...] = ()


def explain_group(known: GroupAt) -> Standstill:
    """Why the group stood still, or that it did not."""
    reasons, missing = _no_coordinator(known)
    if known.rebalance is not None:
        said, lacked = _rebalancing(known, known.rebalance)
        reasons += said
        missing += lacked
    at = known.at_us
    reasons += [f"no member had {span.what}: {_by_then(span, at)}" for span in known.unowned]
    reasons += [_stuck(span, at) for span in known.stuck]
    reasons += [f"nothing to read in {chain.topic}-{chain.partition}: {chain.reported}" for chain in known.stalls]
    if not known.lags:
        missing.append("its lag: no offset that it committed, or no HW, is known at that time")
    elif not reasons:
        reasons.append(_how_far_behind(known.lags))
    return Standstill(
        cluster_id=known.cluster_id,
        group_id=known.group_id,
        at_us=at,
        reasons=tuple(reasons),
        links=in_order(_links(known)),
        missing=tuple(missing),
        stalls=tuple(known.stalls),
    )


def _no_coordinator(known: GroupAt) -> tuple[list[str], list[str]]:
    at = known.at_us
    if known.coordinator is None:
        return [], ["who its coordinator was: no event of the group was read"]
    now = next((term for term in known.terms if term.t0 <= at < term.t1), None)
    if now is None:
        return [], [f"who led {known.coordinator}, the partition of its coordinator"]
    same = [term for term in known.terms if (term.leader, term.leader_epoch) == (now.leader, now.leader_epoch)]
    span = Span(t0=min(term.t0 for term in same), t1=max(term.t1 for term in same))
    if now.leader is None:
        return [f"it had no coordinator: no node led {known.coordinator}: {_by_then(span, at)}"], []
    reported = [event for event in known.events if event.leader_epoch == now.leader_epoch]
    if any(event.t_us <= at for event in reported):
        # A coordinator loads before it reports anything else, perhaps long before the first event that was read.
        return [], []
    loads = [event.t_us for event in reported if event.event_type == "COORDINATOR_LOAD"]
    if not loads:
        return [], [f"when node {now.leader} began to answer as its coordinator in epoch {now.leader_epoch}"]
    answers_us = min(loads)
    loading = Span(t0=span.t0, t1=answers_us)
    return [f"its coordinator, node {now.leader}, was still reading {known.coordinator}: {_by_then(loading, at)}"], []


def _rebalancing(known: GroupAt, span: Span) -> tuple[list[str], list[str]]:
    whole = f", {_s(span.t1 - span.t0)} in all" if span.is_start_seen and span.is_end_seen else ""
    reported = f"it rebalanced: {_by_then(span, known.at_us)}{whole}"
    asked = _asked_back(known)
    if asked:
        reported += f"; {' and '.join(asked)} had not given up what was asked back"
    if not span.is_end_seen:
        return [reported], ["who was waited for: the end of the rebalance was not seen"]
    if span.member_id is None:
        return [reported], ["who was waited for: no change of a member was seen in the rebalance"]
    return [f"{reported}; {span.member_id} was waited for, it changed last"], []


def _stuck(span: Span, at_us: int) -> str:
    reported = f"member {span.member_id} had {span.what} and did not move on: {_by_then(span, at_us)}"
    return f"{reported}, {_s(span.t1 - span.t0)} in all; its lag grew to {span.lag:,} records"


def _asked_back(known: GroupAt) -> list[str]:
    """The members that had been asked to give up partitions, as of the moment."""
    last: dict[str, Event] = {}
    for event in known.events:
        if event.event_type == "MEMBER_CHANGE" and event.t_us <= known.at_us:
            last[str(event.get("member_id"))] = event
    return sorted(member_id for member_id, event in last.items() if event.get("phase") == "revoking")


def _how_far_behind(lags: Sequence[Span]) -> str:
    behind = [span for span in lags if span.lag > 0]
    many = f"{len(lags)} {'partition' if len(lags) == 1 else 'partitions'}"
    if not behind:
        return f"nothing held it up: its lag was 0 in {many}"
    records = sum(span.lag for span in behind)
    return f"none of the known reasons: {records:,} records behind in {len(behind)} of {many}, and no member was stuck"


def _links(known: GroupAt) -> list[CauseLink]:
    """The events of the rebalance; without a rebalance, the last ones before the moment. Events that only repeat known
    facts are left out if there are others."""
    names = {"GROUP_CHANGE": "group", "MEMBER_CHANGE": "member", "COORDINATOR_LOAD": "load"}
    span = known.rebalance
    if span is None:
        own = [event for event in known.events if event.t_us <= known.at_us]
        own = ([event for event in own if not event.is_repeated] or own)[-3:]
    else:
        own = [event for event in known.events if span.t0 <= event.t_us <= span.t1 and not event.is_repeated]
    return [link_of(names[event.event_type], event) for event in own]


def _by_then(span: Span, at_us: int) -> str:
    """``for 3.0 s by then``."""
    return f"for {'' if span.is_start_seen else 'at least '}{_s(at_us - span.t0)} by then"


def _s(us: int) -> str:
    return f"{us / 1_000_000:,.1f} s"
