"""The audit of a running cluster: who changed what, and who was refused what; never a secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from certificates import CLUSTER, settings_of
from raw_calls import HIDDEN, outcome, ruled
from secured_cluster import Secured, build_node, secured_cluster, until

from strandline.client import Producer
from strandline.console.picture import AuditLook
from strandline.console.settings import ConsoleSettings
from strandline.console.watching import Watching
from strandline.core.state_events import Audit
from strandline.rpc.audit import AuditInterceptor
from strandline.rpc.channels import open_channel, target
from strandline.rpc.permissions import CHANGES, CallerRole, Identity
from strandline.rpc.permitted import IDENTITY
from strandline.v1 import (
    controller_service_pb2 as controller_pb,
    group_service_pb2 as group_pb,
    leader_service_pb2 as leader_pb,
)

_SECRET = "s3cret-of-a-record"
_TOPIC = {"name": "t"}
_RULE = {
    "principal": "client/x", "permission_type": 3, "operation": 3, "resource_type": 2, "resource_pattern_type": 3,
    "resource_name": "t",
}  # fmt: skip
_MARKER = {"producer_id": 7, "producer_epoch": 1, "topics": [{"topic": "t", "partitions": [0]}]}


def _audits(directory: Path) -> list[dict[str, Any]]:
    """The audit events that the processes wrote, in the order of each."""
    lines = [line for path in sorted(directory.rglob("events.jsonl")) for line in path.read_text().splitlines()]
    return [row for row in map(json.loads, lines) if row["event_type"] == "AUDIT"]


def _of(rows: Iterable[dict[str, Any]], outcome: str) -> Counter[str]:
    """How often each method is told of."""
    return Counter({row["method"]: row["n_coalesced"] for row in rows if row["outcome"] == outcome})


class _Calls:
    """Calls of an administrator, each to the process that answers it."""

    def __init__(self, cluster: Secured, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._tls = cluster.made.tls("admin/ops")

    async def channel(self, at: int | None) -> grpc.aio.Channel:
        """To a data node, or to the controller."""
        place = self._cluster.for_clients if at is None else self._cluster.nodes[at - 1].client
        assert place is not None
        return await self._stack.enter_async_context(open_channel(place, tls=self._tls))

    async def call(self, name: str, at: int | None = None, /, **fields: Any) -> Any:
        codes, answer = await outcome(await self.channel(at), name, fields)
        assert codes == set(), (name, codes, answer)
        return answer

    async def change(self, name: str, **fields: Any) -> Any:
        return await self.call(f"ControllerService/{name}", **fields)


async def _changed(cluster: Secured, calls: _Calls, directory: Path) -> None:
    """Every change that a cluster of one controller can make, each once."""
    fourth = build_node(directory, cluster.for_nodes, cluster.made, 4)
    await fourth.start()
    await calls.change("CreateTopics", topics=[_TOPIC | {"assignments": [{"partition_index": 0, "node_ids": [2, 1]}]}])
    await calls.change(
        "CreatePartitions", topics=[_TOPIC | {"count": 2, "assignments": [{"partition_index": 1, "node_ids": [1, 2]}]}]
    )
    await calls.change("AlterTopicConfigs", topics=[_TOPIC | {"set_configs": {"min.insync.replicas": "2"}}])
    setting = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [setting]}
    await calls.change("IncrementalAlterConfigs", resources=[resource])
    order = {"partition_index": 0, "target": {"node_ids": [1, 2]}}
    await calls.change("AlterPartitionReassignments", topics=[_TOPIC | {"partitions": [order]}])
    await calls.change("ElectLeaders", topic_partitions=[{"topic": "t", "partitions": [0]}])
    await calls.change("CreateAcls", creations=[_RULE])
    await calls.change("DeleteAcls", filters=[{"principal_filter": "client/x"}])
    quota = {"entity": [{"entity_type": "user"}], "ops": [{"key": "request_rate", "value": 9_000}]}
    await calls.change("AlterClientQuotas", entries=[quota])
    await calls.change("DrainNode", node_id=4, draining=True)
    async with Producer(target(cluster.for_clients), **settings_of(cluster.made.files("admin/root"))) as producer:
        await (await producer.send("t", _SECRET.encode(), key=_SECRET.encode(), partition=0))
    partition = {"partition_index": 0, "offset": 1}
    await calls.call("LeaderService/DeleteRecords", 1, topics=[_TOPIC | {"partitions": [partition]}])
    await calls.call("LeaderService/WriteTxnMarkers", 1, cluster_id=CLUSTER, markers=[_MARKER])
    await _changed_groups(cluster, calls)
    await calls.change("DeleteTopics", topics=[_TOPIC])
    await fourth.shut_down()

    async def is_removed() -> bool:
        codes, _ = await outcome(await calls.channel(None), "ControllerService/UnregisterNode", {"node_id": 4})
        return not codes

    await until(is_removed, "the session of node 4 has ended")
    await calls.change("ShutdownNode", node_id=2)


async def _changed_groups(cluster: Secured, calls: _Calls) -> None:
    async def coordinator() -> int | None:
        _, answer = await outcome(await calls.channel(1), "GroupService/FindCoordinator", {"coordinator_keys": ["g"]})
        (found,) = answer.coordinators
        return None if found.error_code else found.node_id

    at = await until(coordinator, "the group has a coordinator")
    offsets = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    await calls.call("GroupService/OffsetCommit", at, group_id="g", topics=offsets)
    await calls.call("GroupService/OffsetDelete", at, group_id="g", topics=[{"topic": "t", "partitions": [0]}])
    await calls.call("GroupService/OffsetCommit", at, group_id="g", topics=offsets)
    await calls.call("GroupService/DeleteGroups", at, groups_names=["g"])


async def test_each_change_is_told_once_with_what_it_replaced(tmp_path: Path) -> None:
    """Every method of the table that changes something leaves one event; reads and records leave none."""
    exported = {"export_dir": str(tmp_path / "export"), "export_format": "jsonl"}
    async with secured_cluster(tmp_path, **exported) as cluster, AsyncExitStack() as stack:
        calls = _Calls(cluster, stack)
        await _changed(cluster, calls, tmp_path / "node-4")
        of_proofs = cluster.controller.driver.core.state.header.secret
        described = (await calls.call("MetadataService/DescribeAudit")).events
    rows = _audits(tmp_path)
    told = {row["method"]: row for row in rows}

    reset = "GroupService/OffsetCommit"
    once = dict.fromkeys(_names(CHANGES - {"/strandline.v1.ControllerService/HandOver"}), 1)
    assert Counter(row["method"] for row in rows if row["outcome"] == "ALLOWED") == once | {reset: 2}
    assert len(rows) == len(told) + 1
    assert (told[reset]["resource_name"], told[reset]["after"]) == ("g", {"t-0": "1"})
    assert {(row["principal"], row["rule"]) for row in rows} == {("admin/ops", "role")}
    assert all("127.0.0.1" in row["peer"] for row in rows)
    change = told["ControllerService/IncrementalAlterConfigs"]
    assert (change["resource_type"], change["resource_name"]) == ("topic", "t")
    assert (change["before"], change["after"]) == ({"min.insync.replicas": "2"}, {"min.insync.replicas": "1"})
    assert told["ControllerService/DeleteTopics"]["before"] == {
        "partitions": "2", "replication.factor": "2", "min.insync.replicas": "1"
    }  # fmt: skip
    moved = told["ControllerService/AlterPartitionReassignments"]
    assert (moved["before"], moved["after"]) == ({"replicas of 0": "2,1"}, {"replicas of 0": "1,2"})
    rule = "client/x ALLOW READ topic LITERAL t"
    assert told["ControllerService/CreateAcls"]["after"] == {"rule": rule}
    assert told["ControllerService/DeleteAcls"]["before"] == {"rule": rule}
    assert told["ControllerService/AlterClientQuotas"]["after"] == {"request_rate of client/*": "9000"}
    assert told["ControllerService/DrainNode"]["after"] == {"draining": "true"}
    assert told["LeaderService/DeleteRecords"]["after"] == {"log start of 0": "1"}
    assert told["GroupService/OffsetDelete"]["before"] == {"t-0": "committed"}
    assert {event.method for event in described} == {name for name in told if name.startswith("ControllerService/")}
    _holds_no_secret(tmp_path, of_proofs)


def _names(methods: Iterable[str]) -> set[str]:
    return {method.removeprefix("/strandline.v1.") for method in methods}


def _holds_no_secret(directory: Path, of_proofs: str) -> None:
    """Neither the exported files nor the local lines have a record's key or value, a private key, or what proofs of
    positions are made with."""
    files = [*directory.rglob("events.jsonl"), *(directory / "export").rglob("*.jsonl")]
    texts = [path.read_text() for path in files]
    keys = [path.read_text().splitlines()[1] for path in directory.rglob("tls.key")]
    exported = [text for path, text in zip(files, texts, strict=True) if path.name != "events.jsonl"]

    assert any('"min.insync.replicas":"1"' in text for text in exported)
    assert len(keys) > 4
    assert [secret for secret in (_SECRET, of_proofs, *keys) if any(secret in text for text in texts)] == []


async def test_a_refused_call_is_told_once_and_an_allowed_one_is_not(tmp_path: Path) -> None:
    """Every method that rules can allow, by its name: a refused caller leaves one event, and a list that leaves out
    what may not be known leaves none; so do an administrator's reads, records and commits."""
    expected: Counter[str] = Counter()
    async with secured_cluster(tmp_path, (1,), authorization="acl") as cluster, AsyncExitStack() as stack:
        await cluster.admin.create_topic(HIDDEN, partitions=1, replication_factor=1)
        async with Producer(target(cluster.for_clients), **settings_of(cluster.made.files("admin/root"))) as producer:
            await (await producer.send(HIDDEN, b"record"))
        tls = cluster.made.tls("client/x")
        node = cluster.nodes[0].client
        assert node is not None
        to_node = await stack.enter_async_context(open_channel(node, tls=tls))
        to_controller = await stack.enter_async_context(open_channel(cluster.for_clients, tls=tls))
        for name, (codes, _) in (await ruled(to_node, to_controller)).items():
            # GetMetadata names a topic, and is answered without it.
            expected[name] = len(codes) or name == "ControllerService/GetMetadata"
        replica = await stack.enter_async_context(open_channel(node, tls=cluster.made.tls("replica/2")))
        await outcome(replica, "LeaderService/Produce")
    rows = _audits(tmp_path)
    refused = [row for row in rows if row["outcome"] == "REFUSED"]
    by_rules = [row for row in refused if row["principal"] == "client/x"]

    assert _of(by_rules, "REFUSED") == +expected
    assert len(+expected) > 30
    assert {row.get("rule") for row in by_rules} == {None}
    assert [(row["principal"], row["method"], row["rule"]) for row in refused if row not in by_rules] == [
        ("replica/2", "LeaderService/Produce", "role")
    ]
    assert [row["method"] for row in rows if row["outcome"] == "ALLOWED"] == ["ControllerService/CreateTopics"]


