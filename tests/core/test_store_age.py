"""A store that goes back in time (TR18): how it is detected, what is rejected, and the recovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from controller_builders import (
    CLUSTER,
    P0,
    TOPIC_ID,
    Controller,
    created,
    next_reign,
    proof_of,
    registration,
    seen,
    stored,
)

from strandline.core.control import events, messages
from strandline.core.control.recovery import METADATA_OFFSET_MARGIN, GivenNode, recover
from strandline.core.control.state import SKIP
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Heartbeat, MetadataImage, PositionProof, RegisterNode
from strandline.core.types import NodeEpoch, NodeId, TopicPartition


def heartbeat_of(node_id: int, **given: Any) -> Heartbeat:
    """A heartbeat of the first process of a node, before it applied any metadata."""
    fields: dict[str, Any] = {"cluster_id": CLUSTER, "node_id": NodeId(node_id), "node_epoch": NodeEpoch(node_id)}
    return Heartbeat(**{**fields, "metadata_offset": 0, **given})


def given_node(node_id: int, image: MetadataImage, directory_id: str | None = None) -> GivenNode:
    """A node's data directory as `recover` reads it."""
    return GivenNode(node_id=NodeId(node_id), directory_id=directory_id or f"directory-{node_id}", image=image)


CLAIMS: dict[str, RegisterNode | Heartbeat] = {
    "a controller epoch": registration(1, controller_epoch_seen=9),
    "a leader epoch": registration(1, epochs_seen=(seen(9, 0),)),
    "a partition epoch": registration(1, epochs_seen=(seen(0, 9),)),
    "a partition": registration(1, epochs_seen=(seen(0, 0, TopicPartition(TOPIC_ID, 3)),)),
    "a topic": registration(1, epochs_seen=(seen(0, 0, TopicPartition("created-after-the-backup", 0)),)),
    "a metadata offset": heartbeat_of(1, metadata_offset=1_000),
    "a node epoch": heartbeat_of(1, node_epoch=NodeEpoch(1_000)),
}
"""What a node may say that it has seen, and the store does not hold."""


@pytest.fixture
def controller() -> Controller:
    """One partition, on nodes 1 and 2."""
    return created(1, 2)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("mac", [None, b"", b"a" * 32], ids=["no proof", "an empty proof", "a wrong proof"])
def test_a_claim_without_a_proof_stops_nobody_else(
    controller: Controller, claim: RegisterNode | Heartbeat, mac: bytes | None
) -> None:
    """F5: a number that is too high rejects the node that sends it, is counted, and changes nothing for others."""
    offset = controller.core.state.header.metadata_offset
    proof = None if mac is None else PositionProof(NodeEpoch(1_000), 9, 1_000, mac)
    refused = controller.ask(replace(claim, position=proof))

    assert (refused.code, refused.retriable) == (ErrorCode.NOT_CONTROLLER, True)
    assert "only this node is refused" in refused.message
    assert controller.core.unproven_claims == 1
    assert controller.core.state.header.metadata_offset == offset
    assert controller.core.serves
    assert controller.heartbeat(2).refusal is None
    assert controller.ask(messages.InitProducerId()).refusal is None


def test_a_proof_for_another_node_proves_nothing(controller: Controller) -> None:
    """F5: a proof that the controller sent to one node, or to its process, is not valid from another."""
    later = proof_of(controller, 2, metadata_offset=1_000)

    assert isinstance(controller.heartbeat(1, metadata_offset=1_000, position=later), Refusal)
    assert controller.core.serves


