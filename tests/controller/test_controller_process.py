"""The controller over its real port: what callers see of starts, restarts, watches, probes and failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running_controller import (
    DEADLINE_S,
    Stopped,
    controller,
    create,
    join,
    node_directory,
    port_of,
    registration,
    settings,
    stop,
    stub_of,
)

from strandline.controller import prober
from strandline.controller.process import ControllerProcess
from strandline.controller.servicer import SERVICE
from strandline.controller.settings import ControllerSettings
from strandline.controller.tools.recover import main as recover
from strandline.core import types
from strandline.core.control.events import ConnectionRefused
from strandline.core.control.messages import (
    CreateTopics,
    GetMetadata,
    MetadataListed,
    NewTopic,
    TopicsCreated,
    WatchMetadata,
)
from strandline.core.control.state import ClusterHeader, ClusterState, Transaction
from strandline.core.errors import ErrorCode
from strandline.core.messages import MetadataImage
from strandline.core.positions import prove
from strandline.core.types import Durability, FetchHw, IsrJoin, NodeEpoch, NodeId, Rules, Truncation
from strandline.metadata.sqlite import SqliteStore
from strandline.metadata.store import StoreFailed
from strandline.rpc.channels import open_channel
from strandline.rpc.convert.metadata import POSITION
from strandline.rpc.server import PortTaken
from strandline.rpc.status import refusal_of
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb, partition_pb2


async def next_change(stream: Any) -> pb.WatchMetadataResponse:
    """The next message that carries metadata."""
    while True:
        message: pb.WatchMetadataResponse = await asyncio.wait_for(stream.read(), DEADLINE_S)
        if message.HasField("metadata"):
            return message


async def end_of(stream: Any) -> ErrorCode:
    """Read until the server ends the stream; returns the reason."""
    try:
        while await asyncio.wait_for(stream.read(), DEADLINE_S) is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return refusal_of(error).code
    return ErrorCode.NONE


async def is_serving(process: ControllerProcess) -> bool:
    """The health service's status of ControllerService."""
    assert process.endpoint is not None
    channel = open_channel(process.endpoint)
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_S)
    await channel.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def test_serving_controller_says_where_it_is(tmp_path: Path) -> None:
    """Port 0 becomes a real port in endpoint.json, written once the controller serves; health agrees."""
    async with controller(tmp_path) as process:
        written = json.loads((tmp_path / "endpoint.json").read_text())
        healthy = await is_serving(process)

    assert written["client"] == f"127.0.0.1:{port_of(process.endpoint)}"
    assert written["pid"] > 0
    assert healthy


@pytest.mark.parametrize("bind", ["", "127.0.0.1:0"])
async def test_the_address_of_the_metrics_is_written_where_there_is_one(tmp_path: Path, bind: str) -> None:
    """The endpoint file names the metrics port that was bound, and none without one."""
    async with controller(tmp_path, metrics_bind=bind) as process:
        written = json.loads((tmp_path / "endpoint.json").read_text())

    assert written.get("metrics", "") == process.metrics_address
    assert bool(process.metrics_address) == bool(bind)


