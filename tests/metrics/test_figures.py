"""Metric values: of groups, of transactions, and ages computed from samples."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, running_nodes
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from scraping import LOOPBACK, scraped
from tests.core.groups.groups_alone import GroupsAlone, Topics

from strandline.core.control.state import ClusterHeader, ClusterState
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.shard import Shard, ShardState
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.reporting import HOUR_MS, GroupReporting
from strandline.core.log.effects import Effect, Emit
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import PartitionImage, TopicImage
from strandline.core.producer_ids import ProducerIdBlocks
from strandline.core.state_events import CoordinatorLoad, GroupChange
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TxnState
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from strandline.metrics import families as f
from strandline.metrics.families import FAMILIES, MetricType
from strandline.metrics.figures import Figure, Histogram, Spread, Tally, controller_figures
from strandline.metrics.groups import GroupCounts, transaction_figures
from strandline.metrics.node import HeldBack, StalledMoves, StandingRecords
from strandline.metrics.port import metrics_of
from strandline.rpc.channels import open_channel
from strandline.runtime.patterns import Re2Patterns
from strandline.v1 import group_service_pb2 as pb, group_service_pb2_grpc as pb_grpc

STATE = TopicPartition("state", 0)


class Counted:
    """Groups of one shard after another, whose reports are counted as a node counts its own."""

    def __init__(self) -> None:
        self.groups = GroupsAlone(Topics(foo=4))
        self.counts = GroupCounts(lambda: self.groups.now_ms)
        self.shards: list[Any] = []

    def serve(self, epoch: int = 1, *, load_ms: int = 0) -> None:
        """A coordinator of this epoch reads the log so far, which takes so long, and serves."""
        self.reports = Reports(STATE, LeaderEpoch(epoch))
        machine = GroupMachine(Re2Patterns(), self.groups.settings, GroupReporting(self.reports, samples=False))
        for record in self.groups.log:
            machine.apply(record)
        self.groups.machine = machine
        machine.excuse(self.groups.context)
        self.shards = [shard_of(machine, ShardState.ACTIVE, epoch)]
        self.reports.add(CoordinatorLoad(100, len(self.groups.log), load_ms, LeaderEpoch(epoch)))
        self.groups.tick()
        self.count()

    def count(self, after_ms: int = 0) -> None:
        """Count what was reported; then time passes."""
        out: list[Effect] = []
        self.reports.leave(out)
        for effect in out:
            assert isinstance(effect, Emit)
            if isinstance(effect.event, GroupChange):
                self.counts.changed(effect.event)
            elif isinstance(effect.event, CoordinatorLoad):
                self.counts.loaded(effect.event)
        self.groups.now_ms += after_ms

    def settle(self, *member_ids: str) -> None:
        """Members that do as they are asked."""
        self.groups.settle(*member_ids)
        self.count()

    def values(self) -> dict[str, float]:
        """The series by name and label; of a histogram its number and its sum."""
        found: dict[str, float] = {}
        for family, value, labels in self.counts.figures(self.shards):
            name = "".join([family.name, *(f" {label}" for label in labels)])
            if isinstance(value, Spread):
                found |= {f"{name} count": value.cumulative[-1], f"{name} sum": value.total}
            else:
                found[name] = value
        return found


def shard_of(machine: GroupMachine, state: ShardState, epoch: int = 1) -> Any:
    """As much of a shard as is read."""
    leader = SimpleNamespace(image=SimpleNamespace(leader_epoch=LeaderEpoch(epoch)))
    return SimpleNamespace(leader=leader, state=state, is_serving=state is ShardState.ACTIVE, machine=machine)


@pytest.fixture
def seen() -> Counted:
    """A shard without groups."""
    counted = Counted()
    counted.serve()
    return counted


def test_a_rebalance_is_counted_once_with_what_began_it(seen: Counted) -> None:
    """It lasts from the change that unsettled the group to the one that settled it; a first member settles at once."""
    seen.groups.join("m1", "foo")
    seen.settle()
    seen.groups.join("m2", "foo")
    seen.count(after_ms=250)
    seen.groups.join("m3", "foo")
    seen.count(after_ms=500)
    during = seen.values()
    seen.settle()
    after = seen.values()

    assert during["group_rebalances_total join"] == after["group_rebalances_total join"] == 2
    assert during["groups assigning"] + during["groups reconciling"] == 1
    assert during["group_oldest_rebalance_seconds"] == 0.75
    assert (after["groups stable"], after["group_members"], after["group_oldest_rebalance_seconds"]) == (1, 3, 0)
    assert after["group_rebalance_seconds count"] == 2
    assert 0.75 <= after["group_rebalance_seconds sum"] < 1


def test_causes_are_told_apart(seen: Counted) -> None:
    """A member that leaves, and a topic that grows, begin rebalances of their own."""
    for member_id in ("m1", "m2"):
        seen.groups.join(member_id, "foo")
    seen.settle()
    seen.groups.topics.put("foo", 6)
    seen.settle()
    seen.groups.beat("m2", -1)
    seen.settle("m1")
    counted = {name: value for name, value in seen.values().items() if name.startswith("group_rebalances_total")}

    assert counted == {
        "group_rebalances_total join": 2,
        "group_rebalances_total interest": 1,
        "group_rebalances_total leave": 1,
    }


def test_what_a_new_coordinator_loads_is_no_rebalance(seen: Counted) -> None:
    """Its load is timed, groups that were there are not counted, and one that rebalances is as old as its first
    report there."""
    seen.groups.join("m1", "foo")
    seen.settle()
    seen.groups.join("m2", "foo")
    seen.count(after_ms=60_000)
    seen.serve(epoch=2, load_ms=3_000)
    seen.count(after_ms=5_000)
    served = seen.values()
    seen.settle()

    assert (served["coordinator_load_seconds count"], served["coordinator_load_seconds sum"]) == (2, 3)
    assert served["group_rebalances_total join"] == 2
    assert served["group_oldest_rebalance_seconds"] == 5
    assert 5 <= seen.values()["group_rebalance_seconds sum"] < 6


def test_a_group_that_is_repeated_has_not_rebalanced(seen: Counted) -> None:
    """What it is is said again each hour, stable or not."""
    seen.groups.join("m1", "foo")
    seen.settle()
    before = seen.values()
    seen.groups.now_ms += HOUR_MS
    seen.groups.beat("m1")
    seen.groups.tick()
    seen.count()

    assert seen.values() == before


def test_a_shard_that_is_led_elsewhere_is_forgotten(seen: Counted) -> None:
    """A rebalance that goes on elsewhere does not count here."""
    for member_id in ("m1", "m2"):
        seen.groups.join(member_id, "foo")
    seen.count(after_ms=1_000)
    here = seen.values()
    seen.shards = []
    away = seen.values()

    assert here["group_oldest_rebalance_seconds"] == 1
    assert (away["group_oldest_rebalance_seconds"], away["group_members"], away["groups stable"]) == (0, 0, 0)


def test_a_shard_that_loads_is_shown_without_its_groups(seen: Counted) -> None:
    """What it has read may not be all."""
    seen.groups.join("m1", "foo")
    seen.shards = [shard_of(seen.groups.machine, ShardState.LOADING)]
    loading = seen.values()

    assert (loading["coordinator_shards loading"], loading["coordinator_shards active"]) == (1, 0)
    assert (loading["group_members"], loading["groups stable"]) == (0, 0)


async def test_commits_are_counted_by_result(tmp_path: Path) -> None:
    """One for each partition: committed, or by the name of the error, also of a partition that does not exist. The
    loads of both coordinators are counted beside them."""
    state = topic(GROUP_STATE, "5d0f3a52-0c0e-4d53-8a55-3f1f0a8f8a01", (1,), partitions=2)
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)), state)
    request = pb.OffsetCommitRequest(group_id="g")
    row = request.topics.add(name=TOPIC)
    row.partitions.add(partition_index=0, committed_offset=5)
    row.partitions.add(partition_index=9, committed_offset=5)
    as_member = pb.OffsetCommitRequest(group_id="g", member_id="m", generation_id_or_member_epoch=3)
    as_member.topics.add(name=TOPIC).partitions.add(partition_index=0, committed_offset=6)
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,):
        assert node.client is not None
        async with open_channel(node.client) as channel:
            stub: Any = pb_grpc.GroupServiceStub(channel)
            # Until its coordinators serve, a node does not know its groups, and rejects commits.
            while (await stub.ListGroups(pb.ListGroupsRequest(), timeout=5)).error_code:  # noqa: ASYNC110 - state
                await asyncio.sleep(0.01)
            await stub.OffsetCommit(request, timeout=5)
            await stub.OffsetCommit(as_member, timeout=5)
        seen = await scraped(node.metrics_address)

    assert seen.value("offset_commits_total", result="committed") == 1
    assert seen.value("offset_commits_total", result="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert seen.value("offset_commits_total", result="UNKNOWN_MEMBER_ID") == 1
    assert seen.value("coordinator_shards", state="active") == seen.value("coordinator_load_seconds_count") == 2
    assert seen.value("groups", state="empty") == 1


# Metric values in a scrape: what is observed is what is exposed.


def _text(*figures: Figure) -> str:
    class _Given(Collector):
        def collect(self) -> list[Metric]:
            return list(metrics_of(figures))

    registry = CollectorRegistry()
    registry.register(_Given())
    return generate_latest(registry).decode()


def test_a_histogram_counts_each_duration_once() -> None:
    """A value on a bound belongs to it, one beyond all bounds to +Inf, and the sum is theirs."""
    histogram = Histogram((0.5, 1.0))
    for seconds in (0.25, 0.5, 0.75, 4.0):
        histogram.observe(seconds)
    text = _text(Figure(f.FSYNC, histogram.spread()))

    assert 'strandline_fsync_seconds_bucket{le="0.5"} 2.0' in text
    assert 'strandline_fsync_seconds_bucket{le="1.0"} 3.0' in text
    assert 'strandline_fsync_seconds_bucket{le="+Inf"} 4.0' in text
    assert "strandline_fsync_seconds_count 4.0" in text
    assert "strandline_fsync_seconds_sum 5.5" in text


def test_a_tally_shows_its_causes_before_they_happen() -> None:
    """A counter that begins at 0 lets Prometheus see the first increase."""
    tally = Tally(f.ISR_SHRINKS, "lag", "other")
    tally.add("lag", 2)
    text = _text(*tally.figures())

    assert 'strandline_isr_shrinks_total{cause="lag"} 2.0' in text
    assert 'strandline_isr_shrinks_total{cause="other"} 0.0' in text


def test_names_and_types_agree() -> None:
    """A counter ends in _total, a histogram in its unit, no name occurs twice, everything has a description."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.endswith("_total") is (family.kind is MetricType.COUNTER), family
        assert family.kind is not MetricType.HISTOGRAM or family.name.endswith("_seconds"), family
        assert family.help.endswith("."), family
        assert ("topic" in family.labels) is family.per_partition, family


