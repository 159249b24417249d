"""Servers that hang, controllers that change, coordinators that are looked for: what is asked again, and where."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal, cast

import grpc
import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, until, write
from tests.client.subscribed_client import at_epoch, client_of, seen
from tests.core.metadata_images import image, topic
from tests.subscriptions.served_metadata import served

from strandline.client import Admin, ClusterUnreachable, Consumer, ControllersAway, Producer
from strandline.client.cluster import metadata
from strandline.client.cluster.metadata import SILENCE_MS, Cluster
from strandline.client.cluster.repeating import ask_again
from strandline.client.groups import coordinator
from strandline.client.groups.coordinator import ATTEMPT_MS, Coordinator, CoordinatorKind
from strandline.core.errors import ControllerHint, ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import EpochsSeen
from strandline.core.types import LeaderEpoch, PartitionEpoch, TopicPartition
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.convert.admin import read_elect_leaders
from strandline.subscriptions import servicer
from strandline.v1 import controller_service_pb2 as pb, error_pb2, metadata_pb2

MOMENT_S = ATTEMPT_MS / 1000 / 2
"""Longer than it takes to go elsewhere, and shorter than one attempt at an address that does not answer."""


class _Hangs(grpc.GenericRpcHandler):
    """Takes every call, and answers none."""

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._wait)

    async def _wait(self, requests: Any, context: Any) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def hung_address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Hangs(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_client_starts_beside_a_hung_address() -> None:
    """A bootstrap address that takes the subscription and sends nothing does not keep the client from the next."""
    async with (
        hung_address() as hung,
        served(image(1, topic("a"))) as alive,
        asyncio.timeout(3 * SILENCE_MS / 1000),
        client_of(hung, alive.address) as client,
    ):
        assert client.view.topic("a") is not None


async def test_a_subscription_that_falls_silent_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sent the state and then nothing, not even signs of life, is left for another one."""
    states = [image(1, topic("a"))]
    async with served(*states) as hung, served(*states) as alive, client_of(hung.address, alive.address) as client:
        monkeypatch.setattr(servicer, "SIGN_OF_LIFE_MS", 1_000_000)
        at_epoch(alive, 2)
        began_s = time.monotonic()
        await until(lambda: seen(client) == 2)
        moved_s = time.monotonic() - began_s

    assert SILENCE_MS > servicer.POSITION_MS
    assert moved_s < 2 * SILENCE_MS / 1000


async def test_patience_grows_while_every_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are all too slow are given twice as long in each round, so that a client starts at a cluster that is
    overloaded."""
    monkeypatch.setattr(metadata, "SILENCE_MS", 1)
    monkeypatch.setattr(metadata, "_MOST_PATIENCE", 1 << 14)
    async with served(image(1, topic("a"))) as slow:
        client = Cluster(slow.address, timeout_ms=60_000)
        try:
            await client.start()
        finally:
            await client.close()


async def test_clients_of_one_list_begin_at_different_addresses() -> None:
    """Each client draws an order of its own, so that not all of them are at the server that hangs."""
    addresses = [f"127.0.0.1:{port}" for port in range(1, 9)]
    first = {Cluster(addresses).source for _ in range(40)}

    assert len(first) > 1


async def test_a_commit_goes_to_the_next_coordinator() -> None:
    """A commit that waits at a hung coordinator goes to the one that metadata names, as soon as it names it."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer:
        cluster.groups.has_topic = True
        cluster.announce()
        await consumer.assign(TOPIC)
        await consumer.commit({(TOPIC, 0): 1})
        cluster.nodes[0].hangs = True
        commit = asyncio.create_task(consumer.commit({(TOPIC, 0): 2}))
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.groups.coordinator, cluster.groups.epoch = 1, 2
        cluster.announce()
        async with asyncio.timeout(MOMENT_S):
            await commit

    assert cluster.groups.committed["g"] == {(TOPIC, 0): 2}


async def test_a_coordinator_is_looked_up_at_another_node() -> None:
    """A node that hangs when it is asked where a coordinator is delays the question by a second at most."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, group="g", auto_commit=False) as consumer:
        cluster.nodes[0].hangs, cluster.groups.coordinator = True, 1
        async with asyncio.timeout(MOMENT_S):
            found = await consumer.committed((TOPIC, 0))

    assert found == {(TOPIC, 0): None}


@pytest.mark.parametrize("read_from", ["leader", "follower"])
async def test_a_place_is_looked_for_at_the_next_leader(read_from: Literal["leader", "follower"]) -> None:
    """A question for an offset that waits at a hung leader goes to the one that metadata names, as soon as it does."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, read_from=read_from) as consumer:
        cluster.nodes[0].hangs = True
        await consumer.assign(TOPIC, start="end")
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.move_leader(1)
        async with asyncio.timeout(MOMENT_S):
            await until(lambda: consumer.position(TOPIC, 0) is not None)


