"""The admin: which requests it sends where, and how errors come back."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake_cluster import TOPIC, TOPIC_ID, fake_cluster

from strandline.client import LATEST, Admin, ClusterUnreachable, ConfigSource
from strandline.core.errors import ErrorCode, Refused
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import error_pb2


async def test_create_topic() -> None:
    """A topic request carries the given values; others stay absent, for the controller's defaults."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        row = pb.CreatedTopic(name="n", topic_id="id", num_partitions=3, replication_factor=1)
        cluster.controller.answers["CreateTopics"] = pb.CreateTopicsResponse(topics=[row])
        created = await admin.create_topic("n", partitions=3, configs={"retention.ms": "1"})
        (asked,) = cluster.controller.asked[0].topics

        assert created == ("n", "id", 3, 1)
        assert asked.num_partitions == 3
        assert not asked.HasField("replication_factor")
        assert dict(asked.configs) == {"retention.ms": "1"}


async def test_refusal_is_raised() -> None:
    """An error in the answer's row is raised with its code and message."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        row = pb.CreatedTopic(
            name="n", error_code=error_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, error_message="TOPIC_ALREADY_EXISTS: there"
        )
        cluster.controller.answers["CreateTopics"] = pb.CreateTopicsResponse(topics=[row])
        with pytest.raises(Refused, match="there") as refused:
            await admin.create_topic("n")

        assert refused.value.refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_changes_of_a_topic() -> None:
    """Settings, partitions and deletion name their topic."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        done = pb.TopicResult(name=TOPIC, topic_id=TOPIC_ID)
        cluster.controller.answers.update(
            AlterTopicConfigs=pb.AlterTopicConfigsResponse(responses=[done]),
            CreatePartitions=pb.CreatePartitionsResponse(results=[done]),
            DeleteTopics=pb.DeleteTopicsResponse(responses=[done]),
        )
        await admin.alter_topic_configs(TOPIC, {"a": "1"}, delete=["b"])
        await admin.create_partitions(TOPIC, 4, assignments={3: [0]})
        await admin.delete_topic(TOPIC)
        altered, grown, deleted = cluster.controller.asked

        assert (dict(altered.topics[0].set_configs), list(altered.topics[0].delete_configs)) == ({"a": "1"}, ["b"])
        assert (grown.topics[0].count, list(grown.topics[0].assignments[0].node_ids)) == (4, [0])
        assert (deleted.topics[0].name, deleted.topics[0].topic_id) == ("", TOPIC_ID)


async def test_settings_of_a_topic() -> None:
    """Each has its value, its source and its default; a value that each node has for itself is None."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        row = pb.DescribeConfigsResult(
            resource_name=TOPIC,
            configs=[
                pb.DescribedConfig(name="a", value="1", source=pb.CONFIG_SOURCE_TOPIC, default_value="2"),
                pb.DescribedConfig(name="b", source=pb.CONFIG_SOURCE_NODE, default_value="3"),
            ],
        )
        cluster.controller.answers["DescribeConfigs"] = pb.DescribeConfigsResponse(results=[row])
        found = await admin.describe_configs(TOPIC, ["a", "b"])
        (asked,) = cluster.controller.asked

        assert found == [("a", "1", ConfigSource.TOPIC, "2"), ("b", None, ConfigSource.NODE, "3")]
        assert (asked.resources[0].resource_name, list(asked.resources[0].configuration_keys)) == (TOPIC, ["a", "b"])


async def test_elections_and_shutdown() -> None:
    """Election results come back per partition; a shutdown returns what the node still leads."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        election = pb.ElectionTopicResult(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition_result=[
                pb.ElectionPartitionResult(partition_index=0, leader_id=0, leader_epoch=2),
                pb.ElectionPartitionResult(partition_index=1, error_code=error_pb2.ERROR_CODE_ELECTION_NOT_NEEDED),
            ],
        )
        cluster.controller.answers.update(
            ElectLeaders=pb.ElectLeadersResponse(replica_election_results=[election]),
            ShutdownNode=pb.ShutdownNodeResponse(),
        )
        won, not_needed = await admin.elect_leaders([(TOPIC, 0), (TOPIC, 1)])
        remaining = await admin.shutdown_node(0)

        assert (won.leader, won.leader_epoch, won.refusal) == (0, 2, None)
        assert not_needed.refusal is not None
        assert not_needed.refusal.code is ErrorCode.ELECTION_NOT_NEEDED
        assert remaining == []


