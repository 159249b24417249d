"""The admin: which requests it sends where, how errors come back, and which open transactions are said to hang."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.client.fake_cluster import TOPIC, TOPIC_ID, fake_cluster, until

from strandline import client
from strandline.client import Refused as RefusedGroups
from strandline.client.administer import followed_rules
from strandline.client.administer.admin_answers import read_results
from strandline.client.administer.transaction_admin import hanging_of, is_suspect
from strandline.core.errors import ErrorCode, Refused
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.tls import TlsWrong
from strandline.v1 import controller_service_pb2 as pb, error_pb2


async def test_create_topic() -> None:
    """A topic request carries the given values; others stay absent, for the controller's defaults."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
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
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        row = pb.CreatedTopic(
            name="n", error_code=error_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, error_message="TOPIC_ALREADY_EXISTS: there"
        )
        cluster.controller.answers["CreateTopics"] = pb.CreateTopicsResponse(topics=[row])
        with pytest.raises(Refused, match=r"^TOPIC_ALREADY_EXISTS: .*there"):
            await admin.create_topic("n")


async def test_changes_of_a_topic() -> None:
    """Settings, partitions and deletion name their topic."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
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
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
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

        assert found == [("a", "1", client.ConfigSource.TOPIC, "2"), ("b", None, client.ConfigSource.NODE, "3")]
        assert (asked.resources[0].resource_name, list(asked.resources[0].configuration_keys)) == (TOPIC, ["a", "b"])


async def test_elections_and_shutdown() -> None:
    """Election results come back per partition; a shutdown returns what the node still leads."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
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
        assert not_needed.refusal.code is ErrorCode.ELECTION_NOT_NEEDED
        assert remaining == []


async def test_removal_of_a_node() -> None:
    """A node is removed by its id; the reason of a rejection is raised."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.controller.answers["UnregisterNode"] = pb.UnregisterNodeResponse()
        await admin.unregister_node(4)
        (asked,) = cluster.controller.asked
        stays = pb.UnregisterNodeResponse(error_code=error_pb2.ERROR_CODE_INVALID_REQUEST, error_message="2 partitions")
        cluster.controller.answers["UnregisterNode"] = stays
        with pytest.raises(Refused, match="2 partitions"):
            await admin.unregister_node(4)

        assert (asked.node_id, asked.cluster_id) == (4, "c")


async def test_reassignments() -> None:
    """Targets and cancels are sent by topic; rows say what runs, waits or was refused; a repeated cancel is done.
    How many run at a time is as the controller says, 5 if it does not."""
    answer = pb.AlterPartitionReassignmentsResponse()
    rows = answer.responses.add(name=TOPIC).partitions
    rows.add(partition_index=0, state=pb.REASSIGNMENT_STATE_RUNNING)
    rows.add(partition_index=1, error_code=error_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS, error_message="none")
    listed = pb.ListPartitionReassignmentsResponse(moves_per_node=2)
    row = listed.topics.add(name=TOPIC).partitions.add(partition_index=0, replicas=[2, 1], adding_replicas=[2])
    row.waiting_for.add(node_id=2, why="is not in the ISR yet")
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.controller.answers.update(AlterPartitionReassignments=answer, ListPartitionReassignments=listed)
        targets = {(TOPIC, 0): (2,), (TOPIC, 1): None}
        moved, refused = await admin.alter_partition_reassignments(targets, planned_from={(TOPIC, 0): (1,)})
        (ongoing,) = await admin.list_partition_reassignments([(TOPIC, 0)])
        altered, asked = cluster.controller.asked
        at_a_time = [await admin.moves_per_node()]
        listed.ClearField("moves_per_node")
        at_a_time.append(await admin.moves_per_node())
    repeated = read_results(answer, targets, may_repeat=True)

    assert [each.HasField("target") for each in altered.topics[0].partitions] == [True, False]
    assert altered.topics[0].partitions[0].planned_from.node_ids == [1]
    assert asked.topics[0].partitions == [0]
    assert (moved.state, moved.refusal) == ("running", None)
    assert refused.refusal is not None
    assert [each.refusal for each in repeated] == [None, None]
    assert at_a_time == [2, 5]
    assert (ongoing.adding, ongoing.waiting_for, ongoing.since_ms) == ((2,), {2: "is not in the ISR yet"}, None)


async def test_draining_a_node() -> None:
    """A node is drained, or taken back; the answer says what it still has."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.controller.answers["DrainNode"] = pb.DrainNodeResponse(remaining_replicas=3, remaining_leaders=1)
        found = await admin.drain_node(2)
        await admin.drain_node(2, draining=False)
        asked = [each.draining for each in cluster.controller.asked]

        assert (found, asked) == ((3, 1), [True, False])


