"""Seeded random histories of one partition, in the form of an export, with the faults that occur in practice.

Lost transitions, a controller whose clock goes back, leaders that keep sampling after they were deposed, silent
leaders, unreported advances, copies of events, deleted topics. Times are in microseconds; a history lasts a few
minutes.
"""

from __future__ import annotations

import json
import random
from typing import Any

from strandline_analytics.stream.feed import FIELDS

SECOND = 1_000_000
REPLICAS = [1, 2, 3]


def random_history(seed: int, *, cluster_id: str = "c", start_us: int = 1_795_270_000 * SECOND) -> list[dict[str, Any]]:
    """Rows of the export, in the order in which they happened."""
    return _History(random.Random(seed), cluster_id, start_us).tell(seconds=150)


def story_text(row: dict[str, Any]) -> str:
    """A row in the state machine's input form."""
    return json.dumps({name: row[name] for name in FIELDS if row.get(name) is not None})


class _History:
    def __init__(self, dice: random.Random, cluster_id: str, start_us: int) -> None:
        self.dice = dice
        self.cluster_id = cluster_id
        self.now = start_us
        self.rows: list[dict[str, Any]] = []
        self.seqs: dict[tuple[int, int], int] = {}
        self.pe = dice.randrange(5)
        self.epoch = 0
        self.meta = 0
        self.leader = 1
        self.isr = list(REPLICAS)
        self.adding: list[int] = []
        self.hw = self.leo = 0
        self.sample_id = 0
        self.clock_back = 0

    def tell(self, *, seconds: int) -> list[dict[str, Any]]:
        self.controller("CONFIG_CHANGE", min_isr=2, replicas=REPLICAS, topic_created=True)
        self.controller("LEADER_CHANGE", new_leader=1, old_leader=-1)
        self.controller("STATE_SNAPSHOT", new_leader=1, new_isr=self.isr, replicas=REPLICAS, min_isr=2)
        end = self.now + seconds * SECOND
        while self.now < end:
            self.now += self.dice.randrange(1, 2 * SECOND)
            deed = self.dice.choices(
                [self.sample, self.append, self.advance, self.change_isr, self.elect, self.snapshot, self.pause,
                 self.zombie, self.echo, self.clock, self.move],
                [40, 25, 20, 8, 3, 3, 1, 2, 2, 1, 4],
            )[0]  # fmt: skip
            deed()
        if self.dice.random() < 0.3:
            self.pe += 1
            self.controller("CONFIG_CHANGE", topic_deleted=True)
        doubled = [dict(row) for row in self.rows if self.dice.random() < 0.03]
        return sorted(self.rows + doubled, key=lambda row: (row["reported_us"], row["seq"]))

    def row(self, node_id: int, event_type: str, ts: int, **columns: Any) -> None:
        incarnation = 1
        seq = self.seqs[node_id, incarnation] = self.seqs.get((node_id, incarnation), 0) + 1
        common = {
            "schema_version": 1, "cluster_id": self.cluster_id, "event_type": event_type, "node_id": node_id,
            "incarnation": incarnation, "seq": seq, "ts_wall_us": ts, "ts_mono_us": ts, "topic": "t", "topic_id": "T",
            "partition": 0, "reported_us": self.now,
        }  # fmt: skip
        self.rows.append(common | columns)

    def controller(self, event_type: str, **columns: Any) -> None:
        self.meta += 1
        self.row(
            -1, event_type, self.now - self.clock_back, leader_epoch=self.epoch, partition_epoch=self.pe,
            meta_offset=self.meta, **columns,
        )  # fmt: skip

    def sample(self) -> None:
        if self.leader < 0:
            return
        self.sample_id += 1
        for replica in REPLICAS:
            at_hw = replica == self.dice.choice([2, 3]) or self.dice.random() < 0.3
            self.row(
                self.leader, "REPLICA_SAMPLE", self.now, leader_epoch=self.epoch, sample_id=self.sample_id,
                interval_ms=self.dice.choice([1_000, 4_000]), replica_id=replica, leader_leo=self.leo, hw=self.hw,
                durable_leo=self.hw if at_hw else self.leo, in_maximal_isr=replica in self.isr,
                leo=self.leo if replica == self.leader else self.hw, in_isr=replica in self.isr,
            )  # fmt: skip

    def append(self) -> None:
        self.leo += self.dice.randrange(1, 9)
        if self.dice.random() < 0.7:
            self.sample()

    def advance(self) -> None:
        if self.hw == self.leo or self.leader < 0:
            return
        old, self.hw = self.hw, self.dice.randrange(self.hw + 1, self.leo + 1)
        if self.dice.random() < 0.8:
            at = self.now - self.dice.randrange(100_000)
            self.row(
                self.leader, "HW_ADVANCE", self.now, leader_epoch=self.epoch, old_hw=old, new_hw=self.hw, first_us=at,
                last_us=self.dice.randrange(at, self.now + 1), cause="fetch",
            )  # fmt: skip

    def change_isr(self) -> None:
        old = list(self.isr)
        others = [replica for replica in (*REPLICAS, *self.adding) if replica != self.leader]
        replica = self.dice.choice(others)
        self.isr = [r for r in self.isr if r != replica] if replica in self.isr else [*self.isr, replica]
        self.pe += 1
        if self.dice.random() < 0.9:
            self.controller("ISR_CHANGE", old_isr=old, new_isr=list(self.isr))

    def elect(self) -> None:
        old, self.leader = self.leader, self.dice.choice([1, 2, 3, -1])
        self.epoch += 1
        self.pe += 1
        self.leo = self.hw
        if self.dice.random() < 0.9:
            self.controller("LEADER_CHANGE", old_leader=old, new_leader=self.leader)
            if self.leader > 0 and self.leader not in self.isr:
                before, self.isr = self.isr, [*self.isr, self.leader]
                self.controller("ISR_CHANGE", old_isr=before, new_isr=list(self.isr))
        elif self.leader > 0 and self.leader not in self.isr:
            self.isr = [*self.isr, self.leader]

    def snapshot(self) -> None:
        replicas = [*self.adding, *REPLICAS]
        state = {"new_leader": self.leader, "new_isr": list(self.isr), "replicas": replicas, "min_isr": 2}
        self.controller("STATE_SNAPSHOT", **state)

    def move(self) -> None:
        """A move to node 4 begins, or is cancelled."""
        self.pe += 1
        is_lost = self.dice.random() < 0.1
        begins, adding, old = not self.adding, [4], list(self.isr)
        self.adding = adding if begins else []
        self.isr = old if begins else [replica for replica in old if replica != 4]
        step = {"adding_replicas": adding, "removing_replicas": [], "target_replicas": [4, *REPLICAS], "min_isr": 2}
        if not is_lost:
            self.controller(
                "REASSIGNMENT", phase="started" if begins else "cancelled", replicas=[*self.adding, *REPLICAS], **step
            )
        if self.isr != old and not is_lost:
            self.controller("ISR_CHANGE", old_isr=old, new_isr=list(self.isr), cause="reassign")

    def pause(self) -> None:
        self.now += 15 * SECOND

    def zombie(self) -> None:
        if self.epoch and self.leader != 1:
            epoch, leader = self.epoch, self.leader
            self.epoch, self.leader = epoch - 1, 1
            self.sample()
            self.epoch, self.leader = epoch, leader

    def echo(self) -> None:
        if self.leader > 0:
            self.row(self.leader, "ISR_CHANGE", self.now, leader_epoch=self.epoch, partition_epoch=self.pe,
                     old_isr=REPLICAS, new_isr=self.isr)  # fmt: skip

    def clock(self) -> None:
        self.clock_back = self.dice.choice([0, 0, 700_000])
