"""The controller's invariants hold after every step, for any events in any order."""

from __future__ import annotations

from controller_builders import TOPIC, Controller
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.control.messages import AlterTopicConfigs, ConfigChange, ElectionKind, ElectLeaders, TopicRef
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.errors import ControllerHint, Refusal
from strandline.core.messages import PartitionImage

NODES = (1, 2, 3)

node = st.sampled_from(NODES)
actions = st.one_of(
    st.tuples(st.just("restart"), node),
    st.tuples(st.just("unclean"), node),
    st.tuples(st.just("new_disk"), node),
    st.tuples(st.just("beat"), node),
    st.tuples(st.just("refused"), node),
    st.tuples(st.just("farewell"), node),
    st.tuples(st.just("silence"), st.integers(1, 12)),
    st.tuples(st.just("propose"), st.sets(node, min_size=1)),
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
