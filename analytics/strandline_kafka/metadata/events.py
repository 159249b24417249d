"""Turns facts of the metadata log into state events with the names and meanings of `export/schema.py` (A.3, A.5b).

What Kafka does not record is null: a leader's view, positions of replicas, times of heartbeats. None of these is
derived from other facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.core.state_events import (
    ConfigChange,
    ControllerDecision,
    IsrChange,
    LeaderChange,
    NodeSession,
    Number,
    StateEvent,
    StateSnapshot,
    decided_isr_change,
)
from strandline.core.types import NodeId, TopicPartition
from strandline_kafka.metadata import state

# ---- causes
# The causes of partition changes, as far as the order of records in a batch shows them exactly.
#
# A batch is not a decision: the controller joins operations. The changes by a fence come before the registration change
# that fences; those by a controlled shutdown come after the one that begins it. The rest are proposals of
# leaders, and elections.
#
# Invariant: a cause that the log does not show is None, never a guess; one that may also be another is ``ambiguous``.

CONTROLLER, LEADER = "controller", "leader"


class Why(NamedTuple):
    """The cause of a change of a partition, and its requester."""

    cause: str | None
    initiator: str
    subject: NodeId | None = None
    """The broker whose leaving caused it: it can no longer be elected, whatever its registration was by then."""
    ambiguous: bool = False


def causes_of(facts: Sequence[state.Fact]) -> dict[int, Why]:
    """The cause of each `Changed` among the facts of one batch, by its index."""
    found: dict[int, Why] = {}
    for place, fact in enumerate(facts):
        if isinstance(fact, state.ShutdownBegan):
            _shutdown(facts, place, fact.broker_id, found)
    for place, fact in enumerate(facts):
        if isinstance(fact, state.Fenced):
            _run_before(facts, place, fact.broker_id, "node_fenced", found)
        elif isinstance(fact, state.Registered) and not fact.is_first:
            _run_before(facts, place, fact.broker_id, "unclean_registration", found)
        elif isinstance(fact, state.DirectoriesNamed):
            _run_before(facts, place, fact.broker_id, "offline_directory", found)
    for place, fact in enumerate(facts):
        if isinstance(fact, state.Changed) and (place not in found or _is_unclean(fact)):
            found[place] = _by_itself(fact)
    return found


def _shutdown(facts: Sequence[state.Fact], place: int, broker_id: NodeId, found: dict[int, Why]) -> None:
    for later in range(place + 1, len(facts)):
        fact = facts[later]
        if isinstance(fact, state.Registration):
            return
        if isinstance(fact, state.Changed) and _takes_away(fact, broker_id):
            found[later] = Why("controlled_shutdown", CONTROLLER, broker_id)


def _run_before(facts: Sequence[state.Fact], place: int, broker_id: NodeId, cause: str, found: dict[int, Why]) -> None:
    """The unbroken run of changes directly before a registration change."""
    begin = place
    while begin > 0 and begin - 1 not in found:
        fact = facts[begin - 1]
        if not isinstance(fact, state.Changed) or not _takes_away(fact, broker_id):
            break
        begin -= 1
    could_be_proposals = True
    for at in range(begin, place):
        fact = facts[at]
        assert isinstance(fact, state.Changed), "a run is of changes"
        is_proposal = not fact.names_leader and _removed(fact) == {broker_id} and fact.before.leader != broker_id
        could_be_proposals &= is_proposal
        found[at] = Why(cause, CONTROLLER, broker_id, ambiguous=could_be_proposals)


def _takes_away(fact: state.Changed, broker_id: NodeId) -> bool:
    """Whether a broker leaves the ISR, or no longer leads; the ISR may keep it as its last member."""
    led_before = fact.before.leader == broker_id
    return broker_id in _removed(fact) or (led_before and fact.names_leader and fact.after.leader != broker_id)


def _removed(fact: state.Changed) -> set[NodeId]:
    return {*fact.before.isr} - {*fact.after.isr}


def _is_unclean(fact: state.Changed) -> bool:
    return fact.after.recovering and not fact.before.recovering


def _by_itself(fact: state.Changed) -> Why:
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


NOT_RECORDED = ""
"""A cause that Kafka does not record; its column stays null."""
UNKNOWN_MIN_ISR = Number(-1)
"""A minimum that the log does not contain; its column is null."""
UNKNOWN_OFFSET = -1
"""An offset that is in no line; its column is null."""
NOT_KNOWN: tuple[tuple[str, object], ...] = (
    ("cause", NOT_RECORDED),
    ("reason", NOT_RECORDED),
    ("min_isr", UNKNOWN_MIN_ISR),
    ("from_leo", UNKNOWN_OFFSET),
)
"""Columns that can mark a value as unknown only by a special value, with those values."""
_CREATED = "created"
_NOT_TOLD = Why(None, CONTROLLER)


class HistoryEvent(NamedTuple):
    """One event, its partition, and the values without a column."""

    tp: TopicPartition | None
    event: StateEvent
    ext: dict[str, str] = {}  # noqa: RUF012 - never changed
    topic: str | None = None
    """The name of a topic that was deleted."""


def events_of(
    fact: state.Fact, why: Why | None, meta_offset: int, lag_time_max_ms: int | None
) -> Iterator[HistoryEvent]:
    """The events of one fact; none if nothing of it is exported.

    Args:
        why: the cause of a change of a partition, by `causes_of`.
        lag_time_max_ms: replica.lag.time.max.ms, if it is known.
    """
    match fact:
        case state.Created(partition, min_isr):
            config = _config(partition, min_isr, meta_offset)
            yield HistoryEvent(partition.tp, config._replace(topic_created=True, lag_time_max_ms=lag_time_max_ms))
            yield snapshot(partition, min_isr, meta_offset)
            yield HistoryEvent(partition.tp, _first_leader(fact, meta_offset))
        case state.Changed():
            yield from _changed(fact, why or _NOT_TOLD, meta_offset)
        case state.Restated(partition, min_isr):
            yield snapshot(partition, min_isr, meta_offset)
        case state.Configured(partition, min_isr):
            yield HistoryEvent(partition.tp, _config(partition, min_isr, meta_offset))
        case state.Deleted(partition, min_isr, topic):
            yield HistoryEvent(
                partition.tp, _config(partition, min_isr, meta_offset)._replace(topic_deleted=True), topic=topic
            )
        case state.Registered(broker_id, rack, _, is_fast_restart):
            ext = {"fast_restart": "true"} if is_fast_restart else {}
            yield HistoryEvent(None, NodeSession(broker_id, "register", NOT_RECORDED, None, rack, meta_offset), ext)
        case state.Fenced(broker_id, rack):
            yield HistoryEvent(None, NodeSession(broker_id, "fence", NOT_RECORDED, None, rack, meta_offset))
            yield _decision("fence", fact, f"node {broker_id}", meta_offset)
        case state.Unfenced(broker_id, rack):
            yield HistoryEvent(None, NodeSession(broker_id, "unfence", NOT_RECORDED, None, rack, meta_offset))
        case state.Unregistered(broker_id, rack):
            yield HistoryEvent(None, NodeSession(broker_id, "unregister", NOT_RECORDED, None, rack, meta_offset))
        case state.ShutdownBegan(broker_id):
            yield _decision("controlled_shutdown", fact, f"node {broker_id}", meta_offset)
        case state.ControllerElected(leader_id):
            name = "not known" if leader_id is None else str(leader_id)
            yield _decision("controller_elected", fact, f"controller {name}", meta_offset)
        case _:
            return


def snapshot(partition: state.Partition, min_isr: int | None, meta_offset: int) -> HistoryEvent:
    """The whole state of a partition."""
    event = StateSnapshot(
        new_leader=partition.leader,
        new_isr=partition.isr,
        elr=partition.elr,
        min_isr=UNKNOWN_MIN_ISR if min_isr is None else Number(min_isr),
        replicas=partition.replicas,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        meta_offset=meta_offset,
    )
    return HistoryEvent(partition.tp, event)


def _decision(
    name: str, fact: state.Fenced | state.ShutdownBegan | state.ControllerElected, outcome: str, meta_offset: int
) -> HistoryEvent:
    return HistoryEvent(None, ControllerDecision(name, fact.live, fact.fenced, outcome, meta_offset=meta_offset))


def _config(partition: state.Partition, min_isr: int | None, meta_offset: int) -> ConfigChange:
    return ConfigChange(
        min_isr=None if min_isr is None else Number(min_isr),
        replicas=partition.replicas,
        topic_created=False,
        topic_deleted=False,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        meta_offset=meta_offset,
    )


def _first_leader(fact: state.Created, meta_offset: int) -> LeaderChange:
    partition = fact.partition
    return LeaderChange(
        old_leader=None,
        new_leader=partition.leader,
        old_leader_epoch=None,
        new_leader_epoch=partition.leader_epoch,
        reason=_CREATED,
        election_type="isr",
        eligible_set=fact.eligible,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        meta_offset=meta_offset,
    )


def _changed(fact: state.Changed, why: Why, meta_offset: int) -> Iterator[HistoryEvent]:
    before, after = fact.before, fact.after
    ext = {"ambiguous": "true"} if why.ambiguous else {}
    decided = False
    if {*before.isr} != {*after.isr} or {*before.elr} != {*after.elr}:
        decided = True
        yield HistoryEvent(after.tp, _isr_change(before, after, why, meta_offset), ext)
    if fact.names_leader and after.leader != before.leader:
        decided = True
        yield HistoryEvent(after.tp, _leader_change(fact, why, meta_offset), ext)
    if before.replicas != after.replicas or not decided:
        yield HistoryEvent(after.tp, _config(after, fact.min_isr, meta_offset))
    if fact.names_leader and after.leader == before.leader:
        # The same leader in a new epoch. It is reported as a state, because a LEADER_CHANGE would be counted as a
        # change of leader. Until metadata version 3.6 every shrink was such a change (KAFKA-15021).
        yield snapshot(after, fact.min_isr, meta_offset)


def _isr_change(before: state.Partition, after: state.Partition, why: Why, meta_offset: int) -> IsrChange:
    epochs = (after.leader_epoch, after.partition_epoch)
    return decided_isr_change(before.isr, after.isr, after.elr, why.cause, why.initiator, *epochs, meta_offset)


def _leader_change(fact: state.Changed, why: Why, meta_offset: int) -> LeaderChange:
    before, after = fact.before, fact.after
    return LeaderChange(
        old_leader=before.leader,
        new_leader=after.leader,
        old_leader_epoch=before.leader_epoch,
        new_leader_epoch=after.leader_epoch,
        reason=NOT_RECORDED if why.cause is None else why.cause,
        election_type=_election_type(fact, why),
        eligible_set=tuple(node for node in fact.eligible if node != why.subject),
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        meta_offset=meta_offset,
    )


def _election_type(fact: state.Changed, why: Why) -> str | None:
    """The type of an election, by the states before and after it."""
    leader: NodeId | None = fact.after.leader
    if leader is None:
        return None
    if why.cause in ("unclean_election", "preferred"):
        return "unclean" if why.cause == "unclean_election" else "preferred"
    if leader in fact.before.isr:
        return "isr"
    return "elr" if leader in fact.before.elr else None
