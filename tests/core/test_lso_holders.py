"""Which transactions a leader reports as holding the LSO of its partition back, since when, and what it says of the
others."""

from __future__ import annotations

from typing import Any

from cluster_of_cores import Cluster
from core_builders import TP, F, L, partition_image
from transactional_producer import Transactions

from strandline.core.types import Durability, Rules

RULES = Rules(durability=Durability.PAGE_CACHE)


def leading(*, isr: tuple[int, ...] = (1,)) -> Cluster:
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
    cluster = leading()
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
    cluster = leading()
    transaction = Transactions(cluster)
    transaction.send()
    cluster.advance(4_000)
    transaction.end(commit=False)

    (row,) = decided(cluster)

    assert (row["producer_id"], row["producer_epoch"], row["first_offset"], row["marker_offset"]) == (7, 0, 0, 1)
    assert (row["outcome"], row["held_ms"], row["n_coalesced"], row["first_ms"]) == ("abort", 4_000, 1, 4_000)


def test_short_transactions_are_one_row_in_ten_seconds_for_each_outcome() -> None:
    """Their times are added up; no producer is named, because there may be many."""
    cluster = leading()
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
    cluster = leading()
    first, second = Transactions(cluster, 7), Transactions(cluster, 8)
    first.send()
    cluster.advance(500)
    second.send()
    cluster.advance(1_500)
    first.end()
    cluster.advance(1_500)

    rows = opened(cluster)

    assert [(row["producer_id"], row["held_since_ms"], row["txn_start_ms"]) for row in rows] == [
        (7, 0, 0),
        (8, 2_000, 500),
    ]


def test_a_marker_above_the_hw_decides_nothing() -> None:
    """It may still be lost with this leader (X12)."""
    cluster = leading(isr=(1, 2))
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
    cluster = leading(isr=(1, 2))
    Transactions(cluster).send()
    cluster.advance(3_000)

    assert opened(cluster) == []


def test_it_is_repeated_once_a_minute_and_said_to_hang_once() -> None:
    """Longer than any producer may ask for: a coordinator that knew it would have ended it."""
    cluster = leading()
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
    """Nobody else knows of those transactions."""
    cluster = leading()
    transaction = Transactions(cluster)
    transaction.send()
    transaction.end()
    cluster.push(1, partition_image(isr=(2,), replicas=(1, 2), leader=2, epoch=4, version=2))

    assert [row["n_coalesced"] for row in decided(cluster)] == [1]


def test_a_partition_without_transactions_is_not_remembered() -> None:
    """After its last transaction is reported nothing is looked at for plain batches."""
    cluster = leading()
    transaction = Transactions(cluster)
    transaction.send()
    transaction.end()
    cluster.advance(11_000)

    assert not cluster.cores[L]._reports._lso.watched  # type: ignore[attr-defined]
