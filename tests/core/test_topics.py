"""Topics: names, counts, placement, settings, growth, deletion, and a topic's own limits on batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from cluster_of_cores import Cluster
from controller_builders import TOPIC_ID, Controller, lines_of, started
from core_builders import BATCH_BYTES, L, batch, held, metadata, node_epoch, node_image, partition_image

from strandline.core.control.controller import PRODUCER_IDS_SKIPPED
from strandline.core.control.messages import (
    AlterTopicConfigs,
    ConfigChange,
    ConfigsRef,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeConfigs,
    DescribeTopics,
    GetMetadata,
    GrowingTopic,
    InitProducerId,
    ListNodes,
    NewTopic,
    TopicRef,
)
from strandline.core.control.state import PRODUCER_ID_BLOCK
from strandline.core.control.topic_configs import CHECKS, in_force
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log.events import MetadataArrived
from strandline.core.messages import ConfigSource, MetadataImage
from strandline.core.producer_ids import MAX_PRODUCER_EPOCH
from strandline.core.serving.produce_checks import timestamp_refusal
from strandline.core.types import BatchHeader, NodeId, Offset, Role, TopicPartition
from strandline.storage.log import LogSettings

T = TopicRef("t")


@pytest.fixture
def controller() -> Controller:
    """Three nodes, no topic."""
    return started(1, 2, 3)


def create(controller: Controller, name: str = "t", validate_only: bool = False, **given: Any) -> CreatedTopic:
    given.setdefault("topic_id", TOPIC_ID)
    answer = controller.ask(CreateTopics(topics=(NewTopic(name=name, **given),), validate_only=validate_only))
    return answer.topics[0]


def nodes(*ids: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(i) for i in ids)


def test_defaults_are_one_partition_on_three_nodes_with_min_isr_two(controller: Controller) -> None:
    """Counts that are not given have the controller's defaults; RF 3 gives min ISR 2."""
    created = create(controller)
    partition = controller.partition()
    assert (created.num_partitions, created.replication_factor) == (1, 3)
    assert partition.min_isr == 2
    assert partition.leader == partition.replicas[0]
    assert set(partition.isr) == {1, 2, 3}
    assert partition.leader_epoch == 0


def test_default_replication_factor_is_at_most_the_number_of_nodes() -> None:
    """On one node a topic that names no factor has one replica and min ISR 1."""
    controller = started(1)

    assert create(controller).replication_factor == 1
    assert controller.partition().min_isr == 1


