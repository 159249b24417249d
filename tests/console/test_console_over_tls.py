"""The console with a cluster over TLS: it is a client with a certificate, and has that certificate's permissions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from http_calls import ask, create, fresh_form
from running_cluster import alarms, plan, started, stopped
from running_console import console_here

from strandline.cli.local.local_cluster import LocalCluster

_KNOWN_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node and a controller, with certificates; at the end each must stop cleanly."""
    running = started(plan(tmp_path_factory.mktemp("cluster"), nodes=1, tls=True))
    try:
        yield running
        ends = stopped(running)
    finally:
        running.kill()
    assert ends == []
    assert alarms(running) == []


async def _says(address: str, words: str) -> None:
    deadline = time.monotonic() + _KNOWN_S
    while words not in (page := (await ask(address, "/")).text):
        assert time.monotonic() < deadline, page
        await asyncio.sleep(0.05)


async def test_a_client_may_look_and_an_admin_may_create(cluster: LocalCluster) -> None:
    """With a client's certificate the pages are complete and a creation is rejected; with an admin's it succeeds."""
    async with console_here(cluster.bootstrap, allow_changes=True, **cluster.client_tls("client")) as address:
        await _says(address, "Nothing is wrong.")
        token, headers = await fresh_form(address)
        refused = await create(address, headers, token=token, name="mine", replication_factor="1")
        assert (refused.status, 'id="refusal"' in refused.text) == (422, True)

    async with console_here(cluster.bootstrap, allow_changes=True, **cluster.client_tls("admin")) as address:
        await _says(address, "Nothing is wrong.")
        token, headers = await fresh_form(address)
        made = await create(address, headers, token=token, name="mine", replication_factor="1")
        assert (made.status, made.headers["location"]) == (303, "/topics?created=mine")


async def test_without_a_certificate_nothing_is_known(cluster: LocalCluster) -> None:
    """A console with a certificate of another authority shows that nothing answers, not an empty healthy cluster."""
    async with console_here(cluster.bootstrap) as address:
        await _says(address, "Nothing is known yet: no controller has answered")
