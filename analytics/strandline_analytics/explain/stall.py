"""Explains one stall of the high watermark: the last move, the first record that waited, who held it up,
what was decided meanwhile, and what ended it.

Invariant: episodes and blockers are taken from S18, never recomputed; below the minimum ISR no replica is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline_analytics.explain.chain import CauseLink, Chain, in_order, link_of
from strandline_analytics.explain.cost import leader_looks, reported_above_hw
from strandline_analytics.timeline.event import Event, Stall
from strandline_analytics.timeline.sentences import writer

_DECIDED = {"ISR_CHANGE": "decision", "LEADER_CHANGE": "decision", "CONFIG_CHANGE": "decision", "REASSIGNMENT": "move"}
_ENDS = {
    "advance": "the next move ended it",
    "epoch_end": "the end of the leader's epoch ended it",
    "unknown": "how it ended is not known",
}


def explain_stall(stall: Stall, events: Sequence[Event]) -> Chain:
    """The chain of one stall.

    Args:
        stall: the episode.
        events: events of its partition and around it, with HW_ADVANCE and REPLICA_SAMPLE, in logical order.
    """
    own = [event for event in events if event.key == stall.key]
    links, missing = _moves(stall, own)
    held, lacked = _blockers(stall, own)
    decided = [e for e in own if e.is_control and e.event_type in _DECIDED and stall.t0 <= e.t_us <= stall.t1]
    links += [*held, *(link_of(_DECIDED[e.event_type], e) for e in decided)]
    waiting = [e for e in leader_looks(own) if _within(stall, e) and e.get("leader_leo") > e.get("hw")]
    return Chain(
        topic=stall.topic,
        partition=stall.partition,
        partition_epoch=None,
        reported=f"HW stood at {stall.hw:,} for {(stall.t1 - stall.t0) / 1000:,.0f} ms, {_why(stall)}; "
        f"{_ENDS.get(stall.ended_by, stall.ended_by)}",
        links=in_order(links),
        missing=tuple(missing + lacked),
        cost=(reported_above_hw(waiting),) if waiting else (),
    )


def _why(stall: Stall) -> str:
    if stall.is_under_min:
        return "the ISR was below its minimum"
    if not stall.blockers:
        return "held up by no node that a look shows"
    return "held up by " + ", ".join(f"node {node}" for node in stall.blockers)


def _moves(stall: Stall, own: Sequence[Event]) -> tuple[list[CauseLink], list[str]]:
    into = [e for e in own if e.event_type == "HW_ADVANCE" and e.get("new_hw") == stall.hw and e.t_us <= stall.t1]
    outof = [e for e in own if e.event_type == "HW_ADVANCE" and e.get("old_hw") == stall.hw and e.t_us >= stall.t0]
    first = CauseLink(name="first wait", t_us=stall.t0, who="looks", reported=f"records stand above HW {stall.hw:,}")
    links = [*(link_of("last HW move", e) for e in into[-1:]), first, *(link_of("HW move", e) for e in outof[:1])]
    missing = [] if into else [f"the move that brought the HW to {stall.hw:,}"]
    return links, missing if outof else [*missing, "a move of the high watermark afterwards"]


def _blockers(stall: Stall, own: Sequence[Event]) -> tuple[list[CauseLink], list[str]]:
    """When each blocker was last heard and last caught up, by the leader's last observation of it."""
    links, missing = [], []
    for node in () if stall.is_under_min else stall.blockers:
        looks = [
            e
            for e in own
            if e.event_type == "REPLICA_SAMPLE"
            and e.get("replica_id") == node
            and e.get("hw") == stall.hw
            and _within(stall, e)
        ]
        if not looks:
            missing.append(f"how far node {node} had come")
            continue
        look = looks[-1]
        at = f"node {node} durable to {_offset(look)} of {look.get('leader_leo'):,}"
        links.append(CauseLink(name="last look", t_us=look.t_us, who=writer(look.node_id), reported=at))
        for name, field in (("last fetch", "last_fetch_us"), ("last caught up", "last_caught_up_us")):
            if look.get(field) is not None and node != look.node_id:
                at_us = look.by_controllers_clock(look.get(field))
                links.append(CauseLink(name=name, t_us=at_us, who=writer(look.node_id), reported=f"node {node}"))
    return links, missing


def _within(stall: Stall, look: Event) -> bool:
    """Whether an observation belongs to the episode; S18 and a timeline both use the controller's clock."""
    return stall.t0 <= look.t_us <= stall.t1


def _offset(look: Event) -> str:
    durable = look.get("durable_leo") if look.get("durable_leo") is not None else look.get("leo")
    return f"{durable:,}"


# ---- held_back
# Explains why readers of committed records stood still in a partition at a moment: which transaction held its LSO back,
# since when, and what ended it; imports no Spark.
#
# Invariant: times are taken from S26, never recomputed; what is not known is named in ``missing``.