# How long an LSO has been held back, computed from samples of LSO and HW alone.


class _Log:
    def __init__(self, partition: int = 0) -> None:
        self.tp = TopicPartition("t", partition)
        self.lso = self.hw = self.leo = Offset(0)

    def at(self, lso: int, hw: int) -> list[ReplicaLog]:
        self.lso, self.hw = Offset(lso), Offset(hw)
        return [cast(Any, self)]

    def ends(self, hw: int, leo: int) -> list[ReplicaLog]:
        self.hw, self.leo = Offset(hw), Offset(leo)
        return [cast(Any, self)]


def test_an_lso_at_the_hw_is_not_held_back() -> None:
    """However long the log is idle."""
    held, log = HeldBack(), _Log()
    held.look(log.at(5, 5), 0)

    assert held.longest_s(log.at(5, 5), 60_000) == 0


def test_the_time_is_that_of_one_transaction() -> None:
    """A HW that goes on changes nothing; an LSO that goes on to the next open transaction begins again."""
    held, log = HeldBack(), _Log()
    held.look(log.at(5, 10), 1_000)
    held.look(log.at(5, 90), 4_000)
    assert held.longest_s(log.at(5, 90), 5_000) == 4.0
    assert held.longest_s(log.at(7, 90), 5_000) == 0

    held.look(log.at(7, 90), 6_000)

    assert held.longest_s(log.at(7, 95), 8_000) == 2.0