async def test_a_console_shows_the_audit_if_its_certificate_may_see_it(tmp_path: Path) -> None:
    """What every process told of; who may not describe the cluster and every topic is told so, and sees nothing."""

    async def looked(cluster: Secured, who: str) -> AuditLook:
        settings = ConsoleSettings(bootstrap=(target(cluster.for_clients),), **settings_of(cluster.made.files(who)))
        watching = Watching(settings, lambda: None)
        task = asyncio.create_task(watching.run())

        async def look() -> AuditLook | None:
            return watching.picture.audits.get("controller")

        found: AuditLook = await until(look, "the console has asked the controller")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    async with secured_cluster(tmp_path, (1,), authorization="acl") as cluster:
        await cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        seen, hidden = await looked(cluster, "admin/ops"), await looked(cluster, "client/x")
    (told,) = seen.events

    assert (told.principal, told.method, told.resource_name) == ("admin/root", "ControllerService/CreateTopics", "t")
    assert (dict(told.before), told.after["partitions"]) == ({}, "1")
    assert not hidden.events
    assert "client/x may not DESCRIBE" in hidden.failure


def _answered(answer: Any) -> Any:
    async def handler(request: Any, context: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return grpc.unary_unary_rpc_method_handler(handler)


async def _audited(method: str, answer: Any, request: Any) -> list[Audit]:
    """What is told of a call without TLS that its handler answers so."""
    told: list[Audit] = []
    details = SimpleNamespace(method=f"/strandline.v1.{method}")

    async def continuation(_: Any) -> Any:
        return _answered(answer)

    handler = await AuditInterceptor(told.append).intercept_service(continuation, details)  # type: ignore[arg-type]
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")
    with contextlib.suppress(ValueError, asyncio.CancelledError):
        await handler.unary_unary(request, context)
    return told


async def test_a_hand_over_is_told_of_whom_and_to_whom() -> None:
    """Without TLS the caller is anonymous, and no rule decided."""
    request, answer = controller_pb.HandOverRequest(to="c2"), controller_pb.HandOverResponse(controller_id="c1")
    (told,) = await _audited("ControllerService/HandOver", answer, request)

    assert (told.principal, told.rule, told.outcome) == ("anonymous", None, "ALLOWED")
    assert (told.before, told.after) == ({"controller": "c1"}, {"controller": "c2"})


async def test_a_deletion_that_its_caller_gave_up_is_told_and_a_failed_one_is_not() -> None:
    """Cancelling the call does not hide a deletion; one that was refused as a whole changed nothing."""
    request = leader_pb.DeleteRecordsRequest(topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])
    (given_up,) = await _audited("LeaderService/DeleteRecords", asyncio.CancelledError(), request)
    failed = await _audited("LeaderService/DeleteRecords", ValueError(), request)

    assert (given_up.resource_name, given_up.after, failed) == ("t", {"done": "not known"}, [])