async def test_looks_at_everybody() -> None:
    """Views come from every node that answers; one that is down is left out."""
    async with fake_cluster(nodes=2, partitions=2) as cluster, client.Admin(cluster.bootstrap) as admin:
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
    async with fake_cluster(partitions=2) as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.leaders[cluster.tp()] = (None, 9)
        image = await admin.metadata()
        (topic,) = await admin.describe_topics([TOPIC])
        (node,) = await admin.list_nodes()

        assert image.topics[0].partitions[0].leader is None
        assert topic.partitions[0].leader_epoch == 9
        assert (node.node.node_id, node.directory_id, node.last_heartbeat_age_ms) == (0, "d", None)


async def test_list_offsets() -> None:
    """Offsets are requested from the leaders, again if they cannot return them yet."""
    async with fake_cluster(partitions=2) as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].list_offsets_refusals.append(ErrorCode.OFFSET_NOT_AVAILABLE)
        cluster.log(1).leo = 5
        found = await admin.list_offsets(TOPIC, timestamp_ms=client.LATEST)

        assert {partition: answer.offset for partition, answer in found.items()} == {0: 0, 1: 5}


async def test_offsets_of_a_partition_that_is_not_there() -> None:
    """A partition that the topic does not have is rejected at once, without the wait for a leader."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        async with asyncio.timeout(10):
            with pytest.raises(Refused, match="partition 7 of topic 't' must be 0 to 0"):
                await admin.list_offsets(TOPIC, [0, 7])


async def test_offsets_without_a_leader() -> None:
    """Without a leader the deadline ends the request with LEADER_NOT_AVAILABLE."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap, timeout_ms=300) as admin:
        cluster.move_leader(None)
        await admin.metadata()
        with pytest.raises(Refused, match="LEADER_NOT_AVAILABLE"):
            await admin.list_offsets(TOPIC)


async def test_controller_gone() -> None:
    """A request to a controller that is gone is a ConnectionError, not a rejection."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap, timeout_ms=1_000) as admin:
        await cluster._server.stop(None)
        with pytest.raises(client.ClusterUnreachable):
            await admin.metadata()


async def test_records_are_deleted_at_each_partitions_leader() -> None:
    """One request to each leader, with the admin's own time limit; the answers come back by partition."""
    async with fake_cluster(nodes=2, partitions=2) as cluster:
        cluster.move_leader(1, 1)
        async with client.Admin(cluster.bootstrap, timeout_ms=4_000) as admin:
            deleted = await admin.delete_records(TOPIC, {0: 3, 1: client.LATEST})
        (first,), (second,) = (node.deletions for node in cluster.nodes)

        assert deleted == {0: (0, 3, None), 1: (1, -1, None)}
        assert [part.offset for request in (first, second) for part in request.topics[0].partitions] == [3, -1]
        assert 0 < first.timeout_ms <= 4_000


