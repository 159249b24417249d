"""What changed between states of the metadata, and what a subscriber is sent of it, without sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.core.control.subscriptions import MOST_TOPICS, MetadataHistory, StateChange, Subscription
from strandline.core.errors import ErrorCode
from strandline.core.messages import AsOf, MetadataImage, NodeImage, PartitionImage, TopicImage, Wanted
from strandline.core.types import (
    Durability,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
)


def partition(topic: str, index: int, *, epoch: int = 1, leader: int | None = 1) -> PartitionImage:
    return PartitionImage(
        tp=TopicPartition(f"id-{topic}", index),
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1), NodeId(2)),
        elr=(),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(epoch),
        min_isr=1,
    )


def topic(name: str, *partitions: PartitionImage, configs: tuple[tuple[str, str], ...] = ()) -> TopicImage:
    return TopicImage(name=name, topic_id=f"id-{name}", configs=configs, partitions=partitions or (partition(name, 0),))


def node(node_id: int, *, fenced: bool = False) -> NodeImage:
    return NodeImage(
        node_id=NodeId(node_id),
        node_epoch=NodeEpoch(1),
        roles=frozenset({Role.LEADER}),
        client_endpoint=None,
        internal_endpoint=None,
        rack=None,
        fenced=fenced,
    )


def image(offset: int, *topics: TopicImage, whole: bool = True, epoch: int = 1, **more: object) -> MetadataImage:
    return replace(
        MetadataImage(
            cluster_id="c",
            controller_epoch=epoch,
            metadata_offset=offset,
            is_snapshot=whole,
            rules=Rules(),
            topics=topics,
        ),
        **more,  # type: ignore[arg-type]
    )


def history(*images: MetadataImage, **kept: int) -> MetadataHistory:
    made = MetadataHistory(**kept)
    for one in images:
        made.take([one])
    return made


def last(made: MetadataHistory) -> StateChange:
    return made.change(made.next_number - 1)


def test_a_change_holds_only_the_partitions_that_changed() -> None:
    """A topic comes whole from the controller, and goes to subscribers as the partitions that are different."""
    two = topic("a", partition("a", 0), partition("a", 1))
    moved = topic("a", partition("a", 0), partition("a", 1, epoch=2, leader=2))
    made = history(image(1, two), image(2, moved, whole=False))

    assert last(made).topics["id-a"].partitions == (partition("a", 1, epoch=2, leader=2),)
    assert last(made).topics["id-a"].whole is None


@pytest.mark.parametrize(
    "after",
    [topic("a", partition("a", 0), partition("a", 1)), topic("a", configs=(("retention.ms", "1"),))],
    ids=["grown", "settings"],
)
def test_a_topic_that_grew_or_has_other_settings_is_sent_whole(after: TopicImage) -> None:
    """What is no change of a partition's state is sent with the whole topic."""
    made = history(image(1, topic("a")), image(2, after, whole=False))

    assert last(made).topics["id-a"].whole == after


def test_a_state_that_comes_whole_is_compared() -> None:
    """A snapshot behind a known state is a change like any other: what it lacks is gone."""
    made = history(
        image(1, topic("a"), topic("b"), nodes=(node(1), node(2))), image(3, topic("b"), topic("c"), nodes=(node(1),))
    )

    assert {t.name: (t.whole is not None, t.deleted) for t in last(made).topics.values()} == {
        "a": (False, True),
        "c": (True, False),
    }
    assert last(made).removed_node_ids == (2,)


def test_the_same_state_again_is_no_change() -> None:
    """A watch that is opened again brings the state whole; nobody is sent anything for it."""
    made = history(image(1, topic("a")), image(1, topic("a")))

    assert made.next_number == 0


def test_other_rules_alone_are_a_change() -> None:
    """A cluster-wide rule that changed is sent to every subscriber though no topic and no node did."""
    rules = Rules(durability=Durability.PAGE_CACHE)
    made = history(image(1, topic("a")), image(2, topic("a"), rules=rules))

    assert last(made).rules == rules
    assert not last(made).topics


