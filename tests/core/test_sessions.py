"""Sessions: silence, pauses of the controller, restarts, refused connections, controlled shutdown."""

from __future__ import annotations

import pytest
from controller_builders import CLUSTER, Controller, created, started

from strandline.core.control.events import ConnectionRefused, ControllerTicked, DoorsOpened
from strandline.core.control.messages import ShutdownNode, WatchMetadata
from strandline.core.control.nodes import Sessions
from strandline.core.control.state import ControllerTimings
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Heartbeat
from strandline.core.state_events import NodeSession
from strandline.core.types import NodeEpoch, NodeId

N = NodeId(1)


def test_silence_for_a_session_timeout_fences() -> None:
    """A node without a heartbeat for 9 s is fenced, one that sends heartbeats is not."""
    controller = created(1, 2)
    controller.pass_ms(8_900, 2)
    assert not controller.node(1).fenced
    controller.pass_ms(200, 2)

    assert controller.node(1).fenced
    assert not controller.node(2).fenced
    assert controller.view() == (2, {2}, set())
    fenced = [
        e.event._asdict() for e in controller.emitted if isinstance(e.event, NodeSession) and e.event.phase == "fence"
    ]
    assert [(f["subject_node_id"], f["cause"]) for f in fenced] == [(1, "session_timeout")]


def test_pause_of_the_controller_fences_no_node() -> None:
    """M59: a tick gap of 20 s extends every session; the nodes have one session time-out more."""
    controller = started(1)
    controller.pass_ms(1_000)
    controller.now_ms += 9_500
    controller.step(ControllerTicked(controller.now_ms))

    assert not controller.node(1).fenced

    controller.pass_ms(9_000)
    assert controller.node(1).fenced


@pytest.mark.parametrize(("gap_ms", "alive"), [(9_000, True), (17_900, True), (18_100, False), (60_000, False)])
def test_grace_is_one_session_timeout_at_most(gap_ms: int, alive: bool) -> None:
    """M59: between two heartbeats a session is extended by one time-out in total, however long the gap."""
    sessions = Sessions(9_000, 2_000)
    sessions.tick(0)
    sessions.heard(N, 0, 0)

    assert (N not in sessions.tick(gap_ms)) is alive


def test_grace_does_not_add_up_over_several_gaps() -> None:
    """M59: three gaps of 5 s extend by 9 s together, and a heartbeat renews the grace."""
    sessions = Sessions(9_000, 2_000)
    sessions.heard(N, 0, 0)
    for now_ms in (0, 5_000, 10_000, 15_000):
        assert not sessions.tick(now_ms)
    assert sessions.tick(17_000) == {}
    assert sessions.tick(18_000) == {N: 0}

    sessions.heard(N, 18_000, 0)
    assert sessions.tick(35_000) == {}


def test_restarted_controller_grants_full_sessions() -> None:
    """M59: a new controller epoch fences no node for earlier silence; a silent node is fenced one time-out later."""
    controller = created(1, 2)
    restarted = Controller(state=controller.stored, now_ms=7)
    restarted.epochs = controller.epochs

    assert restarted.core.state.header.controller_epoch == 2
    assert not restarted.node(1).fenced
    restarted.pass_ms(8_900, 1)
    assert not restarted.node(2).fenced
    restarted.pass_ms(200, 1)
    assert restarted.node(2).fenced


def test_refused_connection_fences_at_once() -> None:
    """A refused connection of this very incarnation is proof; the partition gets its next leader in the same step."""
    controller = created(1, 2)
    controller.fence(1)

    assert controller.node(1).fenced
    assert controller.view()[0] == 2
    assert isinstance(controller.emitted[0].event, NodeSession)


def test_refusal_of_an_older_incarnation_means_nothing() -> None:
    """The node registered again meanwhile: the old process's closed port fences no node."""
    controller = started(1)
    old = controller.epochs[1]
    controller.start(1)

    assert controller.step(ConnectionRefused(controller.now_ms, ((N, old),))) == []
    assert controller.step(ConnectionRefused(controller.now_ms, ((NodeId(7), NodeEpoch(1)),))) == []
    assert not controller.node(1).fenced


def test_heartbeat_of_a_superseded_process_is_stale() -> None:
    """STALE_BROKER_EPOCH for an old epoch, BROKER_ID_NOT_REGISTERED for an unknown node; neither keeps a session."""
    controller = started(1)
    old = controller.epochs[1]
    controller.start(1)
    stranger = Heartbeat(cluster_id=CLUSTER, node_id=NodeId(5), node_epoch=NodeEpoch(1), metadata_offset=0)

    stale, unknown = controller.heartbeat(1, node_epoch=old).refusal, controller.ask(stranger).refusal
    assert stale.code is ErrorCode.STALE_BROKER_EPOCH and stale.message.endswith("this one must stop")
    assert unknown == Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, "node 5 is not registered; register it first")
    assert controller.heartbeat(1, cluster_id="x").code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_heartbeat_tells_the_timings() -> None:
    """Nodes take session time-out and interval from the answer; is_caught_up compares offsets."""
    controller = Controller(timings=ControllerTimings(session_timeout_ms=1_500, heartbeat_interval_ms=200))
    controller.start(1)
    answer = controller.heartbeat(1)

    assert (answer.session_timeout_ms, answer.heartbeat_interval_ms) == (1_500, 200)
    assert answer.is_caught_up
    assert not controller.heartbeat(1, metadata_offset=-1).is_caught_up