async def test_a_follower_that_left_the_isr_is_not_waited_for() -> None:
    """A consumer that reads at a hung follower goes elsewhere when metadata takes that out of the ISR, though the
    leader stays the same."""
    async with (
        fake_cluster(nodes=2) as cluster,
        Consumer(cluster.bootstrap, read_from="follower", rack="r") as consumer,
    ):
        cluster.racks = {0: "r", 1: "r"}
        write(cluster, b"one")
        cluster.nodes[1].hangs = True
        await consumer.assign(TOPIC, start=0)
        await until(lambda: cluster.nodes[1].hung_calls > 0)
        cluster.out_of_sync = {1}
        cluster.announce()
        async with asyncio.timeout(MOMENT_S):
            records = await consumer.poll()

    assert [record.value for record in records] == [b"one"]


async def test_records_are_deleted_at_the_next_leader() -> None:
    """A deletion that waits at a hung leader is asked of the one that metadata names, as soon as it does."""
    async with fake_cluster(nodes=2) as cluster, Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
        cluster.nodes[0].hangs = True
        deletion = asyncio.create_task(admin.delete_records(TOPIC, {0: -1}))
        await until(lambda: cluster.nodes[0].hung_calls > 0)
        cluster.move_leader(1)
        async with asyncio.timeout(MOMENT_S):
            deleted = await deletion

    assert deleted[0].refusal is None


async def test_a_new_producer_gets_its_id_elsewhere() -> None:
    """A process that hangs when it is asked for a producer id is asked for a moment only; then a controller is."""
    async with fake_cluster() as cluster, Producer(cluster.bootstrap) as producer:
        client = producer._cluster
        cluster.nodes[0].hangs, client._source = True, cluster.nodes[0].endpoint
        async with asyncio.timeout(MOMENT_S):
            answer = await client.init_producer_id()

    assert answer.producer_id >= 0


async def test_a_controller_that_did_not_answer_is_asked_last() -> None:
    """After a question that a hung controller did not answer, the next question goes to another one."""
    async with hung_address() as hung, fake_cluster() as cluster, Admin(cluster.bootstrap, timeout_ms=300) as admin:
        controllers = admin._cluster.controllers
        controllers.met(parse_endpoint(hung))
        with pytest.raises(ClusterUnreachable):
            await admin.list_nodes()

        assert len(await admin.list_nodes()) == 1


LOST = ClusterUnreachable("no answer")
AWAY = ControllersAway(["a:1"], "no connection")
STANDBY = Refused.of(Refusal(ErrorCode.NOT_CONTROLLER, "another decides", hint=ControllerHint("STANDBY")))


class Scripted:
    """Answers of controllers, one for each time they are asked; the last one for ever."""

    timeout_ms = 10_000
    cluster_id = "c"

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def ask_controller(self, method: Any, request: Any, *, deadline_ms: int) -> Any:
        """One round."""
        assert 0 < deadline_ms <= self.timeout_ms
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _ask(cluster: Scripted, deadline_ms: int | None = None) -> Any:
    return await ask_again(cast("Cluster", cluster), lambda to: to.ListNodes, cast("Any", "r"), deadline_ms=deadline_ms)


async def test_the_same_request_goes_out_until_one_decides() -> None:
    """A lost answer, a standby that knows of no controller and a moment without connections are passed over."""
    cluster = Scripted(LOST, STANDBY, AWAY, "done")

    assert await _ask(cluster) == "done"
    assert cluster.asked == ["r"] * 4


async def test_a_linearizable_read_waits_while_a_new_reign_hears_its_nodes() -> None:
    """UNHEARD is asked again (C37); that another controller decides, or none can, is the answer at once."""
    unheard = Refused.of(Refusal(ErrorCode.NOT_CONTROLLER, "no node yet", hint=ControllerHint("UNHEARD")))
    read = metadata_pb2.ClusterMetadata(cluster_id="c")
    waiting, undecided = Scripted(unheard, unheard, pb.GetMetadataResponse(metadata=read)), Scripted(STANDBY)

    assert (await Cluster.fetch_image(cast("Any", waiting), linearizable=True)).cluster_id == "c"
    assert len(waiting.asked) == 3
    with pytest.raises(Refused, match="another decides"):
        await Cluster.fetch_image(cast("Any", undecided), linearizable=True)
    assert len(undecided.asked) == 1