def test_an_older_image_is_not_taken() -> None:
    """A position never goes back, whether the offset is lower or the reign."""
    made = history(image(5, topic("a"), epoch=2), image(4, epoch=2), image(9, epoch=1))

    assert made.as_of == AsOf(2, 5)
    assert "id-a" in made.topics


def test_images_that_come_together_are_one_change() -> None:
    """A node that was removed and registered again within one change is there afterwards."""
    made = history(image(1, nodes=(node(1),)))
    made.take(
        [image(2, whole=False, removed_node_ids=(NodeId(1),)), image(3, whole=False, nodes=(node(1, fenced=True),))]
    )

    assert (last(made).nodes, last(made).removed_node_ids) == ((node(1, fenced=True),), ())
    assert made.next_number == 1


def test_a_position_within_the_kept_changes_needs_no_snapshot() -> None:
    """A subscriber with a kept position gets what came after it; an older one, or another reign's, needs a snapshot."""
    changes = [image(offset, topic("a", partition("a", 0, epoch=offset)), whole=False) for offset in (2, 3, 4, 5)]
    made = history(image(1, topic("a")), *changes, changes_kept=3)

    found = [made.number_after(AsOf(1, offset)) for offset in (1, 2, 3, 4, 5, 9)]
    assert found == [None, 1, 2, 3, 4, 4]
    assert made.number_after(AsOf(2, 3)) is None
    assert made.number_after(AsOf(1, 3, "another")) is None


def test_large_changes_push_old_ones_out() -> None:
    """The number of partitions in all kept changes is bounded, so that memory is."""
    made = history(image(1, topic("a")), partitions_kept=3)
    for offset in range(2, 9):
        made.take([image(offset, topic("a", partition("a", 0, epoch=offset)), whole=False)])

    assert made.next_number - made.first_number == 3


def test_a_subscriber_gets_its_topics_and_no_other() -> None:
    """Snapshot and changes hold the topics that were named; a change of another one is empty."""
    made = history(image(1, topic("a"), topic("b")))
    subscription = Subscription(made)
    subscription.want(Wanted(add=(("a", ""), ("", "id-missing"))))
    first = subscription.snapshot()
    made.take([image(2, topic("b", partition("b", 0, epoch=2)), whole=False)])

    assert [t.name for t in first.topics] == ["a"]
    assert first.missing == (("", "id-missing"),)
    assert subscription.of(last(made)).is_empty


def test_a_name_is_the_topic_of_that_name_at_each_time() -> None:
    """A topic that was missing is sent once it exists; after a deletion the next one of that name is."""
    made = history(image(1))
    subscription = Subscription(made)
    subscription.want(Wanted(add=(("a", ""),)))
    made.take([image(2, topic("a"), whole=False)])
    created = subscription.of(last(made))
    again = replace(topic("a"), topic_id="id-2", partitions=())
    made.take([image(3, again, whole=False, deleted_topic_ids=("id-a",))])
    replaced = subscription.of(last(made))

    assert created.topics == (topic("a"),)
    assert (replaced.topics, replaced.deleted_topic_ids) == ((again,), ("id-a",))


def test_what_was_removed_from_a_subscription_is_sent_no_more() -> None:
    """remove_topics ends what add_topics began; all_topics is for everything."""
    made = history(image(1, topic("a"), topic("b")))
    subscription = Subscription(made)
    subscription.want(Wanted(add=(("a", ""), ("b", ""))))
    subscription.want(Wanted(remove=(("a", ""),)))
    named = [t.name for t in subscription.snapshot().topics]
    subscription.want(Wanted(all_topics=True))

    assert named == ["b"]
    assert [t.name for t in subscription.snapshot().topics] == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(add=(("", ""),)), "needs a name or an id"),
        (Wanted(add=(("a", "id-a"),)), "needs a name or an id"),
        (Wanted(add=tuple((f"t{n}", "") for n in range(MOST_TOPICS + 1))), "set all_topics"),
    ],
    ids=["neither", "both", "too many"],
)
def test_a_subscription_that_cannot_be_is_refused(wanted: Wanted, said: str) -> None:
    """A topic needs exactly one of name and id, and a subscription is bounded."""
    refusal = Subscription(history(image(1))).want(wanted)

    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert said in refusal.message
