"""What a data node reports about its partitions, when, and which transactions hold the LSO back."""

from __future__ import annotations

from typing import Any

from cluster_of_cores import Cluster
from core_builders import TP, F, L, batch, node_image, partition_image
from transactional_producer import Transactions

from strandline.core.log.saving_order import NodeTimings
from strandline.core.state_events import NAME_OF, Member, Moment
from strandline.core.types import Acks, Durability, NodeId, Offset, Rules

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
    found = {NAME_OF[type(e.event)] for e in cluster.wished(1, type(cluster.emitted(1, "EPOCH_START")[0]))}

    assert found <= {"EPOCH_START", "ALTER_PARTITION"}


def test_a_sample_is_one_row_for_each_replica_of_one_moment() -> None:
    """The leader's own row has what its commits cover; the other rows have what it knows of each follower."""
    cluster = leading()
    cluster.produce(batch(), batch())
    cluster.fetch(1, by=2)
    cluster.advance(1_100)
    last = rows(cluster, "REPLICA_SAMPLE")[-3:]
    found = [(one["replica_id"], one["leo"], one["in_isr"], one["expected_state"]) for one in last]

    assert len({one["sample_id"] for one in last}) == 1
    assert found == [(1, 2, True, "member"), (2, 1, True, "member"), (3, None, True, "member")]
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
    found = (advance["old_hw"], advance["new_hw"], advance["cause"], advance["blocking_replicas"])

    assert found == (0, 1, "fetch", (3,))


def test_the_end_of_a_stall_is_sampled_on_both_sides() -> None:
    """Just before: the old HW with the blocker's new position; just after: the new one."""
    cluster = leading()
    cluster.produce()
    cluster.fetch(1, by=2)
    cluster.advance(3_000)
    before = rows(cluster, "REPLICA_SAMPLE")
    cluster.fetch(1, by=3)

    assert [one["hw"] for one in rows(cluster, "REPLICA_SAMPLE")[len(before) :]] == [0, 0, 0, 1, 1, 1]


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
    """The proposal is reported, then its result, with the same number."""
    cluster = leading(NodeTimings(), isr=(1,))
    cluster.fetch(0, by=2)
    cluster.now += 40
    cluster.decide(1, 2)
    found = [(one["phase"], one["request_id"], one["latency_us"]) for one in rows(cluster, "ALTER_PARTITION")]

    assert found == [("proposed", 1, None), ("result", 1, 40_000)]
    (change,) = rows(cluster, "ISR_CHANGE")
    assert (change["initiator"], change["cause"]) == ("leader", "catch_up")
    assert change["added"] == (Member(NodeId(2), Offset(0), Moment(0), Moment(0)),)


def test_an_attempt_without_an_answer_is_reported() -> None:
    """A time-out names the attempt; the next one has its own number."""
    cluster = leading(NodeTimings(), isr=(1,))
    cluster.fetch(0, by=2)
    cluster.lose_attempt()
    cluster.advance(200)
    found = [(one["phase"], one["request_id"]) for one in rows(cluster, "ALTER_PARTITION")]

    assert found == [("proposed", 1), ("timeout", 1), ("proposed", 2)]


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


# Which transactions a leader reports as holding the LSO of its partition back, since when, and what it says of the
# others.


RULES = Rules(durability=Durability.PAGE_CACHE)


def leading_lso(*, isr: tuple[int, ...] = (1,)) -> Cluster:
    """Node 1 leads epoch 3 of partition 0; these are transitions, which it reports without an export, too."""
    cluster = Cluster(1, rules=RULES)
    cluster.push(1, partition_image(isr=isr, replicas=isr, epoch=3))
    return cluster


def opened(cluster: Cluster, node: int = L) -> list[dict[str, Any]]:
    """Every TRANSACTION_OPEN so far."""
    return [emit.event._asdict() for emit in cluster.emitted(node, "TRANSACTION_OPEN")]


def decided(cluster: Cluster, node: int = L) -> list[dict[str, Any]]:
    """Every TRANSACTION_DECIDED so far."""
    return [emit.event._asdict() for emit in cluster.emitted(node, "TRANSACTION_DECIDED")]


def test_a_transaction_is_reported_after_a_second_with_its_first_offset_and_since_when() -> None:
    """Once: before a second has passed there is no row, and later ticks add none before the minute is over."""
    cluster = leading_lso()
    cluster.advance(5_000)
    cluster.produce()
    Transactions(cluster).send(2)
    cluster.produce()
    cluster.advance(900)
    assert opened(cluster) == []

    cluster.advance(30_000)

    assert opened(cluster) == [
        {
            "producer_id": 7,
            "producer_epoch": 0,
            "first_offset": 1,
            "held_since_ms": 5_000,
            "txn_start_ms": 5_000,
            "hw": 4,
            "cause": "open",
            "leader_epoch": 3,
            "partition_epoch": 1,
        }
    ]


