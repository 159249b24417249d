"""Questions about transactions between nodes, and the names and ids of the newest metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.log.effects import SendAddPartitions, SendTxnMarkers
from strandline.core.log.events import AddPartitionsAnswered, TxnMarkersAnswered
from strandline.core.messages import Endpoint, MetadataImage, NodeImage, TopicImage
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion, ProducerIdentity, TxnMarker
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Rules, TopicPartition
from strandline.runtime.host import TopicDirectory
from strandline.runtime.transaction_links import MOST_IN_A_REQUEST, MOST_WAITING, TransactionLinks

HERE = TopicPartition("state", 0)
NO = Refusal(ErrorCode.PRODUCER_FENCED, "no")


class Steps:
    """The driver, as far as it is needed: what it was handed."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.failed: list[BaseException] = []

    def clock(self) -> int:
        return 5

    def step(self, event: Any) -> None:
        self.events.append(event)

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)


class World:
    """Places and peers: every id and partition at the node of its number; a request is answered when `answer` says."""

    def __init__(self) -> None:
        self.asked: list[tuple[NodeId, Sequence[Any]]] = []
        self.answers: asyncio.Queue[Sequence[Refusal | None] | Refused] = asyncio.Queue()
        self.lost: Refusal | None = None
        self.closed = False

    def coordinator_of(self, transactional_id: str) -> NodeId | Refusal:
        return self.lost or NodeId(int(transactional_id[0]))

    def leader_of(self, tp: TopicPartition) -> NodeId | Refusal:
        return self.lost or NodeId(tp.partition)

    async def add_partitions(self, node: NodeId, questions: Sequence[AddPartitions]) -> Sequence[Refusal | None]:
        return await self._answered(node, questions)

    async def write_markers(self, node: NodeId, questions: Sequence[MarkerQuestion]) -> Sequence[Refusal | None]:
        return await self._answered(node, questions)

    async def _answered(self, node: NodeId, questions: Sequence[Any]) -> Sequence[Refusal | None]:
        self.asked.append((node, questions))
        answer = await self.answers.get()
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


def _links(most_under_way: int = 1) -> tuple[TransactionLinks, World, Steps]:
    world, steps = World(), Steps()
    driver: Any = steps
    return TransactionLinks(driver, world, world, most_under_way=most_under_way), world, steps


def _add(number: int, name: str = "1-a", partition: int = 0, epoch: int = 0) -> SendAddPartitions:
    return SendAddPartitions(number, name, 7, epoch, TopicPartition("t", partition))


def _marker(partition: int, name: str = "1-a") -> TxnMarker:
    return TxnMarker(name, ProducerIdentity(7, 1), True, TopicPartition("t", partition))


def _send(*markers: TxnMarker) -> SendTxnMarkers:
    return SendTxnMarkers(HERE, LeaderEpoch(3), markers)


async def _turn() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_question_that_is_held_does_not_hold_back_all_others() -> None:
    """With two requests allowed the second leaves while the first has no answer, and the third with the first answer,
    whichever that is."""
    links, world, steps = _links(most_under_way=2)
    for number in (1, 2, 3):
        links.send_add_partitions(_add(number, name=f"1-{number}"))
        await _turn()
    assert [[each.transactional_id for each in questions] for _, questions in world.asked] == [["1-1"], ["1-2"]]

    world.answers.put_nowait([NO])
    await _turn()
    assert [each.transactional_id for each in world.asked[2][1]] == ["1-3"]
    assert steps.events == [AddPartitionsAnswered(5, 1, NO)]
    for _ in range(2):
        world.answers.put_nowait([None])
    await _turn()
    assert sorted(event.correlation_id for event in steps.events) == [1, 2, 3]
    await links.close()


async def test_what_one_step_wants_leaves_in_one_request() -> None:
    """However many requests may be under way."""
    links, world, _ = _links(most_under_way=4)
    for number in (1, 2, 3):
        links.send_add_partitions(_add(number, name=f"1-{number}"))
    await _turn()

    assert [len(questions) for _, questions in world.asked] == [3]
    await links.close()


