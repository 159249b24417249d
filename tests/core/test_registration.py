"""Registration: incarnations, unclean restarts, duplicates, rules, feature levels, observers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_builders import CLUSTER, Controller, created, started

from strandline.core import types
from strandline.core.control.messages import AlterTopicConfigs, ConfigChange, TopicRef
from strandline.core.errors import ErrorCode
from strandline.core.state_events import IsrChange
from strandline.core.types import Durability, Role, Rules

OBSERVER = frozenset({Role.FOLLOWER})


def test_node_starts_fenced_and_is_unfenced_by_its_first_heartbeat() -> None:
    """A registration alone makes no node a leader."""
    controller = Controller()
    answer = controller.register(1)

    assert (answer.refusal, answer.node_epoch, answer.cluster_id) == (None, 1, CLUSTER)
    assert controller.node(1).fenced

    assert not controller.heartbeat(1).is_fenced
    assert not controller.node(1).fenced


def test_restarted_leader_never_leads_in_its_old_epoch() -> None:
    """TR21, M64: A led and is back within its session; B leads in a new epoch, and A is a member without proof."""
    controller = created(1, 2)
    before = controller.partition()
    controller.register(1)
    after = controller.partition()
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1
    assert controller.view() == (2, {1, 2}, set())
    assert after.unproven == (1,)
    assert not controller.node(1).fenced


def test_restart_at_one_replica_bumps_the_epoch_as_well() -> None:
    """TR21, RF 1: the same node leads again after it reported its log, two epochs later: one was without a leader."""
    controller = created(1)
    before = controller.partition()
    controller.register(1)
    assert controller.view() == (None, {1}, set())
    controller.report(1)

    assert controller.view() == (1, {1}, set())
    assert controller.partition().leader_epoch == before.leader_epoch + 2


def test_restarted_follower_costs_no_leader_epoch() -> None:
    """M56, M64: only partitions that the node led get a new epoch; a follower stays in the ISR, proven when counted."""
    controller = created(1, 2)
    before = controller.partition()
    controller.register(2)
    marked = controller.partition()
    assert controller.propose(1, 2) is ErrorCode.NONE
    assert marked == replace(before, unproven=(2,), partition_epoch=before.partition_epoch + 1)
    assert controller.partition() == replace(before, partition_epoch=before.partition_epoch + 2)
    assert controller.partition().leader_epoch == before.leader_epoch


def test_a_restarted_follower_is_reported_as_an_isr_that_stays() -> None:
    """Its registration and its proof raise the partition epoch, and each is an event: else statistics find a hole."""
    controller = Controller()
    controller.start(1, 2)
    before = controller.create(1, 2)
    controller.register(2)
    controller.propose(1, 2)
    changes = [each.event for each in controller.emitted if isinstance(each.event, IsrChange)]
    found = [(each.old_isr, each.new_isr, each.cause) for each in changes]

    assert found == [((1, 2), (1, 2), "restart"), ((1, 2), (1, 2), "catch_up")]
    assert [each.partition_epoch - before.partition_epoch for each in changes] == [1, 2]


def test_same_registration_sent_twice_is_one_incarnation() -> None:
    """A retry after a lost answer gets the same node epoch and bumps nothing again."""
    controller = created(1)
    first = controller.register(1, incarnation_id="same")
    state = controller.partition()

    assert controller.register(1, incarnation_id="same").node_epoch == first.node_epoch
    assert controller.partition() == state


def test_late_copy_of_a_superseded_registration_is_refused() -> None:
    """A delayed registration does not replace a newer process that registered meanwhile."""
    controller = Controller()
    controller.register(1, incarnation_id="old")
    newer = controller.register(1, incarnation_id="new")

    assert controller.register(1, incarnation_id="old").refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert controller.node(1).node_epoch == newer.node_epoch


def test_last_replica_standing_restarts_unclean() -> None:
    """TR11 (core): ISR {2}, ELR {1}; 2 registers unclean and leaves; the ELR leads, 2 is electable nowhere."""
    controller = created(0, 1, 2)
    controller.fence(0)
    controller.fence(1)
    assert controller.view() == (2, {2}, {1})

    controller.register(2, unclean=True)

    assert controller.view() == (None, set(), {1})
    assert controller.node(2).fenced

    controller.heartbeat(2)
    controller.heartbeat(0)
    assert controller.view() == (None, set(), {1})
    controller.heartbeat(1)

    assert controller.view() == (1, {1}, set())


@pytest.mark.parametrize("given", [{"unclean": True}, {"directory_id": "wiped"}])
def test_unclean_last_member_leaves_isr_and_elr_for_good(given: dict[str, object]) -> None:
    """I15: even the last member is removed; the partition is offline and says so until an operator elects unclean."""
    controller = created(1)
    controller.fence(1)
    assert controller.view() == (None, set(), {1})

    controller.start(1, **given)

    assert controller.view() == (None, set(), set())


def test_unclean_restart_within_the_session_takes_effect_in_one_transaction() -> None:
    """M58: registration, loss of the places, new leader and new epoch are one metadata change."""
    controller = created(1, 2, 3)
    before = controller.partition()
    offset = controller.core.state.header.metadata_offset
    controller.register(1, unclean=True)
    after = controller.partition()
    assert (after.leader, set(after.isr), after.elr) == (2, {2, 3}, ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert controller.core.state.header.metadata_offset == offset + 1
    assert controller.node(1).fenced


def test_another_directory_within_a_live_session_is_a_duplicate() -> None:
    """DUPLICATE_BROKER_REGISTRATION while the old session lives; afterwards the new disk may register."""
    controller = started(1)
    refused = controller.register(1, directory_id="other").refusal
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refused.message.startswith("node_id 1 is in use by a live process with another data directory")
    controller.pass_ms(10_000)

    assert controller.register(1, directory_id="other").refusal is None


def test_end_of_session_takes_the_places_and_a_later_return_gives_none_back() -> None:
    """M56: after its session a node is fenced and out; registering again does not unfence it."""
    controller = created(1, 2)
    controller.pass_ms(10_000, 1)
    assert controller.view() == (1, {1}, set())

    controller.register(2)

    assert controller.node(2).fenced
    assert controller.view() == (1, {1}, set())


def test_other_rules_are_refused_with_the_field_named() -> None:
    """The four rules are the cluster's: a node with another durability is shown which and the correction."""
    answer = Controller().register(1, rules=Rules(durability=Durability.PAGE_CACHE))

    assert (answer.refusal.code, answer.refusal.field) == (ErrorCode.INVALID_CONFIG, "rules.durability")
    assert "durability=page-cache" in answer.refusal.message
    assert "durability=fsync" in answer.refusal.message


