"""The controller's decisions for one partition after another, and the events of their leaders.

A small state machine per partition walks through the absences of its replicas and through lags of its own. It yields
transitions as rows, and as step functions what `looks` needs: states, terms, and when the HW did not move.

Invariant: partition epochs have no gaps, a leader is a member of the ISR, and a new leader starts at or above every HW
that was exposed, except after an unclean election, which is marked as one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from day.nodes import Nodes, Outage
from day.shape import CONTROLLER, HOT, HOUR, LAG_TIME_MAX_US, MIN_ISR, SECOND, Shape

Row = dict[str, Any]
_MS = 1_000


@dataclass(slots=True)
class History:
    """The results for all partitions. Lists of states, terms and freezes are sorted by (partition, start)."""

    rates: np.ndarray
    """Milli-records per second of each partition."""
    replicas: np.ndarray
    """(partition, slot) -> node."""
    rows: list[Row] = field(default_factory=list)
    states: list[tuple[int, ...]] = field(default_factory=list)
    """(partition, start, term, ISR as bits of slots, down as bits of slots, whether the leader lives, partition epoch,
    slot that blocks or -1)."""
    terms: list[tuple[int, ...]] = field(default_factory=list)
    """(partition, leader epoch, leader or -1, commit, active, LEO at the commit, floor of the HW)."""
    freezes: list[tuple[int, int, int]] = field(default_factory=list)
    """(partition, start, end): the HW stood where it was at the start."""
    zombies: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(partition, state, start, end): who led in that state went on sampling."""


def make_history(shape: Shape, nodes: Nodes, rng: np.random.Generator) -> History:
    """Walk through the day of every partition."""
    n = shape.partitions
    rates = (rng.lognormal(1.5, 2.0, n) * 1_000).clip(0, 500_000).astype(np.int64)
    rates[rng.random(n) < 0.15] = 0
    if shape.hot_share:
        rates[HOT] = 500_000
    replicas = np.argsort(rng.random((n, shape.nodes)), axis=1)[:, : shape.replication_factor]
    history = History(rates, replicas)
    for partition in range(n):
        _Walk(partition, shape, nodes, history, rng).run()
    return history


