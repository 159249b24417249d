"""Metrics, analytics and the topic source over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import urllib.error
import urllib.request
from asyncio import to_thread
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import pytest_asyncio
from certificates import Certificates, settings_of, shown_serial
from issued_tokens import TokenIssuer
from secured_cluster import build_node, secured_cluster, until

from strandline.cli.local.authority import new_authority
from strandline.client import Producer, TopicPartition
from strandline.core.messages import Endpoint
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.metrics.families import LED, Role
from strandline.metrics.figures import Figure
from strandline.metrics.port import MetricsPort
from strandline.rpc.channels import open_channel, parse_endpoint, target
from strandline.rpc.tls import Tls, TlsFiles
from strandline.v1 import analytics_service_pb2 as pb, analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.service.process import AnalyticsServer
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.tables.destination import Destination
from strandline_analytics.topic.cluster import ask
from strandline_analytics.topic.connection import close_idle
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range


@pytest_asyncio.fixture
async def address(made: Certificates) -> AsyncIterator[str]:
    """The address of a node's metrics by HTTPS."""
    port = MetricsPort(Role.REPLICA, lambda: (Figure(LED, 4),))
    served = port.open("127.0.0.1:0", made.tls("replica/1").https_context)
    assert served is not None
    yield served
    await asyncio.to_thread(port.close)


def scrape(address: str, believed: Path, shown: TlsFiles | None) -> str:
    """The text of one scrape with a client's certificate, or without one."""
    context = ssl.create_default_context(cafile=str(believed))
    if shown is not None:
        context.load_cert_chain(shown.cert, shown.key)
    with urllib.request.urlopen(f"https://{address}/metrics", timeout=10, context=context) as answer:
        return str(answer.read().decode())


async def test_a_caller_of_the_authority_is_answered(made: Certificates, address: str) -> None:
    """Any certificate of the authority is enough: the right to read metrics does not depend on the role."""
    client = made.files("client/prometheus")

    text = await asyncio.to_thread(scrape, address, client.ca, client)

    assert "strandline_leader_partitions 4.0" in text


@pytest.mark.parametrize("stranger", ["without a certificate", "of another authority", "by plain HTTP"])
async def test_strangers_get_nothing(made: Certificates, address: str, tmp_path: Path, stranger: str) -> None:
    """The handshake fails, and the next scrape is answered."""
    client = made.files("client/prometheus")
    foreign = Certificates(tmp_path / "foreign", new_authority("c1", 1)).files("client/prometheus")

    attempts = {
        "without a certificate": lambda: scrape(address, client.ca, None),
        "of another authority": lambda: scrape(address, client.ca, foreign),
        "by plain HTTP": lambda: urllib.request.urlopen(f"http://{address}/metrics", timeout=10),
    }

    with pytest.raises(OSError):  # noqa: PT011 - which of its kinds depends on which side notices first
        await asyncio.to_thread(attempts[stranger])

    assert "strandline_leader_partitions" in await asyncio.to_thread(scrape, address, client.ca, client)


async def test_a_silent_caller_stops_no_scrape(made: Certificates, address: str) -> None:
    """A connection that never begins its handshake does not block others."""
    client = made.files("client/prometheus")
    host, _, port = address.rpartition(":")

    with socket.create_connection((host, int(port))):
        text = await asyncio.wait_for(asyncio.to_thread(scrape, address, client.ca, client), 8)

    assert "strandline_leader_partitions" in text


async def test_a_new_certificate_is_shown_at_the_next_scrape(made: Certificates, address: str) -> None:
    """No restart: the files are checked for every connection."""
    client = made.files("client/prometheus")
    before = await asyncio.to_thread(shown_serial, parse_endpoint(address), client)

    made.files("replica/1")
    after = await asyncio.to_thread(shown_serial, parse_endpoint(address), client)

    assert before != after


async def test_the_setting_is_enough(tmp_path: Path) -> None:
    """With `metrics_tls` a controller and a node use the certificate of their process."""
    settings = {"metrics_bind": "127.0.0.1:0", "metrics_tls": True}
    async with secured_cluster(tmp_path, (1,), **settings) as cluster:
        client = cluster.made.files("client/prometheus")
        addresses = [cluster.controller.metrics_address, cluster.nodes[0].metrics_address]
        texts = [await asyncio.to_thread(scrape, address, client.ca, client) for address in addresses]

    assert all("strandline_build_info" in text for text in texts)


async def test_series_of_topics_are_for_who_may_know_of_all(tmp_path: Path) -> None:
    """With rules, a node's port with series for each partition answers administrators, and clients with the grant."""
    settings = {"metrics_bind": "127.0.0.1:0", "metrics_tls": True, "authorization": "acl"}
    async with secured_cluster(tmp_path, (1,), **settings) as cluster:
        node = build_node(
            tmp_path / "node-2", cluster.for_nodes, cluster.made, 2, **settings, metrics_per_partition=True
        )
        await node.start()
        await cluster.admin.create_acls([_describes("client/y", ResourceType.TOPIC, "*")])
        shown = {who: cluster.made.files(who) for who in ("client/x", "client/y", "admin/x")}

        async def answers() -> set[str]:
            found = set()
            for who, files in shown.items():
                with contextlib.suppress(urllib.error.HTTPError):
                    await asyncio.to_thread(scrape, node.metrics_address, files.ca, files)
                    found.add(who)
            return found

        async def heard() -> bool:
            return await answers() == {"client/y", "admin/x"}

        await until(heard, "those who may know of every topic are answered, and nobody else")
        await node.shut_down()