async def test_removal_of_a_node() -> None:
    """A node is removed by its id; the reason of a rejection is raised."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.controller.answers["UnregisterNode"] = pb.UnregisterNodeResponse()
        await admin.unregister_node(4)
        (asked,) = cluster.controller.asked
        stays = pb.UnregisterNodeResponse(error_code=error_pb2.ERROR_CODE_INVALID_REQUEST, error_message="2 partitions")
        cluster.controller.answers["UnregisterNode"] = stays
        with pytest.raises(Refused, match="2 partitions"):
            await admin.unregister_node(4)

        assert (asked.node_id, asked.cluster_id) == (4, "c")


async def test_looks_at_everybody() -> None:
    """Views come from every node that answers; one that is down is left out."""
    async with fake_cluster(nodes=2, partitions=2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.move_leader(1, 1)
        led = await admin.describe_partitions()
        held = await admin.describe_replicas()
        await cluster.nodes[1].stop()
        led_then = await admin.describe_partitions()

        assert sorted(view.partition for view in led) == [0, 1]
        assert [(replica.node_id, replica.view.leo) for replica in held if replica.view] == [(0, 7), (1, 7)]
        assert [view.partition for view in led_then] == [0]


async def test_metadata_topics_and_nodes() -> None:
    """The state is the controller's current one."""
    async with fake_cluster(partitions=2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.leaders[cluster.tp()] = (None, 9)
        image = await admin.metadata()
        (topic,) = await admin.describe_topics([TOPIC])
        (node,) = await admin.list_nodes()

        assert image.topics[0].partitions[0].leader is None
        assert topic.partitions[0].leader_epoch == 9
        assert (node.node.node_id, node.directory_id, node.last_heartbeat_age_ms) == (0, "d", None)


async def test_list_offsets() -> None:
    """Offsets are requested from the leaders, again if they cannot return them yet."""
    async with fake_cluster(partitions=2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].list_offsets_refusals.append(ErrorCode.OFFSET_NOT_AVAILABLE)
        cluster.log(1).leo = 5
        found = await admin.list_offsets(TOPIC, timestamp_ms=LATEST)

        assert {partition: answer.offset for partition, answer in found.items()} == {0: 0, 1: 5}


async def test_offsets_of_a_partition_that_is_not_there() -> None:
    """A partition that the topic does not have is rejected at once, without the wait for a leader."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        async with asyncio.timeout(10):
            with pytest.raises(Refused, match="partition 7 of topic 't' must be 0 to 0"):
                await admin.list_offsets(TOPIC, [0, 7])


async def test_offsets_without_a_leader() -> None:
    """Without a leader the deadline ends the request with LEADER_NOT_AVAILABLE."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=300) as admin:
        cluster.move_leader(None)
        await admin.metadata()
        with pytest.raises(Refused, match="LEADER_NOT_AVAILABLE"):
            await admin.list_offsets(TOPIC)


async def test_controller_gone() -> None:
    """A request to a controller that is gone is a ConnectionError, not a rejection."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=1_000) as admin:
        await cluster._server.stop(None)
        with pytest.raises(ClusterUnreachable):
            await admin.metadata()


async def test_records_are_deleted_at_each_partitions_leader() -> None:
    """One request to each leader, with the admin's own time limit; the answers come back by partition."""
    async with fake_cluster(nodes=2, partitions=2) as cluster:
        cluster.move_leader(1, 1)
        async with Admin(cluster.bootstrap, timeout_ms=4_000) as admin:
            deleted = await admin.delete_records(TOPIC, {0: 3, 1: LATEST})
        (first,), (second,) = (node.deletions for node in cluster.nodes)

        assert deleted == {0: (0, 3, None), 1: (1, -1, None)}
        assert [part.offset for request in (first, second) for part in request.topics[0].partitions] == [3, -1]
        assert 0 < first.timeout_ms <= 4_000


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_deletion_that_is_refused_is_not_repeated(code: ErrorCode) -> None:
    """A final rejection by a leader, or a wait without result, is the outcome of its partition."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].delete_records_refusals.append(code)
        outcome = (await admin.delete_records(TOPIC, {0: 3}))[0]

        assert outcome.refusal is not None and outcome.refusal.code is code
        assert len(cluster.nodes[0].deletions) == 1


async def test_a_deletion_waits_for_a_leader_that_knows() -> None:
    """A request to a leader that is not ready yet is repeated."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].delete_records_refusals.append(ErrorCode.OFFSET_NOT_AVAILABLE)
        outcome = (await admin.delete_records(TOPIC, {0: 3}))[0]

        assert outcome == (0, 3, None)
        assert len(cluster.nodes[0].deletions) == 2


async def test_a_deletion_without_a_leader_ends_with_its_last_refusal() -> None:
    """At the admin's deadline every partition has an outcome."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=300) as admin:
        cluster.nodes[0].delete_records_refusals.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100)
        outcome = (await admin.delete_records(TOPIC, {0: 3}))[0]

        assert outcome.refusal is not None and outcome.refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_deletion_names_partitions_that_exist() -> None:
    """A request with no partition, or with one that the topic does not have, reaches no leader."""
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(ValueError, match="at least one"):
            await admin.delete_records(TOPIC, {})
        with pytest.raises(Refused, match="partition 7"):
            await admin.delete_records(TOPIC, {7: 1})

        assert cluster.nodes[0].deletions == []
