"""A quota with real processes and certificates: a principal is held to its rate for as long as it lasts (C102)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from running_cluster import until

from strandline.cli.local.certificate_folder import FOLDER, add, authority_of, cluster_of, folder_name, tls_of
from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Producer, QuotaChange, QuotaKey
from strandline.rpc.permissions import parse_identity

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

RATE = 500_000
SPAN_S = 30.0
PAYLOAD = b"r" * 20_000
AT_ONCE = 40
"""Records under way of each producer: more than a second of the rate."""


@asynccontextmanager
async def _cluster(directory: Path, *, nodes: int = 1, tls: bool = True) -> AsyncIterator[LocalCluster]:
    local = LocalCluster(
        Plan(
            directory=directory, nodes=nodes, node_settings={"low_space_bytes": "0", "tune": "quota_burst_s=1"}, tls=tls
        )
    )
    try:
        await local.start()
        yield local
        assert [end.sentence for end in await local.stop() if end.code != 0] == []
    finally:
        local.kill()


class _Flood:
    """A client that sends as fast as it is acknowledged."""

    def __init__(self, cluster: LocalCluster, holder: str) -> None:
        self.acked_bytes = 0
        self._settings = tls_of(cluster.directory / FOLDER, holder)
        self._bootstrap = cluster.bootstrap

    async def run(self) -> None:
        """Until cancelled."""
        async with Producer(self._bootstrap, **self._settings) as producer, asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._send(producer))

    async def _send(self, producer: Producer) -> None:
        while True:
            await (await producer.send("t", PAYLOAD))
            self.acked_bytes += len(PAYLOAD)


async def test_a_principal_is_held_to_its_rate_and_its_neighbour_is_not(tmp_path: Path) -> None:
    """Within 10 % over half a minute, as a ratio within one run; who has no quota sends much more meanwhile."""
    async with _cluster(tmp_path) as cluster:
        certs = cluster.directory / FOLDER
        identity = parse_identity(f"strandline://{cluster_of(certs)}/client/other")
        add(certs, authority_of(certs), identity, ["127.0.0.1"], 1)
        async with Admin(cluster.bootstrap, **cluster.client_tls()) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
            change = QuotaChange("client/client", QuotaKey.PRODUCER_BYTE_RATE, RATE)
            assert await admin.alter_quotas([change]) == [None]
            held, free = _Flood(cluster, "client"), _Flood(cluster, folder_name(identity))
            floods = [asyncio.ensure_future(each.run()) for each in (held, free)]

            async def is_held() -> bool:
                return held.acked_bytes > 4 * RATE

            # The burst is used, and more than that was sent under the quota.
            await until(is_held, "the burst is used", timeout_s=60)
            began_s, before = time.monotonic(), (held.acked_bytes, free.acked_bytes)
            await asyncio.wait(floods, timeout=SPAN_S)
            took_s, sent = time.monotonic() - began_s, (held.acked_bytes - before[0], free.acked_bytes - before[1])
            for each in floods:
                each.cancel()
            await asyncio.wait(floods)

    print(
        f"held to {sent[0] / took_s / RATE:.3f} of its rate, its neighbour sent {sent[1] / sent[0]:.1f} times as much"
    )
    assert 0.9 < sent[0] / took_s / RATE < 1.1
    assert sent[1] > 2 * sent[0]


async def test_without_certificates_clients_are_one_principal_and_nodes_are_none(tmp_path: Path) -> None:
    """Two producers share the default's rate; the other node copies what they send, whatever clients may read."""
    async with (
        _cluster(tmp_path, nodes=2, tls=False) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as one,
        Producer(cluster.bootstrap) as other,
    ):
        await admin.create_topic("t", partitions=1, replication_factor=2, configs={"min.insync.replicas": "2"})
        changes = [
            QuotaChange("client/*", QuotaKey.PRODUCER_BYTE_RATE, RATE),
            QuotaChange("client/*", QuotaKey.CONSUMER_BYTE_RATE, 0.001),
        ]
        assert await admin.alter_quotas(changes) == [None, None]
        began_s, sent = time.monotonic(), 0
        while sent < 4 * RATE:
            for producer in (one, other):
                await (await producer.send("t", PAYLOAD))
                sent += len(PAYLOAD)
        took_s = time.monotonic() - began_s
        # A client that leaves shall not wait for its debt.
        assert await admin.alter_quotas([change._replace(value=None) for change in changes]) == [None, None]

    assert took_s > sent / RATE - 1.5
