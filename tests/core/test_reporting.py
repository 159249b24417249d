"""What a data node reports about its partitions, and when: samples, advances, ISR changes with members' progress."""

from __future__ import annotations

from typing import Any

from cluster_of_cores import Cluster
from core_builders import TP, batch, node_image, partition_image

from strandline.core.log import events
from strandline.core.log.effects import SendAlterPartition
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import AlterPartitionAnswer, IsrDecision
from strandline.core.state_events import NAME_OF, Member, Moment
from strandline.core.types import Acks, Durability, LeaderEpoch, NodeId, Offset, PartitionEpoch, Rules

SAMPLING = NodeTimings(sample_min_ms=1_000, sample_max_ms=10_000)


def leading(timings: NodeTimings = SAMPLING, rules: Rules | None = None, **image: Any) -> Cluster:
    """Node 1 leads epoch 5 of three replicas; the others exist only in requests."""
    cluster = Cluster(1, timings=timings, rules=rules)
    cluster.push(1, partition_image(**{"epoch": 5, "isr": (1, 2, 3), "replicas": (1, 2, 3), **image}))
    return cluster


def rows(cluster: Cluster, event_type: str, node: int = 1) -> list[dict[str, Any]]:
    """The fields of every such event so far."""
    return [emit.event._asdict() for emit in cluster.emitted(node, event_type)]


def test_without_sampling_only_transitions_are_reported() -> None:
    """A node without an export makes no samples, no advances, no counts."""
    cluster = leading(NodeTimings())
    cluster.produce()
    cluster.fetch(1, by=2)
    cluster.fetch(1, by=3)
    cluster.advance(30_000)

    assert {NAME_OF[type(e.event)] for e in cluster.wished(1, type(cluster.emitted(1, "EPOCH_START")[0]))} <= {
        "EPOCH_START",
        "ALTER_PARTITION",
    }


def test_a_sample_is_one_row_for_each_replica_of_one_moment() -> None:
    """The leader's own row has what its commits cover; the other rows have what it knows of each follower."""
    cluster = leading()
    cluster.produce(batch(), batch())
    cluster.fetch(1, by=2)
    cluster.advance(1_100)
    last = rows(cluster, "REPLICA_SAMPLE")[-3:]

    assert len({one["sample_id"] for one in last}) == 1
    assert [(one["replica_id"], one["leo"], one["in_isr"], one["expected_state"]) for one in last] == [
        (1, 2, True, "member"),
        (2, 1, True, "member"),
        (3, None, True, "member"),
    ]
    assert {(one["leader_leo"], one["hw"], one["hw_next_append_ms"], one["interval_ms"]) for one in last} == {
        (2, 0, 0, 10_000)
    }
    assert last[0]["leo_bytes"] - last[0]["hw_bytes"] == cluster.log(1).sizes.bytes_between(0, 2)


def test_a_partition_that_changes_is_sampled_once_a_second_and_an_idle_one_every_ten() -> None:
    """A change triggers a sample; the longest silence is what each row declares."""
    cluster = leading()
    for _ in range(50):
        cluster.produce()
        cluster.advance(100)
    busy = len({one["sample_id"] for one in rows(cluster, "REPLICA_SAMPLE")})
    cluster.advance(1_100)
    before = len({one["sample_id"] for one in rows(cluster, "REPLICA_SAMPLE")})
    for _ in range(25):  # fetches at the log end keep both in sync and change nothing
        cluster.fetch(0, by=2)
        cluster.fetch(0, by=3)
        cluster.advance(1_000)
    idle = len({one["sample_id"] for one in rows(cluster, "REPLICA_SAMPLE")}) - before

    assert 5 <= busy <= 7
    assert 2 <= idle <= 4


def test_an_advance_names_its_cause_and_who_had_held_it_back() -> None:
    """The last member's fetch moves the HW."""
    cluster = leading()
    cluster.produce()
    cluster.fetch(1, by=2)
    cluster.fetch(1, by=3)
    (advance,) = rows(cluster, "HW_ADVANCE")

    assert (advance["old_hw"], advance["new_hw"], advance["cause"], advance["blocking_replicas"]) == (
        0,
        1,
        "fetch",
        (3,),
    )


def test_the_end_of_a_stall_is_sampled_on_both_sides() -> None:
    """Just before: the old HW with the blocker's new position; just after: the new one."""
    cluster = leading()
    cluster.produce()
    cluster.fetch(1, by=2)
    cluster.advance(3_000)
    before = rows(cluster, "REPLICA_SAMPLE")
    cluster.fetch(1, by=3)
    added = rows(cluster, "REPLICA_SAMPLE")[len(before) :]

    assert [one["hw"] for one in added] == [0, 0, 0, 1, 1, 1]


