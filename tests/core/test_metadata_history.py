"""What changed between states of the metadata, and what a subscriber is sent; a controller's invariants hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_builders import TOPIC, Controller
from hypothesis import example, given, settings, strategies as st
from tests.core.metadata_images import image, node, partition, topic

from strandline.core.control.messages import AlterTopicConfigs, ConfigChange, ElectionKind, ElectLeaders, TopicRef
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.control.subscriptions import MOST_TOPICS, MetadataHistory, StateChange, Subscription
from strandline.core.errors import ControllerHint, ErrorCode, Refusal
from strandline.core.messages import AsOf, MetadataImage, PartitionImage, TopicImage, Wanted
from strandline.core.permissions import Caller, Operation, Pattern, Permission, Permit, ResourceType, Rule
from strandline.core.types import Durability, NodeId, Rules


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
    assert last(history(image(1, topic("a")), image(2, after, whole=False))).topics["id-a"].whole == after


def test_a_state_that_comes_whole_is_compared() -> None:
    """A snapshot behind a known state is a change like any other: what it lacks is gone."""
    made = history(
        image(1, topic("a"), topic("b"), nodes=(node(1), node(2))), image(3, topic("b"), topic("c"), nodes=(node(1),))
    )
    found = {t.name: (t.whole is not None, t.deleted) for t in last(made).topics.values()}

    assert found == {"a": (False, True), "c": (True, False)}
    assert last(made).removed_node_ids == (2,)


def test_the_same_state_again_is_no_change() -> None:
    """A watch that is opened again brings the state whole; no subscriber is sent anything for it."""
    assert history(image(1, topic("a")), image(1, topic("a"))).next_number == 0


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
    assert [made.number_after(AsOf(1, offset)) for offset in (1, 2, 3, 4, 5, 9)] == [None, 1, 2, 3, 4, 4]
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
    subscription = Subscription(history(image(1, topic("a"), topic("b"))))
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

    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert said in refusal.message


# The controller's invariants hold after every step, for any events in any order.


NODES = (1, 2, 3)
node_invariants = st.sampled_from(NODES)


actions = st.one_of(
    st.tuples(st.just("restart"), node_invariants),
    st.tuples(st.just("unclean"), node_invariants),
    st.tuples(st.just("new_disk"), node_invariants),
    st.tuples(st.just("beat"), node_invariants),
    st.tuples(st.just("refused"), node_invariants),
    st.tuples(st.just("farewell"), node_invariants),
    st.tuples(st.just("silence"), st.integers(1, 12)),
    st.tuples(st.just("propose"), st.sets(node_invariants, min_size=1)),
    st.tuples(st.just("min_isr"), st.integers(1, 3)),
    st.tuples(st.just("unclean_allowed"), st.booleans()),
    st.tuples(st.just("elect"), st.sampled_from(ElectionKind)),
    st.tuples(st.just("controller_restart"), st.none()),
)


def perform(controller: Controller, action: tuple[str, object], sequence: int) -> Controller:
    """One event that may happen."""
    match action:
        case ("restart", int(n)):
            controller.register(n)
        case ("unclean", int(n)):
            controller.register(n, unclean=True)
        case ("new_disk", int(n)):
            controller.register(n, directory_id=f"disk-{sequence}")
        case ("beat", int(n)):
            controller.heartbeat(n)
        case ("refused", int(n)):
            controller.fence(n)
        case ("farewell", int(n)):
            controller.heartbeat(n, want_shut_down=True)
        case ("silence", int(seconds)):
            controller.pass_ms(seconds * 1_000)
        case ("propose", set(isr)) if controller.partition().leader is not None:
            controller.propose(*sorted(isr), sequence=sequence)
        case ("min_isr", int(wanted)):
            alter(controller, "min.insync.replicas", str(wanted))
        case ("unclean_allowed", bool(allowed)):
            alter(controller, "unclean.leader.election.enable", str(allowed).lower())
        case ("elect", ElectionKind() as kind):
            controller.ask(ElectLeaders(kind=kind))
        case ("controller_restart", _):
            epochs = controller.epochs
            # The same history has the same ids.
            ids = iter([f"{sequence:032x}"])
            controller = Controller(
                state=controller.stored, timings=controller.timings, now_ms=controller.now_ms, reign_ids=ids
            )
            controller.epochs = epochs
    return controller


def alter(controller: Controller, name: str, value: str) -> None:
    """Change a setting of the topic, which a reign that no node has reported to refuses (C37)."""
    answer = controller.ask(AlterTopicConfigs(topics=(ConfigChange(TopicRef(TOPIC), ((name, value),)),)))
    if isinstance(answer, Refusal):
        assert answer.hint == ControllerHint("UNHEARD")
    else:
        assert answer.topics[0].refusal is None


def check_partition(state: ClusterState, partition: PartitionImage, *, waits: bool = False) -> None:
    """I7, I14, I15, KIP-966: what must hold of one partition at any time."""
    isr, elr, replicas = set(partition.isr), set(partition.elr), set(partition.replicas)
    assert isr | elr <= replicas
    assert not isr & elr
    assert partition.leader is None or partition.leader in isr
    unproven = set(partition.unproven)
    assert unproven <= isr | elr
    assert partition.leader not in unproven
    # An election waits for live replicas that a new reign has not heard (C37).
    assert bool(isr - unproven) == (partition.leader is not None) or waits
    assert len(isr) < partition.min_isr or not elr
    for member in isr:
        image = next(record.image for record in state.nodes.values() if record.image.node_id == member)
        assert not image.fenced
        assert not image.shutting_down


def check_step(before: ClusterState, after: ClusterState) -> None:
    """I1, I14: epochs never go back; any change bumps the partition epoch, any election the leader epoch."""
    assert after.header.controller_epoch >= before.header.controller_epoch
    assert after.header.metadata_offset >= before.header.metadata_offset
    for old, new in zip(before.partitions(), after.partitions(), strict=True):
        assert new.leader_epoch >= old.leader_epoch
        assert (new.partition_epoch > old.partition_epoch) == (new != old)
        assert new.leader_epoch > old.leader_epoch or new.leader == old.leader
        old_unclean, new_unclean = old.last_unclean_leader_epoch, new.last_unclean_leader_epoch
        assert old_unclean is None or (new_unclean is not None and new_unclean >= old_unclean)
    for node_id, record in before.nodes.items():
        assert after.nodes[node_id].image.node_epoch >= record.image.node_epoch


@settings(max_examples=150)
@given(st.lists(actions, max_size=30))
# All restart, and an operator does not wait for their logs: the leader is proven all the same.
@example([("restart", 1), ("restart", 2), ("restart", 3), ("elect", ElectionKind.UNCLEAN)])
def test_invariants_hold_after_every_step(history: list[tuple[str, object]]) -> None:
    """Restarts, wiped disks, silences, elections and proposals in any order break no invariant."""
    controller = Controller(timings=ControllerTimings(leader_imbalance_check_interval_ms=5_000))
    controller.start(*NODES)
    controller.create(*NODES)
    for sequence, action in enumerate(history, 1):
        before, led = controller.core.state, controller.partition()
        epochs = dict(controller.epochs)
        controller = perform(controller, action, sequence)
        after = controller.partition()
        check_step(before, controller.core.state)
        check_partition(controller.core.state, after, waits=bool(controller.draft().waits_for(after)))
        if led.leader is not None and controller.epochs[led.leader] != epochs[led.leader]:
            assert after.leader_epoch > led.leader_epoch
        if action[0] in ("unclean", "new_disk") and controller.epochs[action[1]] != epochs[action[1]]:
            assert action[1] not in after.elr
            assert action[1] not in after.isr or after.recovering or led.recovering


@settings(max_examples=50)
@given(st.lists(actions, max_size=20))
def test_equal_histories_give_equal_states(history: list[tuple[str, object]]) -> None:
    """The core reads no clock and no random numbers: the same events give the same state."""

    def run() -> ClusterState:
        controller = Controller(reign_ids=iter(["f" * 32]))
        for n in NODES:
            controller.register(n, incarnation_id=f"first-{n}")
            controller.heartbeat(n)
        controller.create(*NODES)
        for sequence, action in enumerate(history, 1):
            if action[0] not in ("restart", "unclean", "new_disk"):
                controller = perform(controller, action, sequence)
        return controller.core.state

    assert run() == run()


def _rule(name: str) -> Rule:
    return Rule("client/x", Permission.ALLOW, Operation.DESCRIBE, ResourceType.TOPIC, Pattern.LITERAL, name)


def test_a_subscriber_with_rules_is_sent_what_it_may_know() -> None:
    """It is sent the topics that it may describe; after a change of rules it needs everything again, others do not."""
    made = history(
        replace(image(1, topic("a"), topic("b")), acls=(_rule("a"),)),
        image(2, topic("c"), whole=False),
        replace(image(3, whole=False), acls=(_rule("b"),)),
        image(4, topic("b", partition("b", 0, epoch=2)), topic("c", partition("c", 0, epoch=2)), whole=False),
    )
    permitted = Subscription(made, lambda: Permit(Caller("client/x", {}), made.acls))
    plain = Subscription(made)
    for each in (permitted, plain):
        each.want(Wanted(all_topics=True))

    assert [t.name for t in permitted.snapshot().topics] == ["b"]
    assert permitted.added([("a", ""), ("absent", "")]).missing == (("a", ""), ("absent", ""))
    assert [t.name for t in permitted.of(last(made)).changed] == ["b"]
    assert (permitted.snapshot_after, plain.snapshot_after) == (1, -1)
