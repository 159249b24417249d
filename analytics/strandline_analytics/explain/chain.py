"""Finds the events that explain one decision about a partition, and puts them in order.

A removal: last fetch, last caught up, proposal, commit, and the HW move that it let through. An addition: proposal,
commit, HW move. A leader change: last heartbeat, fence, commit, epoch start, later truncations; if there was no leader
before, the chain begins with the loss of the leader. One decision may be all of these; then the chain has the links of
each, by time, and says who waited and what was truncated.

Invariant: a decision is explained only by events of its own partition and of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.export.schema import INFERRED
from strandline_analytics.explain import cost as explain_cost
from strandline_analytics.timeline.causes import MOVED
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import NEAR_US, competing, fence_before, inferences, long_text
from strandline_analytics.timeline.sentences import nodes_text, sentence, writer
from strandline_analytics.timeline.states import undecided

# ---- link
# The parts of an explanation: links in the order of time, what is missing, and the cost.
#
# Invariant: a link exists only if an event shows it; what is missing is named in ``missing`` and never made up.


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseLink:
    """One step: its name, time (us, by the controller's clock if that was measured), reporter and reason."""

    name: str
    t_us: int
    who: str
    reported: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The explanation of one decision, or of one stall of the high watermark (then ``partition_epoch`` is None)."""

    topic: str | None
    partition: int | None
    partition_epoch: int | None
    reported: str
    links: tuple[CauseLink, ...]
    missing: tuple[str, ...]
    cost: tuple[str, ...] = ()
    """Sentences that say who waited, for how long, and what was truncated."""


def link_of(name: str, event: Event) -> CauseLink:
    """The link for an event, with this name."""
    return CauseLink(name=name, t_us=event.t_us, who=writer(event.node_id), reported=sentence(event), cause=event.cause)


def in_order(links: Iterable[CauseLink]) -> tuple[CauseLink, ...]:
    """The links by time; links of the same moment keep their order."""
    return tuple(sorted(links, key=lambda link: link.t_us))


def candidates(events: Iterable[Event]) -> list[Event]:
    """The decisions that can be explained: changes of ISRs and of leaders. Creations are left out, and so are changes
    that leave the ISR as it is: a member's new process, another ELR, observers.
    """
    return [e for e in events if e.is_control and e.cause != "created" and _changes_something(e)]


def _changes_something(event: Event) -> bool:
    if event.event_type == "ISR_CHANGE":
        return set(event.get("old_isr") or ()) != set(event.get("new_isr") or ())
    return event.event_type == "LEADER_CHANGE"


def explain(events: Sequence[Event], partition_epoch: int) -> Chain:
    """The chain behind the decision of one partition epoch.

    Args:
        events: events of one partition, with HW_ADVANCE and the observations around the decision, and those of nodes,
        in logical order.
        partition_epoch: the epoch of the decision.

    Raises:
        LookupError: there is no such decision; see `candidates`.
    """
    decided = [event for event in candidates(events) if event.partition_epoch == partition_epoch]
    if not decided:
        raise LookupError(f"no change of an ISR or of a leader at partition epoch {partition_epoch} is known")
    first = decided[0]
    own = [event for event in events if event.key == first.key]
    links = [link_of("commit", event) for event in decided]
    links += [link for event in decided for link in _inferred(event)]
    links += [link_of("move", step) for step in _move(decided, own)]
    missing: list[str] = []
    for event in decided:
        of_kind = _of_isr if event.event_type == "ISR_CHANGE" else _of_leader
        found, lacked = of_kind(event, own, events)
        links += found
        missing += lacked
    _add_hw_move(first, own, links, missing)
    cost, unknown = explain_cost.reported_waiting(first, own)
    for change in decided:
        if change.event_type == "LEADER_CHANGE":
            lost = explain_cost.leader_lost(change, own)
            cost += [] if lost is None else [explain_cost.reported_leaderless(lost, change)]
            said, lacked = explain_cost.reported_cuts(change, own)
            cost += said
            unknown += lacked
    return Chain(
        topic=first.topic,
        partition=first.partition,
        partition_epoch=partition_epoch,
        reported="; ".join(sentence(event) for event in decided),
        links=in_order(links),
        missing=tuple(missing + unknown),
        cost=tuple(cost),
    )


def _of_isr(change: Event, own: Sequence[Event], events: Sequence[Event]) -> tuple[list[CauseLink], list[str]]:
    links, missing = [], []
    asked = [
        e
        for e in own
        if e.event_type == "ALTER_PARTITION"
        and e.get("phase") == "proposed"
        and e.get("expected_partition_epoch") == (change.partition_epoch or 0) - 1
        and set(e.get("proposed_isr") or ()) == set(change.get("new_isr") or ())
    ]
    if asked:
        links += [link_of("proposal", asked[-1]), *_without_controller(events, asked[-1].t_us, change)]
    elif change.get("initiator") == "leader":
        missing.append("the leader's proposal")
    gone = set(change.get("old_isr") or ()) - set(change.get("new_isr") or ())
    echoes = [
        e
        for e in own
        if e.event_type == "ISR_CHANGE" and not e.is_control and e.partition_epoch == change.partition_epoch
    ]
    reported = {member["replica_id"]: (echo, member) for echo in echoes for member in echo.get("removed") or ()}
    # How far a replica had come does not matter if a reassignment removed it.
    for replica in sorted(gone) if change.cause != MOVED else ():
        if replica not in reported:
            missing.append(f"how far node {replica} had come: no leader reported it")
            continue
        echo, member = reported[replica]
        for name, field in (("last fetch", "last_fetch_us"), ("last caught up", "last_caught_up_us")):
            if member.get(field) is None:
                missing.append(f"{name} of node {replica}")
            else:
                where = (
                    f"node {replica} at LEO {member['leo']:,}" if member.get("leo") is not None else f"node {replica}"
                )
                at_us = echo.by_controllers_clock(member[field])
                links.append(CauseLink(name=name, t_us=at_us, who=writer(echo.node_id), reported=where))
    return links, missing


def _move(decided: Sequence[Event], own: Sequence[Event]) -> list[Event]:
    """The steps so far of the reassignment that is the reason: it ended here, or a replica that it adds joined."""
    epoch, steps = decided[0].partition_epoch or 0, list[Event]()
    for step in own:
        if step.event_type == "REASSIGNMENT" and step.is_control and (step.partition_epoch or 0) <= epoch:
            has_ended = bool(steps) and steps[-1].get("phase") in ("completed", "cancelled")
            steps = [step] if has_ended else [*steps, step]
    adding = {node for step in steps for node in step.get("adding_replicas") or ()}
    came = {node for e in decided for node in {*(e.get("new_isr") or ())} - {*(e.get("old_isr") or ())}}
    is_why = any(event.cause == MOVED for event in decided) or (
        bool(adding & came) and steps[-1].get("phase") == "started"
    )
    return steps if is_why else []


def _of_leader(change: Event, own: Sequence[Event], events: Sequence[Event]) -> tuple[list[CauseLink], list[str]]:
    links, missing = [], []
    lost = explain_cost.leader_lost(change, own)
    if lost is None and not explain_cost.had_leader(change):
        missing.append("how the leader before was lost")
    left = lost or change
    fence = fence_before(left, events)
    if fence is not None:
        links.append(link_of("fence", fence))
        if fence.get("last_heartbeat_us") is not None:
            heard = f"node {left.get('old_leader')} was heard"
            links.append(
                CauseLink(name="last heartbeat", t_us=fence.get("last_heartbeat_us"), who="controller", reported=heard)
            )
    if lost is not None:
        links.append(link_of("leader lost", lost))
    heard_us = fence.get("last_heartbeat_us") if fence is not None else None
    links += _without_controller(events, heard_us or left.t_us - NEAR_US, change)
    epoch = change.get("new_leader_epoch")
    starts = [e for e in own if e.event_type == "EPOCH_START" and e.leader_epoch == epoch]
    if starts:
        links.append(link_of("activation", starts[0]))
    elif (change.get("new_leader") or 0) >= 0:
        missing.append("the start of the new epoch")
    links += [link_of("cut", cut) for cut in explain_cost.cuts_after(change, own)]
    return links, missing


def _inferred(event: Event) -> list[CauseLink]:
    """What an import inferred about a decision, one fact per line."""
    found = inferences(event)
    ties = causes if len(causes := competing(found)) > 1 else ()
    return [
        CauseLink(name=INFERRED, t_us=event.t_us, who="import", reported=long_text(one, is_tie=one in ties))
        for one in found
    ]


def _without_controller(events: Sequence[Event], begin_us: int, change: Event) -> list[CauseLink]:
    """The periods before a change in which no controller could decide it."""
    of_cluster = (event for event in events if event.cluster_id == change.cluster_id)
    return [
        CauseLink(name="no controller decided", t_us=span.t0, who="controller", reported=span.sentence)
        for span in undecided(of_cluster)
        if span.overlaps(begin_us, change.t_us) and span.t0 <= change.t_us
    ]


def _add_hw_move(decided: Event, own: Sequence[Event], links: list[CauseLink], missing: list[str]) -> None:
    _, after = explain_cost.moves_around(decided, own)
    if after is not None:
        links.append(link_of("HW move", after))
    else:
        missing.append("a move of the high watermark afterwards")


# ---- moment
# Finds the state of a partition at a moment, and the decisions around it; imports no Spark.
#
# Invariant: the state is what the last decision before says, else what the next one replaced; without either it is
# unknown.


class Moment(NamedTuple):
    """A partition at a moment: its state, and the decisions before and after, each in one sentence."""

    held: str
    decisions: tuple[str, ...]
    nearest: Event | None
    """The decision that was nearest in time, the earlier one of two; None if there is none."""


def moment(decisions: Sequence[Event], at_us: int) -> Moment:
    """The state at a moment, us.

    Args:
        decisions: the decisions about one partition (`chain.candidates`), in order.
    """
    earlier = [event for event in decisions if event.t_us <= at_us]
    later = [event for event in decisions if event.t_us > at_us]
    isr = _known(earlier, later, "new_isr", "old_isr")
    leader = _known(earlier, later, "new_leader", "old_leader")
    led = "who led is not known" if leader is None else f"node {leader} led" if leader >= 0 else "no node led"
    stood = "its ISR is not known" if isr is None else f"its ISR was {nodes_text(isr)}"
    around = [(event, "before") for event in earlier[-1:]] + [(event, "later") for event in later[:1]]
    said = []
    for event, side in around:
        # A shrink and a change of leader may be one decision.
        rows = [e for e in decisions if (e.key, e.partition_epoch) == (event.key, event.partition_epoch)]
        said.append(f"{abs(event.t_us - at_us) / 1_000_000:,.1f} s {side}: {'; '.join(map(sentence, rows))}")
    nearest = min((event for event, _ in around), key=lambda event: abs(event.t_us - at_us), default=None)
    return Moment(f"{led}, {stood}", tuple(said), nearest)


def _known(earlier: Sequence[Event], later: Sequence[Event], became: str, was: str) -> Any:
    found = [event.get(became) for event in reversed(earlier)] + [event.get(was) for event in later]
    return next((value for value in found if value is not None), None)