def test_the_end_of_a_reported_transaction_is_a_row_of_its_own() -> None:
    """With the outcome, the marker's offset and how long the LSO was held back."""
    cluster = leading_lso()
    transaction = Transactions(cluster)
    transaction.send()
    cluster.advance(4_000)
    transaction.end(commit=False)
    (row,) = decided(cluster)

    assert (row["producer_id"], row["producer_epoch"], row["first_offset"], row["marker_offset"]) == (7, 0, 0, 1)
    assert (row["outcome"], row["held_ms"], row["n_coalesced"], row["first_ms"]) == ("abort", 4_000, 1, 4_000)


def test_short_transactions_are_one_row_in_ten_seconds_for_each_outcome() -> None:
    """Their times are added up; no producer is named, because there may be many."""
    cluster = leading_lso()
    transaction = Transactions(cluster)
    for commits in (True, True, False, True):
        transaction.send()
        cluster.advance(100)
        transaction.end(commit=commits)
    cluster.advance(11_000)
    rows = decided(cluster)
    said = [(r["outcome"], r["n_coalesced"], r["held_ms"], r["marker_offset"], r["producer_id"]) for r in rows]
    assert said == [("commit", 3, 300, 7, None), ("abort", 1, 100, 5, None)]
    assert [(row["first_ms"], row["last_ms"]) for row in rows] == [(100, 400), (300, 300)]
    assert opened(cluster) == []


def test_of_two_that_are_open_only_the_earlier_one_holds_the_lso() -> None:
    """The later one begins to hold it when the earlier one is decided; it is as old as it is, all the same."""
    cluster = leading_lso()
    first, second = Transactions(cluster, 7), Transactions(cluster, 8)
    first.send()
    cluster.advance(500)
    second.send()
    cluster.advance(1_500)
    first.end()
    cluster.advance(1_500)
    found = [(row["producer_id"], row["held_since_ms"], row["txn_start_ms"]) for row in opened(cluster)]

    assert found == [(7, 0, 0), (8, 2_000, 500)]


def test_a_marker_above_the_hw_decides_nothing() -> None:
    """A marker above the HW may still be lost with this leader (X12)."""
    cluster = leading_lso(isr=(1, 2))
    transaction = Transactions(cluster)
    transaction.send()
    cluster.fetch(1, by=2)
    cluster.advance(2_000)
    transaction.end()
    cluster.advance(2_000)
    assert decided(cluster) == []

    cluster.fetch(2, by=2)

    assert [row["held_ms"] for row in decided(cluster)] == [4_000]


def test_a_transaction_above_the_hw_holds_nothing_back() -> None:
    """The LSO is the HW then: what readers wait for is replication."""
    cluster = leading_lso(isr=(1, 2))
    Transactions(cluster).send()
    cluster.advance(3_000)

    assert opened(cluster) == []


def test_it_is_repeated_once_a_minute_and_said_to_hang_once() -> None:
    """Longer than any producer may ask for: a coordinator that knew it would have ended it."""
    cluster = leading_lso()
    Transactions(cluster).send()
    cluster.advance(18 * 60_000, tick_ms=1_000)
    causes = [row["cause"] for row in opened(cluster)]

    assert causes[:3] == ["open", "repeated", "repeated"]
    assert causes.count("hanging") == 1
    assert len(causes) == 18


def test_a_new_leader_inherits_what_is_open_and_says_so() -> None:
    """It knows the producer from the log, and counts from the beginning of its own reign."""
    cluster = Cluster(1, 2, rules=RULES)
    cluster.push_all(partition_image(TP))
    cluster.settle()
    Transactions(cluster, 7).send()
    Transactions(cluster, 8).send()
    cluster.settle()
    cluster.advance(3_000, settle=True)
    cluster.push_all(partition_image(TP, leader=2, epoch=1, version=2))
    cluster.settle()
    cluster.advance(3_000, settle=True)
    (row,) = opened(cluster, F)
    assert (row["cause"], row["producer_id"], row["first_offset"], row["leader_epoch"]) == ("inherited", 7, 0, 1)
    assert row["held_since_ms"] == 3_000


def test_the_end_of_a_reign_reports_what_was_joined() -> None:
    """No other process knows of those transactions."""
    cluster = leading_lso()
    transaction = Transactions(cluster)
    transaction.send()
    transaction.end()
    cluster.push(1, partition_image(isr=(2,), replicas=(1, 2), leader=2, epoch=4, version=2))

    assert [row["n_coalesced"] for row in decided(cluster)] == [1]


def test_a_partition_without_transactions_is_not_remembered() -> None:
    """After its last transaction is reported nothing is looked at for plain batches."""
    cluster = leading_lso()
    transaction = Transactions(cluster)
    transaction.send()
    transaction.end()
    cluster.advance(11_000)

    assert not cluster.cores[L]._reports._lso.watched  # type: ignore[attr-defined]