NAMES = "is not a topic name; use 1 to 249 of"
COUNTS = "is not between 1 and 10000; ask for a number of these"
FACTORS = "is not between 1 and 3, the number of registered nodes"
VALUES = "the value must be "
ASSIGNMENT, PARTITIONS = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_PARTITIONS
FACTOR, CONFIG = ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"name": "../../x"}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": "."}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": "a" * 300}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": "a\n"}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"name": "größe"}, ErrorCode.INVALID_TOPIC_EXCEPTION, NAMES),
        ({"num_partitions": 0}, PARTITIONS, COUNTS),
        ({"num_partitions": -1}, PARTITIONS, COUNTS),
        ({"num_partitions": 10_001}, PARTITIONS, COUNTS),
        ({"replication_factor": 4}, FACTOR, FACTORS),
        ({"replication_factor": 0}, FACTOR, FACTORS),
        ({"assignments": ((0, nodes(1, 1)),)}, ASSIGNMENT, "each replica once, and at least one"),
        ({"assignments": ((0, nodes()),)}, ASSIGNMENT, "each replica once, and at least one"),
        ({"assignments": ((0, nodes(1, 7)),)}, ASSIGNMENT, "[7], which are not registered"),
        ({"assignments": ((1, nodes(1)),)}, ASSIGNMENT, "once each"),
        ({"assignments": ((0, nodes(1)), (0, nodes(2)))}, ASSIGNMENT, "once each"),
        ({"assignments": ((0, nodes(1)), (1, nodes(1, 2)))}, ASSIGNMENT, "the same number of nodes"),
        ({"assignments": ((0, nodes(1)),), "num_partitions": 2}, PARTITIONS, "2 but 1 assignments; give one"),
        ({"assignments": ((0, nodes(1)),), "replication_factor": 2}, FACTOR, "2 does not agree with the assignments"),
        ({"configs": (("min.insync.replica", "1"),)}, CONFIG, "is not a setting of a topic; known"),
        ({"configs": (("cleanup.policy", "compact"),)}, CONFIG, VALUES),
        ({"configs": (("min.insync.replicas", "0"),)}, CONFIG, VALUES),
        ({"configs": (("retention.ms", "1_000"),)}, CONFIG, VALUES),
        ({"configs": (("retention.bytes", "-2"),)}, CONFIG, VALUES),
        ({"configs": (("segment.bytes", "9999999999"),)}, CONFIG, VALUES),
        ({"configs": (("max.message.bytes", "2000000"),)}, CONFIG, VALUES),
        ({"configs": (("max.decompressed.bytes", "1048587"),)}, CONFIG, VALUES),
        ({"configs": (("max.decompressed.bytes", "67108865"),)}, CONFIG, VALUES),
        ({"configs": (("unclean.leader.election.enable", "yes"),)}, CONFIG, VALUES),
    ],
)
def test_impossible_topics_are_refused(
    controller: Controller, given: dict[str, Any], code: ErrorCode, words: str
) -> None:
    """Each broken rule has its own error, which says the rule, and nothing is created."""
    created = create(controller, **given)

    assert created.refusal.code is code
    assert words in created.refusal.message
    # A name of any length is shown cut.
    assert len(created.refusal.message) < 250 or code is ErrorCode.INVALID_CONFIG
    assert controller.core.state.topics == {}


def test_refusal_of_a_setting_names_key_rule_and_value(controller: Controller) -> None:
    """An operator can correct a setting from the error message alone."""
    created = create(controller, configs=(("retention.ms", "tomorrow"),))

    assert "retention.ms=tomorrow" in created.refusal.message
    assert "whole number from -1" in created.refusal.message


def test_one_request_adds_no_more_partitions_than_one_topic_may_have(controller: Controller) -> None:
    """A check too, and however the partitions are divided among topics: a step must end before sessions do."""
    new = tuple(NewTopic(f"t{n}", f"id-{n}", 6_000 - n) for n in range(3))
    placed = NewTopic("t8", "id-8", assignments=((0, (NodeId(1),)),))
    topics = (*new, NewTopic("t9", "id-9", 4_000), placed)
    rows = controller.ask(CreateTopics(topics=topics, validate_only=True)).topics
    codes = [row.refusal.code if row.refusal else None for row in rows]

    assert codes == [None, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION, None, ErrorCode.POLICY_VIOLATION]


def test_what_names_every_topic_looks_at_each_once(controller: Controller) -> None:
    """Four times as many topics cost about four times as much to create, to describe and to delete by name."""
    costs = []
    for count in (25, 100):
        names = tuple(TopicRef(f"t{count}-{n}") for n in range(count))
        new = CreateTopics(topics=tuple(NewTopic(each.name, each.name, 1, 1) for each in names))
        requests = (new, DescribeTopics(topics=names), DeleteTopics(topics=names))
        costs.append([lines_of(lambda request=request: controller.ask(request)) for request in requests])

    assert [many / few < 6 for few, many in zip(*costs, strict=True)] == [True] * 3


def test_name_is_taken_once(controller: Controller) -> None:
    """A second topic with the same name is TOPIC_ALREADY_EXISTS, within one request as well."""
    twin = (NewTopic(name="t", topic_id="a"), NewTopic(name="t", topic_id="b"), NewTopic(name="u", topic_id="c"))
    answer = controller.ask(CreateTopics(topics=twin))
    codes = [topic.refusal.code if topic.refusal else None for topic in answer.topics]
    assert codes == [None, ErrorCode.TOPIC_ALREADY_EXISTS, None]
    again = create(controller, topic_id="d")
    assert again.refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.refusal.message == "a topic called 't' exists; use it or another name"


