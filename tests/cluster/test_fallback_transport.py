"""A cluster whose services are on grpcio, the fallback of the transport, while its clients are on their own."""

from __future__ import annotations

import pytest
from client_load import Load
from running_cluster import Probe
from settled_logs import assert_settled

CLUSTER = {"rules": {"grpc_transport": "grpcio"}}

pytestmark = pytest.mark.slow


async def test_a_cluster_on_grpcio_loses_nothing_with_its_leader(probe: Probe, topic: str) -> None:
    """The leader is killed during writes and returns: every acknowledged record is in every log."""
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        before = await probe.partition(topic)
        await probe.kill_together(before.leader_id)
        after = await probe.new_epoch(topic, before.leader_epoch)
        await load.acked(50)
        await probe.restart(before.leader_id)
        await probe.in_sync(topic)
        await load.finish()
    await assert_settled(probe, topic)

    assert after.leader_id != before.leader_id
