"""Seeded random histories of moves, as rows of an export, with the faults that occur in practice.

A cluster has three partitions on nodes 1 to 6. Moves are queued, start when another one ends, get a second target, are
cancelled or complete, sometimes with another leader; replicas fall behind meanwhile. Decisions and reports of fetches
are lost, some rows are there twice, and node 1's clock is off by a time that was measured. Callers are refused, too.
"""

from __future__ import annotations

import random
from typing import Any

Rows = list[dict[str, Any]]
SECOND = 1_000_000
SKEW_US = 3_300_000
NODES = range(1, 7)


def random_moves(seed: int, cluster_id: str, *, seconds: int = 1_800) -> tuple[Rows, Rows]:
    """Rows of the export, in the order in which they were written, and those of them that are there once more."""
    return _Moves(random.Random(seed), cluster_id, seconds).tell()


class _Partition:
    def __init__(self, number: int) -> None:
        self.number = number
        self.pe, self.epoch, self.leader = 10, 0, 1
        self.isr, self.original = [1, 2, 3], [1, 2, 3]
        self.queued: list[int] = []
        self.target: list[int] = []
        """Of the move that runs."""

    @property
    def replicas(self) -> list[int]:
        return [*self.target, *(node for node in {*self.original, *self.isr} if node not in self.target)]

    @property
    def adding(self) -> list[int]:
        return [node for node in self.target if node not in self.original]


