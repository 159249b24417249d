"""Seeded random histories of consumer groups, as rows of an export, with the faults that occur in practice.

A cluster has two partitions that are consumed and one of a coordinator. Advances and looks are lost, leaders fall
silent, leaders change, with and without a loss of committed records, coordinators change and their zombies go on,
coordinators repeat what their groups are, commits are forgotten or reset, members come, go and are fenced, events are
lost or there twice, and node 1's clock is off by a time that was measured.
"""

from __future__ import annotations

import random
from typing import Any

Rows = list[dict[str, Any]]
SECOND = 1_000_000
SKEW_US = 900_000
_ERRORS = ("STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


def random_groups(seed: int, cluster_id: str, *, seconds: int = 900) -> tuple[Rows, Rows]:
    """Rows of the export, in the order in which they were written, and those of them that are there once more."""
    return _Groups(random.Random(seed), cluster_id, seconds).tell()


class _Groups:
    def __init__(self, dice: random.Random, cluster_id: str, seconds: int) -> None:
        self.dice, self.cluster_id, self.end = dice, cluster_id, seconds * SECOND
        self.rows: Rows = []
        self.seqs: dict[int, int] = {}
        self.now = SECOND
        self.hw = [dice.randrange(100), dice.randrange(100)]
        self.leaders, self.leader_epochs, self.partition_epochs = [1, 1], [0, 0], [10, 10]
        self.coordinator, self.epoch, self.pe = 2, 0, 10
        self.groups = {name: _Group() for name in ("a", "b")}

    def tell(self) -> tuple[Rows, Rows]:
        for partition in (0, 1):
            self.by(-1, "STATE_SNAPSHOT", ("t", "T", partition), partition_epoch=10, leader_epoch=0, new_leader=1,
                    new_isr=[1, 2, 3], replicas=[1, 2, 3], min_isr=2, meta_offset=partition)  # fmt: skip
        self.by(-1, "STATE_SNAPSHOT", self.own, partition_epoch=10, leader_epoch=0, new_leader=2, new_isr=[1, 2, 3],
                replicas=[1, 2, 3], min_isr=2, meta_offset=2)  # fmt: skip
        self.by(-1, "CLOCK_SAMPLE", (None, None, None), subject_node_id=1, offset_us=SKEW_US, err_us=500, meta_offset=3)
        steps = (
            self.look,
            self.look,
            self.advance,
            self.advance,
            self.commit,
            self.commit,
            self.member,
            self.state,
            self.repeat,
        )
        while self.now < self.end:
            self.now += int(self.dice.expovariate(1 / 1.5) * SECOND) + self.dice.choice([0, 1])
            self.dice.choice(steps)()
            if self.dice.random() < 0.005:
                self.move_coordinator()
            if self.dice.random() < 0.01:
                self.elect()
        return self.rows, [row for row in self.rows if self.dice.random() < 0.03]

    @property
    def own(self) -> tuple[str, str, int]:
        return ("__group_state", "G", 7)

    def by(self, node: int, event_type: str, place: tuple[str | None, str | None, int | None], **said: Any) -> None:
        self.seqs[node] = self.seqs.get(node, 0) + 1
        if node != -1 and self.dice.random() < 0.03:
            return  # Lost.
        at = self.now + (SKEW_US if node == 1 else 0)
        topic, topic_id, partition = place
        self.rows.append({
            "schema_version": 1, "cluster_id": self.cluster_id, "event_type": event_type, "node_id": node,
            "incarnation": 1, "seq": self.seqs[node], "ts_wall_us": at, "ts_mono_us": at, "topic": topic,
            "topic_id": topic_id, "partition": partition, **said,
        })  # fmt: skip

    def look(self) -> None:
        partition = self.dice.randrange(2)
        hw = self.hw[partition]
        for replica in (1, 2, 3):
            self.by(self.leaders[partition], "REPLICA_SAMPLE", ("t", "T", partition), sample_id=self.now,
                    leader_epoch=self.leader_epochs[partition], replica_id=replica,
                    interval_ms=self.dice.choice([1_000, 10_000, 60_000]), leo=hw, durable_leo=hw, leader_leo=hw, hw=hw,
                    acked_offset=hw, in_isr=True, in_maximal_isr=True, expected_state="member")  # fmt: skip

    def advance(self) -> None:
        partition = self.dice.randrange(2)
        old = self.hw[partition]
        self.hw[partition] = new = old + self.dice.randrange(1, 40)
        leader = self.leaders[partition]
        last = self.now + (SKEW_US if leader == 1 else 0)
        first = last - self.dice.choice([0, 0, 90_000])
        self.by(leader, "HW_ADVANCE", ("t", "T", partition), leader_epoch=self.leader_epochs[partition], old_hw=old,
                new_hw=new, first_us=first, last_us=last, n_coalesced=1)  # fmt: skip

    def elect(self) -> None:
        partition, is_unclean = self.dice.randrange(2), self.dice.random() < 0.5
        old, hw = self.leaders[partition], self.hw[partition]
        new = self.leaders[partition] = 4 - old
        self.leader_epochs[partition] += 1
        self.partition_epochs[partition] += 1
        said = {"leader_epoch": self.leader_epochs[partition], "partition_epoch": self.partition_epochs[partition]}
        self.by(-1, "LEADER_CHANGE", ("t", "T", partition), old_leader=old, new_leader=new, **said, meta_offset=self.pe,
                new_leader_epoch=said["leader_epoch"], reason="unclean_election" if is_unclean else "node_fenced",
                election_type="unclean" if is_unclean else "isr")  # fmt: skip
        # A follower learns of the HW late, so a new leader begins below it even where nothing was lost.
        self.hw[partition] = max(0, hw - self.dice.randrange(80))
        self.now += self.dice.choice([0, 40_000])
        start = self.hw[partition] if is_unclean else hw + self.dice.randrange(30)
        self.by(new, "EPOCH_START", ("t", "T", partition), **said, start_offset=start, hw=self.hw[partition])

    def commit(self) -> None:
        partition, name = self.dice.randrange(2), self.dice.choice(["a", "b"])
        stands = self.groups[name].committed.get(partition, max(0, self.hw[partition] - 60))
        kind = self.dice.choice(["on", "on", "on", "still", "still", "reset", "forgotten", "ahead"])
        committed: int | None = {
            "on": min(self.hw[partition], stands + self.dice.randrange(40)),
            "still": stands,
            "reset": self.dice.randrange(self.hw[partition] + 1),
            "forgotten": None,
            "ahead": self.hw[partition] + self.dice.randrange(20),
        }[kind]
        if committed is not None:
            self.groups[name].committed[partition] = committed
        refused = {name: self.dice.randrange(3) for name in _ERRORS if self.dice.random() < 0.2}
        self.by(self.coordinator, "GROUP_OFFSETS", ("t", "T", partition), group_id=name, committed=committed,
                commit_us=self.now, n_commits=self.dice.randrange(4), n_error=refused,
                coordinator_epoch=None if self.dice.random() < 0.05 else self.epoch)  # fmt: skip

    def member(self) -> None:
        name, member_id = self.dice.choice(["a", "b"]), self.dice.choice(["m-1", "m-2"])
        phase = self.dice.choice(["joined", "assigned", "assigned", "assigned", "revoking", "fenced", "gone"])
        assigned = [f"T:{p}" for p in (0, 1) if self.dice.random() < 0.4] if phase in ("assigned", "revoking") else []
        self.groups[name].members[member_id] = (phase, assigned)
        self.by(self.coordinator, "MEMBER_CHANGE", self.own, leader_epoch=self.epoch, group_id=name,
                member_id=member_id, phase=phase, member_epoch=1, assigned=assigned, revoking=[])  # fmt: skip

    def state(self) -> None:
        name = self.dice.choice(["a", "b"])
        group = self.groups[name]
        old, group.state = group.state, self.dice.choice(["Assigning", "Reconciling", "Stable", "Stable", "Empty"])
        n_members = 0 if group.state == "Empty" else self.dice.randrange(1, 3)
        self.by(self.coordinator, "GROUP_CHANGE", self.own, leader_epoch=self.epoch, group_id=name, old_state=old,
                new_state=group.state, group_epoch=1, target_epoch=1, n_members=n_members, cause="join")  # fmt: skip

    def repeat(self) -> None:
        name = self.dice.choice(["a", "b"])
        group = self.groups[name]
        for member_id, (phase, assigned) in group.members.items():
            if phase != "gone":
                self.by(self.coordinator, "MEMBER_CHANGE", self.own, leader_epoch=self.epoch, group_id=name,
                        member_id=member_id, phase=phase, member_epoch=1, assigned=assigned, revoking=[],
                        cause="repeated")  # fmt: skip
        n_members = 0 if group.state == "Empty" else 1
        self.by(self.coordinator, "GROUP_CHANGE", self.own, leader_epoch=self.epoch, group_id=name,
                old_state=group.state, new_state=group.state, group_epoch=1, target_epoch=1, n_members=n_members,
                cause="repeated")  # fmt: skip

    def move_coordinator(self) -> None:
        zombie, old_epoch = self.coordinator, self.epoch
        self.coordinator, self.epoch, self.pe = 5 - zombie, old_epoch + 1, self.pe + 1
        self.by(-1, "LEADER_CHANGE", self.own, partition_epoch=self.pe, leader_epoch=self.epoch, old_leader=zombie,
                new_leader=self.coordinator, new_leader_epoch=self.epoch, reason="requested", election_type="isr",
                meta_offset=self.pe)  # fmt: skip
        self.now += SECOND
        stands = self.groups["a"].committed.get(0)
        self.by(self.coordinator, "GROUP_OFFSETS", ("t", "T", 0), group_id="a", committed=stands, commit_us=self.now,
                n_commits=0, n_error={}, coordinator_epoch=self.epoch)  # fmt: skip
        self.now += SECOND
        self.by(zombie, "GROUP_OFFSETS", ("t", "T", 0), group_id="a", committed=self.hw[0], commit_us=self.now,
                n_commits=1, n_error={}, coordinator_epoch=old_epoch)  # fmt: skip
        self.by(zombie, "GROUP_CHANGE", self.own, leader_epoch=old_epoch, group_id="a", old_state="Stable",
                new_state="Assigning", group_epoch=9, target_epoch=1, n_members=1, cause="join")  # fmt: skip


class _Group:
    def __init__(self) -> None:
        self.state = "Empty"
        self.committed: dict[int, int] = {}
        self.members: dict[str, tuple[str, list[str]]] = {}