def test_the_longest_of_all_partitions_counts() -> None:
    """One that is not led any more is forgotten."""
    held, first, second = HeldBack(), _Log(0), _Log(1)
    held.look(first.at(0, 1), 0)
    held.look([*first.at(0, 1), *second.at(0, 1)], 3_000)
    assert held.longest_s([*first.at(0, 1), *second.at(0, 1)], 4_000) == 4.0

    held.look(second.at(0, 1), 5_000)

    assert held.longest_s([*first.at(0, 1), *second.at(0, 1)], 6_000) == 3.0


# The age of the oldest record above the HW, computed from samples of log end and HW alone.


def test_nothing_above_the_hw_has_no_age() -> None:
    """A committed log is 0 seconds behind, however long it is idle."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.ends(5, 5), 0)

    assert standing.oldest_s(log.ends(5, 5), 60_000) == 0


def test_the_age_is_that_of_the_oldest_record() -> None:
    """Newer appends change nothing; a HW that passes the oldest leaves the next."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.ends(0, 10), 1_000)
    standing.look(log.ends(0, 20), 2_000)

    assert standing.oldest_s(log.ends(0, 20), 5_000) == 4.0
    assert standing.oldest_s(log.ends(10, 20), 5_000) == 3.0
    assert standing.oldest_s(log.ends(20, 20), 5_000) == 0


def test_what_is_remembered_is_bounded() -> None:
    """A HW that does not move for an hour under load keeps its age and a few hundred marks."""
    standing, log = StandingRecords(), _Log()
    for i in range(10_000):
        standing.look(log.ends(0, i + 1), i * 250)

    assert standing.oldest_s(log.ends(0, 10_000), 2_500_000) == 2_500
    assert sum(map(len, standing._marks.values())) <= 256


