"""A controller is scraped: every metric of its role is there, and shows what it decided."""

from __future__ import annotations

from pathlib import Path

from running_controller import controller, create, join, stub_of
from scraping import LOOPBACK, names_of, scraped

from strandline.core.control.events import ConnectionRefused
from strandline.core.types import NodeEpoch, NodeId
from strandline.metrics.families import Role
from strandline.v1 import controller_service_pb2 as pb

OF_ETCD = {"strandline_store_db_bytes", "strandline_store_quota_ratio"}


async def test_every_metric_of_a_controller_is_scraped(tmp_path: Path) -> None:
    """Every name of the table is exposed, and no other; the size of etcd belongs to those that use it."""
    async with controller(tmp_path, metrics_bind=LOOPBACK) as process, stub_of(process) as stub:
        await join(stub, 1)
        seen = await scraped(process.metrics_address)

    assert seen.ours == names_of(Role.CONTROLLER) - OF_ETCD


async def test_a_lost_node_is_seen(tmp_path: Path) -> None:
    """The node is fenced, its partition offline; the session's end has its cause."""
    async with controller(tmp_path, metrics_bind=LOOPBACK) as process, stub_of(process) as stub:
        joined = await join(stub, 1)
        await create(stub, "tides", factor=1)
        before = await scraped(process.metrics_address)
        await stub.Heartbeat(
            pb.HeartbeatRequest(node_id=1, node_epoch=joined.node_epoch, cluster_id=joined.cluster_id, want_fence=True),
            timeout=5,
        )
        after = await scraped(process.metrics_address)

    assert [before.value(name) for name in ("active_nodes", "offline_partitions")] == [1, 0]
    assert [after.value(name) for name in ("active_nodes", "offline_partitions")] == [0, 1]
    assert (before.value("fenced_nodes", node="1"), after.value("fenced_nodes", node="1")) == (0, 1)
    assert before.value("cluster_partitions") == 1
    assert after.value("node_sessions_ended_total", cause="requested") == 1
    assert after.value("metadata_offset") > before.value("metadata_offset")
    assert after.value("metadata_commit_seconds_count") > 0


async def test_a_removed_node_is_seen_no_more(tmp_path: Path) -> None:
    """A node that was removed has no series of its own left, and the others keep theirs."""
    async with controller(tmp_path, metrics_bind=LOOPBACK) as process, stub_of(process) as stub:
        await join(stub, 1)
        gone = await join(stub, 2)
        refused = ((NodeId(2), NodeEpoch(gone.node_epoch)),)
        process.driver.step(ConnectionRefused(process.driver.clock(), refused))
        await stub.UnregisterNode(pb.UnregisterNodeRequest(node_id=2), timeout=5)
        seen = await scraped(process.metrics_address)

    nodes = {labels for name, labels in seen.samples if name == "strandline_fenced_nodes"}
    assert nodes == {frozenset({("node", "1")})}


async def test_the_creation_of_a_topic_is_no_election(tmp_path: Path) -> None:
    """The first leader of a new topic is not counted as an election."""
    async with controller(tmp_path, metrics_bind=LOOPBACK) as process, stub_of(process) as stub:
        await join(stub, 1)
        await create(stub, "tides", factor=1)
        seen = await scraped(process.metrics_address)

    elections = {labels: value for (name, labels), value in seen.samples.items() if "leader_elections" in name}
    assert set(elections.values()) == {0}
