"""A node is scraped as Prometheus would: every metric of its role is there, and says what was done to it."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes
from prometheus_client.parser import text_string_to_metric_families

from strandline.metrics.families import FAMILIES, Role
from strandline.replica.node import ReplicaNode

LOOPBACK = "127.0.0.1:0"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def _text(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


async def _scraped(node: ReplicaNode) -> Series:
    text = await asyncio.to_thread(_text, node.metrics_address)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _value(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


def _names(series: Series) -> set[str]:
    return {name for name, _ in series}


async def test_every_metric_of_a_node_is_scraped(tmp_path: Path) -> None:
    """No name of the table is missing on a node that leads a partition with a follower, and none is beyond it."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2)))
    async with running_nodes(controller, tmp_path, (1, 2), metrics_bind=LOOPBACK, metrics_per_partition=True) as (
        first,
        _,
    ):
        async with leader_stub(first) as stub:
            await stub.Produce(produce(batch("a")), timeout=5)
        names = _names(await _scraped(first))

    expected = {
        f"{family.full_name}_bucket" if family.kind == "histogram" else family.full_name
        for family in FAMILIES
        if Role.REPLICA in family.roles
    }
    ours = {name for name in names if name.startswith("strandline_")}
    assert expected - ours == set()
    assert {name.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket") for name in ours} == {
        name.removesuffix("_bucket") for name in expected
    }
    assert "process_resident_memory_bytes" in names


async def test_what_was_done_is_counted(tmp_path: Path) -> None:
    """Two batches in, a fetch, a refusal: each is in its metric, with its size."""
    first, second = batch("a", "b"), batch("c")
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK, metrics_per_partition=True) as (node,):
        async with leader_stub(node) as stub:
            await stub.Produce(produce(first), timeout=5)
            await stub.Produce(produce(second), timeout=5)
            await stub.Produce(produce(batch("x"), partition=7), timeout=5)
            await stub.Fetch(fetch(0), timeout=5)
        series = await _scraped(node)

    place = {"topic": TOPIC, "partition": "0"}
    assert _value(series, "strandline_records_in_total") == 3
    assert _value(series, "strandline_bytes_in_total") == len(first) + len(second)
    assert _value(series, "strandline_bytes_out_total", to="consumer") == len(first) + len(second)
    assert _value(series, "strandline_produce_latency_seconds_count") == 3
    assert _value(series, "strandline_fetch_latency_seconds_count", by="consumer") == 1
    assert _value(series, "strandline_fsync_seconds_count") >= 1
    assert _value(series, "strandline_refusals_total", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert _value(series, "strandline_leader_partitions") == 1
    assert _value(series, "strandline_log_end_offset", **place) == 3
    assert _value(series, "strandline_high_watermark", **place) == 3
    assert _value(series, "strandline_hw_lag_records") == 0


async def test_partitions_have_series_only_if_a_setting_says_so(tmp_path: Path) -> None:
    """Without it no metric carries a topic's name."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,):
        series = await _scraped(node)

    assert [labels for _, labels in series if any(name == "topic" for name, _ in labels)] == []


async def test_a_produce_that_waits_for_a_follower_is_seen(tmp_path: Path) -> None:
    """A call in purgatory, the records above the HW, what the follower lacks; then its expiry."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2)))
    async with running_nodes(controller, tmp_path, metrics_bind=LOOPBACK) as (node,), leader_stub(node) as stub:
        waiting = asyncio.ensure_future(stub.Produce(produce(batch("a", "b"), timeout_ms=1_500), timeout=10))
        async with asyncio.timeout(10):
            while not _value(series := await _scraped(node), "strandline_hw_lag_seconds"):
                continue
        await waiting
        after = await _scraped(node)

    assert _value(series, "strandline_purgatory_size", kind="produce") == 1
    assert _value(series, "strandline_hw_lag_records") == 2
    assert _value(series, "strandline_replica_lag_records", follower="2") == 2
    assert _value(after, "strandline_purgatory_expires_total", kind="produce") == 1
    assert _value(after, "strandline_purgatory_size", kind="produce") == 0
