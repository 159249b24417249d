"""Describes the cost of a decision, as far as events show it: who waited, for how long, and what was truncated where.

Records wait while they are in the leader's log and the high watermark is below them. A truncation is reported with its
part below the replica's own HW (committed) and its part below the offset that had been acknowledged to clients, as of
the leader's last observation before the change: it does not show later acknowledgements.

Invariant: "none" is said only if an event shows it; without an observation the answer is that it is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline_analytics.scope import FOREVER_US
from strandline_analytics.timeline.event import Event

Reported = tuple[list[str], list[str]]
"""The sentences about what is known, and those about what is missing."""


def reported_waiting(decided: Event, own: Sequence[Event]) -> Reported:
    """How long the high watermark stood still around a decision, and how many records were seen waiting above it."""
    last, first = moves_around(decided, own)
    if last is None or first is None:
        return [], ["how long the high watermark stood: a move before and one after are needed"]
    waiting = [e for e in leader_looks(own) if last.t_us <= e.t_us <= first.t_us and e.get("leader_leo") > e.get("hw")]
    reached = _reached(last, first, own)
    if reached > last.get("new_hw"):
        reported = (
            f"the last known move of the HW is to {last.get('new_hw'):,}, {_ms(first.t_us - last.t_us)} before the next"
        )
        unknown = f"how long the high watermark stood: it had reached {reached:,} by a move that is not in the export"
        return [f"{reported}; {reported_above_hw(waiting)}" if waiting else reported], [unknown]
    stood = f"the HW stood at {last.get('new_hw'):,} for {_ms(first.t_us - last.t_us)}"
    if not waiting:
        return [f"{stood}; no look in that time shows a record that waited"], []
    return [f"{stood}; {reported_above_hw(waiting)}"], []


def _reached(last: Event, first: Event, own: Sequence[Event]) -> int:
    """The highest HW that was reported between two moves, or that an epoch began with: a killed leader's last moves
    are never exported. Consecutive moves of one leader have no gap."""
    if first.node_id == last.node_id and first.get("old_hw") == last.get("new_hw"):
        return int(last.get("new_hw"))
    kinds = ("EPOCH_START", "LOCAL_SAMPLE", "REPLICA_SAMPLE")
    reported = [
        e.get("hw")
        for e in own
        if e.event_type in kinds and last.t_us < e.t_us <= first.t_us and e.get("hw") is not None
    ]
    # The HW had already reached the offset at which the next move began.
    begun = first.get("old_hw")
    return int(max([last.get("new_hw"), *reported, *([] if begun is None else [begun])]))


def had_leader(change: Event) -> bool:
    """Whether there was a leader before a change of leader."""
    old = change.get("old_leader")
    return old is not None and old >= 0


def leader_lost(change: Event, own: Sequence[Event]) -> Event | None:
    """The decision that left the partition without the leader that this change gives it; None if there was a leader."""
    if had_leader(change):
        return None
    losses = [
        e
        for e in own
        if e.event_type == "LEADER_CHANGE"
        and e.is_control
        and had_leader(e)
        and (e.get("new_leader") is None or e.get("new_leader") < 0)
        and (e.partition_epoch or 0) < (change.partition_epoch or 0)
    ]
    return max(losses, key=lambda e: e.partition_epoch or 0, default=None)


def reported_leaderless(lost: Event, change: Event) -> str:
    """How long there was no leader."""
    return f"no node led for {_ms(change.t_us - lost.t_us)}"


def moves_around(decided: Event, own: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """The last move of the high watermark before a decision, and the first one made with knowledge of it.

    A deposed leader may move its own for a while; such a move after the decision is neither.
    """
    moves = [e for e in own if e.event_type == "HW_ADVANCE"]
    before = [e for e in moves if e.t_us < decided.t_us]
    after = [e for e in moves if e.t_us >= decided.t_us and (e.partition_epoch or 0) >= (decided.partition_epoch or 0)]
    return max(before, key=lambda e: e.t_us, default=None), min(after, key=lambda e: e.t_us, default=None)


def reported_above_hw(looks: Sequence[Event]) -> str:
    """How many records waited, from observations that each show some: ``up to 12 records waited``."""
    most = max(e.get("leader_leo") - e.get("hw") for e in looks)
    acked = max((e.get("acked_offset") - e.get("hw") for e in looks if e.get("acked_offset") is not None), default=0)
    reported = f"up to {most:,} records waited for their commit"
    return reported + (f", up to {acked:,} of them acknowledged already (acks=1)" if acked > 0 else "")


def reported_cuts(change: Event, own: Sequence[Event]) -> Reported:
    """What was truncated after a change of leader, and whether any of it was committed or acknowledged."""
    known, missing = [], []
    acked = _acknowledged(change, own)
    for cut in cuts_after(change, own):
        begin, end = cut.get("to_leo"), cut.get("from_leo")
        committed = cut.get("committed_cut")
        where = f"from offset {begin:,} on" if end is None else f"offsets [{begin:,}, {end:,})"
        reported = f"node {cut.node_id} cut {where}"
        if committed is None:
            missing.append(f"whether what node {cut.node_id} cut had been committed: own HW not known")
        else:
            reported += f": {f'{committed:,}' if committed else 'none'} of them committed"
        if acked is None:
            missing.append(f"whether what node {cut.node_id} cut had been acknowledged: no look at the old leader")
        else:
            upto = acked.get("acked_offset")
            lost = max(0, (upto if end is None else min(upto, end)) - begin)
            age = _ms(change.t_us - acked.t_us)
            reported += f", {f'{lost:,}' if lost else 'none'} acknowledged as of the last look, {age} before the change"
        known.append(reported)
    return known, missing


def cuts_after(change: Event, own: Sequence[Event]) -> list[Event]:
    """The truncations between a change of leader and the next one."""
    ends = [e.t_us for e in own if e.event_type == "LEADER_CHANGE" and e.is_control and e.t_us > change.t_us]
    until = min(ends, default=FOREVER_US)
    return [e for e in own if e.event_type == "TRUNCATION" and change.t_us <= e.t_us < until]


def leader_looks(own: Sequence[Event]) -> list[Event]:
    """The leader's observations of its own replica, one per moment."""
    return [e for e in own if e.event_type == "REPLICA_SAMPLE" and e.get("replica_id") == e.node_id]


def _acknowledged(change: Event, own: Sequence[Event]) -> Event | None:
    """The old leader's observation of itself, in its epochs, with the highest acknowledged offset."""
    before = change.get("new_leader_epoch")
    looks = [
        e
        for e in leader_looks(own)
        if e.get("acked_offset") is not None and before is not None and (e.leader_epoch or 0) < before
    ]
    return max(looks, key=lambda e: (e.get("acked_offset"), e.t_us), default=None)


def _ms(span_us: int) -> str:
    return f"{span_us / 1000:,.0f} ms"