@pytest.mark.parametrize(
    ("code", "times"),
    [(ErrorCode.OFFSET_OUT_OF_RANGE, 1), (ErrorCode.REQUEST_TIMED_OUT, 1), (ErrorCode.OFFSET_NOT_AVAILABLE, 2)],
)
async def test_a_deletion_is_repeated_only_at_a_leader_that_is_not_ready(code: ErrorCode, times: int) -> None:
    """A final rejection by a leader, or a wait without result, is the outcome of its partition."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].delete_records_refusals.append(code)
        (_, watermark, refusal) = (await admin.delete_records(TOPIC, {0: 3}))[0]

        assert (watermark, refusal and refusal.code) == ((None, code) if times == 1 else (3, None))
        assert len(cluster.nodes[0].deletions) == times


async def test_a_deletion_without_a_leader_ends_with_its_last_refusal() -> None:
    """At the admin's deadline every partition has an outcome."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap, timeout_ms=300) as admin:
        cluster.nodes[0].delete_records_refusals.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100)
        outcome = (await admin.delete_records(TOPIC, {0: 3}))[0]

        assert outcome.refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_deletion_names_partitions_that_exist() -> None:
    """A request with no partition, or with one that the topic does not have, reaches no leader."""
    async with fake_cluster() as cluster, client.Admin(cluster.bootstrap) as admin:
        with pytest.raises(ValueError, match="at least one"):
            await admin.delete_records(TOPIC, {})
        with pytest.raises(Refused, match="partition 7"):
            await admin.delete_records(TOPIC, {7: 1})

        assert cluster.nodes[0].deletions == []


async def test_groups_are_deleted_at_their_coordinator() -> None:
    """It is found by a node's hint, asked again while it loads, and each group has its own outcome."""
    async with fake_cluster(nodes=2) as cluster:
        groups = cluster.groups
        groups.has_topic, groups.coordinator, groups.named, groups.epoch = True, 1, 0, 7
        groups.committed["g"] = {(TOPIC, 0): 1}
        groups.refusals.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with client.Admin(cluster.bootstrap) as admin:
            assert await admin.delete_groups(["g"]) == {"g": None}
            missing = (await admin.delete_groups(["nobody"]))["nobody"]

    assert missing.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.committed == {}


async def test_positions_are_altered_in_one_request() -> None:
    """A group with members refuses them, and says so by partition."""
    async with fake_cluster(partitions=2) as cluster, client.Admin(cluster.bootstrap) as admin:
        await admin.alter_group_offsets("g", {(TOPIC, 0): 1, (TOPIC, 1): 2})
        cluster.groups.refused_partitions = {0: ErrorCode.UNKNOWN_MEMBER_ID, 1: ErrorCode.UNKNOWN_MEMBER_ID}
        with pytest.raises(client.CommitFailed) as failed:
            await admin.alter_group_offsets("g", {(TOPIC, 0): 5, (TOPIC, 1): 5})
        with pytest.raises(ValueError, match="at least one"):
            await admin.alter_group_offsets("g", {})

    assert cluster.groups.commits == [{0: 1, 1: 2}, {0: 5, 1: 5}]
    assert list(failed.value.refused) == [(TOPIC, 0), (TOPIC, 1)]
    assert cluster.groups.committed["g"] == {(TOPIC, 0): 1, (TOPIC, 1): 2}


async def test_a_list_with_a_gap_is_an_error() -> None:
    """Every living node is asked; of one that does not answer the groups are not known, and those of others are."""
    async with fake_cluster(nodes=2) as cluster, client.Admin(cluster.bootstrap, timeout_ms=2_000) as admin:
        cluster.groups.committed["g"] = {(TOPIC, 0): 1}
        assert [group.group_id for group in await admin.list_groups()] == ["g"]
        await cluster.nodes[1].stop()
        with pytest.raises(client.GroupsIncomplete) as incomplete:
            await admin.list_groups()

    assert [group.group_id for group in incomplete.value.groups] == ["g"]
    assert {node_id: why.code for node_id, why in incomplete.value.missing.items()} == {1: ErrorCode.NETWORK_EXCEPTION}