def test_validate_only_changes_nothing(controller: Controller) -> None:
    """A dry run returns what would be created, and commits nothing."""
    offset = controller.core.state.header.metadata_offset
    created = create(controller, num_partitions=4, replication_factor=2, validate_only=True)

    assert (created.refusal, created.num_partitions, created.replication_factor) == (None, 4, 2)
    assert controller.core.state.header.metadata_offset == offset


def test_placement_spreads_leaders_and_replicas() -> None:
    """Twelve partitions of RF 2 on four nodes: three leaders and six replicas each."""
    controller = started(1, 2, 3, 4)
    create(controller, num_partitions=12, replication_factor=2)
    partitions = list(controller.core.state.partitions())
    assert Counter(p.leader for p in partitions) == dict.fromkeys((1, 2, 3, 4), 3)
    assert Counter(n for p in partitions for n in p.replicas) == dict.fromkeys((1, 2, 3, 4), 6)


def test_placement_crosses_racks() -> None:
    """With two racks every partition of RF 2 has a replica in each."""
    controller = Controller()
    for node_id, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        controller.start(node_id, rack=rack)
    create(controller, num_partitions=8, replication_factor=2)

    assert all({n > 2 for n in p.replicas} == {True, False} for p in controller.core.state.partitions())


def test_observers_do_not_count_for_the_replication_factor(controller: Controller) -> None:
    """M60: no partition can be placed on an observer."""
    controller.start(9, roles=frozenset({Role.FOLLOWER}))
    created = create(controller, replication_factor=4)

    assert created.refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR
    explicit = create(controller, assignments=((0, nodes(1, 9)),))
    assert explicit.refusal.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_fenced_replica_is_placed_but_not_in_the_first_isr(controller: Controller) -> None:
    """A registered node that is down gets replicas, after one that can lead now."""
    controller.fence(1)
    create(controller, replication_factor=3)
    partition = controller.partition()
    assert set(partition.replicas) == {1, 2, 3}
    assert set(partition.isr) == {2, 3}
    assert partition.leader in (2, 3)


def test_topic_created_while_no_node_lives_comes_up_with_the_first_node() -> None:
    """Nothing was written yet, so any replica may lead first."""
    controller = started(1, 2, 3)
    controller.fence(1, 2, 3)
    create(controller)
    assert controller.view() == (None, set(), {1, 2, 3})

    controller.heartbeat(3)

    assert controller.view()[:2] == (3, {3})


def test_partitions_only_grow(controller: Controller) -> None:
    """CreatePartitions to the same or a smaller number is INVALID_PARTITIONS; growth keeps what is there."""
    create(controller, num_partitions=2, replication_factor=2)
    before = controller.partition(1)

    def grow(total: int, **given: Any) -> ErrorCode | None:
        answer = controller.ask(CreatePartitions(topics=(GrowingTopic(T, total, **given),)))
        return answer.topics[0].refusal.code if answer.topics[0].refusal else None

    assert [grow(1), grow(2), grow(10_001)] == [ErrorCode.INVALID_PARTITIONS] * 3
    assert grow(4, assignments=((2, nodes(1, 2)),)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, assignments=((2, nodes(1, 2, 3)),)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, assignments=((2, nodes(3, 1)),)) is None
    assert grow(5) is None
    assert controller.partition(2).replicas == (3, 1)
    assert controller.partition(1) == before
    assert [p.tp.partition for p in controller.core.state.partitions()] == [0, 1, 2, 3, 4]


def test_growth_of_a_topic_named_twice_is_refused(controller: Controller) -> None:
    """One request grows a topic once, or not at all."""
    create(controller)
    answer = controller.ask(CreatePartitions(topics=(GrowingTopic(T, 2), GrowingTopic(T, 3))))

    assert {topic.refusal.code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}


