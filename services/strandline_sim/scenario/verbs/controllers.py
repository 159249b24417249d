"""The verbs of several controllers and their store: who reigns, who is stopped, what the store loses."""

from __future__ import annotations

from strandline.core.control.messages import NodeUnregistered, UnregisterNode
from strandline.core.messages import AlterPartitionRequest, IsrMember, PartitionImage, ProposedIsr
from strandline.core.reigns.events import HandOverAsked, PeerLost
from strandline.core.types import LeaderEpoch, PartitionEpoch
from strandline_sim.scenario.board import CONTROLLER, Envelope, Link
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.controllers import ScenarioController, StagedControllers
from strandline_sim.scenario.controlling import StagedController
from strandline_sim.scenario.language import Misuse, Word
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.telling import altered_text

_STORE = ("away", "back", "full", "lag", "lose-answer", "lose-request", "restore")


def controllers(call: VerbCall) -> None:
    """`controllers`: name several controllers, before the first `nodes`; the first one reigns."""
    control, first = call.stage.control, call.word(0, "the names of controllers, such as c1 c2")
    if control.group is not None:
        raise call.wrong(first, "`controllers` once, before the first `nodes`")
    names = [word.text for word in call.words]
    for at, word in enumerate(call.words):
        if not word.text.isalnum() or word.text == "ctl" or word.text in names[:at]:
            raise call.wrong(word, "a new name of letters and digits, not ctl")
    control.start(*names)
    call.stage.lines.clear()


def _several(call: VerbCall) -> StagedControllers:
    group = call.stage.control.group
    if group is None or not group.is_several:
        raise call.wrong(call.command.words[0], "`controllers` before this")
    return group


def _member(call: VerbCall, word: Word) -> ScenarioController:
    members = _several(call).members
    if word.text not in members:
        raise call.wrong(word, f"a controller ({', '.join(members)})")
    return members[word.text]


def take_over(call: VerbCall) -> None:
    """`take-over`: a standby finds no process at the address of the active controller, and takes its key."""
    several, word = _several(call), call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    key = several.store.key
    if key is not None and key.controller_id == member.name:
        raise call.wrong(word, "a controller that does not hold the key")
    if key is not None:
        several.take(member, PeerLost(call.stage.now_ms, key.token))


def hand_over(call: VerbCall) -> None:
    """`hand-over`: the one who reigns gives up its key; with a second name that one is to have it."""
    several = _several(call)
    member = _member(call, call.word(0, "a controller"))
    to = _member(call, call.words[1]).name if len(call.words) > 1 else None
    call.no_more(2)
    several.take(member, HandOverAsked(call.stage.now_ms, to))


def pause_controller(call: VerbCall) -> None:
    """`pause-controller`: SIGSTOP: what it is given, and was about to send, waits; ``at-key``: once it wins the key."""
    member = _member(call, call.word(0, "a controller"))
    call.no_more(2)
    if len(call.words) == 1:
        member.is_paused = True
    elif call.words[1].text == "at-key":
        member.stops_at_key = True
    else:
        raise call.wrong(call.words[1], "at-key, or nothing more")


def resume_controller(call: VerbCall) -> None:
    """`resume-controller`: SIGCONT: what it was about to send is sent, then it looks at the time."""
    word = call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    if not member.is_paused:
        raise call.wrong(word, "a controller that is paused")
    _several(call).resume(member)


def end_lease(call: VerbCall) -> None:
    """`end-lease`: the store ends a controller's lease, in time or not; its key goes with it."""
    several, word = _several(call), call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    lease_id = member.core._lease.lease_id
    if lease_id is None:
        raise call.wrong(word, "a controller with a lease")
    several.store.end_lease(lease_id)
    several.tell_all()


def store(call: VerbCall) -> None:
    """`store`: it has no quorum, no space, or watches that lag; is well again; loses a write; is an older copy."""
    several, word = _several(call), call.word(0, f"one of {', '.join(_STORE)}")
    call.no_more(2 if word.text == "restore" else 1)
    match word.text:
        case "away":
            several.store.is_away = True
        case "full":
            several.store.is_full = True
        case "lag":
            several.store.lags = True
        case "back":
            several.store.is_away = several.store.is_full = several.store.lags = False
            several.tell_all()
        case "lose-answer" | "lose-request":
            several.store.loses = word.text.removeprefix("lose-")
        case "restore":
            _restore(call, several)
        case _:
            raise call.wrong(word, f"one of {', '.join(_STORE)}")


