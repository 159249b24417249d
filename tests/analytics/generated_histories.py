"""Generated histories of one partition (hypothesis): decisions, samples of the leaders, and lost rows.

Everything happens on a tick of the oracle. Each history is given to Spark as rows of the export, and to the oracle as
plain steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from tick_oracle import TICK_US

REPLICAS = [1, 2, 3]
GENERATED = 60
"""So many histories are made for the tests that share them."""
FIRST_TICK = -300
WINDOW_TICKS = 1_200
"""One minute."""


@dataclass
class Decision:
    """A row of the controller, in the oracle's form: the whole state after it."""

    tick: int
    partition_epoch: int
    epoch: int
    leader: int | None
    isr: list[int]
    old_isr: list[int] | None
    min_isr: int
    is_change: bool
    is_snapshot: bool = False
    lost_before: bool = False
    replicas: tuple[int, ...] = tuple(REPLICAS)


@dataclass
class Look:
    """A leader's sample of its replicas."""

    tick: int
    epoch: int
    leader: int
    hw: int
    leo: dict[int, int]
    isr: list[int]
    acked: int
    hold: int


@dataclass
class Start:
    """A leader began its epoch."""

    tick: int
    epoch: int
    leader: int


@dataclass
class History:
    """One generated partition."""

    control: list[Decision]
    looks: list[Look]
    starts: list[Start]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["move", "move", "move", "move", "lead", "lead_and_leave", "minimum", "snapshot"]),
        st.integers(0, 150),  # ticks since the step before
        st.integers(0, 3),  # which node; 0 is none
        st.sampled_from(["fine", "fine", "fine", "lost", "back"]),  # the row is lost, or the clock goes back
    ),
    min_size=8,
    max_size=14,
)
_LOOKS = st.lists(
    st.tuples(
        st.integers(FIRST_TICK, WINDOW_TICKS + 40),
        st.integers(0, 20),  # HW
        st.tuples(*[st.integers(0, 15)] * 3),  # beyond it
        st.integers(0, 30),  # acknowledged
        st.integers(1, 60),  # ticks it may be silent
        st.sampled_from(["now", "now", "before"]),  # who looks: the leader, or the one before
    ),
    min_size=4,
    max_size=14,
)


@cache
def generated(count: int) -> list[History]:
    """``count`` histories, generated once: hypothesis draws some values from the modules that are loaded by then."""
    found: list[History] = []

    @settings(
        max_examples=count, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(FIRST_TICK, 200), st.integers(1, 4), _STEPS, _LOOKS, st.lists(st.integers(0, 40), min_size=14))
    def gather(first: int, min_isr: int, steps: list[Any], looks: list[Any], delays: list[int]) -> None:
        found.append(_tell(first, min_isr, steps, looks, delays))

    gather()
    return found


def _tell(first: int, min_isr: int, steps: list[Any], looks: list[Any], delays: list[int]) -> History:
    now = Decision(first, 5, 0, 1, [1, 2, 3], None, min_isr, is_change=False, is_snapshot=True)
    decided, lost = [now], []
    tick = first
    for kind, gap, whom, luck in steps:
        tick += gap
        at = tick - 40 if luck == "back" else tick
        after = _after(now, kind, at, whom)
        if after is None:
            continue
        now = after
        decided.append(now)
        lost.append(luck == "lost" and not now.is_change and not now.is_snapshot and now.old_isr is not None)
    kept = [decided[0], *(d for d, gone in zip(decided[1:], lost, strict=True) if not gone)]
    for before, after in pairwise(kept):
        missing = after.partition_epoch - before.partition_epoch - (0 if after.is_snapshot else 1)
        after.lost_before = missing > 0
    leads = [(d.tick, d.epoch, d.leader) for d in kept if d.is_change and d.leader is not None]
    starts = [Start(t + d, e, n) for (t, e, n), d in zip(leads, delays, strict=False)]
    return History(kept, _looks_of(kept, looks), sorted(starts, key=lambda s: s.tick))