def test_deleted_topic_leaves_its_id_behind(controller: Controller) -> None:
    """M63: name and partitions are free again, the id is stored for ever and never assigned again."""
    create(controller)
    answer = controller.ask(DeleteTopics(topics=(T, TopicRef(topic_id="gone"))))

    assert [r.refusal.code if r.refusal else None for r in answer.topics] == [None, ErrorCode.UNKNOWN_TOPIC_ID]
    assert answer.topics[0].topic == TopicRef("t", TOPIC_ID)
    assert controller.core.state.topics == {}
    assert controller.core.state.deleted_topic_ids == {TOPIC_ID}
    assert create(controller, topic_id="another-id").refusal is None
    assert controller.partition(topic_id="another-id").leader_epoch == 0


def test_a_controller_keeps_no_partition_of_a_deleted_topic(controller: Controller) -> None:
    """However many topics are created and deleted in one reign: nothing that it holds refers to a partition of them."""
    create(controller)
    controller.ask(DeleteTopics(topics=(T,)))

    assert held(controller.core, TopicPartition) == []


def test_name_and_id_must_agree(controller: Controller) -> None:
    """A topic addressed by name and id is found only if both belong to it."""
    create(controller)
    refs = (TopicRef("t", TOPIC_ID), TopicRef("u", TOPIC_ID), TopicRef("t", "other"), TopicRef("u"))
    answer = controller.ask(DescribeTopics(topics=refs))
    assert [topic.refusal.code if topic.refusal else None for topic in answer.topics] == [
        None,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_settings_change_together_or_not_at_all(controller: Controller) -> None:
    """One wrong setting rejects the topic's whole change; a setting that is removed has its default."""
    create(controller, configs=(("retention.ms", "5000"),))

    def alter(*given: tuple[str, str], delete: tuple[str, ...] = ()) -> ErrorCode | None:
        answer = controller.ask(AlterTopicConfigs(topics=(ConfigChange(T, given, delete),)))
        return answer.topics[0].refusal.code if answer.topics[0].refusal else None

    assert alter(("retention.ms", "1"), ("segment.bytes", "x")) is ErrorCode.INVALID_CONFIG
    assert alter(delete=("retention.mss",)) is ErrorCode.INVALID_CONFIG
    assert dict(controller.core.state.topics[TOPIC_ID].configs) == {"retention.ms": "5000"}
    assert alter(("segment.bytes", "1048576"), delete=("retention.ms",)) is None
    assert dict(controller.core.state.topics[TOPIC_ID].configs) == {"segment.bytes": "1048576"}


def test_settings_in_force_name_their_sources(controller: Controller) -> None:
    """A topic's own value is from the topic, what nodes are started with has no value here, the rest is a default."""
    create(controller, configs=(("retention.ms", "5000"),))
    (described,) = controller.ask(DescribeConfigs(topics=(ConfigsRef(T),))).topics
    found = {config.name: config for config in described.configs}
    assert set(found) == set(CHECKS)
    assert found["retention.ms"] == ("retention.ms", "5000", ConfigSource.TOPIC, "604800000")
    assert found["segment.bytes"] == ("segment.bytes", None, ConfigSource.NODE, "1073741824")
    assert found["min.insync.replicas"] == ("min.insync.replicas", "2", ConfigSource.DEFAULT, "2")
    assert found["unclean.recovery.timeout.ms"].value == "-1"


def test_named_settings_are_described_alone(controller: Controller) -> None:
    """Names restrict the answer; an unknown one rejects its topic's question, and another topic's is answered."""
    create(controller)
    wanted = (ConfigsRef(T, ("segment.ms",)), ConfigsRef(T, ("segment.mss",)), ConfigsRef(TopicRef("nobody")))
    named, unknown, nowhere = controller.ask(DescribeConfigs(topics=wanted)).topics

    assert [config.name for config in named.configs] == ["segment.ms"]
    assert unknown.refusal.code is ErrorCode.INVALID_CONFIG
    assert nowhere.refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_change_that_its_reader_found_wrong_changes_nothing(controller: Controller) -> None:
    """Its refusal is the topic's answer, and the settings beside it stay as they are."""
    create(controller)
    wrong = Refusal(ErrorCode.INVALID_REQUEST, "named twice")
    change = ConfigChange(T, (("retention.ms", "1000"),), invalid=wrong)
    (answer,) = controller.ask(AlterTopicConfigs(topics=(change,))).topics

    assert answer.refusal == wrong
    assert controller.core.state.topics[TOPIC_ID].configs == ()


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("retention.ms", "retention_ms"),
        ("retention.bytes", "retention_bytes"),
        ("segment.ms", "segment_ms"),
        ("segment.bytes", "segment_bytes"),
    ],
)
def test_defaults_are_those_of_the_storage(name: str, field: str) -> None:
    """The default that is described is the one that a log has without the setting."""
    (found,) = (config for config in in_force((), 3, None) if config.name == name)
    kept = getattr(LogSettings(), field)

    assert found.default == str(-1 if kept is None else kept)