async def test_nodes_join_and_topics_get_leaders(tmp_path: Path) -> None:
    """Registration, heartbeat, CreateTopics, DescribeTopics, GetMetadata and ListNodes over the wire."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        epochs = [(await join(stub, node_id)).node_epoch for node_id in (1, 2)]
        created = await create(stub, "t", "../../x")
        described = await stub.DescribeTopics(pb.DescribeTopicsRequest(), timeout=DEADLINE_S)
        reported = await stub.GetMetadata(pb.GetMetadataRequest(), timeout=DEADLINE_S)
        confirmed = await stub.GetMetadata(pb.GetMetadataRequest(linearizable=True), timeout=DEADLINE_S)
        listed = await stub.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)

    assert epochs == [1, 2]
    assert [topic.error_code for topic in created.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    partition = described.topics[0].topic.partitions[0]
    assert (partition.leader_id, list(partition.isr), partition.min_insync_replicas) == (1, [1, 2], 1)
    assert reported.metadata.topics[0] == described.topics[0].topic
    assert confirmed == reported
    assert [node.node.node_id for node in listed.nodes] == [1, 2]
    assert all(node.HasField("last_heartbeat_age_ms") for node in listed.nodes)


async def test_administration_over_the_wire(tmp_path: Path) -> None:
    """Settings, growth, elections, producer ids, shutdown and deletion, each with its own answer."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        for node_id in (1, 2):
            await join(stub, node_id)
        await create(stub, "t")
        altered = await stub.AlterTopicConfigs(
            pb.AlterTopicConfigsRequest(topics=[pb.TopicConfigChange(name="t", set_configs={"retention.ms": "x"})]),
            timeout=DEADLINE_S,
        )
        grown = await stub.CreatePartitions(
            pb.CreatePartitionsRequest(topics=[pb.GrowingTopic(name="t", count=3)]), timeout=DEADLINE_S
        )
        asked = partition_pb2.TopicPartitions(topic="t", partitions=[0, 9])
        elected = await stub.ElectLeaders(pb.ElectLeadersRequest(topic_partitions=[asked]), timeout=DEADLINE_S)
        producer = await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=DEADLINE_S)
        stopped = await stub.ShutdownNode(pb.ShutdownNodeRequest(node_id=1), timeout=DEADLINE_S)
        deleted = await stub.DeleteTopics(
            pb.DeleteTopicsRequest(topics=[partition_pb2.TopicReference(name="t")]), timeout=DEADLINE_S
        )

    assert altered.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert grown.results[0].error_code == 0
    results = elected.replica_election_results[0].partition_result
    assert [r.error_code for r in results] == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (results[0].leader_id, results[1].HasField("leader_id")) == (1, False)
    assert (producer.producer_id, producer.producer_epoch) == (0, 0)
    assert (stopped.error_code, list(stopped.remaining_partitions)) == (0, [])
    assert deleted.responses[0].error_code == 0


async def test_a_removed_node_stays_removed_over_a_restart(tmp_path: Path) -> None:
    """A node is removed once its session has ended, and a restarted controller still names it as removed."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        await join(stub, 1)
        node = await join(stub, 4)
        alive = await stub.UnregisterNode(pb.UnregisterNodeRequest(node_id=4), timeout=DEADLINE_S)
        # Nothing listens on its port: its process counts as gone as soon as its watch ends.
        process.driver.step(ConnectionRefused(process.driver.clock(), ((NodeId(4), NodeEpoch(node.node_epoch)),)))
        removed = await stub.UnregisterNode(pb.UnregisterNodeRequest(node_id=4), timeout=DEADLINE_S)
    async with controller(tmp_path) as process, stub_of(process) as stub:
        after = (await stub.GetMetadata(pb.GetMetadataRequest(), timeout=DEADLINE_S)).metadata
        await join(stub, 1)
        again = await stub.UnregisterNode(pb.UnregisterNodeRequest(node_id=4), timeout=DEADLINE_S)

    assert (alive.error_code, removed.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    assert ([node.node_id for node in after.nodes], list(after.removed_node_ids)) == ([1], [4])
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_watch_gives_a_snapshot_then_changes_to_its_own_epoch(tmp_path: Path) -> None:
    """TR15: every message names the node epoch it is for; a client's names none."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        node = await join(stub, 1)
        request = pb.WatchMetadataRequest(cluster_id=node.cluster_id, node_id=1, node_epoch=node.node_epoch)
        as_node, as_client = stub.WatchMetadata(request), stub.WatchMetadata(pb.WatchMetadataRequest())
        snapshots = [await next_change(as_node), await next_change(as_client)]
        await create(stub, "t")
        changes = [await next_change(as_node), await next_change(as_client)]
        as_node.cancel()
        as_client.cancel()

    assert [message.is_snapshot for message in snapshots + changes] == [True, True, False, False]
    assert [message.node_epoch for message in (snapshots[0], changes[0])] == [node.node_epoch] * 2
    assert not changes[1].HasField("node_epoch")
    assert [topic.name for topic in changes[0].metadata.topics] == ["t"]
    assert changes[0].metadata.metadata_offset == snapshots[0].metadata.metadata_offset + 1


