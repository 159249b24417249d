"""A node is scraped as by Prometheus: every metric of its role is there, and shows what happened to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes
from scraping import LOOPBACK, names_of, scraped

from strandline.metrics.families import Role


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