def test_metadata_for_named_topics_leaves_unknown_ones_out(controller: Controller) -> None:
    """GetMetadata returns all nodes and the requested topics; one that is requested twice is there once, and described
    once: its partitions may be many."""
    create(controller)
    create(controller, name="u", topic_id="u-id")
    reported = controller.ask(GetMetadata(topics=(T, T, TopicRef("nobody")))).image

    assert [topic.name for topic in reported.topics] == ["t"]
    assert [node.node_id for node in reported.nodes] == [1, 2, 3]
    assert len(controller.ask(GetMetadata()).image.topics) == 2
    assert [each.topic.name for each in controller.ask(DescribeTopics(topics=(T, T))).topics] == ["t"]


def test_nodes_are_listed_with_their_sessions(controller: Controller) -> None:
    """ListNodes returns the age of the last heartbeat and how far the node is."""
    controller.now_ms += 700
    controller.register(4, rack="r", feature_max=2)
    listed = controller.ask(ListNodes()).nodes

    assert [node.last_heartbeat_age_ms for node in listed] == [700, 700, 700, None]
    assert listed[3].node.rack == "r"
    assert (listed[3].feature_min, listed[3].feature_max) == (1, 2)


def test_producer_ids_are_never_given_twice() -> None:
    """M61, C33: a block is reserved durably before its first id is used; a restart skips the rest of it, and as many
    ids as a store that lost its end may have given."""
    controller = Controller()
    first = [controller.ask(InitProducerId()).producer_id for _ in range(3)]
    assert controller.stored.header.next_producer_id == PRODUCER_ID_BLOCK

    restarted = Controller(state=controller.stored)
    later = [restarted.ask(InitProducerId()).producer_id for _ in range(PRODUCER_ID_BLOCK + 1)]

    assert first == [0, 1, 2]
    assert later[0] == PRODUCER_ID_BLOCK + PRODUCER_IDS_SKIPPED
    assert len({*first, *later}) == len(first) + len(later)
    assert restarted.core.state.header.next_producer_id == 3 * PRODUCER_ID_BLOCK + PRODUCER_IDS_SKIPPED


def test_producer_epoch_rises_and_ends_in_a_new_id(controller: Controller) -> None:
    """A known id gets its next epoch; after Kafka's last epoch a new id; an id that was never assigned is rejected."""
    given = controller.ask(InitProducerId())
    raised = controller.ask(InitProducerId(producer_id=given.producer_id, producer_epoch=4))
    exhausted = controller.ask(InitProducerId(producer_id=given.producer_id, producer_epoch=MAX_PRODUCER_EPOCH))
    unknown = controller.ask(InitProducerId(producer_id=10**9, producer_epoch=0))
    half = controller.ask(InitProducerId(producer_id=given.producer_id))

    assert (given.producer_epoch, raised.producer_id, raised.producer_epoch) == (0, given.producer_id, 5)
    assert (exhausted.producer_id, exhausted.producer_epoch) == (given.producer_id + 1, 0)
    assert unknown.refusal.code is ErrorCode.UNKNOWN_PRODUCER_ID
    assert half.refusal.code is ErrorCode.INVALID_REQUEST