async def test_quiet_watch_shows_that_the_controller_lives(tmp_path: Path) -> None:
    """Without changes a message without metadata is sent every heartbeat interval."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        stream = stub.WatchMetadata(pb.WatchMetadataRequest())
        await next_change(stream)
        quiet = await asyncio.wait_for(stream.read(), DEADLINE_S)
        stream.cancel()

    assert not quiet.HasField("metadata")


async def test_watch_of_a_superseded_process_ends(tmp_path: Path) -> None:
    """A newer registration ends the old process's watch with STALE_BROKER_EPOCH, as it does a new attempt."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        old = await join(stub, 1)
        request = pb.WatchMetadataRequest(cluster_id=old.cluster_id, node_id=1, node_epoch=old.node_epoch)
        stream = stub.WatchMetadata(request)
        await next_change(stream)
        await stub.RegisterNode(registration(1, incarnation_id="newer"), timeout=DEADLINE_S)
        ends = [await end_of(stream), await end_of(stub.WatchMetadata(request))]

    assert ends == [ErrorCode.STALE_BROKER_EPOCH] * 2


async def test_calls_of_another_cluster_are_refused_as_a_whole(tmp_path: Path) -> None:
    """FAILED_PRECONDITION with an ErrorInfo that names the field, for every kind of call."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        await join(stub, 2)
        calls = [
            stub.RegisterNode(registration(1, cluster_id="elsewhere"), timeout=DEADLINE_S),
            stub.Heartbeat(pb.HeartbeatRequest(node_id=1, node_epoch=1, cluster_id="elsewhere"), timeout=DEADLINE_S),
            stub.AlterPartition(pb.AlterPartitionRequest(node_epoch=1, cluster_id="elsewhere"), timeout=DEADLINE_S),
            stub.GetMetadata(pb.GetMetadataRequest(cluster_id="elsewhere"), timeout=DEADLINE_S),
        ]
        errors = await asyncio.gather(*calls, return_exceptions=True)

    for error in errors:
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refusal_of(error).code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "cluster_id" in (error.details() or "")


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"node_id": -1}, "node_id"),
        ({"incarnation_id": ""}, "incarnation_id"),
        ({"directory_id": ""}, "directory_id"),
        ({"roles": []}, "roles"),
        ({"endpoints": None}, "endpoints.client"),
        ({"feature_levels": None}, "feature_levels"),
        ({"rack": "a\r\nb"}, "rack"),
        ({"rack": "\x1b[31mred"}, "rack"),
        ({"rack": "\u202eesrever"}, "rack"),
        ({"rack": "r" * 256}, "rack"),
        ({"incarnation_id": "\x1b]0;title\x07"}, "incarnation_id"),
        ({"directory_id": "d" * 256}, "directory_id"),
    ],
)
async def test_shapeless_registration_is_refused_with_its_field(
    tmp_path: Path, broken: dict[str, Any], field: str
) -> None:
    """INVALID_REQUEST with the field's name; nothing is registered."""
    message = registration(1)
    for name, value in broken.items():
        message.ClearField(name)
        if isinstance(value, int | str):
            setattr(message, name, value)
    async with controller(tmp_path) as process, stub_of(process) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.RegisterNode(message, timeout=DEADLINE_S)
        listed = await stub.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)

    assert refusal_of(caught.value).code is ErrorCode.INVALID_REQUEST
    assert field in (caught.value.details() or "")
    assert not listed.nodes


