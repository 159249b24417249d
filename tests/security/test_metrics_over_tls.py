"""Metrics by HTTPS: available to callers of the same authority, with the current certificate."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from certificates import Certificates
from secured_cluster import secured_cluster

from strandline.cli.local.authority import new_authority
from strandline.metrics.families import LED, Role
from strandline.metrics.figures import Figure
from strandline.metrics.port import MetricsPort
from strandline.rpc.tls import TlsFiles


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    """The certificates of one cluster."""
    return Certificates.at(tmp_path)


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


def shown_serial(address: str, believed: Path, shown: TlsFiles) -> object:
    """The serial number of the certificate that the port shows."""
    context = ssl.create_default_context(cafile=str(believed))
    context.load_cert_chain(shown.cert, shown.key)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert()
        return certificate and certificate["serialNumber"]


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
    before = await asyncio.to_thread(shown_serial, address, client.ca, client)

    made.files("replica/1")
    after = await asyncio.to_thread(shown_serial, address, client.ca, client)

    assert before != after


async def test_the_setting_is_enough(tmp_path: Path) -> None:
    """With `metrics_tls` a controller and a node use the certificate of their process."""
    settings = {"metrics_bind": "127.0.0.1:0", "metrics_tls": True}
    async with secured_cluster(tmp_path, (1,), **settings) as cluster:
        client = cluster.made.files("client/prometheus")
        addresses = [cluster.controller.metrics_address, cluster.nodes[0].metrics_address]
        texts = [await asyncio.to_thread(scrape, address, client.ca, client) for address in addresses]

    assert all("strandline_build_info" in text for text in texts)
