"""Internal topics: where a key lives, who may write to one, and which shape the controller gives it (G1, G2)."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_of_cores import Cluster
from controller_builders import Controller
from core_builders import F, L, partition_image

from strandline.core.control import messages
from strandline.core.control.state import ControllerTimings
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE, java_hash, partition_of
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log.effects import ApplyRetention
from strandline.core.messages import TopicImage

REF = messages.TopicRef(GROUP_STATE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(1 << 31)),
        ("größe", 98762257),
        # One character beyond the basic plane is two units of UTF-16.
        ("😀", 0xD83D * 31 + 0xDE00),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    """`String.hashCode`, which wraps at 32 bits and counts UTF-16 units."""
    assert java_hash(text) == value


@pytest.mark.parametrize(("key", "partition"), [("group", 98629247 % 12), ("polygenelubricants", 0), ("", 0)])
def test_a_key_lives_where_kafka_would_put_it(key: str, partition: int) -> None:
    """The smallest number has no positive counterpart and counts as 0."""
    assert partition_of(key, 12) == partition


def _node() -> Cluster:
    cluster = Cluster(1, 2)
    cluster.push_all(partition_image(), name=GROUP_STATE)
    cluster.settle()
    return cluster


def test_no_client_produces_to_an_internal_topic() -> None:
    """The refusal is INVALID_TOPIC_EXCEPTION, NOT_APPENDED, and nothing is in the log."""
    cluster = _node()
    outcome = cluster.outcome(cluster.produce())

    assert (outcome.refusal.code, outcome.outcome) == (ErrorCode.INVALID_TOPIC_EXCEPTION, Outcome.NOT_APPENDED)
    assert cluster.log(L).leo == 0


def test_no_client_deletes_records_of_an_internal_topic() -> None:
    """The refusal is INVALID_TOPIC_EXCEPTION."""
    cluster = _node()
    (answer,) = cluster.answered[cluster.delete_records(0)]

    assert answer.refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_retention_leaves_an_internal_topic_alone() -> None:
    """The node looks for expired records of other topics, and never of this one."""
    cluster, other = _node(), Cluster(1)
    other.push_all(partition_image(replicas=(1,), isr=(1,)))
    for each in (cluster, other):
        each.advance(300_000, tick_ms=100_000)

    assert (len(cluster.wished(L, ApplyRetention)), bool(other.wished(L, ApplyRetention))) == (0, True)


def test_an_internal_topic_is_replicated_as_any_other() -> None:
    """Its follower fetches; nothing of the rules above concerns replicas."""
    assert _node().remote(F) == 0


def _controller(*nodes: int, **timings: int) -> Controller:
    controller = Controller(timings=ControllerTimings(**timings))
    controller.start(*nodes)
    return controller


def _create(controller: Controller, **given: Any) -> Any:
    new = messages.NewTopic(name=GROUP_STATE, topic_id="22222222-0000-4000-8000-000000000000", **given)
    return controller.ask(messages.CreateTopics(topics=(new,))).topics[0]


def _made(controller: Controller) -> TopicImage:
    (topic,) = controller.core.state.topics.values()
    return topic


def test_the_controller_gives_an_internal_topic_its_shape() -> None:
    """12 partitions on three nodes, min ISR 2, small segments; the second that asks finds it there."""
    controller = _controller(1, 2, 3)
    created = _create(controller)

    assert (created.refusal, created.num_partitions, created.replication_factor) == (None, 12, 3)
    assert dict(_made(controller).configs) == {"min.insync.replicas": "2", "segment.bytes": "1048576"}
    assert _create(controller).refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_settings_of_the_controller_shape_it() -> None:
    """One node with a factor of 1, and as many partitions as the setting says."""
    controller = _controller(1, internal_replication_factor=1, group_state_partitions=5)
    created = _create(controller)

    assert (created.num_partitions, created.replication_factor) == (5, 1)
    assert dict(_made(controller).configs)["min.insync.replicas"] == "1"


def test_too_few_living_nodes_make_no_topic_of_fewer_replicas() -> None:
    """COORDINATOR_NOT_AVAILABLE that says how many live; with a third node it is made."""
    controller = _controller(1, 2)
    refusal = _create(controller).refusal

    assert refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "2 nodes" in refusal.message
    controller.start(3)
    assert _create(controller).refusal is None


def test_transactions_have_a_topic_of_their_own_from_their_level_on() -> None:
    """`__transaction_state` has its own number of partitions, and at feature level 3 it is UNSUPPORTED_VERSION while
    `__group_state` is made."""
    transactions = messages.NewTopic(name=TRANSACTION_STATE, topic_id="33333333-0000-4000-8000-000000000000")
    created = (
        _controller(1, 2, 3, transaction_state_partitions=4)
        .ask(messages.CreateTopics(topics=(transactions,)))
        .topics[0]
    )
    assert (created.refusal, created.num_partitions) == (None, 4)

    controller = _controller(1, 2)
    controller.start(3, feature_max=3)
    refusal = controller.ask(messages.CreateTopics(topics=(transactions,))).topics[0].refusal
    assert refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert _create(controller).refusal is None


@pytest.mark.parametrize(
    "given", [{"num_partitions": 3}, {"replication_factor": 1}, {"configs": (("retention.ms", "1"),)}]
)
def test_a_caller_does_not_shape_it(given: dict[str, Any]) -> None:
    """A request that names a number or a setting is INVALID_REQUEST."""
    assert _create(_controller(1, 2, 3), **given).refusal.code is ErrorCode.INVALID_REQUEST


def test_a_cluster_of_an_earlier_level_has_no_groups() -> None:
    """One living node that does not know them keeps the level down: UNSUPPORTED_VERSION."""
    controller = _controller(1, 2)
    controller.start(3, feature_max=2)

    assert _create(controller).refusal.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "request_",
    [
        messages.DeleteTopics(topics=(REF,)),
        messages.CreatePartitions(topics=(messages.GrowingTopic(REF, 13, ()),)),
        messages.AlterTopicConfigs(topics=(messages.ConfigChange(topic=REF, set_configs=(("retention.ms", "1"),)),)),
    ],
    ids=["delete", "grow", "alter"],
)
def test_an_internal_topic_stays_as_it_is(request_: Any) -> None:
    """Deletion, growth and changes of settings are INVALID_TOPIC_EXCEPTION, and change nothing."""
    controller = _controller(1, 2, 3)
    _create(controller)
    before = _made(controller)
    (result,) = controller.ask(request_).topics

    assert result.refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _made(controller) == before


def test_no_unclean_leader_is_elected_for_it() -> None:
    """Without a leader an unclean election on request is refused; an ordinary topic would get one."""
    controller = _controller(1, 2, 3, internal_replication_factor=1, group_state_partitions=1)
    _create(controller)
    (leader,) = _made(controller).partitions[0].replicas
    others = [node for node in (1, 2, 3) if node != leader]
    controller.pass_ms(20_000, *others)
    asked = messages.ElectLeaders(kind=messages.ElectionKind.UNCLEAN, partitions=(messages.PartitionsRef(REF, (0,)),))
    (result,) = controller.ask(asked).results

    assert result.refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
