"""Why a partition changed, as far as the order of records in a batch tells it exactly.

A batch is not a decision: the controller joins operations. What a fence changed stands before the registration change
that fences; what a controlled shutdown changed stands behind the one that begins it. The rest are proposals of leaders,
and elections.

Invariant: a cause that the log does not show is None, never a guess; one that could be another too is ``ambiguous``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.core.types import NodeId
from strandline.kafka.history.facts import (
    Changed,
    DirectoriesNamed,
    Fact,
    Fenced,
    Registered,
    Registration,
    ShutdownBegan,
)

CONTROLLER, LEADER = "controller", "leader"


class Why(NamedTuple):
    """The cause of a change of a partition, and who asked for it."""

    cause: str | None
    initiator: str
    subject: NodeId | None = None
    """The broker whose going caused it: it may not be elected any more, whatever its registration said by then."""
    ambiguous: bool = False


def causes_of(facts: Sequence[Fact]) -> dict[int, Why]:
    """Why each `Changed` among the facts of one batch happened, by its place."""
    found: dict[int, Why] = {}
    for place, fact in enumerate(facts):
        if isinstance(fact, ShutdownBegan):
            _shutdown(facts, place, fact.broker_id, found)
    for place, fact in enumerate(facts):
        if isinstance(fact, Fenced):
            _run_before(facts, place, fact.broker_id, "node_fenced", found)
        elif isinstance(fact, Registered) and not fact.is_first:
            _run_before(facts, place, fact.broker_id, "unclean_registration", found)
        elif isinstance(fact, DirectoriesNamed):
            _run_before(facts, place, fact.broker_id, "offline_directory", found)
    for place, fact in enumerate(facts):
        if isinstance(fact, Changed) and (place not in found or _is_unclean(fact)):
            found[place] = _by_itself(fact)
    return found


def _shutdown(facts: Sequence[Fact], place: int, broker_id: NodeId, found: dict[int, Why]) -> None:
    for later in range(place + 1, len(facts)):
        fact = facts[later]
        if isinstance(fact, Registration):
            return
        if isinstance(fact, Changed) and _takes_away(fact, broker_id):
            found[later] = Why("controlled_shutdown", CONTROLLER, broker_id)


def _run_before(facts: Sequence[Fact], place: int, broker_id: NodeId, cause: str, found: dict[int, Why]) -> None:
    """The unbroken run of changes directly before a registration change."""
    begin = place
    while begin > 0 and begin - 1 not in found:
        fact = facts[begin - 1]
        if not isinstance(fact, Changed) or not _takes_away(fact, broker_id):
            break
        begin -= 1
    could_be_proposals = True
    for at in range(begin, place):
        fact = facts[at]
        assert isinstance(fact, Changed), "a run is of changes"
        is_proposal = not fact.names_leader and _removed(fact) == {broker_id} and fact.before.leader != broker_id
        could_be_proposals &= is_proposal
        found[at] = Why(cause, CONTROLLER, broker_id, ambiguous=could_be_proposals)


def _takes_away(fact: Changed, broker_id: NodeId) -> bool:
    """Whether a broker leaves the ISR, or leads no more; the ISR may keep it as its last member."""
    led_before = fact.before.leader == broker_id
    return broker_id in _removed(fact) or (led_before and fact.names_leader and fact.after.leader != broker_id)


def _removed(fact: Changed) -> set[NodeId]:
    return {*fact.before.isr} - {*fact.after.isr}


def _is_unclean(fact: Changed) -> bool:
    return fact.after.recovering and not fact.before.recovering


def _by_itself(fact: Changed) -> Why:
    before, after = fact.before, fact.after
    if _is_unclean(fact):
        return Why("unclean_election", CONTROLLER)
    if fact.names_replicas:
        return Why("reassign", CONTROLLER)
    is_new_leader = fact.names_leader and after.leader != before.leader
    has_same_isr = {*before.isr} == {*after.isr}
    if is_new_leader:
        if before.leader is None:
            return Why("election", CONTROLLER)
        is_preferred = has_same_isr and after.replicas[:1] == (after.leader,)
        return Why("preferred" if is_preferred else None, CONTROLLER)
    if has_same_isr:
        return Why(None, CONTROLLER)
    return Why("lag" if _removed(fact) else "catch_up", LEADER)