@pytest.mark.parametrize(
    "beyond",
    [
        {"metadata_offset": 1_000},
        {"reign_id": "ab" * 16},
        {"reign_id": "", "controller_epoch": 9},
        {"reign_id": "", "metadata_offset": 1_000},
        {"reign_id": "", "node_epoch": NodeEpoch(1_000)},
    ],
    ids=["offset", "reign", "controller epoch, no reign", "offset, no reign", "node epoch, no reign"],
)
@pytest.mark.parametrize("asks", [registration, heartbeat_of], ids=["a registration", "a heartbeat"])
def test_a_proven_later_position_ends_all_service(
    controller: Controller, asks: Callable[..., Any], beyond: dict[str, Any]
) -> None:
    """TR18: the first proof ends all service, watches included; no epoch is assigned twice."""
    offset = controller.core.state.header.metadata_offset
    claim = asks(1, position=proof_of(controller, 1, **beyond))
    effects = controller.step(events.RequestArrived(controller.now_ms, 77, claim))

    assert [type(effect) for effect in effects] == [events.StopServing, events.RefuseCall]
    assert controller.core.state.header.metadata_offset == offset
    for request in (messages.GetMetadata(), messages.InitProducerId(), registration(2)):
        refused = controller.ask(request)
        assert refused.code is ErrorCode.NOT_CONTROLLER
        assert "strandline controller recover" in refused.message
    assert isinstance(controller.watch(messages.WatchMetadata()), Refusal)


def test_every_image_for_a_node_carries_a_proof_of_its_position(controller: Controller) -> None:
    """F5: snapshots and changes are proven only to the process that they are addressed to."""
    epoch = controller.epochs[1]
    opened = controller.watch(messages.WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=epoch))
    as_client = controller.watch(messages.WatchMetadata())
    change = controller.step(events.RequestArrived(controller.now_ms, 78, registration(3)))[1]

    assert (
        isinstance(opened, events.OpenWatch)
        and isinstance(as_client, events.OpenWatch)
        and isinstance(change, events.Publish)
    )
    assert opened.snapshot.position == proof_of(controller, 1, metadata_offset=opened.snapshot.metadata_offset)
    assert change.position_for(NodeId(1), epoch) == proof_of(controller, 1)
    assert as_client.snapshot.position is None
    assert change.position_for(None, None) is None


def test_recovery_keeps_the_secret_of_a_given_store(controller: Controller) -> None:
    """F5: positions that nodes hold stay proven over a recovery from the old store; without it none is."""
    image = controller.core.state.snapshot()
    kept = recover([given_node(1, image), given_node(2, image)], stored(controller))
    lost = recover([given_node(1, image), given_node(2, image)])

    assert kept.header.secret == controller.core.state.header.secret
    assert lost.header.secret == ""


def test_equal_epochs_and_deleted_topics_are_no_proof(controller: Controller) -> None:
    """A node that was away during a deletion knows a topic that was rightly deleted."""
    now = controller.partition()
    known = (seen(now.leader_epoch, now.partition_epoch),)
    assert controller.register(1, epochs_seen=known, controller_epoch_seen=1).refusal is None

    controller.ask(messages.DeleteTopics(topics=(messages.TopicRef("t"),)))

    assert controller.register(2, epochs_seen=(seen(5, 5),), controller_epoch_seen=1).refusal is None


def test_restored_backup_is_noticed(controller: Controller) -> None:
    """The backup holds leader epoch 0, the nodes have seen 2: the restored store does not serve."""
    backup = stored(controller)
    controller.register(1)
    assert controller.propose(1, 2, sender=2) is ErrorCode.NONE
    controller.register(2)
    latest = controller.partition()
    assert latest.leader_epoch == 2

    refused = Controller(state=backup).register(2, epochs_seen=(seen(latest.leader_epoch, latest.partition_epoch),))

    assert "leader epoch 2" in refused.message
    assert "the store has 0" in refused.message


def test_restored_backup_is_noticed_by_nodes_that_never_stopped() -> None:
    """A backup from before the last start reaches the same controller epoch again and is detected by heartbeats.

    Running nodes do not register again, so their heartbeats show it, also that of a node which the backup takes for a
    later incarnation.
    """
    for node_id in (1, 2):
        controller = created(1, 2)
        backup = stored(controller)
        controller.register(1)
        controller.register(1)
        applied = controller.core.state.header.metadata_offset
        restored = next_reign(controller, backup)
        proof = proof_of(controller, node_id)
        refused = restored.heartbeat(node_id, metadata_offset=applied, position=proof)

        assert refused.code is ErrorCode.NOT_CONTROLLER
        assert f"metadata offset {applied}" in refused.message
        assert isinstance(restored.watch(messages.WatchMetadata()), Refusal)