def _restore(call: VerbCall, several: StagedControllers) -> None:
    """The store is as it was before its last transactions; who reigns finds out by asking it."""
    word = call.word(1, "how many transactions it lacks")
    lost, there = call.integer(word), len(several.store.heads)
    if not 0 < lost < there:
        raise call.wrong(word, f"a number from 1 to {there - 1}, as the store has {there} transactions")
    call.stage.control.lose_transactions(lost)


def recover(call: VerbCall) -> None:
    """`recover`: an operator makes a store from what the nodes have on disk, and starts every controller."""
    call.no_more(0)
    if call.stage.control.position() is None:
        raise call.wrong(call.command.words[0], "`nodes` before this")
    call.stage.control.recover()


def expect_active(call: VerbCall) -> None:
    """`expect-active`: the controller that serves, and with ``epoch=`` its controller epoch, or ``none``."""
    control, word = call.stage.control, call.word(0, "a controller, ctl, or none")
    call.no_more(1)
    active = control.group.active if control.group is not None else None
    found = active.name if active is not None else "none"
    if found != word.text:
        raise Misuse(word.column, f"the active controller is {word.text}", f"the active controller is {found}")
    if "epoch" in call.options and control.core is not None:
        right, epoch = call.options["epoch"], str(control.core.state.header.controller_epoch)
        if right.text != epoch:
            raise Misuse(right.column, f"the controller epoch is {right.text}", f"the controller epoch is {epoch}")


# ---- controller
# The verbs that make the controller decide at once, and let its metadata arrive: config, elect, alter, fence ...


def deciding(call: VerbCall) -> tuple[StagedController, PartitionImage]:
    """The running controller and the partition it decides about."""
    control = call.stage.control
    if control.core is None:
        raise call.wrong(call.command.words[0], "a controller that runs", "a controller that is down")
    partition = control.partition()
    if partition is None:
        raise call.wrong(call.command.words[0], "`topic` before this")
    return control.core, partition


def elect(call: VerbCall) -> None:
    """`elect`: make a node of ISR or ELR leader; with ``unclean`` any node; ``none`` leaves no leader."""
    core, partition = deciding(call)
    who = call.word(0, "a node, or none")
    unclean = len(call.words) > 1 and call.words[1].text == "unclean"
    call.no_more(2 if unclean else 1)
    if who.text == "none":
        call.stage.control.perform(core.drop_leader(TP))
        return
    actor = call.node(who)
    if actor.node_id not in partition.replicas:
        replicas = call.stage.names.shown(partition.replicas)
        raise call.wrong(who, f"a node with a replica ({replicas})", f"{actor.name}, which has none")
    image = core.state.nodes[actor.node_id].image
    if image.fenced or image.shutting_down or image.is_observer:
        raise call.wrong(who, "a node that may lead", f"{actor.name}, which is fenced, stopping or an observer")
    if not unclean and actor.node_id not in (*partition.isr, *partition.elr):
        members = call.stage.names.shown((*partition.isr, *partition.elr))
        raise call.wrong(who, f"a member of ISR or ELR ({members}), or `elect {actor.name} unclean`")
    call.stage.control.perform(core.place_leader(TP, actor.node_id, unclean=unclean))


def alter(call: VerbCall) -> None:
    """`alter`: a proposal for the ISR in a node's name, decided at once with every check but the attempt's number."""
    core, partition = deciding(call)
    stage = call.stage
    actor = call.node(call.word(0, "the proposing node"))
    call.no_more(1)
    if "isr" not in call.options:
        raise call.wrong(None, "isr=, the members proposed")
    state = core.state
    members = tuple(
        IsrMember(a.node_id, state.nodes[a.node_id].image.node_epoch) for a in call.nodes(call.options["isr"])
    )
    proposal = ProposedIsr(
        TP,
        LeaderEpoch(call.integer_option("epoch", partition.leader_epoch)),
        PartitionEpoch(call.integer_option("version", partition.partition_epoch)),
        members,
    )
    request = AlterPartitionRequest(
        cluster_id=CLUSTER_ID,
        controller_epoch=call.integer_option("controller-epoch", state.header.controller_epoch),
        node_id=actor.node_id,
        node_epoch=state.nodes[actor.node_id].image.node_epoch,
        request_sequence=1,
        partitions=(proposal,),
    )
    effects, answer = core.alter_by_hand(request)
    stage.control.perform(effects)
    refusal = answer.refusal or (answer.partitions[0].refusal if answer.partitions else None)
    stage.clients.note("alter", altered_text(answer, stage.names), refusal)