class Undecided:
    """A cluster whose controllers decide nothing, one of them the source of metadata, and whose nodes live or not."""

    cluster_id = "c"
    timeout_ms = 10_000
    _source = "controller"

    def __init__(self, **nodes: Any) -> None:
        self._answers = {"controller": STANDBY, **nodes}
        self.controllers = SimpleNamespace(stub=lambda place: SimpleNamespace(InitProducerId=place))

    def _nodes(self) -> list[str]:
        return [name for name in self._answers if name != "controller"]

    async def ask(self, place: str, request: Any, **given: Any) -> Any:
        if isinstance(answer := self._answers[place], Exception):
            raise answer
        return answer

    async def ask_controller(self, method: Any, request: Any, **given: Any) -> Any:
        """What the only controller says."""
        return await self.ask("controller", request)


async def test_a_node_gives_a_producer_id_while_no_controller_decides() -> None:
    """New producers start as long as one node lives; without one, what the controller says is the error."""
    without_one = Undecided(n1=LOST)

    assert await Cluster.init_producer_id(cast("Any", Undecided(n1=LOST, n2="an id"))) == cast("Any", "an id")
    with pytest.raises(Refused, match="another decides"):
        await Cluster.init_producer_id(cast("Any", without_one))


@pytest.mark.parametrize(
    "error", [AWAY, Refused(ErrorCode.INVALID_REQUEST, "no"), Refused(ErrorCode.NOT_CONTROLLER, "store too old")]
)
async def test_what_another_controller_would_not_change_is_raised_at_once(error: Exception) -> None:
    """No controller at all, a refusal, and a controller whose store is too old: asked once."""
    cluster = Scripted(error, "done")

    with pytest.raises(type(error)):
        await _ask(cluster)
    assert len(cluster.asked) == 1


async def test_at_the_deadline_a_lost_answer_is_what_is_reported() -> None:
    """After a lost answer the work may have been done, whatever the later attempts met."""
    with pytest.raises(ClusterUnreachable) as raised:
        await _ask(Scripted(LOST, AWAY), deadline_ms=200)
    assert raised.value is LOST

    with pytest.raises(Refused) as refused:
        await _ask(Scripted(STANDBY), deadline_ms=200)
    assert refused.value is STANDBY