@pytest.mark.parametrize("end", ["client", "internal"])
@pytest.mark.parametrize(
    "host", ["node\r\nSet-Cookie: a", "\x1b[2J", "<script>alert(1)</script>", "a b", "h" * 254, "[bold]", "/etc/passwd"]
)
async def test_a_host_that_is_none_is_refused(tmp_path: Path, end: str, host: str) -> None:
    """An advertised address is shown in terminals and dialled by clients, so it must be a name or an address."""
    message = registration(1)
    getattr(message.endpoints, end).host = host
    async with controller(tmp_path) as process, stub_of(process) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.RegisterNode(message, timeout=DEADLINE_S)

    assert refusal_of(caught.value).code is ErrorCode.INVALID_REQUEST
    assert f"endpoints.{end}" in (caught.value.details() or "")
    assert (caught.value.details() or "").isprintable()


@pytest.mark.parametrize("host", ["node-1.example", "127.0.0.1", "::1", "fe80::1%eth0", "node_1"])
async def test_names_and_addresses_are_hosts(tmp_path: Path, host: str) -> None:
    """IPv6 with a zone, and the names that container networks give, included."""
    message = registration(1)
    message.endpoints.client.host, message.rack = host, "rack ä, row 7"
    async with controller(tmp_path) as process, stub_of(process) as stub:
        await stub.RegisterNode(message, timeout=DEADLINE_S)
        (node,) = (await stub.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)).nodes

    assert (node.node.endpoints.client.host, node.node.rack) == (host, "rack ä, row 7")


async def test_missing_node_epoch_is_stale_not_zero(tmp_path: Path) -> None:
    """Kafka's -1 means absent: a heartbeat without node epoch is STALE_BROKER_EPOCH."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Heartbeat(pb.HeartbeatRequest(node_id=1), timeout=DEADLINE_S)

    assert refusal_of(caught.value).code is ErrorCode.STALE_BROKER_EPOCH


async def test_restart_keeps_the_state_and_begins_a_new_reign(tmp_path: Path) -> None:
    """Cluster id, nodes, topics and epochs are restored; the controller epoch is one higher; no node is fenced."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        node = await join(stub, 1)
        await create(stub, "t")
        before = (await stub.GetMetadata(pb.GetMetadataRequest(), timeout=DEADLINE_S)).metadata
    async with controller(tmp_path) as process, stub_of(process) as stub:
        after = (await stub.GetMetadata(pb.GetMetadataRequest(), timeout=DEADLINE_S)).metadata
        beat = await stub.Heartbeat(
            pb.HeartbeatRequest(node_id=1, node_epoch=node.node_epoch, cluster_id=node.cluster_id), timeout=DEADLINE_S
        )

    assert (after.controller_epoch, before.controller_epoch) == (2, 1)
    assert after.cluster_id == before.cluster_id
    assert (list(after.nodes), list(after.topics)) == (list(before.nodes), list(before.topics))
    assert (beat.error_code, beat.is_fenced) == (0, False)


async def test_port_and_store_belong_to_one_process(tmp_path: Path) -> None:
    """A second controller on the same port or the same directory is a clear error, not a silent second server."""
    async with controller(tmp_path / "a") as process:
        taken = ControllerProcess(settings(tmp_path / "b", bind=f"127.0.0.1:{port_of(process.endpoint)}"), stop=stop)
        with pytest.raises(PortTaken):
            await taken.start()
        same = ControllerProcess(settings(tmp_path / "a"), stop=stop)
        with pytest.raises(StoreFailed, match="in use by another process"):
            await same.start()

        assert await is_serving(process)


async def test_rules_are_chosen_once(tmp_path: Path) -> None:
    """The first start stores them; leaving them out later keeps them, another value is rejected by name."""
    async with controller(tmp_path, durability="page-cache"):
        pass
    async with controller(tmp_path) as process:
        assert process.driver.core.state.header.rules.durability.value == "page-cache"

    other = ControllerProcess(settings(tmp_path, durability="fsync"), stop=stop)
    with pytest.raises(ValueError, match="durability: fsync is not the cluster's page-cache"):
        await other.start()


