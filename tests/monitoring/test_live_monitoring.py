"""A Prometheus scrapes a live cluster: every name is there, and a paused follower is an alert that resolves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from monitoring_files import filled, metrics_in, needs_prometheus, queries, rules
from prometheus_server import PrometheusServer
from running_cluster import SETTLE_S, alarms, plan, started, stopped

from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.local.processes import Service
from strandline.client import Admin, Consumer, Producer

pytestmark = needs_prometheus

TOPIC = "tides"
OF_ETCD = {"strandline_store_quota_ratio"}
PAUSED = {"StrandlineUnderReplicated", "StrandlineAtMinIsr", "StrandlineNodeFenced", "StrandlineProcessDown"}
"""What a follower that stands still is, with three replicas and two in sync at least."""
WORSE = {
    "StrandlineOfflinePartitions",
    "StrandlineUnderMinIsr",
    "StrandlineUncleanElection",
    "StrandlineControllerGone",
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes and a controller with metrics; a topic that node 1 leads, and some load on it."""
    chosen = plan(tmp_path_factory.mktemp("watched"))
    scraped = {"metrics_bind": "127.0.0.1:0"}
    cluster = started(
        replace(
            chosen,
            controller_settings={**chosen.controller_settings, **scraped},
            node_settings={**chosen.node_settings, **scraped, "metrics_per_partition": "true"},
        )
    )
    try:
        asyncio.run(_begin(cluster))
        yield cluster
        ends = stopped(cluster)
    finally:
        cluster.kill()

    assert ends == []
    assert alarms(cluster) == []


async def _begin(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    await _load(cluster)


async def _load(cluster: LocalCluster) -> None:
    """A hundred records produced and consumed."""
    async with Producer(cluster.bootstrap) as producer:
        await asyncio.gather(*(producer.send_and_wait(TOPIC, b"spring") for _ in range(100)))
    async with Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        await consumer.assign([TOPIC])
        assert [record.offset async for record in consumer][:1] == [0]


@pytest.fixture(scope="module")
def prometheus(watched: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A server that scrapes every process, once each of them has answered it."""
    targets = {service.name: _reported(service.directory)["metrics"] for service in watched.services}
    with PrometheusServer(tmp_path_factory.mktemp("prometheus") / "server", targets) as server:
        server.until_scraped(len(targets), timeout_s=SETTLE_S)
        yield server


def _reported(directory: Path) -> dict[str, str]:
    reported: dict[str, str] = json.loads((directory / "endpoint.json").read_text())
    return reported


def test_every_metric_of_rules_and_dashboard_is_scraped(prometheus: PrometheusServer) -> None:
    """No alert and no panel uses a name that a live cluster does not expose; this one has no etcd, which has a size."""
    expressions = [rule["expr"] for rule in rules()] + [query for _, query in queries()]
    wanted = set().union(*map(metrics_in, expressions))
    reported = {name.removesuffix("_bucket") for name in prometheus.names()}

    assert wanted - reported == OF_ETCD


def test_every_query_of_the_dashboard_has_an_answer(watched: LocalCluster, prometheus: PrometheusServer) -> None:
    """Each query is sent as from Grafana, and gets at least one series from a cluster under load."""
    asked = [(title, filled(query)) for title, query in queries() if not _is_quiet(query)]
    prometheus.until_answered(asked, lambda: asyncio.run(_load(watched)), timeout_s=SETTLE_S)


def _is_quiet(query: str) -> bool:
    """Whether a query shows only failures: the annotation of elections."""
    return query.endswith("> 0")


def test_a_paused_follower_is_an_alert_until_it_goes_on(watched: LocalCluster, prometheus: PrometheusServer) -> None:
    """SIGSTOP: under-replicated, at min ISR, fenced, unanswered; nothing worse. SIGCONT: all of it resolves."""
    leader = _leader(prometheus)
    follower = next(service for name, service in _nodes(watched).items() if name != leader)
    prometheus.until("a healthy cluster", set(), PAUSED | WORSE, timeout_s=SETTLE_S)

    follower.pause()
    try:
        prometheus.until("a paused follower", PAUSED, WORSE, timeout_s=SETTLE_S)
        shrinks = prometheus.query('sum(strandline_controller_isr_shrinks_total{cause="node_fenced"})')
    finally:
        follower.resume()
    prometheus.until("a follower that goes on", set(), PAUSED | WORSE, timeout_s=2 * SETTLE_S)

    reported = [line for line in _lines(watched.controller) if line["event"] == "ISR shrank"]
    assert float(shrinks[0]["value"][1]) == 1
    assert [(line["topic"], line["partition"], line["cause"], line["level"]) for line in reported] == [
        (TOPIC, 0, "node_fenced", "warning")
    ]


def _leader(prometheus: PrometheusServer) -> str:
    led = prometheus.query("strandline_leader_partitions == 1")
    assert len(led) == 1, led
    return str(led[0]["metric"]["process"])


def _nodes(watched: LocalCluster) -> dict[str, Service]:
    return {service.name: service for service in watched.nodes.values()}


def test_what_happened_is_in_the_log_line_by_line(watched: LocalCluster, prometheus: PrometheusServer) -> None:
    """Every line is one JSON object; roles, sessions and changes of the ISR have their node, epochs and cause."""
    lines = {service.name: _lines(service) for service in watched.services}
    every = [line for found in lines.values() for line in found]
    leads = [line for line in every if line["event"] == "leads"]
    follows = [line for line in every if line["event"] == "follows"]

    assert all({"timestamp", "level", "event"} <= line.keys() for line in every)
    assert [(line["topic"], line["partition"], line["leader_epoch"]) for line in leads] == [(TOPIC, 0, 0)]
    assert {line["node_id"] for line in follows} == {1, 2, 3} - {leads[0]["node_id"]}
    assert [line for line in lines["controller"] if line["event"] == "partition created"]


def _lines(service: Service) -> list[dict[str, object]]:
    return [json.loads(line) for line in service.output.read_text().splitlines()]
