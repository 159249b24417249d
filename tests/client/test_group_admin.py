"""What an administrator asks of groups goes to their coordinators, and a gap is never taken for an answer."""

from __future__ import annotations

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster

from strandline.client import Admin, CommitFailed, GroupsIncomplete, Refused
from strandline.core.errors import ErrorCode
from strandline.records.codec import NewRecord, encode_batch


async def test_groups_are_deleted_at_their_coordinator() -> None:
    """It is found by a node's hint, asked again while it loads, and each group has its own outcome."""
    async with fake_cluster(nodes=2) as cluster:
        groups = cluster.groups
        groups.has_topic, groups.coordinator, groups.named, groups.epoch = True, 1, 0, 7
        groups.committed["g"] = {(TOPIC, 0): 1}
        groups.refusals.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with Admin(cluster.bootstrap) as admin:
            assert await admin.delete_groups(["g"]) == {"g": None}
            missing = (await admin.delete_groups(["nobody"]))["nobody"]

    assert missing is not None
    assert missing.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.committed == {}


async def test_positions_are_altered_in_one_request() -> None:
    """A group with members refuses them, and says so by partition."""
    async with fake_cluster(partitions=2) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.alter_group_offsets("g", {(TOPIC, 0): 1, (TOPIC, 1): 2})
        cluster.groups.refused_partitions = {0: ErrorCode.UNKNOWN_MEMBER_ID, 1: ErrorCode.UNKNOWN_MEMBER_ID}
        with pytest.raises(CommitFailed) as failed:
            await admin.alter_group_offsets("g", {(TOPIC, 0): 5, (TOPIC, 1): 5})
        with pytest.raises(ValueError, match="at least one"):
            await admin.alter_group_offsets("g", {})

    assert cluster.groups.commits == [{0: 1, 1: 2}, {0: 5, 1: 5}]
    assert list(failed.value.refused) == [(TOPIC, 0), (TOPIC, 1)]
    assert cluster.groups.committed["g"] == {(TOPIC, 0): 1, (TOPIC, 1): 2}


async def test_a_list_with_a_gap_is_an_error() -> None:
    """Every living node is asked; of one that does not answer the groups are not known, and those of others are."""
    async with fake_cluster(nodes=2) as cluster, Admin(cluster.bootstrap, timeout_ms=2_000) as admin:
        cluster.groups.committed["g"] = {(TOPIC, 0): 1}
        assert [group.group_id for group in await admin.list_groups()] == ["g"]
        await cluster.nodes[1].stop()
        with pytest.raises(GroupsIncomplete) as incomplete:
            await admin.list_groups()

    assert [group.group_id for group in incomplete.value.groups] == ["g"]
    assert {node_id: why.code for node_id, why in incomplete.value.missing.items()} == {1: ErrorCode.NETWORK_EXCEPTION}


async def test_the_record_at_an_offset_says_when_it_was_written() -> None:
    """Each partition by itself; where there is no record, or the log does not reach, there is no time."""
    async with fake_cluster(partitions=3) as cluster, Admin(cluster.bootstrap) as admin:
        for partition, times in enumerate([(1_000, 2_000), (3_000,), (4_000,)]):
            cluster.append(cluster.tp(partition), encode_batch([NewRecord(None, b"v", at_ms) for at_ms in times]))
        found = await admin.record_times({(TOPIC, 0): 1, (TOPIC, 1): 0, (TOPIC, 2): 7})
        with pytest.raises(Refused, match="partition 9 of topic"):
            await admin.record_times({(TOPIC, 9): 0})

    assert found == {(TOPIC, 0): 2_000, (TOPIC, 1): 3_000}