def _describes(principal: str, resource: ResourceType, name: str) -> Rule:
    return Rule(principal, Permission.ALLOW, Operation.DESCRIBE, resource, Pattern.LITERAL, name)


# The analytics server with TLS: clients may call it, nodes and strangers may not.


DEADLINE_S = 10


async def _ask(endpoint: Endpoint, tls: Tls | None) -> str:
    async with open_channel(endpoint, tls=tls) as channel:
        stub: Any = pb_grpc.AnalyticsServiceStub(channel)
        try:
            await stub.ListStats(pb.ListStatsRequest(), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("own", ["client/analytics", "admin/analytics"])
async def test_clients_ask_and_nobody_else(tmp_path: Path, own: str) -> None:
    """Clients and administrators may call the server, whose own certificate is a client's with hosts."""
    made = Certificates.at(tmp_path / "certs")
    (tmp_path / "export").mkdir()
    settings = AnalyticsSettings(
        inputs=(str(tmp_path / "export"),),
        destination=Destination(out=str(tmp_path / "results")),
        **cast(Any, settings_of(made.files(own))),
    )
    # Spark computes answers; no request here needs one.
    server = AnalyticsServer(settings, cast(Any, None))
    endpoint = await server.start()
    try:
        found = {who: await _ask(endpoint, made.tls(who)) for who in ("client/x", "admin/x", "replica/1")}
        found["nobody"] = await _ask(endpoint, None)
    finally:
        await server.shut_down()

    assert found == {"client/x": "OK", "admin/x": "OK", "replica/1": "PERMISSION_DENIED", "nobody": "UNAVAILABLE"}


async def test_the_analytics_server_keeps_to_a_clusters_rules(tmp_path: Path) -> None:
    """With `rules_of` a client that may describe the cluster and every topic may ask, until that is taken back."""
    (tmp_path / "export").mkdir()
    async with secured_cluster(tmp_path, (1,)) as cluster:
        server = AnalyticsServer(
            AnalyticsSettings(
                inputs=(str(tmp_path / "export"),),
                destination=Destination(out=str(tmp_path / "results")),
                rules_of=target(cluster.for_clients),
                **cast(Any, settings_of(cluster.made.files("client/analytics"))),
            ),
            cast(Any, None),
        )
        endpoint = await server.start()
        grants = [
            _describes("client/x", ResourceType.TOPIC, "*"),
            _describes("client/x", ResourceType.CLUSTER, "kafka-cluster"),
        ]

        async def outcome(*wanted: str) -> bool:
            return tuple([await _ask(endpoint, cluster.made.tls(who)) for who in ("client/x", "admin/x")]) == wanted

        try:
            assert await outcome("PERMISSION_DENIED", "OK")
            await cluster.admin.create_acls(grants)
            await until(lambda: outcome("OK", "OK"), "the rules are followed")
            await cluster.admin.delete_acls(grants)
            await until(lambda: outcome("PERMISSION_DENIED", "OK"), "they are taken back")
        finally:
            await server.shut_down()


# The Spark data source reads a topic of a cluster with TLS as a client, and names the wrong option.


async def test_a_topic_is_read_as_a_client(tmp_path: Path) -> None:
    """Its extent and its records are read with the paths in tlsCert, tlsKey and tlsCa."""
    async with secured_cluster(tmp_path, (1,)) as cluster:
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        files = cluster.made.files("client/spark")
        bootstrap = target(cluster.for_clients)
        async with Producer(bootstrap, **settings_of(files)) as producer:
            for value in (b"a", b"b"):
                await (await producer.send("t", value))
        given = {
            "bootstrap": bootstrap,
            "topic": "t",
            "tlsCert": str(files.cert),
            "tlsKey": str(files.key),
            "tlsCa": str(files.ca),
        }
        options = read_options(given, streaming=False)

        found = await to_thread(ask, options.connection, options.selection)
        extent = found.partitions[TopicPartition("t", 0)]
        wanted = OffsetRange(topic="t", partition=0, start=extent.start, end=extent.end)
        batches = await to_thread(lambda: list(read_range(options, wanted)))

        wrong = read_options({**given, "tlsKey": "", "tlsCa": ""}, streaming=False)
        with pytest.raises(TopicFailed, match="option tlsCert: tls_key and tls_ca must be given too"):
            await to_thread(ask, wrong.connection, wrong.selection)
        await to_thread(close_idle)

    assert (extent.start, extent.end) == (0, 2)
    assert [value for batch in batches for value in batch.to_pydict()["value"]] == [b"a", b"b"]


async def test_a_topic_is_read_with_the_token_in_a_file(tmp_path: Path) -> None:
    """tokenFile and tlsCa are enough; a file that cannot be read is named with its option."""
    issuer, token = TokenIssuer(tmp_path), tmp_path / "token"
    async with secured_cluster(tmp_path, (1,), token_issuers=issuer.file()) as cluster:
        await cluster.admin.create_topic("t", partitions=2, replication_factor=1)
        ca = str(cluster.made.files("client/spark").ca)
        given = {"bootstrap": target(cluster.for_clients), "topic": "t", "tlsCa": ca, "tokenFile": str(token)}
        options = read_options(given, streaming=False)

        with pytest.raises(TopicFailed, match=f"option tokenFile: token file {token} cannot be read"):
            await to_thread(ask, options.connection, options.selection)
        token.write_text(issuer.token())
        found = await to_thread(ask, options.connection, options.selection)
        await to_thread(close_idle)

    assert set(found.partitions) == {TopicPartition("t", 0), TopicPartition("t", 1)}