async def test_a_cluster_of_a_later_level_is_left_alone(tmp_path: Path) -> None:
    """An older release does not serve a store whose feature level it does not support, and names the remedy."""
    async with controller(tmp_path):
        pass
    store = SqliteStore(tmp_path)
    state = await store.open()
    assert state is not None
    later = types.HIGHEST + 1
    await store.replace(replace(state, header=replace(state.header, feature_level=later)))
    await store.close()

    with pytest.raises(
        ValueError, match=f"at feature level {later}, beyond {later - 1}, the highest of this release; roll back"
    ):
        await ControllerProcess(settings(tmp_path), stop=stop).start()


async def closed_port() -> int:
    """A port at which nothing listens."""
    closed = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    return port


async def test_node_that_refuses_connections_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    """The watch of a process that is gone breaks; the controller's own probe finds its port closed."""
    port = await closed_port()
    async with controller(tmp_path, session_timeout_ms=60_000) as process, stub_of(process) as stub:
        for node_id in (1, 2):
            await join(stub, node_id, port=port)
        await create(stub, "t")
        watching = stub.WatchMetadata(pb.WatchMetadataRequest())
        await next_change(watching)
        await end_as_if_killed(stub, process)
        change = await next_change(watching)
        watching.cancel()

    assert {node.node_id: node.fenced for node in change.metadata.nodes} == {1: True}
    assert change.metadata.topics[0].partitions[0].leader_id == 2


@asynccontextmanager
async def with_dead_nodes(tmp_path: Path) -> AsyncIterator[tuple[ControllerProcess, Any, list[Any]]]:
    """A controller of three nodes whose ports are closed, a client's watch, and the watches of nodes 1 and 2."""
    port = await closed_port()
    async with controller(tmp_path, session_timeout_ms=60_000) as process, stub_of(process) as stub:
        for node_id in (1, 2, 3):
            await join(stub, node_id, port=port)
        watching = stub.WatchMetadata(pb.WatchMetadataRequest())
        await next_change(watching)
        cluster_id = process.driver.core.state.header.cluster_id
        watches = [
            await process.driver.watch(WatchMetadata(cluster_id=cluster_id, node_id=n, node_epoch=NodeEpoch(n)))
            for n in (NodeId(1), NodeId(2))
        ]
        yield process, watching, watches
        watching.cancel()


async def test_nodes_that_die_together_are_fenced_together(tmp_path: Path) -> None:
    """One change removes both, so that neither is elected or left alone in an ISR in between (M64)."""
    async with with_dead_nodes(tmp_path) as (process, watching, watches):
        for watch in watches:
            process.prober.suspect(watch)
        change = await next_change(watching)

    assert {node.node_id: node.fenced for node in change.metadata.nodes} == {1: True, 2: True}


async def test_a_node_that_is_found_gone_a_moment_later_is_fenced_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first waits although no other node is probed yet: connections break one after the other (M64)."""
    monkeypatch.setattr(prober, "_GATHER_S", 0.5)
    async with with_dead_nodes(tmp_path) as (process, watching, (first, second)):
        process.prober.suspect(first)
        await asyncio.wait_for(asyncio.gather(*process.prober._looking.values()), DEADLINE_S)
        process.prober.suspect(second)
        change = await next_change(watching)

    assert {node.node_id: node.fenced for node in change.metadata.nodes} == {1: True, 2: True}


async def test_node_that_still_listens_is_not_fenced(tmp_path: Path) -> None:
    """A broken watch alone is a reason to probe, never to fence."""
    seen = asyncio.Event()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set()
        writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listening, controller(tmp_path, session_timeout_ms=60_000) as process, stub_of(process) as stub:
        await join(stub, 1, port=listening.sockets[0].getsockname()[1])
        await end_as_if_killed(stub, process)
        await asyncio.wait_for(seen.wait(), DEADLINE_S)
        await process.prober.close()

        assert not process.driver.core.state.nodes[1].image.fenced


async def end_as_if_killed(stub: Any, process: ControllerProcess) -> None:
    """Open node 1's watch and break it."""
    header = process.driver.core.state.header
    stream = stub.WatchMetadata(pb.WatchMetadataRequest(cluster_id=header.cluster_id, node_id=1, node_epoch=1))
    await next_change(stream)
    stream.cancel()