def test_a_removal_carries_the_progress_of_the_removed() -> None:
    """The leader's event has what only it knows, with samples just before and just after."""
    cluster = leading()
    cluster.produce()
    cluster.fetch(1, by=2)
    cluster.advance(5_000)
    seen = len(rows(cluster, "REPLICA_SAMPLE"))
    away = [node_image(1), node_image(2), node_image(3, fenced=True)]
    cluster.push(1, partition_image(epoch=5, version=2, isr=(1, 2), replicas=(1, 2, 3)), nodes=away)
    (change,) = rows(cluster, "ISR_CHANGE")
    samples = rows(cluster, "REPLICA_SAMPLE")[seen:]

    assert (change["old_isr"], change["new_isr"], change["partition_epoch"]) == ((1, 2, 3), (1, 2), 2)
    assert (change["initiator"], change["cause"], change["added"]) == ("controller", "node_fenced", ())
    assert change["removed"] == (Member(NodeId(3), last_caught_up_ms=Moment(0)),)
    assert [one["in_isr"] for one in samples if one["replica_id"] == 3][:2] == [True, False]
    assert samples[-1]["expected_state"] == "down"


def test_a_proposal_is_reported_with_its_attempt_and_its_latency() -> None:
    """The proposal, then its result, with the same number."""
    cluster = leading(NodeTimings(), isr=(1,))
    cluster.fetch(0, by=2)
    cluster.now += 40
    (request,) = [e.request for e in cluster.wished(1, SendAlterPartition)]
    decision = IsrDecision(TP, None, NodeId(1), LeaderEpoch(5), (NodeId(1), NodeId(2)), PartitionEpoch(2))
    answer = AlterPartitionAnswer(partitions=(decision,))
    cluster.step(1, events.AlterPartitionAnswered(cluster.now, request.request_sequence, answer))

    assert [(one["phase"], one["request_id"], one["latency_us"]) for one in rows(cluster, "ALTER_PARTITION")] == [
        ("proposed", 1, None),
        ("result", 1, 40_000),
    ]
    (change,) = rows(cluster, "ISR_CHANGE")
    assert (change["initiator"], change["cause"]) == ("leader", "catch_up")
    assert change["added"] == (Member(NodeId(2), Offset(0), Moment(0), Moment(0)),)


def test_an_attempt_without_an_answer_is_reported() -> None:
    """A time-out names the attempt; the next one has its own number."""
    cluster = leading(NodeTimings(), isr=(1,))
    cluster.fetch(0, by=2)
    cluster.step(1, events.AlterPartitionFailed(cluster.now, 1, "gone"))
    cluster.advance(200)

    assert [(one["phase"], one["request_id"]) for one in rows(cluster, "ALTER_PARTITION")] == [
        ("proposed", 1),
        ("timeout", 1),
        ("proposed", 2),
    ]


def test_the_acknowledged_offset_is_what_clients_received() -> None:
    """acks=1 with page-cache is acknowledged at once, above the HW; acks=all never is."""
    cluster = leading(rules=Rules(durability=Durability.PAGE_CACHE))
    cluster.produce(acks=Acks.ALL)
    cluster.advance(1_100)
    all_only = rows(cluster, "REPLICA_SAMPLE")[-1]
    cluster.produce(acks=Acks.LEADER)
    cluster.advance(1_100)
    with_one = rows(cluster, "REPLICA_SAMPLE")[-1]

    assert (all_only["acked_offset"], all_only["hw"]) == (0, 0)
    assert (with_one["acked_offset"], with_one["hw"]) == (2, 0)


def test_fetches_are_counted_for_ten_seconds() -> None:
    """The summary has the count, the longest gap, and errors by name."""
    cluster = leading()
    for gap_ms in (100, 700, 100):
        cluster.advance(gap_ms)
        cluster.fetch(0, by=2)
    cluster.fetch(0, by=2, epoch=4)
    cluster.advance(11_000)
    counted = [one for one in rows(cluster, "FETCH_STATS") if one["replica_id"] == 2]

    assert (counted[0]["n_fetch"], counted[0]["max_gap_us"]) == (3, 700_000)
    assert counted[0]["n_error"] == {"FENCED_LEADER_EPOCH": 1}


def test_a_follower_samples_itself() -> None:
    """A follower reports its own LEO, HW and the leader it fetches from."""
    cluster = Cluster(1, 2, timings=SAMPLING)
    cluster.push_all(partition_image())
    cluster.settle()
    cluster.produce()
    cluster.settle()
    cluster.advance(2_200, settle=True)

    last = rows(cluster, "LOCAL_SAMPLE", node=2)[-1]
    assert (last["leo"], last["hw"], last["fetch_leader_id"], last["interval_ms"]) == (1, 1, 1, 10_000)