def test_process_whose_registration_was_lost_registers_again(controller: Controller) -> None:
    """It registered after the backup was made and was sent nothing since: a new process can do all that it could."""
    backup = stored(controller)
    controller.register(1)
    restored = next_reign(controller, backup)
    refusals = [
        restored.watch(messages.WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=controller.epochs[1])),
        restored.heartbeat(1, metadata_offset=0).refusal,
    ]

    assert [refusal.code for refusal in refusals] == [ErrorCode.STALE_BROKER_EPOCH] * 2
    assert restored.register(1, incarnation_id="a-new-process").refusal is None
    assert restored.core.serves


def test_store_that_is_not_served_from_is_not_written_to_either(controller: Controller) -> None:
    """No node is heard any more, so every session would end; fencing them would only advance the old store."""
    before = controller.core.state
    later = proof_of(controller, 1, metadata_offset=before.header.metadata_offset + 1)
    assert isinstance(controller.heartbeat(1, position=later), Refusal)

    later_ms = controller.now_ms + 60_000
    effects = controller.step(events.ControllerTicked(later_ms))
    effects += controller.step(events.ConnectionRefused(later_ms, ((NodeId(2), controller.epochs[2]),)))

    assert effects == []
    assert controller.core.state == before


def test_empty_store_does_not_pass_for_a_new_cluster() -> None:
    """TR18: a node of a cluster finds a store that no node ever registered at: it was lost, and serves nothing."""
    emptied = Controller()
    emptied.epochs[1] = NodeEpoch(3)
    refused = emptied.heartbeat(1, cluster_id="the cluster before")

    assert refused.code is ErrorCode.NOT_CONTROLLER
    assert refused.retriable
    assert "the store is empty" in refused.message
    assert isinstance(emptied.register(2, cluster_id=None), Refusal)


def test_recovery_adopts_the_highest_partition_epoch_and_goes_beyond_it() -> None:
    """TR18: ISR, ELR, min ISR of the newest view; leader and partition epochs above any that may have been given."""
    controller = created(1, 2, 3)
    old = controller.core.state.snapshot()
    controller.fence(3)
    controller.fence(1)
    new = controller.core.state.snapshot()
    partition = controller.partition()
    assert controller.view() == (2, {2}, {1})

    state = recover([given_node(1, old), given_node(2, new), given_node(3, old)])
    assert state.partition(P0) == replace(
        partition, leader_epoch=partition.leader_epoch + 1 + SKIP, partition_epoch=partition.partition_epoch + 1 + SKIP
    )
    assert state.header.cluster_id == CLUSTER
    assert state.header.controller_epoch == 2
    assert state.header.metadata_offset == new.metadata_offset + METADATA_OFFSET_MARGIN
    assert {n: r.directory_id for n, r in state.nodes.items()} == {n: f"directory-{n}" for n in (1, 2, 3)}


def test_partition_with_a_node_not_given_stays_without_leader(controller: Controller) -> None:
    """TR18: the absent node may know more; only an unclean election by an operator ends the wait."""
    recovered = next_reign(controller, recover([given_node(1, controller.core.state.snapshot())]))

    assert recovered.view() == (None, set(), set())
    recovered.heartbeat(1)
    recovered.fence(2)
    assert recovered.view()[0] is None
    (result,) = recovered.ask(messages.ElectLeaders(kind=messages.ElectionKind.UNCLEAN)).results
    assert (result.refusal, result.leader) == (None, 1)


def test_recovered_controller_accepts_the_nodes_it_was_recovered_from(controller: Controller) -> None:
    """The nodes' epochs are not above the recovered ones, and their directories are known, so nothing is lost."""
    controller.register(1)
    image = controller.core.state.snapshot()
    partition = controller.partition()
    recovered = Controller(state=recover([given_node(1, image), given_node(2, image)]))
    known = (seen(partition.leader_epoch, partition.partition_epoch),)
    answers = [recovered.register(n, epochs_seen=known, controller_epoch_seen=1) for n in (1, 2)]
    recovered.heartbeat(2)
    recovered.report(2)

    assert [answer.refusal for answer in answers] == [None, None]
    assert min(answer.node_epoch for answer in answers) > max(controller.epochs.values())
    assert recovered.partition().leader is not None
    assert recovered.partition().leader_epoch > partition.leader_epoch
    assert recovered.view() == (2, {1, 2}, set())


