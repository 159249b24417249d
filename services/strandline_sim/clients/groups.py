"""Consumer groups in a simulated cluster: the topics they read, their members, and the invariants.

Invariants: I28 to I30 at every row (`watched_groups`), I31 as in any run with coordinators, L11 after healing. I29,
I30, I32 and I33 are checked at the end, on what members did and saw (`member_history`).
"""

from __future__ import annotations

from strandline.core.control import messages
from strandline.core.control.topic_configs import MIN_ISR
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of
from strandline.core.coordinator.machine import TopicDirectory
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import Shard, ShardLimits
from strandline.core.groups.group import Group, GroupState
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import GroupSettings
from strandline.core.groups.records import MemberState
from strandline.core.groups.reporting import GroupReporting
from strandline.core.types import TopicPartition
from strandline_sim.checks import group_history
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import WatchedGroups
from strandline_sim.clients.group_members import GroupMember
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose

GROUPS_KEY = 3
"""Key of the draws for the shape of groups, so that a seed without them gives the same run as before."""

STATE_PARTITIONS = 2
FIRST_MEMBER = 70
"""Number of the first member; producers and other consumers have smaller ones."""

_STATE_ID = "00000000-0000-0000-0000-0000000000f0"
_READ_ID = "00000000-0000-0000-0000-0000000000f1"
_SHORT_ID = "00000000-0000-0000-0000-0000000000f2"
READ, SHORT_LIVED = "lines", "short"
"""A topic that grows, and a topic that is deleted."""