async def test_what_comes_meanwhile_leaves_together() -> None:
    """While one request to a node is under way nothing else is sent to it; then all that waits goes in one request,
    partitions of one transaction in one question, and each effect has its own event."""
    links, world, steps = _links()
    links.send_add_partitions(_add(1))
    await _turn()
    links.send_add_partitions(_add(2, partition=1))
    links.send_add_partitions(_add(3, partition=2))
    links.send_add_partitions(_add(4, name="1-b"))
    await _turn()
    assert [len(questions) for _, questions in world.asked] == [1]

    world.answers.put_nowait([None])
    await _turn()
    _, questions = world.asked[1]
    found = [(each.transactional_id, [tp.partition for tp in each.partitions]) for each in questions]
    assert found == [("1-a", [1, 2]), ("1-b", [0])]
    world.answers.put_nowait([NO, None])
    await _turn()

    assert steps.events == [
        AddPartitionsAnswered(5, number, refusal) for number, refusal in ((1, None), (2, NO), (3, NO), (4, None))
    ]
    await links.close()
    assert world.closed and not steps.failed


async def test_two_identities_of_one_id_are_asked_about_one_after_the_other() -> None:
    """A request names each transactional id once, so a zombie's batch waits for the answer to its successor's."""
    links, world, steps = _links()
    links.send_add_partitions(_add(1, epoch=5))
    links.send_add_partitions(_add(2, epoch=4))
    await _turn()
    world.answers.put_nowait([None])
    world.answers.put_nowait([NO])
    await _turn()

    assert [[each.identity.producer_epoch for each in questions] for _, questions in world.asked] == [[5], [4]]
    assert [event.refusal for event in steps.events] == [None, NO]
    await links.close()


async def test_nodes_do_not_wait_for_each_other() -> None:
    """A node that is slow holds back what is for it alone."""
    links, world, _ = _links()
    links.send_add_partitions(_add(1, name="1-a"))
    links.send_add_partitions(_add(2, name="2-a"))
    links.send_txn_markers(_send(_marker(1), _marker(3)))
    await _turn()

    assert sorted(node for node, _ in world.asked) == [1, 1, 2, 3]
    await links.close()


async def test_a_request_without_an_answer_refuses_all_its_questions() -> None:
    """A broken connection is a refusal of each marker, for the coordinator that had it sent."""
    links, world, steps = _links()
    links.send_txn_markers(_send(_marker(1), _marker(1, "1-b")))
    await _turn()
    world.answers.put_nowait(Refused(ErrorCode.NETWORK_EXCEPTION, "away"))
    await _turn()

    (event,) = steps.events
    found = [(each.marker.transactional_id, each.refusal and each.refusal.code) for each in event.answers]
    assert isinstance(event, TxnMarkersAnswered)
    assert (event.tp, event.leader_epoch) == (HERE, 3)
    assert found == [("1-a", ErrorCode.NETWORK_EXCEPTION), ("1-b", ErrorCode.NETWORK_EXCEPTION)]
    await links.close()


async def test_what_cannot_be_sent_is_refused_within_the_step() -> None:
    """Without a coordinator or a leader that metadata names, the event is returned; nothing is sent."""
    links, world, _ = _links()
    world.lost = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "electing")

    assert links.send_add_partitions(_add(1)) == AddPartitionsAnswered(5, 1, world.lost)
    event = links.send_txn_markers(_send(_marker(1)))
    assert event is not None
    assert [each.refusal for each in event.answers] == [world.lost]
    assert not world.asked
    await links.close()


async def test_what_waits_for_one_node_is_bounded() -> None:
    """Beyond the bound a question is refused at once; those before it are still asked."""
    links, _, _ = _links()
    links.send_add_partitions(_add(0))
    await _turn()
    for number in range(MOST_WAITING):
        assert links.send_add_partitions(_add(number)) is None
    refused = links.send_add_partitions(_add(1))

    assert refused is not None and refused.refusal is not None
    assert refused.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await links.close()


