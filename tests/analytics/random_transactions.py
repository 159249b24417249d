"""Seeded random histories of transactions, as rows of an export, with the faults that occur in practice.

A cluster has two partitions. Transactions hold their LSO back for seconds or minutes, leaders change and their zombies
go on, decisions and repetitions are lost, rows are there twice, and node 1's clock is off by a time that was measured.
"""

from __future__ import annotations

import random
from typing import Any

Rows = list[dict[str, Any]]
SECOND = 1_000_000
SKEW_US = -700_000


def random_transactions(seed: int, cluster_id: str, *, seconds: int = 1_800) -> tuple[Rows, Rows]:
    """Rows of the export, in the order in which they were written, and those of them that are there once more."""
    return _Transactions(random.Random(seed), cluster_id, seconds).tell()


class _Transactions:
    def __init__(self, dice: random.Random, cluster_id: str, seconds: int) -> None:
        self.dice, self.cluster_id, self.end = dice, cluster_id, seconds * SECOND
        self.rows: Rows = []
        self.seqs: dict[int, int] = {}
        self.now = SECOND
        self.leader, self.epoch, self.pe = [1, 1], [0, 0], [10, 10]
        self.offset = [0, 0]

    def tell(self) -> tuple[Rows, Rows]:
        for partition in (0, 1):
            self.by(-1, "STATE_SNAPSHOT", partition, partition_epoch=10, leader_epoch=0, new_leader=1,
                    new_isr=[1, 2, 3], replicas=[1, 2, 3], min_isr=2, meta_offset=partition)  # fmt: skip
        self.by(-1, "CLOCK_SAMPLE", None, subject_node_id=1, offset_us=SKEW_US, err_us=500, meta_offset=3)
        while self.now < self.end:
            self.now += int(self.dice.expovariate(1 / 4) * SECOND) + self.dice.choice([0, 1])
            self.dice.choice((self.hold, self.hold, self.sums, self.decide, self.maybe_move))(self.dice.randrange(2))
        return self.rows, [row for row in self.rows if self.dice.random() < 0.03]

    def by(self, node: int, event_type: str, partition: int | None, **said: Any) -> None:
        self.seqs[node] = self.seqs.get(node, 0) + 1
        if node != -1 and self.dice.random() < 0.1:
            return  # Lost.
        at = self.now + (SKEW_US if node == 1 else 0)
        topic, topic_id = (None, None) if partition is None else ("t", "T")
        self.rows.append({
            "schema_version": 1, "cluster_id": self.cluster_id, "event_type": event_type, "node_id": node,
            "incarnation": 1, "seq": self.seqs[node], "ts_wall_us": at, "ts_mono_us": at, "topic": topic,
            "topic_id": topic_id, "partition": partition, **said,
        })  # fmt: skip

    def who(self, partition: int) -> tuple[int, dict[str, Any]]:
        """The leader, or the one before it, which does not know that it was deposed."""
        is_zombie = self.epoch[partition] > 0 and self.dice.random() < 0.1
        epoch = self.epoch[partition] - is_zombie
        leader = 1 + epoch % 2
        return leader, {"leader_epoch": epoch, "partition_epoch": self.pe[partition] - is_zombie}

    def hold(self, partition: int) -> None:
        """A transaction holds the LSO back until it is decided, or until nothing more is reported of it."""
        leader, known = self.who(partition)
        shift = SKEW_US if leader == 1 else 0
        self.offset[partition] += self.dice.randrange(1, 50)
        named = {"producer_id": self.dice.randrange(3), "producer_epoch": 0, "first_offset": self.offset[partition]}
        since = self.now + shift
        self.now += SECOND
        for cause in ["open", *["repeated"] * self.dice.randrange(4)]:
            self.by(leader, "TRANSACTION_OPEN", partition, held_since_us=since, txn_start_us=since, cause=cause,
                    hw=self.offset[partition] + 9, **named, **known)  # fmt: skip
            self.now += self.dice.choice([SECOND, 60 * SECOND])
        if self.dice.random() < 0.8:
            at = self.now + shift
            self.decided(leader, partition, held_ms=(at - since) // 1_000, first_us=at, last_us=at, n_coalesced=1,
                         **named, **known)  # fmt: skip

    def sums(self, partition: int) -> None:
        """What short transactions came to."""
        leader, known = self.who(partition)
        at = self.now + (SKEW_US if leader == 1 else 0)
        self.decided(leader, partition, held_ms=self.dice.randrange(5_000), first_us=at - 9 * SECOND, last_us=at,
                     n_coalesced=self.dice.randrange(1, 90), **known)  # fmt: skip

    def decide(self, partition: int) -> None:
        """A coordinator decides, or reports something else of a transactional id."""
        leader, known = self.who(partition)
        at = self.now + (SKEW_US if leader == 1 else 0)
        cause = self.dice.choice(["committed", "aborted", "timeout", "fenced", "completed", "marker_refused"])
        is_sum = cause == "committed" and self.dice.random() < 0.5
        place = {"leader_epoch": None} if cause == "marker_refused" else {}
        self.by(leader, "TRANSACTION_CHANGE", partition, cause=cause,
                transactional_id=None if is_sum else self.dice.choice("ab"),
                txn_start_us=None if is_sum else at - self.dice.randrange(1, 99) * SECOND,
                n_coalesced=self.dice.randrange(2, 99) if is_sum else 1, **known | place)  # fmt: skip

    def decided(self, leader: int, partition: int, **said: Any) -> None:
        outcome = self.dice.choice(["commit", "commit", "abort"])
        self.by(leader, "TRANSACTION_DECIDED", partition, outcome=outcome, marker_offset=self.offset[partition], **said)

    def maybe_move(self, partition: int) -> None:
        """Nodes 1 and 2 take turns, but not often."""
        if self.dice.random() < 0.2:
            self.epoch[partition] += 1
            self.pe[partition] += 1
            old, new = self.leader[partition], 1 + self.epoch[partition] % 2
            self.leader[partition] = new
            self.by(-1, "LEADER_CHANGE", partition, partition_epoch=self.pe[partition],
                    leader_epoch=self.epoch[partition], old_leader=old, new_leader=new, reason="preferred",
                    old_leader_epoch=self.epoch[partition] - 1, new_leader_epoch=self.epoch[partition],
                    meta_offset=100 + sum(self.pe))  # fmt: skip
