"""One stall of the high watermark in words: the last move, the first record that waited, who held it up,
what was decided meanwhile, and what ended it.

Invariant: episodes and blockers are those of S18, never found again; below the minimum ISR nobody is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline_analytics.explain.cost import leader_looks, reported_above_hw
from strandline_analytics.explain.link import Chain, Link, in_order, link_of
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import writer
from strandline_analytics.timeline.stall import Stall

_DECIDED = {"ISR_CHANGE": "decision", "LEADER_CHANGE": "decision", "CONFIG_CHANGE": "decision"}
_ENDS = {
    "advance": "the next move ended it",
    "epoch_end": "the end of the leader's epoch ended it",
    "unknown": "how it ended is not known",
}


def explain_stall(stall: Stall, events: Sequence[Event]) -> Chain:
    """The chain of one stall.

    Args:
        stall: the episode.
        events: of its partition and around it, with HW_ADVANCE and REPLICA_SAMPLE, in logical order.
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
        return "held up by nobody that a look shows"
    return "held up by " + ", ".join(f"node {node}" for node in stall.blockers)


def _moves(stall: Stall, own: Sequence[Event]) -> tuple[list[Link], list[str]]:
    into = [e for e in own if e.event_type == "HW_ADVANCE" and e.get("new_hw") == stall.hw and e.t_us <= stall.t1]
    outof = [e for e in own if e.event_type == "HW_ADVANCE" and e.get("old_hw") == stall.hw and e.t_us >= stall.t0]
    first = Link(name="first wait", t_us=stall.t0, who="looks", reported=f"records stand above HW {stall.hw:,}")
    links = [*(link_of("last HW move", e) for e in into[-1:]), first, *(link_of("HW move", e) for e in outof[:1])]
    missing = [] if into else [f"the move that brought the HW to {stall.hw:,}"]
    return links, missing if outof else [*missing, "a move of the high watermark afterwards"]


def _blockers(stall: Stall, own: Sequence[Event]) -> tuple[list[Link], list[str]]:
    """When each of those who held it up was last heard and last in step, by the leader's last look at it."""
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
        links.append(Link(name="last look", t_us=look.t_us, who=writer(look.node_id), reported=at))
        for name, field in (("last fetch", "last_fetch_us"), ("last caught up", "last_caught_up_us")):
            if look.get(field) is not None and node != look.node_id:
                at_us = look.by_controllers_clock(look.get(field))
                links.append(Link(name=name, t_us=at_us, who=writer(look.node_id), reported=f"node {node}"))
    return links, missing


def _within(stall: Stall, look: Event) -> bool:
    """Whether a look is of the episode; S18 and a timeline both tell its time by the controller's clock."""
    return stall.t0 <= look.t_us <= stall.t1


def _offset(look: Event) -> str:
    durable = look.get("durable_leo") if look.get("durable_leo") is not None else look.get("leo")
    return f"{durable:,}"