def fence(call: VerbCall) -> None:
    """`fence`: end a node's session; it stays fenced until `unfence`, whatever heartbeats it sends."""
    core, _ = deciding(call)
    actor = call.node(call.word(0, "a node"))
    call.no_more(1)
    actor.wants_fence = True
    call.stage.control.perform(core.fence_now(actor.node_id))


def unfence(call: VerbCall) -> None:
    """`unfence`: let a fenced node's heartbeat count again."""
    deciding(call)
    actor = call.running(call.word(0, "a node"))
    call.no_more(1)
    actor.wants_fence = False
    call.stage.control.beat(actor)


def unregister(call: VerbCall) -> None:
    """`unregister`: remove a node that is gone for good, as an operator does."""
    word = call.word(0, "a node")
    control = call.stage.control
    if control.core is None:
        raise call.wrong(word, "a controller that runs", "a controller that is down")
    actor = call.node(word)
    call.no_more(1)
    answer = control.ask(UnregisterNode(cluster_id=CLUSTER_ID, node_id=actor.node_id), NodeUnregistered)
    call.stage.clients.note(
        "unregister", "done" if answer.refusal is None else answer.refusal.code.name, answer.refusal
    )


def producer_ids(call: VerbCall) -> None:
    """`producer-ids`: a node asks for a block of producer ids, and is answered at once."""
    actor = call.running(call.word(0, "a node"))
    call.no_more(1)
    call.stage.control.allocate_producer_ids(actor)


def metadata_to(call: VerbCall) -> None:
    """`metadata-to`: let waiting metadata arrive: all of it in order, or only that of one epoch or version."""
    stage = call.stage
    word = call.word(0, "a node, several (A,B), or all")
    again = len(call.words) > 1 and call.words[1].text == "again"
    call.no_more(2 if again else 1)
    actors = list(stage.actors.values()) if word.text == "all" else call.nodes(word)
    epoch, version = call.maybe_integer("epoch"), call.maybe_integer("version")
    for actor in actors:
        if again:
            _tell_again(call, actor, epoch, version)
            continue
        link = Link(CONTROLLER, actor.name)
        found = [e for e in stage.wire.waiting() if e.link == link and e.kind == "metadata"]
        if epoch is not None or version is not None:
            found = [e for e in found if _is_meant(e, epoch, version)][-1:]
            if not found:
                raise call.wrong(word, f"metadata {_meant(epoch, version)} under way to {actor.name}", "none")
        for envelope in found:
            stage.deliver(envelope)


def _is_meant(envelope: Envelope, epoch: int | None, version: int | None) -> bool:
    return epoch in (None, envelope.epoch) and version in (None, envelope.version)


def _meant(epoch: int | None, version: int | None) -> str:
    return f"of epoch {epoch}" if epoch is not None else f"of version {version}"


def _tell_again(call: VerbCall, actor: Actor, epoch: int | None, version: int | None) -> None:
    """A copy of metadata that was sent to this node before, addressed as it was then (TR15)."""
    for image in reversed(call.stage.control.reported.get(actor.name, [])):
        partitions = [p for t in image.topics for p in t.partitions]
        if any(epoch in (None, p.leader_epoch) and version in (None, p.partition_epoch) for p in partitions):
            call.stage.tell(f"{CONTROLLER}->{actor.name} arrived again: metadata {_meant(epoch, version)}")
            call.stage.control.hand(actor, image)
            return
    raise call.wrong(call.words[0], f"metadata {_meant(epoch, version)} that was sent to {actor.name} before", "none")


def config(call: VerbCall) -> None:
    """`config`: change settings of the topic, such as min.insync.replicas."""
    deciding(call)
    changes = tuple((key.text, value.text) for key, value in call.pairs("a setting such as min.insync.replicas=1"))
    refusal = call.stage.control.alter_configs(changes)
    if refusal is not None:
        raise call.wrong(call.words[0], "a setting the controller accepts", str(refusal))


VERBS = (
    Verb("controllers", controllers),
    Verb("take-over", take_over),
    Verb("hand-over", hand_over),
    Verb("pause-controller", pause_controller),
    Verb("resume-controller", resume_controller),
    Verb("end-lease", end_lease),
    Verb("store", store),
    Verb("recover", recover),
    Verb("expect-active", expect_active, ("epoch",)),
    Verb("config", config),
    Verb("elect", elect),
    Verb("alter", alter, ("isr", "epoch", "version", "controller-epoch")),
    Verb("fence", fence),
    Verb("unfence", unfence),
    Verb("unregister", unregister),
    Verb("producer-ids", producer_ids),
    Verb("metadata-to", metadata_to, ("epoch", "version")),
)