def test_what_is_not_led_any_more_is_forgotten() -> None:
    """A partition that comes back starts again."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.ends(0, 10), 1_000)
    standing.look([], 2_000)
    standing.look(log.ends(0, 10), 9_000)

    assert standing.oldest_s(log.ends(0, 10), 10_000) == 1.0


# How long the move of a led partition has not come further.


def _moving(isr: tuple[int, ...], leos: dict[int, int | None], *, runs: bool = True) -> LeaderReplica:
    """A leader of 1, 2, 3 whose partition moves to 4 and 5."""
    image = SimpleNamespace(original=(1, 2, 3) if runs else (), adding=(4, 5))
    progress = {node: SimpleNamespace(remote_leo=leo) for node, leo in leos.items()}
    log = SimpleNamespace(tp=TopicPartition("t", 0))
    return cast(Any, SimpleNamespace(image=image, isr=SimpleNamespace(committed=isr), progress=progress, log=log))


def test_a_move_that_copies_or_joins_does_not_stand_still() -> None:
    """What its replicas have fetched counts, and who is in the ISR; what those fetch that have joined does not."""
    moves = StalledMoves()
    for at_ms, leader in (
        (0, _moving((1, 2, 3), {4: None, 5: 10})),
        (1_000, _moving((1, 2, 3), {4: None, 5: 20})),
        (2_000, _moving((1, 2, 3, 5), {4: None, 5: 30})),
        (9_000, _moving((1, 2, 3, 5), {4: None, 5: 40})),
    ):
        moves.look([leader], at_ms)

    assert moves.longest_s(9_000) == 7.0


def test_a_move_that_has_ended_stands_no_more() -> None:
    """Of a partition that does not move, or is led elsewhere now, nothing is remembered."""
    moves = StalledMoves()
    moves.look([_moving((1, 2, 3), {4: 1, 5: 1})], 0)
    moves.look([_moving((1, 2, 3), {4: 1, 5: 1}, runs=False)], 1_000)

    assert moves.longest_s(9_000) == 0


def test_the_controller_counts_moves_and_what_nothing_repairs() -> None:
    """What a move adds is not missing; where replicas are missing, a move that runs or waits is taken to repair it."""
    whole = _image(0, (1, 2, 3))
    moving = replace(whole, tp=TopicPartition("t", 1), replicas=(4, 1, 2, 3), adding=(4,), original=(1, 2, 3))
    waits = replace(_image(2, (1, 2)), queued_target=(1, 2, 4))
    lost = _image(3, (1, 2))
    topic_image = TopicImage(name="t", topic_id="t", partitions=cast(Any, (whole, moving, waits, lost)))
    state = ClusterState(header=ClusterHeader(cluster_id="c"), topics={"t": topic_image})
    found = {(one.family, *one.labels): one.value for one in controller_figures(state)}

    assert found[f.CLUSTER_UNDER_REPLICATED,] == 2
    assert found[f.UNREPAIRED,] == 1
    assert (found[f.REASSIGNING, "running"], found[f.REASSIGNING, "queued"]) == (1, 1)


def _image(index: int, isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        tp=TopicPartition("t", index), replicas=cast(Any, (1, 2, 3)), isr=cast(Any, isr), elr=(), leader=NodeId(1),
        leader_epoch=LeaderEpoch(0), partition_epoch=PartitionEpoch(0), min_isr=1,
    )  # fmt: skip


# How many transactional ids a node coordinates, by state.


def _shard(*states: TxnState, serves: bool = True) -> Shard:
    machine = TransactionMachine(Reports(TopicPartition("s", 0), LeaderEpoch(1)), ProducerIdBlocks())
    for number, state in enumerate(states):
        machine.ids[str(number)] = TransactionalId(
            identity=ProducerIdentity(number, 0), timeout_ms=1_000, state=state, update_ms=0
        )
    return cast(Any, SimpleNamespace(machine=machine, is_serving=serves))


def test_ids_are_counted_by_state() -> None:
    """Of all shards that serve, and every state is there from the start."""
    shards = [
        _shard(TxnState.ONGOING, TxnState.ONGOING, TxnState.PREPARE_COMMIT),
        _shard(TxnState.ONGOING, TxnState.COMPLETE_ABORT),
        _shard(TxnState.EMPTY, serves=False),
        cast(Any, SimpleNamespace(machine=object(), is_serving=True)),
    ]

    assert {figure.labels: figure.value for figure in transaction_figures(shards)} == {
        ("empty",): 0,
        ("ongoing",): 3,
        ("prepare_commit",): 1,
        ("prepare_abort",): 0,
        ("complete_commit",): 0,
        ("complete_abort",): 1,
    }