def test_node_of_another_cluster_is_refused() -> None:
    """A directory of another cluster gets INCONSISTENT_CLUSTER_ID; a new one receives the id."""
    controller = started(2)
    refused = controller.register(1, cluster_id="elsewhere")

    assert refused.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert controller.register(1, cluster_id=None).cluster_id == CLUSTER


def test_feature_levels_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """[1,2] and [1,1] meet at level 1; [3,3] has no overlap and is rejected; alone again it is level 2."""
    monkeypatch.setattr(types, "HIGHEST", 3)
    controller = Controller()
    controller.start(1, feature_min=1, feature_max=2)
    assert controller.core.state.header.feature_level == 2

    refused = controller.register(3, feature_min=3, feature_max=3)
    assert refused.refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert "3-3" in refused.refusal.message
    assert "1-2" in refused.refusal.message
    assert 3 not in controller.core.state.nodes
    assert controller.register(2, feature_min=1, feature_max=1).feature_level == 1
    assert controller.core.state.header.feature_level == 1


def test_no_level_is_used_that_the_controller_does_not_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer release joins at the controller's level; one that no longer supports that level is rejected."""
    monkeypatch.setattr(types, "HIGHEST", 1)
    controller = Controller()

    assert controller.register(1, feature_min=1, feature_max=2).feature_level == 1
    refused = controller.register(2, feature_min=2, feature_max=2)

    assert refused.refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert "2-2 of node 2 do not overlap 1-1" in refused.refusal.message


def test_feature_level_of_the_dead_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only live nodes count: once the old release is gone the level rises with the next registration, and its process,
    if it lives, does not come back by a heartbeat: it would not keep to rules that it cannot read."""
    monkeypatch.setattr(types, "HIGHEST", 2)
    controller = Controller()
    controller.start(1, feature_min=1, feature_max=1)
    controller.start(2, feature_min=1, feature_max=2)
    controller.pass_ms(10_000, 2)
    answer = controller.register(3, feature_min=2, feature_max=2)

    assert (answer.refusal, answer.feature_level) == (None, 2)
    assert controller.heartbeat(1).refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert controller.node(1).fenced


def test_observer_appears_in_every_partition_and_is_never_placed() -> None:
    """M60: observers are listed beside the replicas, are no node for the replication factor, and keep min ISR."""
    controller = started(1, 2)
    controller.start(9, roles=OBSERVER)
    partition = controller.create(1, 2)

    assert partition.observers == (9,)
    assert partition.min_isr == 1


def test_assigned_node_cannot_become_an_observer() -> None:
    """A node that holds replicas registers with its full roles or not at all."""
    controller = created(1)
    refused = controller.register(1, roles=OBSERVER)

    assert refused.refusal.code is ErrorCode.INVALID_REQUEST
    assert "roles" in refused.refusal.message


def test_observer_may_become_a_full_node() -> None:
    """A node with other roles than before leaves every list of observers."""
    controller = created(1)
    controller.start(9, roles=OBSERVER)
    assert controller.partition().observers == (9,)

    controller.start(9)

    assert controller.partition().observers == ()


def test_min_isr_lowered_while_the_elr_is_populated() -> None:
    """TR19: RF 3, m 2, ISR {0}, ELR {1}: m := 1 bumps the partition epoch and clears the ELR in one transaction."""
    controller = created(0, 1, 2)
    controller.fence(2)
    controller.fence(1)
    assert controller.view() == (0, {0}, {1})
    before = controller.partition()
    offset = controller.core.state.header.metadata_offset
    controller.alter_config(min_insync_replicas="1")
    after = controller.partition()
    assert (after.min_isr, after.elr) == (1, ())
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch
    assert controller.core.state.header.metadata_offset == offset + 1

    controller.fence(0)
    controller.heartbeat(1)
    assert controller.view()[0] is None


def test_min_isr_raised_adds_no_replica_to_the_elr() -> None:
    """M57: a replica outside the ISR when m is raised may lack newer committed records; a raise adds none."""
    controller = created(0, 1, 2, min_insync_replicas="1")
    controller.fence(1, 2)
    assert controller.view() == (0, {0}, set())

    controller.alter_config(min_insync_replicas="3")

    assert controller.view() == (0, {0}, set())
    assert controller.partition().min_isr == 3


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    """The effective min ISR is min(setting, RF), and removing the setting restores the default."""
    controller = started(0, 1, 2)
    assert controller.create(0, 1, min_insync_replicas="5").min_isr == 2

    controller.ask(AlterTopicConfigs(topics=(ConfigChange(TopicRef("t"), (), ("min.insync.replicas",)),)))

    assert controller.partition().min_isr == 1