async def test_the_record_at_an_offset_says_when_it_was_written() -> None:
    """Each partition by itself; where there is no record, or the log does not reach, there is no time."""
    async with fake_cluster(partitions=3) as cluster, client.Admin(cluster.bootstrap) as admin:
        for partition, times in enumerate([(1_000, 2_000), (3_000,), (4_000,)]):
            cluster.append(cluster.tp(partition), encode_batch([NewRecord(None, b"v", at_ms) for at_ms in times]))
        found = await admin.record_times({(TOPIC, 0): 1, (TOPIC, 1): 0, (TOPIC, 2): 7})
        with pytest.raises(RefusedGroups, match="partition 9 of topic"):
            await admin.record_times({(TOPIC, 9): 0})

    assert found == {(TOPIC, 0): 2_000, (TOPIC, 1): 3_000}


OPEN = client.PartitionProducer(
    topic="t",
    partition=0,
    producer_id=7,
    producer_epoch=3,
    last_sequence=9,
    last_timestamp_ms=1_000_000,
    coordinator_epoch=2,
    open_since_offset=100,
)

KNOWN = client.DescribedTransaction(
    transactional_id="pay",
    producer_id=7,
    producer_epoch=3,
    state="Ongoing",
    timeout_ms=60_000,
    start_ms=900_000,
    partitions=(client.TopicPartition("t", 0),),
    coordinator=1,
)


@pytest.mark.parametrize(
    ("producer", "is_one"),
    [
        (OPEN, True),
        (replace(OPEN, open_since_offset=None), False),
        (replace(OPEN, last_timestamp_ms=1_000_001), False),
        (replace(OPEN, last_timestamp_ms=9_000_000), False),
    ],
)
def test_a_suspect_is_open_and_silent_for_longer(producer: client.PartitionProducer, is_one: bool) -> None:
    """The limit itself is not longer, and a time in the future is not old."""
    assert is_suspect(producer, now_ms=1_060_001, older_than_ms=60_000) is is_one


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (None, "no coordinator knows the producer id"),
        (replace(KNOWN, state="CompleteAbort"), "its coordinator has no transaction open: CompleteAbort"),
        (replace(KNOWN, state="Empty"), "its coordinator has no transaction open: Empty"),
        (
            replace(KNOWN, partitions=(client.TopicPartition("t", 1),)),
            "the transaction that its coordinator has open (Ongoing) does not include the partition",
        ),
        (replace(KNOWN, producer_epoch=4), "its coordinator has another transaction open, of epoch 4"),
        (
            replace(KNOWN, producer_epoch=5, state="PrepareCommit"),
            "its coordinator has another transaction open, of epoch 4",
        ),
    ],
)
def test_what_no_coordinator_will_end_hangs(described: client.DescribedTransaction | None, why: str) -> None:
    """With what the coordinator says, and whose it is as far as one knows."""
    (found,) = hanging_of([OPEN], {} if described is None else {7: described})

    assert (found.producer, found.why) == (OPEN, why)
    assert found.transactional_id == (None if described is None else "pay")


@pytest.mark.parametrize(
    "described", [KNOWN, *(replace(KNOWN, state=f"Prepare{end}", producer_epoch=4) for end in ("Commit", "Abort"))]
)
def test_what_a_coordinator_will_end_does_not_hang(described: client.DescribedTransaction) -> None:
    """While it is ended its markers, and so its coordinator, have the epoch after its own."""
    assert hanging_of([OPEN], {7: described}) == []


async def test_rules_are_followed_on_past_a_certificate_that_is_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read with each new connection; rules that are not followed any more would count for ever."""
    rule = Rule("client/x", Permission.ALLOW, Operation.READ, ResourceType.TOPIC, Pattern.LITERAL, "t")
    written, connected = iter([TlsWrong("half written"), None]), AsyncMock()
    connected.__aenter__.return_value.describe_acls.return_value = [rule]

    def connect(*_: Any, **__: Any) -> AsyncMock:
        if (wrong := next(written)) is not None:
            raise wrong
        return connected

    monkeypatch.setattr(followed_rules, "Admin", connect)
    rules = followed_rules.FollowedRules("127.0.0.1:1")
    following = asyncio.create_task(rules.follow_forever())
    await until(lambda: rules.now().rules == (rule,))
    following.cancel()