def test_registration_that_the_store_has_lost_gives_it_away(controller: Controller) -> None:
    """A backup lacks only a registration, and its next reign gives that offset again: the id proves it (C35)."""
    backup = stored(controller)
    controller.register(1)
    restored = next_reign(controller, backup)
    lost = controller.core.state.header.metadata_offset
    assert lost == restored.core.state.header.metadata_offset
    refused = restored.heartbeat(1, metadata_offset=lost, position=proof_of(controller, 1))

    assert f"metadata offset {lost} of reign" in refused.message
    assert not restored.core.serves


def test_process_that_registered_at_a_lost_reign_must_register_again(controller: Controller) -> None:
    """No given image and no older store contains its registration: waiting for a newer store would never end."""
    backup, image = stored(controller), controller.core.state.snapshot()
    controller.register(1)
    for given in ([given_node(1, image), given_node(2, image)], [given_node(2, replace(image, nodes=()))]):
        recovered = next_reign(controller, recover(given, backup))
        answers = [
            recovered.heartbeat(1).refusal,
            recovered.watch(
                messages.WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=controller.epochs[1])
            ),
        ]

        assert [refusal.code for refusal in answers] == [ErrorCode.STALE_BROKER_EPOCH] * 2
        assert recovered.core.serves
        assert recovered.register(1, incarnation_id="a-new-process").refusal is None
        assert recovered.heartbeat(1).refusal is None


def test_recovery_gives_no_producer_id_again() -> None:
    """No image contains producer ids, so each recovery begins far beyond every id that was given out."""
    controller = created(1)
    given = controller.ask(messages.InitProducerId()).producer_id
    recovered = Controller(state=recover([given_node(1, controller.core.state.snapshot())]))
    later = recovered.ask(messages.InitProducerId()).producer_id
    again = Controller(state=recover([given_node(1, recovered.core.state.snapshot())]))

    assert later > given + 10**12
    assert again.ask(messages.InitProducerId()).producer_id > later + 10**12


def test_recovery_takes_a_missing_topic_for_deleted(controller: Controller) -> None:
    """A topic that the newest image lacks was deleted; an older view does not restore it, and its id stays known."""
    old = controller.core.state.snapshot()
    controller.ask(messages.DeleteTopics(topics=(messages.TopicRef("t"),)))
    new = controller.core.state.snapshot()
    state = recover([given_node(1, old), given_node(2, new)])

    assert state.topics == {}
    assert state.deleted_topic_ids == {TOPIC_ID}


def test_recovery_uses_an_older_store_for_what_images_lack(controller: Controller) -> None:
    """Directory ids of nodes that were not given, and topics deleted before, come from the old store."""
    backup = stored(controller)
    state = recover([given_node(1, controller.core.state.snapshot())], backup)

    assert state.nodes[NodeId(2)].directory_id == "directory-2"
    assert state.header.controller_epoch == 2


def test_recovery_ignores_a_store_that_no_node_registered_at() -> None:
    """A controller that was started without its lost store made an empty one of another cluster id."""
    image = replace(created(1, 2).core.state.snapshot(), cluster_id="the cluster before")

    assert recover([given_node(1, image)], Controller().stored).header.cluster_id == "the cluster before"


def test_recovery_refuses_what_does_not_belong_together() -> None:
    """No input, two clusters, or one node twice: rejected before anything is changed."""
    image = created(1).core.state.snapshot()
    other = replace(image, cluster_id="other")

    for given in ([], [given_node(1, image), given_node(2, other)], [given_node(1, image), given_node(1, image)]):
        with pytest.raises(Refused, match=r"^INVALID_REQUEST"):
            recover(given)