def _after(now: Decision, kind: str, tick: int, whom: int) -> Decision | None:
    """The state after a step, or None where it changes nothing."""
    isr, leader, epoch, min_isr = list(now.isr), now.leader, now.epoch, now.min_isr
    if kind == "snapshot":
        return Decision(tick, now.partition_epoch, epoch, leader, isr, None, min_isr, False, is_snapshot=True)
    if kind == "minimum":
        return Decision(tick, now.partition_epoch + 1, epoch, leader, isr, None, whom + 1, is_change=False)
    if kind in ("move", "lead_and_leave") and whom in isr and (len(isr) > 1 or kind == "lead_and_leave"):
        isr.remove(whom)
    elif kind == "move" and whom in REPLICAS and whom not in isr:
        isr.append(whom)
    elif kind != "lead":
        return None
    is_change = kind.startswith("lead")
    if is_change:
        leader, epoch = (isr[0] if isr and whom else None), epoch + 1
    old = None if isr == now.isr else now.isr
    return Decision(tick, now.partition_epoch + 1, epoch, leader, isr, old, min_isr, is_change)


def _looks_of(control: list[Decision], looks: list[Any]) -> list[Look]:
    """Samples by the leader of that time, or by an earlier leader."""
    found = []
    for tick, hw, ahead, acked, silence, luck in sorted(looks, key=lambda look: look[0]):
        # Decisions happen in their order, regardless of the clock.
        so_far, latest = [], FIRST_TICK - 1
        for decision in control:
            latest = max(latest, decision.tick)
            if latest <= tick and decision.leader is not None and (not so_far or decision.epoch != so_far[-1].epoch):
                so_far.append(decision)
        if not so_far:
            continue
        by = so_far[-2] if luck == "before" and len(so_far) > 1 else so_far[-1]
        current = max((d.epoch for d in control if _applied(control, d) <= tick), default=0)
        if by is so_far[-1] and by.epoch != current:
            continue
        leo = {replica: hw + more for replica, more in zip(REPLICAS, ahead, strict=True)}
        leo[by.leader] = max(leo.values())
        found.append(Look(tick, by.epoch, by.leader, hw, leo, by.isr, acked, 3 * silence))
    return found


def _applied(control: list[Decision], decision: Decision) -> int:
    latest = FIRST_TICK - 1
    for one in control:
        latest = max(latest, one.tick)
        if one is decision:
            return latest
    raise AssertionError("not of this history")


def rows_of(history: History, cluster: str) -> list[dict[str, Any]]:
    """The history as the services would have exported it."""
    rows: list[dict[str, Any]] = []
    shared = {"schema_version": 1, "cluster_id": cluster, "topic": "t", "topic_id": "T", "partition": 0}

    def add(tick: int, event_type: str, node: int, **fields: Any) -> None:
        number = len(rows) + 1
        meta = {"meta_offset": number} if node == -1 else {}
        times = {"ts_wall_us": tick * TICK_US, "ts_mono_us": tick * TICK_US}
        envelope = {"event_type": event_type, "node_id": node, "incarnation": 1, "seq": number}
        rows.append(shared | envelope | times | meta | fields)

    for d in history.control:
        epochs = {"partition_epoch": d.partition_epoch, "leader_epoch": d.epoch}
        leader = -1 if d.leader is None else d.leader
        if d.is_snapshot:
            state = {"new_isr": d.isr, "replicas": REPLICAS, "min_isr": d.min_isr, "new_leader": leader}
            add(d.tick, "STATE_SNAPSHOT", -1, **epochs, **state)
            continue
        if d.old_isr is not None:
            add(d.tick, "ISR_CHANGE", -1, **epochs, old_isr=d.old_isr, new_isr=d.isr, cause="lag", initiator="leader")
        if d.is_change:
            add(d.tick, "LEADER_CHANGE", -1, **epochs, new_leader=leader, new_leader_epoch=d.epoch, reason="election")
        if d.old_isr is None and not d.is_change:
            add(d.tick, "CONFIG_CHANGE", -1, **epochs, min_isr=d.min_isr, replicas=REPLICAS)
    for start in history.starts:
        add(start.tick, "EPOCH_START", start.leader, leader_epoch=start.epoch, start_offset=0, hw=0)
    for number, look in enumerate(history.looks):
        for replica, leo in look.leo.items():
            add(
                look.tick, "REPLICA_SAMPLE", look.leader, leader_epoch=look.epoch, sample_id=number,
                interval_ms=look.hold * TICK_US // 3_000, replica_id=replica, leo=leo, durable_leo=leo,
                leader_leo=look.leo[look.leader], hw=look.hw, acked_offset=look.acked, in_isr=replica in look.isr,
                in_maximal_isr=replica in look.isr, expected_state="member" if replica in look.isr else "catching_up",
            )  # fmt: skip
    return rows