class _Walk:
    """One partition's day."""

    def __init__(self, partition: int, shape: Shape, nodes: Nodes, history: History, rng: np.random.Generator) -> None:
        self.partition, self.shape, self.nodes, self.history, self.rng = partition, shape, nodes, history, rng
        self.replicas: list[int] = history.replicas[partition].tolist()
        self.rate = int(history.rates[partition])
        self.isr = list(self.replicas)
        self.placed, self.is_moving = list(self.replicas), False
        # Their own draws, so that everything else of a day is as it was without moves.
        self.moves = np.random.default_rng((shape.seed, partition))
        self.elr: list[int] = []
        self.leader = self.replicas[0]
        self.leader_epoch = self.partition_epoch = self.requests = 0
        self.down: set[int] = set()
        self.dead: set[int] = set()
        self.lagging: set[int] = set()
        self.frozen_at: int | None = None
        self.cut_to: dict[int, tuple[int, int, int]] = {}
        self.heap: list[tuple[int, int, str, Any]] = []
        self.order = count()
        self.term = (0, 0, 0)  # commit, LEO at it, floor of the HW

    def run(self) -> None:
        """Run from the creation of the topic to the end of the day."""
        for outage in self.nodes.outages:
            if outage.node in self.replicas:
                self.plan(outage.down, "down", outage)
                self.plan(outage.fenced, "fence", outage)
                self.plan(outage.back, "back", outage)
        for _ in range(self.rng.poisson(self.shape.hours / 8)):
            self.plan(int(self.rng.integers(60 * SECOND, self.shape.end)), "lag", None)
        for _ in range(self.moves.poisson(self.shape.hours / 2)):
            self.plan(int(self.moves.integers(60 * SECOND, self.shape.end)), "move", None)
        for hour in range(1, self.shape.hours):
            self.plan(hour * HOUR, "snapshot", None)
        self.create()
        while self.heap:
            now, _, kind, what = heapq.heappop(self.heap)
            if now < self.shape.end - SECOND:
                getattr(self, f"on_{kind}")(now, what)
        self.thaw(self.shape.end)

    def plan(self, at: int, kind: str, what: Any) -> None:
        heapq.heappush(self.heap, (at, next(self.order), kind, what))

    def create(self) -> None:
        at = 10 * _MS
        said = {"replicas": self.placed, "min_isr": MIN_ISR}
        self.tell(at, "CONFIG_CHANGE", lag_time_max_ms=LAG_TIME_MAX_US // _MS, topic_created=True, topic_deleted=False,
                  **said)  # fmt: skip
        self.tell(at, "STATE_SNAPSHOT", new_isr=self.isr, elr=[], new_leader=self.leader, **said)
        self.tell(at, "LEADER_CHANGE", old_leader=-1, new_leader=self.leader, new_leader_epoch=0, reason="created",
                  election_type="isr", eligible_set=self.isr)  # fmt: skip
        self.begin_term(at, 0, 0)
        self.note_state(at)

    def on_snapshot(self, now: int, _: None) -> None:
        self.tell(now, "STATE_SNAPSHOT", new_isr=self.isr, elr=self.elr, new_leader=self.leader, min_isr=MIN_ISR,
                  replicas=self.placed)  # fmt: skip

    def on_down(self, now: int, outage: Outage) -> None:
        if outage.kind != "cut":
            self.dead.add(outage.node)
        if outage.node == self.leader and outage.kind != "cut":
            self.note_state(now)
        if outage.node in self.isr and outage.node != self.leader:
            self.freeze(now, outage.node)

    def on_fence(self, now: int, outage: Outage) -> None:
        node = outage.node
        self.down.add(node)
        if node not in self.isr:
            self.note_state(now)
            return
        cause = "controlled_shutdown" if outage.kind == "controlled_shutdown" else "node_fenced"
        if node == self.leader and outage.kind == "cut":
            last = len(self.history.states) - 1
            self.history.zombies.append((self.partition, last, now, min(outage.back, now + 60 * SECOND)))
        self.change(now, [r for r in self.isr if r != node], cause, "controller", lost=outage)

    def on_back(self, now: int, outage: Outage) -> None:
        node = outage.node
        self.down.discard(node)
        self.dead.discard(node)
        if node in self.cut_to:
            from_leo, to_leo, hw = self.cut_to.pop(node)
            self.by_node(node, now + 300 * _MS, "TRUNCATION", from_leo=from_leo, to_leo=to_leo, hw_before=hw,
                         committed_cut=max(0, hw - to_leo), reason="diverging_epoch")  # fmt: skip
        if self.leader < 0 and node in self.elr:
            self.elr = [r for r in self.elr if r != node]
            self.change(now, [node], "election", "controller", elected=(node, "elr"))
        elif self.leader < 0 and self.rng.random() < 0.1:
            self.change(now, [node], "unclean_election", "controller", elected=(node, "unclean"))
        else:
            self.note_state(now)
            self.plan(now + int(self.rng.integers(SECOND, 40 * SECOND)), "caught_up", node)
        for other in self.replicas:
            if other not in self.isr and other not in self.down:
                self.plan(now + int(self.rng.integers(SECOND, 40 * SECOND)), "caught_up", other)

    def on_move(self, now: int, _: None) -> None:
        """A move to another order of the replicas, which is done when its turn comes, or to a node that never joins."""
        if not self.is_moving:
            others = [node for node in range(self.shape.nodes) if node not in self.replicas]
            target = [*self.placed[1:], int(self.moves.choice([self.placed[0], *others]))]
            self.step(now, "queued", target)
            self.plan(now + int(self.moves.integers(SECOND, 60 * SECOND)), "turn", target)

    def on_turn(self, now: int, target: list[int]) -> None:
        self.step(now, "started", target)
        if set(target) == set(self.placed):
            self.placed = target
            self.step(now, "completed", target)
        else:
            self.plan(now + int(self.moves.integers(10 * SECOND, 300 * SECOND)), "taken_back", target)

    def on_taken_back(self, now: int, target: list[int]) -> None:
        self.step(now, "cancelled", target)

    def step(self, now: int, phase: str, target: list[int]) -> None:
        self.partition_epoch += phase != "completed"
        self.is_moving = phase in ("queued", "started")
        runs, known = phase == "started", self.placed if phase != "queued" else target
        adding, removing = ([n for n in one if n not in other] for one, other in ((target, known), (known, target)))
        self.tell(now, "REASSIGNMENT", phase=phase, replicas=[*target, *removing] if runs else self.placed,
                  adding_replicas=adding, removing_replicas=removing, target_replicas=target, min_isr=MIN_ISR,
                  original_replicas=self.placed if runs else [])  # fmt: skip
        self.note_state(now)

    def on_lag(self, now: int, _: None) -> None:
        followers = [r for r in self.isr if r != self.leader and r not in self.dead and r not in self.lagging]
        if followers and self.leader not in self.dead:
            slow = followers[int(self.rng.integers(len(followers)))]
            self.lagging.add(slow)
            self.freeze(now, slow)
            length = int(self.rng.integers(10, 15)) * LAG_TIME_MAX_US // 10
            self.plan(now + length, "expire", (slow, now, self.rng.random() < 0.3))

    def on_expire(self, now: int, what: tuple[int, int, bool]) -> None:
        slow, since, recovers = what
        self.lagging.discard(slow)
        if slow in self.isr and slow != self.leader and self.leads() and not recovers:
            committed = self.propose(now, [r for r in self.isr if r != slow])
            if committed is not None:
                self.change(committed, [r for r in self.isr if r != slow], "lag", "leader", since=since)
                self.plan(committed + int(self.rng.integers(2 * SECOND, 400 * SECOND)), "caught_up", slow)
        elif slow in self.isr:
            self.thaw_if_sound(now)

    def on_caught_up(self, now: int, node: int) -> None:
        if node in self.isr or node in self.down or not self.leads():
            return
        isr = [*self.isr, node]
        committed = self.propose(now, isr)
        if committed is not None:
            self.change(committed, isr, "catch_up", "leader")
        else:
            self.plan(now + 2 * SECOND, "caught_up", node)

    def leads(self) -> bool:
        return self.leader >= 0 and self.leader not in self.dead and self.leader not in self.down

    def propose(self, now: int, isr: list[int]) -> int | None:
        """The leader's proposal and its answer. Returns when it was committed; None if it was not."""
        self.requests += 1
        reported: Row = {
            "request_id": self.requests,
            "expected_partition_epoch": self.partition_epoch,
            "proposed_isr": isr,
        }
        self.by_node(self.leader, now, "ALTER_PARTITION", phase="proposed", **reported)
        latency = int(self.rng.integers(2 * _MS, 80 * _MS))
        fate = self.rng.choice(["answered", "timeout", "refused", "lost"], p=[0.93, 0.03, 0.03, 0.01])
        if fate == "timeout":
            reported |= {"phase": "timeout", "latency_us": 5 * SECOND}
        elif fate != "lost":
            reported |= {"phase": "result", "latency_us": latency, "error_code": 95 if fate == "refused" else 0}
        if fate != "lost":
            self.by_node(self.leader, now + reported["latency_us"], "ALTER_PARTITION", **reported)
        return now + latency // 2 if fate == "answered" else None

    def change(
        self,
        now: int,
        isr: list[int],
        cause: str,
        initiator: str,
        *,
        lost: Outage | None = None,
        elected: tuple[int, str] | None = None,
        since: int | None = None,
    ) -> None:
        """One decision: a new ISR, and a new leader where the old one is gone or one was elected."""
        old, old_leader, leo, hw = self.isr, self.leader, self.leo(now), self.hw(now)
        # A replica that was cut off continues to append, and has that truncated on its return.
        ghost = self.leo(min(lost.back, now + 60 * SECOND)) if lost and lost.kind == "cut" else leo
        self.partition_epoch += 1
        leader = elected[0] if elected else old_leader if old_leader in isr else (isr[0] if isr else -1)
        if not isr:
            self.elr = [r for r in old if r not in self.elr] or self.elr
        old_epoch = self.leader_epoch
        self.leader_epoch += leader != old_leader
        gone = [r for r in old if r not in isr]
        members = {"removed": [_member(r) for r in gone], "added": [_member(r) for r in isr if r not in old]}
        self.isr, self.leader = isr, leader
        self.tell(
            now, "ISR_CHANGE", old_isr=old, new_isr=isr, cause=cause, initiator=initiator, elr=self.elr, **members
        )
        if leader != old_leader:
            reason = cause if lost else "election"
            self.tell(now, "LEADER_CHANGE", old_leader=old_leader, new_leader=leader, old_leader_epoch=old_epoch,
                      new_leader_epoch=self.leader_epoch, reason=reason,
                      election_type=elected[1] if elected else "isr", eligible_set=isr)  # fmt: skip
            self.start_term(now, old_leader, leo, hw, elected, ghost)
        self.thaw_if_sound(now)
        self.note_state(now)
        if leader >= 0:
            stopped = since if since is not None else lost.down if lost else now - SECOND
            fetched = now - 200 * _MS if since is not None and self.rng.random() < 0.4 else stopped
            reported = [_member(r, hw, fetched, stopped) for r in gone]
            echo = {"removed": reported, "added": [_member(r, hw, now, now) for r in isr if r not in old]}
            self.by_node(leader, now + 20 * _MS, "ISR_CHANGE", old_isr=old, new_isr=isr, cause=cause,
                         initiator=initiator, hw=hw, leader_leo=leo, elr=self.elr, **echo)  # fmt: skip

    def start_term(
        self, now: int, old_leader: int, leo: int, hw: int, elected: tuple[int, str] | None, ghost: int
    ) -> None:
        """The log of the new leader ends somewhere from the HW to the end of the old leader's log."""
        if self.leader < 0:
            self.begin_term(now, leo, hw)
            return
        start = int(self.rng.integers(hw, leo + 1)) if old_leader >= 0 else leo
        if elected and elected[1] == "unclean":
            start = max(0, hw - int(self.rng.integers(0, 50)))
        if old_leader >= 0 and start < ghost:
            self.cut_to[old_leader] = (ghost, start, hw)
        self.begin_term(now, start, min(hw, start))

    def begin_term(self, now: int, start: int, hw: int) -> None:
        self.term = (now, start, hw)
        active = now + int(self.rng.integers(5 * _MS, 120 * _MS))
        self.history.terms.append((self.partition, self.leader_epoch, self.leader, now, active, start, hw))
        if self.leader >= 0:
            self.requests = 0
            self.by_node(self.leader, active, "EPOCH_START", start_offset=start, hw=hw, new_isr=self.isr)

    def leo(self, at: int) -> int:
        commit, start, _ = self.term
        return start + (self.rate * (at - commit) // 1_000_000_000 if self.leader >= 0 else 0)

    def hw(self, at: int) -> int:
        at = at if self.frozen_at is None else self.frozen_at
        return (
            self.term[2] if at < self.term[0] else max(self.term[2], self.leo(at)) if self.leader >= 0 else self.term[2]
        )

    def freeze(self, now: int, blocker: int) -> None:
        if self.frozen_at is None:
            self.frozen_at = now
            self.note_state(now, blocker)

    def thaw_if_sound(self, now: int) -> None:
        held = [r for r in self.isr if r in self.lagging or (r in self.dead and r != self.leader)]
        if len(self.isr) >= MIN_ISR and not held:
            self.thaw(now)
        elif self.frozen_at is None:
            self.frozen_at = now

    def thaw(self, now: int) -> None:
        if self.frozen_at is not None and now > self.frozen_at:
            self.history.freezes.append((self.partition, self.frozen_at, now))
        self.frozen_at = None

    def note_state(self, now: int, blocker: int = -1) -> None:
        bits = sum(1 << slot for slot, r in enumerate(self.replicas) if r in self.isr)
        down = sum(1 << slot for slot, r in enumerate(self.replicas) if r in self.down)
        alive = self.leader >= 0 and self.leader not in self.dead
        blocks = self.replicas.index(blocker) if blocker >= 0 else -1
        term = len(self.history.terms) - 1
        self.history.states.append((self.partition, now, term, bits, down, int(alive), self.partition_epoch, blocks))

    def tell(self, at: int, event_type: str, **said: Any) -> None:
        self.by_node(CONTROLLER, at, event_type, **said)

    def by_node(self, node: int, at: int, event_type: str, **said: Any) -> None:
        envelope = {"t": at, "node_id": node, "event_type": event_type, "p": self.partition}
        self.history.rows.append(
            envelope | {"leader_epoch": self.leader_epoch, "partition_epoch": self.partition_epoch} | said
        )


def _member(replica: int, leo: int | None = None, fetched: int | None = None, caught_up: int | None = None) -> Row:
    return {"replica_id": replica, "leo": leo, "last_fetch_us": fetched, "last_caught_up_us": caught_up}