class Groups:
    """The groups of one world."""

    settings = GroupSettings(
        session_timeout_ms=1_500,
        min_session_timeout_ms=1_000,
        heartbeat_interval_ms=200,
        assignment_interval_ms=100,
        offsets_retention_check_ms=1_000,
    )

    def __init__(self, world: Cluster) -> None:
        self.world = world
        draw = Draw(world.shape.seed, Purpose.SHAPE, GROUPS_KEY)
        self.draw = draw
        self.coordinators = Coordinators(
            codec=world.codec,
            machines={GROUP_STATE: lambda reports: WatchedGroups(self.settings, GroupReporting(reports))},
            # Small, so that logs are swept and loads take several steps.
            limits=ShardLimits(
                read_bytes=2_048, batch_bytes=1_024, sweep_step_bytes=2_048, sweep_above_bytes=8_192, max_waiting=500
            ),
        )
        self.members: list[GroupMember] = []
        self._history: list[group_history.MemberOperation] = []
        self._commits: dict[str, group_history.OffsetCommitted] = {}
        """Commits by serial; an answered commit replaces its open version."""
        self._is_deleting = False

    @property
    def topics(self) -> tuple[messages.NewTopic, ...]:
        """The topics to create before the members start."""
        nodes = self.world.electable
        alone = ((MIN_ISR, "1"),)
        read = tuple((p, (nodes[p % len(nodes)],)) for p in range(4))
        short = tuple((p, (nodes[p % len(nodes)],)) for p in range(2))
        return (
            messages.NewTopic(GROUP_STATE, _STATE_ID),
            messages.NewTopic(READ, _READ_ID, assignments=read, configs=alone),
            messages.NewTopic(SHORT_LIVED, _SHORT_ID, assignments=short, configs=alone),
        )

    @property
    def is_ready(self) -> bool:
        """Whether the topics exist."""
        return {_STATE_ID, _READ_ID, _SHORT_ID} <= {tp.topic_id for tp in self.world.metadata.partitions}

    def order_topics(self) -> None:
        """Ask the controller for the missing topics."""
        known = {tp.topic_id for tp in self.world.metadata.partitions}
        for topic in tuple(topic for topic in self.topics if topic.topic_id not in known):
            self.world.controller.order(messages.CreateTopics(topics=(topic,)))

    def start(self) -> None:
        """Start the members, and plan the changes of the topics."""
        world, draw = self.world, self.draw
        n_groups = draw.choose((1, 1, 2))
        for number in range(draw.between(2, 6)):
            group_id = f"g{number % n_groups}"
            tp = TopicPartition(_STATE_ID, partition_of(group_id, STATE_PARTITIONS))
            member = GroupMember(world, FIRST_MEMBER + number, tp, group_id, saw=self.saw, committed=self.committed)
            self.members.append(member)
            if member.number not in world.shape.without:
                world.timeline.after(draw.between(50_000, 1_500_000), member.start)
        if draw.chance(500):
            world.timeline.after(draw.between(1_500_000, 5_000_000), self._grow)
        if draw.chance(400):
            world.timeline.after(draw.between(1_500_000, 5_000_000), self._delete)

    def _grow(self) -> None:
        nodes = self.world.electable
        added = ((4, (nodes[0],)), (5, (nodes[1],)))
        grown = messages.GrowingTopic(topic=messages.TopicRef(name=READ), total=6, assignments=added)
        self.world.controller.order(messages.CreatePartitions(topics=(grown,)))
        self.world.coverage.saw("groups: partitions added")

    def _delete(self) -> None:
        self._is_deleting = True
        self.world.controller.order(messages.DeleteTopics(topics=(messages.TopicRef(name=SHORT_LIVED),)))
        self.world.coverage.saw("groups: topic deleted")

    def calm(self) -> None:
        """From now on members only do what they are asked to do."""
        for member in self.members:
            member.is_calm = True

    def saw(self, operation: group_history.Taken | group_history.Given | group_history.Fetch) -> None:
        """Keep what a member did or saw."""
        if isinstance(operation, group_history.Fetch) and self._is_deleting and operation.share.topic == _SHORT_ID:
            # Its offsets go with the topic.
            return
        self._history.append(operation)

    def committed(self, commit: group_history.OffsetCommitted) -> None:
        """A member committed, or learned the outcome of its commit."""
        self._commits[commit.serial] = commit

    def shard_of(self, group_id: str) -> tuple[Shard, TopicDirectory] | None:
        """The shard that coordinates a group, if it serves, and the topics that it sees."""
        tp = TopicPartition(_STATE_ID, partition_of(group_id, STATE_PARTITIONS))
        leader = self.world.leader_of(tp)
        process = self.world.machines[leader].running if leader is not None else None
        if process is None:
            return None
        serving = process.core._coordinators
        shard = serving.shards.get(tp)
        return (shard, serving.topics) if shard is not None and shard.is_serving else None

    def missing(self) -> tuple[str, str] | None:
        """What does not hold yet after healing (L11, L12), or must never happen."""
        for group_id in sorted({member.group_id for member in self.members}):
            found = self.shard_of(group_id)
            if found is None:
                return ("L12", f"the coordinator of {group_id} does not serve")
            machine = found[0].machine
            assert isinstance(machine, GroupMachine)
            if (why := self._unsettled(machine.group(group_id), found[1])) is not None:
                return ("L11", f"{group_id}: {why}")
        return None

    def _unsettled(self, group: Group, directory: TopicDirectory) -> str | None:
        ids = {member.member_id for member in self.members if member.group_id == group.group_id and member.is_member}
        if not ids:
            return None
        if set(group.members) != ids:
            return f"its members are {sorted(group.members)}, alive are {sorted(ids)}"
        if group.state is not GroupState.STABLE:
            return f"it is {group.state}"
        away = [m for m, row in group.current.items() if row.state is MemberState.AWAY]
        topics = [topic for name in (READ, SHORT_LIVED) if (topic := directory.by_name(name)) is not None]
        wanted = {TopicPartition(topic.topic_id, p) for topic in topics for p in range(topic.partition_count)}
        held = set(group.owners.as_dict())
        return f"away: {away}; without a holder: {sorted(wanted ^ held)}" if away or wanted != held else None

    def check_end(self) -> None:
        """Check I29, I30, I32 and I33, once nothing is missing: what the coordinators hold now counts as read."""
        now_us = self.world.timeline.now_us
        for group_id in sorted({member.group_id for member in self.members}):
            found = self.shard_of(group_id)
            assert found is not None
            machine = found[0].machine
            assert isinstance(machine, GroupMachine)
            for tp, value in machine.group(group_id).offset_rows():
                share = group_history.Share(group_id, tp.topic_id, tp.partition)
                self.saw(group_history.Fetch(share, value.offset, value.metadata, now_us, now_us))
        if wrong := group_history.member_anomalies([*self._history, *self._commits.values()]):
            raise Broken(wrong[0].name, wrong[0].sentence)