async def test_a_request_is_bounded() -> None:
    """What is too much for one request leaves in the next one, in its order."""
    links, world, _ = _links()
    for number in range(MOST_IN_A_REQUEST + 1):
        links.send_add_partitions(_add(number, name=f"1-{number}"))
    await _turn()
    world.answers.put_nowait([None] * MOST_IN_A_REQUEST)
    await _turn()

    assert [len(questions) for _, questions in world.asked] == [MOST_IN_A_REQUEST, 1]
    assert world.asked[1][1][0].transactional_id == f"1-{MOST_IN_A_REQUEST}"
    await links.close()


async def test_a_defect_in_an_answer_ends_the_process() -> None:
    """Fewer answers than questions: no question may be left without an event."""
    links, world, steps = _links()
    links.send_add_partitions(_add(1))
    world.answers.put_nowait([])
    await _turn()

    assert [type(error) for error in steps.failed] == [ValueError]
    await links.close()


async def test_nothing_is_heard_after_the_end() -> None:
    """A node that stops drops what is under way without an event."""
    links, world, steps = _links()
    links.send_add_partitions(_add(1))
    await _turn()
    await links.close()
    world.answers.put_nowait([None])
    assert links.send_add_partitions(_add(2)) is None
    assert links.send_txn_markers(_send(_marker(1))) is None
    await _turn()

    assert not steps.events and not steps.failed
    assert len(world.asked) == 1


def _image(*topics: TopicImage, snapshot: bool = True, deleted: tuple[str, ...] = ()) -> MetadataImage:
    node = NodeImage(
        node_id=NodeId(1), node_epoch=NodeEpoch(1), client_endpoint=Endpoint("c", 1), internal_endpoint=Endpoint("i", 2)
    )
    return MetadataImage(
        cluster_id="cluster",
        controller_epoch=1,
        metadata_offset=5,
        is_snapshot=snapshot,
        rules=Rules(),
        nodes=(node,),
        topics=topics,
        deleted_topic_ids=deleted,
    )


def _code(found: str | Refusal) -> ErrorCode:
    assert isinstance(found, Refusal)
    return found.code


def test_a_topic_is_found_by_name_by_id_and_by_both() -> None:
    """A topic's name, its id, and both together lead to the id."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))

    assert [topics.resolve("a", ""), topics.resolve("", "id-a"), topics.resolve("a", "id-a")] == ["id-a"] * 3
    assert topics.name_of("id-a") == "a"


def test_what_cannot_be_resolved_is_refused_with_its_own_code() -> None:
    """An unknown name, a mismatch, and a missing topic each have their own error."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))

    assert _code(topics.resolve("b", "")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _code(topics.resolve("b", "id-a")) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert _code(topics.resolve("", "")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("at_once", [True, False], ids=["deleted in the same image", "deleted later"])
def test_a_topic_made_again_under_its_name_is_another(at_once: bool) -> None:
    """The name leads to the newest id; deleting the older one does not remove the name (M63)."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="old")))
    topics.apply(_image(TopicImage(name="a", topic_id="new"), snapshot=False, deleted=("old",) if at_once else ()))
    if not at_once:
        topics.apply(_image(snapshot=False, deleted=("old",)))

    assert topics.resolve("a", "") == "new"
    assert topics.name_of("old") == ""


def test_a_snapshot_replaces_all_that_was_known() -> None:
    """A topic that is missing in a snapshot is gone."""
    topics = TopicDirectory()
    topics.apply(_image(TopicImage(name="a", topic_id="id-a")))
    topics.apply(_image())

    assert _code(topics.resolve("a", "")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nodes_are_known_by_both_addresses() -> None:
    """Clients and nodes get different addresses of one node."""
    topics = TopicDirectory()
    topics.apply(_image())

    assert topics.endpoint_of(NodeId(1)) == Endpoint("c", 1)
    assert topics.internal_endpoint_of(NodeId(1)) == Endpoint("i", 2)
    assert topics.internal_endpoint_of(NodeId(9)) is None


def test_a_removed_node_has_no_address() -> None:
    """After a change that removes a node no connection to its old addresses remains (C85)."""
    topics = TopicDirectory()
    topics.apply(_image())
    topics.apply(replace(_image(snapshot=False), nodes=(), removed_node_ids=(NodeId(1),)))

    assert topics.endpoint_of(NodeId(1)) is None
    assert topics.internal_endpoint_of(NodeId(1)) is None
