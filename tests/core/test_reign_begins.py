"""What a new reign skips, for which word its elections wait, and which positions a store knows (C33 to C39)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from controller_builders import CLUSTER, Controller, created, next_reign, proof_of, stored

from strandline.core.control.controller import NODE_EPOCHS_SKIPPED
from strandline.core.control.events import OpenWatch, RefuseCall, RequestArrived, StopServing, WatchArrived
from strandline.core.control.messages import ElectionKind, ElectLeaders, WatchMetadata
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import (
    KEPT_REIGNS,
    SENT_REIGNS,
    SKIP,
    Reigns,
    Standing,
    begun,
    changes_between,
    present,
    sent,
    standing,
    with_changed,
)
from strandline.core.errors import ErrorCode
from strandline.core.messages import Heartbeat, Position, Reign
from strandline.core.types import NodeId


def test_the_first_change_of_a_reign_skips_and_later_ones_count_by_one() -> None:
    """T65: the first election of a reign adds 1,025 to both epochs, the next one adds 1."""
    controller = created(1, 2, 3)
    before = controller.partition()
    after = next_reign(controller)
    for node_id in (1, 2, 3):
        after.heartbeat(node_id)
    after.fence(1)
    first = after.partition()
    after.fence(2)
    second = after.partition()

    assert first.leader_epoch == before.leader_epoch + 1 + SKIP
    assert first.partition_epoch == before.partition_epoch + 1 + SKIP
    assert (second.leader_epoch, second.partition_epoch) == (first.leader_epoch + 1, first.partition_epoch + 1)


def test_a_change_without_an_election_skips_the_partition_epoch_alone() -> None:
    """C37: a leader that stays keeps its leader epoch, and its followers need not begin again."""
    controller = created(1, 2, 3)
    before = controller.partition()
    after = next_reign(controller)
    for node_id in (1, 2, 3):
        after.heartbeat(node_id)
    after.fence(3)

    assert after.partition().leader_epoch == before.leader_epoch
    assert after.partition().partition_epoch == before.partition_epoch + 1 + SKIP


def test_a_topic_made_in_this_reign_skips_nothing() -> None:
    """Its id is random, so no lost transaction can have given its epochs."""
    controller = created(1, 2)
    before = controller.partition()
    controller.fence(2)

    assert controller.partition().partition_epoch == before.partition_epoch + 1


def test_changes_are_counted_over_any_number_of_skips() -> None:
    """What reads epochs as a count of changes sees the same count, whatever number of reigns began between them."""
    assert changes_between(20, 20) == 0
    assert changes_between(20, 21) == 1
    assert changes_between(20, 20 + 1 + SKIP) == 1
    assert changes_between(20, 20 + 5 + 3 * SKIP) == 5


def test_a_reign_skips_node_epochs() -> None:
    """C33: those that a lost end of the store may have given are not given again."""
    controller = created(1)
    given = controller.core.state.header.next_node_epoch

    assert next_reign(controller).core.state.header.next_node_epoch == given + NODE_EPOCHS_SKIPPED


def test_an_election_waits_for_a_live_replica_that_has_not_spoken() -> None:
    """C37: node 1 is gone; node 3 could lead, but node 2 may know of a change that the store forgot."""
    after = next_reign(created(1, 2, 3))
    after.heartbeat(3)
    after.fence(1)
    waiting = after.partition().leader
    after.heartbeat(2)

    assert waiting is None
    assert after.partition().leader == 2


def test_an_election_waits_one_session_at_most() -> None:
    """C37: a replica that stays silent is fenced, and no election waits for it any longer."""
    after = next_reign(created(1, 2, 3))
    after.heartbeat(3)
    after.fence(1)
    after.pass_ms(after.timings.session_timeout_ms - 1_000, 3)
    before = after.partition().leader
    after.pass_ms(2_000, 3)

    assert before is None
    assert after.partition().leader == 3


def test_nodes_that_go_in_one_step_do_not_wait_for_each_other() -> None:
    """C37: both are fenced by the same word of the probe; the third has spoken."""
    after = next_reign(created(1, 2, 3))
    after.heartbeat(3)
    after.fence_together(1, 2)

    assert after.partition().leader == 3


def test_an_operators_election_waits_as_well() -> None:
    """C37: the refusal names the node that was not heard."""
    after = next_reign(created(1, 2))
    after.heartbeat(1)
    after.fence(1)
    (result,) = after.ask(ElectLeaders(kind=ElectionKind.UNCLEAN)).results

    assert "nodes [2] have not been heard" in result.refusal.message


def test_a_watch_from_a_forgotten_position_is_sent_nothing() -> None:
    """C36, TR29: the position is checked before the snapshot, or the node would drop a topic that this store forgot."""
    controller = created(1, 2)
    backup = stored(controller)
    controller.register(2)
    position = proof_of(controller, 1)
    after = next_reign(controller, backup)
    asked = WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=controller.epochs[1], position=position)

    assert [type(effect) for effect in after.step(WatchArrived(after.now_ms, 5, asked))] == [StopServing, RefuseCall]


def test_a_watch_from_a_known_position_is_served() -> None:
    """C36: the check refuses no node whose history this is."""
    controller = created(1, 2)
    position = proof_of(controller, 1)
    after = next_reign(controller)
    asked = WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=controller.epochs[1], position=position)

    assert isinstance(after.watch(asked), OpenWatch)


def test_an_unknown_position_without_a_valid_proof_refuses_one_node() -> None:
    """C35, M72: one forged position does not stop the cluster."""
    controller = created(1, 2)
    forged = proof_of(controller, 1)._replace(metadata_offset=1_000)
    refused = controller.heartbeat(1, position=forged)

    assert refused.code is ErrorCode.NOT_CONTROLLER
    assert controller.core.serves
    assert controller.core.unproven_claims == 1


def test_an_answer_about_an_isr_carries_its_position() -> None:
    """C34, I20: the leader acts on the answer, so the answer names a position that the store must know later."""
    controller = created(1, 2, 3)
    answer = controller.ask(controller.proposal(1, 2, epoch_of_1=None, epoch_of_2=None))

    assert answer.partitions[0].refusal is None
    assert answer.position == proof_of(controller, 1)


def test_a_refused_proposal_gets_no_proof() -> None:
    """M72: the sender of a refused request may be anybody, and a proof could stop the controller one day."""
    controller = created(1, 2, 3)
    answer = controller.ask(controller.proposal(2, sender=2))

    assert answer.partitions[0].refusal is not None
    assert answer.position is None


def recovered_without_the_end() -> tuple[Controller, dict[str, Any]]:
    """Node 1 was sent one more change, of nodes alone, than the directories that were given to a recovery know."""
    controller = created(1, 2)
    image = controller.core.state.snapshot()
    place = image.place
    assert place is not None
    controller.register(2)
    given = [GivenNode(node_id=NodeId(n), directory_id=f"directory-{n}", image=image) for n in (1, 2)]
    words = {"position": proof_of(controller, 1), "topics_position": place}
    state = recover(given)
    # A recovery keeps the secret of the store in whose place it comes; this one was lost with its end.
    header = replace(state.header, secret=controller.core.state.header.secret)
    return next_reign(controller, replace(state, header=header)), words


def test_a_process_that_knows_a_lost_change_of_nodes_starts_again() -> None:
    """C39: no topic changed since, so nothing that it knows is missing."""
    after, words = recovered_without_the_end()
    answer = after.heartbeat(1, **words)

    assert answer.code is ErrorCode.STALE_BROKER_EPOCH
    assert after.core.serves


def test_a_process_that_knows_a_lost_change_of_a_topic_stops_the_controller() -> None:
    """C39: the recovery has to be run again, with the directory of this node."""
    after, words = recovered_without_the_end()
    position = words["position"]
    words["topics_position"] = Position(position.reign_id, position.metadata_offset)
    beat = Heartbeat(cluster_id=CLUSTER, node_id=NodeId(1), node_epoch=after.epochs[1], metadata_offset=0, **words)

    assert [type(effect) for effect in after.step(RequestArrived(after.now_ms, 9, beat))] == [StopServing, RefuseCall]
    assert "give this node's directory" in after.ask(beat).message


# Which positions a store knows, and how its history of reigns grows (C34, C35, C39).


HEAD = 118


def grown(*first_offsets: int, recovered: bool = False) -> Reigns:
    """Reigns R1, R2, ... that began at these offsets."""
    reigns: Reigns = {}
    for number, first in enumerate(first_offsets, 1):
        reigns = with_changed(reigns, begun(reigns, reign_id=f"R{number}", controller_epoch=number, first_offset=first))
    if recovered:
        last = {name: HEAD if record.last_offset is None else record.last_offset for name, record in reigns.items()}
        return {name: replace(record, last_offset=last[name], recovered=True) for name, record in reigns.items()}
    return reigns


@pytest.mark.parametrize(
    ("reign_id", "offset", "expected"),
    [
        ("R1", 1, Standing.KNOWN),
        ("R1", 104, Standing.KNOWN),
        ("R2", 105, Standing.KNOWN),
        ("R2", 118, Standing.KNOWN),
        ("R1", 105, Standing.UNKNOWN),
        ("R2", 119, Standing.UNKNOWN),
        ("R2", 104, Standing.UNKNOWN),
        ("R9", 3, Standing.UNKNOWN),
    ],
)
def test_a_position_is_known_in_its_own_reign_only(reign_id: str, offset: int, expected: Standing) -> None:
    """T64: R1 gave 1 to 104, R2 gives 105 to 118; the same offset in another reign is another position."""
    assert standing(grown(1, 105), HEAD, Position(reign_id, offset)) is expected


def test_beyond_the_end_that_a_recovery_learned_of_is_not_unknown() -> None:
    """C39: what a recovery could not know of is no proof that the store forgot anything since."""
    reigns = grown(1, 105, recovered=True)

    assert standing(reigns, 1_000_118, Position("R2", 119)) is Standing.BEYOND_RECOVERY
    assert standing(reigns, 1_000_118, Position("R2", 118)) is Standing.KNOWN
    assert standing(reigns, 1_000_118, Position("R9", 119)) is Standing.BEYOND_RECOVERY


def test_an_unknown_reign_above_a_recovery_is_unknown() -> None:
    """C39: a recovery continues a million offsets above all that was given, so what is above it came after it."""
    reigns = grown(1, 105, recovered=True)
    reigns = with_changed(reigns, begun(reigns, reign_id="R3", controller_epoch=4, first_offset=1_000_119))

    assert standing(reigns, 1_000_130, Position("R9", 1_000_118)) is Standing.BEYOND_RECOVERY
    assert standing(reigns, 1_000_130, Position("R9", 1_000_119)) is Standing.UNKNOWN


def test_a_reign_ends_where_the_next_one_begins() -> None:
    """C34: the last offset of a reign is the one before the first of its successor, which names it."""
    first, second = grown(1, 105).values()

    assert (first.last_offset, second.last_offset) == (104, None)
    assert (first.previous_reign_id, second.previous_reign_id) == ("", "R1")


def test_a_position_below_all_kept_reigns_is_old() -> None:
    """C34: beyond 10,000 reigns the oldest are forgotten; what they gave is old, and no sign of a loss."""
    reigns = grown(*range(1, KEPT_REIGNS + 3))

    assert len(reigns) == KEPT_REIGNS
    assert "R2" not in reigns
    assert standing(reigns, KEPT_REIGNS + 2, Position("R2", 2)) is Standing.OLD
    assert standing(reigns, KEPT_REIGNS + 2, Position("R2", 7)) is Standing.UNKNOWN


def test_a_snapshot_carries_the_latest_reigns_and_a_change_the_present_one() -> None:
    """C38: enough to tell which nodes share a history, however long it is."""
    reigns = grown(*range(1, SENT_REIGNS + 11))

    assert len(sent(reigns)) == SENT_REIGNS
    assert sent(reigns)[-1] == Reign(f"R{SENT_REIGNS + 10}", SENT_REIGNS + 10, SENT_REIGNS + 10, f"R{SENT_REIGNS + 9}")
    assert present(reigns) == sent(reigns)[-1:]
    assert present({}) == ()