LEADERLESS = metadata_pb2.PartitionMetadata(partition_index=0, leader_epoch=7, partition_epoch=9)
LED = metadata_pb2.PartitionMetadata(partition_index=1, leader_epoch=3, partition_epoch=3, leader_id=1)
TIDES = metadata_pb2.TopicMetadata(name="t", topic_id="id-t", partitions=[LEADERLESS, LED])
DESCRIBED = pb.DescribeTopicsResponse(topics=[pb.DescribedTopic(topic=TIDES)])
NODES = pb.ListNodesResponse(nodes=[pb.ListedNode(node=metadata_pb2.NodeMetadata(node_id=4, node_epoch=41))])
GONE = pb.TopicResult(error_code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, error_message="UNKNOWN_TOPIC_ID: gone")
STALE = pb.ShutdownNodeResponse(error_code=error_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
REMOVED = pb.UnregisterNodeResponse(error_code=error_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED)
NOT_NEEDED = error_pb2.ERROR_CODE_ELECTION_NOT_NEEDED
ELECTED = pb.ElectionPartitionResult(partition_index=0, leader_id=2, leader_epoch=8, error_code=NOT_NEEDED)
RESULT = pb.ElectionTopicResult(topic="t", topic_id="id-t", partition_result=[ELECTED])
HELD = pb.ElectLeadersResponse(replica_election_results=[RESULT])


def _admin(*answers: Any) -> tuple[Admin, Scripted]:
    """An admin that asks controllers which answer so."""
    admin, cluster = Admin("127.0.0.1:1"), Scripted(*answers)
    admin._cluster = cast("Cluster", cluster)
    return admin, cluster


async def test_a_topic_is_deleted_once_by_its_id() -> None:
    """A repeat that finds it gone is done: the topic of that name may be another one by then, and is not touched."""
    admin, cluster = _admin(DESCRIBED, LOST, pb.DeleteTopicsResponse(responses=[GONE]))
    await admin.delete_topic("t")
    _, first, repeat = cluster.asked

    assert first == repeat
    assert (first.topics[0].name, first.topics[0].topic_id) == ("", "id-t")


async def test_an_unclean_election_names_the_epoch_that_it_ends() -> None:
    """A repeat that finds an election held since reports that one; without a lost answer it is a refusal."""
    admin, cluster = _admin(DESCRIBED, LOST, HELD)
    (repeated,) = await admin.elect_leaders([("t", 0)], unclean=True)
    again, _ = _admin(DESCRIBED, HELD)
    (refused,) = await again.elect_leaders([("t", 0)], unclean=True)
    seen = EpochsSeen(TopicPartition("id-t", 0), LeaderEpoch(7), PartitionEpoch(9))

    assert cluster.asked[1] == cluster.asked[2]
    assert read_elect_leaders(cluster.asked[1]).seen == (seen,)
    assert (repeated.leader, repeated.leader_epoch, repeated.refusal) == (2, 8, None)
    assert refused.refusal is not None


async def test_a_shutdown_names_the_process_that_is_to_stop() -> None:
    """One that stopped and came back is another process: a repeat does not stop it again."""
    admin, cluster = _admin(NODES, LOST, STALE)
    remaining = await admin.shutdown_node(4)

    assert remaining == []
    assert cluster.asked[1] == cluster.asked[2]
    assert cluster.asked[1].node_epoch == 41
    with pytest.raises(Refused):
        await _admin(NODES, STALE)[0].shutdown_node(4)


async def test_a_node_that_a_lost_request_removed_is_removed() -> None:
    """Only after a lost answer: otherwise the id was never registered, and the caller hears that."""
    admin, cluster = _admin(LOST, REMOVED)
    await admin.unregister_node(4)

    assert len(cluster.asked) == 2
    with pytest.raises(Refused):
        await _admin(REMOVED)[0].unregister_node(4)


LEFT_MS = 500


class EqualPauses:
    """A back-off whose pauses have one length."""

    def __init__(self, pause_ms: int) -> None:
        self.pause_ms = pause_ms

    def next_s(self) -> float:
        return self.pause_ms / 1000


def _asked(monkeypatch: pytest.MonkeyPatch, pause_ms: int, *refusals: Refused) -> tuple[Any, list[float]]:
    """A coordinator that gives these refusals and then an answer, with so much time left; and its pauses."""
    unused: Any = None
    made: Any = Coordinator(unused, CoordinatorKind("group", "t", unused, unused), "g")
    said, paused = list(refusals), list[float]()

    async def ask_once(*_: Any, **__: Any) -> str:
        if said:
            raise said.pop(0)
        return "answer"

    async def sleep(pause_s: float) -> None:
        paused.append(pause_s)

    made.ask_once = ask_once
    monkeypatch.setattr(coordinator, "countdown", lambda _: lambda: LEFT_MS)
    monkeypatch.setattr(coordinator, "Backoff", lambda: EqualPauses(pause_ms))
    monkeypatch.setattr(coordinator, "sleep", sleep)
    return made, paused


@pytest.mark.parametrize("pause_ms", [LEFT_MS, LEFT_MS + 1])
async def test_a_pause_that_would_take_all_that_is_left_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, pause_ms: int
) -> None:
    """The caller hears at once why there is no answer, for no attempt could follow the pause in time."""
    moving = Refused(ErrorCode.NOT_COORDINATOR, "it moved", Outcome.NOT_APPENDED)
    made, paused = _asked(monkeypatch, pause_ms, moving)
    with pytest.raises(Refused, match="it moved"):
        await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert paused == []


async def test_what_passes_by_is_asked_again_while_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that moves or loads is no error to the caller, and the answer says that an attempt may have
    counted."""
    lost = Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer", Outcome.MAY_APPEAR)
    loading = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading", Outcome.NOT_APPENDED)
    made, paused = _asked(monkeypatch, LEFT_MS - 1, lost, loading)
    answered = await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert answered == ("answer", True)
    assert len(paused) == 2


async def test_one_attempt_that_may_have_counted_makes_the_end_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later definite refusal says nothing of an earlier attempt whose answer was lost."""
    lost = Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer", Outcome.MAY_APPEAR)
    refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no", Outcome.NOT_APPENDED)
    made, _ = _asked(monkeypatch, 1, lost, refused)
    with pytest.raises(Refused) as ended:
        await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert ended.value.refusal.outcome is Outcome.MAY_APPEAR
