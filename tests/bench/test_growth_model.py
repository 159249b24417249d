"""The model of growth: lines through points, the nodes that a load needs, and which limit breaks first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from growth.model import (
    BUSY_SHARE,
    Check,
    Costs,
    Deployment,
    Line,
    changes_per_s,
    dead_machine_s,
    machines_for,
    most_partitions,
    node_us_per_s,
    nodes_for,
    uses,
)
from growth.page import growth_block

from strandline.rpc.channels import MAX_MESSAGE_BYTES

COSTS = Costs(
    leader_batch=Line(1_000, 10),
    follower_batch=Line(500, 5),
    idle_partitions=Line(10_000, 20),
    idle_clients=Line(10_000, 100),
    idle_nodes=Line(2_000, 300),
    watching_clients=Line(5_000, 150),
    changes=Line(2_000, 50),
    controller_elections=Line(0, 400),
    node_elections=Line(0, 500),
    partition_kib=Line(60_000, 30),
    client_kib=Line(60_000, 50),
    metadata_by_partitions=Line(100, 80),
    metadata_by_nodes=Line(0, 100),
)
LOAD = Deployment(name="load", bytes_per_s=100 * 64 * 1024, batch_kib=64, partitions=0, nodes=1, clients=0)


def test_a_line_through_exact_points_is_that_line() -> None:
    """Three points of one line give its value at nothing and its slope."""
    assert Line.through([(1, 5), (2, 7), (10, 23)]) == Line(3, 2)


def test_a_line_needs_two_quantities() -> None:
    """Points of one quantity are refused: no slope can be known."""
    with pytest.raises(ValueError, match="two quantities"):
        Line.through([(3, 1), (3, 2)])


def test_a_node_pays_for_leading_following_and_idling() -> None:
    """100 batches of 64 KiB on one node: 1,640 us to lead, twice 820 us to follow, and 10,000 us of idling."""
    assert node_us_per_s(COSTS, LOAD) == 100 * 1_640 + 100 * 2 * 820 + 10_000


@pytest.mark.parametrize("batches_per_s", [1, 400, 5_000, 123_456])
def test_the_fewest_nodes_that_suffice(batches_per_s: int) -> None:
    """With the nodes of the answer a node is not too busy; with one fewer it is, unless three are the least."""
    wanted = replace(LOAD, bytes_per_s=batches_per_s * 64 * 1024, partitions=300)
    nodes = nodes_for(COSTS, wanted)

    assert node_us_per_s(COSTS, replace(wanted, nodes=nodes)) <= BUSY_SHARE * 1e6
    assert nodes == 3 or node_us_per_s(COSTS, replace(wanted, nodes=nodes - 1)) > BUSY_SHARE * 1e6


def test_changes_fill_what_idling_leaves_of_the_controllers_core() -> None:
    """With 100 nodes and 200 clients idling takes 62,000 us of the planned 700,000, and one change 17,000 us."""
    wanted = replace(LOAD, nodes=100, clients=200)

    assert changes_per_s(COSTS, wanted) == pytest.approx((700_000 - 32_000 - 30_000) / (2_000 + 300 * 50))


def test_the_whole_state_fits_one_message_up_to_the_limit() -> None:
    """With the most partitions the state fits a message, with one more it does not."""
    most = most_partitions(COSTS, 10)
    sizes = [COSTS.metadata_by_partitions.at(n) + COSTS.metadata_by_nodes.slope * 10 for n in (most, most + 1)]

    assert sizes[0] <= MAX_MESSAGE_BYTES < sizes[1]


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        (replace(LOAD, nodes=3, bytes_per_s=1e9), "core of a data node"),
        (replace(LOAD, nodes=200, partitions=150_000), "one message with the whole state"),
        (replace(LOAD, nodes=3, clients=10_000), "core of the controller"),
        (replace(LOAD, nodes=3, partitions=20_000), "controller's time for one dead node"),
    ],
)
def test_what_breaks_first_is_first(wanted: Deployment, first: str) -> None:
    """The resource with the largest share of its limit is the first one."""
    shares = [use.share for use in uses(COSTS, wanted)]

    assert uses(COSTS, wanted)[0].resource == first
    assert shares == sorted(shares, reverse=True)


def test_the_page_says_what_breaks_and_by_how_much_the_model_was_wrong() -> None:
    """The block names each deployment's first limit and the error of each check."""
    text = growth_block(COSTS, [Check("a point", predicted=90, measured=100, unit="us")], "abc1234")

    assert "| a point | 90 us | 100 us | -10% |" in text
    assert "**100,000 partitions**: one message with the whole state would need" not in text
    assert "commit abc1234" in text


def test_a_state_above_the_limit_is_on_the_page() -> None:
    """Where the state no longer fits a message, the block says how many bytes it would need."""
    text = growth_block(replace(COSTS, metadata_by_partitions=Line(0, 200)), [], "abc1234")

    assert "- **100,000 partitions**: one message with the whole state would need" in text


def test_workers_share_machines_and_never_less_than_a_machine_for_each_replica() -> None:
    """29 nodes' worth of load are 29 machines, 15 with two workers, 3 with fifty: as many as there are replicas."""
    wanted = replace(LOAD, bytes_per_s=29 * 64 * 1024 * 690_000 / 3_280)

    assert nodes_for(COSTS, wanted) == 29
    assert [machines_for(COSTS, wanted, workers) for workers in (1, 2, 50)] == [29, 15, 3]


def test_a_dead_machine_costs_what_its_workers_cost_together() -> None:
    """Three machines of one node or of ten: what dies leads a third of the partitions, and ten changes are sent."""
    wanted = replace(LOAD, bytes_per_s=0, partitions=3_000, clients=97)

    assert dead_machine_s(COSTS, wanted, 1) == (400 * 1_000 + 2_000 + 50 * 100) / 1e6
    assert dead_machine_s(COSTS, wanted, 10) == (400 * 1_000 + 10 * (2_000 + 50 * 127)) / 1e6


def test_the_page_says_what_workers_change() -> None:
    """Each deployment has its number of machines with one node and with several workers."""
    text = growth_block(COSTS, [], "abc1234")

    assert "--workers 7" in text
    assert len([line for line in text.splitlines() if " nodes) |" in line]) == 4