class _Moves:
    def __init__(self, dice: random.Random, cluster_id: str, seconds: int) -> None:
        self.dice, self.cluster_id, self.end = dice, cluster_id, seconds * SECOND
        self.rows: Rows = []
        self.seqs: dict[int, int] = {}
        self.now, self.meta = SECOND, 10
        self.partitions = [_Partition(number) for number in range(3)]

    def tell(self) -> tuple[Rows, Rows]:
        for one in self.partitions:
            self.decide(one, "STATE_SNAPSHOT", new_leader=1, new_isr=one.isr, replicas=one.original, min_isr=2)
        self.by(-1, "CLOCK_SAMPLE", None, subject_node_id=1, offset_us=SKEW_US, err_us=500)
        while self.now < self.end:
            self.now += self.dice.choice([1, SECOND, 7 * SECOND, 20 * SECOND])
            self.meta += 1
            deeds = (self.submit, self.join, self.join, self.join, self.lag, self.end_one, self.fetch, self.snapshot,
                     self.refuse)  # fmt: skip
            deed = self.dice.choice(deeds)
            deed(self.dice.choice(self.partitions))
        return self.rows, [row for row in self.rows if self.dice.random() < 0.03]

    def by(self, node: int, event_type: str, one: _Partition | None, **said: Any) -> None:
        self.seqs[node] = self.seqs.get(node, 0) + 1
        at = self.now + (SKEW_US if node == 1 else 0)
        place: dict[str, Any] = {"topic": None, "topic_id": None, "partition": None}
        if one is not None:
            place = {"topic": "t", "topic_id": "T", "partition": one.number, "leader_epoch": one.epoch}
            place |= {"partition_epoch": one.pe}
        self.rows.append({
            "schema_version": 1, "cluster_id": self.cluster_id, "event_type": event_type, "node_id": node,
            "incarnation": 1, "seq": self.seqs[node], "ts_wall_us": at, "ts_mono_us": at, **place, **said,
        })  # fmt: skip

    def decide(self, one: _Partition, event_type: str, **said: Any) -> None:
        if event_type == "STATE_SNAPSHOT" or self.dice.random() < 0.95:
            self.by(-1, event_type, one, meta_offset=self.meta, **said)

    def change_isr(self, one: _Partition, isr: list[int], cause: str) -> None:
        old, one.isr = one.isr, isr
        self.decide(one, "ISR_CHANGE", old_isr=old, new_isr=isr, cause=cause, initiator="leader")

    def step(self, one: _Partition, phase: str, target: list[int], was: list[int]) -> None:
        removing = [] if phase == "queued" else [node for node in was if node not in target]
        self.decide(one, "REASSIGNMENT", phase=phase, replicas=one.replicas, adding_replicas=one.adding,
                    removing_replicas=removing, target_replicas=target, min_isr=2,
                    original_replicas=one.original if one.target else [])  # fmt: skip

    def submit(self, one: _Partition) -> None:
        """A target: it starts at once, waits for its turn, or takes the place of the one that runs."""
        target = self.dice.sample(NODES, self.dice.choice([2, 3, 3, 4]))
        one.pe += 1
        if one.target or self.dice.random() < 0.5:
            self.start(one, target)
        else:
            one.queued = target
            self.step(one, "queued", target, one.original)

    def start(self, one: _Partition, target: list[int]) -> None:
        was, one.target, one.queued = one.replicas, target, []
        self.step(one, "started", target, was)

    def join(self, one: _Partition) -> None:
        if missing := [node for node in one.replicas if node not in one.isr]:
            one.pe += 1
            self.change_isr(one, [*one.isr, *missing[: self.dice.choice([1, 1, 2])]], "catch_up")

    def lag(self, one: _Partition) -> None:
        if slow := [node for node in one.isr if node != one.leader]:
            one.pe += 1
            gone = self.dice.choice(slow)
            self.change_isr(one, [node for node in one.isr if node != gone], "lag")

    def end_one(self, one: _Partition) -> None:
        """The move that runs ends; where that makes room, a queued one starts in the same step."""
        if not one.target:
            return
        phase = self.dice.choice(["completed", "completed", "cancelled"])
        target, was, adding = one.target, one.replicas, one.adding
        final = target if phase == "completed" else one.original
        one.pe += 1
        one.epoch += 1
        one.original, one.target = final, []
        isr = [node for node in one.isr if node in final] or final[:1]
        self.decide(one, "REASSIGNMENT", phase=phase, replicas=final, adding_replicas=adding, target_replicas=target,
                    removing_replicas=[node for node in was if node not in target], min_isr=2)  # fmt: skip
        self.change_isr(one, isr, "reassign")
        old, one.leader = one.leader, one.leader if one.leader in isr else isr[0]
        self.decide(one, "LEADER_CHANGE", old_leader=old, new_leader=one.leader, old_leader_epoch=one.epoch - 1,
                    new_leader_epoch=one.epoch, reason="reassign")  # fmt: skip
        for other in self.partitions:
            if other.queued and self.dice.random() < 0.7:
                other.pe += 1
                self.start(other, other.queued)

    def refuse(self, _: _Partition) -> None:
        """A process refuses callers; one with too many kinds of refusals says only how many there were."""
        principal = self.dice.choice(["client/a", "client/b", None])
        rule = self.dice.choice(["client/* DENY READ topic LITERAL t", "role", None]) if principal else None
        method = self.dice.choice(["LeaderService/Fetch", "LeaderService/Produce"]) if principal else None
        self.by(self.dice.choice([-1, 1, 2]), "AUDIT", None, principal=principal, rule=rule, method=method,
                outcome="REFUSED", n_coalesced=self.dice.choice([1, 1, 40]), before={}, after={})  # fmt: skip

    def fetch(self, one: _Partition) -> None:
        """The leader's reports of fetches; some are lost."""
        for node in one.replicas:
            if node != one.leader and self.dice.random() < 0.9:
                self.by(one.leader, "FETCH_STATS", one, interval_ms=10_000, replica_id=node, n_fetch=3,
                        bytes=self.dice.randrange(10_000),
                        throttled_ms=self.dice.choice([0, 0, 700]))  # fmt: skip

    def snapshot(self, one: _Partition) -> None:
        """The whole state again, as at the beginning of an hour; of a move that runs with its original replicas."""
        original, adding = (one.original, one.adding) if one.target else ([], [])
        self.decide(one, "STATE_SNAPSHOT", new_leader=one.leader, new_isr=one.isr, replicas=one.replicas, min_isr=2,
                    original_replicas=original, adding_replicas=adding)  # fmt: skip