async def test_a_reset_is_told_with_the_offsets_that_were_committed() -> None:
    """By name or id, in any order of the answer; what is refused, and commits of members and of callers other
    than administrators, leave no event."""
    first, second = {"partition_index": 0, "committed_offset": 1}, {"partition_index": 1, "committed_offset": 2}
    rows = [("absent", "", [first]), ("t", "", [first]), ("", "id-of-u", [second]), ("t", "", [second])]
    topics = [{"name": name, "topic_id": topic_id, "partitions": parts} for name, topic_id, parts in rows]
    request = group_pb.OffsetCommitRequest(group_id="g", topics=topics)  # type: ignore[arg-type]
    answer = group_pb.OffsetCommitResponse()
    for name, topic_id, found in (("t", "id-of-t", {0: 0, 1: 22}), ("u", "id-of-u", {1: 0}), ("absent", "", {0: 3})):
        topic = answer.topics.add(name=name, topic_id=topic_id)
        for index, error in found.items():
            topic.partitions.add(partition_index=index, error_code=error)

    async def told(role: CallerRole | None) -> list[Audit]:
        IDENTITY.set(None if role is None else Identity(CLUSTER, role, "x"))
        return await _audited("GroupService/OffsetCommit", answer, request)

    (reset,) = await told(CallerRole.ADMIN)
    others = await told(CallerRole.CLIENT), await told(None)
    request.member_id = "m"

    assert (reset.resource_name, reset.after) == ("g", {"t-0": "1", "id-of-u-1": "2"})
    assert (*others, await told(CallerRole.ADMIN)) == ([], [], [])


async def test_markers_of_coordinators_are_no_changes_of_callers() -> None:
    """Without TLS they look like those of an administrator, and are traffic."""
    request = leader_pb.WriteTxnMarkersRequest(markers=[_MARKER])

    assert await _audited("LeaderService/WriteTxnMarkers", leader_pb.WriteTxnMarkersResponse(), request) == []