_CAUSES = {
    "committed": "its producer committed it",
    "aborted": "its producer aborted it",
    "timeout": "its coordinator aborted it: it was open for longer than its time-out",
    "fenced": "its coordinator aborted it: another process took its transactional id",
}
_DECIDES = frozenset(_CAUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLso:
    """A transaction that held the LSO back from t0 until before t1 (us), in one reign."""

    t0: int
    t1: int
    first_offset: int
    producer_id: int | None
    producer_epoch: int | None
    outcome: str | None
    """The outcome: commit or abort; None if no leader reported the decision."""
    largest_hw: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAt:
    """The facts about a partition at a moment."""

    cluster_id: str
    partition: str
    """The name of the partition, ``topic-partition``."""
    at_us: int
    holds: Sequence[HeldLso] = ()
    """The transactions that held the partition's LSO back, by time."""
    changes: Sequence[Event] = ()
    """TRANSACTION_CHANGE events of the producer that held the LSO, by time."""
    events: Sequence[Event] = ()
    """TRANSACTION_OPEN and TRANSACTION_DECIDED events of the partition, by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """The answer: ``reasons`` are sentences, the most important one first."""

    cluster_id: str
    partition: str
    at_us: int
    reasons: tuple[str, ...]
    links: tuple[CauseLink, ...]
    missing: tuple[str, ...]


def explain_held_back(known: PartitionAt) -> HeldBack:
    """Why readers of committed records stood still, or that no transaction held them back."""
    hold = holder_at(known.holds, known.at_us)
    if hold is None:
        reasons = ["no transaction held the LSO back for a second or longer then; `explain --stall` is about the HW"]
        return _answer(known, reasons, [], [])
    reasons, missing = [_who(hold, known)], []
    decided = _decision(hold, known)
    if decided is not None:
        reasons.append(f"{_CAUSES[decided.cause]}, {_s(decided.t_us - known.at_us)} {_side(decided.t_us, known.at_us)}")
    elif not known.changes:
        missing.append("its transactional id: no event of a coordinator names the producer")
    else:
        missing.append("what ended it at its coordinator")
    if hold.outcome is None:
        missing.append("its end in the partition: no leader reported that its marker was committed")
    else:
        reasons.append(f"the {hold.outcome} marker was committed {_s(hold.t1 - known.at_us)} later")
    return _answer(known, reasons, missing, _events_of(hold, known))


def holder_at(holds: Sequence[HeldLso], at_us: int) -> HeldLso | None:
    """The transaction that held the LSO back at a moment."""
    return next((hold for hold in holds if hold.t0 <= at_us < hold.t1), None)


def _answer(known: PartitionAt, reasons: list[str], missing: list[str], links: list[Event]) -> HeldBack:
    return HeldBack(
        cluster_id=known.cluster_id,
        partition=known.partition,
        at_us=known.at_us,
        reasons=tuple(reasons),
        links=in_order(
            link_of("coordinator" if e.event_type == "TRANSACTION_CHANGE" else "partition", e) for e in links
        ),
        missing=tuple(missing),
    )


def _who(hold: HeldLso, known: PartitionAt) -> str:
    names = sorted({str(event.get("transactional_id")) for event in known.changes})
    named = f" ({', '.join(names)})" if names else ""
    if hold.producer_id is None:
        who = "a transaction of an unknown producer"
    else:
        epoch = "" if hold.producer_epoch is None else f" of epoch {hold.producer_epoch}"
        who = f"producer {hold.producer_id}{epoch}{named}"
    behind = ""
    if hold.largest_hw is not None:
        behind = f"; up to {max(0, hold.largest_hw - hold.first_offset):,} records waited"
    return f"{who} held the LSO at {hold.first_offset:,}: for {_s(known.at_us - hold.t0)} by then{behind}"


def _decision(hold: HeldLso, known: PartitionAt) -> Event | None:
    """The coordinator's decision, found by the transaction's epoch; if that is not known, the first one since the hold
    began, because earlier ones belong to other transactions."""
    epoch = hold.producer_epoch
    for event in known.changes:
        is_its = event.get("producer_epoch") == epoch if epoch is not None else event.t_us >= hold.t0
        if event.cause in _DECIDES and is_its:
            return event
    return None


def _events_of(hold: HeldLso, known: PartitionAt) -> list[Event]:
    own = [e for e in known.events if e.get("first_offset") == hold.first_offset and not e.is_repeated]
    last_us = max([hold.t1, *(e.t_us for e in own)])
    return own + [
        e for e in known.changes if hold.t0 - 1_000_000 <= e.t_us <= last_us + 1_000_000 and not e.is_repeated
    ]


def _side(t_us: int, at_us: int) -> str:
    return "later" if t_us >= at_us else "before"


def _s(us: int) -> str:
    return f"{abs(us) / 1_000_000:,.1f} s"
