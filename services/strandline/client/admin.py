"""The `Admin` client: changes and inspects a cluster; decides which process each request goes to.

Invariant: a change is made once, however often it is requested while one controller takes over from another
(`client.repeating`); a request to many nodes returns what the live ones answer within one deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

import grpc

from strandline.client.administer import admin_answers, described
from strandline.client.administer.described_by_coordinators import (
    DescribedGroup,
    DescribedTransaction,
    ListedGroup,
    ListedTransaction,
    PartitionProducer,
)
from strandline.client.administer.group_admin import GroupAdmin
from strandline.client.administer.transaction_admin import HangingTransaction, TransactionAdmin
from strandline.client.cluster.metadata import DEFAULT_TIMEOUT_MS, METADATA_STALE_MS, Cluster
from strandline.client.cluster.repeating import ask_again, ask_until_answered, new_request_id
from strandline.client.consume.fetch_link import RecordTimes
from strandline.client.errors import ClusterUnreachable, ControllersAway
from strandline.client.groups.committed_offsets import OffsetAndMetadata, Offsets, read_offsets
from strandline.client.offsets import LATEST, DeletedRecords, FoundOffset, OffsetFinder, RecordDeleter
from strandline.client.records import TopicPartition
from strandline.client.settings import DEFAULT_CLIENT_ID
from strandline.client.token import TokenCallback
from strandline.core import types
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.core.permissions import Rule
from strandline.core.quotas import Quota, QuotaChange
from strandline.rpc.channels import UnaryMethod
from strandline.rpc.convert import access
from strandline.rpc.convert.configs import read_described
from strandline.rpc.convert.describe import read_controllers
from strandline.rpc.convert.errors import read_error
from strandline.rpc.convert.metadata import read_topic
from strandline.v1 import (
    controller_service_pb2 as pb,
    error_pb2,
    follower_service_pb2,
    leader_service_pb2,
    metadata_service_pb2,
    partition_pb2,
)
from strandline.v1.follower_service_pb2_grpc import FollowerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


class Admin:
    """Changes and inspects a cluster. Use it as an async context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        metadata_stale_ms: int = METADATA_STALE_MS,
        client_id: str = DEFAULT_CLIENT_ID,
        tls_cert: str | Path | bytes = "",
        tls_key: str | Path | bytes = "",
        tls_ca: str | Path | bytes = "",
        token: TokenCallback | None = None,
    ) -> None:
        """``timeout_ms`` is the deadline of every request. If metadata is older than ``metadata_stale_ms``, another
        process is asked for it. ``client_id`` is the first word of the user agent of every call. TLS is given as paths
        or as PEM in bytes, all three or none; or as ``tls_ca`` with ``token``, which returns the token to present.

        Raises:
            ValueError: the bootstrap names no address, ``client_id`` is no such name, or what is given for TLS cannot
                be used.
        """
        self._cluster = Cluster(
            bootstrap,
            timeout_ms=timeout_ms,
            stale_ms=metadata_stale_ms,
            client_id=client_id,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )
        self._timeout_ms = timeout_ms
        self._finder = OffsetFinder(self._cluster)
        self._committed_finder = OffsetFinder(self._cluster, read_committed=True)
        self._deleter = RecordDeleter(self._cluster)
        self._groups = GroupAdmin(self._cluster, timeout_ms)
        self._transactions = TransactionAdmin(self._cluster, timeout_ms)
        self._record_times = RecordTimes(self._cluster, partition_pb2.ISOLATION_LEVEL_READ_COMMITTED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect.

        Raises:
            ClusterUnreachable: no node answered.
        """
        await self._cluster.start()

    async def close(self) -> None:
        """Close every connection."""
        await self._cluster.close()

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> admin_answers.CreatedTopic:
        """Create one topic; None means the controller's default. ``assignments``: node ids by partition.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG.
            ClusterUnreachable: no answer; the topic may have been created.
        """
        topic = pb.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=admin_answers.write_assignments(assignments or {}),
            configs=configs,
        )
        request = pb.CreateTopicsRequest(
            cluster_id=self._cluster.cluster_id,
            topics=[topic],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
            # A repeat after a lost answer finds its own topic, and is not refused because that exists (C32).
            request_id=new_request_id(),
        )
        answer = await ask_again(self._cluster, lambda to: to.CreateTopics, request, deadline_ms=self._timeout_ms)
        row = admin_answers.only(answer.topics)
        return admin_answers.CreatedTopic(row.name, row.topic_id, row.num_partitions, row.replication_factor)

    async def delete_topic(self, name: str) -> None:
        """Delete the topic that has this name now, and its records; never a later one of the same name.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        # Deleted by its id: a repeat by its name could delete a topic that was created since (C32).
        (topic,) = await self.describe_topics([name])
        request = pb.DeleteTopicsRequest(
            cluster_id=self._cluster.cluster_id, topics=[partition_pb2.TopicReference(topic_id=topic.topic_id)]
        )
        answer = await ask_again(self._cluster, lambda to: to.DeleteTopics, request)
        try:
            admin_answers.only(answer.responses)
        except Refused as refused:
            # It existed a moment ago: a request whose answer was lost has deleted it, or another client has.
            if refused.refusal.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                raise

    async def describe_topics(self, names: Iterable[str] = ()) -> list[described.DescribedTopic]:
        """Describe topics as the controller has them; without names, all topics.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION for the first name that is unknown.
        """
        request = pb.DescribeTopicsRequest(
            cluster_id=self._cluster.cluster_id, topics=[partition_pb2.TopicReference(name=name) for name in names]
        )
        answer = await ask_again(self._cluster, lambda to: to.DescribeTopics, request)
        for row in answer.topics:
            admin_answers.check(row)
        return [described.topic_of(read_topic(row.topic)) for row in answer.topics]

    async def alter_topic_configs(
        self, name: str, configs: Mapping[str, str], *, delete: Iterable[str] = (), validate_only: bool = False
    ) -> None:
        """Set a topic's settings, and reset those in ``delete`` to their defaults; all or nothing.

        Raises:
            Refused: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION.
        """
        # Absolute values: a repeat changes nothing, so this request needs no id (C32).
        change = pb.TopicConfigChange(name=name, set_configs=configs, delete_configs=list(delete))
        request = pb.AlterTopicConfigsRequest(
            cluster_id=self._cluster.cluster_id, topics=[change], validate_only=validate_only
        )
        admin_answers.only((await ask_again(self._cluster, lambda to: to.AlterTopicConfigs, request)).responses)

    async def describe_configs(self, name: str, settings: Iterable[str] = ()) -> list[described.TopicConfig]:
        """The effective settings of a topic, by name; with ``settings`` empty, all of them.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG for a name that is not a setting.
        """
        resource = pb.DescribeConfigsResource(
            resource_type=pb.CONFIG_RESOURCE_TYPE_TOPIC, resource_name=name, configuration_keys=list(settings)
        )
        request = pb.DescribeConfigsRequest(cluster_id=self._cluster.cluster_id, resources=[resource])
        row = admin_answers.only((await ask_again(self._cluster, lambda to: to.DescribeConfigs, request)).results)
        return [described.config_of(config) for config in read_described(row)]

    async def create_partitions(
        self, name: str, count: int, *, assignments: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """Raise a topic's number of partitions to ``count``; records with keys may go to other partitions from then on.

        Raises:
            Refused: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION.
        """
        growing = pb.GrowingTopic(
            name=name, count=count, assignments=admin_answers.write_assignments(assignments or {})
        )
        request = pb.CreatePartitionsRequest(
            cluster_id=self._cluster.cluster_id,
            topics=[growing],
            timeout_ms=self._timeout_ms,
            # Otherwise a repeat would be refused, because the partitions are there.
            request_id=new_request_id(),
        )
        admin_answers.only((await ask_again(self._cluster, lambda to: to.CreatePartitions, request)).results)

    async def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] = (), *, unclean: bool = False
    ) -> list[admin_answers.Election]:
        """Elect the preferred replica, or with ``unclean`` any live one; without partitions, wherever that is needed.

        An unclean election is held only if the partition is still in the leader epoch that it has now.
        """
        topics = admin_answers.write_partitions(partitions)
        request = pb.ElectLeadersRequest(
            cluster_id=self._cluster.cluster_id,
            election_type=pb.ELECTION_TYPE_UNCLEAN if unclean else pb.ELECTION_TYPE_UNSPECIFIED,
            topic_partitions=topics,
            timeout_ms=self._timeout_ms,
            # Each unclean election may lose records, so a late copy must not hold another one (C32).
            epochs_seen=await self._epochs_seen(topic.topic for topic in topics) if unclean else (),
        )
        answered = await ask_until_answered(self._cluster, lambda to: to.ElectLeaders, request)
        elections = admin_answers.read_elections(answered.answer)
        return [admin_answers.held_before(each) for each in elections] if answered.may_repeat else elections

    async def _epochs_seen(self, names: Iterable[str]) -> list[pb.PartitionEpochsSeen]:
        """The epochs of the partitions without a leader, of these topics or of all; an unknown topic has none."""
        request = pb.DescribeTopicsRequest(
            cluster_id=self._cluster.cluster_id, topics=[partition_pb2.TopicReference(name=name) for name in names]
        )
        answer = await ask_again(self._cluster, lambda to: to.DescribeTopics, request)
        return [
            pb.PartitionEpochsSeen(
                topic_id=row.topic.topic_id,
                partition=partition.partition_index,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
            )
            for row in answer.topics
            for partition in row.topic.partitions
            if not partition.HasField("leader_id")
        ]

    async def list_nodes(self) -> list[admin_answers.ListedNode]:
        """Every registered node."""
        request = pb.ListNodesRequest(cluster_id=self._cluster.cluster_id)
        answer = await ask_again(self._cluster, lambda to: to.ListNodes, request)
        return [admin_answers.read_listed(row) for row in answer.nodes]

    async def shutdown_node(self, node_id: int, *, node_epoch: int | None = None) -> list[TopicPartition]:
        """Begin a node's controlled shutdown; returns the number of partitions that it still leads.

        ``node_epoch`` None means the currently registered process, not one that the node starts later.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """
        # Without the epoch a repeat could stop the process that was started in the meantime (C32).
        if node_epoch is None:
            registered = {each.node.node_id: each.node.node_epoch for each in await self.list_nodes()}
            node_epoch = registered.get(types.NodeId(node_id))
        request = pb.ShutdownNodeRequest(cluster_id=self._cluster.cluster_id, node_id=node_id, node_epoch=node_epoch)
        answer, may_repeat = await ask_until_answered(self._cluster, lambda to: to.ShutdownNode, request)
        if may_repeat and answer.error_code == error_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
            # It was asked to stop, has stopped, and has registered as a new process.
            return []
        admin_answers.check(answer)
        if not answer.remaining_partitions:
            return []
        names = {topic.topic_id: topic.name for topic in (await self._cluster.fetch_image()).topics}
        return [
            TopicPartition(names.get(topic.topic_id, topic.topic_id), index)
            for topic in answer.remaining_partitions
            for index in topic.partitions
        ]

    async def unregister_node(self, node_id: int) -> None:
        """Remove a node that is gone for good. Its id may register again, as a new node.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST while its session lives or replicas name it.
        """
        request = pb.UnregisterNodeRequest(cluster_id=self._cluster.cluster_id, node_id=node_id)
        answer, may_repeat = await ask_until_answered(self._cluster, lambda to: to.UnregisterNode, request)
        # An earlier attempt whose answer was lost has removed it.
        if not (may_repeat and answer.error_code == error_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED):
            admin_answers.check(answer)

    async def alter_partition_reassignments(
        self,
        targets: admin_answers.Targets,
        *,
        planned_from: Mapping[tuple[str, int], Sequence[int]] | None = None,
        allow_replication_factor_change: bool = True,
        throttle_bytes_per_s: int | None = None,
        validate_only: bool = False,
        force: bool = False,
    ) -> list[admin_answers.Reassigned]:
        """Move partitions to other nodes, or cancel moves; returns one row per partition, accepted or refused.

        ``planned_from``: the replicas that a target was planned from; refused if they have changed since.
        ``throttle_bytes_per_s``: the most bytes per second that each node sends, and receives, for all moves with this
        rate; sent again with the same targets it replaces the previous rate, and None removes it. ``force``: cancel
        even if that leaves the partition below its min ISR.

        Raises:
            Refused: UNSUPPORTED_VERSION while a node runs an older release; INVALID_REQUEST for a throttle below 0.
        """
        request = pb.AlterPartitionReassignmentsRequest(
            cluster_id=self._cluster.cluster_id,
            topics=admin_answers.write_targets(targets, planned_from or {}),
            allow_replication_factor_change=allow_replication_factor_change,
            throttle_bytes_per_s=throttle_bytes_per_s,
            validate_only=validate_only,
            force=force,
        )
        answer, may_repeat = await ask_until_answered(self._cluster, lambda to: to.AlterPartitionReassignments, request)
        admin_answers.check(answer)
        return admin_answers.read_results(answer, targets, may_repeat=may_repeat)

    async def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] = ()
    ) -> list[admin_answers.OngoingReassignment]:
        """The reassignments that have not ended, of these partitions or of all.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return admin_answers.read_ongoing(await self._reassignments(partitions))

    async def moves_per_node(self) -> int:
        """How many running reassignments may add a replica to one node, and how many may remove one from it; 5 if the
        controller's release does not report it."""
        return (await self._reassignments(())).moves_per_node or 5

    async def _reassignments(self, partitions: Iterable[tuple[str, int]]) -> pb.ListPartitionReassignmentsResponse:
        request = pb.ListPartitionReassignmentsRequest(
            cluster_id=self._cluster.cluster_id, topics=admin_answers.write_partitions(partitions)
        )
        answer = await ask_again(self._cluster, lambda to: to.ListPartitionReassignments, request)
        admin_answers.check(answer)
        return answer

    async def drain_node(self, node_id: int, *, draining: bool = True) -> admin_answers.DrainedNode:
        """Drain a node, so that it gets no new replicas and leads only where no other replica can, or stop draining it;
        returns what it still has.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST if the other nodes are too few for what it holds;
                UNSUPPORTED_VERSION while a node runs an older release.
        """
        request = pb.DrainNodeRequest(cluster_id=self._cluster.cluster_id, node_id=node_id, draining=draining)
        answer = await ask_again(self._cluster, lambda to: to.DrainNode, request)
        admin_answers.check(answer)
        return admin_answers.DrainedNode(answer.remaining_replicas, answer.remaining_leaders)

    async def describe_acls(self) -> list[Rule]:
        """All access rules, in order."""
        request = pb.DescribeAclsRequest(cluster_id=self._cluster.cluster_id)
        answer = await ask_again(self._cluster, lambda to: to.DescribeAcls, request)
        return [access.read_acl(one) for one in answer.acls]

    async def create_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Add rules; returns for each its refusal, or None. Adding an existing rule succeeds.

        ``force``: even if the caller could not change rules afterwards.
        """
        creations, cluster_id = map(access.write_acl, rules), self._cluster.cluster_id
        request = pb.CreateAclsRequest(
            cluster_id=cluster_id, creations=creations, validate_only=validate_only, force=force
        )
        answer = await ask_again(self._cluster, lambda to: to.CreateAcls, request)
        return [read_error(row) for row in answer.results]

    async def delete_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Remove rules; returns for each its refusal, or None. ``force`` as in `create_acls`."""
        filters, cluster_id = map(access.write_exactly, rules), self._cluster.cluster_id
        request = pb.DeleteAclsRequest(cluster_id=cluster_id, filters=filters, validate_only=validate_only, force=force)
        answer, may_repeat = await ask_until_answered(self._cluster, lambda to: to.DeleteAcls, request)
        found = [read_error(row) for row in answer.filter_results]
        # In a repeat it says that an earlier attempt has removed the rule.
        gone = ErrorCode.RESOURCE_NOT_FOUND
        return [None if may_repeat and why is not None and why.code is gone else why for why in found]

    async def describe_quotas(self) -> list[Quota]:
        """All client quotas, in order."""
        request = pb.DescribeClientQuotasRequest(cluster_id=self._cluster.cluster_id)
        answer = await ask_again(self._cluster, lambda to: to.DescribeClientQuotas, request)
        return list(access.read_quotas(answer.entries))

    async def alter_quotas(
        self, changes: Iterable[QuotaChange], *, validate_only: bool = False
    ) -> list[Refusal | None]:
        """Set or remove quotas; returns for each its refusal, or None."""
        request = access.alter_quotas_request(self._cluster.cluster_id, changes, validate_only=validate_only)
        answer = await ask_again(self._cluster, lambda to: to.AlterClientQuotas, request)
        return [read_error(row) for row in answer.entries]

    async def describe_controllers(self) -> tuple[described.DescribedController, ...]:
        """All controllers, and which of them is active; empty if the cluster's release does not report them.

        Raises:
            Refused: the store that knows does not answer.
        """
        try:
            answer = await self._cluster.ask_controller(
                lambda to: to.DescribeControllers, pb.DescribeControllersRequest()
            )
        except ControllersAway:
            return ()
        except Refused as refused:
            if refused.refusal.code is ErrorCode.UNSUPPORTED_VERSION:
                return ()
            raise
        return tuple(map(described.controller_of, read_controllers(answer)))

    async def metadata(self, *, linearizable: bool = False) -> described.DescribedCluster:
        """The state of the cluster as the controller returns it now, or as a node has it if no controller is active.

        ``linearizable``: include every change that was acknowledged before, to any client; a controller confirms that
        with its store, and no other process is asked (C14b). A controller of an earlier release ignores it.

        Raises:
            Refused: NOT_CONTROLLER, with ``linearizable`` only: no controller decides, or the store does not answer.
            ControllersAway: with ``linearizable`` only.
        """
        return described.cluster_of(await self._cluster.fetch_image(linearizable=linearizable))

    async def describe_partitions(self, topics: Iterable[str] = ()) -> list[described.DescribedLeader]:
        """The leaders' measurements of their partitions, requested from all live nodes at once.

        A partition whose leader does not answer in time is left out.
        """
        request = leader_service_pb2.DescribePartitionsRequest(
            cluster_id=self._cluster.cluster_id, topics=[partition_pb2.TopicPartitions(topic=topic) for topic in topics]
        )
        answers = await self._everybody(lambda channel: LeaderServiceStub(channel).DescribePartitions, request)
        return [view for answer in answers for view in described.read_leaders(answer)]

    async def describe_replicas(self, topics: Iterable[str] = ()) -> list[described.DescribedReplica]:
        """Each live node's own replicas; a node that does not answer is left out."""
        request = follower_service_pb2.DescribeReplicasRequest(
            cluster_id=self._cluster.cluster_id, topics=[partition_pb2.TopicPartitions(topic=topic) for topic in topics]
        )
        answers = await self._everybody(lambda channel: FollowerServiceStub(channel).DescribeReplicas, request)
        return [replica for answer in answers for replica in described.read_replicas(answer)]

    async def list_offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        timestamp_ms: int = LATEST,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> dict[int, FoundOffset]:
        """Offsets by partition: LATEST (the HW), EARLIEST, MAX_TIMESTAMP, or by time in ms since 1970.

        With "read_committed" LATEST is the last stable offset: the end for readers of committed records.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, or a leader's last refusal at the deadline.
        """
        wanted = dict.fromkeys(await self._partitions(topic, partitions), timestamp_ms)
        finder = self._committed_finder if isolation == "read_committed" else self._finder
        found = await finder.find(wanted, deadline_ms=self._timeout_ms)
        return {tp.partition: answer for tp, answer in found.items()}

    async def record_times(
        self, offsets: Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The timestamp of the first record at or after each offset, in ms since 1970, by one small fetch each.

        A partition without such a record, or whose leader does not answer, is left out.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        places: dict[types.TopicPartition, types.Offset] = {}
        names: dict[types.TopicPartition, TopicPartition] = {}
        for (topic, index), offset in offsets.items():
            (tp,) = await self._partitions(topic, [index])
            places[tp], names[tp] = types.Offset(offset), TopicPartition(topic, index)
        found = await self._record_times.find(places, deadline_ms=self._timeout_ms)
        return {names[tp]: time_ms for tp, time_ms in found.items()}

    async def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, DeletedRecords]:
        """Delete the records below an offset permanently, and wait until every in-sync replica has deleted them.

        ``offsets``: the first offset to keep by partition, at most the HW; LATEST (-1) means the HW. While a partition
        has no leader its request is repeated, up to this admin's ``timeout_ms``. Returns the result by partition, with
        the refusal if the deletion is not complete: OFFSET_OUT_OF_RANGE (nothing was deleted),
        REQUEST_TIMED_OUT (the leader has deleted, an in-sync replica has not; ask again), NETWORK_EXCEPTION.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED.
            ValueError: ``offsets`` is empty.
        """
        if not offsets:
            raise ValueError("offsets names no partition; give at least one")
        wanted = {tp: offsets[tp.partition] for tp in await self._partitions(topic, offsets)}
        deleted = await self._deleter.delete(wanted, deadline_ms=self._timeout_ms)
        return {tp.partition: deleted[tp] for tp in wanted}

    async def list_groups(self, *, states: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of the cluster, by id; ``states``: only groups in one of these states, for example Empty.

        Raises:
            GroupsIncomplete: a live node did not answer, or has not loaded its groups; it has the others' groups.
        """
        return await self._groups.list_all(states)

    async def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups with their members, in this order.

        Raises:
            Refused: GROUP_ID_NOT_FOUND for the first that does not exist.
        """
        return await self._groups.describe(group_ids)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """A group's committed offsets, for all partitions if none is given; None where there is none.

        ``require_stable`` waits until no newer coordinator can have accepted a commit and no open transaction has
        staged an offset; without it the answer comes at once, even while the coordinator cannot commit, and may be
        older than such a commit.

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        named = None if partitions is None else [TopicPartition(*one) for one in partitions]
        return await self._groups.offsets(group_id, named, require_stable=require_stable)

    async def alter_group_offsets(self, group_id: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit offsets for a group without members, all in one request; ``metadata`` is stored with plain offsets.

        Raises:
            CommitFailed: some were not committed. UNKNOWN_MEMBER_ID: the group has members.
            ValueError: ``offsets`` is empty.
        """
        if not offsets:
            raise ValueError("offsets names no partition; give at least one")
        await self._groups.alter(group_id, read_offsets(offsets, metadata))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, Refusal | None]:
        """Delete a group's committed offsets; returns by partition the refusal, or None if it was deleted.

        Raises:
            Refused: the coordinator refused all of it.
        """
        return await self._groups.delete_offsets(group_id, [TopicPartition(*one) for one in partitions])

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        """Delete groups without members and their offsets; returns by id the refusal, or None if it was deleted."""
        return await self._groups.delete(list(group_ids))

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int | None = None
    ) -> list[ListedTransaction]:
        """The transactional ids of the cluster, by id: those in one of ``states``, for example Ongoing, of one of
        ``producer_ids``, and with a transaction that has been open for longer than ``longer_than_ms``.

        Raises:
            TransactionsIncomplete: a live node did not answer, or has not loaded its ids yet; it has the ids of the
            others.
        """
        return await self._transactions.list_all(states, producer_ids, longer_than_ms)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[DescribedTransaction]:
        """Transactional ids with their transactions, in this order.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND for the first that does not exist.
        """
        return await self._transactions.describe(transactional_ids)

    async def describe_producers(self, topic: str, partitions: Iterable[int] | None = None) -> list[PartitionProducer]:
        """The producers that the logs of partitions remember, by partition and producer id; all partitions by default.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, or what a leader refused with.
        """
        return await self._transactions.producers(topic, await self._partitions(topic, partitions))

    async def find_hanging_transactions(
        self, topic: str, partitions: Iterable[int] | None = None, *, older_than_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Open transactions of a topic that will never end by themselves: their producer has been silent for longer
        than ``older_than_ms``, and their coordinator does not know them or has ended them. The default is the longest
        time-out that a producer may request (`transaction.max.timeout.ms`).

        Raises:
            Refused: as `describe_producers`.
            TransactionsIncomplete: a node does not report what it coordinates, so no transaction is known to hang.
        """
        suspects = await self.describe_producers(topic, partitions)
        return await self._transactions.find_hanging(suspects, older_than_ms=older_than_ms)

    async def abort_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """Abort the transaction that began at ``start_offset`` in one partition, regardless of its coordinator; returns
        its producer. Only for one that hangs: if it is alive, its other partitions may still be committed.

        Raises:
            Refused: as `open_transaction`; INVALID_PRODUCER_EPOCH: it has ended meanwhile.
        """
        # The offset names one transaction: a later one of the same producer may be alive.
        producer = await self.open_transaction(topic, partition, start_offset=start_offset)
        (tp,) = await self._partitions(topic, [partition])
        await self._transactions.abort(tp, producer)
        return producer

    async def open_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """The producer whose transaction has been open in one partition since ``start_offset``.

        Raises:
            Refused: as `describe_producers`; INVALID_TXN_STATE: no open transaction began there.
        """
        for producer in await self.describe_producers(topic, [partition]):
            if producer.open_since_offset == start_offset:
                return producer
        message = (
            f"no open transaction of {topic}-{partition} began at offset {start_offset}; "
            f"`strandline txn find-hanging` lists those that hang"
        )
        raise Refused(ErrorCode.INVALID_TXN_STATE, message, Outcome.NOT_APPENDED)

    async def fence_transactional_id(self, transactional_id: str) -> tuple[int, int]:
        """Abort the open transaction of a transactional id and fence its producer, whose next request fails; returns
        the id's new producer id and epoch.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator did not answer in time.
        """
        return await self._transactions.fence(transactional_id)

    @property
    def metadata_age_ms(self) -> int | None:
        """The greatest possible age of this admin's metadata, in ms (C62); None before the start."""
        return self._cluster.metadata_age_ms

    async def _partitions(self, topic: str, indexes: Iterable[int] | None) -> list[types.TopicPartition]:
        """Partitions of a topic; without indexes, all of them.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        image = await self._cluster.topic(topic, deadline_ms=self._timeout_ms)
        count = len(image.partitions)
        asked = list(range(count) if indexes is None else indexes)
        for index in asked:
            if not 0 <= index < count:
                message = f"partition {index} of topic '{topic}' must be 0 to {count - 1}"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return [types.TopicPartition(image.topic_id, index) for index in asked]

    async def _everybody(
        self, method: Callable[[grpc.aio.Channel], UnaryMethod[_Request, _Answer]], request: _Request
    ) -> list[_Answer]:
        async def ask(endpoint: Endpoint) -> _Answer | None:
            try:
                return await self._cluster.ask(method(self._cluster.channels.to(endpoint)), request)
            except ClusterUnreachable:
                # A request to many nodes continues without one that is down.
                return None

        # A fenced node leads nothing, and one that is gone would cost the whole deadline.
        answers = await asyncio.gather(*map(ask, self._cluster.living.values()))
        return [answer for answer in answers if answer is not None]

    async def authorizations(self) -> set[str]:
        """The ``authorization`` setting of each node that answers: off, acl, or empty without TLS."""
        request = metadata_service_pb2.DescribeClusterRequest(cluster_id=self._cluster.cluster_id)
        answers = await self._everybody(lambda channel: MetadataServiceStub(channel).DescribeCluster, request)
        return {answer.authorization for answer in answers}