async def test_store_too_old_ends_all_service(tmp_path: Path) -> None:
    """TR18 over the wire: health changes, watches end, every call is NOT_CONTROLLER with the remedy."""
    async with controller(tmp_path) as process, stub_of(process) as stub:
        watching = stub.WatchMetadata(pb.WatchMetadataRequest())
        await next_change(watching)
        message = registration(1)
        secret = process.driver.core.state.header.secret
        proof = prove(secret, node_id=NodeId(1), node_epoch=NodeEpoch(1), controller_epoch=99, metadata_offset=1)
        message.position.CopyFrom(POSITION.write(proof))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.RegisterNode(message, timeout=DEADLINE_S)
        ended = await end_of(watching)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)
        healthy = await is_serving(process)

    assert refusal_of(caught.value).code is ErrorCode.NOT_CONTROLLER
    assert "controller recover" in (caught.value.details() or "")
    assert ended is ErrorCode.NOT_CONTROLLER
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not healthy


async def test_a_recovered_store_is_served_from_without_a_restart(tmp_path: Path) -> None:
    """F5: a doubtful store is released; after `recover` the same process starts an epoch above all that was seen."""
    async with controller(tmp_path / "store") as process, stub_of(process) as stub:
        await join(stub, 2)
        header = process.driver.core.state.header
        seen = MetadataImage(
            cluster_id=header.cluster_id,
            controller_epoch=99,
            metadata_offset=7,
            is_snapshot=True,
            rules=header.rules,
            nodes=(),
            topics=(),
        )
        message = registration(1)
        proof = prove(header.secret, node_id=NodeId(1), node_epoch=NodeEpoch(0), controller_epoch=99, metadata_offset=7)
        message.position.CopyFrom(POSITION.write(proof))
        with pytest.raises(grpc.aio.AioRpcError, match="older than the cluster"):
            await stub.RegisterNode(message, timeout=DEADLINE_S)
        await _recovered(tmp_path / "store", node_directory(tmp_path, 1, seen))
        answer = await _answered(lambda: stub.RegisterNode(message, timeout=DEADLINE_S))
        healthy = await is_serving(process)

    assert answer.error_code == 0, answer.error_message
    assert answer.controller_epoch == 101
    assert healthy


async def test_metadata_ages_from_the_moment_of_the_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody hears that the controller does not serve, what it sends is no longer called current (C62)."""
    aging: list[bool] = []
    noted = asyncio.Event()
    async with controller(tmp_path) as process:

        async def set_serving(serving: bool) -> None:
            aging.append(process._stopped_serving_ms is not None)
            noted.set()

        monkeypatch.setattr(process.health, "set_serving", set_serving)
        process._store_in_doubt.set()
        await asyncio.wait_for(noted.wait(), DEADLINE_S)

    assert aging[0]


async def test_nothing_is_served_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that waits for its window when the controller stops is dropped, with the timer that would serve it."""
    async with controller(tmp_path) as process:
        process.feed.catch_up()
        monkeypatch.setattr(process.feed, "_merge_ms", 1 << 30)
        process.feed.take(process.driver.core.state.snapshot())
        waits = process.feed._timer is not None

    assert waits
    assert process.feed._timer is None


async def _recovered(store: Path, *node_dirs: Path) -> None:
    """Run `recover`, repeatedly while the controller has not closed the store yet."""
    given = ["--data-dir", str(store), *map(str, node_dirs)]
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if await asyncio.to_thread(recover, given) is ExitCode.CLEAN:
                return
            await asyncio.sleep(0.05)


