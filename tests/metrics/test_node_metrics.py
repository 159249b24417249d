"""Nodes and controllers are scraped as by Prometheus: every metric of their roles is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes
from running_controller import controller, create, join, stub_of
from scraping import LOOPBACK, names_of, scraped

from strandline.core.control.events import ConnectionRefused
from strandline.core.types import NodeEpoch, NodeId
from strandline.metrics.families import Role
from strandline.v1 import controller_service_pb2 as pb


async def test_every_metric_of_a_node_is_scraped(tmp_path: Path) -> None:
    """On a node that leads a partition with a follower every name of the table is exposed, and no other."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2)))
    settings = {"metrics_bind": LOOPBACK, "metrics_per_partition": True}
    async with running_nodes(controller, tmp_path, (1, 2), **settings) as (first, _), leader_stub(first) as stub:
        await stub.Produce(produce(batch("a")), timeout=5)
        seen = await scraped(first.metrics_address)

    assert seen.ours == names_of(Role.REPLICA)
    assert "process_resident_memory_bytes" in seen.families


async def test_what_was_done_is_counted(tmp_path: Path) -> None:
    """Two batches in, a fetch, a rejection: each is in its metric, with its size."""
    first, second = batch("a", "b"), batch("c")
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK, metrics_per_partition=True) as (node,):
        async with leader_stub(node) as stub:
            await stub.Produce(produce(first), timeout=5)
            await stub.Produce(produce(second), timeout=5)
            await stub.Produce(produce(batch("x"), partition=7), timeout=5)
            await stub.Fetch(fetch(0), timeout=5)
        seen = await scraped(node.metrics_address)

    place = {"topic": TOPIC, "partition": "0"}
    assert seen.value("records_in_total") == 3
    assert seen.value("bytes_in_total") == len(first) + len(second)
    assert seen.value("bytes_out_total", to="consumer") == len(first) + len(second)
    assert seen.value("produce_latency_seconds_count") == 3
    assert seen.value("fetch_latency_seconds_count", by="consumer") == 1
    assert seen.value("fsync_seconds_count") >= 1
    assert seen.value("refusals_total", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert seen.value("leader_partitions") == 1
    assert seen.value("log_end_offset", **place) == 3
    assert seen.value("high_watermark", **place) == 3
    assert seen.value("hw_lag_records") == 0


async def test_a_refusal_of_a_whole_call_is_counted(tmp_path: Path) -> None:
    """A request that never reached the core is in the same metric, by its error's name."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,), leader_stub(node) as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Produce(produce(batch("a"), acks=2), timeout=5)
        seen = await scraped(node.metrics_address)

    assert seen.value("refusals_total", error="INVALID_REQUIRED_ACKS") == 1


async def test_partitions_have_series_only_if_a_setting_says_so(tmp_path: Path) -> None:
    """Without the setting no metric carries a topic's name."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,):
        seen = await scraped(node.metrics_address)

    assert [labels for _, labels in seen.samples if any(name == "topic" for name, _ in labels)] == []


async def test_a_produce_that_waits_for_a_follower_is_seen(tmp_path: Path) -> None:
    """A call in purgatory, the records above the HW, what the follower lacks; then its expiry."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,), leader_stub(node) as stub:
        waiting = asyncio.ensure_future(stub.Produce(produce(batch("a", "b"), timeout_ms=3_000), timeout=20))
        async with asyncio.timeout(20):
            while not (seen := await scraped(node.metrics_address)).value("hw_lag_seconds"):
                continue
        await waiting
        after = await scraped(node.metrics_address)

    assert seen.value("purgatory_size", kind="produce") == 1
    assert seen.value("hw_lag_records") == 2
    assert seen.value("replica_lag_records", follower="2") == 2
    assert after.value("purgatory_expires_total", kind="produce") == 1
    assert after.value("purgatory_size", kind="produce") == 0


# A controller is scraped: every metric of its role is there, and shows what it decided.


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
