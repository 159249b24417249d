"""Whether a cluster is called healthy, and what is said when it is not."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from tests.cli.cluster_images import image, node, partition, view

from strandline.cli.cluster import document, replica_lags, screen, status_rows
from strandline.cli.health import judge
from strandline.cli.node import node_rows
from strandline.core.types import Rules, Truncation


def test_all_in_sync_is_healthy() -> None:
    """A leader everywhere, every replica in the ISR, every node unfenced: nothing to say."""
    health = judge(image(partition(0), partition(1)))

    assert health.healthy
    assert health.available


def test_a_missing_leader_comes_first() -> None:
    """A partition without a leader is the worst news and says what helps."""
    health = judge(image(partition(0, leader=None, isr=(3,)), partition(1)))

    assert not health.available
    assert health.problems[0] == "no leader: orders-0 (start a node of their ISR or ELR)"


def test_under_min_isr_and_under_replicated_are_apart() -> None:
    """One in-sync replica of three is both; two of three with min ISR 2 is only under-replicated."""
    health = judge(image(partition(0, isr=(1,)), partition(1, isr=(1, 2))))

    assert health.problems == (
        "fewer in-sync replicas than min.insync.replicas: orders-0 (acks=all is refused meanwhile)",
        "under-replicated: orders-0, orders-1 (a replica is down or catching up)",
    )


def test_many_partitions_are_counted() -> None:
    """A sentence names four partitions and counts the others."""
    health = judge(image(*(partition(index, leader=None) for index in range(6))))

    assert "orders-3 and 2 more" in health.problems[0]


def test_a_fenced_node_is_named() -> None:
    """A registered node without heartbeats makes the cluster unhealthy even if it holds nothing."""
    health = judge(image(partition(0), nodes=(node(1), node(2), node(3, fenced=True))))

    assert health.problems[0].startswith("fenced: node 3")


def test_status_joins_controller_and_leader() -> None:
    """A row has the committed state and the leader's offsets; a silent leader leaves them empty."""
    rows = status_rows(image(partition(0, isr=(1, 2)), partition(1)), [view(0, 120, 118, {2: 120, 3: 100})])

    assert (rows[0]["leo"], rows[0]["high_watermark"], rows[0]["lag_text"]) == (120, 118, "3: 20")
    assert rows[0]["isr_text"] == "1,2 (not 3)"
    assert (rows[1]["leo"], rows[1]["lag_text"]) == (None, None)


def test_a_replica_that_never_fetched_has_no_lag() -> None:
    """A remote LEO that is unknown in this leader epoch is no number."""
    assert replica_lags(view(0, 120, 118, {2: None, 3: 130})) == {2: None, 3: 0}


def test_the_document_is_for_programs() -> None:
    """The json form holds numbers and lists, none of the table's texts."""
    shown = image(partition(0))
    found = document(shown, judge(shown), status_rows(shown, []))

    assert found["healthy"] is True
    assert "lag_text" not in found["partitions"][0]
    assert found["partitions"][0]["isr"] == [1, 2, 3]


def test_a_cluster_that_may_lose_records_says_so() -> None:
    """Under a rule of history the first lines of the screen and a field of the document are the warning."""
    shown = replace(image(partition(0)), rules=Rules(truncation=Truncation.HIGH_WATERMARK))
    health, rows = judge(shown), status_rows(shown, [])
    console = Console(width=200, file=StringIO(), record=True)
    console.print(screen(shown, health, rows))

    assert "WARNING  truncation=high-watermark" in console.export_text()
    assert "CAN LOSE ACKNOWLEDGED RECORDS" in document(shown, health, rows)["warning"]
    assert document(image(partition(0)), health, rows)["warning"] is None


def test_node_rows_count_what_a_node_holds() -> None:
    """A node's row says how many partitions it leads, holds, and is in sync for."""
    rows = node_rows(image(partition(0), partition(1, leader=2, isr=(1, 2))))

    assert [(row["leads"], row["replicas"], row["in_isr"]) for row in rows] == [(1, 2, 2), (1, 2, 2), (0, 2, 1)]