# A topic's own limit on the size of a batch.


def alone() -> Cluster:
    """Node 1 is the only replica and leads; the topic sets no limit."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,)))
    return cluster


def with_limit(cluster: Cluster, limit: int | None) -> None:
    """Give the topic a ``max.message.bytes``, or take it away."""
    image: MetadataImage = metadata(node_epoch(1), partition_image(isr=(1,)), nodes=[node_image(1)])
    configs = () if limit is None else (("max.message.bytes", str(limit)),)
    topics = tuple(replace(topic, configs=configs) for topic in image.topics)
    cluster.step(L, MetadataArrived(cluster.now, replace(image, topics=topics)))


def test_a_batch_above_the_topics_limit_is_refused_and_the_next_one_is_not() -> None:
    """max.message.bytes rejects a larger batch with MESSAGE_TOO_LARGE, NOT_APPENDED, and nothing is appended."""
    cluster = alone()
    with_limit(cluster, 2 * BATCH_BYTES)
    large = cluster.outcome(cluster.produce(batch(3)))
    small = cluster.outcome(cluster.produce(batch(2)))

    assert (large.refusal.code, large.outcome) == (ErrorCode.MESSAGE_TOO_LARGE, Outcome.NOT_APPENDED)
    assert "max.message.bytes=200" in large.refusal.message
    assert small.base_offset == 0


def test_a_limit_that_is_taken_away_no_longer_refuses() -> None:
    """A change of the topic's settings takes effect with the metadata that carries it."""
    cluster = alone()
    with_limit(cluster, BATCH_BYTES)
    with_limit(cluster, None)
    result = cluster.outcome(cluster.produce(batch(3)))

    assert result.refusal is None


# Whether a batch's times are near enough to now (KIP-937, KIP-1030).


BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


def header(first_ms: int, newest_ms: int) -> BatchHeader:
    """A batch of these times."""
    return BatchHeader(Offset(0), None, 1, 100, newest_ms, base_timestamp_ms=first_ms)


@pytest.mark.parametrize(
    ("first_ms", "newest_ms", "configs", "said"),
    [
        pytest.param(NOW_MS, NOW_MS + HOUR_MS, {}, None, id="an hour ahead, by default"),
        pytest.param(NOW_MS, NOW_MS + HOUR_MS + 1, {}, "after.max.ms is 3600000", id="one ms more"),
        pytest.param(NOW_MS * 1_000, NOW_MS * 1_000, {}, "after.max.ms is 3600000", id="microseconds"),
        pytest.param(2**63 - 1, 2**63 - 1, {}, "after.max.ms is 3600000", id="the largest"),
        pytest.param(-1, -1, {}, None, id="no time"),
        pytest.param(0, 0, {}, None, id="1970, by default"),
        pytest.param(-1, -1, {BEFORE: "0"}, None, id="no time is not old"),
        pytest.param(NOW_MS - 5, NOW_MS, {BEFORE: "4"}, "before.max.ms is 4", id="too old for the topic"),
        pytest.param(NOW_MS - 4, NOW_MS, {BEFORE: "4"}, None, id="as old as the topic allows"),
        pytest.param(NOW_MS, NOW_MS + 5, {AFTER: "4"}, "after.max.ms is 4", id="less ahead"),
        pytest.param(NOW_MS * 1_000, NOW_MS * 1_000, {AFTER: str(2**63 - 1)}, None, id="any"),
    ],
)
def test_times_outside_what_the_topic_takes_are_refused(
    first_ms: int, newest_ms: int, configs: dict[str, str], said: str | None
) -> None:
    """The newest time may lie so far ahead, the first one so far back; the refusal names time, limit and setting."""
    refusal = timestamp_refusal(header(first_ms, newest_ms), configs, NOW_MS)
    if said is None:
        assert refusal is None
        return
    assert (refusal.code, refusal.outcome) == (ErrorCode.INVALID_TIMESTAMP, Outcome.NOT_APPENDED)
    assert f"the topic's message.timestamp.{said}; send milliseconds since 1970" in refusal.message