def test_node_may_ask_to_be_fenced() -> None:
    """want_fence fences the node at once; without it the next heartbeat brings it back."""
    controller = created(1, 2)

    assert controller.heartbeat(1, want_fence=True).is_fenced
    assert controller.view() == (2, {2}, set())
    assert not controller.heartbeat(1).is_fenced


def test_controlled_shutdown_moves_leaders_and_then_lets_go() -> None:
    """want_shut_down: leaders move, the node leaves every ISR, and gets the order to stop once it leads nothing."""
    controller = created(1, 2, 3)
    before = controller.partition()
    answer = controller.heartbeat(1, want_shut_down=True)
    after = controller.partition()
    assert answer.should_shut_down
    assert (after.leader, set(after.isr), after.leader_epoch) == (2, {2, 3}, before.leader_epoch + 1)
    assert controller.node(1).shutting_down
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down

    controller.start(1)

    assert not controller.node(1).shutting_down
    assert not controller.node(1).fenced


def test_shutdown_of_the_last_replica_leaves_it_in_the_elr() -> None:
    """A partition without another replica goes offline with the node, and comes back with it, clean."""
    controller = created(1)

    assert controller.heartbeat(1, want_shut_down=True).should_shut_down
    assert controller.view() == (None, set(), {1})

    controller.start(1)
    controller.report(1)
    assert controller.view() == (1, {1}, set())


def test_operator_may_shut_a_node_down() -> None:
    """ShutdownNode moves the leaders; the node learns by its next heartbeat; unknown nodes are rejected."""
    controller = created(1, 2)
    answer = controller.ask(ShutdownNode(node_id=N))

    assert (answer.refusal, answer.remaining) == (None, ())
    assert controller.view()[0] == 2
    assert controller.heartbeat(1).should_shut_down
    assert controller.ask(ShutdownNode(node_id=NodeId(9))).refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    stale = controller.ask(ShutdownNode(node_id=N, node_epoch=NodeEpoch(77)))
    assert stale.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    # An operator is not a process that could stop.
    assert stale.refusal.message.endswith("give that one, or leave node_epoch out to mean the process that runs")


def test_metadata_is_addressed_to_one_incarnation() -> None:
    """TR15: a snapshot names the node epoch it is for; a process that is not the current one gets none."""
    controller = started(2)
    old = controller.epochs[2]
    opened = controller.watch(WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(2), node_epoch=old))
    assert not isinstance(opened, Refusal)
    assert opened.snapshot.to_node_epoch == old
    assert opened.snapshot.is_snapshot

    controller.register(2)
    refused = controller.watch(WatchMetadata(cluster_id=CLUSTER, node_id=NodeId(2), node_epoch=old))

    assert refused.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    "request_",
    [
        WatchMetadata(node_id=NodeId(1)),
        WatchMetadata(node_epoch=NodeEpoch(1)),
        WatchMetadata(node_id=NodeId(1), node_epoch=NodeEpoch(1)),
    ],
)
def test_node_that_watches_says_who_it_is(request_: WatchMetadata) -> None:
    """A node names cluster, id and epoch; a client names neither id nor epoch."""
    controller = started(1)
    refused = controller.watch(request_)

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert not isinstance(controller.watch(WatchMetadata()), Refusal)


def test_minute_without_a_store_fences_nobody() -> None:
    """T63: unsure for 60 s while heartbeats come to closed doors: no node is fenced, but one that was dead all the
    time is fenced one session later."""
    controller = started(1, 2)
    controller.pass_ms(1_000, 1, 2)
    controller.now_ms += 60_000
    controller.step(DoorsOpened(controller.now_ms, 60_000))
    controller.step(ControllerTicked(controller.now_ms))
    assert not controller.node(1).fenced
    assert not controller.node(2).fenced
    controller.pass_ms(8_900, 2)
    assert not controller.node(1).fenced
    controller.pass_ms(200, 2)

    assert controller.node(1).fenced
    assert not controller.node(2).fenced


def test_stuttering_store_keeps_no_dead_leader() -> None:
    """C14: a store that stutters every 3 s extends a session by the times it was away, and by one session at most."""
    sessions = Sessions(9_000, 2_000)
    sessions.grant(N, 0)
    fenced_ms = None
    for now_ms in range(0, 60_000, 100):
        if now_ms % 3_000 == 2_900:
            sessions.resume(now_ms, 100)
        elif sessions.tick(now_ms) and fenced_ms is None:
            fenced_ms = now_ms

    assert fenced_ms == 18_600


def test_sessions_that_are_due_wait_for_two_heartbeats_after_the_doors_opened() -> None:
    """C14: a node that lives can be heard before its session ends, however short the doors were closed."""
    sessions = Sessions(9_000, 2_000)
    sessions.grant(N, 0)
    sessions.resume(8_950, 10)

    assert next(now_ms for now_ms in range(9_000, 20_000, 50) if sessions.tick(now_ms)) == 8_950 + 2 * 2_000
