"""What is asked of controllers again while one takes over from another (C32)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.client import Admin
from strandline.client.errors import ClusterUnreachable, ControllersAway
from strandline.client.metadata import Cluster
from strandline.client.repeating import ask_again
from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused
from strandline.core.messages import EpochsSeen
from strandline.core.types import LeaderEpoch, PartitionEpoch, TopicPartition
from strandline.rpc.convert_admin import read_elect_leaders
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import error_pb2, metadata_pb2

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
    """A lost answer, a standby that knows of nobody and a moment without connections are passed over."""
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
        """The answer of one process."""
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
TOPIC = metadata_pb2.TopicMetadata(name="t", topic_id="id-t", partitions=[LEADERLESS, LED])
DESCRIBED = pb.DescribeTopicsResponse(topics=[pb.DescribedTopic(topic=TOPIC)])
NODES = pb.ListNodesResponse(nodes=[pb.ListedNode(node=metadata_pb2.NodeMetadata(node_id=4, node_epoch=41))])
GONE = pb.TopicResult(error_code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, error_message="UNKNOWN_TOPIC_ID: gone")
STALE = pb.ShutdownNodeResponse(error_code=error_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
REMOVED = pb.UnregisterNodeResponse(error_code=error_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED)
HELD = pb.ElectLeadersResponse(
    replica_election_results=[
        pb.ElectionTopicResult(
            topic="t",
            topic_id="id-t",
            partition_result=[
                pb.ElectionPartitionResult(
                    partition_index=0,
                    leader_id=2,
                    leader_epoch=8,
                    error_code=error_pb2.ERROR_CODE_ELECTION_NOT_NEEDED,
                )
            ],
        )
    ]
)


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