async def _answered(call: Callable[[], Awaitable[Any]]) -> Any:
    """The first successful answer of a call that is rejected for a while."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if refusal_of(error).code is not ErrorCode.NOT_CONTROLLER:
                    raise
            await asyncio.sleep(0.05)


class GatedStore:
    """A store whose commits end when the test allows it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.commits: list[int] = []
        self.waiting = asyncio.Event()
        self.fails = False

    async def open(self) -> ClusterState | None:
        """An empty store."""
        return None

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Wait for the gate."""
        self.waiting.set()
        await self.gate.wait()
        if self.fails:
            raise StoreFailed("disk I/O error")
        self.commits.append(len(transactions))

    async def replace(self, state: ClusterState) -> None:
        """Not used here."""

    async def reopened(self) -> ClusterState | None:
        """Never replaced."""
        return await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Nothing to release."""


async def test_nothing_is_answered_or_reported_before_it_is_durable(tmp_path: Path) -> None:
    """While a commit is running its answer and even a read behind it wait; one later commit takes the rest."""
    store = GatedStore()
    async with controller(tmp_path, store=store) as process, stub_of(process) as stub:
        await join(stub, 1)
        before = len(store.commits)
        store.waiting.clear()
        store.gate.clear()
        first = ask_for_topic(process, "a")
        await asyncio.wait_for(store.waiting.wait(), DEADLINE_S)
        rest = [ask_for_topic(process, name) for name in "bcd"]
        question = asyncio.ensure_future(process.driver.request(GetMetadata(), MetadataListed))
        # One turn of the loop lets each of them step the core.
        await asyncio.sleep(0)

        assert len(process.driver.core.state.topics) == 4
        assert not any(call.done() for call in (first, question, *rest))

        store.gate.set()
        await asyncio.gather(first, *rest)
        reported = (await question).image

    assert store.commits[before:] == [1, 3]
    assert len(reported.topics) == 4


def ask_for_topic(process: ControllerProcess, name: str) -> asyncio.Future[TopicsCreated]:
    """Create a topic through the driver, without the wire."""
    topic = NewTopic(name=name, topic_id=name, replication_factor=1)
    return asyncio.ensure_future(process.driver.request(CreateTopics(topics=(topic,)), TopicsCreated))


async def test_failed_commit_ends_the_process(tmp_path: Path) -> None:
    """A change that may or may not be stored cannot be served: exit code 10, and no caller got an answer."""
    store = GatedStore()
    ended: asyncio.Future[ExitCode] = asyncio.get_running_loop().create_future()

    def end(code: ExitCode, line: str) -> NoReturn:
        if not ended.done():
            ended.set_result(code)
        raise Stopped(code, line)

    process = ControllerProcess(settings(tmp_path), store=store, stop=end)
    await process.start()
    store.fails = True

    async with stub_of(process) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await create_briefly(stub)
    code = await asyncio.wait_for(ended, DEADLINE_S)
    store.fails = False
    await process.shut_down()

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert code is ExitCode.STORAGE_FAILED


async def create_briefly(stub: Any) -> None:
    """A producer id needs a commit; no caller waits long for it."""
    await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=0.5)


@pytest.mark.parametrize(("durability", "warned"), [(Durability.PAGE_CACHE, True), (None, False)])
async def test_what_page_cache_costs_is_logged_at_the_start(
    tmp_path: Path, durability: Durability | None, warned: bool
) -> None:
    """A controller whose cluster can lose acknowledged records logs it before it serves; any other does not."""
    with structlog.testing.capture_logs() as lines:
        async with controller(tmp_path, durability=durability):
            pass
    warnings = [line["event"] for line in lines if line["log_level"] == "warning"]

    assert [("durability=page-cache" in line) for line in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(
    "rules", [Rules(truncation=Truncation.KIP_101), Rules(isr_join=IsrJoin.HW), Rules(fetch_hw=FetchHw.UPDATED)]
)
async def test_a_store_of_historic_rules_is_refused(tmp_path: Path, rules: Rules) -> None:
    """A rule under which acknowledged records are lost is not served; the message names the rule and the remedy."""
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([Transaction(header=ClusterHeader(cluster_id="old", rules=rules))])
    await store.close()
    process = ControllerProcess(ControllerSettings(data_dir=tmp_path))

    with pytest.raises(ValueError, match="copy the records into a new cluster"):
        await process.start()
